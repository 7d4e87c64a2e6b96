package retry

import (
	"context"
	"sync"
	"time"
)

// Bucket is a token bucket, which limits how often something happens: a burst at once, and after that a steady rate. It
// starts full, and each call of Allow or Wait takes one token. Safe for concurrent use.
type Bucket struct {
	rate  float64 // how many tokens are added each second
	burst float64 // how many tokens fit in the bucket

	mu       sync.Mutex // guards the fields below
	tokens   float64    // how many tokens it holds; negative while callers of Wait wait for future tokens
	filledAt time.Time  // when tokens were last added
}

// NewBucket returns a bucket that holds up to burst tokens, and gets rate new ones each second.
func NewBucket(rate float64, burst int) *Bucket {
	return &Bucket{rate: rate, burst: float64(burst), tokens: float64(burst), filledAt: time.Now()}
}

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

// Wait takes a token, and waits if none is left. If ctx ends first, Wait returns its error, and the token is lost.
func (b *Bucket) Wait(ctx context.Context) error { return Sleep(ctx, b.reserve()) }

// maxWait is longer than any process runs. It keeps a wait from overflowing time.Duration.
const maxWait = 30 * 365 * 24 * time.Hour

// reserve takes the next token, and returns how long to wait until the bucket gets it. That is 0 if a token is left.
func (b *Bucket) reserve() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fillLocked()
	missing := max(0, 1-b.tokens)
	b.tokens--
	seconds := min(missing/b.rate, maxWait.Seconds())
	return time.Duration(seconds * float64(time.Second))
}

// fillLocked adds the tokens for the time since the last call.
func (b *Bucket) fillLocked() {
	now := time.Now()
	due := now.Sub(b.filledAt).Seconds() * b.rate
	b.tokens = min(b.burst, b.tokens+due)
	b.filledAt = now
}
