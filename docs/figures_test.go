package docs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/internal/testkit"
)

var update = flag.Bool("update", false, "write pictures/peers.svg")

// run is one line of testdata/figures/start.jsonl or churn.jsonl. testdata/figures/measure has printed it.
type run struct {
	Session string `json:"session"` // the series of runs, one after the other, that this one belongs to
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

// measure is one of the figures of a run.
type measure struct {
	name   string
	of     func(run) float64
	format string // with the unit
}

// startMeasures and churnMeasures are the rows of the tables.
var (
	startMeasures = []measure{
		{"time until the label is right", func(r run) float64 { return r.Seconds }, "%.1f s"},
		{"CPU time", func(r run) float64 { return r.CPU }, "%.1f s"},
		{"peak memory", func(r run) float64 { return r.Peak }, "%.0f MB"},
		{"CPU time of the API server", func(r run) float64 { return r.ServerCPU }, "%.1f s"},
	}
	churnMeasures = []measure{
		{"CPU time until the label is right afterwards", func(r run) float64 { return r.ChurnCPU }, "%.1f s"},
		{"peak memory", func(r run) float64 { return r.ChurnPeak }, "%.0f MB"},
	}
)

// job is what podcount and a peer do in turn.
type job struct {
	name, mode, podcount, peer string
	measures                   []measure
}

var (
	totalJob = job{
		"total", "start",
		"podcount -kubeconfig KUBECONFIG -pod-events off",
		"peer-client-go -kubeconfig KUBECONFIG -metadata",
		startMeasures,
	}
	ownJob = job{
		"own label of each node", "start",
		"podcount -kubeconfig KUBECONFIG -pod-events off -node-label KEY",
		"peer-client-go -kubeconfig KUBECONFIG -tuned",
		startMeasures,
	}
	churnJob = job{
		"churn", "churn",
		"podcount -kubeconfig KUBECONFIG -pod-events off -interval 1s",
		"peer-client-go -kubeconfig KUBECONFIG -tuned",
		churnMeasures,
	}
)

func TestTablesOfFiguresShowTheRecordedRuns(t *testing.T) {
	runs := recordedRuns(t)
	figures := loadPage(t, "docs/figures.md").text
	for _, j := range []job{totalJob, ownJob, churnJob} {
		t.Run(j.name, func(t *testing.T) { testkit.WantText(t, figures, comparison(t, runs, j)) })
	}
	t.Run("sessions", func(t *testing.T) { testkit.WantText(t, figures, sessionTable(runs, totalJob)) })
	t.Run("README", func(t *testing.T) {
		testkit.WantText(t, loadPage(t, readme).text, comparison(t, runs, totalJob))
	})
}

func TestThePhysicalLimitIsTheRecordedOne(t *testing.T) {
	var times, shares []float64
	for _, r := range recordedRuns(t) {
		if r.Mode == "limit" {
			times = append(times, r.Seconds/r.CurlTime)
			shares = append(shares, r.GunzipCPU/r.CPU)
		}
	}
	figures := strings.Join(strings.Fields(loadPage(t, "docs/figures.md").text), " ")
	testkit.WantText(t, figures, "took "+spread(times)+" times as long as curl", spread(shares)+" of podcount's CPU time")
}

// recordedRuns returns the recorded runs during which the API server collected no garbage.
func recordedRuns(t *testing.T) (runs []run) {
	t.Helper()
	for _, name := range []string{"start.jsonl", "churn.jsonl"} {
		text, err := os.ReadFile(fromHere("testdata/figures/" + name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var r run
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %v in %s", name, err, line)
			}
			r.Command = nodeLabel.ReplaceAllString(r.Command, "-node-label KEY")
			if r.ServerGCs == 0 {
				runs = append(runs, r)
			}
		}
	}
	return runs
}

// nodeLabel matches a flag whose value differs from run to run.
var nodeLabel = regexp.MustCompile(`-node-label \S+`)

// runsOf returns the runs of a command in a session and a mode.
func runsOf(runs []run, session, mode, command string) (found []run) {
	for _, r := range runs {
		if r.Session == session && r.Mode == mode && r.Command == command {
			found = append(found, r)
		}
	}
	return found
}

// sessions returns the names of all sessions in the order in which they took place.
func sessions(runs []run) (names []string) {
	for _, r := range runs {
		if !slices.Contains(names, r.Session) {
			names = append(names, r.Session)
		}
	}
	return names
}

// pair is a run of podcount and a run of its peer, close to each other.
type pair struct{ podcount, peer run }

// pairsOf returns the pairs of a job in a session. The two programs ran in turn, so the n-th runs are a pair.
func pairsOf(runs []run, session string, j job) (pairs []pair) {
	ours := runsOf(runs, session, j.mode, j.podcount)
	theirs := runsOf(runs, session, j.mode, j.peer)
	for i := range min(len(ours), len(theirs)) {
		pairs = append(pairs, pair{ours[i], theirs[i]})
	}
	return pairs
}

// comparison returns a table with a row for each measure: the medians of both, and the ratio with its spread.
func comparison(t *testing.T, runs []run, j job) string {
	t.Helper()
	var pairs []pair
	for _, session := range sessions(runs) {
		pairs = append(pairs, pairsOf(runs, session, j)...)
	}
	if len(pairs) < 5 {
		t.Fatalf("there are %d pairs of runs", len(pairs))
	}
	table := "| | podcount | client-go | ratio |\n|---|---|---|---|\n"
	for _, m := range j.measures {
		var ours, theirs []float64
		for _, p := range pairs {
			ours = append(ours, m.of(p.podcount))
			theirs = append(theirs, m.of(p.peer))
		}
		row := "| %s | " + m.format + " | " + m.format + " | %s |\n"
		table += fmt.Sprintf(row, m.name, median(ours), median(theirs), spread(ratios(pairs, m)))
	}
	return table
}

// sessionTable returns a table with a row for each session that has pairs of a job: the ratios of all measures.
func sessionTable(runs []run, j job) string {
	table := "| session | pairs | time | CPU | memory | API server's CPU |\n|---|---|---|---|---|---|\n"
	for _, session := range sessions(runs) {
		pairs := pairsOf(runs, session, j)
		if len(pairs) == 0 {
			continue
		}
		table += fmt.Sprintf("| %s | %d |", session, len(pairs))
		for _, m := range j.measures {
			table += " " + spread(ratios(pairs, m)) + " |"
		}
		table += "\n"
	}
	return table
}

// ratios returns podcount's figure divided by its peer's, for each pair.
func ratios(pairs []pair, m measure) (found []float64) {
	for _, p := range pairs {
		found = append(found, m.of(p.podcount)/m.of(p.peer))
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
