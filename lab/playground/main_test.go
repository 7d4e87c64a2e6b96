package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"podcount/lab/testkit"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "4") // These tests wait most of their time.
	code := testkit.RunTests(m)
	if builtPodcount != "" {
		os.RemoveAll(filepath.Dir(builtPodcount))
	}
	os.Exit(code)
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

// podcountProgram returns the name of podcount's program.
func podcountProgram(t *testing.T) string {
	t.Helper()
	if err := buildPodcount(); err != nil {
		t.Fatal(err)
	}
	return builtPodcount
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
