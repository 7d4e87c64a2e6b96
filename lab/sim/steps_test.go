package sim

import (
	"strings"
	"testing"
)

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
