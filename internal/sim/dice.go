package sim

import (
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

	// The rest is for faults, and for the statistics of coverage.go. concerns are the resources whose reflectors are
	// struck; leases stands for the election. possibleIn are the only states in which the fault can strike; nil means
	// all. isMetLater means that the fault strikes after do, at a request, which is noted then.
	concerns   []string
	reach      reach
	possibleIn []state
	isMetLater bool

	// request is the fault of requests that do injects, or nil.
	request *requestFault
}

// target is what a fault strikes. A nil process means every process, and the resource "" every reflector.
type target struct {
	p        *proc
	resource string
}

// The story of a seed can be told again without some of its steps (shrink.go). So each step draws from dice of its own,
// and what one step draws does not depend on the others. What lies between the steps is drawn from the seed's own dice.

// takeStep draws one of these steps, does it, and adds it to the story and the script.
func (s *sim) takeStep(steps []step) {
	s.nextStep(func() {
		drawn := s.drawStep(steps)
		if s.isLeftOut(s.stepNumber) {
			return
		}
		description := s.strike(drawn, s.drawTarget(drawn))
		s.noteStep(drawn, description)
	})
}

// nextStep calls do with the dice of the next step.
func (s *sim) nextStep(do func()) {
	s.stepNumber++
	s.withDice(stepDice(s.Seed, s.stepNumber), do)
}

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

// isLeftOut reports whether a step must not happen, because Options.Only does not have it.
func (s *sim) isLeftOut(number int) bool { return s.Only != nil && !s.Only[number] }

// strike makes a step happen, and notes the states in which it strikes.
func (s *sim) strike(what step, at target) (description string) {
	s.target = at
	if !what.isMetLater {
		s.noteStrike(what, at)
	}
	return what.do(s)
}

// drawTarget draws what a step strikes.
func (s *sim) drawTarget(what step) target {
	switch what.reach {
	case oneProcess:
		return target{p: s.drawProcess()}
	case oneReflector:
		return target{resource: pick(s.dice, what.concerns...)}
	}
	return target{}
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
