package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"podcount/lab/browser"
	"podcount/lab/testkit"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "4") // These tests wait most of their time.
	os.Exit(testkit.RunTests(m))
}

// TestSiteInChromium makes the site, which takes up to a minute, so only .ci/browser runs it.
func TestSiteInChromium(t *testing.T) {
	if os.Getenv("CHROMIUM") == "" {
		t.Skip("the site takes long to make: CHROMIUM=chromium runs this test")
	}
	chromium := browser.Start(t)
	dir := t.TempDir()
	t.Chdir("../..")
	var out testkit.Buffer
	if err := run(t.Context(), dir, "", "v1.2.3", &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	checkSize(t, dir)
	for _, row := range []struct {
		name  string
		check func(*testing.T, *siteTab)
	}{
		{"podcount and its buttons run in the tab, and fetch nothing else", checkButtons},
		{"replicas are workers", checkReplicas},
		{"what was loaded works without a network", checkOffline},
		{"each tab has a cluster of its own, and so has a reload", checkTwoTabs},
		{"the tour follows a pod of the tab", checkTour},
		{"each film plays, and leads back", checkFilms},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			tab := openSite(t, chromium, dir)
			tab.Open(tab.server.URL + "/#machine")
			tab.awaitPodcount()
			row.check(t, tab)
		})
	}
	t.Run("a tab that sleeps is told as a paused leader", func(t *testing.T) {
		t.Parallel()
		tab := openSite(t, chromium, dir)
		tab.before = "{ const New = Worker; window.Worker = function (...args) { return window.made = new New(...args); }; }"
		tab.Open(tab.server.URL + "/#machine")
		tab.awaitPodcount()
		tab.Eval(`window.sleepsSince = performance.now(), void made.postMessage("pause")`)
		tab.Await("the end of the sleep", fmt.Sprintf(`performance.now() - sleepsSince > %d`, 17_000))
		tab.Eval(`void made.postMessage("resume")`)
		tab.Await("what the page says", `document.querySelector("#reports-pause li").innerText.match(/done/)`)
		testkit.WantText(t, tab.Text("#reports-pause li"), "This tab slept for 1", "it was a paused leader",
			"The first replica leads, ")
	})
	for name, row := range map[string]struct{ before, missing, reason string }{
		"a browser without WebAssembly plays a film": {
			before: "delete window.WebAssembly;",
			reason: "this browser is too old, or WebAssembly is switched off",
		},
		"a site that lacks a file plays a film": {missing: "/worker.js", reason: "the server answers 404 for worker.js"},
	} {
		t.Run(name, func(t *testing.T) {
			tab := openSite(t, chromium, dir)
			tab.before, tab.missing, tab.isOffline = row.before, row.missing, row.missing != ""
			tab.Open(tab.server.URL)
			tab.Await("the film", `document.querySelector(".history-row[aria-current]")`)
			testkit.WantText(t, tab.Text("body"), "podcount cannot run here: "+row.reason+". This is a recording of it.",
				"Film: A lost event")
		})
	}
}

// checkSize checks how many bytes a browser fetches at most.
func checkSize(t *testing.T, dir string) {
	var size int64
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if info, err := file.Info(); err == nil && path.Ext(file.Name()) == ".gz" {
			size += info.Size()
		}
	}
	testkit.WantBetween(t, "bytes of the site, compressed", int(size), 1e6, 8e6)
}

// siteTab is a tab that shows the site.
type siteTab struct {
	*browser.Tab
	t        *testing.T
	chromium *browser.Browser
	server   *httptest.Server

	isOffline bool   // the server does not answer all requests, which the browser's console says
	missing   string // the path of a file that the server does not have
	before    string // a script that runs before that of the site

	mu      sync.Mutex // guards fetched
	fetched []string   // the paths that the server was asked for
}

// openSite serves the site for a new tab, which shows nothing yet.
func openSite(t *testing.T, chromium *browser.Browser, dir string) *siteTab {
	tab := &siteTab{t: t, chromium: chromium}
	files := http.FileServer(http.Dir(dir))
	tab.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tab.mu.Lock()
		tab.fetched = append(tab.fetched, r.URL.Path)
		tab.mu.Unlock()
		if tab.before != "" && r.URL.Path == "/site.js" {
			w.Header().Set("Content-Type", "text/javascript")
			io.WriteString(w, tab.before+"\n"+string(siteScript))
			return
		}
		if r.URL.Path == tab.missing {
			http.NotFound(w, r)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(tab.server.Close)
	tab.Tab = chromium.NewTab(t, browser.Options{})
	t.Cleanup(func() {
		isExpected := func(line string) bool { return tab.isOffline || strings.Contains(line, "https://example.com/") }
		if lines := slices.DeleteFunc(tab.Console(), isExpected); len(lines) > 0 {
			t.Errorf("the console has: %q", lines)
		}
	})
	return tab
}

// awaitPodcount waits until podcount answers.
func (tab *siteTab) awaitPodcount() {
	tab.t.Helper()
	tab.Await("podcount", `document.querySelector("#loading").hidden && page.hasHeard && !page.isLost &&
		document.querySelectorAll("#playground button").length === 13`)
}

// press presses a button, and waits until it has done its work. The report must have these texts.
func (tab *siteTab) press(name string, want ...string) {
	tab.t.Helper()
	tab.Eval(fmt.Sprintf(`document.querySelector("#playground li:has(#reports-%s) button").click()`, name))
	newest := fmt.Sprintf(`document.querySelector("#reports-%s li")`, name)
	tab.Await("the end of "+name, newest+`?.innerText.match(/ (done|failed) /)`)
	testkit.WantText(tab.t, tab.Text(fmt.Sprintf("#reports-%s li", name)), append(want, "done")...)
}

func checkButtons(t *testing.T, tab *siteTab) {
	tab.press("pod-more", "There is a new pod", "The label went from ")
	tab.press("kill-server", "podcount watched again ")
	tab.press("expire-history", "podcount began to list the pods again ")
	tab.press("pause", "The first replica does nothing any more.", "The first replica went on after 5",
		"Until then, it wrote 0 labels.")
	tab.Eval(`addEventListener("securitypolicyviolation", ({ blockedURI }) => { window.blocked = blockedURI; })`)
	tab.Eval(`fetch("https://example.com/").catch(() => {})`)
	tab.Await("the policy", `window.blocked === "https://example.com/"`)
	known := []string{"/", "/site.js", "/worker.js", "/offline.js", "/playground.wasm.gz", "/podcount.wasm.gz",
		"/tour.json"}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	for _, path := range tab.fetched {
		if !slices.Contains(known, path) && !strings.HasPrefix(path, "/films/") {
			t.Errorf("the page has fetched %s", path)
		}
	}
	for _, url := range tab.Requests() {
		isOwn := strings.HasPrefix(url, tab.server.URL+"/") || strings.HasPrefix(url, "blob:"+tab.server.URL+"/")
		if !isOwn && url != "https://example.com/" {
			t.Errorf("the page has requested %s", url)
		}
	}
}

func checkReplicas(t *testing.T, tab *siteTab) {
	tab.press("restart", "The first replica has stopped", "The first replica was started")
	tab.press("second-replica", "The second replica was started.", "The first replica still leads.")
	tab.Await("the other button", `document.querySelector("#playground").innerText.includes("Stop the leader")`)
	tab.press("second-replica", "The second replica leads", "It waits now.")
}

func checkOffline(t *testing.T, tab *siteTab) {
	tab.Await("the kept files", `navigator.serviceWorker.controller`)
	tab.server.Close()
	tab.isOffline = true
	tab.press("restart", "The first replica was started")
	kept := browser.Value[int](tab.Tab, `(async () => {
		const [name] = await caches.keys();
		const requests = await (await caches.open(name)).keys();
		const answers = await Promise.all(requests.map(({ url }) => fetch(url)));
		return answers.filter(({ ok }) => ok).length;
	})()`)
	testkit.WantNumber(t, "files for a visit without a network", kept, 12)
}

func checkTwoTabs(t *testing.T, tab *siteTab) {
	tab.press("pod-more", "There is a new pod")
	other := &siteTab{t: t, Tab: tab.chromium.NewTab(t, browser.Options{})}
	other.Open(tab.server.URL + "/#machine")
	other.awaitPodcount()
	testkit.WantEqual(t, "reports in another tab", other.Text("#reports-pod-more li"), "")
	tab.Open("about:blank")
	tab.Open(tab.server.URL + "/#machine")
	tab.awaitPodcount()
	testkit.WantEqual(t, "reports after a reload", tab.Text("#reports-pod-more li"), "")
}

func checkTour(t *testing.T, tab *siteTab) {
	for step := 1; step <= 10; step++ {
		tab.Eval(fmt.Sprintf(`location.hash = "#step-%d"`, step))
		tab.Await(fmt.Sprint("step ", step),
			fmt.Sprintf(`document.querySelector("#tour-title").innerText.startsWith("Step %d:")`, step))
		if step == 2 {
			tab.Click(".tour-now button:not([hidden])")
		}
		if step >= 2 && step <= 8 {
			tab.Await("what it explains",
				`document.querySelector(".tour-now").innerText.includes("The display has come to this")`)
		}
		testkit.WantText(t, tab.Text("#tour"), "What always holds", "The code")
	}
	tab.Eval(`location.hash = "#lost-event"`)
	tab.Await("the exercise", `document.querySelector("#tour-title").innerText === "Exercise: A lost event"`)
	tab.Click("#tour fieldset label:nth-of-type(2) input")
	tab.Click("#tour .controls button.plain")
	tab.Await("what has happened", `document.querySelector("#tour").innerText.includes("Your guess was right.")`)
}

func checkFilms(t *testing.T, tab *siteTab) {
	tab.Await("the films", `document.querySelectorAll("#machine .films a").length === 5`)
	for _, name := range []string{"lost-event", "restored-backup", "silent-leader", "returning-crowd", "410"} {
		tab.Open(fmt.Sprintf("%s/?%[2]s#film-%[2]s", tab.server.URL, name))
		tab.Await("film "+name, `document.querySelector(".history-row[aria-current]")`)
		testkit.WantEqual(t, "the loading sentence is gone", tab.Eval(`document.querySelector("#loading").hidden`), any(true))
	}
	tab.Follow(`a[href="#machine"]`)
	tab.awaitPodcount()
}
