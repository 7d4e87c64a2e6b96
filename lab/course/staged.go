package course

import (
	"context"
	"testing"

	"podcount/lab/trial"
)

// Test tests a finished stage, in virtual time: it must pass exactly the rows that the table promises, and fail all
// others that can say something about it. The page of the next stage must show what this one does wrong. run runs the
// stage's program until ctx ends, or the program does.
func Test(t *testing.T, number int, run func(context.Context, trial.Cluster) error) {
	s, err := stageNamed(number)
	if err != nil {
		t.Fatal(err)
	}
	program := s.program(trial.Program{Run: run})
	for _, row := range allRows() {
		if !s.isJudgedBy(row.Name) {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			switch r := trial.RunRow(t, program, row); {
			case r.Verdict == trial.Skipped:
				t.Skip(r.Detail)
			case r.Green() != s.mustPass(row.Name):
				t.Errorf("stage %d must pass this row: %t\n%s", number, s.mustPass(row.Name), r.Story())
			}
		})
	}
	if s.Number < len(stages) {
		next := stages[s.Number]
		t.Run("the next page shows what is wrong", func(t *testing.T) {
			checkPage(t, next, failures(t, next, next.program(trial.Program{Run: run})))
		})
	}
}

// failures returns the stories of the new rows of a stage that a program does not pass.
func failures(t *testing.T, s Stage, program trial.Program) (stories []string) {
	for _, row := range s.newRows() {
		t.Run(row.Name, func(t *testing.T) {
			if r := trial.RunRow(t, program, row); !r.Green() {
				stories = append(stories, r.Story())
			}
		})
	}
	return stories
}
