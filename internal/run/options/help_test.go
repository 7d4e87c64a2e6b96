package options

import (
	"strings"
	"testing"
	"unicode/utf8"

	"podcount/lab/testkit"
)

func TestHelpIsTheSameInItsPage(t *testing.T) {
	page := testkit.ReadFile(t, "../../../docs/run/flags.md")
	_, help, _ := strings.Cut(page, "`podcount -h` prints this:\n\n```text\n")
	help, _, _ = strings.Cut(help, "```\n")
	testkit.WantEqual(t, "the help in docs/run/flags.md", help, printed(t, "-h"))
}

func TestHelpIsAtMost100ColumnsWide(t *testing.T) {
	for line := range strings.Lines(printed(t, "-h")) {
		n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
		if n > helpColumns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestWrapBreaksBetweenWords(t *testing.T) {
	rows := []struct {
		name, text string
		want       []string
	}{
		{"fits", "a bc", []string{"a bc"}},
		{"is too long", "a bc def", []string{"a bc", "def"}},
		{"has a word that is too long", "a bcdefg h", []string{"a", "bcdefg", "h"}},
		{"counts characters, not bytes", "×× ×", []string{"×× ×"}},
	}
	for _, row := range rows {
		testkit.WantEqual(t, "the lines of a text that "+row.name, wrap(row.text, 4), row.want)
	}
}
