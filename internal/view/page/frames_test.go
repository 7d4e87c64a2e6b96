package page

import (
	"os"
	"testing"

	"podcount/lab/browser"
)

// fewestFrames is how many frames a second a page must show at least.
const fewestFrames = 30

// TestFrames measures how smoothly the page of a running podcount moves, in each view. It is no part of the other
// tests, because it needs a podcount with much to do, and a machine with little else to do:
//
//	PAGE=http://127.0.0.1:8081 go test -count=1 -run TestFrames -v ./internal/view/page
func TestFrames(t *testing.T) {
	url := os.Getenv("PAGE")
	if url == "" {
		t.Skip("PAGE does not name the address of a page to measure")
	}
	chromium := browser.Start(t)
	for _, view := range []string{"cluster", "machine"} {
		t.Run(view, func(t *testing.T) {
			tab := chromium.NewTab(t, browser.Options{})
			openView(tab, url, view)
			tab.Frames(2) // the page has just begun, and is busier than later
			frames := tab.Frames(10)
			t.Logf("%.1f frames a second, at most %.0f ms between two; %d tasks took more than 50 ms, %.0f ms in all",
				frames.PerSecond, frames.Longest, frames.LongTasks, frames.LongTotal)
			if frames.PerSecond < fewestFrames {
				t.Errorf("fewer than %d frames a second", fewestFrames)
			}
			tab.WantQuiet(url)
		})
	}
}
