package process

import (
	"testing"
	"testing/synctest"

	"podcount/lab/testkit"
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
		testkit.WantEqual(t, "running", g.Running(), "a watch, worker")
		close(release)
		g.Wait()
		testkit.WantEqual(t, "running at the end", g.Running(), "")
	})
}

func TestGoClosesTheChannelAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		ended := Go(func() { <-release })
		synctest.Wait()
		testkit.WantEqual(t, "the channel is closed while the function runs", IsClosed(ended), false)
		close(release)
		synctest.Wait()
		testkit.WantEqual(t, "the channel is closed at the end", IsClosed(ended), true)
	})
}
