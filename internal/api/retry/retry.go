// Package retry says when to do what must not be done at once. That may be because it has failed (Backoff, Streak,
// Shared, Backlog), because it was refused for a while (Pauses, GroupPauses), or because it would be too often
// (Bucket).
//
// A Backlog tries again by itself. With everything else, that is up to the caller.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff returns how long to wait after n failures in a row. The wait is base after the first failure, and doubles
// with each further one, up to limit. Jitter makes it up to twice as long, so that clients that failed together do not
// retry together.
//
// If n is less than 1, it counts as 1. If limit is less than base, it replaces base. If either is 0 or less, there is
// no wait.
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

// Sleep waits for d, or until ctx ends. It returns the error of ctx, which is nil unless ctx has ended.
// If d is 0 or less, Sleep does not wait, but still returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Streak counts failures that follow one another. The zero Streak has none. Only one goroutine may use it.
type Streak struct {
	count      int
	worksSince time.Time // zero while the last failure lasts
}

// Add adds a failure, and returns how many there are now. If all has worked for longer than quiet, the streak begins
// anew.
func (s *Streak) Add(quiet time.Duration) (count int) {
	if !s.worksSince.IsZero() && time.Since(s.worksSince) > quiet {
		s.count = 0
	}
	s.count++
	s.worksSince = time.Time{}
	return s.count
}

// Works tells that what had failed works. The wait after a failure is no time in which it works, nor is the next try.
func (s *Streak) Works() {
	if s.worksSince.IsZero() {
		s.worksSince = time.Now()
	}
}
