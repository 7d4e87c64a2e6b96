// Package tour puts a guided tour into podcount's page on the playground. Its steps are those of docs/learn/tour.md,
// and the code that they show is that of the checkout, so nothing is written twice.
package tour

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"podcount/internal/view/page"
	"podcount/lab/replay"
)

var (
	//go:embed tour.css
	style string

	//go:embed tour.js
	script string

	// additions is what the page needs and docs/learn/tour.md lacks. For each step: the buttons of the playground that
	// bring it, what to say before, and which step of the trace shows it, as patterns for some of its fields. And the
	// exercises: each is about a button, whose name is its address unless it has one, and names functions as that page
	// does.
	//
	//go:embed additions.json
	additions []byte
)

// endOfScript is what follows on the last line of the page's script that begins to show a running podcount.
const endOfScript = "}\n</script>\n<script id=\"start-script\">"

// Page returns podcount's page with the tour. The page gets what Content returns from tour.json, beside itself.
func Page() string {
	html, err := replay.Insert(page.HTML, "</head>", "<style>\n"+style+"</style>\n", endOfScript, "\n"+script)
	if err != nil {
		panic(err) // The page is our own.
	}
	return html
}

// stepPattern matches a step of docs/learn/tour.md: its title and its text, up to the link to the course.
var stepPattern = regexp.MustCompile(`(?s)\n## Step \d+: (.*?)\n(.*?)\n\*\*Build it`)

// Content returns the tour as JSON. The error is fs.ErrNotExist if the checkout, a top directory, is not there.
func Content(checkout fs.FS) ([]byte, error) {
	var content struct {
		Steps     []map[string]any `json:"steps"`
		Exercises []map[string]any `json:"exercises"`
	}
	text, err := fs.ReadFile(checkout, "docs/learn/tour.md")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(additions, &content); err != nil {
		return nil, err
	}
	found := stepPattern.FindAllStringSubmatch(string(text), -1)
	if len(found) != len(content.Steps) {
		return nil, errors.New("docs/learn/tour.md has other steps than additions.json")
	}
	for i, step := range content.Steps {
		step["title"] = found[i][1]
		if err := readStep(checkout, step, found[i][2]); err != nil {
			return nil, fmt.Errorf("docs/learn/tour.md, step %d: %w", i+1, err)
		}
	}
	for _, exercise := range content.Exercises {
		exercise["functions"], err = functionsIn(checkout, fmt.Sprint(exercise["read"]))
		if err != nil {
			return nil, fmt.Errorf("exercise %s: %w", exercise["name"], err)
		}
	}
	return json.Marshal(content)
}

// readStep adds to a step what its text in docs/learn/tour.md has.
func readStep(checkout fs.FS, step map[string]any, text string) (err error) {
	var blocks []block
	for _, b := range blocksOf(text) {
		invariant, isInvariant := strings.CutPrefix(b.Text, "**Invariant: ")
		switch {
		case isInvariant:
			step["invariant"] = strings.TrimSuffix(invariant, "**")
		case strings.HasPrefix(b.Text, "Read in "):
			step["functions"], err = functionsIn(checkout, b.Text)
		default:
			blocks = append(blocks, b)
		}
	}
	step["blocks"] = blocks
	return err
}
