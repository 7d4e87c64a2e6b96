package retry

import (
	"testing"
	"time"
)

func TestBackoffDoublesUpToItsLimitWithJitter(t *testing.T) {
	for n, least := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 5: 16, 6: 30, 63: 30, 64: 30, 1000: 30} {
		least *= time.Second
		spread := map[time.Duration]bool{}
		for range 100 {
			d := Backoff(n, time.Second, 30*time.Second)
			if d < least || d > 2*least {
				t.Errorf("backoff %d is %v", n, d)
			}
			spread[d] = true
		}
		if len(spread) < 50 {
			t.Errorf("backoff %d has no jitter", n)
		}
	}
}
