package sim

import (
	"math/rand/v2"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func TestStepsAreDrawnByTheirWeights(t *testing.T) {
	s := &sim{dice: rand.New(rand.NewPCG(1, 0))}
	drawn := map[string]int{}
	count := func(name string) func(*sim) string {
		return func(*sim) string {
			drawn[name]++
			return ""
		}
	}
	steps := []step{
		{name: "often", weight: 9, do: count("often")},
		{name: "never", weight: 0, do: count("never")},
		{name: "seldom", weight: 1, do: count("seldom")},
	}
	for range 1000 {
		s.takeStep(steps)
	}
	testkit.WantNumber(t, "steps of weight 0", drawn["never"], 0)
	testkit.WantBetween(t, "steps of weight 1 in 1000, with a total weight of 10", drawn["seldom"], 50, 150)
}

func TestEveryStepHasANameAndAWeight(t *testing.T) {
	names := map[string]bool{}
	for _, step := range append(faultSteps(), lifeSteps...) {
		if step.name == "" || step.weight <= 0 || step.do == nil {
			t.Errorf("the step %+v lacks a name, a weight or what it does", step)
		}
		if strings.ContainsAny(step.name, "{<\"") {
			t.Errorf("the name %s is not in words", step.name)
		}
		names[step.name] = true
	}
	if len(names) < 100 {
		t.Errorf("there are %d steps, want 100 or more", len(names))
	}
}
