// Package docs_test holds the pages of the documentation to rules: about their form, links and language, and about
// facts that the code knows better. Most tests read every page: README.md, and those of docs/ and of the course in
// learn/.
package docs_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// readme is the name of the page that leads to all others.
const readme = "README.md"

// courseReadme is the page that leads to the stages of the course.
const courseReadme = "learn/README.md"

// languages are those that blocks of code may be in.
var languages = []string{"sh", "text", "yaml", "go", "json", "diff"}

// page is a page of the documentation.
type page struct {
	name   string // its path from the top directory, which is the parent of this one
	text   string
	blocks []block
}

// at returns a place in the page for messages.
func (p page) at(line int) string { return fmt.Sprintf("%s:%d", p.name, line) }

// of returns the blocks of this kind.
func (p page) of(k kind) (blocks []block) {
	for _, b := range p.blocks {
		if b.kind == k {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// section returns the blocks from a heading to the next heading of its level or a higher one.
func (p page) section(title string) (blocks []block) {
	level := 0 // of the heading, or 0 outside of the section
	for _, b := range p.blocks {
		if b.kind == heading {
			switch {
			case b.text() == title:
				level = b.level()
			case b.level() <= level:
				level = 0
			}
		}
		if level > 0 {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// loadPages reads all pages.
func loadPages(t *testing.T) []page {
	t.Helper()
	pages := []page{loadPage(t, readme), loadPage(t, courseReadme)}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "learn/[0-9]*/README.md"} {
		files, err := filepath.Glob(fromHere(pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("there are no pages %s (%v)", pattern, err)
		}
		for _, file := range files {
			pages = append(pages, loadPage(t, strings.TrimPrefix(filepath.ToSlash(file), "../")))
		}
	}
	return pages
}

// loadPage reads one page.
func loadPage(t *testing.T, name string) page {
	t.Helper()
	text := testkit.ReadFile(t, fromHere(name))
	return page{name, text, blocksOf(text)}
}

// fromHere turns a path from the top directory into one from the directory of this file, where the tests run.
func fromHere(path string) string { return filepath.Join("..", path) }

// The most words that pages may have, so that somebody reads them: README.md, each page of docs/, and all of these. A
// word is what blanks divide, as wc counts them.
const (
	mostInReadme = 1250
	mostInPage   = 3500
	mostInAll    = 28000
)

func TestPagesAreShort(t *testing.T) {
	total := 0
	for _, p := range loadPages(t) {
		if strings.HasPrefix(p.name, "learn/") {
			continue // the course, of which a reader takes one stage after the other
		}
		most := mostInPage
		if p.name == readme {
			most = mostInReadme
		}
		words := len(strings.Fields(p.text))
		testkit.WantBetween(t, "words of "+p.name, words, 1, most)
		total += words
	}
	testkit.WantBetween(t, "words of all pages", total, 1, mostInAll)
}

func TestEachBlockOfCodeNamesItsLanguage(t *testing.T) {
	for _, p := range loadPages(t) {
		for _, b := range p.of(code) {
			if !slices.Contains(languages, b.language) {
				t.Errorf("%s: the language is %q, want one of %q", p.at(b.line), b.language, languages)
			}
		}
		for _, b := range p.of(indented) {
			t.Errorf("%s: the code is indented: put it between ``` and ```", p.at(b.line))
		}
	}
}

func TestEachFenceIsClosed(t *testing.T) {
	for _, p := range loadPages(t) {
		if problem := problemOfFences(p.text); problem != "" {
			t.Errorf("%s: %s", p.name, problem)
		}
	}
}

// problemOfFences says which fence of a page has no end, or returns "". Without its end, prose would pass for code, and
// most tests would not look at it.
func problemOfFences(text string) string {
	opened := 0 // the line of the fence that is open, or 0
	for i, line := range strings.Split(text, "\n") {
		mark := strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(mark, "```"):
			continue
		case opened == 0:
			opened = i + 1
		case mark == "```":
			opened = 0
		default:
			return fmt.Sprintf("line %d opens a fence within that of line %d", i+1, opened)
		}
	}
	if opened > 0 {
		return fmt.Sprintf("the fence of line %d has no end", opened)
	}
	return ""
}

func TestProblemsOfFencesAreFound(t *testing.T) {
	rows := []struct{ name, page, want string }{
		{"none", "a\n```sh\nb\n```\n", ""},
		{"no end", "a\n```sh\nb\n", "the fence of line 2 has no end"},
		{"no end before the next", "```sh\na\n\n```go\nb\n```\n", "line 4 opens a fence within that of line 1"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) { testkit.WantEqual(t, "the problem", problemOfFences(row.page), row.want) })
	}
}
