package trial

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
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
	parts := map[string]string{"rows": rowsList(), "results": resultsList(t)}
	testkit.WantParts(t, pageFile, "go test ./lab/trial -update", *update, parts)
}

// rowsList names the rows of each group. `-list` explains them.
func rowsList() string {
	var b strings.Builder
	group := ""
	for _, row := range Rows() {
		if row.Group == group {
			fmt.Fprintf(&b, ", %s", row.Name)
			continue
		}
		if group != "" {
			b.WriteString("\n")
		}
		group = row.Group
		fmt.Fprintf(&b, "- **%s**: %s", group, row.Name)
	}
	b.WriteString("\n")
	return wrapped(b.String())
}

// resultsDir has a file for each program, in the form of WriteLines. One file can have several runs.
const resultsDir = "../../testdata/trial"

// programs are those that were on trial, in the order of the page.
var programs = []string{"podcount", "client-go", "controller-runtime", "javascript", "python", "bare"}

// maxNamed is how many failed rows of a program are named. Of more, the page only says how many there are.
const maxNamed = 20

// resultsList says how many rows each program has passed, and which it has failed, with the verdicts.
func resultsList(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, program := range programs {
		title, verdicts := readResults(t, program)
		passed := 0
		skipped := 0
		failed := 0
		failures := map[Verdict][]string{}
		for _, row := range Rows() {
			switch v := verdicts[row.Name]; v {
			case Right:
				passed++
			case Skipped:
				skipped++
			case "":
				t.Fatalf("%s: there is no result for the row %s", program, row.Name)
			default:
				failed++
				failures[v] = append(failures[v], row.Name)
			}
		}
		fmt.Fprintf(&b, "- **%s**: %d passed, %d skipped", title, passed, skipped)
		if failed > 0 {
			fmt.Fprintf(&b, ", %d failed:", failed)
		}
		mostFirst := func(v, w Verdict) int {
			return cmp.Or(cmp.Compare(len(failures[w]), len(failures[v])), cmp.Compare(v, w))
		}
		for i, v := range slices.SortedFunc(maps.Keys(failures), mostFirst) {
			if i > 0 {
				b.WriteString(";")
			}
			rows := strings.Join(failures[v], ", ")
			if failed > maxNamed {
				rows = strconv.Itoa(len(failures[v]))
			}
			fmt.Fprintf(&b, " %s (%s)", v, rows)
		}
		b.WriteString("\n")
	}
	return wrapped(b.String())
}

// wrapped breaks the lines of a list so that they are as narrow as those of prose.
func wrapped(list string) string {
	var b strings.Builder
	for line := range strings.Lines(list) {
		width := 0
		for i, word := range strings.Fields(line) {
			switch n := len(word) + 1; {
			case i == 0:
				width = len(word)
			case width+n > maxWidth:
				b.WriteString("\n  ")
				width = 1 + n
			default:
				b.WriteString(" ")
				width += n
			}
			b.WriteString(word)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// maxWidth is the width of a line of prose.
const maxWidth = 120

// readResults returns the name of a program with its version, and the verdict on each row.
func readResults(t *testing.T, program string) (title string, verdicts map[string]Verdict) {
	t.Helper()
	verdicts = map[string]Verdict{}
	for line := range strings.Lines(testkit.ReadFile(t, filepath.Join(resultsDir, program+".tsv"))) {
		if comment, isComment := strings.CutPrefix(line, "# "); isComment {
			title, _, _ = strings.Cut(comment, ",")
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 6 {
			t.Fatalf("%s: this line has not six fields: %q", program, line)
		}
		row, verdict := fields[1], Verdict(fields[2])
		// Of several runs, one that has failed counts, or else one that was right.
		was := verdicts[row]
		if was == "" || was == Skipped || was == Right && verdict != Skipped {
			verdicts[row] = verdict
		}
	}
	return title, verdicts
}
