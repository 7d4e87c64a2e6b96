package deploy

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"podcount/internal/metrics"
	"podcount/internal/testkit"
)

var update = flag.Bool("update", false, "write alerts.yaml from its template")

func TestAlertRulesAreTheFileHere(t *testing.T) {
	got, err := AlertRules()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("alerts.yaml", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("alerts.yaml")
	if err != nil || got != string(want) {
		t.Errorf("alerts.yaml is not what its template makes (make manifests): %v\n%s", err, got)
	}
}

// alert is a rule of a file made from the template of the alerts.
type alert struct {
	name, expr string
	text       string // all of it
}

func alertsOf(t *testing.T, rules string) (alerts []alert) {
	t.Helper()
	for _, text := range strings.Split(rules, "    - alert: ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		_, expr, _ := strings.Cut(rest, "      expr: ")
		// It ends with the next field, of the same indentation.
		expr = regexp.MustCompile(`(?s)\n      [a-z].*`).ReplaceAllString(expr, "")
		expr = strings.Join(strings.Fields(strings.TrimPrefix(expr, ">-")), " ")
		alerts = append(alerts, alert{name, expr, text})
	}
	if len(alerts) < 5 {
		t.Fatalf("there are %d alerts", len(alerts))
	}
	return alerts
}

func alertNames(t *testing.T, rules string) (names []string) {
	t.Helper()
	for _, a := range alertsOf(t, rules) {
		names = append(names, a.name)
	}
	return names
}

// scrapeLabels are the labels that Prometheus adds.
var scrapeLabels = []string{"job", "instance", "namespace", "pod"}

// keywords are the words of PromQL in the queries here, except the names of functions.
var keywords = []string{
	"by", "on", "and", "unless", "or", "le", "offset", "bool", "group_left", "without", "ignoring",
}

var (
	selectorPattern = regexp.MustCompile(`([a-z_][a-z0-9_]*)(?:\{([^}]*)\})?`)        // a metric{with matchers}
	matcherPattern  = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"([^"]*)"`)            // label="value"
	listPattern     = regexp.MustCompile(`\b(?:by|on|without|ignoring) ?\(([^)]*)\)`) // by (labels)
	rangePattern    = regexp.MustCompile(`\[[^\]]*\]`)                                // [5m]
)

// checkQuery checks that the metrics in a query, and their labels, are in the table of metrics. It understands only the
// part of PromQL that the queries here use.
func checkQuery(t *testing.T, what, query string) {
	t.Helper()
	labels := slices.Clone(scrapeLabels) // the labels of all metrics in the query
	found := 0
	text := rangePattern.ReplaceAllString(listPattern.ReplaceAllString(query, ""), "")
	for _, at := range selectorPattern.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		isCall := strings.HasPrefix(strings.TrimLeft(text[at[1]:], " "), "(")
		if isCall || slices.Contains(keywords, name) {
			continue
		}
		found++
		own := labelsOf(t, what, name)
		labels = append(labels, own...)
		hasMatchers := at[4] >= 0
		if hasMatchers {
			checkMatchers(t, what+": "+name, text[at[4]:at[5]], own)
		}
	}
	if found == 0 {
		t.Errorf("%s: no metric was found in %s", what, query)
	}
	for _, list := range listPattern.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(list[1], ",") {
			if !slices.Contains(labels, strings.TrimSpace(label)) {
				t.Errorf("%s: no metric in it has a label %s", what, label)
			}
		}
	}
}

// checkMatchers checks the matchers of a metric that has these labels of its own.
func checkMatchers(t *testing.T, what, matchers string, own []string) {
	t.Helper()
	for _, matcher := range matcherPattern.FindAllStringSubmatch(matchers, -1) {
		label, value := matcher[1], matcher[3]
		if !slices.Contains(own, label) && !slices.Contains(scrapeLabels, label) {
			t.Errorf("%s has no label %s", what, label)
		}
		isFromTheCode := label == "result" || label == "reason" || label == "kind"
		if isFromTheCode {
			wantValuesInTheCode(t, what, value)
		}
	}
}

// labelsOf returns the labels that a metric, or a part of a histogram, has in the table.
func labelsOf(t *testing.T, what, name string) []string {
	t.Helper()
	if name == "up" { // Prometheus makes this one itself
		return nil
	}
	for _, m := range metrics.All() {
		isHistogram := m.Type == metrics.Histogram
		switch {
		case !isHistogram && name == m.Name:
			return m.Labels
		case isHistogram && name == m.Name+"_sum", isHistogram && name == m.Name+"_count":
			return m.Labels
		case isHistogram && name == m.Name+"_bucket":
			return append(slices.Clip(m.Labels), "le")
		}
	}
	t.Errorf("%s: there is no metric %s", what, name)
	return nil
}

// productCode returns the whole program as one text.
var productCode = sync.OnceValues(func() (code string, err error) {
	err = filepath.WalkDir("..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code += string(text)
		return err
	})
	return code, err
})

// wantValuesInTheCode checks that each of these values, joined by |, occurs in the program.
func wantValuesInTheCode(t *testing.T, what, values string) {
	t.Helper()
	code, err := productCode()
	if err != nil {
		t.Fatal(err)
	}
	for value := range strings.SplitSeq(values, "|") {
		if !strings.Contains(code, `"`+value+`"`) {
			t.Errorf("%s: nothing has the value %s", what, value)
		}
	}
}

func TestEveryMetricAndLabelInAnAlertExists(t *testing.T) {
	generic, err := AlertRules()
	if err != nil {
		t.Fatal(err)
	}
	one, err := Manifest(settings(), "alerts")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range append(alertsOf(t, generic), alertsOf(t, one)...) {
		t.Run(a.name, func(t *testing.T) { checkQuery(t, a.name, a.expr) })
	}
}

func TestEachAlertSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	rules, err := AlertRules()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alertsOf(t, rules) {
		for _, field := range []string{"labels: {severity: ", "summary: ", "description: ", "runbook: "} {
			if strings.Count(a.text, field) != 1 {
				t.Errorf("%s has not one %q", a.name, field)
			}
		}
	}
}

func TestEachAlertHasACaseThatFiresAndOneThatDoesNot(t *testing.T) {
	cases, err := os.ReadFile("testdata/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := AlertRules()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range alertNames(t, rules) {
		_, fires, _ := strings.Cut(string(cases), "- name: "+name+" fires ")
		fires, _, _ = strings.Cut(fires, "- name: ")
		if !strings.Contains(fires, fmt.Sprintf("alertname=%q", name)) {
			t.Errorf("no case makes %s fire", name)
		}
		if !strings.Contains(string(cases), "- name: "+name+" is quiet ") {
			t.Errorf("no case keeps %s quiet", name)
		}
	}
}

func TestReadmeExplainsEachAlert(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := AlertRules()
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for row := range strings.Lines(string(readme)) {
		if strings.HasPrefix(row, "| `Podcount") {
			named, _, _ := strings.Cut(row[1:], "|")
			rows = append(rows, regexp.MustCompile(`\w+`).FindAllString(named, -1)...)
		}
	}
	names := alertNames(t, rules)
	slices.Sort(names)
	slices.Sort(rows)
	testkit.WantEqual(t, "the alerts in README.md", rows, names)
}

// promtool runs Prometheus' own tool in testdata, and returns its output. It skips the test if there is no such tool.
func promtool(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool: .ci/lint installs it")
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = "testdata"
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	if out, err := promtool(t, "check", "rules", "../alerts.yaml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := promtool(t, "test", "rules", "alerts_test.yaml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// ruleFileOf turns a PrometheusRule into a rule file for Prometheus.
func ruleFileOf(t *testing.T, prometheusRule string) (file string) {
	t.Helper()
	_, groups, found := strings.Cut(prometheusRule, "\nspec:\n  groups:\n")
	if !found {
		t.Fatalf("there are no groups in\n%s", prometheusRule)
	}
	file = filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("groups:\n"+groups), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// namesFor returns the alerts of one podcount with these settings.
func namesFor(t *testing.T, change func(*Settings)) []string {
	t.Helper()
	text := manifest(t, settings(change), "alerts")
	if out, err := promtool(t, "check", "rules", ruleFileOf(t, text)); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return alertNames(t, text)
}

func TestAlertsOfOnePodcountAreForItsFlags(t *testing.T) {
	all := namesFor(t, func(*Settings) {})
	ofLabels := []string{"PodcountLabelsFail", "PodcountLabelsStripped"}
	ofCounts := []string{"PodcountStatusesFail", "PodcountStatusesStripped"}
	ofElection := []string{"PodcountNobodyLeads", "PodcountTwoLeaders"}
	rows := []struct {
		name    string
		change  func(*Settings)
		without []string
	}{
		{"no election", func(s *Settings) { s.LeaderElect = false }, ofElection},
		{"no pod-count", func(s *Settings) { s.PodCount = false }, ofLabels},
		{"no count", func(s *Settings) { s.Count = false }, ofCounts},
		{"a dry run", func(s *Settings) { s.DryRun = true }, slices.Concat(ofLabels, ofCounts, ofElection)},
		{"a name with a dot", func(s *Settings) { s.Name = "podcount.a" }, nil},
		{"a long name", func(s *Settings) { s.Name = "podcount" + strings.Repeat("-a", 27) }, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			want := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
				return slices.Contains(row.without, name)
			})
			testkit.WantEqual(t, "the alerts", namesFor(t, row.change), want)
			testkit.WantNumber(t, "alerts", len(want), len(all)-len(row.without))
		})
	}
}

func TestThresholdsOfAlertsFollowTheFlags(t *testing.T) {
	s := settings()
	s.QPS = 0.01
	s.StuckAfter = 530 * time.Second
	s.LeaseDuration = 4 * time.Minute
	testkit.WantText(t, manifest(t, s, "alerts"),
		`(workqueue_longest_running_processor_seconds{namespace="kube-system",`+
			`pod=~"podcount-[a-z0-9]+-[a-z0-9]+"}[10m]) > 530`+"\n",
		"[17m]) > 0\n      for: 17m\n",
		"[17m]) > 3\n      for: 34m\n",
		" == 0\n      for: 8m\n")
}

func TestAlertsWithoutAPortAreRefused(t *testing.T) {
	text, err := Manifest(settings(func(s *Settings) { s.Port = 0 }), "alerts")
	if text != "" || err == nil || !strings.Contains(err.Error(), "-manifest=alerts: without -listen") {
		t.Errorf("%v; printed: %q", err, text)
	}
}

func TestPatternOfPodsIsForThoseOfOnePodcount(t *testing.T) {
	long := "podcount" + strings.Repeat("-a", 27)
	rows := []struct {
		name, pod string
		want      bool
	}{
		{"podcount", "podcount-6c8f9d7b5-x2x4z", true},
		{"podcount", "podcount-a-6c8f9d7b5-x2x4z", false},
		{"podcount-a", "podcount-a-6c8f9d7b5-x2x4z", true},
		{"podcount-a", "podcount-6c8f9d7b5-x2x4z", false},
		{"podcount.a", "podcount.a-6c8f9d7b5-x2x4z", true},
		{"podcount.a", "podcount-a-6c8f9d7b5-x2x4z", false},
		{long, (long + "-6c8f9d7b55-")[:58] + "x2x4z", true},
	}
	for _, row := range rows {
		t.Run(row.name+" "+row.pod, func(t *testing.T) {
			// Prometheus matches a pattern with the whole value.
			pattern := regexp.MustCompile("^(?:" + Settings{Name: row.name}.podPattern() + ")$")
			testkit.WantEqual(t, "it matches", pattern.MatchString(row.pod), row.want)
		})
	}
}

// A second podcount is in the state that each alert is about.
func TestAlertsOfOnePodcountAreNotAboutAnother(t *testing.T) {
	rules := ruleFileOf(t, manifest(t, settings(), "alerts"))
	const cases = `rule_files: [%[1]s]
tests:
- interval: 1m
  input_series:
  - {series: 'podcount_build_info{job="j", instance="a", namespace="kube-system", pod="podcount-1-a"}', values: 1x60}
  - {series: 'podcount_build_info{%[2]s}', values: 1x60}
  - {series: 'up{%[2]s}', values: 0x60}
  - {series: 'podcount_watch_age_seconds{%[2]s, kind="Pod"}', values: 999x60}
  - {series: 'leader_election_master_status{%[2]s, name="podcount"}', values: 0x60}
  - {series: 'workqueue_depth{%[2]s, name="count"}', values: 9x60}
  - {series: 'podcount_label_patches_total{%[2]s, result="failed"}', values: 0+9x60}
  - {series: 'podcount_label_patches_total{%[2]s, result="stripped"}', values: 0+9x60}
  promql_expr_test:
  - {expr: 'count(ALERTS{alertstate="firing"})', eval_time: 40m, exp_samples: [%[3]s]}
`
	rows := []struct{ namespace, pod, want string }{
		{"kube-system", "podcount-a-1-b", ""},
		{"other", "podcount-1-b", ""},
		{"kube-system", "podcount-1-b", "{labels: '{}', value: 6}"}, // this is the one that the alerts are about
	}
	for _, row := range rows {
		t.Run(row.namespace+" "+row.pod, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "cases.yaml")
			second := fmt.Sprintf(`job="j", instance="b", namespace="%s", pod="%s"`, row.namespace, row.pod)
			text := fmt.Sprintf(cases, rules, second, row.want)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := promtool(t, "test", "rules", file); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The PrometheusRule knows podcount's pods by their names, even if they have never answered.
func TestPodcountNotScrapedLastsUntilItAnswers(t *testing.T) {
	text := manifest(t, settings(), "alerts")
	const cases = `rule_files: [%s]
evaluation_interval: 5m
tests:
- interval: 5m
  input_series:
  - {series: 'podcount_build_info{instance="a", %[2]s, pod="podcount-1-a"}', values: 1x2 stale _x398 1x20}
  - {series: 'up{instance="a", %[2]s, pod="podcount-1-a"}', values: 1x2 0x398 1x20}
  - {series: 'podcount_build_info{instance="b", %[2]s, pod="podcount-1-b"}', values: 1x420}
  - {series: 'up{instance="b", %[2]s, pod="podcount-1-b"}', values: 1x420}
  - {series: 'up{instance="c", %[2]s, pod="podcount-1-c"}', values: 0x420}
  promql_expr_test:
  - {expr: '%[3]s', eval_time: 0m, exp_samples: []}
  - {expr: '%[3]s', eval_time: 10m, exp_samples: &c [{labels: '{instance="c"}', value: 1}]}
  - {expr: '%[3]s', eval_time: 60m, exp_samples: &both [
      {labels: '{instance="a"}', value: 1}, {labels: '{instance="c"}', value: 1}]}
  - {expr: '%[3]s', eval_time: 75m, exp_samples: *both}
  - {expr: '%[3]s', eval_time: 30h, exp_samples: *both}
  - {expr: '%[3]s', eval_time: 34h, exp_samples: *c}
`
	const labels = `job="j", namespace="kube-system"`
	const firing = `count by (instance) (ALERTS{alertname="PodcountNotScraped", alertstate="firing"})`
	file := filepath.Join(t.TempDir(), "cases.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, cases, ruleFileOf(t, text), labels, firing), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, "test", "rules", file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
