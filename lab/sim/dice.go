package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// A seed can be run again without some of its steps (shrink.go). So each step draws from dice of its own, and what one
// step draws does not depend on the others. What lies between the steps is drawn from the seed's own dice.

// withDice calls do with other dice.
func (s *sim) withDice(dice *rand.Rand, do func()) {
	before := s.dice
	s.dice = dice
	do()
	s.dice = before
}

// seedDice returns the dice of a seed, for all that belongs to no step.
func seedDice(seed uint64) *rand.Rand { return stepDice(seed, 0) }

// stepDice returns the dice of one step. The steps are numbered from 1 on.
func stepDice(seed uint64, number int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(number))) }

// span is a range of durations.
type span struct{ shortest, longest time.Duration }

// drawDuration draws a duration from a span. Each order of magnitude is equally likely.
func (s *sim) drawDuration(from span) time.Duration {
	ratio := float64(from.longest) / float64(from.shortest)
	d := float64(from.shortest) * math.Pow(ratio, s.dice.Float64())
	return time.Duration(d).Truncate(time.Millisecond)
}

// drawAndNoteLength draws how long a fault lasts, and notes it for the history.
func (s *sim) drawAndNoteLength(from span) time.Duration {
	s.faultLasts = s.drawDuration(from)
	return s.faultLasts
}

// flipCoin returns true half of the time.
func (s *sim) flipCoin() bool { return s.dice.IntN(2) == 0 }

// pick draws one of these values.
func pick[T any](dice *rand.Rand, values ...T) T { return values[dice.IntN(len(values))] }
