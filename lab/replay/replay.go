// Package replay makes podcount's web page show a history, such as the simulator records, instead of a running
// podcount or beside it.
package replay

import (
	_ "embed"
	"encoding/json"
	"io"
)

// historyPolicy is the Content-Security-Policy of a page with a history. It is a file, which has no headers.
const historyPolicy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; ` +
	`img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">` + "\n"

// podcount's own page has none of these.
//
//go:embed replay.css
var css string

//go:embed replay.js
var script string

//go:embed gallery.js
var gallery string

var style = "<style>\n" + css + "</style>\n"

// startOfLive is the line of the page's script that begins to show a running podcount.
const startOfLive = "\nstartLive();\n"

// startOfHistory begins to replay the history that is on the page.
const startOfHistory = `
preventLive("A recorded simulation");
startReplay(JSON.parse(byId("history").textContent));
`

// Write writes podcount's page with a history, which it replays. The page needs nothing but itself. The history is in
// the element with the id history, as JSON.
func Write(w io.Writer, page string, history any) error {
	// encoding/json escapes <, > and &, so no name in the history can end the element.
	encoded, err := json.Marshal(history)
	if err != nil {
		return err
	}
	page, err = Insert(page,
		"</head>", style,
		startOfLive, "\n"+script+startOfHistory,
		"<title>", historyPolicy,
		"<script", `<script type="application/json" id="history">`+string(encoded)+"</script>\n")
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, page)
	return err
}

// WithFilms returns podcount's page as one that also plays films. It is live unless its address ends with #film-NAME:
// then it plays the history in films/NAME.json. The file films/films.json names all films, as films.Check writes it.
//
// What else the live page needs must be on the page already.
func WithFilms(page string) (string, error) {
	return Insert(page, "</head>", style, startOfLive, "\n"+script+gallery+"\nplayFilms();\n")
}
