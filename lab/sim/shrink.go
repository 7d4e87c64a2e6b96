package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// triesPerStory is how often the same steps are run before they count as a story that breaks no rule. A seed determines
// neither the program's own random numbers nor the scheduler, so they may break a rule once, and not the next time.
const triesPerStory = 3

// shortestStory runs a failed seed again and again, each time without some of its steps, as long as the same rule is
// broken. It returns a report with the fewest steps that it has found within the limit of real time.
func shortestStory(t *testing.T, o Options, failed Result, limit time.Duration) string {
	s := &shrinker{t: t, options: o, rule: failed.rules[0], end: time.Now().Add(limit), found: failed}
	if !s.breaksRule(failed.taken) {
		return fmt.Sprintf("seed %d did not break the same rule in %d more tries, so its story is not made shorter",
			o.Seed, triesPerStory)
	}
	// breaksRule keeps each shorter story in s.found. It has only the steps that changed something, and these may be even
	// fewer than fewest returns.
	faults, life := splitSteps(s.found.taken)
	fewest(faults, func(some []takenStep) bool { return s.breaksRule(join(some, life)) })
	faults, life = splitSteps(s.found.taken)
	fewest(life, func(some []takenStep) bool { return s.breaksRule(join(faults, some)) })
	return s.report(len(failed.taken))
}

// shrinker looks for the shortest story.
type shrinker struct {
	t       *testing.T
	options Options
	rule    string    // the rule that must be broken
	end     time.Time // no run begins after that
	runs    int       // how often the seed was run again
	found   Result    // of the shortest story so far
}

// breaksRule reports whether these steps alone break the rule, and keeps the story if they do. It returns false once
// the time is over.
func (s *shrinker) breaksRule(steps []takenStep) bool {
	options := s.options
	options.Recording = nil // The history of the whole seed is kept.
	options.Only = numbersOf(steps)
	for range triesPerStory {
		if !time.Now().Before(s.end) {
			return false
		}
		s.runs++
		result := Simulate(s.t, options)
		if slices.Contains(result.rules, s.rule) {
			s.found = result
			return true
		}
	}
	return false
}

// report describes the shortest story. before is the number of steps of the whole story.
func (s *shrinker) report(before int) string {
	steps := s.found.taken
	lines := []string{fmt.Sprintf("seed %d: %d of its %d steps are enough to break the rule, as %d runs have shown:",
		s.options.Seed, len(steps), before, s.runs)}
	for _, step := range steps {
		lines = append(lines, step.line)
	}
	lines = append(lines, s.found.Story, s.options.Rerun(s.options.Seed, numbersOf(steps)))
	return strings.Join(lines, "\n")
}

// fewest returns as few of these steps as it can find that still fail: those that are left when no single one of them
// can be left out. It leaves out all of them first, then halves, quarters, and so on (delta debugging,
// https://www.debuggingbook.org/html/DeltaDebugger.html).
func fewest(steps []takenStep, fails func([]takenStep) bool) []takenStep {
	for size := len(steps); size > 1; size = (size + 1) / 2 {
		steps = withoutParts(steps, size, fails)
	}
	for {
		shorter := withoutParts(steps, 1, fails)
		if len(shorter) == len(steps) {
			return steps
		}
		steps = shorter
	}
}

// withoutParts leaves out one part of this size after the other, unless the rest no longer fails.
func withoutParts(steps []takenStep, size int, fails func([]takenStep) bool) []takenStep {
	for i := 0; i < len(steps); {
		end := min(i+size, len(steps))
		rest := slices.Concat(steps[:i], steps[end:])
		if fails(rest) {
			steps = rest
		} else {
			i = end
		}
	}
	return steps
}

// splitSteps splits the steps into faults and life.
func splitSteps(steps []takenStep) (faults, life []takenStep) {
	for _, step := range steps {
		if step.isFault {
			faults = append(faults, step)
		} else {
			life = append(life, step)
		}
	}
	return faults, life
}

// join returns the steps of both in their order.
func join(a, b []takenStep) []takenStep {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y takenStep) int { return x.number - y.number })
	return all
}

// numbersOf returns the numbers of steps.
func numbersOf(steps []takenStep) Steps {
	numbers := Steps{}
	for _, step := range steps {
		numbers[step.number] = true
	}
	return numbers
}
