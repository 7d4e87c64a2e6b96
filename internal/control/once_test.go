package control

import (
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/object"
	"podcount/internal/view/observe"
	"podcount/lab/testkit"
)

func key(name string) object.Key { return object.Key{Name: name} }

func TestSummary(t *testing.T) {
	for _, row := range []struct {
		name   string
		run    func(t *tally)
		failed int
		want   string
	}{
		{
			name: "nothing to do",
			run:  func(t *tally) { t.objects = 2 },
			want: "2 nodes: 0 written, 2 right, 0 failed",
		},
		{
			name: "all written",
			run: func(t *tally) {
				t.objects = 1
				t.mark(todo, key("a"))
				t.mark(written, key("a"))
			},
			want: "1 node: 1 written, 0 right, 0 failed",
		},
		{
			name: "one failed",
			run: func(t *tally) {
				t.objects = 3
				t.mark(todo, key("a"), key("b"))
				t.mark(written, key("a"))
			},
			failed: 1,
			want:   "3 nodes: 1 written, 1 right, 1 failed",
		},
		{
			name: "one not done",
			run: func(t *tally) {
				t.objects = 3
				t.mark(todo, key("a"), key("b"))
				t.mark(done, key("a"))
			},
			want: "3 nodes: 0 written, 2 right, 0 failed, 1 not done",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			tally := newTally()
			row.run(tally)
			testkit.WantEqual(t, "summary", tally.describe("node", row.failed), row.want)
		})
	}
}

func TestRunIsDoneOnceNoKeyHasWorkLeft(t *testing.T) {
	tally := newTally()
	tally.mark(todo, key("a"))
	testkit.WantEqual(t, "all is done before the key is", tally.isAllDone(), false)
	tally.mark(done, key("a"))
	testkit.WantEqual(t, "all is done once the key is", tally.isAllDone(), true)
	tally.mark(todo, key("b"))
	testkit.WantEqual(t, "all is done after another key was added", tally.isAllDone(), false)
}

// tallying is a queue that asks what the tally knows when it gets a key.
type tallying struct {
	Queue
	isAllDone func() bool
	seen      []bool
}

func (q *tallying) Add(...object.Key) { q.seen = append(q.seen, q.isAllDone()) }

// A worker may be done with a key as soon as the queue has it.
func TestKeyOfOnceIsCountedBeforeItIsQueued(t *testing.T) {
	queue := &tallying{}
	c := &Controller{queue: queue, tally: newTally()}
	queue.isAllDone = c.tally.isAllDone
	c.Add(key("a"))
	testkit.WantEqual(t, "all is done when the queue gets a key", queue.seen, []bool{false})
}

// listed is a queue with these keys.
type listed struct {
	Queue
	keys []observe.KeyState
}

func (q listed) All() iter.Seq[observe.KeyState] { return slices.Values(q.keys) }

func TestOnceWaitsForKeysWithWorkAndTriesLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, row := range []struct {
			name         string
			key          observe.KeyState
			hasTriesLeft bool
			left         string
		}{
			{"ready", observe.KeyState{IsReady: true, IsDirty: true}, true, "1 object (a)"},
			{"with a worker", observe.KeyState{IsWorking: true}, true, "1 object (a)"},
			{"failed", observe.KeyState{IsDirty: true, Failures: onceTries - 1}, true, "1 object (a)"},
			{"failed often", observe.KeyState{IsDirty: true, Failures: onceTries}, false, "1 object (a)"},
			{"added soon", observe.KeyState{AddAt: now.Add(time.Second - 1)}, true, "1 object (a)"},
			{"added later", observe.KeyState{AddAt: now.Add(time.Second)}, false, ""},
		} {
			row.key.Key = key("a")
			c := &Controller{Name: "c", queue: listed{keys: []observe.KeyState{row.key}}}
			testkit.WantEqual(t, row.name+": has tries left", c.hasTriesLeft(), row.hasTriesLeft)
			want := row.left
			if want != "" {
				want = "c could not correct " + want
			}
			testkit.WantEqual(t, row.name+": what is left", c.describeLeft(), want)
		}
	})
}
