package ratelimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBucketGivesABurstThenARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(10, 3)
		start := time.Now()
		for range 8 {
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start).Round(time.Millisecond); d != 500*time.Millisecond {
			t.Errorf("3 + 5 tokens took %v", d)
		}
		if b.Allow() {
			t.Error("a token too many")
		}
		<-time.After(time.Hour)
		n := 0
		for b.Allow() {
			n++
		}
		if n != 3 {
			t.Errorf("%d tokens after an hour, want 3", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if b.Wait(ctx) == nil {
			t.Error("did not end with its context")
		}
	})
}
