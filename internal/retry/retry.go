// Package retry computes how long to wait between two tries of something, and waits. It does not try anything itself.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff returns how long to wait after n failures in a row. The wait begins at base, and doubles with each failure up
// to limit. A random time of up to as much again is added, so that clients that failed together do not retry together.
//
// If n is below 1, it counts as 1. If limit is below base, the wait is limit and the random time. If either is 0 or
// less, there is no wait.
func Backoff(n int, base, limit time.Duration) time.Duration {
	wait := min(base, limit)
	if wait <= 0 {
		return 0
	}
	for failure := 1; failure < n && wait < limit; failure++ {
		wait += min(wait, limit-wait) // This doubles wait, but cannot overflow.
	}
	return wait + rand.N(wait)
}

// Sleep waits for d, but no longer than until ctx ends. It returns ctx's error if ctx has ended, even if d is 0 or
// less.
func Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
