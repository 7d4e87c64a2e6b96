package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/internal/view/metrics"
)

// metricPattern matches the name of a metric. If it ends with _, it is the beginning of several names.
var metricPattern = regexp.MustCompile(`\b(podcount|workqueue|leader_election|rest_client)_[a-z_]+`)

// underscorePattern matches inline code that must be a metric, because hardly anything else has a name with _ in it.
var underscorePattern = regexp.MustCompile(`^([a-z]+(?:_[a-z]+)+)(\{.*\})?$`)

// notMetrics are the names with _ that are not those of metrics: attributes of log lines, and names in files.
var notMetrics = []string{
	"add_in", "events_dropped", "failed_tries", "labels_age", "rule_files", "unannounced_outages",
}

func TestEachMetricInThePagesExists(t *testing.T) {
	known := metricNames()
	for _, p := range loadPages(t) {
		for i, line := range strings.Split(p.text, "\n") {
			for _, name := range metricPattern.FindAllString(line, -1) {
				if !isMetric(known, name) {
					t.Errorf("%s: there is no metric %s", p.at(i+1), name)
				}
			}
		}
		for _, b := range p.blocks {
			for _, s := range codeSpans(b) {
				found := underscorePattern.FindStringSubmatch(s.text)
				if found != nil && !isMetric(known, found[1]) && !slices.Contains(notMetrics, found[1]) {
					t.Errorf("%s: there is no metric %s", p.at(s.line), found[1])
				}
			}
		}
	}
}

// metricNames returns the names of all metrics, and of the series of histograms.
func metricNames() (names []string) {
	for _, m := range metrics.All() {
		names = append(names, m.Name)
		if m.Type == metrics.Histogram {
			names = append(names, m.Name+"_bucket", m.Name+"_sum", m.Name+"_count")
		}
	}
	return names
}

// isMetric reports whether a name, or the beginning of names, is that of a metric.
func isMetric(known []string, name string) bool {
	return slices.ContainsFunc(known, func(k string) bool {
		return k == name || strings.HasSuffix(name, "_") && strings.HasPrefix(k, name)
	})
}
