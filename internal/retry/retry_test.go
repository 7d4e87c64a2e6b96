package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoffDoublesUpToItsLimitWithJitter(t *testing.T) {
	for n, least := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 5: 16, 6: 30, 63: 30, 64: 30, 1000: 30} {
		least *= time.Second
		spread := map[time.Duration]bool{}
		for range 100 {
			d := Backoff(n, time.Second, 30*time.Second)
			if d < least || d > 2*least {
				t.Errorf("backoff %d is %v", n, d)
			}
			spread[d] = true
		}
		if len(spread) < 50 {
			t.Errorf("backoff %d has no jitter", n)
		}
	}
}

func TestBackoffOfAnyArgumentsIsFromItsWaitToTwiceThat(t *testing.T) {
	for _, c := range []struct {
		n                  int
		base, limit, least time.Duration
	}{
		{40, 10 * time.Second, time.Minute, time.Minute},
		{1000, time.Hour, 200 * 24 * time.Hour, 200 * 24 * time.Hour},
		{1000, 3, 1 << 61, 1 << 61},
		{0, time.Second, time.Minute, time.Second},
		{-1, time.Second, time.Minute, time.Second},
		{1, time.Minute, time.Second, time.Second},
		{5, 0, time.Minute, 0},
		{5, time.Second, 0, 0},
		{5, -time.Second, time.Minute, 0},
	} {
		d := Backoff(c.n, c.base, c.limit)
		if d < c.least || d > 2*c.least {
			t.Errorf("backoff %d from %v to %v is %v, want at least %v", c.n, c.base, c.limit, d, c.least)
		}
	}
}

func TestSleepEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			sleeps, ctxLasts, takes time.Duration
			want                    error
		}{
			{time.Second, time.Minute, time.Second, nil},
			{time.Minute, time.Second, time.Second, context.DeadlineExceeded},
			{0, time.Second, 0, nil},
			{-time.Second, time.Second, 0, nil},
			{0, 0, 0, context.DeadlineExceeded},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.ctxLasts)
			start := time.Now()
			err := Sleep(ctx, c.sleeps)
			if took := time.Since(start); took != c.takes || err != c.want {
				t.Errorf("it sleeps %v of %v, with %v; want %v and %v", took, c.sleeps, err, c.takes, c.want)
			}
			cancel()
		}
	})
}
