package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestBytesPassAtTheSpeedOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		start := time.Now()
		p.pass(1000, nil)
		testkit.WantEqual(t, "the time without a limit", time.Since(start), time.Duration(0))
		p.setSpeed(100)
		done := make(chan time.Duration)
		for range 2 {
			go func() {
				p.pass(500, nil)
				done <- time.Since(start)
			}()
		}
		testkit.WantEqual(t, "the time of the first 500 bytes", <-done, 5*time.Second)
		testkit.WantEqual(t, "the time of the second 500 bytes", <-done, 10*time.Second)
	})
}

func TestBytesPassAtOnceWhenTheLimitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		start := time.Now()
		p.setSpeed(1)
		go func() {
			<-time.After(3 * time.Second)
			p.setSpeed(0)
		}()
		p.pass(1000, nil)
		testkit.WantEqual(t, "the time", time.Since(start), 3*time.Second)
	})
}

func TestClosedConnectionDoesNotWaitForItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		p.setSpeed(1)
		gone := make(chan struct{})
		close(gone)
		start := time.Now()
		p.pass(1000, gone)
		testkit.WantEqual(t, "the time", time.Since(start), time.Duration(0))
	})
}
