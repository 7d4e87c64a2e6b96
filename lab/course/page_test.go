package course

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"podcount/lab/testkit"
	"podcount/lab/trial"
)

var update = flag.Bool("update", false, "write the generated parts of the pages in learn")

func TestPagesHaveTheTablesAndTheChanges(t *testing.T) {
	check := func(t *testing.T, page string, parts map[string]string) {
		t.Helper()
		testkit.WantParts(t, "../../learn/"+page, "go test ./lab/course -update", *update, parts)
	}
	check(t, "README.md", map[string]string{"stages": stagesTable(), "rows": rowsTable()})
	for _, stage := range stages {
		t.Run(stage.Name, func(t *testing.T) {
			change, err := change("../..", stage.Number)
			if err != nil {
				t.Fatal(err)
			}
			check(t, stage.Dir+"/README.md", map[string]string{"change": "```diff\n" + change + "```\n"})
		})
	}
}

func stagesTable() string {
	var b strings.Builder
	b.WriteString("| stage | it learns | what the stage before does wrong |\n|---|---|---|\n")
	for _, s := range stages {
		fmt.Fprintf(&b, "| [%d, %s](%s/README.md) | %s | %s |\n", s.Number, s.Name, s.Dir, s.Learns, s.Before)
	}
	return b.String()
}

func rowsTable() string {
	var b strings.Builder
	b.WriteString("| row |")
	for _, s := range stages {
		fmt.Fprintf(&b, " %d |", s.Number)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(stages)) + "\n")
	for _, row := range allRows() {
		fmt.Fprintf(&b, "| %s |", row.Name)
		for _, s := range stages {
			mark := ""
			if s.mustPass(row.Name) {
				mark = "✓"
			}
			fmt.Fprintf(&b, " %s |", mark)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestEachRowOfTheTrialBelongsToOneStage(t *testing.T) {
	learners := map[string]int{}
	for _, s := range stages {
		for _, row := range s.rows {
			learners[row.name]++
			trialRow(row.name)
		}
	}
	for _, row := range allRows() {
		if isBeyond := row.Name == beyond; isBeyond == (learners[row.Name] > 0) || learners[row.Name] > 1 {
			t.Errorf("%d stages learn the row %q; beyond all of them: %t", learners[row.Name], row.Name, isBeyond)
		}
	}
}

func TestLastStagePassesNineInTenAndIsShort(t *testing.T) {
	last := stages[len(stages)-1]
	passed := 0
	for _, row := range trial.Rows() {
		if last.mustPass(row.Name) {
			passed++
		}
	}
	testkit.WantBetween(t, "rows that the last stage passes", passed, len(trial.Rows())*9/10+1, len(trial.Rows()))
	text, err := finished("../..", last.Number)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantBetween(t, "lines of the last stage", strings.Count(text, "\n"), 500, 900)
}

func TestEachStageHasTwoHints(t *testing.T) {
	for _, stage := range stages {
		found, err := hints("../..", stage)
		if err != nil {
			t.Fatal(err)
		}
		testkit.WantNumber(t, "hints of stage "+stage.Name, len(found), 2)
	}
}
