package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"podcount/lab/testkit"
)

func TestDurationsAreDrawnFromTheirSpan(t *testing.T) {
	s := &sim{dice: rand.New(rand.NewPCG(1, 0))}
	from := span{time.Second, 100 * time.Second}
	short := 0
	for range 1000 {
		d := s.drawDuration(from)
		testkit.WantBetween(t, "the duration", d, from.shortest, from.longest)
		if d < 10*time.Second {
			short++
		}
	}
	testkit.WantBetween(t, "durations of 1000 that are shorter than 10 s", short, 400, 600)
}
