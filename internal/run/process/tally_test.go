package process

import (
	"testing"

	"podcount/lab/testkit"
)

func TestSummary(t *testing.T) {
	for _, row := range []struct {
		name   string
		run    func(t *Tally[string])
		failed int
		want   string
	}{
		{
			name: "nothing to do",
			run:  func(t *Tally[string]) { t.Begin(2) },
			want: "2 nodes: 0 written, 2 right, 0 failed",
		},
		{
			name: "all written",
			run: func(t *Tally[string]) {
				t.Begin(1)
				t.AddTodo("a")
				t.MarkWritten("a")
			},
			want: "1 node: 1 written, 0 right, 0 failed",
		},
		{
			name: "one failed",
			run: func(t *Tally[string]) {
				t.Begin(3)
				t.AddTodo("a", "b")
				t.MarkWritten("a")
			},
			failed: 1,
			want:   "3 nodes: 1 written, 1 right, 1 failed",
		},
		{
			name: "one not done",
			run: func(t *Tally[string]) {
				t.Begin(3)
				t.AddTodo("a", "b")
				t.MarkDone("a")
			},
			want: "3 nodes: 0 written, 2 right, 0 failed, 1 not done",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			tally := NewTally[string]()
			row.run(tally)
			testkit.WantEqual(t, "summary", tally.Summary("node", row.failed), row.want)
		})
	}
}

func TestRunIsDoneOnceAllKeysAreKnown(t *testing.T) {
	tally := NewTally[string]()
	tally.AddTodo("a")
	tally.MarkDone("a")
	testkit.WantEqual(t, "all is done while more keys may come", tally.IsAllDone(), false)
	tally.MarkComplete()
	testkit.WantEqual(t, "all is done once all keys are known", tally.IsAllDone(), true)
	tally.AddTodo("b")
	testkit.WantEqual(t, "all is done after another key was added", tally.IsAllDone(), false)
}
