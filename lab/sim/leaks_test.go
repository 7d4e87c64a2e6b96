package sim

import (
	"testing"
	"testing/synctest"

	"podcount/lab/testkit"
)

func TestLeakedGoroutinesOfTheBubbleAreFound(t *testing.T) {
	const starter = "goroutines in podcount/lab/sim.startWaiting.func1"
	outside := startWaiting(7)
	defer close(outside)
	synctest.Test(t, func(t *testing.T) {
		before := goroutines()
		end := startWaiting(3)
		testkit.WantNumber(t, "goroutines that wait", goroutines()[starter], 3)
		s := &sim{}
		s.compareHoldingsLocked("before", before, goroutines(), noConnectionSlack)
		close(end)
		synctest.Wait()
		s.compareHoldingsLocked("before", before, goroutines(), noConnectionSlack)
		testkit.WantEqual(t, "what is broken", s.broken,
			[]string{"leaks: more or less is held than before: " + starter + ": 3, not 0"})
	})
}

// startWaiting starts n goroutines that wait until the channel is closed.
func startWaiting(n int) (end chan struct{}) {
	end = make(chan struct{})
	for range n {
		go func() { <-end }()
	}
	return end
}
