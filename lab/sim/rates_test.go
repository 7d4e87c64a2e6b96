package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestAgeIsThatOfTheLastTimeWhenAValueWasRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &truth{
			perNode: map[string]int{},
			right:   map[string]string{"n0 total": "0"},
			past:    map[string][]pastValue{},
		}
		<-time.After(time.Second)
		tr.addPods("n1", 1) // Until now, 0 was right.
		<-time.After(time.Second)
		tr.addPods("n2", 1)
		<-time.After(time.Second)
		testkit.WantEqual(t, "the age of 2", tr.age("n0 total", "2"), time.Duration(0))
		testkit.WantEqual(t, "the age of 1", tr.age("n0 total", "1"), time.Second)
		testkit.WantEqual(t, "the age of 0", tr.age("n0 total", "0"), 2*time.Second)
		testkit.WantEqual(t, "the age of 7", tr.age("n0 total", "7"), neverRight)
	})
}
