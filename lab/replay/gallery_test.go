package replay

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"podcount/internal/view/page"
	"podcount/lab/browser"
	"podcount/lab/testkit"
)

// Others may insert a script before or after the same line.
func TestFilmsKeepTheLineThatStarts(t *testing.T) {
	const before, after = "\nconst before = 1;", "const after = 1;\n"
	withOthers := strings.Replace(page.HTML, startOfLive, before+startOfLive+after, 1)
	text, err := WithFilms(withOthers)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantText(t, text, before+"\n"+script, gallery+"\nplayFilms();\n"+startOfLive+after)
}

func TestInsertNamesWhatIsMissing(t *testing.T) {
	got, err := Insert("a b a", "a", "1", "b", "2a", "a", "3")
	testkit.WantEqual(t, "the text", got, "13a 2ab a")
	testkit.WantEqual(t, "the error", err, nil)
	_, err = Insert("<head></head>", "</head>", "1", "<main>", "2")
	testkit.WantError(t, "another page", err, `the page has no place "<main>"`)
}

const twoFilms = `[{"name": "one", "title": "Film one", "about": "Watch the server."},
	{"name": "two", "title": "Film two", "about": "Watch it again."}]`

const aFilm = `{"title": "seed 17, only 1-30: podcount", "began": "2000-01-01T00:00:00Z",
	"lanes": ["server", "faults", "r0"], "steps": [
		{"lane": 0, "at": "2000-01-01T00:00:01Z", "point": "stored", "kind": "Pod", "key": "default/web-1"},
		{"lane": 1, "at": "2000-01-01T00:01:00Z", "point": "fault", "type": "server killed", "text": "THE SERVER IS KILLED",
			"number": 31}
	]}`

// serveFilms serves the page with these films. Its Content-Security-Policy allows nothing but the page's own blocks.
func serveFilms(t *testing.T, films map[string]string) *httptest.Server {
	html, err := WithFilms(page.HTML)
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{"index.html": {Data: []byte(html)}}
	for name, text := range films {
		files["films/"+name+".json"] = &fstest.MapFile{Data: []byte(text)}
	}
	server := httptest.NewServer(page.WithHeaders(html, http.FileServerFS(files)))
	t.Cleanup(server.Close)
	return server
}

func TestFilmsInChromiumPlay(t *testing.T) {
	chromium := browser.Start(t)
	server := serveFilms(t, map[string]string{"films": twoFilms, "one": aFilm})
	for _, width := range []int{400, 800, 1400} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			tab := chromium.NewTab(t, browser.Options{Width: width, IsDark: width == 800, HasReducedMotion: true})
			tab.Open(server.URL + "/#film-one")
			tab.Await("the film", `document.querySelector(".history-row[aria-current]")`)
			testkit.WantText(t, tab.Text("#machine"), "Film: Film one", "Watch the server.", "default/web-1")
			testkit.WantEqual(t, "the title", tab.Eval("document.title"), any("Film one · podcount"))
			tab.Press("f")
			tab.Click(".history-row[aria-current]")
			tab.Await("the details", `!document.querySelector("#details").hidden`)
			testkit.WantText(t, tab.Text("#details"), "THE SERVER IS KILLED")
			for _, hidden := range []string{"#live", "header nav"} {
				testkit.WantEqual(t, hidden+" is shown",
					tab.Eval(fmt.Sprintf("document.querySelector(%q).checkVisibility()", hidden)), any(false))
			}
			testkit.WantBetween(t, "the width", browser.Value[int](tab, "document.documentElement.scrollWidth"), 1, width)
			for _, problem := range axe(t, tab) {
				t.Error(problem)
			}
			tab.WantQuiet(server.URL)
		})
	}
}

// axe returns what is inaccessible, in a subtest that may be skipped.
func axe(t *testing.T, tab *browser.Tab) (problems []string) {
	t.Run("accessible", func(t *testing.T) { problems = tab.Axe(t) })
	return problems
}

func TestFilmsInChromiumLeadToOthers(t *testing.T) {
	chromium := browser.Start(t)
	server := serveFilms(t, map[string]string{"films": twoFilms, "one": aFilm})
	tab := chromium.NewTab(t, browser.Options{HasReducedMotion: true})
	tab.Open(server.URL + "/#machine")
	tab.Await("the films", `document.querySelector("#machine .films")`)
	testkit.WantEqual(t, "the films", tab.Text("#machine .films"), "Films, in another tab: Film one · Film two")
	testkit.WantEqual(t, "the other tab", tab.Eval(`document.querySelector(".films a").target`), any("_blank"))

	tab.Open(server.URL + "/?#film-two")
	tab.Await("the failure", `document.querySelector("#machine .about")`)
	testkit.WantText(t, tab.Text("#machine"), "This film cannot be shown: films/two.json: HTTP 404.")
	testkit.WantEqual(t, "the films", tab.Text("#machine .films"), "Films: Film one · Film two · podcount, live")

	tab.Follow(`a[href="#film-one"]`)
	tab.Await("the film", `document.querySelector(".history-row[aria-current]")`)
	tab.Follow(`a[href="#machine"]`)
	tab.Await("the live page", `document.querySelector("#board .lane") && document.querySelector("#machine .films")`)
	testkit.WantText(t, tab.Text("#machine"), "Inside podcount", "Films, in another tab: Film one")
}

func TestUnknownFilmInChromium(t *testing.T) {
	chromium := browser.Start(t)
	for films, want := range map[string]string{
		twoFilms: "there is no film three.\n\nFilms: Film one · Film two · podcount, live",
		"":       "films/films.json: HTTP 404.\n\nFilms: podcount, live",
	} {
		files := map[string]string{"films": films}
		if films == "" {
			files = nil
		}
		tab := chromium.NewTab(t, browser.Options{HasReducedMotion: true})
		tab.Open(serveFilms(t, files).URL + "/#film-three")
		tab.Await("the failure", `document.querySelector("#machine .about")`)
		testkit.WantText(t, tab.Text("#machine"), "This film cannot be shown: "+want)
	}
}

func TestPageInChromiumWithoutFilmsIsLive(t *testing.T) {
	chromium := browser.Start(t)
	tab := chromium.NewTab(t, browser.Options{HasReducedMotion: true})
	tab.Open(serveFilms(t, nil).URL + "/#machine")
	tab.Await("the request for the films", `performance.getEntriesByName(new URL("films/films.json", location)).length`)
	tab.Await("the live page", `document.querySelector("#board .lane")`)
	testkit.WantEqual(t, "a list of films", tab.Eval(`document.querySelector("#machine .films")`), any(nil))
}

// The page of a history is no page with films.
func TestWriteWritesNoGallery(t *testing.T) {
	var text bytes.Buffer
	if err := Write(&text, page.HTML, nil); err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "it has the gallery", strings.Contains(text.String(), "playFilms"), false)
}
