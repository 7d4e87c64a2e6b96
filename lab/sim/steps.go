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

	// Only faults have the fields below, most of which are for coverage.go.

	// concerns are the resources whose reflectors are struck. The resource leases stands for the election.
	concerns []string

	// reach says what is struck: all processes, one of them, or the reflectors of one resource.
	reach reach

	// possibleIn are the only states in which the fault can strike. nil means all.
	possibleIn []state

	// isMetLater is whether the fault strikes only after do, at a request. The pair is noted then.
	isMetLater bool

	// request is the fault of requests that do injects, or nil.
	request *requestFault
}

// strikesAny reports whether the step is a fault that strikes a reflector or an election.
func (f step) strikesAny() bool { return len(f.concerns) > 0 }

// target is what a fault strikes. A nil process means every process, and the resource "" every reflector.
type target struct {
	p        *proc
	resource string
}

// takeStep draws one of these steps, does it, and adds it to the story and the script.
func (s *sim) takeStep(steps []step) {
	s.nextStep(func() {
		drawn := s.drawStep(steps)
		description := s.strike(drawn, s.drawTarget(drawn))
		s.noteStep(drawn.name, description, drawn.strikesAny())
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

// strike makes a step happen. If it is a fault, strike notes the states in which it strikes.
func (s *sim) strike(what step, at target) (description string) {
	s.target = at
	if !what.isMetLater {
		s.noteStrike(what, at)
	}
	return s.recordStrike(what, func() string { return what.do(s) })
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

// takenStep is a step that has happened.
type takenStep struct {
	number  int
	isFault bool
	line    string // as in the script, with the description
}

// noteStep adds a step to the story and the script. If it has changed nothing, its description is "". In a seed that
// takes aim, the description depends on the program, so the script has only the name.
func (s *sim) noteStep(name, description string, isFault bool) {
	if description != "" {
		s.record("step %d: %s", s.stepNumber, description)
		line := s.scriptLine(description)
		s.taken = append(s.taken, takenStep{number: s.stepNumber, isFault: isFault, line: line})
	}
	switch {
	case len(s.pairsToAimAt) > 0:
		s.script = append(s.script, s.scriptLine(name))
	case description != "":
		s.script = append(s.script, s.scriptLine(description))
	}
}

func (s *sim) scriptLine(text string) string {
	return fmt.Sprintf("act %d, %v: step %d: %s", s.act, time.Since(s.actBegan), s.stepNumber, text)
}
