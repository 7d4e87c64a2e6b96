package sim

import (
	"testing"

	"podcount/lab/testkit"
)

func TestOnlyChosenSeedsContinueAfterAFailure(t *testing.T) {
	for _, keepGoing := range []bool{false, true} {
		q := newSeedQueue(Seeds{First: 1, Last: 3, keepGoing: keepGoing})
		_, isFirstRun := q.take()
		q.noteFailure()
		_, isSecondRun := q.take()
		if !isFirstRun || isSecondRun != keepGoing {
			t.Errorf("with keepGoing %v, the first seed is run: %v, and the second after a failure: %v",
				keepGoing, isFirstRun, isSecondRun)
		}
	}
}

func TestSeedsAreParsed(t *testing.T) {
	for _, row := range []struct {
		text string
		want Seeds
	}{
		{"200", Seeds{First: 1, Last: 200, keepGoing: true}},
		{"17-17", Seeds{First: 17, Last: 17, keepGoing: true}},
	} {
		t.Run(row.text, func(t *testing.T) {
			got, err := ParseSeeds(row.text)
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantEqual(t, "the seeds", got, row.want)
		})
	}
	for _, text := range []string{"", "x", "1-", "-1", "1-2-3", "5-3", "0"} {
		_, err := ParseSeeds(text)
		testkit.WantError(t, "ParseSeeds", err, `seeds "`+text+`"`)
	}
}
