package retry

import (
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestGroupThatIsNotKnownToAcceptKeysIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p GroupPauses[string, int]
		testkit.WantEqual(t, "a is first", p.Refused("a", 1, time.Minute), true)
		testkit.WantEqual(t, "left of b", p.Left("b", 1), time.Minute)
		testkit.WantEqual(t, "left of another group", p.Left("b", 2), time.Duration(0))
		testkit.Pass(2 * time.Minute)
		testkit.WantEqual(t, "left of b afterwards", p.Left("b", 1), time.Duration(0))
		testkit.WantEqual(t, "a was last", p.End("a"), true)
	})
}

func TestRefusalByAnotherGroupEndsThePausesOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p GroupPauses[string, int]
		p.Refused("a", 1, time.Minute)
		p.Accepted(2)
		testkit.WantEqual(t, "left of a", p.Left("a", 1), time.Minute)
		testkit.WantEqual(t, "left of a in another group", p.Left("a", 2), time.Duration(0))
		testkit.WantEqual(t, "b is the first of the other group", p.Refused("b", 2, time.Minute), true)
		testkit.WantEqual(t, "left of b", p.Left("b", 2), time.Minute)
		testkit.WantEqual(t, "left of a in the other group", p.Left("a", 2), time.Duration(0))
		testkit.WantEqual(t, "b was last", p.End("b"), true)
	})
}

func TestGroupThatAcceptsIsPausedAfterTwoRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p GroupPauses[string, int]
		p.Accepted(1)
		p.Refused("a", 1, time.Minute)
		testkit.WantEqual(t, "left of a", p.Left("a", 1), time.Minute)
		testkit.WantEqual(t, "left of b after one key was refused", p.Left("b", 1), time.Duration(0))
		p.Refused("a", 1, time.Minute)
		testkit.WantEqual(t, "left of b after the same key was refused", p.Left("b", 1), time.Duration(0))
		p.Refused("c", 1, time.Minute)
		testkit.WantEqual(t, "left of b after two keys were refused", p.Left("b", 1), time.Minute)
		p.Accepted(1)
		testkit.WantEqual(t, "left of b after a key was accepted", p.Left("b", 1), time.Duration(0))
		testkit.WantEqual(t, "left of c after another key was accepted", p.Left("c", 1), time.Minute)
	})
}
