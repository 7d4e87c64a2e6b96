package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

// countAllowed takes all tokens that are there now.
func countAllowed(b *Bucket) (tokens int) {
	for b.Allow() {
		tokens++
	}
	return tokens
}

// waitFor waits for n tokens, and returns how long that took, to the millisecond.
func waitFor(t *testing.T, b *Bucket, n int) time.Duration {
	t.Helper()
	start := time.Now()
	for range n {
		if err := b.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(start).Round(time.Millisecond)
}

func TestBucketGivesABurstAndThenARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(10, 3)
		testkit.WantEqual(t, "time to wait for 3 + 5 tokens", waitFor(t, b, 8), 500*time.Millisecond)
		testkit.WantNumber(t, "tokens that are left", countAllowed(b), 0)
		testkit.Pass(time.Hour)
		testkit.WantNumber(t, "tokens after an hour", countAllowed(b), 3)
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(10, 3)
		testkit.WantNumber(t, "tokens at first", countAllowed(b), 3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := b.Wait(ctx); err != context.Canceled {
			t.Errorf("Wait returned %v, want %v", err, context.Canceled)
		}
		testkit.WantEqual(t, "time that Wait took", time.Since(start), 0)
	})
}

func TestWaitWithATinyRateDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(1e-300, 1)
		b.Allow()
		testkit.WantEqual(t, "wait for the next token", b.reserve(), maxWait)
	})
}
