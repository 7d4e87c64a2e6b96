package page

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
)

//go:embed page.html
var historyPage []byte

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
	head, body, hasTitle := bytes.Cut(historyPage, []byte("<title>"))
	beforeScript, afterScript, hasScript := bytes.Cut(body, []byte("<script"))
	if !hasTitle || !hasScript {
		return errors.New("the page has no place for the history")
	}
	for _, part := range [][]byte{
		head, []byte(historyPolicy), []byte("<title>"), beforeScript,
		[]byte(`<script type="application/json" id="history">`), encoded, []byte("</script>\n"),
		[]byte("<script"), afterScript,
	} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}
