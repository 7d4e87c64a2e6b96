package retry

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	for _, c := range []struct {
		n       int
		seconds time.Duration
	}{
		{1, 1}, {2, 2}, {3, 4}, {5, 16}, {6, 30}, {63, 30}, {64, 30}, {1000, 30},
	} {
		t.Run(fmt.Sprint(c.n, " failures"), func(t *testing.T) {
			base := c.seconds * time.Second
			waits := map[time.Duration]bool{}
			for range 100 {
				wait := Backoff(c.n, time.Second, 30*time.Second)
				if wait < base || wait > 2*base {
					t.Errorf("the wait is %v, want one from %v to %v", wait, base, 2*base)
				}
				waits[wait] = true
			}
			if len(waits) < 50 {
				t.Errorf("100 calls returned only %d different waits: there is no jitter", len(waits))
			}
		})
	}
}

func TestBackoffTakesAnyArguments(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name    string
		n       int
		base    time.Duration
		limit   time.Duration
		atLeast time.Duration
	}{
		{"usual", 40, 10 * time.Second, time.Minute, time.Minute},
		{"long limit", 1000, time.Hour, 200 * day, 200 * day},
		{"longest limit", 1000, 3, 1 << 61, 1 << 61},
		{"no failure", 0, time.Second, time.Minute, time.Second},
		{"negative failures", -1, time.Second, time.Minute, time.Second},
		{"limit below base", 1, time.Minute, time.Second, time.Second},
		{"no base", 5, 0, time.Minute, 0},
		{"no limit", 5, time.Second, 0, 0},
		{"negative base", 5, -time.Second, time.Minute, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			wait := Backoff(c.n, c.base, c.limit)
			if wait < c.atLeast || wait > 2*c.atLeast {
				t.Errorf("the wait is %v, want one from %v to %v", wait, c.atLeast, 2*c.atLeast)
			}
		})
	}
}

func TestStreakBeginsAnewOnlyOnceAllHasWorkedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quiet = time.Minute
		var s Streak
		want := func(backoff time.Duration) {
			t.Helper()
			testkit.WantBetween(t, "the wait", s.Fail(0, time.Second, time.Hour), backoff, 2*backoff)
		}
		want(1 * time.Second)
		testkit.Pass(time.Hour) // a long wait, or a long try
		want(2 * time.Second)
		s.Works(quiet)
		testkit.Pass(quiet)
		want(4 * time.Second)
		s.Works(quiet)
		testkit.Pass(quiet)
		s.Works(quiet) // It still works.
		testkit.Pass(time.Second)
		want(1 * time.Second)
	})
}

// A server that states a wait is believed, but not for ever: it may be overloaded. The failures for which it states
// none lengthen no wait that it states.
func TestStatedWaitsReplaceTheBackoffThreeTimes(t *testing.T) {
	const base = 800 * time.Millisecond
	var s Streak
	for i, row := range []struct{ stated, shortest, longest time.Duration }{
		{time.Second, time.Second, time.Second},
		{0, base, 2 * base},
		{0, 2 * base, 4 * base},
		{0, 4 * base, 8 * base},
		{time.Second, time.Second, time.Second},
		{time.Minute, time.Minute, time.Minute},
		{time.Second, 8 * base, 16 * base},
		{time.Minute, time.Minute, time.Minute}, // longer than the backoff
		{0, 32 * base, 64 * base},
	} {
		wait := s.Fail(row.stated, base, 30*time.Second)
		testkit.WantBetween(t, fmt.Sprintf("wait %d", i+1), wait, row.shortest, row.longest)
	}
}

func TestSleepEndsWithItsTimeOrItsContext(t *testing.T) {
	for _, c := range []struct {
		name     string
		sleeps   time.Duration
		ctxLasts time.Duration
		takes    time.Duration
		want     error
	}{
		{"time is over", time.Second, time.Minute, time.Second, nil},
		{"context ends", time.Minute, time.Second, time.Second, context.DeadlineExceeded},
		{"no time", 0, time.Second, 0, nil},
		{"negative time", -time.Second, time.Second, 0, nil},
		{"no time, ended context", 0, 0, 0, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ctxLasts)
				defer cancel()
				start := time.Now()
				err := Sleep(ctx, c.sleeps)
				testkit.WantEqual(t, "error", err, c.want)
				testkit.WantEqual(t, "time that it took", time.Since(start), c.takes)
			})
		})
	}
}
