// Package ratelimit has a token bucket: it lets a burst of calls pass at once, and then a steady rate of them.
package ratelimit

import (
	"context"
	"math"
	"sync"
	"time"

	"podcount/internal/retry"
)

// Bucket is a token bucket: burst at once, then rate a second. Safe for concurrent use.
type Bucket struct {
	rate, burst float64
	mu          sync.Mutex // guards both below
	tokens      float64    // negative: promised to those who wait
	filled      time.Time  // when tokens was right
}

// NewBucket makes a full bucket.
func NewBucket(rate float64, burst int) *Bucket {
	return &Bucket{rate: rate, burst: float64(burst), tokens: float64(burst), filled: time.Now()}
}

// Unlimited makes a bucket that never makes anyone wait.
func Unlimited() *Bucket { return NewBucket(1e9, math.MaxInt32) }

func (b *Bucket) Allow() bool { return b.take(false) == 0 }

// Wait takes a token, waiting for it, or returns ctx's error.
func (b *Bucket) Wait(ctx context.Context) error { return retry.Sleep(ctx, b.take(true)) }

// take takes a token if it is there or patient, and returns how long to wait for it; -1: not taken.
func (b *Bucket) take(patient bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens, b.filled = min(b.burst, b.tokens+now.Sub(b.filled).Seconds()*b.rate), now
	wait := (1 - b.tokens) / b.rate
	if wait > 0 && !patient {
		return -1
	}
	b.tokens--
	return max(0, time.Duration(min(wait, 1e9)*float64(time.Second)))
}
