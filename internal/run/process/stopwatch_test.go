package process

import (
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestStopwatchRunsFromStartToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stopwatch
		testkit.WantEqual(t, "before the start", s.Elapsed(), 0)
		for range 2 {
			s.Start()
			testkit.Pass(time.Minute)
			testkit.WantEqual(t, "after a minute", s.Elapsed(), time.Minute)
			s.Stop()
			testkit.Pass(time.Minute)
			testkit.WantEqual(t, "after the stop", s.Elapsed(), 0)
		}
	})
}
