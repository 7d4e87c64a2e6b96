package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/internal/view/trace"
	"podcount/lab/browser"
	"podcount/lab/replay"
	"podcount/lab/testkit"
)

// TestPageInChromium looks at the page as people do. Its parts that measure time come first, because the others run at
// once.
func TestPageInChromium(t *testing.T) {
	chromium := browser.Start(t)
	t.Run("a pod more is shown within a second", func(t *testing.T) { testChangeIsShownSoon(t, chromium) })
	t.Run("other parts", func(t *testing.T) {
		t.Run("a restart of podcount is shown", func(t *testing.T) { testRestart(t, chromium) })
		t.Run("what a controller waits for is shown", func(t *testing.T) { testWaitsAreShown(t, chromium) })
		t.Run("the labels come first", func(t *testing.T) { testLabelsComeFirst(t, chromium) })
		t.Run("an outage is said once", func(t *testing.T) { testOutageIsSaidOnce(t, chromium) })
		t.Run("pods come before nodes", func(t *testing.T) { testOrderOfKinds(t, chromium) })
		t.Run("the numbers follow the slider", func(t *testing.T) { testNumbersFollowTheSlider(t, chromium) })
		t.Run("a request that fails says why", func(t *testing.T) { testFailedRequest(t, chromium) })
		t.Run("the way back is through the views", func(t *testing.T) { testBack(t, chromium) })
		t.Run("nothing moves when a button is pressed", func(t *testing.T) { testButtons(t, chromium) })
		t.Run("steps follow what a button has made", func(t *testing.T) { testFollow(t, chromium) })
		t.Run("the filter tells kinds from controllers", func(t *testing.T) { testFilter(t, chromium) })
		t.Run("what was left out is not said for ever", func(t *testing.T) { testLeftOut(t, chromium) })
		t.Run("the cause of a change is the patch", func(t *testing.T) { testCauseOfChange(t, chromium) })
		t.Run("a key is in one box", func(t *testing.T) { testKeyIsInOneBox(t, chromium) })
		t.Run("a step without a text ends nothing", func(t *testing.T) { testEmptyText(t, chromium) })
		t.Run("a hidden page has no stream", func(t *testing.T) { testHiddenPage(t, chromium) })
		t.Run("a failed key is explained", func(t *testing.T) { testFailedKeyIsExplained(t, chromium) })
		t.Run("a rest is explained", func(t *testing.T) { testRestIsExplained(t, chromium) })
		t.Run("a refusal is no restart", func(t *testing.T) { testRefusal(t, chromium) })
		t.Run("names are text on the cluster", func(t *testing.T) { testNamesOnTheCluster(t, chromium) })
		t.Run("names are text on the machine", func(t *testing.T) { testNamesOnTheMachine(t, chromium) })
		t.Run("the keyboard reaches everything", func(t *testing.T) { testKeyboard(t, chromium) })
		t.Run("the keyboard chooses the view and the theme", func(t *testing.T) { testKeyboardChooses(t, chromium) })
		t.Run("a click shows what a step was", func(t *testing.T) { testStepIsExplained(t, chromium) })
		t.Run("a paused display goes on step by step", func(t *testing.T) { testStepByStep(t, chromium) })
		t.Run("a history is replayed", func(t *testing.T) { testReplay(t, chromium) })
		for _, look := range looks {
			t.Run("a page that is "+look.name, func(t *testing.T) { testLook(t, chromium.NewTab(t, look.options)) })
		}
	})
}

// slack is how much longer than it should something may take on a busy machine.
const slack = time.Second

// testChangeIsShownSoon lets pods come at different moments of the second in which the page hears of them once. The
// page itself notes the time when it shows each.
func testChangeIsShownSoon(t *testing.T, chromium *browser.Browser) {
	p := newProgram(wellState())
	tab := chromium.NewTab(t, browser.Options{})
	server := show(t, p, "127.0.0.1:0")
	openView(tab, server.url, "cluster")
	var all []time.Duration
	for i := range 3 {
		want := 5000 + i
		tab.Eval(fmt.Sprintf(noteScript, "cluster", fmt.Sprintf("5,00%d", i)))
		changed := p.change(func(s *State) { s.Kinds = withObjects(s.Kinds, want) })
		seen := time.UnixMilli(int64(browser.Value[float64](tab, "seen")))
		all = append(all, seen.Sub(changed))
		tab.Eval(fmt.Sprintf("new Promise((done) => setTimeout(done, %d))", 200*i)) // another moment of the second
	}
	t.Logf("from the change to the page: %s", all)
	testkit.WantBetween(t, "from the change to the page", slices.Max(all), 0, time.Second+slack)
	tab.WantQuiet(server.url)
}

// noteScript notes the time at which a view first shows a text.
const noteScript = `window.seen = new Promise((resolve) => {
  const view = document.getElementById(%q);
  const observer = new MutationObserver(() => {
    if (!view.textContent.includes(%q)) return;
    observer.disconnect();
    resolve(Date.now());
  });
  observer.observe(view, {subtree: true, childList: true, characterData: true});
}), 0`

// withObjects returns kinds with another number of objects of the first. A state that the page reads is not changed.
func withObjects(kinds []Kind, objects int) []Kind {
	kinds = slices.Clone(kinds)
	kinds[0].Objects = objects
	return kinds
}

func testRestart(t *testing.T, chromium *browser.Browser) {
	t.Parallel()
	server := show(t, newProgram(wellState()), "127.0.0.1:0")
	tab := chromium.NewTab(t, browser.Options{})
	openView(tab, server.url, "cluster")
	title := tab.Eval("document.title").(string)
	server.stop()
	tab.Await("that podcount is lost", `document.querySelector("[role=alert]").innerText.includes("Lost podcount")`)
	tab.Await("another title", fmt.Sprintf("document.title !== %q", title))
	testkit.WantText(t, tab.Text("#connection"), "No word for", "tries again by itself")

	next := wellState()
	next.Host = "podcount-next"
	show(t, newProgram(next), strings.TrimPrefix(server.url, "http://"))
	tab.Await("that podcount is back", `document.querySelector("[role=alert]").innerText.includes("podcount is back")`)
	tab.Await("the new process", `document.querySelector("#cluster").innerText.includes("podcount-next")`)
	tab.Await("the title as before", fmt.Sprintf("document.title === %q", title))
	for _, line := range tab.Console() {
		if !strings.Contains(line, "net::ERR_CONNECTION_REFUSED") && !strings.Contains(line, "net::ERR_INCOMPLETE_CHUNKED") {
			t.Errorf("the console says: %s", line)
		}
	}
}

// testWaitsAreShown gives the page states in which a controller waits, and reads at once what it shows.
func testWaitsAreShown(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "cluster")
	for _, test := range []struct{ controller, want string }{
		{`{"begun": true, "waits": ""}`, "Working. Nothing fails."},
		{`{"begun": false, "waits": "Count to be installed"}`, "Working. Nothing fails."},
		{`{"begun": false, "waits": "Count to be installed"}`, "idle: waits for Count to be installed"},
		{`{"begun": false, "waits": "the confirmation of its caches"}`, "It waits for the confirmation of its caches."},
		{`{"begun": false, "waits": "the confirmation of its caches"}`, "About to begin: count"},
		{`{"begun": false}`, "It waits for its caches."},
	} {
		shown := tab.Eval(fmt.Sprintf(`(() => {
			const count = {name: "count", ready: 0, waiting: 0, failingCount: 0, ...%s};
			page.emit("state", {controllers: [count], writes: {}, events: {}, started: new Date(), upSeconds: 1});
			return document.querySelector("#verdict").innerText + document.querySelector("#controllers").innerText;
		})()`, test.controller))
		testkit.WantText(t, shown.(string), test.want)
	}
}

// emitState shows a state of which only these members are not empty, and returns what the cluster's view then says.
func emitState(tab *browser.Tab, members string) string {
	return tab.Eval(fmt.Sprintf(`page.emit("state", {writes: {}, events: {}, started: new Date(), upSeconds: 1, %s}),
		document.querySelector("#cluster").innerText`, members)).(string)
}

// testLabelsComeFirst gives the page states of the labels, and reads at once what it shows.
func testLabelsComeFirst(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "cluster")
	const (
		total = `name: "hopegi/pod-count", known: true, value: "605", nodes: ["cp-1"], nodeCount: 1, wrong: [],
			wrongCount: 0, secondsRight: 12, secondsSinceWrite: 13`
		isWrong = `wrong: ["cp-1"], wrongCount: 1, secondsRight: null`
		own     = `name: "hopegi/pods", own: true, known: true, nodes: [], nodeCount: 600, wrong: [], wrongCount: 0,
			secondsRight: 1, secondsSinceWrite: null`
		fails = `controllers: [{name: "pod-count", begun: true, failingCount: 1, failing: [{key: "cp-1",
			error: "PATCH nodes/cp-1: 403 Forbidden", advice: "Grant patch on nodes."}]}]`
	)
	for _, test := range []struct {
		label, members string
		want           []string
	}{
		{total, "", []string{"hopegi/pod-count =\u00a0605\n", "on cp-1\n", "right for 12 s · written 13 s ago"}},
		{total + `, nodes: ["cp-1", "cp-2", "cp-3"], nodeCount: 5`, "", []string{"on cp-1, cp-2 and 3 more nodes"}},
		{total + `, nodes: ["cp-1", "cp-2", "cp-3"], nodeCount: 3`, "", []string{"on cp-1, cp-2 and cp-3"}},
		{total + `, nodes: [], nodeCount: 0`, "", []string{"on no node", "-total-nodes '' chooses all"}},
		{total + `, known: false, value: ""`, "", []string{"hopegi/pod-count\n", "Not known yet"}},
		{total + "," + isWrong, "", []string{"hopegi/pod-count should be\u00a0605", "wrong on cp-1, being written"}},
		{total + "," + isWrong, fails, []string{"The label of cp-1 could not be written",
			"PATCH nodes/cp-1: 403 Forbidden. Grant patch on nodes.", "wrong on cp-1 · last written"}},
		{total + "," + isWrong, `mode: "dry run"`,
			[]string{"hopegi/pod-count would be\u00a0605", "a dry run writes nothing"}},
		{total + "," + isWrong, `mode: "prune"`, []string{"hopegi/pod-count is being removed", "still on cp-1"}},
		{total, `lease: {ours: false, known: true, holder: "podcount-b"}`,
			[]string{"right for 12 s · podcount-b leads, and writes it"}},
		{own, "", []string{"hopegi/pods: right on all 600 nodes"}},
		{own + `, wrong: ["w-1", "w-2", "w-3"], wrongCount: 3, secondsRight: null`, "",
			[]string{"hopegi/pods: wrong on 3 of 600 nodes", "wrong on w-1, w-2 and w-3, being written"}},
	} {
		testkit.WantText(t, emitState(tab, fmt.Sprintf("labels: [{%s}], %s", test.label, test.members)), test.want...)
	}
	tab.Await("the title", `document.title === "… hopegi/pods: wrong on 3 of 600 nodes · podcount"`)
}

func testOutageIsSaidOnce(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "cluster")
	const outage = `labels: [{name: "pods", known: true, value: "7", nodes: ["cp-1"], nodeCount: 1,
			wrong: ["cp-1"], wrongCount: 1, secondsRight: null, secondsSinceWrite: 55}],
		silence: {seconds: 40.2, secondsUntilTry: 6.3, error: "connection refused", advice: "Start it."},
		kinds: ["Pod", "Node"].map((name) => ({name, ready: true, objects: 7, problem: "list " + name + " fails"}))`
	text := emitState(tab, outage)
	testkit.WantText(t, text, "The API server has not answered for 40 s; the label is that old. Next try in 7 s.",
		"connection refused. Start it.", "pods should be\u00a07", "last known 40 s ago · last written 55 s ago")
	for _, hidden := range []string{"list Pod fails", "being written"} {
		if strings.Contains(text, hidden) {
			t.Errorf("the page says %q beside the outage", hidden)
		}
	}
	tab.Eval(`document.querySelector("#more").open = true`)
	testkit.WantText(t, emitState(tab, outage), "Lists or watches of Node fail", "list Pod fails")
	text = emitState(tab, `labels: [], kinds: [{name: "Count", problem: "GET counts: 403 Forbidden"}]`)
	testkit.WantText(t, text, "Lists or watches of Count fail", "GET counts: 403 Forbidden")
}

func testOrderOfKinds(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "cluster")
	text := emitState(tab, `waiting: ["Pod", "Node", "Count (it is not known …)"],
		kinds: ["Pod", "Node", "Count"].map((name) => ({name, objects: 7, problem: "it is refused"}))`)
	testkit.WantText(t, text, "Waiting: Pod, Node, Count (it")
	_, cards, _ := strings.Cut(text, "What it watches")
	if pods := strings.Index(cards, "Pod"); pods < 0 || pods > strings.Index(cards, "Node") {
		t.Errorf("the cards are not in order: %s", cards)
	}
}

func testNumbersFollowTheSlider(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "cluster")
	text := tab.Eval(`(() => {
		const last = Date.parse("2000-01-01T00:10:00Z");
		page.emit("samples", Array.from({length: 601}, (_, i) => (
			{at: new Date(last + (i - 600) * 1000), pods: i < 300 ? 33 : 36, events: 1, writes: 0})));
		const slider = document.querySelector("#moment");
		const before = document.querySelector("#lines").innerText;
		slider.value = -400;
		slider.dispatchEvent(new Event("input"));
		return [before, document.querySelector("#lines").innerText].join("; then ");
	})()`).(string)
	before, after, _ := strings.Cut(text, "; then ")
	testkit.WantText(t, before, "36 in the cache, now", "1 a second, now")
	testkit.WantText(t, after, "33 in the cache, at ", ":03:20", "1 a second, at ")
}

func testFailedRequest(t *testing.T, chromium *browser.Browser) {
	p, tab := open(t, chromium, "machine")
	const err = "https://h:1, from /k: dial tcp [::1]:1: connect: connection refused (does it run: there?)"
	p.trace.Emit(trace.Step{Point: trace.Request, Type: "GET", Text: "/api/v1/pods?watch=1", Code: "<error>", Error: err})
	tab.Await("the request", `document.querySelector("[data-lane=server] .chip")`)
	openDetails(tab, "[data-lane=server] .chip")
	testkit.WantText(t, tab.Text("#details"), "GET failed: connection refused (watch pods)", err, "asks again later")
}

func testBack(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "machine")
	tab.Click("#show-cluster")
	for _, view := range []string{"machine", "cluster"} {
		tab.Eval("history.back()")
		tab.Await("the "+view, fmt.Sprintf(`!document.getElementById(%q).hidden && page.view === %[1]q`, view))
	}
	tab.Eval(`page.viewAt = () => "machine", page.on("address", (address) => window.claimed = address)`)
	tab.Eval(`location.hash = "elsewhere"`)
	tab.Await("the view that a script gives an address", `claimed === "elsewhere" && page.view === "machine"`)
}

// twoButtons are those of a playground, and pod is what one of them reports.
const (
	twoButtons = `{"buttons": [{"name": "pod-more", "label": "One pod more", "expect": "A pod is created."},
		{"name": "wave", "label": "A wave", "expect": "Pods come."}]}`
	pod = `{"run": 1, "name": "pod-more", "state": %q, "text": "There is a new pod, web-1. The label went from 1 to 2."}`
)

// openPlayground opens the view of the machine, with two buttons.
func openPlayground(t *testing.T, chromium *browser.Browser, o browser.Options) (*program, *browser.Tab) {
	p := newProgram(wellState())
	p.playground = &playground{
		buttons:  twoButtons,
		refusals: map[string]string{"wave": "another one is still going on: press again when it is done"},
		reports:  make(chan string),
	}
	server := show(t, p, "127.0.0.1:0")
	o.HasReducedMotion = true
	tab := chromium.NewTab(t, o)
	openMachine(tab, server.url)
	tab.Await("the buttons", `document.querySelectorAll("#playground button").length === 2`)
	return p, tab
}

func testButtons(t *testing.T, chromium *browser.Browser) {
	t.Parallel()
	for _, o := range []browser.Options{{Width: 1440}, {Width: 400, Height: 800, IsMobile: true}} {
		p, tab := openPlayground(t, chromium, o)
		const say = `document.querySelector("#playground").innerText.includes(%q)`
		top := func() float64 {
			return browser.Value[float64](tab, `document.querySelector("#board").getBoundingClientRect().top + scrollY`)
		}
		before := top()
		testkit.WantText(t, tab.Text("#playground"), "A pod is created.")
		tab.Click("#playground li:first-child button")
		tab.Await("the run", fmt.Sprintf(say, "… running"))
		tab.Click("#playground li:first-child button")
		tab.Await("the same run", fmt.Sprintf(say, "… still running"))
		p.playground.reports <- fmt.Sprintf(pod, "done")
		tab.Await("the end", fmt.Sprintf(say, "✓ done There is a new pod"))
		testkit.WantNumber(t, "presses", int(p.playground.presses.Load()), 1)

		tab.Click("#playground li:last-child button")
		tab.Await("the refusal", fmt.Sprintf(say, "– not pressed: another one is still going on"))
		if text := tab.Text("#playground"); strings.Contains(text, "failed") || strings.Contains(text, "done There") {
			t.Errorf("the buttons say: %s", text)
		}
		tab.Press("n")
		tab.Await("a sentence about steps", `document.querySelector("#now").innerText.includes("No step waits")`)
		testkit.WantNumber(t, "pixels that the lanes have moved", int(top()-before), 0)
	}
}

// testFollow lets a button make a pod while another one comes, too.
func testFollow(t *testing.T, chromium *browser.Browser) {
	t.Parallel()
	p, tab := openPlayground(t, chromium, browser.Options{})
	add := func(names ...string) {
		for _, name := range names {
			p.trace.Emit(trace.Step{Point: trace.Frame, Kind: "Pod", Key: name, Type: "ADDED", Version: "7"})
			p.trace.Emit(trace.Step{Point: trace.Change, Kind: "Pod", Key: name, Type: "added", Version: "7"})
		}
	}
	add("default/other-before")
	tab.Await("its steps", `document.querySelectorAll(".chip").length === 2`)
	tab.Press("p")
	add("default/other", "default/web-1", "default/web-10")
	p.trace.Emit(trace.Step{Point: trace.Added, Controller: "nodes", Key: "node-1"})
	tab.Await("the steps", `document.querySelector("#pace").innerText.includes("7 steps")`)
	p.playground.reports <- fmt.Sprintf(pod, "running")
	tab.Await("the pod", `document.querySelector("#now").innerText.includes("follows Pod default/web-1, which")`)
	tab.Await("lanes without the others", `document.querySelectorAll(".chip").length === 0`)
	tab.Press("n")
	tab.Press("n")
	tab.Await("the end of its story", `document.querySelectorAll(".chip").length === 2`)
	tab.Press("n")
	tab.Await("that nothing follows", `document.querySelector("#now").innerText.includes("No step of Pod default/web-1")`)
	if text := tab.Text("#board"); strings.Contains(text, "default/other") || strings.Contains(text, "web-10") {
		t.Errorf("the lanes show: %s", text)
	}
	tab.Click("#show-all")
	p.trace.Emit(trace.Step{Point: trace.Frame, Kind: "Pod", Key: "default/web-1", Type: "MODIFIED", Version: "8"})
	p.trace.Emit(trace.Step{Point: trace.Change, Kind: "Pod", Key: "default/other", Type: "changed"})
	tab.Await("other steps", `document.querySelector("#pace").innerText.includes("2 steps")`)
	p.playground.reports <- fmt.Sprintf(pod, "done")
	tab.Await("the last report", `document.querySelector("#playground").innerText.includes("✓ done")`)
	tab.Press("n")
	tab.Press("n")
	tab.Await("the other pod", `document.querySelector("#board").innerText.includes("default/other")`)

	openDetails(tab, "[data-lane=cache] li:last-child .chip")
	tab.Click("#details .head button")
	tab.Await("what was chosen", `document.querySelector("#only").value === "Pod default/other"`)
}

func testFilter(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "machine")
	groups := browser.Value[string](tab, `[...document.querySelectorAll("#only optgroup:not([hidden])")]
		.map((group) => group.label + ": " + [...group.children].map((option) => option.value).join()).join("; ")`)
	testkit.WantEqual(t, "the groups", groups, "Kinds: Pod,Node; Controllers: nodes")
}

func testLeftOut(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "machine")
	const says = `document.querySelector("#pace").innerText.includes("Left out, because too many came: 287 steps.")`
	tab.Eval(`window.now = performance.now(), performance.now = () => now, page.emit("skipped", 287)`) // The clock stands.
	tab.Await("the number", says)
	tab.Click("#show-cluster")
	tab.Click("#show-machine")
	tab.Await("no number", "!"+says)
	tab.Eval(`page.emit("skipped", 287)`)
	tab.Await("the number again", says)
	tab.Eval(`now += 11000`)
	tab.Await("its end", "!"+says)
}

// testCauseOfChange lets a node change twice: by the answer of a patch, which comes before the step of the patch's end,
// and later by a frame.
func testCauseOfChange(t *testing.T, chromium *browser.Browser) {
	p, tab := open(t, chromium, "machine")
	tab.Press("p")
	for _, step := range []trace.Step{
		{Point: trace.Frame, Kind: "Node", Key: "node-1", Type: "ADDED", Version: "1"},
		{Point: trace.Patch, Kind: "Node", Key: "node-1", Version: "1", Bytes: []byte("{}")},
		{Point: trace.Change, Kind: "Node", Key: "node-1", Type: "changed", Version: "2"},
		{Point: trace.Patched, Kind: "Node", Key: "node-1", Type: "written", Version: "2"},
		{Point: trace.Frame, Kind: "Node", Key: "node-1", Type: "MODIFIED", Version: "3"},
		{Point: trace.Change, Kind: "Node", Key: "node-1", Type: "changed", Version: "3"},
	} {
		p.trace.Emit(step)
	}
	tab.Await("the steps", `document.querySelector("#pace").innerText.includes("6 steps")`)
	for range 6 {
		tab.Press("n")
	}
	tab.Await("the changes", `document.querySelectorAll("[data-lane=cache] .chip").length === 2`)
	for i, want := range []string{"patch", "MODIFIED"} {
		openDetails(tab, fmt.Sprintf("[data-lane=cache] li:nth-child(%d) .chip", i+1))
		cause := tab.Eval(`[...document.querySelectorAll("#details .steps li")]
			.at([...document.querySelectorAll("#details .steps li")].findIndex((li) => li.className === "here") - 1).innerText`)
		testkit.WantText(t, cause.(string), want+" Node node-1")
		tab.Press("Escape")
	}
}

// testKeyIsInOneBox lets a worker take keys one after another, and be done with all of them at once.
func testKeyIsInOneBox(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "machine")
	emit := func(point trace.Point, keys int) {
		tab.Eval(fmt.Sprintf(`(() => {
			for (let i = 0; i < %d; i++) {
				page.emit("step", {at: new Date(), point: %q, controller: "nodes", key: "key-" + i});
			}
		})()`, keys, point))
	}
	emit(trace.Taken, 3)
	tab.Await("three boxes", `document.querySelectorAll("[data-lane=workers] .chip").length === 3`)
	emit(trace.Done, 20)
	tab.Await("one box", `document.querySelector("[data-lane=workers] ul").innerText.includes("×20")`)
	if got := tab.Eval(`document.querySelectorAll("[data-lane=workers] .chip").length`); got != 1.0 {
		t.Errorf("the keys of one box are in %v boxes", got)
	}
}

// testEmptyText sends steps whose JSON lacks fields, and after them another one.
func testEmptyText(t *testing.T, chromium *browser.Browser) {
	p, tab := open(t, chromium, "machine")
	p.trace.Emit(trace.Step{Point: trace.LogLine})
	p.trace.Emit(trace.Step{Point: trace.Patch})
	p.trace.Emit(trace.Step{Point: trace.Change, Kind: "Pod", Key: "default/web-1", Type: "added"})
	tab.Await("the change", `document.querySelector("[data-lane=cache] ul").innerText.includes("default/web-1")`)
}

// hideScript pretends that another tab covers the page, or no longer does.
const hideScript = `Object.defineProperty(document, "hidden", {value: %t, configurable: true});
	document.dispatchEvent(new Event("visibilitychange"))`

func testHiddenPage(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "machine")
	tab.Eval(fmt.Sprintf(hideScript, true))
	if tab.Eval("page.source.readyState === EventSource.CLOSED") != true {
		t.Error("the hidden page still has its stream")
	}
	tab.Eval("page.heardAt = 0; page.check()")
	if tab.Eval("page.isLost") == true {
		t.Error("the hidden page says that podcount is lost")
	}
	tab.Eval(fmt.Sprintf(hideScript, false))
	if tab.Eval("page.check(), page.isLost") == true {
		t.Error("the page says that podcount was lost while it was hidden")
	}
	tab.Await("the stream", "page.source.readyState === EventSource.OPEN")
	tab.Await("the title", `document.title.includes("Working")`)
}

// testFailedKeyIsExplained lets a key wait for a time that is rounded to whole minutes. Then its wait ends.
func testFailedKeyIsExplained(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "machine")
	tab.Press("p")
	tab.Eval(`(() => {
		const key = {controller: "nodes", key: "node-1"};
		const minutesLater = "2000-01-01T00:01:59.600Z";
		page.emit("step", {...key, at: "2000-01-01T00:00:00Z", point: "retried", wait: 119.6e9, count: 3});
		page.emit("step", {at: minutesLater, point: "change", kind: "Pod", key: "default/web-1", type: "added"});
		page.emit("step", {...key, at: minutesLater, point: "added", count: 1});
	})()`)
	tab.Press("n")
	openDetails(tab, "[data-lane=queue] .chip")
	testkit.WantText(t, tab.Text("#details"), "3 times in a row", "2 min 0 s", "failures in a row")
	tab.Press("Escape")
	tab.Press("n")
	tab.Press("n")
	openDetails(tab, "[data-lane=queue] .chip")
	testkit.WantText(t, tab.Text("#details"), "key added", "keys ready", "−2 min 0 s")
}

// testRestIsExplained lets a worker leave a node alone for three seconds.
func testRestIsExplained(t *testing.T, chromium *browser.Browser) {
	_, tab := open(t, chromium, "machine")
	tab.Eval(`(() => {
		const key = {controller: "nodes", key: "node-1"};
		page.emit("step", {...key, at: "2000-01-01T00:00:00Z", point: "taken"});
		page.emit("step", {...key, at: "2000-01-01T00:00:00Z", point: "rests", wait: 3e9});
		page.emit("step", {...key, at: "2000-01-01T00:00:03Z", point: "added", count: 1});
	})()`)
	tab.Await("the key", `document.querySelector("[data-lane=queue]").innerText.includes("key added")`)
	tab.Eval(`[...document.querySelectorAll(".chip")].find((chip) => chip.innerText.includes("key added")).click()`)
	testkit.WantNumber(t, "steps before the wait", strings.Count(tab.Text("#details .steps"), "−3.0 s"), 2)
}

// testRefusal opens a page while there are too many viewers, and then lets them go.
func testRefusal(t *testing.T, chromium *browser.Browser) {
	t.Parallel()
	server := show(t, newProgram(wellState()), "127.0.0.1:0")
	var others []io.Closer
	for range viewerLimit {
		resp, err := http.Get(server.url + "/events")
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, resp.Body)
	}
	tab := chromium.NewTab(t, browser.Options{})
	tab.Open(server.url)
	tab.Await("the refusal", `document.querySelector("#connection").innerText.includes("It answers: ")`)
	if text := tab.Text("#connection"); strings.Contains(text, "..") {
		t.Errorf("the banner says: %s", text)
	}
	for _, other := range others {
		other.Close()
	}
	tab.Await("the page's return", `document.querySelector("#connection").innerText.includes("was without it")`)
	tab.Await("the state", `document.querySelector("#kinds").textContent.includes("Pod")`)
	if text := tab.Text("#connection"); strings.Contains(text, "started again") {
		t.Errorf("the banner says: %s", text)
	}
}

func testNamesOnTheCluster(t *testing.T, chromium *browser.Browser) {
	t.Parallel()
	server := show(t, newProgram(badState()), "127.0.0.1:0")
	tab := chromium.NewTab(t, browser.Options{})
	openView(tab, server.url, "cluster")
	tab.Await("the names", fmt.Sprintf(`["#labels", "#crowds", "#failing", "#kinds"].every((id) => {
		const text = document.querySelector(id).textContent;
		return text.includes(%q) && text.includes(%q);
	})`, markup, longName))
	wantNoMarkup(t, tab)
	tab.WantQuiet(server.url)
}

func testNamesOnTheMachine(t *testing.T, chromium *browser.Browser) {
	p, tab := open(t, chromium, "machine")
	p.emitLife(markup, longName)
	tab.Await("the names", fmt.Sprintf(`[%q, %q].every((name) =>
		document.querySelector("#board").textContent.includes(name))`, markup, longName))
	openDetails(tab, "[data-lane=cache] .chip")
	testkit.WantText(t, tab.Text("#details"), markup)
	wantNoMarkup(t, tab)
}

// wantNoMarkup fails the test if a name has become an element, or was run.
func wantNoMarkup(t *testing.T, tab *browser.Tab) {
	t.Helper()
	if got := tab.Eval(`document.querySelectorAll("main script, main img").length`); got != 0.0 {
		t.Errorf("names have become %v elements", got)
	}
	if tab.Eval("typeof hacked") != "undefined" {
		t.Error("a name has run as a script")
	}
}

// testLook checks each view of a program that does well, and then of one for which all goes wrong.
func testLook(t *testing.T, tab *browser.Tab) {
	t.Parallel()
	p := newProgram(wellState())
	server := show(t, p, "127.0.0.1:0")
	openMachine(tab, server.url)
	p.emitLife("default/web-1", longName)
	tab.Await("the steps", `document.querySelectorAll(".chip").length > 3`)
	openDetails(tab, "[data-lane=wire] .chip")
	checkLook(t, tab, "the machine")

	tab.Click("#show-cluster")
	checkLook(t, tab, "the cluster of a program that does well")
	p.change(func(s *State) { *s = badState() })
	tab.Await("the bad state", `document.querySelector("#cluster").textContent.includes("hacked")`)
	checkLook(t, tab, "the cluster of a program that does badly")
	p.change(func(s *State) { s.Silence = &Silence{Seconds: 90, Error: longName, Advice: markup} })
	tab.Await("the outage", `!document.querySelector("#more").hidden`)
	tab.Click("#more summary")
	checkLook(t, tab, "the cluster in an outage")
	tab.WantQuiet(server.url)
}

// checkLook checks that the page is accessible, and that nobody has to scroll it sideways.
func checkLook(t *testing.T, tab *browser.Tab, what string) {
	t.Helper()
	if wide := browser.Value[[]string](tab, tooWideScript); len(wide) > 0 {
		t.Errorf("%s: these elements make the page too wide:\n%s", what, strings.Join(wide, "\n"))
	}
	t.Run(what+" is accessible", func(t *testing.T) {
		for _, problem := range tab.Axe(t) {
			t.Error(problem)
		}
	})
}

// tooWideScript returns the elements that go beyond the right border, if the page can be scrolled sideways.
const tooWideScript = `(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.body.querySelectorAll("*")]
    .filter((element) => element.getBoundingClientRect().right > width)
    .map((element) => element.outerHTML.slice(0, 150));
})()`

// openDetails opens a box. The display is paused first, so that the box does not move away.
func openDetails(tab *browser.Tab, selector string) {
	tab.Press("p")
	tab.Click(selector)
	tab.Await("the details", `!document.querySelector("#details").hidden`)
}

func testStepIsExplained(t *testing.T, chromium *browser.Browser) {
	p, tab := open(t, chromium, "machine")
	p.emitLife("default/web-1", "default/web-2")
	tab.Await("the frame", `document.querySelector("[data-lane=wire] .chip")`)
	openDetails(tab, "[data-lane=wire] .chip")
	details := tab.Text("#details")
	testkit.WantText(t, details, "default/web-1")
	testkit.WantText(t, details, "browserhelpers_test.go", "emitLife") // the file and the function that emit it
	testkit.WantText(t, details, "resourceVersion", "4711")            // from its bytes
}

// testStepByStep uses the keyboard alone.
func testStepByStep(t *testing.T, chromium *browser.Browser) {
	p, tab := open(t, chromium, "machine")
	goTo(t, tab, "Paused")
	tab.Press("Space")
	p.emitLife("default/web-1", "default/web-2")
	tab.Await("that steps wait", `document.querySelector("#pace").innerText.includes("11 steps")`)
	if got := tab.Eval(`document.querySelectorAll(".chip").length`); got != 0.0 {
		t.Errorf("the paused display shows %v boxes", got)
	}
	goTo(t, tab, "Next step")
	tab.Press("Enter")
	tab.Await("one step", `document.querySelectorAll(".chip").length === 1`)
	tab.Press("n")
	tab.Await("another step", `document.querySelectorAll(".chip").length === 2`)

	tab.Eval(`document.querySelector(".chip").focus()`)
	tab.Press("Enter")
	tab.Await("the details", `!document.querySelector("#details").hidden`)
	tab.Press("Escape")
	tab.Await("no details", `document.querySelector("#details").hidden`)
	if focus := tab.Focus(); focus == nil || !strings.Contains(focus.Element, "chip") {
		t.Errorf("the focus is on %v, not on the box that was opened", focus)
	}
}

// testReplay opens a file with a recorded history, as the simulator writes it.
func testReplay(t *testing.T, chromium *browser.Browser) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "history.html")
	var text bytes.Buffer
	if err := replay.Write(&text, HTML, json.RawMessage(history)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	tab := chromium.NewTab(t, browser.Options{HasReducedMotion: true})
	tab.Open("file://" + file)
	tab.Await("the replay", `!document.querySelector("#replay").hidden`)
	testkit.WantText(t, tab.Text("#machine"), "seed 17", "faults", "podcount-0", "default/web-1", "Step 1 of 4")
	goTo(t, tab, "Next fault")
	tab.Press("Enter")
	tab.Await("the fault", `document.querySelector("#machine").innerText.includes("Step 3 of 4")`)
	tab.Click(".history-row[aria-current]")
	tab.Await("the details", `!document.querySelector("#details").hidden`)
	tab.Press("n")
	tab.Press("Escape")
	if focus := tab.Focus(); focus == nil || !strings.Contains(focus.Element, "history-row") {
		t.Errorf("the focus is on %v, not on the row of the step", focus)
	}
	walk(t, tab)
	checkLook(t, tab, "a replay")
	tab.WantQuiet("file://" + file)
}

// focusLimit is how often a test presses Tab at most.
const focusLimit = 150

// testKeyboard presses Tab until it has come round, in each view.
func testKeyboard(t *testing.T, chromium *browser.Browser) {
	t.Parallel()
	p := newProgram(badState())
	server := show(t, p, "127.0.0.1:0")
	tab := chromium.NewTab(t, browser.Options{HasReducedMotion: true})
	openView(tab, server.url, "cluster")
	walk(t, tab)
	openMachine(tab, server.url)
	p.emitLife("default/web-1", "default/web-2")
	tab.Await("the steps", `document.querySelectorAll(".chip").length > 3`)
	openDetails(tab, "[data-lane=wire] .chip")
	walk(t, tab)
}

// walk goes through all elements that the Tab key reaches. Each must show that it has the focus, and have a name; and
// everything that people can operate must be among them.
func walk(t *testing.T, tab *browser.Tab) {
	t.Helper()
	tab.Eval("window.reached = new Set(), 0")
	for range focusLimit {
		tab.Press("Tab")
		focus := tab.Focus()
		if focus == nil {
			continue // the end of the page, after which its beginning comes
		}
		if tab.Eval("reached.size === reached.add(document.activeElement).size") == true {
			break
		}
		if focus.Name == "" {
			t.Errorf("%s has no name", focus.Element)
		}
		if !focus.IsOutlined {
			t.Errorf("%s %q does not show that it has the focus", focus.Element, focus.Name)
		}
	}
	if missed := browser.Value[[]string](tab, missedScript); len(missed) > 0 {
		t.Errorf("the Tab key does not reach:\n%s", strings.Join(missed, "\n"))
	}
	testkit.WantBetween(t, "elements that the Tab key reaches", browser.Value[int](tab, "reached.size"), 6, focusLimit-1)
}

// missedScript returns the elements that people can operate, and that the Tab key has not reached. Of a group in which
// arrows move the focus, one element is enough.
const missedScript = `[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
  .filter((element) => element.checkVisibility({visibilityProperty: true}) && !element.disabled)
  .filter((element) => element.tabIndex >= 0 && !reached.has(element))
  .filter((element) => element.type !== "radio" || element.checked)
  .map((element) => element.outerHTML.slice(0, 150))`

// testKeyboardChooses chooses with Enter and with the space bar.
func testKeyboardChooses(t *testing.T, chromium *browser.Browser) {
	t.Parallel()
	server := show(t, newProgram(wellState()), "127.0.0.1:0")
	tab := chromium.NewTab(t, browser.Options{})
	openView(tab, server.url, "cluster")

	goTo(t, tab, "Machine")
	tab.Press("Enter")
	tab.Await("the machine", `!document.querySelector("#machine").hidden && document.querySelector("#cluster").hidden`)
	tab.Press("Shift+Tab")
	tab.Press("Space")
	tab.Await("the cluster", `document.querySelector("#machine").hidden && !document.querySelector("#cluster").hidden`)

	light := background(tab)
	goTo(t, tab, "Dark")
	tab.Press("Space")
	tab.Await("another theme", fmt.Sprintf("getComputedStyle(document.body).backgroundColor !== %q", light))
	tab.Open(server.url)
	if background(tab) == light {
		t.Error("the page has forgotten the theme")
	}
	goTo(t, tab, "Light")
	tab.Press("Enter")
	tab.Await("the first theme", fmt.Sprintf("getComputedStyle(document.body).backgroundColor === %q", light))
	tab.WantQuiet(server.url)
}

func background(tab *browser.Tab) string {
	return tab.Eval("getComputedStyle(document.body).backgroundColor").(string)
}

// goTo presses Tab until an element has the focus whose name begins so.
func goTo(t *testing.T, tab *browser.Tab, name string) {
	t.Helper()
	for range focusLimit {
		tab.Press("Tab")
		if focus := tab.Focus(); focus != nil && strings.HasPrefix(focus.Name, name) {
			return
		}
	}
	t.Fatalf("the Tab key does not reach %q", name)
}
