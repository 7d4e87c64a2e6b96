// Package browser lets tests drive a real Chromium without a window. It needs nothing but the standard library and
// Debian's package chromium, which it speaks to through a pipe, in the Chrome DevTools Protocol. Only tests import it.
//
// A test looks like this:
//
//	func TestPageInChromium(t *testing.T) {
//		server := httptest.NewServer(handler)
//		t.Cleanup(server.Close)
//		chromium := browser.Start(t) // skips the test where there is no Chromium
//		t.Run("a pod more is shown", func(t *testing.T) {
//			tab := chromium.NewTab(t, browser.Options{Width: 360, Height: 740, IsDark: true, IsMobile: true})
//			tab.Open(server.URL)
//			tab.Click("#pod-more")
//			tab.Await("the new pod's row", `document.querySelector("#pods")?.textContent.includes("web-1")`)
//			tab.WantQuiet(server.URL)
//		})
//	}
//
// Start one browser a test and open a tab in each subtest: a start takes about a second, a tab less than half of one.
// Each tab has its own cookies and storage. Tabs of parallel subtests do not disturb each other.
//
// A test whose name contains InChromium is run by .ci/browser, which names the program in the environment's CHROMIUM,
// and the file of axe-core in AXE. Where they are set, nothing is skipped. CHROMIUM=none skips all these tests.
package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// exitLimit is how long Chromium may take to end before it is killed.
const exitLimit = 5 * time.Second

// Browser is a running Chromium.
type Browser struct {
	home string // the directory of all its files
	cmd  *exec.Cmd
	pipe *connection
}

// Start starts Chromium, which ends with the test. It skips the test if there is no Chromium here.
func Start(t testing.TB) *Browser {
	t.Helper()
	program := findProgram(t)
	home, err := os.MkdirTemp("", "podcount-browser-")
	if err != nil {
		t.Fatal(err)
	}
	b := &Browser{home: home}
	t.Cleanup(func() { os.RemoveAll(home) }) // an error would only be a file that is left in /tmp
	if err := b.start(program); err != nil {
		t.Fatalf("cannot start %s: %v", program, err)
	}
	t.Cleanup(b.stop)
	if err := b.pipe.call("", "Browser.getVersion", nil, nil); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, b.errorOutput())
	}
	return b
}

// findProgram returns the path of Chromium. If CHROMIUM names it, it must be there.
func findProgram(t testing.TB) string {
	t.Helper()
	named := os.Getenv("CHROMIUM")
	if named == "none" {
		t.Skip("CHROMIUM=none: no test runs in a browser")
	}
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			t.Fatalf("the environment's CHROMIUM: %v", err)
		}
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium in PATH: install Debian's package chromium, or name the program in CHROMIUM")
	return ""
}

// start starts the program with a pipe to it as its file 3, and one from it as its file 4.
func (b *Browser) start(program string) error {
	toChromium, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer toChromium.Close()
	r, fromChromium, err := os.Pipe()
	if err != nil {
		return err
	}
	defer fromChromium.Close()
	errorOutput, err := os.Create(b.errorFile())
	if err != nil {
		return err
	}
	defer errorOutput.Close()

	b.cmd = exec.Command(program, arguments(b.home)...)
	b.cmd.Env = append(os.Environ(), "HOME="+b.home, "TMPDIR="+b.home, "XDG_CONFIG_HOME="+b.home, "XDG_CACHE_HOME="+b.home)
	b.cmd.ExtraFiles = []*os.File{toChromium, fromChromium}
	b.cmd.Stderr = errorOutput
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		return err
	}
	b.pipe = newConnection(r, w)
	return nil
}

// arguments returns the command line. No name of a host resolves in this browser, so that a test that would need the
// network fails everywhere, and Chromium itself reaches nobody.
func arguments(home string) []string {
	args := []string{
		"--headless=new",
		"--remote-debugging-pipe",
		"--user-data-dir=" + filepath.Join(home, "profile"),
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE [::1]",
		"--no-proxy-server",
		"--no-first-run",
		"--no-default-browser-check",
		"--disable-background-networking",
		"--disable-component-update",
		"--disable-default-apps",
		"--disable-extensions",
		"--disable-sync",
		"--disable-breakpad",
		"--disable-crash-reporter",
		"--disable-gpu",
		"--disable-features=SpareRendererForSitePerProcess", // it would be a second process for each tab
		"--disable-dev-shm-usage",                           // containers have little of it
		"--password-store=basic",
		"--hide-scrollbars",
		"--force-color-profile=srgb",
		"--lang=en-US",

		// Tabs that no window shows are as fast as others.
		"--disable-background-timer-throttling",
		"--disable-backgrounding-occluded-windows",
		"--disable-renderer-backgrounding",
	}
	if os.Getuid() == 0 {
		args = append(args, "--no-sandbox") // Chromium refuses to run as root with it
	}
	return append(args, "about:blank")
}

// stop ends Chromium and all its processes, and waits for it.
func (b *Browser) stop() {
	kill := time.AfterFunc(exitLimit, b.kill)
	defer kill.Stop()
	b.pipe.call("", "Browser.close", nil, nil) // it may end before it answers
	b.cmd.Wait()
	b.kill() // what it has left
}

// kill kills Chromium and its children, which are one group of processes.
func (b *Browser) kill() { syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) }

func (b *Browser) errorFile() string { return filepath.Join(b.home, "stderr") }

// errorOutput returns what Chromium has written to its standard error.
func (b *Browser) errorOutput() string {
	text, _ := os.ReadFile(b.errorFile())
	return string(text)
}
