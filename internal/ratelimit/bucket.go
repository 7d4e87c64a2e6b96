// Package ratelimit limits how often something happens: a burst at once, and after that a steady rate.
package ratelimit

import (
	"context"
	"math"
	"sync"
	"time"

	"podcount/internal/retry"
)

// Bucket is a token bucket. It begins full, and each call of Allow or Wait takes one token. Safe for concurrent use.
type Bucket struct {
	rate  float64 // how many tokens are added each second
	burst float64 // how many tokens fit

	mu       sync.Mutex // guards the fields below
	tokens   float64    // negative while callers of Wait wait for tokens that they have taken in advance
	filledAt time.Time  // until when tokens have been added
}

// NewBucket returns a bucket that holds burst tokens, and gets rate new ones each second.
func NewBucket(rate float64, burst int) *Bucket {
	return &Bucket{rate: rate, burst: float64(burst), tokens: float64(burst), filledAt: time.Now()}
}

// Unlimited returns a bucket that in practice never runs out of tokens.
func Unlimited() *Bucket { return NewBucket(1e9, math.MaxInt32) }

// Allow takes a token if there is one now, and reports whether it did.
func (b *Bucket) Allow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fillLocked()
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// Wait takes a token and waits until it is there. It returns ctx's error if ctx ends first; the token is lost then.
func (b *Bucket) Wait(ctx context.Context) error { return retry.Sleep(ctx, b.reserve()) }

// maxWait is longer than any process runs, and short enough for a time.Duration.
const maxWait = 30 * 365 * 24 * time.Hour

// reserve takes a token, which may be one of the future, and returns how long it takes until that is there.
func (b *Bucket) reserve() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fillLocked()
	missing := max(0, 1-b.tokens)
	b.tokens--
	seconds := min(missing/b.rate, maxWait.Seconds())
	return time.Duration(seconds * float64(time.Second))
}

// fillLocked adds the tokens that are due since it was called last.
func (b *Bucket) fillLocked() {
	now := time.Now()
	due := now.Sub(b.filledAt).Seconds() * b.rate
	b.tokens = min(b.burst, b.tokens+due)
	b.filledAt = now
}
