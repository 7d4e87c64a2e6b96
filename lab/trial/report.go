package trial

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

// WriteTable writes the results as a table, a line for each row.
func WriteTable(w io.Writer, results []Result) {
	group := ""
	for _, r := range results {
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(w, "\n%s\n", group)
		}
		fmt.Fprintf(w, "  %s %-20s %s\n", r.Mark(), r.Name, r.Summary())
	}
	fmt.Fprintf(w, "\n%s\n", Count(results))
}

// Level is the verdict's colour in the page: good, bad or idle.
func (r Result) Level() string {
	switch {
	case r.saysNothing():
		return "idle"
	case r.Green():
		return "good"
	}
	return "bad"
}

// Mark is the sign for the level.
func (r Result) Mark() string {
	switch r.Level() {
	case "good":
		return "✓"
	case "bad":
		return "✗"
	}
	return "–"
}

// Count sums up the results.
func Count(results []Result) string {
	passed := 0
	failed := 0
	for _, r := range results {
		switch r.Level() {
		case "good":
			passed++
		case "bad":
			failed++
		}
	}
	text := fmt.Sprintf("%d rows passed, %d failed", passed, failed)
	if passed == 1 {
		text = strings.Replace(text, "rows", "row", 1)
	}
	if skipped := len(results) - passed - failed; skipped > 0 {
		text += fmt.Sprintf(", %d skipped or interrupted", skipped)
	}
	return text
}

// WriteStories writes the stories of the rows that have failed.
func WriteStories(w io.Writer, results []Result) {
	for _, r := range results {
		if !r.Green() {
			fmt.Fprintf(w, "\n%s", r.Story())
		}
	}
}

// Report is what WriteJSON writes.
type Report struct {
	Program string // as it was started
	Began   time.Time
	Seconds float64 // how long the trial took
	Results []Result
}

// WriteJSON writes the report as JSON.
func WriteJSON(w io.Writer, r Report) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	return encoder.Encode(r)
}

// WriteLines writes a line for each result, with tabs between group, name, verdict, seconds, requests and MiB.
func WriteLines(w io.Writer, r Report) error {
	_, err := fmt.Fprintf(w, "# %s, %.0f s: %s\n", r.Began.Format(time.DateOnly), r.Seconds, r.Program)
	for _, row := range r.Results {
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%d\t%.0f\n",
				row.Group, row.Name, row.Verdict, row.Seconds, row.Requests, row.Peak)
		}
	}
	return err
}

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"count": Count}).Parse(reportHTML))

// WriteHTML writes the report as a page that needs nothing else.
func WriteHTML(w io.Writer, r Report) error { return reportTemplate.Execute(w, r) }
