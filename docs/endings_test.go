package docs_test

import (
	"fmt"
	"testing"

	"podcount/internal/watch/ending"
	"podcount/lab/testkit"
)

func TestTableOfEndingsIsThatOfTheCode(t *testing.T) {
	table := "| how a watch ends | what the reflector does |\n|---|---|\n"
	for _, o := range ending.Outcomes {
		table += fmt.Sprintf("| `%s`: %s | %s |\n", o.Name, o.When, consequenceOf(o))
	}
	testkit.WantParts(t, fromHere("docs/change/internals.md"), "go test ./docs -update", *update,
		map[string]string{"endings": table})
}

// consequenceOf says what the reflector does.
func consequenceOf(o ending.Outcome) string {
	resume := "resumes at once"
	if o.Problem != "" {
		resume = "backs off and resumes"
	}
	switch o.RelistAfter {
	case 0:
		return resume
	case 1:
		return "backs off, then relists"
	}
	return fmt.Sprintf("%s; relists after %d", resume, o.RelistAfter)
}
