package retry

import (
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestPausesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pauses[string]
		testkit.WantEqual(t, "a is first", p.Begin("a", time.Minute), true)
		testkit.WantEqual(t, "b is first", p.Begin("b", time.Minute), false)
		testkit.Pass(20 * time.Second)
		testkit.WantEqual(t, "left of a", p.Left("a"), 40*time.Second)
		testkit.WantEqual(t, "left of an unknown key", p.Left("c"), time.Duration(0))
		testkit.Pass(time.Minute)
		testkit.WantEqual(t, "left of a afterwards", p.Left("a"), time.Duration(0))
		testkit.WantEqual(t, "a was last", p.End("a"), false)
		testkit.WantEqual(t, "b was last", p.End("b"), true)
		testkit.WantEqual(t, "b was last again", p.End("b"), false)
	})
}

func TestPauseThatIsLongOverIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pauses[string]
		p.Begin("a", time.Minute)
		testkit.Pass(3 * time.Minute)
		testkit.WantEqual(t, "b is first", p.Begin("b", time.Minute), false)
		testkit.Pass(time.Second)
		testkit.WantEqual(t, "c is first", p.Begin("c", time.Minute), false)
		testkit.WantEqual(t, "a was known", p.Left("a"), time.Duration(0))
		p.EndAll(func(key string) bool { return key == "b" })
		testkit.WantEqual(t, "c was last", p.End("c"), true)
	})
}
