// Package replay makes podcount's web page show a history, such as the simulator records, instead of a running
// podcount.
package replay

import (
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// historyPolicy is the Content-Security-Policy of a page with a history. It is a file, which has no headers.
const historyPolicy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; ` +
	`img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">` + "\n"

// podcount's own page has neither of these.
//
//go:embed replay.css
var style string

//go:embed replay.js
var script string

// startOfLive is the line of the page's script that begins to show a running podcount.
const startOfLive = "\nstartLive();\n"

// Write writes podcount's page with a history, which it replays. The page needs nothing but itself. The history is in
// the element with the id history, as JSON.
func Write(w io.Writer, page string, history any) error {
	// encoding/json escapes <, > and &, so no name in the history can end the element.
	encoded, err := json.Marshal(history)
	if err != nil {
		return err
	}
	beforeTitle, rest, hasTitle := strings.Cut(page, "<title>")
	styles, rest, hasHeadEnd := strings.Cut(rest, "</head>")
	elements, rest, hasScript := strings.Cut(rest, "<script")
	functions, rest, hasStart := strings.Cut(rest, startOfLive)
	if !hasTitle || !hasHeadEnd || !hasScript || !hasStart {
		return errors.New("the page has no place for the history")
	}
	for _, part := range []string{
		beforeTitle,
		historyPolicy,
		"<title>" + styles,
		"<style>\n" + style + "</style>\n",
		"</head>" + elements,
		`<script type="application/json" id="history">`, string(encoded), "</script>\n",
		"<script" + functions,
		"\n" + script,
		rest,
	} {
		if _, err := io.WriteString(w, part); err != nil {
			return err
		}
	}
	return nil
}
