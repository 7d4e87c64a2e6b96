package backlog

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// newTestBacklog makes a backlog whose handler fails for the changes in bad, and returns what was handled and when.
func newTestBacklog(t *testing.T, bad map[string]bool) (b *Backlog[string, string], handled *[]string) {
	handled = new([]string)
	b = New(Options[string, string]{
		Handle: func(change string) error {
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
	if !slices.Equal(*handled, want) {
		t.Errorf("handled %q, want %q", *handled, want)
	}
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestChangesAreTriedUntilTheyWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := map[string]bool{"a1": true}
		b, handled := newTestBacklog(t, bad)
		b.Add("a", "a1")
		b.Add("a", "a2")
		b.Add("b", "b1")
		pass(2 * time.Second)
		slices.Sort(*handled)
		wantHandled(t, handled, "a2", "b1")
		if b.Len() != 1 {
			t.Errorf("%d objects are left, want 1", b.Len())
		}
		delete(bad, "a1")
		pass(2 * maxPause)
		wantHandled(t, handled, "a2", "b1", "a1")
		if b.Len() != 0 {
			t.Errorf("%d objects are left, want 0", b.Len())
		}
	})
}

func TestOfManyChangesTheFirstAndTheNewestAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, handled := newTestBacklog(t, nil)
		for _, change := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"} {
			b.Add("a", change)
		}
		pass(2 * time.Second)
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
		for i := range objectLimit + 2 {
			b.Add(i, 0)
		}
		if !slices.Equal(reports, []int{objectLimit}) {
			t.Errorf("reported %v, want only %d", reports, objectLimit)
		}
		b.Add(0, 0) // an object that is kept already may have more changes
		if b.Len() != objectLimit {
			t.Errorf("%d objects, want %d", b.Len(), objectLimit)
		}
	})
}

func TestNothingIsTriedAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, end := context.WithCancel(t.Context())
		b := New(Options[string, string]{
			Handle: func(change string) error { t.Errorf("%s was handled", change); return nil },
			Stop:   stop,
			OnFull: func(string) {},
		})
		b.Add("a", "a1")
		end()
		pass(2 * maxPause)
	})
}
