// Package retry says how long to wait between two tries of the same thing, and waits. It tries nothing itself, and
// remembers nothing.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the wait after failure n in a row. After the first one, n = 1, it is base; after each further one, it is
// twice as long as the one before, up to limit. To that comes a random time of up to as much again, so that callers
// that have failed together do not come back together. So the wait is less than twice the limit.
//
// n below 1 counts as 1. A limit below base counts instead of it; where either is 0 or less, there is no wait.
func Backoff(n int, base, limit time.Duration) time.Duration {
	wait := min(base, limit)
	if wait <= 0 {
		return 0
	}
	for ; n > 1 && wait < limit; n-- {
		wait += min(wait, limit-wait) // twice as much, without an overflow
	}
	return wait + rand.N(wait)
}

// Sleep waits for d, or until ctx ends, whose error it returns then. It does so also where d is 0 or less.
func Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
