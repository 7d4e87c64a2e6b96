package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// withMetric registers a metric for the length of a test.
func withMetric(t *testing.T, m Metric) {
	t.Helper()
	before := registered
	t.Cleanup(func() { registered = before })
	Register(m)
}

// samplesOf returns the lines of a metric, without those of its meaning.
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
	if got := samplesOf(r, name); got != want {
		t.Errorf("%s:\n%swant:\n%s", name, got, want)
	}
}

func TestTextHasEachMetricsMeaningAndItsSeriesInOrder(t *testing.T) {
	r := NewRegistry()
	r.Set(12, "podcount_pods")
	r.Count("podcount_watch_events_total", "Pod", "MODIFIED")
	r.Count("podcount_watch_events_total", "Pod", "ADDED")
	r.Count("podcount_watch_events_total", "Node", "ADDED")
	r.Count("podcount_watch_events_total", "Pod", "ADDED")
	want := `# HELP podcount_pods Pods that are counted, under the selectors given.
# TYPE podcount_pods gauge
podcount_pods 12
`
	if !strings.HasPrefix(r.Text(), want) {
		t.Errorf("it begins with\n%.300s", r.Text())
	}
	wantSamples(t, r, "podcount_watch_events_total", `podcount_watch_events_total{kind="Node",type="ADDED"} 1
podcount_watch_events_total{kind="Pod",type="ADDED"} 2
podcount_watch_events_total{kind="Pod",type="MODIFIED"} 1
`)
	families := regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(r.Text(), -1)
	for i, m := range All() {
		if families[i][1] != m.Name || families[i][2] != string(m.Type) {
			t.Errorf("family %d is %s, want %s", i, families[i], m.Name)
		}
	}
}

func TestLabelValuesAreEscapedAsTheFormatSays(t *testing.T) {
	for value, want := range map[string]string{
		`a\b`:        `a\\b`,
		`say "hi"`:   `say \"hi\"`,
		"two\nlines": `two\nlines`,
		"é\t¶":       "é\t¶",
		"\xff":       "\uFFFD",
	} {
		r := NewRegistry()
		r.Set(1, "podcount_cache_objects", value)
		wantSamples(t, r, "podcount_cache_objects", `podcount_cache_objects{kind="`+want+`"} 1`+"\n")
	}
}

func TestHelpIsEscapedAsTheFormatSays(t *testing.T) {
	withMetric(t, Metric{Name: "x", Type: Gauge, Help: "a \\ \"b\"\nc"})
	if text := NewRegistry().Text(); !strings.Contains(text, `# HELP x a \\ "b"\nc`+"\n") {
		t.Errorf("no such line in the end of %s", text)
	}
}

func TestNumbersAreWrittenAsByPrometheusOwnClients(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 1: "1", 0.0001: "0.0001", 1.5: "1.5", 2.5e6: "2.5e+06", 1e-5: "1e-05"} {
		if got := number(value); got != want {
			t.Errorf("%v is written %s, want %s", value, got, want)
		}
	}
}

func TestHistogramHasBucketsThatGrowUpToTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		start := time.Now()
		r.Observe(start, "workqueue_work_duration_seconds", "a")
		<-time.After(1500 * time.Millisecond)
		r.Observe(start, "workqueue_work_duration_seconds", "a")
		<-time.After(2 * time.Minute)
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
	wantSamples(t, r, "podcount_cache_objects", "podcount_cache_objects{kind=\"Node\"} 1\npodcount_cache_objects{kind=\"Pod\"} 2\n")
}

func TestMistakesOfAProgramPanic(t *testing.T) {
	r := NewRegistry()
	for want, mistake := range map[string]func(){
		"there is no metric podcount_odd":                 func() { r.Count("podcount_odd") },
		"podcount_pods has 0 labels, not 1":               func() { r.Set(1, "podcount_pods", "Pod") },
		"podcount_watch_events_total has 2 labels, not 1": func() { r.Count("podcount_watch_events_total", "Pod") },
		"podcount_pods is not a counter":                  func() { r.Count("podcount_pods") },
		"podcount_pods is not a histogram":                func() { r.Observe(time.Now(), "podcount_pods") },
		"is a histogram, which cannot be set":             func() { r.Set(1, "workqueue_work_duration_seconds", "a") },
		"podcount_events_total is not a gauge":            func() { r.Remove("podcount_events_total", "posted") },
		"there are two metrics podcount_pods":             func() { Register(Metric{Name: "podcount_pods", Type: Gauge}) },
		`"1a" is not a name`:                              func() { Register(Metric{Name: "1a", Type: Gauge}) },
		`"" is not a name`:                                func() { Register(Metric{Type: Gauge}) },
		`"a-b" is not a name`:                             func() { Register(Metric{Name: "a-b", Type: Gauge}) },
		`"A" is not a name`:                               func() { Register(Metric{Name: "a", Type: Gauge, Labels: []string{"A"}}) },
		"x has a label le":                                func() { Register(Metric{Name: "x", Type: Histogram, Labels: []string{"le"}}) },
		"x has more than 4 labels":                        func() { Register(Metric{Name: "x", Type: Gauge, Labels: strings.Split("a b c d e", " ")}) },
		`x has the type "summary"`:                        func() { Register(Metric{Name: "x", Type: "summary"}) },
	} {
		said := func() (said string) {
			defer func() { said = fmt.Sprint(recover()) }()
			mistake()
			return ""
		}()
		if !strings.HasPrefix(said, "metrics: ") || !strings.Contains(said, want) {
			t.Errorf("it says %q, want %q", said, want)
		}
	}
}

func TestRegisteredMetricIsThereInEachLaterRegistry(t *testing.T) {
	withMetric(t, Metric{Name: "crowded_nodes", Type: Gauge, Labels: []string{"zone"}, Help: "Nodes with many pods."})
	r := NewRegistry()
	r.Set(3, "crowded_nodes", "a")
	if want := "# HELP crowded_nodes Nodes with many pods.\n# TYPE crowded_nodes gauge\ncrowded_nodes{zone=\"a\"} 3\n"; !strings.HasSuffix(r.Text(), want) {
		t.Errorf("it does not end with %s", want)
	}
}

func TestManyGoroutinesMayCountAtOnce(t *testing.T) {
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

// What people read and what Prometheus reads is the same.
func TestReadmeHasTheTableOfMetrics(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
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
	_, rows, _ := strings.Cut(string(text), "\n| metric | type | labels | |\n|---|---|---|---|\n")
	rows, _, _ = strings.Cut(rows, "\n\n")
	got := strings.Split(rows, "\n")
	if slices.Equal(got, want) {
		return
	}
	for _, row := range got {
		if !slices.Contains(want, row) {
			t.Errorf("README.md has what table.go does not have:\n%s", row)
		}
	}
	t.Errorf("README.md should have, in this order:\n%s", strings.Join(want, "\n"))
}

// A metric that nothing sets or counts would never have a series.
func TestEveryMetricOfTheTableIsInUse(t *testing.T) {
	code := ""
	err := filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
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
			t.Errorf("nothing names %s", m.Name)
		}
	}
}

func TestNamesFollowPrometheusRules(t *testing.T) {
	for _, m := range table {
		if strings.HasSuffix(m.Name, "_total") != (m.Type == Counter) {
			t.Errorf("%s is a %s", m.Name, m.Type)
		}
		if m.Type == Histogram && !strings.HasSuffix(m.Name, "_seconds") {
			t.Errorf("%s is a histogram of something else than seconds", m.Name)
		}
		if !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s is explained by no sentence: %q", m.Name, m.Help)
		}
	}
}
