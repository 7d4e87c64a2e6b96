// Package metrics keeps podcount's numbers, and writes them as Prometheus reads them.
//
// It promises that each metric has a meaning, and that its text is what Prometheus can read, whatever labels say. It
// imports nothing of podcount, never serves HTTP, and never counts on its own: whoever knows of something says so.
//
// What there is stands in table.go: each metric with its type, its labels and its meaning. A program that adds to
// podcount registers metrics of its own in an init function:
//
//	func init() {
//		metrics.Register(metrics.Metric{
//			Name: "crowded_nodes", Type: metrics.Gauge, Help: "Nodes with more than 100 pods.",
//		})
//	}
package metrics

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Type says how Prometheus is to read a metric.
type Type string

const (
	Gauge     Type = "gauge"     // goes up and down
	Counter   Type = "counter"   // only goes up, until podcount is started again; its name ends in _total
	Histogram Type = "histogram" // durations; its name ends in _seconds
)

// Metric describes a metric.
type Metric struct {
	Name string
	Type Type
	// Labels are the names of the labels, in the order in which callers pass their values.
	Labels []string
	// Help is one line for people: what is counted, and in which unit if the name does not say so.
	Help string
}

// maxLabels is how many labels a metric can have. An array of so many values is the key of a series.
const maxLabels = 4

// buckets are the upper limits of each histogram's buckets, in seconds.
var buckets = [...]float64{.0001, .001, .005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, math.Inf(1)}

var registered []Metric

// Register adds a metric to those that each later Registry knows. It is for init functions: it is not safe for
// concurrent use. It panics if there is such a metric already, or if Prometheus could not read it.
func Register(m Metric) {
	for _, other := range All() {
		if other.Name == m.Name {
			panic("metrics: there are two metrics " + m.Name)
		}
	}
	for _, name := range append([]string{m.Name}, m.Labels...) {
		if !isName(name) {
			panic(fmt.Sprintf("metrics: %q is not a name of a metric, or of its label", name))
		}
	}
	if slices.Contains(m.Labels, "le") {
		panic("metrics: " + m.Name + " has a label le, which is for the buckets of histograms")
	}
	if len(m.Labels) > maxLabels {
		panic(fmt.Sprintf("metrics: %s has more than %d labels", m.Name, maxLabels))
	}
	if m.Type != Gauge && m.Type != Counter && m.Type != Histogram {
		panic(fmt.Sprintf("metrics: %s has the type %q", m.Name, m.Type))
	}
	registered = append(registered, m)
}

// isName reports whether a metric or a label can be called so. Prometheus takes capitals, too, which nobody uses.
func isName(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz_"
	return text != "" && strings.Trim(text[:1], letters) == "" && strings.Trim(text, letters+"0123456789") == ""
}

// All returns every metric, in the order of /metrics: podcount's own, then those registered.
func All() []Metric {
	return slices.Concat(table, registered)
}

// Registry holds the numbers of one podcount. All of its methods are safe for concurrent use, and none waits for
// anything but the others.
//
// Each of them panics if there is no metric of that name, or if it has another type or another number of labels: that
// is a mistake in the program, which its first use shows.
type Registry struct {
	families []*family // in the order of All; never changed, as byName
	byName   map[string]*family

	mu sync.Mutex // guards the series of all families
}

// family is a metric with all of its series.
type family struct {
	Metric
	series map[labelValues]*series
}

// labelValues are the values of a series' labels, in the order of Metric.Labels.
type labelValues [maxLabels]string

// series is the number of one combination of labels.
type series struct {
	value float64             // of a histogram: the sum
	upTo  [len(buckets)]int64 // of a histogram: how many were not above each limit
}

// NewRegistry returns a Registry of all metrics that there are by now, without any series.
func NewRegistry() *Registry {
	r := &Registry{byName: map[string]*family{}}
	for _, m := range All() {
		f := &family{Metric: m, series: map[labelValues]*series{}}
		r.families = append(r.families, f)
		r.byName[m.Name] = f
	}
	return r
}

// Set sets a gauge, or a counter that is counted elsewhere.
func (r *Registry) Set(value float64, name string, labels ...string) {
	f := r.family(name, len(labels))
	if f.Type == Histogram {
		panic("metrics: " + name + " is a histogram, which cannot be set")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.at(labels).value = value
}

// Count adds one to a counter.
func (r *Registry) Count(name string, labels ...string) {
	f := r.family(name, len(labels))
	if f.Type != Counter {
		panic("metrics: " + name + " is not a counter")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.at(labels).value++
}

// Observe adds the time since start to a histogram.
func (r *Registry) Observe(start time.Time, name string, labels ...string) {
	f := r.family(name, len(labels))
	if f.Type != Histogram {
		panic("metrics: " + name + " is not a histogram")
	}
	took := time.Since(start).Seconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := f.at(labels)
	s.value += took
	for i, limit := range buckets {
		if took <= limit {
			s.upTo[i]++
		}
	}
}

// Remove removes a gauge's series, because what it told of is gone. If there is none, that is fine. Counters stay:
// Prometheus would take one that comes back for a program that was started again.
func (r *Registry) Remove(name string, labels ...string) {
	f := r.family(name, len(labels))
	if f.Type != Gauge {
		panic("metrics: " + name + " is not a gauge")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(f.series, valuesOf(labels))
}

func (r *Registry) family(name string, labels int) *family {
	f := r.byName[name]
	if f == nil {
		panic("metrics: there is no metric " + name)
	}
	if labels != len(f.Labels) {
		panic(fmt.Sprintf("metrics: %s has %d labels, not %d", name, len(f.Labels), labels))
	}
	return f
}

// at returns a series, which begins at 0. The caller holds Registry.mu.
func (f *family) at(labels []string) *series {
	values := valuesOf(labels)
	s := f.series[values]
	if s == nil {
		s = new(series)
		f.series[values] = s
	}
	return s
}

func valuesOf(labels []string) (values labelValues) {
	copy(values[:], labels)
	return values
}

// Text returns all numbers in Prometheus' text format, with what each means. Metrics without any series are left out
// of it but for their meaning. See https://prometheus.io/docs/instrumenting/exposition_formats/
func (r *Registry) Text() string {
	var out strings.Builder
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.families {
		out.WriteString("# HELP " + f.Name + " " + escapeHelp.Replace(f.Help) + "\n")
		out.WriteString("# TYPE " + f.Name + " " + string(f.Type) + "\n")
		inOrder := slices.SortedFunc(maps.Keys(f.series), func(a, b labelValues) int {
			return slices.Compare(a[:], b[:])
		})
		for _, values := range inOrder {
			f.write(&out, values, f.series[values])
		}
	}
	return out.String()
}

// write writes the lines of one series.
func (f *family) write(out *strings.Builder, values labelValues, s *series) {
	var labels []string
	for i, name := range f.Labels {
		labels = append(labels, label(name, values[i]))
	}
	if f.Type != Histogram {
		writeSample(out, f.Name, labels, number(s.value))
		return
	}
	for i, limit := range buckets {
		withLimit := append(slices.Clip(labels), label("le", number(limit)))
		writeSample(out, f.Name+"_bucket", withLimit, strconv.FormatInt(s.upTo[i], 10))
	}
	writeSample(out, f.Name+"_sum", labels, number(s.value))
	writeSample(out, f.Name+"_count", labels, strconv.FormatInt(s.upTo[len(buckets)-1], 10))
}

func writeSample(out *strings.Builder, name string, labels []string, value string) {
	out.WriteString(name)
	if len(labels) > 0 {
		out.WriteString("{" + strings.Join(labels, ",") + "}")
	}
	out.WriteString(" " + value + "\n")
}

// The format escapes these characters and no others: what Go's %q makes of an é or a tab, Prometheus refuses or
// takes literally.
var (
	escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// label writes a label. Its value may come from anywhere, but the format has no place for bytes that are not UTF-8.
func label(name, value string) string {
	return name + `="` + escapeLabel.Replace(strings.ToValidUTF8(value, "\uFFFD")) + `"`
}

// number writes a number as Prometheus' own clients do: 1, 0.025, 2.5e+06, +Inf.
func number(value float64) string {
	return strconv.FormatFloat(value, 'g', -1, 64)
}
