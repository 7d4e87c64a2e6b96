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

	"podcount/internal/view/metrics"
	"podcount/lab/testkit"
)

var update = flag.Bool("update", false, "write alerts.yaml from its template")

// alertRules returns the contents of alerts.yaml: Prometheus rules for every podcount that Prometheus scrapes.
// Manifest prints the same alerts for one podcount, as a PrometheusRule.
func alertRules() string {
	terms := newTerms(Settings{
		Name:          "podcount",
		ruleFile:      true,
		PodCount:      true,
		Count:         true,
		LeaderElect:   true,
		QPS:           20,
		StuckAfter:    131 * time.Second,
		LeaseDuration: 15 * time.Second,
	})
	return terms.renderFile(fileOf("alerts"))
}

func TestAlertRulesAreTheFileHere(t *testing.T) {
	rules := alertRules()
	if *update {
		if err := os.WriteFile("alerts.yaml", []byte(rules), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WantEqual(t, "alerts.yaml, which `make manifests` writes,", testkit.ReadFile(t, "alerts.yaml"), rules)
}

// alert is one alert of a rule file or a PrometheusRule.
type alert struct {
	name string
	expr string // its query, on one line
	text string // the whole alert in YAML, from its name on
}

// parseAlerts returns the alerts in these rules, of which there must be several.
func parseAlerts(t *testing.T, rules string) (alerts []alert) {
	t.Helper()
	for _, text := range strings.Split(rules, "    - alert: ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		_, expr, _ := strings.Cut(rest, "      expr: ")
		// The next field ends the query. It has the same indentation.
		expr = regexp.MustCompile(`(?s)\n      [a-z].*`).ReplaceAllString(expr, "")
		expr = strings.Join(strings.Fields(strings.TrimPrefix(expr, ">-")), " ")
		alerts = append(alerts, alert{name, expr, text})
	}
	if len(alerts) < 5 {
		t.Fatalf("there are %d alerts, want 5 or more", len(alerts))
	}
	return alerts
}

func alertNames(t *testing.T, rules string) (names []string) {
	t.Helper()
	for _, a := range parseAlerts(t, rules) {
		names = append(names, a.name)
	}
	return names
}

func TestEachAlertSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	for _, a := range parseAlerts(t, alertRules()) {
		for _, field := range []string{"labels: {severity: ", "summary: ", "description: ", "runbook: "} {
			if strings.Count(a.text, field) != 1 {
				t.Errorf("%s does not have exactly one %q", a.name, field)
			}
		}
	}
}

// Prometheus computes an increase of 3 as 3.05.
func TestEachAlertRoundsItsNumber(t *testing.T) {
	rounded := []string{`{{ printf "%.0f" $value }}`, "{{ $value | humanizeDuration }}"}
	for _, a := range parseAlerts(t, alertRules()) {
		text := strings.Join(strings.Fields(a.text), " ")
		for _, form := range rounded {
			text = strings.ReplaceAll(text, form, "")
		}
		if strings.Contains(text, "$value") {
			t.Errorf("%s has a $value in another form than %q", a.name, rounded)
		}
	}
}

// An alert about all replicas together, or about none, has no pod to name.
func TestEachAlertAboutOnePodNamesIt(t *testing.T) {
	for _, a := range parseAlerts(t, alertRules()) {
		isAboutOne := !strings.Contains(a.expr, "by (namespace, job, name)") && !strings.Contains(a.expr, "absent(")
		want := 0
		if isAboutOne {
			want = 2 // the summary and the description
		}
		text := strings.Join(strings.Fields(a.text), " ")
		_, text, _ = strings.Cut(text, "annotations:")
		got := strings.Count(text, "{{ or $labels.pod $labels.instance }}")
		testkit.WantNumber(t, a.name+": names of the pod", got, want)
	}
}

func TestEachAlertHasACaseThatFiresAndOneThatDoesNot(t *testing.T) {
	cases := testkit.ReadFile(t, "testdata/alerts_test.yaml")
	for _, name := range alertNames(t, alertRules()) {
		_, fires, _ := strings.Cut(cases, "- name: "+name+" fires ")
		fires, _, _ = strings.Cut(fires, "- name: ")
		if !strings.Contains(fires, fmt.Sprintf("alertname=%q", name)) {
			t.Errorf("no case makes %s fire", name)
		}
		if !strings.Contains(cases, "- name: "+name+" is quiet ") {
			t.Errorf("no case keeps %s quiet", name)
		}
	}
}

func TestDocumentationExplainsEachAlert(t *testing.T) {
	var explained []string
	item := regexp.MustCompile("(?m)^- `(Podcount\\w+)`")
	for _, found := range item.FindAllStringSubmatch(testkit.ReadFile(t, "../docs/run/operating.md"), -1) {
		explained = append(explained, found[1])
	}
	names := alertNames(t, alertRules())
	slices.Sort(names)
	slices.Sort(explained)
	testkit.WantEqual(t, "the alerts in docs/run/operating.md", explained, names)
}

func TestEveryMetricAndLabelInAnAlertExists(t *testing.T) {
	forAll := parseAlerts(t, alertRules())
	forOne := parseAlerts(t, manifest(t, settings(), "alerts"))
	for _, a := range slices.Concat(forAll, forOne) {
		t.Run(a.name, func(t *testing.T) { checkQuery(t, a.expr) })
	}
}

// scrapeLabels are the labels that Prometheus adds to every metric.
var scrapeLabels = []string{"job", "instance", "namespace", "pod"}

// keywords are the words of PromQL in the queries here, other than the names of functions.
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
func checkQuery(t *testing.T, query string) {
	t.Helper()
	allLabels := slices.Clone(scrapeLabels)
	metricsFound := 0
	text := rangePattern.ReplaceAllString(listPattern.ReplaceAllString(query, ""), "")
	// The indexes of a match are those of the whole match, of the name, and of the matchers, which may be absent.
	for _, at := range selectorPattern.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		isFunction := strings.HasPrefix(strings.TrimLeft(text[at[1]:], " "), "(")
		if isFunction || slices.Contains(keywords, name) {
			continue
		}
		metricsFound++
		labels := labelsOf(t, name)
		allLabels = append(allLabels, labels...)
		hasMatchers := at[4] >= 0
		if hasMatchers {
			checkMatchers(t, name, text[at[4]:at[5]], labels)
		}
	}
	if metricsFound == 0 {
		t.Errorf("the query has no metric: %s", query)
	}
	for _, list := range listPattern.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(list[1], ",") {
			if !slices.Contains(allLabels, strings.TrimSpace(label)) {
				t.Errorf("no metric in the query has a label %s", label)
			}
		}
	}
}

// checkMatchers checks the matchers of a metric, which has these labels and the scrapeLabels.
func checkMatchers(t *testing.T, metric, matchers string, labels []string) {
	t.Helper()
	for _, matcher := range matcherPattern.FindAllStringSubmatch(matchers, -1) {
		label, value := matcher[1], matcher[3]
		if !slices.Contains(labels, label) && !slices.Contains(scrapeLabels, label) {
			t.Errorf("%s has no label %s", metric, label)
		}
		isSetInTheCode := label == "result" || label == "reason" || label == "kind"
		if isSetInTheCode {
			wantValuesInTheCode(t, metric, value)
		}
	}
}

// labelsOf returns the labels that a metric, or one of a histogram's series, has in the table of metrics.
func labelsOf(t *testing.T, name string) []string {
	t.Helper()
	if name == "up" { // This metric is Prometheus' own.
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
	t.Errorf("there is no metric %s", name)
	return nil
}

// wantValuesInTheCode checks that each of a metric's label values occurs in the program. They are joined by |.
func wantValuesInTheCode(t *testing.T, metric, values string) {
	t.Helper()
	code, err := productCode()
	if err != nil {
		t.Fatal(err)
	}
	for value := range strings.SplitSeq(values, "|") {
		if !strings.Contains(code, `"`+value+`"`) {
			t.Errorf("%s: the program never sets the value %s", metric, value)
		}
	}
}

// productCode returns the program's code, without tests, as one text.
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

func TestAlertsFireWhenTheyShould(t *testing.T) {
	runPromtool(t, "check", "rules", "../alerts.yaml")
	runPromtool(t, "test", "rules", "alerts_test.yaml")
}

// runPromtool runs Prometheus' own tool in testdata. The test fails with its output if it fails, and is skipped if this
// machine does not have it.
func runPromtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool: .ci/lint installs it")
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = "testdata"
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", cmd, err, output)
	}
}

func TestAlertsOfOnePodcountFollowItsFlags(t *testing.T) {
	all := checkedAlertNames(t, func(*Settings) {})
	aboutLabels := []string{"PodcountLabelsFail", "PodcountLabelsStripped"}
	aboutCounts := []string{"PodcountStatusesFail", "PodcountStatusesStripped"}
	aboutElection := []string{"PodcountNobodyLeads", "PodcountTwoLeaders"}
	rows := []struct {
		name    string
		change  func(*Settings)
		without []string
	}{
		{"no election", func(s *Settings) { s.LeaderElect = false }, aboutElection},
		{"no pod-count", func(s *Settings) { s.PodCount = false }, aboutLabels},
		{"no count", func(s *Settings) { s.Count = false }, aboutCounts},
		{"a dry run", func(s *Settings) { s.DryRun = true }, slices.Concat(aboutLabels, aboutCounts, aboutElection)},
		{"a name with a dot", func(s *Settings) { s.Name = "podcount.a" }, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			want := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
				return slices.Contains(row.without, name)
			})
			testkit.WantEqual(t, "the alerts", checkedAlertNames(t, row.change), want)
			testkit.WantNumber(t, "alerts", len(want), len(all)-len(row.without))
		})
	}
}

// checkedAlertNames returns the alerts for one podcount, and checks with promtool that they are valid.
func checkedAlertNames(t *testing.T, change func(*Settings)) []string {
	t.Helper()
	text := manifest(t, settings(change), "alerts")
	runPromtool(t, "check", "rules", writeRuleFile(t, text))
	return alertNames(t, text)
}

// writeRuleFile writes the rules of a PrometheusRule to a rule file for Prometheus, and returns its path.
func writeRuleFile(t *testing.T, prometheusRule string) (path string) {
	t.Helper()
	_, groups, hasGroups := strings.Cut(prometheusRule, "\nspec:\n  groups:\n")
	if !hasGroups {
		t.Fatalf("there are no groups in\n%s", prometheusRule)
	}
	return writeTemp(t, "rules.yaml", "groups:\n"+groups)
}

// writeTemp writes a file that is removed after the test, and returns its path.
func writeTemp(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
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

func TestPodPatternMatchesThePodsOfOnePodcount(t *testing.T) {
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
	}
	for _, row := range rows {
		t.Run(row.name+" "+row.pod, func(t *testing.T) {
			// Prometheus compares a pattern with the whole value.
			pattern := regexp.MustCompile("^(?:" + Settings{Name: row.name}.podPattern() + ")$")
			testkit.WantEqual(t, "it matches", pattern.MatchString(row.pod), row.want)
		})
	}
}

// The second pod is in a state that the alerts are about. They must fire only if it is a pod of the podcount whose
// alerts these are.
func TestAlertsOfOnePodcountAreNotAboutAnother(t *testing.T) {
	rules := writeRuleFile(t, manifest(t, settings(), "alerts"))
	const cases = `rule_files: [%[1]s]
tests:
- interval: 1m
  input_series:
  - {series: 'podcount_build_info{job="j", instance="a", namespace="kube-system", pod="podcount-1-a"}', values: 1x60}
  - {series: 'podcount_build_info{%[2]s}', values: 1x60}
  - {series: 'up{%[2]s}', values: 0x60}
  - {series: 'podcount_watch_age_seconds{%[2]s, kind="Pod"}', values: 999x60}
  - {series: 'podcount_cache_synced{%[2]s, kind="Pod"}', values: 0x60}
  - {series: 'leader_election_master_status{%[2]s, name="podcount"}', values: 0x60}
  - {series: 'workqueue_depth{%[2]s, name="count"}', values: 9x60}
  - {series: 'podcount_label_patches_total{%[2]s, result="failed"}', values: 0+9x60}
  - {series: 'podcount_label_patches_total{%[2]s, result="stripped"}', values: 0+9x60}
  promql_expr_test:
  - {expr: 'count(ALERTS{alertstate="firing"})', eval_time: 40m, exp_samples: [%[3]s]}
`
	rows := []struct{ namespace, pod, firing string }{
		{"kube-system", "podcount-a-1-b", ""},
		{"other", "podcount-1-b", ""},
		{"kube-system", "podcount-1-b", "{labels: '{}', value: 7}"},
	}
	for _, row := range rows {
		t.Run(row.namespace+" "+row.pod, func(t *testing.T) {
			second := fmt.Sprintf(`job="j", instance="b", namespace="%s", pod="%s"`, row.namespace, row.pod)
			text := fmt.Sprintf(cases, rules, second, row.firing)
			runPromtool(t, "test", "rules", writeTemp(t, "cases.yaml", text))
		})
	}
}

// A PrometheusRule identifies podcount's pods by their names, even if they have never answered.
func TestPodcountNotScrapedLastsUntilItAnswers(t *testing.T) {
	rules := writeRuleFile(t, manifest(t, settings(), "alerts"))
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
	text := fmt.Sprintf(cases, rules, labels, firing)
	runPromtool(t, "test", "rules", writeTemp(t, "cases.yaml", text))
}
