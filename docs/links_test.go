package docs_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"podcount/lab/testkit"
)

// shortestAlt is how many characters the description of a picture must have, so that it tells what the picture shows.
const shortestAlt = 20

// link is a link or a picture in a page.
type link struct {
	text   string // of a picture, its description
	target string
	line   int
}

// linksMatching returns the links, or the pictures, of a page. Code has none.
func (p page) linksMatching(pattern *regexp.Regexp) (links []link) {
	for _, b := range p.blocks {
		if b.isCode() {
			continue
		}
		text := b.text()
		for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
			links = append(links, link{
				text:   text[at[2]:at[3]],
				target: text[at[4]:at[5]],
				line:   b.line + strings.Count(text[:at[0]], "\n"),
			})
		}
	}
	return links
}

func (p page) links() []link    { return p.linksMatching(linkPattern) } // including pictures
func (p page) pictures() []link { return p.linksMatching(picturePattern) }

func isURL(target string) bool {
	return strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:")
}

func TestEachPageIsLinkedFromReadme(t *testing.T) {
	var linked []string
	for _, name := range []string{readme, courseReadme} {
		for _, l := range loadPage(t, name).links() {
			file, _, _ := strings.Cut(l.target, "#")
			linked = append(linked, path.Join(path.Dir(name), file))
		}
	}
	for _, p := range loadPages(t) {
		if p.name != readme && !slices.Contains(linked, p.name) {
			t.Errorf("neither README.md nor learn/README.md has a link to %s", p.name)
		}
	}
}

func TestEachRelativeLinkLeadsSomewhere(t *testing.T) {
	for _, p := range loadPages(t) {
		for _, l := range slices.Concat(p.links(), p.pictures()) { // links have no picture that stands in a link
			if isURL(l.target) {
				continue
			}
			if problem := problemOf(p, l.target); problem != "" {
				t.Errorf("%s: the link to %s: %s", p.at(l.line), l.target, problem)
			}
		}
	}
}

// problemOf says what is wrong with a relative link of a page, or returns "".
func problemOf(p page, target string) string {
	file, anchor, hasAnchor := strings.Cut(target, "#")
	name := p.name
	if file != "" {
		name = path.Join(path.Dir(p.name), file)
	}
	if path.IsAbs(file) || strings.HasPrefix(name, "..") {
		return "it leads out of the checkout"
	}
	if _, err := os.Stat(fromHere(name)); err != nil {
		return "there is no such file"
	}
	if !hasAnchor {
		return ""
	}
	return problemOfAnchor(name, anchor)
}

// problemOfAnchor says what is wrong with an anchor in a file, or returns "".
func problemOfAnchor(name, anchor string) string {
	if path.Ext(name) != ".md" {
		return "only pages have anchors"
	}
	text, err := os.ReadFile(fromHere(name))
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchorsOf(blocksOf(string(text))), anchor) {
		return "that page has no such heading"
	}
	return ""
}

// otherLinkPattern matches links in forms that linkPattern does not: [text][name], [name]: target, and HTML.
var otherLinkPattern = regexp.MustCompile(`\]\[|(?m:^\[[^\]]*\]:)|<(a|img)\s`)

func TestLinksHaveTheFormThatIsChecked(t *testing.T) {
	for _, p := range loadPages(t) {
		for _, b := range p.blocks {
			if b.isCode() {
				continue
			}
			if found := otherLinkPattern.FindString(codeSpanPattern.ReplaceAllString(b.text(), "")); found != "" {
				t.Errorf("%s: a link with %q: write [text](target)", p.at(b.line), found)
			}
		}
	}
}

// anchorsOf returns the anchors that GitHub gives to the headings of a page.
func anchorsOf(blocks []block) (anchors []string) {
	uses := map[string]int{}
	for _, b := range blocks {
		if b.kind != heading {
			continue
		}
		slug := slugOf(b.text())
		anchor := slug
		if uses[slug] > 0 {
			anchor = fmt.Sprintf("%s-%d", slug, uses[slug])
		}
		uses[slug]++
		anchors = append(anchors, anchor)
	}
	return anchors
}

// slugOf returns a heading in lower case, without punctuation, and with a hyphen for each blank.
func slugOf(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, withoutLinks(title))
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	const text = "# The `-once` flag\n## What's written, and when?\n## C++ & Go\n## [Link](x.md)\n## Twice\n## Twice\n"
	testkit.WantEqual(t, "the anchors", anchorsOf(blocksOf(text)), []string{
		"the--once-flag", "whats-written-and-when", "c--go", "link", "twice", "twice-1",
	})
}

func TestEachPictureIsDescribed(t *testing.T) {
	for _, p := range loadPages(t) {
		for _, l := range p.pictures() {
			if n := utf8.RuneCountInString(l.text); n < shortestAlt {
				t.Errorf("%s: the description of %s has %d characters, want %d", p.at(l.line), l.target, n, shortestAlt)
			}
		}
	}
}

var (
	urlPattern         = regexp.MustCompile("https?://[^\\s)>`\"']+")
	placeholderPattern = regexp.MustCompile(`(?i:example\.(com|org|net)|localhost|placeholder|todo|xxx|…|\.\.\.)|` +
		`(?i:/(your|my|some)[-_])|/(OWNER|ORG|USER|NAME|REPO)\b|://(github\.com)?/?$`)
)

func TestNoLinkIsAPlaceholder(t *testing.T) {
	for _, p := range loadPages(t) {
		for _, b := range p.blocks {
			if b.isCode() {
				continue
			}
			for _, found := range urlPattern.FindAllString(codeSpanPattern.ReplaceAllString(b.text(), ""), -1) {
				if placeholderPattern.MatchString(found) {
					t.Errorf("%s: %s is a placeholder", p.at(b.line), found)
				}
			}
		}
		for _, l := range p.links() {
			if l.target == "" || l.target == "#" {
				t.Errorf("%s: the link %q leads nowhere", p.at(l.line), l.text)
			}
		}
	}
}
