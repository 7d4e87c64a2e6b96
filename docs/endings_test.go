package docs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"podcount/internal/watch/ending"
	"podcount/lab/testkit"
)

// The head of the table that shows how a watch may end, and its first line below that head.
const (
	endingsPage = "change/internals.md"
	endingsHead = "| how a watch ends | what the reflector does | why |\n|---|---|---|\n"
)

func TestTableOfEndingsIsThatOfTheCode(t *testing.T) {
	var want strings.Builder
	for _, o := range ending.Outcomes {
		fmt.Fprintf(&want, "| `%s`: %s | %s | %s |\n", o.Name, o.When, consequenceOf(o), o.Why)
	}
	page := testkit.ReadFile(t, endingsPage)
	before, rest, hasTable := strings.Cut(page, endingsHead)
	if !hasTable {
		t.Fatalf("%s has no table %q", endingsPage, endingsHead)
	}
	got, after, _ := strings.Cut(rest, "\n\n")
	if *update {
		got = strings.TrimSuffix(want.String(), "\n")
		if err := os.WriteFile(endingsPage, []byte(before+endingsHead+got+"\n\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WantEqual(t, "the table, which `go test ./docs -update` writes,", got+"\n", want.String())
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
	return fmt.Sprintf("%s; relists after %d fruitless watches", resume, o.RelistAfter)
}
