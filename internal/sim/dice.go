package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// step is something that can happen in a simulated cluster, good or bad.
type step struct {
	name string

	// weight is how often the step is drawn, in proportion to the others.
	weight int

	// do makes the step happen. It returns a description for the story, or "" if nothing has happened.
	do func(*sim) string
}

// takeStep draws one of these steps, does it, and adds it to the story and the script.
func (s *sim) takeStep(steps []step) {
	description := s.drawStep(steps).do(s)
	if description == "" {
		return
	}
	s.record("%s", description)
	s.script = append(s.script, fmt.Sprint(time.Since(s.began), " ", description))
}

// drawStep draws one of these steps by their weights.
func (s *sim) drawStep(steps []step) step {
	sum := 0
	for _, step := range steps {
		sum += step.weight
	}
	n := s.dice.IntN(sum)
	i := 0
	for n >= steps[i].weight {
		n -= steps[i].weight
		i++
	}
	return steps[i]
}

// span is a range of durations.
type span struct{ shortest, longest time.Duration }

// drawDuration draws a duration from a span. Each order of magnitude is equally likely.
func (s *sim) drawDuration(from span) time.Duration {
	ratio := float64(from.longest) / float64(from.shortest)
	d := float64(from.shortest) * math.Pow(ratio, s.dice.Float64())
	return time.Duration(d).Truncate(time.Millisecond)
}

// flipCoin returns true half of the time.
func (s *sim) flipCoin() bool { return s.dice.IntN(2) == 0 }

// pick draws one of these values.
func pick[T any](dice *rand.Rand, values ...T) T { return values[dice.IntN(len(values))] }
