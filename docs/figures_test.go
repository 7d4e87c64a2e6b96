package docs_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// sample is one line of testdata/figures/start.jsonl or churn.jsonl: one run of a program. testdata/figures/measure has
// measured it.
type sample struct {
	Session string `json:"session"` // the date and the build, for runs one after the other
	Mode    string `json:"mode"`    // start, churn or limit
	Command string `json:"command"`

	// From the start of the command to the right label.
	Seconds   float64 `json:"label_s"`
	CPU       float64 `json:"cpu_s"`
	Peak      float64 `json:"peak_mb"`
	ServerCPU float64 `json:"server_cpu_s"`
	ServerGCs int     `json:"server_gcs"` // if the API server collected garbage, the run does not count

	// In the mode churn, while pods come and go.
	ChurnCPU   float64 `json:"churn_cpu_s"`
	ChurnPeak  float64 `json:"churn_peak_mb"`
	RightAfter float64 `json:"right_s"` // from the last change to the right label

	// In the mode limit, for the same list.
	CurlTime float64 `json:"curl_s"`
}

// figure is one of the figures of a sample: a row of a table.
type figure struct {
	name   string
	of     func(sample) float64
	format string // with the unit
}

// startFigures are those of a start, in the order of the table.
var startFigures = []figure{
	{"time until the label is right", func(s sample) float64 { return s.Seconds }, "%.1f s"},
	{"CPU time", func(s sample) float64 { return s.CPU }, "%.1f s"},
	{"peak memory", func(s sample) float64 { return s.Peak }, "%.0f MB"},
	{"CPU time of the API server", func(s sample) float64 { return s.ServerCPU }, "%.1f s"},
}

// duel is two commands that are compared, podcount's and a peer's, which ran in turn.
type duel struct {
	mode, podcount, peer string
}

var (
	totalDuel = duel{
		mode:     "start",
		podcount: "podcount -kubeconfig KUBECONFIG -pod-events off",
		peer:     "peer-client-go -kubeconfig KUBECONFIG -metadata",
	}
	ownDuel = duel{
		mode:     "start",
		podcount: "podcount -kubeconfig KUBECONFIG -pod-events off -node-label KEY",
		peer:     "peer-client-go -kubeconfig KUBECONFIG -tuned",
	}
	churnDuel = duel{
		mode:     "churn",
		podcount: "podcount -kubeconfig KUBECONFIG -pod-events off -interval 1s",
		peer:     "peer-client-go -kubeconfig KUBECONFIG -tuned",
	}
)

func TestFiguresAreThoseOfTheRecordedRuns(t *testing.T) {
	samples := recordedSamples(t)
	total, own, churn := pairsOf(t, samples, totalDuel), pairsOf(t, samples, ownDuel), pairsOf(t, samples, churnDuel)
	comparison := loadPage(t, readme)
	tables := tablesOf(comparison.section("How it compares"))
	testkit.WantEqual(t, "the tables of "+readme, tables, []string{comparisonTable(total)})
	testkit.WantText(t, strings.Join(strings.Fields(comparison.text), " "),
		fmt.Sprintf("median of %d pairs of runs", len(total)),
		independentRange(t, total))

	startRatios := func(i int) string { return spread(ratios(own, startFigures[i].of)) }
	var limits []float64
	slowest := 0.0
	for _, s := range samples {
		switch {
		case s.Mode == "limit":
			limits = append(limits, s.Seconds/s.CurlTime)
		case s.Mode == churnDuel.mode && s.Command == churnDuel.podcount:
			slowest = max(slowest, s.RightAfter)
		}
	}
	testkit.WantText(t, strings.Join(strings.Fields(loadPage(t, "docs/change/figures.md").text), " "),
		fmt.Sprintf("both list whole pods (%d pairs)", len(own)),
		fmt.Sprintf("podcount took %s of the time, %s of the CPU time, %s of the memory, and %s of the API server's CPU time",
			startRatios(0), startRatios(1), startRatios(2), startRatios(3)),
		fmt.Sprintf("come and go (%d pairs), podcount took %s of the CPU time and %s of the memory", len(churn),
			spread(ratios(churn, func(s sample) float64 { return s.ChurnCPU })),
			spread(ratios(churn, func(s sample) float64 { return s.ChurnPeak }))),
		fmt.Sprintf("label was right at most %.2f s after the last change", slowest),
		"took "+spread(limits)+" times as long as `curl`")
}

// independentRange returns what README says of the independent measurement: it extends the range of the time, and its
// other ratios are within those of the pairs.
func independentRange(t *testing.T, pairs []pair) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^time (\S+), CPU time (\S+), peak memory (\S+), CPU time of the API server (\S+)$`).
		FindStringSubmatch(testkit.ReadFile(t, fromHere("testdata/figures/independent.txt")))
	if found == nil {
		t.Fatal("testdata/figures/independent.txt has no ratios")
	}
	text := ""
	for i, f := range startFigures {
		independent, err := strconv.ParseFloat(found[i+1], 64)
		if err != nil {
			t.Fatal(err)
		}
		ours := ratios(pairs, f.of)
		lowest, highest := slices.Min(ours), slices.Max(ours)
		if i == 0 {
			text = fmt.Sprintf("found %.2f for the time, which so ranges from %.2f to %.2f, and ratios within the brackets "+
				"for the rest", independent, min(lowest, independent), max(highest, independent))
		} else if independent < lowest || independent > highest {
			t.Errorf("%s: the independent ratio %.2f is not within %.2f to %.2f", f.name, independent, lowest, highest)
		}
	}
	return text
}

// tablesOf returns the tables among blocks. Blocks of other kinds divide them.
func tablesOf(blocks []block) (tables []string) {
	isInside := false
	for _, b := range blocks {
		if b.kind == tableRow && !isInside {
			tables = append(tables, "")
		}
		isInside = b.kind == tableRow
		if isInside {
			tables[len(tables)-1] += b.source()
		}
	}
	return tables
}

// recordedSamples returns the samples during which the API server collected no garbage, in the order in which they were
// measured.
func recordedSamples(t *testing.T) (samples []sample) {
	t.Helper()
	for _, name := range []string{"start.jsonl", "churn.jsonl"} {
		for line := range strings.Lines(testkit.ReadFile(t, fromHere("testdata/figures/"+name))) {
			var s sample
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatalf("%s: %v in %s", name, err, line)
			}
			s.Command = nodeLabelPattern.ReplaceAllString(s.Command, "-node-label KEY")
			if s.ServerGCs == 0 {
				samples = append(samples, s)
			}
		}
	}
	return samples
}

// nodeLabelPattern matches a flag whose value differs from run to run.
var nodeLabelPattern = regexp.MustCompile(`-node-label \S+`)

// samplesOf returns the samples of a command in a session and a mode.
func samplesOf(samples []sample, session, mode, command string) (found []sample) {
	for _, s := range samples {
		if s.Session == session && s.Mode == mode && s.Command == command {
			found = append(found, s)
		}
	}
	return found
}

// pair is a sample of podcount and one of its peer, measured one right after the other.
type pair struct{ podcount, peer sample }

// pairsOf returns the pairs of a duel, of which there must be five. Each sample is in one pair at most.
func pairsOf(t *testing.T, samples []sample, d duel) (pairs []pair) {
	t.Helper()
	for i := 0; i+1 < len(samples); i++ {
		if p, isPair := d.pairOf(samples[i], samples[i+1]); isPair {
			pairs = append(pairs, p)
			i++ // go on after the second one
		}
	}
	if len(pairs) < 5 {
		t.Fatalf("there are %d pairs of samples of %s", len(pairs), d.podcount)
	}
	return pairs
}

// pairOf returns two neighbouring samples as a pair, if one is podcount's and the other is the peer's.
func (d duel) pairOf(first, second sample) (p pair, isPair bool) {
	if first.Session != second.Session || first.Mode != d.mode || second.Mode != d.mode {
		return pair{}, false
	}
	switch {
	case first.Command == d.podcount && second.Command == d.peer:
		return pair{podcount: first, peer: second}, true
	case first.Command == d.peer && second.Command == d.podcount:
		return pair{podcount: second, peer: first}, true
	}
	return pair{}, false
}

// comparisonTable returns a table with a row for each figure: the medians of both, and the ratio with its spread.
func comparisonTable(pairs []pair) string {
	table := "| | podcount | client-go | ratio |\n|---|---|---|---|\n"
	for _, f := range startFigures {
		ours := valuesIn(pairs, func(p pair) float64 { return f.of(p.podcount) })
		theirs := valuesIn(pairs, func(p pair) float64 { return f.of(p.peer) })
		line := "| %s | " + f.format + " | " + f.format + " | %s |\n"
		table += fmt.Sprintf(line, f.name, median(ours), median(theirs), spread(ratios(pairs, f.of)))
	}
	return table
}

// ratios returns podcount's figure divided by its peer's, for each pair.
func ratios(pairs []pair, of func(sample) float64) []float64 {
	return valuesIn(pairs, func(p pair) float64 { return of(p.podcount) / of(p.peer) })
}

// valuesIn returns a value of each pair.
func valuesIn(pairs []pair, of func(pair) float64) (values []float64) {
	for _, p := range pairs {
		values = append(values, of(p))
	}
	return values
}

// spread returns a median, with the lowest and the highest value in brackets.
func spread(values []float64) string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median(values), slices.Min(values), slices.Max(values))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
