package trial

import (
	"cmp"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

var update = flag.Bool("update", false, "write the generated parts of docs/build/trial.md")

const pageFile = "../../docs/build/trial.md"

func TestPageHasTheRowsAndTheResults(t *testing.T) {
	parts := map[string]string{"rows": rowsTable(), "results": resultsTable(t)}
	testkit.WantParts(t, pageFile, "go test ./lab/trial -update", *update, parts)
}

func rowsTable() string {
	var b strings.Builder
	b.WriteString("| row | what happens | why it happens |\n|---|---|---|\n")
	group := ""
	for _, row := range Rows() {
		if row.Group != group {
			group = row.Group
			fmt.Fprintf(&b, "| **%s** | | |\n", group)
		}
		fmt.Fprintf(&b, "| [%s](%s) | %s | %s |\n", row.Name, row.Report, row.Happens, row.Why)
	}
	return b.String()
}

// resultsDir has a file for each program, in the form of WriteLines. One file can have several runs.
const resultsDir = "../../testdata/trial"

// columns are the programs in the order of the table.
var columns = []string{"podcount", "client-go", "controller-runtime", "javascript", "python", "bare"}

func resultsTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "| row | %s |\n|---%s|\n", strings.Join(columns, " | "), strings.Repeat("|---", len(columns)))
	var programs []map[string][]result
	for _, name := range columns {
		programs = append(programs, readResults(t, name))
	}
	for _, row := range Rows() {
		fmt.Fprintf(&b, "| %s |", row.Name)
		for _, results := range programs {
			text := cell(results[row.Name])
			if row.Name == "20,000 pods" {
				text += ", " + results[row.Name][0].peak + " MiB"
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// result is what one run says of a row.
type result struct {
	verdict Verdict
	seconds float64
	peak    string // in MiB
}

// readResults returns the results of each row.
func readResults(t *testing.T, program string) map[string][]result {
	t.Helper()
	results := map[string][]result{}
	for line := range strings.Lines(testkit.ReadFile(t, filepath.Join(resultsDir, program+".tsv"))) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 6 {
			t.Fatalf("%s: this line has not six fields: %q", program, line)
		}
		seconds, err := strconv.ParseFloat(fields[3], 64)
		if err != nil {
			t.Fatalf("%s: %q: %v", program, line, err)
		}
		results[fields[1]] = append(results[fields[1]], result{Verdict(fields[2]), seconds, fields[5]})
	}
	return results
}

// cell shows the results of a row in all runs: seconds, or the lowest and the highest, or the verdicts.
func cell(results []result) string {
	var seconds []string
	var verdicts []string
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.seconds, b.seconds) })
	for _, r := range results {
		switch r.verdict {
		case Right:
			seconds = append(seconds, fmt.Sprintf("%.0f", r.seconds))
		case Skipped:
		default:
			verdicts = append(verdicts, "**"+string(r.verdict)+"**")
		}
	}
	cells := slices.Compact(verdicts)
	if len(seconds) > 0 {
		ends := slices.Compact([]string{seconds[0], seconds[len(seconds)-1]})
		cells = slices.Insert(cells, 0, strings.Join(ends, "–"))
	}
	return cmp.Or(strings.Join(cells, ", "), "–")
}

func TestPageShowsTheTestHere(t *testing.T) {
	page := testkit.ReadFile(t, pageFile)
	here := testkit.ReadFile(t, "author_test.go")
	_, code, _ := strings.Cut(here, "package trial_test\n")
	if !strings.Contains(page, "```go\npackage mine\n"+code+"```\n") {
		t.Error("docs/build/trial.md does not show author_test.go")
	}
}
