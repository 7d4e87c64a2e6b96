package page

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestLabelNamesTheFirstTenNodes(t *testing.T) {
	var label Label
	for i := 99; i >= 10; i-- {
		label.AddNode(fmt.Sprint("n", i), i%2 == 0, i%3 == 0)
	}
	testkit.WantNumber(t, "nodes", label.NodeCount, 45)
	testkit.WantNumber(t, "wrong ones", label.WrongCount, 30)
	testkit.WantEqual(t, "the first nodes", label.Nodes,
		[]string{"n10", "n12", "n14", "n16", "n18", "n20", "n22", "n24", "n26", "n28"})
	testkit.WantEqual(t, "the first wrong ones", label.Wrong,
		[]string{"n12", "n15", "n18", "n21", "n24", "n27", "n30", "n33", "n36", "n39"})
}

func TestLabelIsRightSinceItsLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h LabelHistory
		// wantTimes describes a label, and checks its times: in seconds, or -1 for nil.
		wantTimes := func(what string, label Label, right, written float64) {
			t.Helper()
			h.Describe(&label)
			for _, row := range []struct {
				name string
				got  *float64
				want float64
			}{{"right", label.SecondsRight, right}, {"written", label.SecondsSinceWrite, written}} {
				got := -1.0
				if row.got != nil {
					got = *row.got
				}
				testkit.WantEqual(t, what+": "+row.name, got, row.want)
			}
		}
		known := Label{IsKnown: true}
		wantTimes("before the first list", Label{}, -1, -1)
		wantTimes("found right", known, 0, -1)
		testkit.Pass(5 * time.Second)
		wantTimes("still right", known, 5, -1)
		wantTimes("wrong", Label{IsKnown: true, WrongCount: 1}, -1, -1)
		h.Wrote()
		testkit.Pass(time.Second)
		wantTimes("right again", known, 0, 1)
		testkit.Pass(9 * time.Second)
		wantTimes("right for a while", known, 9, 10)
		h.Wrote()
		testkit.Pass(time.Second)
		wantTimes("written between two looks", known, 1, 1)
	})
}
