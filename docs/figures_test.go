package docs_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
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
	CurlTime  float64 `json:"curl_s"`
	GunzipCPU float64 `json:"gunzip_cpu_s"`
}

// figure is one of the figures of a sample: a row of a table.
type figure struct {
	name   string
	of     func(sample) float64
	format string // with the unit
}

var (
	startFigures = []figure{
		{"time until the label is right", func(s sample) float64 { return s.Seconds }, "%.1f s"},
		{"CPU time", func(s sample) float64 { return s.CPU }, "%.1f s"},
		{"peak memory", func(s sample) float64 { return s.Peak }, "%.0f MB"},
		{"CPU time of the API server", func(s sample) float64 { return s.ServerCPU }, "%.1f s"},
	}
	churnFigures = []figure{
		{"CPU time until the label is right afterwards", func(s sample) float64 { return s.ChurnCPU }, "%.1f s"},
		{"peak memory", func(s sample) float64 { return s.ChurnPeak }, "%.0f MB"},
	}
)

// duel is two commands that are compared, podcount's and a peer's, which ran in turn.
type duel struct {
	mode, podcount, peer string
	figures              []figure
}

var (
	totalDuel = duel{
		mode:     "start",
		podcount: "podcount -kubeconfig KUBECONFIG -pod-events off",
		peer:     "peer-client-go -kubeconfig KUBECONFIG -metadata",
		figures:  startFigures,
	}
	ownDuel = duel{
		mode:     "start",
		podcount: "podcount -kubeconfig KUBECONFIG -pod-events off -node-label KEY",
		peer:     "peer-client-go -kubeconfig KUBECONFIG -tuned",
		figures:  startFigures,
	}
	churnDuel = duel{
		mode:     "churn",
		podcount: "podcount -kubeconfig KUBECONFIG -pod-events off -interval 1s",
		peer:     "peer-client-go -kubeconfig KUBECONFIG -tuned",
		figures:  churnFigures,
	}
)

func TestTablesOfFiguresShowTheRecordedRuns(t *testing.T) {
	samples := recordedSamples(t)
	total := comparisonTable(t, samples, totalDuel)
	figures := loadPage(t, "docs/change/figures.md")
	testkit.WantEqual(t, "the tables of docs/change/figures.md", tablesOf(figures.section("Against client-go")), []string{
		total,
		sessionTable(samples, totalDuel),
		comparisonTable(t, samples, ownDuel),
		comparisonTable(t, samples, churnDuel),
	})
	comparison := loadPage(t, readme).section("How it compares")
	testkit.WantEqual(t, "the tables of README.md", tablesOf(comparison), []string{total})
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

func TestTheSlowestLabelInChurnIsTheRecordedOne(t *testing.T) {
	slowest := 0.0
	for _, s := range recordedSamples(t) {
		if s.Mode == churnDuel.mode && s.Command == churnDuel.podcount {
			slowest = max(slowest, s.RightAfter)
		}
	}
	sentence := fmt.Sprintf("label was right at most %.2f s after the last change", slowest)
	testkit.WantText(t, loadPage(t, "docs/change/figures.md").text, sentence)
}

func TestThePhysicalLimitIsTheRecordedOne(t *testing.T) {
	var times, shares []float64
	for _, s := range recordedSamples(t) {
		if s.Mode == "limit" {
			times = append(times, s.Seconds/s.CurlTime)
			shares = append(shares, s.GunzipCPU/s.CPU)
		}
	}
	figures := strings.Join(strings.Fields(loadPage(t, "docs/change/figures.md").text), " ")
	testkit.WantText(t, figures,
		"took "+spread(times)+" times as long as curl",
		spread(shares)+" of podcount's CPU time")
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

// sessions returns the names of all sessions in the order in which they took place.
func sessions(samples []sample) (names []string) {
	for _, s := range samples {
		if !slices.Contains(names, s.Session) {
			names = append(names, s.Session)
		}
	}
	return names
}

// pair is a sample of podcount and one of its peer, measured one right after the other.
type pair struct{ podcount, peer sample }

// pairsOf returns the pairs of a duel in a session. Each sample is in one pair at most.
func pairsOf(samples []sample, session string, d duel) (pairs []pair) {
	for i := 0; i+1 < len(samples); i++ {
		if samples[i].Session != session {
			continue
		}
		if p, isPair := d.pairOf(samples[i], samples[i+1]); isPair {
			pairs = append(pairs, p)
			i++ // go on after the second one
		}
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
func comparisonTable(t *testing.T, samples []sample, d duel) string {
	t.Helper()
	var pairs []pair
	for _, session := range sessions(samples) {
		pairs = append(pairs, pairsOf(samples, session, d)...)
	}
	if len(pairs) < 5 {
		t.Fatalf("there are %d pairs of samples", len(pairs))
	}
	table := "| | podcount | client-go | ratio |\n|---|---|---|---|\n"
	for _, f := range d.figures {
		var ours, theirs []float64
		for _, p := range pairs {
			ours = append(ours, f.of(p.podcount))
			theirs = append(theirs, f.of(p.peer))
		}
		line := "| %s | " + f.format + " | " + f.format + " | %s |\n"
		table += fmt.Sprintf(line, f.name, median(ours), median(theirs), spread(ratios(pairs, f)))
	}
	return table
}

// sessionTable returns a table with a row for each session that has pairs of a duel: the ratios of all figures.
func sessionTable(samples []sample, d duel) string {
	table := "| session | pairs | time | CPU | memory | API server's CPU |\n|---|---|---|---|---|---|\n"
	for _, session := range sessions(samples) {
		pairs := pairsOf(samples, session, d)
		if len(pairs) == 0 {
			continue
		}
		table += fmt.Sprintf("| %s | %d |", session, len(pairs))
		for _, f := range d.figures {
			table += " " + spread(ratios(pairs, f)) + " |"
		}
		table += "\n"
	}
	return table
}

// ratios returns podcount's figure divided by its peer's, for each pair.
func ratios(pairs []pair, f figure) (found []float64) {
	for _, p := range pairs {
		found = append(found, f.of(p.podcount)/f.of(p.peer))
	}
	return found
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
