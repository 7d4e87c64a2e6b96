package course

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page of a stage shows what the stage before does wrong: a command, and below it lines of what it prints.
const (
	commandPrefix = "make check STAGE="
	elision       = "…"
)

// shownOutput returns the lines that a page shows of what its first check prints. Those that are left out are "…".
func shownOutput(page string) (lines []string) {
	_, rest, _ := strings.Cut(page, "\n"+commandPrefix)
	_, rest, _ = strings.Cut(rest, "```text\n")
	block, _, _ := strings.Cut(rest, "\n```")
	return strings.Split(block, "\n")
}

// checkPage fails the test unless one of the stories of the stage before has all lines that the page of a stage
// shows. Numbers may differ: they are seconds, versions, and how far a program comes.
func checkPage(t *testing.T, stage Stage, stories []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", stage.Dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := shownOutput(string(text))
	if len(lines) < 3 {
		t.Fatalf("learn/%s/README.md shows fewer than three lines of what `%s…` prints", stage.Dir, commandPrefix)
	}
	shows := func(story string) bool {
		told := strings.Split(masked(story), "\n")
		return !slices.ContainsFunc(lines, func(line string) bool {
			return line != elision && !slices.Contains(told, masked(line))
		})
	}
	if !slices.ContainsFunc(stories, shows) {
		t.Errorf("learn/%s/README.md shows lines that are not in one of these stories, whatever their numbers:\n%s\n\n%s",
			stage.Dir, strings.Join(lines, "\n"), strings.Join(stories, "\n"))
	}
}

var (
	numberPattern = regexp.MustCompile(`[0-9]+`)
	spacePattern  = regexp.MustCompile(` +`)
)

// masked replaces what may differ between two runs of a row.
func masked(text string) string {
	return spacePattern.ReplaceAllString(numberPattern.ReplaceAllString(text, "#"), " ")
}
