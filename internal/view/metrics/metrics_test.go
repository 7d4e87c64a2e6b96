package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

// withMetric registers a metric until the test ends.
func withMetric(t *testing.T, m Metric) {
	t.Helper()
	before := registered
	t.Cleanup(func() { registered = before })
	Register(m)
}

// samplesOf returns the lines of a metric without its help and type.
func samplesOf(r *Registry, name string) string {
	var samples strings.Builder
	for line := range strings.Lines(r.Text()) {
		if strings.HasPrefix(line, name) {
			samples.WriteString(line)
		}
	}
	return samples.String()
}

func wantSamples(t *testing.T, r *Registry, name, want string) {
	t.Helper()
	testkit.WantEqual(t, name, samplesOf(r, name), want)
}

func TestTextHasHelpTypeAndSeriesInOrder(t *testing.T) {
	r := NewRegistry()
	r.Set(12, "podcount_pods")
	r.Count("podcount_watch_events_total", "Pod", "MODIFIED")
	r.Count("podcount_watch_events_total", "Pod", "ADDED")
	r.Count("podcount_watch_events_total", "Node", "ADDED")
	r.Count("podcount_watch_events_total", "Pod", "ADDED")
	const wantFirst = `# HELP podcount_pods Pods that match the selectors.
# TYPE podcount_pods gauge
podcount_pods 12
`
	text := r.Text()
	testkit.WantEqual(t, "the first metric", text[:min(len(text), len(wantFirst))], wantFirst)
	wantSamples(t, r, "podcount_watch_events_total", `podcount_watch_events_total{kind="Node",type="ADDED"} 1
podcount_watch_events_total{kind="Pod",type="ADDED"} 2
podcount_watch_events_total{kind="Pod",type="MODIFIED"} 1
`)
}

func TestTextHasEveryMetric(t *testing.T) {
	var got, want []string
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (.*)$`).FindAllStringSubmatch(NewRegistry().Text(), -1) {
		got = append(got, found[1])
	}
	for _, m := range All() {
		want = append(want, m.Name+" "+string(m.Type))
	}
	testkit.WantEqual(t, "the metrics", got, want)
}

func TestLabelValuesAreEscaped(t *testing.T) {
	rows := []struct{ name, value, want string }{
		{"a backslash", `a\b`, `a\\b`},
		{"quotes", `say "hi"`, `say \"hi\"`},
		{"a line feed", "two\nlines", `two\nlines`},
		{"characters that Go escapes", "é\t¶", "é\t¶"},
		{"a byte that is not UTF-8", "\xff", "\uFFFD"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := NewRegistry()
			r.Set(1, "podcount_cache_objects", row.value)
			wantSamples(t, r, "podcount_cache_objects", `podcount_cache_objects{kind="`+row.want+`"} 1`+"\n")
		})
	}
}

func TestHelpIsEscaped(t *testing.T) {
	withMetric(t, Metric{Name: "x", Type: Gauge, Help: "a \\ \"b\"\nc"})
	testkit.WantText(t, NewRegistry().Text(), `# HELP x a \\ "b"\nc`+"\n")
}

func TestNumbersAreWrittenAsPrometheusDoes(t *testing.T) {
	rows := []struct {
		value float64
		want  string
	}{
		{0, "0"},
		{1, "1"},
		{0.0001, "0.0001"},
		{1.5, "1.5"},
		{2.5e6, "2.5e+06"},
		{1e-5, "1e-05"},
	}
	for _, row := range rows {
		t.Run(row.want, func(t *testing.T) {
			testkit.WantEqual(t, "the number", formatNumber(row.value), row.want)
		})
	}
}

func TestHistogramCountsDurationsUpToEachLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		start := time.Now()
		r.Observe(start, "workqueue_work_duration_seconds", "a")
		testkit.Pass(1500 * time.Millisecond)
		r.Observe(start, "workqueue_work_duration_seconds", "a")
		testkit.Pass(2 * time.Minute)
		r.Observe(start, "workqueue_work_duration_seconds", "a")
		var want strings.Builder
		for _, bucket := range []string{
			"0.0001 1", "0.001 1", "0.005 1", "0.025 1", "0.1 1", "0.25 1", "0.5 1", "1 1",
			"2 2", "4 2", "8 2", "15 2", "30 2", "60 2", "+Inf 3",
		} {
			limit, count, _ := strings.Cut(bucket, " ")
			fmt.Fprintf(&want, "workqueue_work_duration_seconds_bucket{name=\"a\",le=%q} %s\n", limit, count)
		}
		want.WriteString("workqueue_work_duration_seconds_sum{name=\"a\"} 123\n")
		want.WriteString("workqueue_work_duration_seconds_count{name=\"a\"} 3\n")
		wantSamples(t, r, "workqueue_work_duration_seconds", want.String())
	})
}

func TestRemovedGaugeIsGoneUntilItIsSetAgain(t *testing.T) {
	r := NewRegistry()
	r.Remove("podcount_cache_objects", "Pod") // there is none
	r.Set(1, "podcount_cache_objects", "Node")
	r.Set(1, "podcount_cache_objects", "Pod")
	r.Remove("podcount_cache_objects", "Pod")
	wantSamples(t, r, "podcount_cache_objects", "podcount_cache_objects{kind=\"Node\"} 1\n")
	r.Set(2, "podcount_cache_objects", "Pod")
	wantSamples(t, r, "podcount_cache_objects",
		"podcount_cache_objects{kind=\"Node\"} 1\npodcount_cache_objects{kind=\"Pod\"} 2\n")
}

// wantPanic fails the test unless f panics with a message of this package.
func wantPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		testkit.WantText(t, fmt.Sprint(recover()), "metrics: ", want)
	}()
	f()
}

func TestWrongUsePanics(t *testing.T) {
	r := NewRegistry()
	rows := []struct {
		want string
		use  func()
	}{
		{"there is no metric podcount_odd", func() { r.Count("podcount_odd") }},
		{"podcount_pods has 0 labels, not 1", func() { r.Set(1, "podcount_pods", "Pod") }},
		{"podcount_watch_events_total has 2 labels, not 1", func() { r.Count("podcount_watch_events_total", "Pod") }},
		{"podcount_pods is not a counter", func() { r.Count("podcount_pods") }},
		{"podcount_pods is not a histogram", func() { r.Observe(time.Now(), "podcount_pods") }},
		{"is a histogram, which cannot be set", func() { r.Set(1, "workqueue_work_duration_seconds", "a") }},
		{"podcount_events_total is not a gauge", func() { r.Remove("podcount_events_total", "posted") }},
	}
	for _, row := range rows {
		t.Run(row.want, func(t *testing.T) { wantPanic(t, row.want, row.use) })
	}
}

func TestRegisterRefusesMetricsThatBreakARule(t *testing.T) {
	fiveLabels := []string{"a", "b", "c", "d", "e"}
	rows := []struct {
		want   string
		metric Metric
	}{
		{"there is a metric podcount_pods already", Metric{Name: "podcount_pods", Type: Gauge}},
		{`"1a" cannot be the name`, Metric{Name: "1a", Type: Gauge}},
		{`"" cannot be the name`, Metric{Type: Gauge}},
		{`"a-b" cannot be the name`, Metric{Name: "a-b", Type: Gauge}},
		{`"A" cannot be the name`, Metric{Name: "a", Type: Gauge, Labels: []string{"A"}}},
		{"x has a label le", Metric{Name: "x", Type: Histogram, Labels: []string{"le"}}},
		{"x has more than 4 labels", Metric{Name: "x", Type: Gauge, Labels: fiveLabels}},
		{`x has the unknown type "summary"`, Metric{Name: "x", Type: "summary"}},
		{"x: the name of a counter must end in _total", Metric{Name: "x", Type: Counter}},
		{"x_total: the name of a counter must end in _total", Metric{Name: "x_total", Type: Gauge}},
		{"x: the name of a histogram must end in _seconds", Metric{Name: "x", Type: Histogram}},
		{"x has no help", Metric{Name: "x", Type: Gauge}},
	}
	for _, row := range rows {
		t.Run(row.want, func(t *testing.T) { wantPanic(t, row.want, func() { withMetric(t, row.metric) }) })
	}
}

func TestRegisteredMetricIsInLaterRegistries(t *testing.T) {
	withMetric(t, Metric{Name: "crowded_nodes", Type: Gauge, Labels: []string{"zone"}, Help: "Nodes with many pods."})
	r := NewRegistry()
	r.Set(3, "crowded_nodes", "a")
	const want = `# HELP crowded_nodes Nodes with many pods.
# TYPE crowded_nodes gauge
crowded_nodes{zone="a"} 3
`
	text := r.Text()
	testkit.WantEqual(t, "the last metric", text[len(text)-len(want):], want)
}

func TestRegistryIsSafeForConcurrentUse(t *testing.T) {
	r := NewRegistry()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				r.Count("podcount_events_total", "posted")
				r.Set(1, "podcount_pods")
				r.Remove("podcount_pods")
				r.Observe(time.Now(), "workqueue_work_duration_seconds", "a")
			}
			r.Text()
		})
	}
	all.Wait()
	wantSamples(t, r, "podcount_events_total", "podcount_events_total{result=\"posted\"} 8000\n")
}

func BenchmarkCount(b *testing.B) {
	r := NewRegistry()
	b.ReportAllocs()
	for b.Loop() {
		r.Count("podcount_watch_events_total", "Pod", "ADDED")
	}
}

func TestDocumentationHasTheTableOfMetrics(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range table {
		labels := "–"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", m.Name, m.Type, labels, m.Help))
	}
	start := "\n| `" + table[0].Name + "` |"
	_, rows, _ := strings.Cut(string(page), start)
	rows, _, _ = strings.Cut(start[1:]+rows, "\n\n")
	testkit.WantEqual(t, "the table in docs/operating.md", strings.Split(rows, "\n"), want)
}

// A metric that nothing sets or counts would never have a series.
func TestEveryMetricOfTheTableIsUsed(t *testing.T) {
	code := ""
	err := filepath.WalkDir("../../..", func(path string, entry os.DirEntry, err error) error {
		isTable := strings.HasSuffix(path, filepath.Join("metrics", "table.go"))
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || isTable {
			return err
		}
		text, err := os.ReadFile(path)
		code += string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range table {
		if !strings.Contains(code, `"`+m.Name+`"`) {
			t.Errorf("nothing uses %s", m.Name)
		}
	}
}

func TestTableFollowsPrometheusConventions(t *testing.T) {
	for _, m := range table {
		t.Run(m.Name, func(t *testing.T) {
			testkit.WantEqual(t, "ends in _total", strings.HasSuffix(m.Name, "_total"), m.Type == Counter)
			if m.Type == Histogram && !strings.HasSuffix(m.Name, "_seconds") {
				t.Error("a histogram of durations must end in _seconds")
			}
			if !strings.HasSuffix(m.Help, ".") {
				t.Errorf("the help is not a sentence: %q", m.Help)
			}
		})
	}
}

func TestValuesAreThoseOfEverySeries(t *testing.T) {
	r := NewRegistry()
	testkit.WantEqual(t, "before", r.Values("podcount_relists_total"), nil)
	r.Count("podcount_relists_total", "Pod", "expired")
	r.Count("podcount_relists_total", "Pod", "expired")
	testkit.WantEqual(t, "after two", r.Values("podcount_relists_total"),
		[]Value{{Labels: []string{"Pod", "expired"}, Number: 2}})
}
