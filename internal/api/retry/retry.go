// Package retry says when to do what must not be done at once. That may be because it has failed (Backoff, Streak,
// Shared), because it was refused for a while (Pauses), or because it would be too often (Bucket). To try again is
// up to the caller.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Between returns a random duration from shortest to longest, or shortest if longest is no longer. This is jitter:
// those that began or failed together do not ask the server together again.
func Between(shortest, longest time.Duration) time.Duration {
	if longest <= shortest {
		return shortest
	}
	return shortest + rand.N(longest-shortest)
}

// Backoff returns how long to wait after n failures in a row. The wait is base after the first failure, and doubles
// with each further one, up to limit. Jitter makes it up to twice as long.
//
// If n is less than 1, it counts as 1. If limit is less than base, it replaces base. If either is 0 or less, there is
// no wait.
func Backoff(n int, base, limit time.Duration) time.Duration {
	wait := max(0, min(base, limit))
	for failure := 1; failure < n && wait < limit; failure++ {
		wait += min(wait, limit-wait) // This doubles wait, but cannot overflow.
	}
	return Between(wait, 2*wait)
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

// maxBelieved is how often in a Streak a stated wait replaces the backoff. client-go believes it ten times for each
// request. But with ten, a thousand podcounts that shared an overloaded server sent twice as many lists as with none,
// and the last of them recovered later (TestCrowdRecovers). With three, it recovered about as soon.
const maxBelieved = 3

// Streak is a row of failures, and says how long to wait after each. The zero Streak has none. It is not safe for
// concurrent use.
//
// A server that states a wait knows best when to come again, so at first that wait is believed. But an overloaded
// server may state one second to everybody, and again each time. So after maxBelieved stated waits, a backoff begins.
type Streak struct {
	believed int       // failures after which the stated wait was believed
	others   int       // all other failures, which lengthen the backoff
	endsAt   time.Time // when the streak ends if all works until then; zero while the last failure lasts
}

// Fail adds a failure, and returns how long to wait before the next try. stated is the wait that the server has stated
// for this failure, with jitter, or 0. See Backoff for base and limit.
func (s *Streak) Fail(stated, base, limit time.Duration) (wait time.Duration) {
	hasEnded := !s.endsAt.IsZero() && time.Now().After(s.endsAt)
	if hasEnded {
		*s = Streak{}
	}
	s.endsAt = time.Time{}
	if stated > 0 && s.believed < maxBelieved {
		s.believed++
		return stated
	}
	s.others++
	return max(stated, Backoff(s.others, base, limit))
}

// Works tells that what had failed works. If it does for longer than quiet, the streak ends. Only time in which it
// works counts, so the wait after a failure does not, and neither does the next try.
func (s *Streak) Works(quiet time.Duration) {
	if s.endsAt.IsZero() {
		s.endsAt = time.Now().Add(quiet)
	}
}
