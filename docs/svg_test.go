package docs_test

import (
	"encoding/xml"
	"errors"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func TestEachPictureIsOnOnePage(t *testing.T) {
	pages := map[string][]string{}
	for _, p := range loadPages(t) {
		for _, l := range p.pictures() {
			name := path.Join(path.Dir(p.name), l.target)
			if !slices.Contains(pages[name], p.name) {
				pages[name] = append(pages[name], p.name)
			}
		}
	}
	for _, file := range pictureFiles(t) {
		if on := pages["docs/"+file]; len(on) != 1 {
			t.Errorf("docs/%s is on the pages %q, want one", file, on)
		}
	}
}

// pictureFiles returns the pictures in docs/pictures.
func pictureFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("pictures/*.svg")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Error("there are no pictures")
	}
	return files
}

func TestPicturesAreAccessibleAndSelfContained(t *testing.T) {
	for _, file := range pictureFiles(t) {
		t.Run(file, func(t *testing.T) {
			for _, problem := range problemsOfSVG(testkit.ReadFile(t, file)) {
				t.Errorf("docs/%s: %s", file, problem)
			}
		})
	}
}

var (
	darkRulePattern = regexp.MustCompile(`@media[^{]*\(\s*prefers-color-scheme:\s*dark\s*\)\s*` +
		`{[^{}]+{[^{}]*[^{}\s][^{}]*}`) // with something in it
	outsideStylePattern = regexp.MustCompile(`@import|url\(\s*["']?[^#"'\s]`) // url(#name) is in the same file
)

// problemsOfSVG says what is wrong with a picture.
func problemsOfSVG(text string) (problems []string) {
	elements, err := elementsOf(text)
	if err != nil {
		return []string{"it is not well-formed: " + err.Error()}
	}
	has := func(name string) bool {
		return slices.ContainsFunc(elements, func(e xml.StartElement) bool { return e.Name.Local == name })
	}
	problems = problemsOfLabels(text)
	if !darkRulePattern.MatchString(text) {
		problems = append(problems, "it has no rule for prefers-color-scheme: dark")
	}
	if has("script") {
		problems = append(problems, "it has a script")
	}
	if outsideStylePattern.MatchString(text) {
		problems = append(problems, "its style refers to another file")
	}
	for _, e := range elements {
		for _, a := range e.Attr {
			problems = append(problems, problemsOfAttribute(a)...)
		}
	}
	return problems
}

// labels are what a screen reader says of a picture.
type labels struct {
	LabelledBy string `xml:"aria-labelledby,attr"`
	Title      label  `xml:"title"`
	Desc       label  `xml:"desc"`
}

// label is an element with text.
type label struct {
	ID   string `xml:"id,attr"`
	Text string `xml:",chardata"`
}

// problemsOfLabels says what is wrong with the title and the description of a picture.
func problemsOfLabels(text string) (problems []string) {
	var svg labels
	if err := xml.Unmarshal([]byte(text), &svg); err != nil {
		return []string{err.Error()}
	}
	if strings.TrimSpace(svg.Title.Text) == "" {
		problems = append(problems, "it has no title")
	}
	if strings.TrimSpace(svg.Desc.Text) == "" {
		problems = append(problems, "it has no desc")
	}
	hasIDs := svg.Title.ID != "" && svg.Desc.ID != ""
	if !hasIDs || svg.LabelledBy != svg.Title.ID+" "+svg.Desc.ID {
		problems = append(problems, "aria-labelledby does not name its title and its desc")
	}
	return problems
}

// problemsOfAttribute says whether an attribute runs a script, or refers to another file.
func problemsOfAttribute(a xml.Attr) []string {
	isReference := a.Name.Local == "href" || a.Name.Local == "src"
	switch {
	case isReference && !strings.HasPrefix(a.Value, "#"):
		return []string{"it refers to " + a.Value}
	case strings.HasPrefix(a.Name.Local, "on"):
		return []string{"it has a script in " + a.Name.Local}
	}
	return nil
}

// elementsOf returns the elements of an XML document. The error says why it is not well-formed.
func elementsOf(text string) (elements []xml.StartElement, err error) {
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return elements, nil
		}
		if err != nil {
			return nil, err
		}
		if element, isStart := token.(xml.StartElement); isStart {
			elements = append(elements, element.Copy())
		}
	}
}

func TestProblemsOfPicturesAreFound(t *testing.T) {
	const style = `<style>@media (prefers-color-scheme: dark) { a { fill: url(#b) } }</style>`
	const whole = `<svg xmlns="http://www.w3.org/2000/svg" aria-labelledby="t d">` +
		`<title id="t">a</title><desc id="d">b</desc>` + style
	allMissing := []string{
		"it has no title", "it has no desc", "aria-labelledby does not name its title and its desc",
		"it has no rule for prefers-color-scheme: dark",
	}
	rows := []struct {
		name, text string
		want       []string
	}{
		{"none", whole + `<use href="#c"/></svg>`, nil},
		{"not closed", whole, []string{"it is not well-formed: XML syntax error on line 1: unexpected EOF"}},
		{"nothing in it", `<svg/>`, allMissing},
		{"all empty", `<svg aria-labelledby=" "><title/><desc> </desc>` +
			`<style>@media (prefers-color-scheme: dark) { a { } }</style></svg>`, allMissing},
		{"another label", strings.Replace(whole, `"t d"`, `"d"`, 1) + `</svg>`, []string{
			"aria-labelledby does not name its title and its desc",
		}},
		{"a script", whole + `<script/><g onclick="a()"/></svg>`, []string{
			"it has a script", "it has a script in onclick",
		}},
		{"another file", whole + `<image href="b.png"/><style>a { fill: url('b') }</style></svg>`, []string{
			"its style refers to another file", "it refers to b.png",
		}},
	}
	for _, row := range rows {
		testkit.WantEqual(t, "the problems of "+row.name, problemsOfSVG(row.text), row.want)
	}
}
