package sim

import (
	"testing"

	"podcount/lab/testkit"
)

func TestStepsAreParsedAndPrinted(t *testing.T) {
	steps, err := ParseSteps("3,8,20-24")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the steps", steps, Steps{3: true, 8: true, 20: true, 21: true, 22: true, 23: true, 24: true})
	testkit.WantEqual(t, "the text", steps.String(), "3,8,20-24")
	testkit.WantNumber(t, "the last step", steps.last(), 24)
	for _, text := range []string{"", "x", "3,", "1-", "-1", "1-2-3", "5-3"} {
		_, err := ParseSteps(text)
		testkit.WantError(t, "ParseSteps", err, `steps "`+text+`"`)
	}
}
