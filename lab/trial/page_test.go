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
	var items []string
	group := ""
	for _, row := range Rows() {
		if row.Group == group {
			items[len(items)-1] += ", " + row.Name
			continue
		}
		group = row.Group
		items = append(items, fmt.Sprintf("**%s**: %s", group, row.Name))
	}
	return listOf(items)
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
	var items []string
	for _, program := range programs {
		title, verdicts := readResults(t, program)
		rows := map[Verdict][]string{}
		for _, row := range Rows() {
			v := verdicts[row.Name]
			if v == "" {
				t.Fatalf("%s: there is no result for the row %s", program, row.Name)
			}
			rows[v] = append(rows[v], row.Name)
		}
		item := fmt.Sprintf("**%s**: %d passed, %d skipped", title, len(rows[Right]), len(rows[Skipped]))
		failed := len(Rows()) - len(rows[Right]) - len(rows[Skipped])
		delete(rows, Right)
		delete(rows, Skipped)
		if failed > 0 {
			item += fmt.Sprintf(", %d failed: %s", failed, failuresOf(rows, failed <= maxNamed))
		}
		items = append(items, item)
	}
	return listOf(items)
}

// failuresOf says which rows, or how many, have failed with which verdict. The most frequent verdicts come first.
func failuresOf(rows map[Verdict][]string, areNamed bool) string {
	mostFirst := func(v, w Verdict) int {
		return cmp.Or(cmp.Compare(len(rows[w]), len(rows[v])), cmp.Compare(v, w))
	}
	var failures []string
	for _, v := range slices.SortedFunc(maps.Keys(rows), mostFirst) {
		which := strconv.Itoa(len(rows[v]))
		if areNamed {
			which = strings.Join(rows[v], ", ")
		}
		failures = append(failures, fmt.Sprintf("%s (%s)", v, which))
	}
	return strings.Join(failures, "; ")
}

// maxWidth is the width of a line of prose.
const maxWidth = 120

// listOf returns a list of Markdown, with lines as narrow as those of prose.
func listOf(items []string) string {
	var b strings.Builder
	for _, item := range items {
		line := "-"
		for _, word := range strings.Fields(item) {
			if len(line)+1+len(word) > maxWidth {
				b.WriteString(line + "\n")
				line = " "
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

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
