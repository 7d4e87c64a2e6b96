package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// testPage is a page with what the kit looks at. Its button makes a row a little later.
const testPage = `<!doctype html>
<html lang="en">
<head>
<title>Test</title>
<link rel="icon" href="data:,">
<style>:focus-visible { outline: 2px solid blue } #bare:focus { outline: none }</style>
</head>
<body>
<main>
<h1>Test</h1>
<button id="more">One more</button>
<a id="bare" href="#here">Here</a>
<input aria-label="Word">
<ul></ul>
<div style="height: 3000px"></div>
<button id="far">Far</button>
</main>
<script>
  const add = () => document.querySelector("ul").append(document.createElement("li"));
  document.querySelector("#more").addEventListener("click", () => setTimeout(add, 100));
  document.querySelector("#far").addEventListener("click", () => document.title = "far");
</script>
</body>
</html>`

// serve serves a page at /, with a Content-Security-Policy for /strict.
func serve(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, testPage) })
	mux.HandleFunc("GET /strict", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		fmt.Fprint(w, testPage)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func TestKitInChromium(t *testing.T) {
	server := serve(t)
	chromium := Start(t)
	tests := []struct {
		name string
		test func(t *testing.T, tab *Tab, url string)
	}{
		{"the console shows what goes wrong", testConsole},
		{"the console shows what the policy forbids", testPolicy},
		{"requests are all noted", testRequests},
		{"keys move the focus, press buttons and write", testKeys},
		{"Focus tells an element without an outline", testFocus},
		{"Axe finds a button without a name", testAxe},
		{"Frames counts frames and long tasks", testFrames},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.test(t, chromium.NewTab(t, Options{Width: 800, Height: 600}), server.URL)
		})
	}
	t.Run("a dark phone", func(t *testing.T) {
		tab := chromium.NewTab(t, Options{Width: 360, Height: 740, IsDark: true, IsMobile: true, HasReducedMotion: true})
		tab.Open(server.URL)
		for _, query := range []string{"(prefers-color-scheme: dark)", "(prefers-reduced-motion)", "(pointer: coarse)"} {
			if tab.Eval("matchMedia("+quote(query)+").matches") != true {
				t.Errorf("%s does not match", query)
			}
		}
	})
}

func testConsole(t *testing.T, tab *Tab, url string) {
	tab.Open(url)
	tab.Eval(`{
		console.error("an error", 7);
		console.warn("a warning");
		console.log("a line");
		setTimeout(() => { throw new Error("uncaught"); });
		Promise.reject(new Error("rejected"));
		fetch("/missing").then(() => new Promise((done) => setTimeout(done)));
	}`)
	console := strings.Join(tab.Console(), "\n")
	for _, want := range []string{"an error 7", "a warning", "Error: uncaught", "Error: rejected", "404", "/missing"} {
		if !strings.Contains(console, want) {
			t.Errorf("no %q in the console:\n%s", want, console)
		}
	}
	if strings.Contains(console, "a line") {
		t.Errorf("a mere line is in the console:\n%s", console)
	}
}

func testPolicy(t *testing.T, tab *Tab, url string) {
	tab.Open(url + "/strict")
	console := strings.Join(tab.Console(), "\n")
	if !strings.Contains(console, "Content Security Policy") {
		t.Errorf("the console says nothing about the policy:\n%s", console)
	}
}

func testRequests(t *testing.T, tab *Tab, url string) {
	tab.Open(url)
	tab.Eval(`fetch("http://elsewhere.test/x").catch(() => {})`)
	for _, want := range []string{url + "/", "http://elsewhere.test/x"} {
		if !slices.Contains(tab.Requests(), want) {
			t.Errorf("no %s among %s", want, tab.Requests())
		}
	}
}

func testKeys(t *testing.T, tab *Tab, url string) {
	tab.Open(url)
	tab.Press("Tab")
	tab.Press("Enter")
	tab.Press("Space")
	tab.Await("two rows", `document.querySelectorAll("li").length === 2`)
	tab.Press("Tab")
	tab.Press("Tab")
	tab.Press("a")
	tab.Press("B")
	tab.Await("the word", `document.querySelector("input").value === "aB"`)
	tab.Press("Shift+Tab")
	if got := tab.Focus().Name; got != "Here" {
		t.Errorf("the focus is on %q", got)
	}
}

func testFocus(t *testing.T, tab *Tab, url string) {
	tab.Open(url)
	if got := tab.Focus(); got != nil {
		t.Errorf("got %v before a key", *got)
	}
	tab.Press("Tab")
	want := Focus{Element: "button#more", Role: "button", Name: "One more", IsOutlined: true}
	if got := tab.Focus(); *got != want {
		t.Errorf("got %v, want %v", *got, want)
	}
	tab.Press("Tab")
	want = Focus{Element: "a#bare", Role: "link", Name: "Here", IsOutlined: false}
	if got := tab.Focus(); *got != want {
		t.Errorf("got %v, want %v", *got, want)
	}
}

func testAxe(t *testing.T, tab *Tab, url string) {
	tab.Open(url)
	if problems := tab.Axe(t); len(problems) > 0 {
		t.Errorf("the page has problems: %s", problems)
	}
	tab.Eval(`document.querySelector("main").append(document.createElement("button"))`)
	if problems := tab.Axe(t); len(problems) != 1 || !strings.Contains(problems[0], "button-name") {
		t.Errorf("a button without a name: got %s", problems)
	}
}

func testFrames(t *testing.T, tab *Tab, url string) {
	tab.Open(url)
	// The long task comes again and again, because a busy machine may begin to count late.
	tab.Eval(`setInterval(() => { for (const end = Date.now() + 200; Date.now() < end;); }, 500)`)
	frames := tab.Frames(1)
	if frames.PerSecond < 5 || frames.LongTasks < 1 || frames.LongTotal < 150 || frames.Longest < 100 {
		t.Errorf("got %+v", frames)
	}
}
