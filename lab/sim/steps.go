package sim

import (
	"fmt"
	"time"
)

// step is something that can happen in a simulated cluster: a fault, or a step of life, which also happens in a healthy
// cluster.
type step struct {
	name string

	// weight is how often the step is drawn, in proportion to the others.
	weight int

	// do makes the step happen. It returns a description for the story, or "" if nothing has happened.
	do func(*sim) string

	isFault bool

	// reach says what a fault strikes: all processes, one of them, or the watches of one resource.
	reach reach
}

// reach says how far a fault reaches.
type reach int

const (
	everyProcess reach = iota
	oneProcess
	oneResource // the watches of one resource, in every process
)

// target is what a fault strikes. A nil process means every process, and the resource "" every resource.
type target struct {
	p        *proc
	resource string
}

// takeStep draws one of these steps, does it, and adds it to the story and the script.
func (s *sim) takeStep(steps []step) {
	s.nextStep(func() {
		drawn := s.drawStep(steps)
		s.target = s.drawTarget(drawn)
		s.noteStep(s.recordStrike(drawn, func() string { return drawn.do(s) }), drawn.isFault)
	})
}

// nextStep calls do with the dice of the next step, unless Options.Only leaves that step out.
func (s *sim) nextStep(do func()) {
	s.stepNumber++
	isLeftOut := s.Only != nil && !s.Only[s.stepNumber]
	if !isLeftOut {
		s.withDice(stepDice(s.Seed, s.stepNumber), do)
	}
}

// drawTarget draws what a step strikes.
func (s *sim) drawTarget(what step) target {
	switch what.reach {
	case oneProcess:
		return target{p: s.drawProcess()}
	case oneResource:
		return target{resource: pick(s.dice, "pods", "nodes", "counts")}
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

// takenStep is a step that has happened.
type takenStep struct {
	number  int
	isFault bool
	line    string // as in the script
}

// noteStep adds a step to the story and the script, unless it has changed nothing: then its description is "".
func (s *sim) noteStep(description string, isFault bool) {
	if description == "" {
		return
	}
	s.record("step %d: %s", s.stepNumber, description)
	line := fmt.Sprintf("act %d, %v: step %d: %s", s.act, time.Since(s.actBegan), s.stepNumber, description)
	s.script = append(s.script, line)
	s.taken = append(s.taken, takenStep{number: s.stepNumber, isFault: isFault, line: line})
}
