package tally

import "testing"

func TestSummary(t *testing.T) {
	rows := []struct {
		name   string
		run    func(t *Tally[string])
		failed int
		want   string
	}{
		{"nothing to do", func(t *Tally[string]) { t.Begin(2) }, 0, "2 nodes: 0 written, 2 right, 0 failed"},
		{"all written", func(t *Tally[string]) {
			t.Begin(1)
			t.Todo("a")
			t.Written("a")
		}, 0, "1 node: 1 written, 0 right, 0 failed"},
		{"one failed", func(t *Tally[string]) {
			t.Begin(3)
			t.Todo("a", "b")
			t.Written("a")
		}, 1, "3 nodes: 1 written, 1 right, 1 failed"},
		{"one not done", func(t *Tally[string]) {
			t.Begin(3)
			t.Todo("a", "b")
			t.Done("a")
		}, 0, "3 nodes: 0 written, 2 right, 0 failed, 1 not done"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			tally := New[string]()
			row.run(tally)
			if got := tally.Summary("node", row.failed); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

func TestRunIsDoneOnceAllKeysAreKnown(t *testing.T) {
	tally := New[string]()
	tally.Todo("a")
	tally.Done("a")
	if tally.IsAllDone() {
		t.Error("all is done, though more keys may come")
	}
	tally.Complete()
	if !tally.IsAllDone() {
		t.Error("all keys are done, but not all")
	}
	tally.Todo("b")
	if tally.IsAllDone() {
		t.Error("all is done, though b is not")
	}
}
