package metrics

import (
	"flag"
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
		testkit.WantEqual(t, "the number "+row.want, formatNumber(row.value), row.want)
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
		{"podcount_pods is a gauge", func() { r.Count("podcount_pods") }},
		{"podcount_pods is a gauge", func() { r.Observe(time.Now(), "podcount_pods") }},
		{"workqueue_work_duration_seconds is a histogram", func() { r.Set(1, "workqueue_work_duration_seconds", "a") }},
		{"podcount_events_total is a counter", func() { r.Remove("podcount_events_total", "posted") }},
	}
	for _, row := range rows {
		t.Run(row.want, func(t *testing.T) { wantPanic(t, row.want, row.use) })
	}
}

func TestRegisterRefusesWhatARegistryCannotHold(t *testing.T) {
	const want = "already, or it has more than 4 labels"
	fiveLabels := []string{"a", "b", "c", "d", "e"}
	wantPanic(t, want, func() { withMetric(t, Metric{Name: "podcount_pods", Type: Gauge}) })
	wantPanic(t, want, func() { withMetric(t, Metric{Name: "x", Type: Gauge, Labels: fiveLabels}) })
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

var update = flag.Bool("update", false, "write the table of metrics in docs/run/monitoring.md")

func TestDocumentationHasTheTableOfMetrics(t *testing.T) {
	const file = "../../../docs/run/monitoring.md"
	page := testkit.ReadFile(t, file)
	var rows strings.Builder
	rows.WriteString("| metric | meaning |\n|---|---|\n")
	for _, m := range table {
		name := "`" + m.Name
		if len(m.Labels) > 0 {
			name += "{" + strings.Join(m.Labels, ",") + "}"
		}
		name += "`"
		if !strings.HasPrefix(m.Name, "podcount_") {
			testkit.WantText(t, page, name) // The reader knows what it means, or the page says it elsewhere.
			continue
		}
		fmt.Fprintf(&rows, "| %s | %s |\n", name, m.Help)
		isCounter := m.Type == Counter
		if m.Type == Histogram || isCounter != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("%s is a %s, but the page says that the table has counters that end in _total, and gauges",
				m.Name, m.Type)
		}
	}
	command := "go test ./internal/view/metrics -update"
	testkit.WantParts(t, file, command, *update, map[string]string{"metrics": rows.String()})
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

// The names end as Prometheus' conventions want it. https://prometheus.io/docs/practices/naming/
func TestTableBreaksNoRule(t *testing.T) {
	isName := regexp.MustCompile(`^[a-z_][a-z0-9_]*$`).MatchString
	for _, m := range table {
		isValid := len(m.Labels) <= maxLabels && isName(m.Name)
		for _, label := range m.Labels {
			isValid = isValid && isName(label) && label != "le" // which is that of the buckets
		}
		testkit.WantEqual(t, m.Name+" can be read by Prometheus", isValid, true)
		testkit.WantEqual(t, m.Name+" ends in _total", strings.HasSuffix(m.Name, "_total"), m.Type == Counter)
		isInSeconds := strings.HasSuffix(m.Name, "_seconds")
		testkit.WantEqual(t, m.Name+" is no histogram, or is in seconds", m.Type != Histogram || isInSeconds, true)
		testkit.WantEqual(t, m.Name+": the help is a sentence", strings.HasSuffix(m.Help, "."), true)
	}
}
