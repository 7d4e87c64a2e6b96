package sim

import (
	"fmt"
	"testing"

	"podcount/lab/testkit"
)

func TestSeedsTakeAimAtEveryPossiblePair(t *testing.T) {
	aimedAt := map[pair]bool{}
	for seed := uint64(1); seed <= 250; seed++ {
		pairs := pairsToAimAt(seed)
		if seed%2 == 1 && len(pairs) > 0 {
			t.Errorf("seed %d takes aim at %v", seed, pairs)
		}
		for _, one := range pairs {
			aimedAt[one] = true
			if one.state != pairs[0].state {
				t.Errorf("seed %d takes aim at %q and %q", seed, pairs[0].state, one.state)
			}
		}
	}
	testkit.WantNumber(t, "pairs at which no seed takes aim", len(possiblePairs())-len(aimedAt), 0)
	testkit.WantBetween(t, "possible pairs", len(aimedAt), 1000, 3000)
}

// newSim would draw for ever for a seed with aims that no setting allows.
func TestSomeSettingAllowsTheAimsOfEachSeed(t *testing.T) {
	for seed := uint64(2); seed <= 250; seed += 2 {
		o := optionsFor(doNothing)
		o.Seed = seed
		s := emptySim(t, o)
		s.pairsToAimAt = pairsToAimAt(seed)
		const mostDraws = 1000
		s.drawSetting()
		draws := 1
		for !s.allowsAims() && draws < mostDraws {
			s.drawSetting()
			draws++
		}
		testkit.WantBetween(t, fmt.Sprintf("settings drawn for seed %d", seed), draws, 1, mostDraws-1)
	}
}

func TestEveryStateHasAWayIntoIt(t *testing.T) {
	for _, in := range allStates {
		if leadInto[in] == nil {
			t.Errorf("nothing leads into the state %q", in)
		}
	}
}
