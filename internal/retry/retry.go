// Package retry says how long to wait between two tries of the same thing, and waits. It tries nothing itself, and
// remembers nothing.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the wait after failure n in a row, n >= 1: base, doubled up to limit, and up to as much again, to come
// back apart.
func Backoff(n int, base, limit time.Duration) time.Duration {
	d := min(limit, base<<min(n-1, 30)) // which does not overflow for a base up to 8 s
	return d + rand.N(d)
}

// Sleep waits for d, or until ctx ends, whose error it returns then.
func Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
