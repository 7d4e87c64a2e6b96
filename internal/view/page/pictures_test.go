package page

import (
	"os"
	"path/filepath"
	"testing"

	"podcount/lab/browser"
	"podcount/lab/testkit"
)

// TestPictures takes the pictures of the page in docs/pictures. It is no part of the other tests, because it needs a
// podcount that has run for ten minutes, so that the lines are full:
//
//	PAGE=http://127.0.0.1:8081 PICTURES=$PWD/docs/pictures go test -count=1 -run TestPictures ./internal/view/page
func TestPictures(t *testing.T) {
	url := os.Getenv("PAGE")
	dir := os.Getenv("PICTURES")
	if url == "" || dir == "" {
		t.Skip("PAGE and PICTURES do not name a page, and a directory for its pictures")
	}
	chromium := browser.Start(t)
	for theme, isDark := range map[string]bool{"light": false, "dark": true} {
		tab := chromium.NewTab(t, browser.Options{IsDark: isDark})
		openView(tab, url, "cluster")
		tab.Frames(15)
		file := filepath.Join(dir, "page-cluster-"+theme+".png")
		testkit.WantError(t, file, os.WriteFile(file, tab.Screenshot(), 0o666), "")
	}
}
