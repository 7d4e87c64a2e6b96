// Package docs_test holds the pages of the documentation to rules: about their form, links and language, and about
// facts that the code knows better. Each test reads README.md and every page of docs/.
package docs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"podcount/internal/testkit"
)

// readme is the name of the page that leads to all others.
const readme = "README.md"

// pageNames are the pages. Their names are paths from the top directory, which is the parent of this one.
var pageNames = []string{
	readme,
	"docs/CHANGELOG.md",
	"docs/SECURITY.md",
	"docs/counts.md",
	"docs/figures.md",
	"docs/flags.md",
	"docs/install.md",
	"docs/internals.md",
	"docs/kubeconfig.md",
	"docs/operating.md",
	"docs/testing.md",
	"docs/tour.md",
}

// languages are those that blocks of code may be in.
var languages = []string{"sh", "text", "yaml", "go", "json"}

// page is a page of the documentation.
type page struct {
	name   string
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

// loadPages reads all pages. It leaves out those that are missing, as TestPagesAreThoseOfTheList fails for them.
func loadPages(t *testing.T) (pages []page) {
	t.Helper()
	for _, name := range pageNames {
		_, err := os.Stat(fromHere(name))
		if !errors.Is(err, fs.ErrNotExist) {
			pages = append(pages, loadPage(t, name))
		}
	}
	return pages
}

// loadPage reads one page.
func loadPage(t *testing.T, name string) page {
	t.Helper()
	text, err := os.ReadFile(fromHere(name))
	if err != nil {
		t.Fatal(err)
	}
	return page{name, string(text), blocksOf(string(text))}
}

// fromHere turns a path from the top directory into one from the directory of this file, where the tests run.
func fromHere(path string) string { return filepath.Join("..", path) }

func TestReadmeIsShort(t *testing.T) {
	testkit.WantBetween(t, "bytes of README.md", len(loadPage(t, readme).text), 1, 8192)
}

func TestPagesAreThoseOfTheList(t *testing.T) {
	found, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{readme}
	for _, name := range found {
		want = append(want, "docs/"+name)
	}
	testkit.WantEqual(t, "pageNames", slices.Clone(pageNames), want)
}

func TestEachPageSaysWhoItIsFor(t *testing.T) {
	for _, p := range loadPages(t) {
		if p.name == readme {
			continue
		}
		lines := strings.SplitN(p.text, "\n", 4)
		hasForm := len(lines) == 4 && strings.HasPrefix(lines[0], "# ") && lines[1] == "" &&
			strings.HasPrefix(lines[2], "This page is for ")
		if !hasForm {
			t.Errorf(`%s: the page does not begin with "# ", an empty line, and "This page is for "`, p.at(1))
		}
	}
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
