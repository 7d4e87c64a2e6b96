package page

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

// The style and the script of the replay. podcount's own page does not have them.
//
//go:embed replay.css
var replayStyle string

//go:embed replay.js
var replayScript string

// startOfLive is the line of the page's script that begins to show a running podcount.
const startOfLive = "\nstartLive();\n"

// History writes a page that replays a history, such as the simulator makes, instead of showing a running podcount. The
// page needs nothing but itself. The history is in the element with the id history, as JSON.
func History(w io.Writer, history any) error {
	// encoding/json escapes <, > and &, so no name in the history can end the element.
	encoded, err := json.Marshal(history)
	if err != nil {
		return err
	}
	beforeTitle, rest, hasTitle := strings.Cut(html, "<title>")
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
		"<style>\n" + replayStyle + "</style>\n",
		"</head>" + elements,
		`<script type="application/json" id="history">`, string(encoded), "</script>\n",
		"<script" + functions,
		"\n" + replayScript,
		rest,
	} {
		if _, err := io.WriteString(w, part); err != nil {
			return err
		}
	}
	return nil
}
