package background

import (
	"testing"
	"testing/synctest"
)

func TestGroupNamesItsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		release := make(chan struct{})
		hang := func() { <-release }
		g.Go("worker", hang)
		g.Go("worker", hang)
		g.Go("a watch", hang)
		g.Go("quick", func() {})
		synctest.Wait()
		if got, want := g.Running(), "a watch, worker"; got != want {
			t.Errorf("running: %q, want %q", got, want)
		}
		close(release)
		g.Wait()
		if got := g.Running(); got != "" {
			t.Errorf("running at the end: %q", got)
		}
	})
}

func TestGoClosesTheChannelAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		done := Go(func() { <-release })
		synctest.Wait()
		if IsClosed(done) {
			t.Error("it has ended before its function has")
		}
		close(release)
		synctest.Wait()
		if !IsClosed(done) {
			t.Error("it has not ended after its function has")
		}
	})
}
