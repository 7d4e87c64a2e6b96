package sim

import (
	"testing"
	"testing/synctest"

	"podcount/internal/testkit"
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

func TestEachSeedAllowsItsAims(t *testing.T) {
	for seed := uint64(2); seed <= 250; seed += 2 {
		synctest.Test(t, func(t *testing.T) {
			o := optionsFor(doNothing)
			o.Seed = seed
			s := newSim(t, o) // It would not end if no setting allowed the aims.
			if !s.allowsAims() {
				t.Errorf("seed %d does not allow its aims", seed)
			}
		})
	}
}

func TestEveryStateHasAWayIntoIt(t *testing.T) {
	for _, in := range allStates {
		if leadInto[in] == nil {
			t.Errorf("nothing leads into the state %q", in)
		}
	}
}
