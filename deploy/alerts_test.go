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

// scrapeLabels are those that Prometheus adds.
var scrapeLabels = []string{"job", "instance", "namespace", "pod"}

// checkQuery checks that the metrics in a query, and their labels, are in the table of metrics. It knows as much of
// PromQL as the queries here need.
func checkQuery(t *testing.T, what, query string) {
	t.Helper()
	notes := []string{"by", "on", "and", "unless", "or", "le", "offset", "bool", "group_left", "without", "ignoring"}
	labels := slices.Clone(scrapeLabels) // that some metric in it has
	found := 0
	selector := regexp.MustCompile(`([a-z_][a-z0-9_]*)(?:\{([^}]*)\})?`)
	list := regexp.MustCompile(`\b(?:by|on|without|ignoring) ?\(([^)]*)\)`)
	outsideLists := list.ReplaceAllString(query, "")
	outsideLists = regexp.MustCompile(`\[[^\]]*\]`).ReplaceAllString(outsideLists, "") // ranges
	for _, at := range selector.FindAllStringSubmatchIndex(outsideLists, -1) {
		name := outsideLists[at[2]:at[3]]
		isCall := strings.HasPrefix(strings.TrimLeft(outsideLists[at[1]:], " "), "(")
		if isCall || slices.Contains(notes, name) {
			continue
		}
		found++
		own := labelsOf(t, what, name)
		labels = append(labels, own...)
		if at[4] < 0 {
			continue
		}
		for _, matcher := range regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"([^"]*)"`).FindAllStringSubmatch(outsideLists[at[4]:at[5]], -1) {
			if !slices.Contains(own, matcher[1]) && !slices.Contains(scrapeLabels, matcher[1]) {
				t.Errorf("%s: %s has no label %s", what, name, matcher[1])
			}
			if matcher[1] == "result" || matcher[1] == "reason" || matcher[1] == "kind" {
				wantValuesInTheCode(t, what, matcher[3])
			}
		}
	}
	if found == 0 {
		t.Errorf("%s: no metric was found in %s", what, query)
	}
	for _, names := range list.FindAllStringSubmatch(query, -1) {
		for _, label := range strings.Split(names[1], ",") {
			if !slices.Contains(labels, strings.TrimSpace(label)) {
				t.Errorf("%s: no metric in it has a label %s", what, label)
			}
		}
	}
}

// labelsOf returns the labels that a metric, or a part of a histogram, has by the table.
func labelsOf(t *testing.T, what, name string) []string {
	t.Helper()
	if name == "up" { // Prometheus' own
		return nil
	}
	for _, m := range metrics.All() {
		switch {
		case m.Type != metrics.Histogram && name == m.Name:
			return m.Labels
		case m.Type == metrics.Histogram && (name == m.Name+"_sum" || name == m.Name+"_count"):
			return m.Labels
		case m.Type == metrics.Histogram && name == m.Name+"_bucket":
			return append(slices.Clip(m.Labels), "le")
		}
	}
	t.Errorf("%s: there is no metric %s", what, name)
	return nil
}

// productCode is all of the program.
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

// wantValuesInTheCode asks that each of these values, joined by |, is written in the program.
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
		checkQuery(t, a.name, a.expr)
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
	if !slices.Equal(names, rows) {
		t.Errorf("the alerts are %q, in README.md %q", names, rows)
	}
}

// promtool runs Prometheus' own tool in testdata, and returns what it says.
func promtool(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not there: .ci/lint installs it")
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

// ruleFileOf makes a file for Prometheus of a PrometheusRule.
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

func TestAlertsOfOnePodcountAreForItsFlags(t *testing.T) {
	names := func(change func(*Settings)) []string {
		t.Helper()
		text, err := Manifest(settings(change), "alerts")
		if err != nil {
			t.Fatal(err)
		}
		if out, err := promtool(t, "check", "rules", ruleFileOf(t, text)); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return alertNames(t, text)
	}
	all := names(func(*Settings) {})
	without := func(absent ...string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(absent, name) })
	}
	ofLabels := []string{"PodcountLabelsFail", "PodcountLabelsStripped"}
	ofCounts := []string{"PodcountStatusesFail", "PodcountStatusesStripped"}
	ofElection := []string{"PodcountNobodyLeads", "PodcountTwoLeaders"}
	for _, c := range []struct {
		what   string
		change func(*Settings)
		want   []string
	}{
		{"no election", func(s *Settings) { s.LeaderElect = false }, without(ofElection...)},
		{"no pod-count", func(s *Settings) { s.PodCount = false }, without(ofLabels...)},
		{"no count", func(s *Settings) { s.Count = false }, without(ofCounts...)},
		{"a dry run", func(s *Settings) { s.DryRun = true }, without(slices.Concat(ofLabels, ofCounts, ofElection)...)},
		{"a name with a dot", func(s *Settings) { s.Name = "podcount.a" }, all},
		{"a long name", func(s *Settings) { s.Name = "podcount" + strings.Repeat("-a", 27) }, all},
	} {
		if got := names(c.change); !slices.Equal(got, c.want) {
			t.Errorf("%s: the alerts are %q, want %q", c.what, got, c.want)
		}
	}
}

func TestThresholdsOfAlertsFollowTheFlags(t *testing.T) {
	text, err := Manifest(settings(func(s *Settings) {
		s.QPS = 0.01
		s.StuckAfter = 530 * time.Second
		s.LeaseDuration = 4 * time.Minute
	}), "alerts")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"(workqueue_longest_running_processor_seconds{namespace=\"kube-system\"," +
			"pod=~\"podcount-[a-z0-9]+-[a-z0-9]+\"}[10m]) > 530\n",
		"[17m]) > 0\n      for: 17m\n",
		"[17m]) > 3\n      for: 34m\n",
		" == 0\n      for: 8m\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestAlertsWithoutAPortAreRefused(t *testing.T) {
	text, err := Manifest(settings(func(s *Settings) { s.Port = 0 }), "alerts")
	if text != "" || err == nil || !strings.Contains(err.Error(), "-manifest=alerts: without -listen") {
		t.Errorf("%v; printed: %q", err, text)
	}
}

func TestPatternOfPodsIsForThoseOfOnePodcount(t *testing.T) {
	long := "podcount" + strings.Repeat("-a", 27)
	for _, c := range []struct {
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
	} {
		// Prometheus' patterns are for the whole value.
		pattern := regexp.MustCompile("^(?:" + Settings{Name: c.name}.podPattern() + ")$")
		if got := pattern.MatchString(c.pod); got != c.want {
			t.Errorf("the pattern of %s matches %s: %v", c.name, c.pod, got)
		}
	}
}

// Beside it stands another podcount, of which each alert would be true.
func TestAlertsOfOnePodcountAreNotAboutAnother(t *testing.T) {
	text, err := Manifest(settings(), "alerts")
	if err != nil {
		t.Fatal(err)
	}
	const cases = `rule_files: [%s]
tests:
- interval: 1m
  input_series:
  - {series: 'podcount_build_info{job="j", instance="a", namespace="kube-system", pod="podcount-1-a"}', values: 1x60}
  - {series: 'podcount_build_info{job="j", instance="b", namespace="%s", pod="%s"}', values: 1x60}
  - {series: 'up{job="j", instance="b", namespace="%[2]s", pod="%[3]s"}', values: 0x60}
  - {series: 'podcount_watch_age_seconds{job="j", instance="b", namespace="%[2]s", pod="%[3]s", kind="Pod"}', values: 999x60}
  - {series: 'leader_election_master_status{job="j", instance="b", namespace="%[2]s", pod="%[3]s", name="podcount"}', values: 0x60}
  - {series: 'workqueue_depth{job="j", instance="b", namespace="%[2]s", pod="%[3]s", name="count"}', values: 9x60}
  - {series: 'podcount_label_patches_total{job="j", instance="b", namespace="%[2]s", pod="%[3]s", result="failed"}', values: 0+9x60}
  - {series: 'podcount_label_patches_total{job="j", instance="b", namespace="%[2]s", pod="%[3]s", result="stripped"}', values: 0+9x60}
  promql_expr_test:
  - {expr: 'count(ALERTS{alertstate="firing"})', eval_time: 40m, exp_samples: [%[4]s]}
`
	for _, c := range []struct{ namespace, pod, want string }{
		{"kube-system", "podcount-a-1-b", ""},
		{"other", "podcount-1-b", ""},
		{"kube-system", "podcount-1-b", "{labels: '{}', value: 6}"},
	} {
		file := filepath.Join(t.TempDir(), "cases.yaml")
		text := fmt.Sprintf(cases, ruleFileOf(t, text), c.namespace, c.pod, c.want)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := promtool(t, "test", "rules", file); err != nil {
			t.Errorf("%s in %s: %v\n%s", c.pod, c.namespace, err, out)
		}
	}
}

// Its pods are known by their names, whether they have ever answered or not.
func TestPodcountNotScrapedOfOnePodcountLastsUntilItAnswers(t *testing.T) {
	text, err := Manifest(settings(), "alerts")
	if err != nil {
		t.Fatal(err)
	}
	const cases = `rule_files: [%s]
evaluation_interval: 5m
tests:
- interval: 5m
  input_series:
  - {series: 'podcount_build_info{job="j", instance="a", namespace="kube-system", pod="podcount-1-a"}', values: 1x2 stale _x398 1x20}
  - {series: 'up{job="j", instance="a", namespace="kube-system", pod="podcount-1-a"}', values: 1x2 0x398 1x20}
  - {series: 'podcount_build_info{job="j", instance="b", namespace="kube-system", pod="podcount-1-b"}', values: 1x420}
  - {series: 'up{job="j", instance="b", namespace="kube-system", pod="podcount-1-b"}', values: 1x420}
  - {series: 'up{job="j", instance="c", namespace="kube-system", pod="podcount-1-c"}', values: 0x420}
  promql_expr_test:
  - {expr: '%[2]s', eval_time: 0m, exp_samples: []}
  - {expr: '%[2]s', eval_time: 10m, exp_samples: [{labels: '{instance="c"}', value: 1}]}
  - {expr: '%[2]s', eval_time: 60m, exp_samples: [{labels: '{instance="a"}', value: 1}, {labels: '{instance="c"}', value: 1}]}
  - {expr: '%[2]s', eval_time: 75m, exp_samples: [{labels: '{instance="a"}', value: 1}, {labels: '{instance="c"}', value: 1}]}
  - {expr: '%[2]s', eval_time: 30h, exp_samples: [{labels: '{instance="a"}', value: 1}, {labels: '{instance="c"}', value: 1}]}
  - {expr: '%[2]s', eval_time: 34h, exp_samples: [{labels: '{instance="c"}', value: 1}]}
`
	const firing = `count by (instance) (ALERTS{alertname="PodcountNotScraped", alertstate="firing"})`
	file := filepath.Join(t.TempDir(), "cases.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, cases, ruleFileOf(t, text), firing), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, "test", "rules", file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
