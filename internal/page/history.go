package page

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// historyPolicy is the Content-Security-Policy of a page with a history. It is a file, which has no headers.
const historyPolicy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; ` +
	`img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">` + "\n"

// History writes a page that replays a history, such as the simulator makes, instead of showing a running podcount. The
// page needs nothing but itself. The history is in the element with the id history, as JSON.
func History(w io.Writer, history any) error {
	// encoding/json escapes <, > and &, so no name in the history can end the element.
	encoded, err := json.Marshal(history)
	if err != nil {
		return err
	}
	head, body, hasTitle := strings.Cut(html, "<title>")
	beforeScript, afterScript, hasScript := strings.Cut(body, "<script")
	if !hasTitle || !hasScript {
		return errors.New("the page has no place for the history")
	}
	for _, part := range []string{
		head, historyPolicy, "<title>", beforeScript,
		`<script type="application/json" id="history">`, string(encoded), "</script>\n",
		"<script", afterScript,
	} {
		if _, err := io.WriteString(w, part); err != nil {
			return err
		}
	}
	return nil
}
