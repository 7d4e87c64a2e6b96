package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"podcount/internal/fakekube"
)

func TestMain(m *testing.M) {
	if real := os.Getenv(actAsPodcount); real != "" {
		os.Exit(podcountWithPage(real, os.Args[1:]))
	}
	code := fakekube.RunTests(m)
	os.RemoveAll(filepath.Dir(builtPodcount))
	os.Exit(code)
}

// actAsPodcount is an environment variable that makes the test's own binary run a real podcount, and serve a page beside
// it. The page is not podcount's own, so that tests know what is on it, and need no HTML.
const actAsPodcount = "PLAYGROUND_TEST_PODCOUNT"

// podcountWithPage runs podcount without -page, serves a page at that address, and returns podcount's exit code.
func podcountWithPage(program string, args flags) (code int) {
	address := args.value("page", "")
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(servePage)}
	go server.ListenAndServe()
	podcount := exec.Command(program, args.without("page")...)
	podcount.Stdout = os.Stdout
	podcount.Stderr = os.Stderr
	if err := podcount.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTERM)
	go func() {
		<-stops
		podcount.Process.Signal(syscall.SIGTERM)
	}()
	podcount.Wait()
	return podcount.ProcessState.ExitCode()
}

// servePage serves the page of a replica, and a stream that never ends.
func servePage(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "the page of process %d, asked as %s for %s\n", os.Getpid(), r.Host, r.URL)
	if r.URL.Path == "/events" {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// builtPodcount is podcount's program, and buildPodcount builds it once.
var (
	builtPodcount string
	buildPodcount = sync.OnceValue(func() error {
		dir, err := os.MkdirTemp("", "playground-test")
		if err != nil {
			return err
		}
		builtPodcount = filepath.Join(dir, "podcount")
		out, err := exec.Command("go", "build", "-o", builtPodcount, "podcount").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
)

// podcountProgram returns a script that runs podcount with a page.
func podcountProgram(t *testing.T) string {
	t.Helper()
	if err := buildPodcount(); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "podcount")
	text := fmt.Sprintf("#!/bin/sh\n%s='%s' exec '%s' \"$@\"\n", actAsPodcount, builtPodcount, self)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

// read returns what is left of a body.
func read(t *testing.T, body io.ReadCloser) string {
	t.Helper()
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
