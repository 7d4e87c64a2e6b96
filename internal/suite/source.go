package suite

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// Sources shows what holds for podcount's sources and documents.
var Sources = Topic{
	{"no wait and no deadline depends on the wall clock", noWallClock},
	{"the controller of the README compiles and runs", readmeController},
}

// A time that went through UTC, a text or a number, has lost its monotonic reading: whoever compares it goes wrong when the
// clock is set. So this is all that may be done with one: where it is told to others, and where they have told theirs.
func noWallClock(t *testing.T, podcount Program) {
	wall := regexp.MustCompile(
		`\.(UTC|Local|In|Truncate|AddDate|UnmarshalText)\(|\.Round\(0\)|time\.(Unix\w*|Date|Parse)\(|\.Unix\w*\(|NotAfter|ExpirationTimestamp`)
	may := []string{
		`now.UTC().Format(microTime)`,             // what a Lease shows to others; nobody compares it
		`at.UTC().Format(time.RFC3339)`,           // what an Event shows to others
		`r.newestStamp = max(time.Now().UnixNano`, // an Event's name, which differs whatever the clock does
		`expires := pair.Leaf.NotAfter`,           // a certificate's end, which is only logged
		`"process_start_time_seconds")`,           // a metric
		`ExpirationTimestamp   *time.Time`,        // a credential's end. If podcount takes one for valid for too
		`expires := s.ExpirationTimestamp`,        // long, because the clock was set, the server refuses it, and
		`expiration := e.got.ExpirationTimestamp`, // then podcount renews it.
	}
	files, _ := filepath.Glob("*.go")
	below, _ := filepath.Glob("internal/*/*.go")
	shown := regexp.MustCompile(
		`^internal/(fakekube|playground|sim|suite|testkit|behaviours)/`) // not a part of podcount
	for _, file := range slices.Concat(files, below) {
		if strings.HasSuffix(file, "_test.go") || shown.MatchString(file) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if wall.MatchString(line) &&
				!slices.ContainsFunc(may, func(known string) bool { return strings.Contains(line, known) }) {
				t.Errorf("%s:%d: does this compare times of the wall clock? %s", file, i+1, strings.TrimSpace(line))
			}
		}
	}
}

// The text in the README is compiled into podcount, and run.
func readmeController(t *testing.T, podcount Program) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(readme), "## Write your own controller")
	_, text, _ = strings.Cut(text, "```go\n")
	text, _, closed := strings.Cut(text, "```")
	if !found || !closed {
		t.Fatal("the README shows no controller")
	}
	if n := strings.Count(text, "\n"); n > 50 {
		t.Errorf("the README's controller has %d lines", n)
	}
	dir := t.TempDir()
	for _, file := range []string{"main.go", "watch.go", "cache.go", "queue.go", "go.mod"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		testkit.WriteFiles(t, dir, map[string]string{file: string(code)})
	}
	for _, folder := range []string{"deploy", "internal"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
	}
	_, metric, found := strings.Cut(string(readme), "In a file of your own, register it there instead:\n\n```go\n")
	metric, _, closed = strings.Cut(metric, "```")
	if !found || !closed {
		t.Fatal("the README shows no metric")
	}
	testkit.WriteFiles(t, dir, map[string]string{
		"crowded.go": text,
		"metric.go":  "package main\n\nimport \"podcount/internal/metrics\"\n\n" + metric,
	})
	build := exec.Command("go", "build", "-o", "podcount", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	printing := exec.Command(filepath.Join(dir, "podcount"), "-manifest", "-controllers=crowded",
		"-crowded-limit=7")
	manifest, err := printing.Output()
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantText(t, string(manifest),
		`- "-crowded-limit=7"`,
		`rules:
- {apiGroups: [""], resources: [nodes], verbs: [list, watch]}
---`)

	f := fakekube.New()
	server, ca := f.ServeTLSFor(t)
	f.Allow("me")
	f.AddNode("n1")
	f.AddNode("n2")
	for i := range 101 {
		f.AddPod("default", fmt.Sprintf("web-%d", i), "n1")
	}
	testkit.WriteFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: me")})
	cmd := exec.Command(filepath.Join(dir, "podcount"), "-kubeconfig", filepath.Join(dir, "config"),
		"-controllers", "crowded", "-log-format", "json")
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	f.Await(t, "the event", func() bool { return len(EventsOf(f, "Crowded")) > 0 })
	cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	if got := EventsOf(f, "Crowded"); len(got) != 1 || !strings.Contains(got[0], "n1") {
		t.Errorf("events: %q", got)
	}
	testkit.WantNumber(t, "writes", len(WritesTo(f)), 0)
}
