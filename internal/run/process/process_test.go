package process

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"podcount/lab/testkit"
)

// The error of a lost lease may wrap that of a request that was cut off.
func TestErrorThatStopsIsToldEvenIfItWrapsAnEnd(t *testing.T) {
	lost := fmt.Errorf("the lease is lost: %w", context.Canceled)
	l := NewLifetime(t.Context(), 0)
	defer l.End()
	l.StopWith(lost)
	l.StopWith(nil)
	testkit.WantEqual(t, "the error", l.Err(), lost)
}

func TestSecondSignalExitsUnlessItIsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		var stops, exits int
		go handleSignals(signals, func() { stops++ }, func(string) { exits++ })
		wantCalls := func(when string, wantStops, wantExits int) {
			t.Helper()
			synctest.Wait()
			if stops != wantStops || exits != wantExits {
				t.Errorf("%s: %d stops and %d exits, want %d and %d", when, stops, exits, wantStops, wantExits)
			}
		}
		wantCalls("before any signal", 0, 0)
		signals <- syscall.SIGTERM
		wantCalls("after the first", 1, 0)
		signals <- syscall.SIGTERM
		testkit.Pass(signalCopyWindow - 1)
		signals <- syscall.SIGTERM
		wantCalls("after its copies", 1, 0)
		testkit.Pass(1)
		signals <- os.Interrupt
		wantCalls("after the second", 1, 1)
	})
}

func TestShutdownThatHangsExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		exits := make(chan string, 2)
		go handleSignals(signals, func() {}, func(why string) { exits <- why })
		signals <- syscall.SIGTERM
		testkit.Pass(shutdownLimit - 1)
		testkit.WantNumber(t, "exits before its end", len(exits), 0)
		testkit.Pass(1)
		testkit.WantNumber(t, "exits at its end", len(exits), 1)
		testkit.WantText(t, <-exits, "the shutdown hangs: it has not ended in 26s")
		close(signals)
	})
}
