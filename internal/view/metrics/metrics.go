// Package metrics keeps the numbers that podcount counts, and writes them in Prometheus' text format.
//
// Every metric has a help text, and label values may be any text. The package serves no HTTP, and counts nothing by
// itself: other packages call Set, Count and Observe.
//
// The metrics of podcount are in table.go. A file of your own registers its metrics in an init function:
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

// Type is Prometheus' word for how a metric changes.
type Type string

const (
	Gauge     Type = "gauge"     // goes up and down
	Counter   Type = "counter"   // only goes up while the process runs; its name ends in _total
	Histogram Type = "histogram" // counts durations by their length; its name ends in _seconds
)

// Metric describes a metric.
type Metric struct {
	Name string
	Type Type
	// Labels are the names of the labels. Callers pass the values in this order.
	Labels []string
	// Help is one sentence for people: what is counted, and in which unit unless the name shows it.
	Help string
}

// maxLabels is the largest number of labels that a metric can have: the length of labelValues.
const maxLabels = 4

// buckets are the upper limits of each histogram's buckets, in seconds.
var buckets = [...]float64{.0001, .001, .005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, math.Inf(1)}

var registered []Metric

// Register adds a metric to every Registry that is made later. Call it in an init function: it is not safe for
// concurrent use. It panics if a metric of this name exists, or if the metric has more than maxLabels labels.
func Register(m Metric) {
	isThere := slices.ContainsFunc(All(), func(other Metric) bool { return other.Name == m.Name })
	if isThere || len(m.Labels) > maxLabels {
		panic(fmt.Sprintf("metrics: there is a metric %s already, or it has more than %d labels", m.Name, maxLabels))
	}
	registered = append(registered, m)
}

// All returns every metric in the order of /metrics: first podcount's own, then the registered ones.
func All() []Metric {
	return slices.Concat(table, registered)
}

// Registry holds the current numbers. Its methods are safe for concurrent use, and never wait for anything slow.
//
// A method panics if there is no metric of this name, or if the metric has another type or another number of labels:
// the caller is wrong, and fails at its first call.
type Registry struct {
	// All families, in the order of All and by name. Neither field ever changes.
	families []*family
	byName   map[string]*family

	mu sync.Mutex // guards the series of all families
}

// family is a metric with all its series.
type family struct {
	Metric
	series map[labelValues]*series
}

// labelValues are the values of the labels of a series, in the order of Metric.Labels. The rest of the array is empty.
type labelValues [maxLabels]string

// series holds the number for one combination of label values.
type series struct {
	value        float64             // of a histogram, the sum of all durations
	bucketCounts [len(buckets)]int64 // of a histogram, how many durations were up to the limit of each bucket
}

// NewRegistry returns a Registry with all metrics that are registered so far. None has a series yet.
func NewRegistry() *Registry {
	r := &Registry{byName: map[string]*family{}}
	for _, m := range All() {
		f := &family{Metric: m, series: map[labelValues]*series{}}
		r.families = append(r.families, f)
		r.byName[m.Name] = f
	}
	return r
}

// Set sets a gauge, or a counter whose number comes from elsewhere.
func (r *Registry) Set(value float64, name string, labels ...string) {
	r.change(r.family(name, labels, Gauge, Counter), labels, func(s *series) { s.value = value })
}

// Count adds one to a counter.
func (r *Registry) Count(name string, labels ...string) {
	r.change(r.family(name, labels, Counter), labels, func(s *series) { s.value++ })
}

// Observe adds the time since start to a histogram.
func (r *Registry) Observe(start time.Time, name string, labels ...string) {
	took := time.Since(start).Seconds()
	r.change(r.family(name, labels, Histogram), labels, func(s *series) {
		s.value += took
		for i, limit := range buckets {
			if took <= limit {
				s.bucketCounts[i]++
			}
		}
	})
}

// Remove removes a series of a gauge, for example when the measured object is gone. It does nothing if the series does
// not exist. Counters cannot be removed: if one came back, Prometheus would conclude that the program had restarted.
func (r *Registry) Remove(name string, labels ...string) {
	f := r.family(name, labels, Gauge)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(f.series, valuesOf(labels))
}

// family returns the metric of this name. It panics if there is none with so many labels and one of these types.
func (r *Registry) family(name string, labels []string, types ...Type) *family {
	f := r.byName[name]
	switch {
	case f == nil:
		panic("metrics: there is no metric " + name)
	case len(labels) != len(f.Labels):
		panic(fmt.Sprintf("metrics: %s has %d labels, not %d", name, len(f.Labels), len(labels)))
	case !slices.Contains(types, f.Type):
		panic(fmt.Sprintf("metrics: %s is a %s", name, f.Type))
	}
	return f
}

// change changes the series with these label values. A new one begins at 0.
func (r *Registry) change(f *family, labels []string, change func(*series)) {
	values := valuesOf(labels)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := f.series[values]
	if s == nil {
		s = new(series)
		f.series[values] = s
	}
	change(s)
}

func valuesOf(labels []string) (values labelValues) {
	copy(values[:], labels)
	return values
}

// Text returns all metrics in Prometheus' text format. A metric without series has only its help and type there.
// https://prometheus.io/docs/instrumenting/exposition_formats/
func (r *Registry) Text() string {
	var out strings.Builder
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.families {
		out.WriteString("# HELP " + f.Name + " " + escapeHelp.Replace(f.Help) + "\n")
		out.WriteString("# TYPE " + f.Name + " " + string(f.Type) + "\n")
		all := slices.Collect(maps.Keys(f.series))
		slices.SortFunc(all, func(a, b labelValues) int { return slices.Compare(a[:], b[:]) })
		for _, values := range all {
			f.write(&out, values, f.series[values])
		}
	}
	return out.String()
}

// write writes the lines of one series.
func (f *family) write(out *strings.Builder, values labelValues, s *series) {
	sample := func(suffix, value string, limit ...string) {
		var labels []string
		for i, name := range f.Labels {
			labels = append(labels, formatLabel(name, values[i]))
		}
		out.WriteString(f.Name + suffix)
		if labels = append(labels, limit...); len(labels) > 0 {
			out.WriteString("{" + strings.Join(labels, ",") + "}")
		}
		out.WriteString(" " + value + "\n")
	}
	if f.Type != Histogram {
		sample("", formatNumber(s.value))
		return
	}
	for i, limit := range buckets {
		sample("_bucket", strconv.FormatInt(s.bucketCounts[i], 10), formatLabel("le", formatNumber(limit)))
	}
	sample("_sum", formatNumber(s.value))
	sample("_count", strconv.FormatInt(s.bucketCounts[len(buckets)-1], 10))
}

// The text format escapes only these characters. Go's %q would escape others, too, such as é or a tab: Prometheus
// refuses these escapes, or takes them literally.
var (
	escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// formatLabel writes a label with its value. It replaces bytes that are not UTF-8, because the format forbids them.
func formatLabel(name, value string) string {
	return name + `="` + escapeLabel.Replace(strings.ToValidUTF8(value, "\uFFFD")) + `"`
}

// formatNumber writes a number as Prometheus' own clients do: 1, 0.025, 2.5e+06, +Inf.
func formatNumber(value float64) string {
	return strconv.FormatFloat(value, 'g', -1, 64)
}
