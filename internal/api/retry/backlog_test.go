package retry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

// handler handles changes, except those that are bad. Several goroutines may call it at once.
type handler struct {
	mu      sync.Mutex // guards the fields below
	bad     string     // the change that cannot be handled
	handled []string   // the others, in order, and a line for each call of OnFull
}

func (h *handler) handle(change string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if change == h.bad {
		return errors.New("no")
	}
	h.handled = append(h.handled, change)
	return nil
}

func (h *handler) setBad(change string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bad = change
}

func (h *handler) backlog(t *testing.T) *Backlog[string, string] {
	return NewBacklog(t.Context(), BacklogOptions[string, string]{
		Handle: h.handle,
		OnFull: func(key string) { h.handle("full at " + key) },
	})
}

func (h *handler) wantHandled(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	testkit.WantEqual(t, "changes handled", slices.Clone(h.handled), want)
}

func TestChangesAreRetriedUntilTheyWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{bad: "a1"}
		b := h.backlog(t)
		b.Add("a", "a1")
		b.Add("a", "a2")
		testkit.Pass(2 * time.Second)
		b.Add("b", "b1")
		testkit.Pass(2 * time.Second)
		h.wantHandled(t, "a2", "b1")
		testkit.WantNumber(t, "objects left", b.Len(), 1)
		h.setBad("")
		testkit.Pass(2 * maxBacklogPause)
		h.wantHandled(t, "a2", "b1", "a1")
		testkit.WantNumber(t, "objects left", b.Len(), 0)
	})
}

func TestBackoffBeginsAgainAfterSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *Backlog[string, string]
		start := time.Now()
		handledAt := map[string]time.Duration{}
		handle := func(change string) error {
			age := time.Since(start)
			if age < 5*maxBacklogPause {
				return errors.New("no")
			}
			handledAt[change] = age
			if change == "a1" {
				b.Add("a", "a2") // This change is added while the older ones are handled.
			}
			return nil
		}
		b = NewBacklog(t.Context(), BacklogOptions[string, string]{Handle: handle, OnFull: func(string) {}})
		b.Add("a", "a1")
		testkit.Pass(10 * maxBacklogPause)
		pause := handledAt["a2"] - handledAt["a1"]
		testkit.WantBetween(t, "time from a1 to a2", pause, minBacklogPause, 2*minBacklogPause)
	})
}

func TestFirstAndNewestChangesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{}
		b := h.backlog(t)
		for _, change := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"} {
			b.Add("a", change)
		}
		testkit.Pass(2 * time.Second)
		h.wantHandled(t, "1", "4", "5", "6", "7", "8", "9", "10")
	})
}

func TestChangeThatFailsAgainStaysTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *Backlog[string, string]
		var handled []string
		hasFailed := false
		handle := func(change string) error {
			if change == "1" && !hasFailed {
				hasFailed = true
				for _, newer := range []string{"2", "3", "4", "5", "6", "7", "8", "9"} {
					b.Add("a", newer)
				}
				return errors.New("no")
			}
			handled = append(handled, change)
			return nil
		}
		b = NewBacklog(t.Context(), BacklogOptions[string, string]{Handle: handle, OnFull: func(string) {}})
		b.Add("a", "1")
		testkit.Pass(time.Minute)
		testkit.WantEqual(t, "changes handled", handled, []string{"1", "3", "4", "5", "6", "7", "8", "9"})
	})
}

func TestTooManyObjectsAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []int
		b := NewBacklog(t.Context(), BacklogOptions[int, int]{
			Handle: func(int) error { return errors.New("no") },
			OnFull: func(key int) { reports = append(reports, key) },
		})
		for i := range maxBacklogObjects + 2 {
			b.Add(i, 0)
		}
		b.Add(0, 0) // This object is in the backlog, so it may have more changes.
		testkit.WantEqual(t, "keys reported", reports, []int{maxBacklogObjects})
		testkit.WantNumber(t, "objects", b.Len(), maxBacklogObjects)
	})
}

func TestNothingIsRetriedAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, end := context.WithCancel(t.Context())
		b := NewBacklog(stop, BacklogOptions[string, string]{
			Handle: func(change string) error {
				t.Errorf("%s was handled", change)
				return nil
			},
			OnFull: func(string) {},
		})
		b.Add("a", "a1")
		end()
		testkit.Pass(2 * maxBacklogPause)
	})
}
