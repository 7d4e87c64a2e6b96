package backlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/testkit"
)

// newTestBacklog makes a backlog whose handler fails for the changes in bad. handled gets the others, in order, and a
// line for each call of OnFull.
func newTestBacklog(t *testing.T, bad map[string]bool) (b *Backlog[string, string], handled *[]string) {
	handled = new([]string)
	var mu sync.Mutex // guards bad and handled while the changes of several objects are handled at once
	b = New(Options[string, string]{
		Handle: func(change string) error {
			mu.Lock()
			defer mu.Unlock()
			if bad[change] {
				return errors.New("no")
			}
			*handled = append(*handled, change)
			return nil
		},
		Stop:   t.Context(),
		OnFull: func(key string) { *handled = append(*handled, "full at "+key) },
	})
	return b, handled
}

func wantHandled(t *testing.T, handled *[]string, want ...string) {
	t.Helper()
	testkit.WantEqual(t, "changes handled", *handled, want)
}

func TestChangesAreRetriedUntilTheyWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := map[string]bool{"a1": true}
		b, handled := newTestBacklog(t, bad)
		b.Add("a", "a1")
		b.Add("a", "a2")
		b.Add("b", "b1")
		testkit.Pass(2 * time.Second)
		slices.Sort(*handled)
		wantHandled(t, handled, "a2", "b1")
		testkit.WantNumber(t, "objects left", b.Len(), 1)
		delete(bad, "a1")
		testkit.Pass(2 * maxBackoff)
		wantHandled(t, handled, "a2", "b1", "a1")
		testkit.WantNumber(t, "objects left", b.Len(), 0)
	})
}

func TestFirstAndNewestChangesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, handled := newTestBacklog(t, nil)
		for _, change := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"} {
			b.Add("a", change)
		}
		testkit.Pass(2 * time.Second)
		wantHandled(t, handled, "1", "4", "5", "6", "7", "8", "9", "10")
	})
}

func TestTooManyObjectsAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []int
		b := New(Options[int, int]{
			Handle: func(int) error { return errors.New("no") },
			Stop:   t.Context(),
			OnFull: func(key int) { reports = append(reports, key) },
		})
		for i := range maxObjects + 2 {
			b.Add(i, 0)
		}
		b.Add(0, 0) // This object is in the backlog, so it may have more changes.
		testkit.WantEqual(t, "keys reported", reports, []int{maxObjects})
		testkit.WantNumber(t, "objects", b.Len(), maxObjects)
	})
}

func TestNothingIsRetriedAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, end := context.WithCancel(t.Context())
		b := New(Options[string, string]{
			Handle: func(change string) error {
				t.Errorf("%s was handled", change)
				return nil
			},
			Stop:   stop,
			OnFull: func(string) {},
		})
		b.Add("a", "a1")
		end()
		testkit.Pass(2 * maxBackoff)
	})
}
