package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"podcount/internal/view/page"
	"podcount/lab/browser"
	"podcount/lab/testkit"
)

func TestEachButtonOfTheTourExists(t *testing.T) {
	t.Parallel()
	g := startGround(t)
	type tourPage struct {
		Name    string
		Buttons []string
	}
	var content struct{ Steps, Exercises []tourPage }
	if err := json.Unmarshal([]byte(read(t, g.do("GET", "/tour.json").Body)), &content); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range slices.Concat(content.Steps, content.Exercises) {
		names = append(append(names, one.Buttons...), one.Name)
	}
	for _, name := range names {
		exists := slices.ContainsFunc(buttons(), func(b *button) bool { return b.name == name })
		if !exists && name != "" {
			t.Errorf("there is no button %s", name)
		}
	}
	testkit.WantBetween(t, "names", len(names), 20, 100)
}

func TestPageWithTheTourHasThePolicyThatAllowsIt(t *testing.T) {
	t.Parallel()
	g := startGround(t)
	answer := g.do("GET", "/")
	html := read(t, answer.Body)
	testkit.WantText(t, html, "class Tour")
	testkit.WantEqual(t, "the policy", answer.Header.Get("Content-Security-Policy"), page.PolicyOf(html+"\n"))
	testkit.WantEqual(t, "X-Content-Type-Options", answer.Header.Get("X-Content-Type-Options"), "nosniff")
}

func TestPageOutsideOfACheckoutHasNoTour(t *testing.T) {
	p := newPlayground("", nil, usualPauses, &testkit.Buffer{}, nil)
	defer p.close()
	p.checkout = t.TempDir()
	testkit.WantEqual(t, "it is podcount's own page", p.page(http.NewServeMux()) == page.HTML, true)
}

// tourTab is a tab with the tour.
type tourTab struct{ *machineTab }

// openTour opens the page at an address of the tour, and waits for it.
func openTour(t *testing.T, chromium *browser.Browser, g *testGround, address string, o browser.Options) tourTab {
	tab := tourTab{&machineTab{Tab: chromium.NewTab(t, o), t: t}}
	tab.Open(g.page + "/#" + address)
	tab.Await("the tour", `document.querySelectorAll("#tour a").length > 1`)
	tab.Await("podcount's steps", "page.wantsSteps && page.source.readyState === EventSource.OPEN")
	return tab
}

// click clicks the button or the link of the tour that has this text.
func (tab tourTab) click(text string) {
	tab.t.Helper()
	const find = `[...document.querySelectorAll("#tour button, #tour a, #tour label, #tour summary")]
		.find((element) => element.innerText.includes(%q) && element.checkVisibility())`
	element := fmt.Sprintf(find, text)
	tab.Await(text, element+" !== undefined")
	tab.Eval(fmt.Sprintf(`document.querySelector(".to-click")?.classList.remove("to-click"),
		%s.classList.add("to-click")`, element))
	tab.Click(".to-click")
}

// wantPage waits for a page of the tour, whose heading must have the focus.
func (tab tourTab) wantPage(title string) {
	tab.t.Helper()
	tab.awaitText("#tour-title", title)
	tab.Await("the focus on "+title, `document.activeElement.id === "tour-title"`)
}

func TestTourInChromiumFollowsAPodOfTheReader(t *testing.T) {
	chromium := browser.Start(t)
	g := startGround(t, "-leader-elect-retry-period=100ms", "-leader-elect")
	tab := openTour(t, chromium, g, "machine", browser.Options{HasReducedMotion: true})
	tab.click("Take the tour")
	tab.wantPage("Step 1: podcount starts")
	testkit.WantText(t, tab.Text("#tour"), "What arrives", "What the code does", "What always holds", "setUpPodCount")
	tab.click("Expire the history")
	tab.awaitText("#tour", "The display has come to this: listed")
	tab.awaitText("#tour", "✓ done")

	tab.click("Next")
	tab.wantPage("Step 2: Bytes arrive")
	testkit.WantText(t, tab.Text("#tour"), "This needs a pod of yours")
	tab.click("Make a pod")
	for i, want := range []string{
		"Step 2: ADDED Pod default/web-", "Step 3: ADDED Pod default/web-", "Step 4: added Pod default/web-",
		"Step 5: key added (total)", "Step 6: working control-plane", "Step 7: patch Node control-plane",
		"Step 8: Event ",
	} {
		title, step, _ := strings.Cut(want, ": ")
		if i > 0 {
			tab.wantPage(title)
		}
		tab.awaitText("#tour", "The display has come to this: "+step)
		tab.awaitText("#details-title", strings.Fields(step)[0])
		if i < 2 {
			testkit.WantText(t, tab.Text("#details"), "The bytes", "resourceVersion")
		}
		tab.click("Next")
	}
	tab.wantPage("Step 9: The label stays correct")
	tab.awaitText("#speeds [aria-pressed=true]", "Live")
	tab.click("Another writer")
	tab.awaitText("#tour", "✓ done Another writer has changed the label")
	tab.click("Next")
	tab.wantPage("Step 10: One of two writes")
	tab.click("A second replica")
	tab.awaitText("#tour", "leases/podcount")
	tab.awaitText("#tour", "still leads")
	tab.awaitText("#tour button[data-name]", "Stop the leader")
	tab.click("Previous")
	tab.click("Previous")
	tab.awaitText("#tour", "The display has come to this: Event ")
	tab.WantQuiet(g.page)
}

func TestTourInChromiumWaitsForPodcountThatRestarts(t *testing.T) {
	chromium := browser.Start(t)
	g := startGround(t, "-leader-elect=false")
	tab := openTour(t, chromium, g, "step-1", browser.Options{HasReducedMotion: true})
	tab.click("Restart podcount")
	tab.awaitText("#tour", "The page has lost podcount.")
	tab.awaitText("#tour", "✓ done The first replica has stopped")
	tab.awaitText("#tour", "podcount lists before this page has found it")
	tab.click("Expire the history")
	tab.awaitText("#tour", "The display has come to this: listed")
}

func TestExerciseInChromiumComparesTheGuessWithWhatHappens(t *testing.T) {
	chromium := browser.Start(t)
	g := startGround(t, "-leader-elect=false")
	tab := openTour(t, chromium, g, "lost-event", browser.Options{HasReducedMotion: true})
	tab.wantPage("Exercise: A lost event")
	tab.Await("that it cannot be pressed yet", `document.querySelector("#tour button").disabled`)
	tab.click("podcount has noticed")
	tab.click("Press")
	tab.awaitText("#tour", "… running The pod web-")
	tab.awaitText("#tour", "✗ Your guess was wrong. This is right: One too many")
	testkit.WantText(t, tab.Text("#tour"), "✓ done", "no watch was told", "auditTarget.Correct", "watch.go:")
	tab.click("One too many")
	tab.click("Press")
	tab.awaitText("#tour", "✓ Your guess was right. The tick compares")
	tab.click("auditTarget.Correct")
	tab.awaitText("#tour details[open]", "func (a auditTarget")
	tab.WantQuiet(g.page)
}

func TestExerciseInChromiumGivesNoVerdictOnAnotherPress(t *testing.T) {
	chromium := browser.Start(t)
	g := startGround(t, "-leader-elect-retry-period=100ms", "-leader-elect")
	tab := openTour(t, chromium, g, "second-replica", browser.Options{HasReducedMotion: true})
	tab.awaitText("#tour", "Choose a guess first.")
	tab.click("Nothing: it waits")
	tab.click("A second replica")
	tab.awaitText("#tour", "This is right: Lists, watches and reads of the Lease, but no write. Its caches")
	testkit.WantText(t, tab.Text("#tour"), "The second replica runs already")
	tab.click("Stop the leader")
	tab.awaitText("#tour", "It waits now.")
	testkit.WantEqual(t, "a verdict", strings.Contains(tab.Text("#tour"), "Your guess was"), false)
}

func TestAddressInChromiumOpensAPageOfTheTour(t *testing.T) {
	chromium := browser.Start(t)
	g := startGround(t, "-leader-elect=false")
	tab := openTour(t, chromium, g, "step-4", browser.Options{HasReducedMotion: true})
	tab.wantPage("Step 4: The cache changes")
	tab.Await("the step beside the buttons", `document.querySelector("#tour").getBoundingClientRect().right <
		document.querySelector("#playground").getBoundingClientRect().left`)
	tab.click("Next")
	tab.wantPage("Step 5: A change becomes a key")
	tab.Eval("history.back(), 0")
	tab.wantPage("Step 4: The cache changes")
	tab.Click("#show-cluster")
	tab.Await("the cluster", `page.view === "cluster"`)
	tab.Eval("history.back(), 0")
	tab.wantPage("Step 4: The cache changes")
	tab.click("All steps")
	tab.wantPage("Guided tour")
	tab.Eval(`location.hash = "#step-99"`)
	tab.awaitText("#tour", "There is no step or exercise “step-99”.")
	tab.click("The exercises")
	tab.click("A restart")
	tab.wantPage("Exercise: A restart")
	tab.Open(g.page + "/?again=yes#" + browser.Value[string](tab.Tab, "location.hash.slice(1)"))
	tab.wantPage("Exercise: A restart")
	tab.WantQuiet(g.page)
}

func TestTourInChromiumIsAccessible(t *testing.T) {
	chromium := browser.Start(t)
	g := startGround(t, "-leader-elect=false")
	for _, options := range []browser.Options{
		{Width: 1400, HasReducedMotion: true},
		{Width: 400, Height: 800, IsMobile: true, IsDark: true, HasReducedMotion: true},
	} {
		for _, address := range []string{"machine", "step-2", "pod-more"} {
			t.Run(fmt.Sprintf("%s at %d", address, options.Width), func(t *testing.T) {
				tab := openTour(t, chromium, g, address, options)
				if address == "step-2" {
					tab.click("Make a pod")
					tab.awaitText("#tour", "The display has come to this: ADDED")
				}
				if address == "pod-more" {
					tab.click("The server tells it")
					tab.click("Press")
					tab.awaitText("#tour", "✓ Your guess was right.")
				}
				tab.Await("a page as wide as the tab", `document.documentElement.scrollWidth <= innerWidth`)
				for _, problem := range tab.Axe(t) {
					t.Error(problem)
				}
			})
		}
	}
}
