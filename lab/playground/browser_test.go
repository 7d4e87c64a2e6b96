package main

import (
	"fmt"
	"testing"

	"podcount/lab/browser"
	"podcount/lab/testkit"
)

// machineTab is a tab with the page's view of the machine.
type machineTab struct {
	*browser.Tab
	t *testing.T
}

// openMachine opens the view of the machine, and waits until its buttons are there.
func openMachine(t *testing.T, chromium *browser.Browser, g *testGround) *machineTab {
	tab := &machineTab{Tab: chromium.NewTab(t, browser.Options{}), t: t}
	tab.Open(g.page + "/#machine")
	tab.Await("the buttons", `document.querySelectorAll("#playground button").length === 13`)
	return tab
}

// press clicks a button.
func (tab *machineTab) press(name string) {
	tab.Eval(fmt.Sprintf(`document.querySelector("#reports-%s").scrollIntoView({ block: "center" })`, name))
	tab.Click(fmt.Sprintf(`#playground li:has(#reports-%s) button`, name))
}

// wantReport waits until the page says that a button has done its work, and checks what it says has happened.
func (tab *machineTab) wantReport(name string, want ...string) {
	tab.t.Helper()
	newest := fmt.Sprintf(`document.querySelector("#reports-%s li")`, name)
	tab.Await("the end of "+name, newest+`?.innerText.match(/ (done|failed) /)`)
	testkit.WantText(tab.t, tab.Text(fmt.Sprintf("#reports-%s li", name)), append(want, "done")...)
}

// awaitText waits until an element shows a text.
func (tab *machineTab) awaitText(selector, text string) {
	tab.t.Helper()
	tab.Await(text, fmt.Sprintf("document.querySelector(%q).innerText.includes(%q)", selector, text))
}

func TestButtonsInChromiumSayWhatHasHappened(t *testing.T) {
	chromium := browser.Start(t)
	g := startGround(t, "-leader-elect-retry-period=100ms", "-leader-elect")
	tab := openMachine(t, chromium, g)
	tab.press("second-replica")
	tab.wantReport("second-replica", "The first replica still leads.")

	tab.press("half-open")
	g.wantSoon("there is a pod that podcount does not see", func() bool { return g.label() != g.truth() })
	g.breakConnections() // podcount would notice the silence after 45 s
	tab.wantReport("half-open", "Nothing passes any more on ")
	tab.WantQuiet(g.page)

	tab.awaitText("#playground", "Stop the leader")
	tab.press("second-replica")
	tab.awaitText("#reports-second-replica", "The second replica leads")
}

func TestPageInChromiumSurvivesARestartOfPodcount(t *testing.T) {
	chromium := browser.Start(t)
	g := startGround(t, "-leader-elect=false")
	tab := openMachine(t, chromium, g)
	tab.press("restart")
	tab.awaitText("#connection", "Lost podcount")
	tab.awaitText("#connection", "podcount is back")
	tab.wantReport("restart", "The first replica was started")
	tab.press("pod-more")
	tab.wantReport("pod-more", "The label went from ")
	tab.awaitText("#board", "ADDED")
}

// The steps are those of podcount's own trace. Their times are of the clock that the browser uses, too.
func TestNewPodAndItsLabelAreShownInChromiumWithinASecond(t *testing.T) {
	chromium := browser.Start(t)
	g := startGround(t, "-leader-elect=false")
	tab := openMachine(t, chromium, g)
	tab.Await("podcount's state", `page.hasHeard`)
	tab.Eval(`
		window.delays = {};
		page.on("step", (step) => {
			const wanted = { frame: "ADDED", patched: "written" };
			if (step.type !== wanted[step.point] || delays[step.point] !== undefined) return;
			requestAnimationFrame(() => { delays[step.point] = Date.now() - Date.parse(step.at); });
		})`)
	tab.press("pod-more")
	tab.Await("both steps", `delays.frame !== undefined && delays.patched !== undefined`)
	for _, point := range []string{"frame", "patched"} {
		delay := browser.Value[float64](tab.Tab, "delays."+point)
		t.Logf("%s: %v ms", point, delay)
		if delay > 1000 {
			t.Errorf("the step %s was shown after %v ms, want at most 1000", point, delay)
		}
	}
}
