package suite

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"podcount/internal/api/wire"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Sizes shows that no text from an API server is too large for podcount.
var Sizes = Topic{
	{"huge texts of a server fill neither the memory nor the log", hugeTexts},
}

const (
	maxExtraMemory = 64 << 10 // in kB: how much more memory than usual a hostile server may cost
	maxLogLine     = 4 << 10  // in bytes, without the line feed
)

// hugeText is a case in which a server sends too much.
type hugeText struct {
	name  string
	args  []string // of podcount
	nodes int      // that the server has

	isMet  func(*http.Request) bool // finds the requests that get the answer below
	code   int
	header map[string]string // of the answer
	send   func(w io.Writer) // sends the answer, without ever holding all of it

	times   int    // podcount has met the answer often enough when it asks once more than this
	until   string // or when it logs this
	viewers int    // that look on, on the page
}

// repeated writes a text again and again, between two others, until nobody reads it.
func repeated(before, text string, times int, after string) func(io.Writer) {
	return func(w io.Writer) {
		out := bufio.NewWriterSize(w, 256<<10)
		defer out.Flush()
		out.WriteString(before)
		for i := range times {
			if _, err := out.WriteString(strings.ReplaceAll(text, "######", strconv.Itoa(i))); err != nil {
				return
			}
		}
		out.WriteString(after)
	}
}

// hugeTexts runs the binary against servers that send huge texts, and one that does not.
func hugeTexts(t *testing.T, podcount Program) {
	if runtime.GOOS != "linux" || testkit.IsRaced() {
		t.Skip("the test reads memory from /proc, and the race detector needs more of it")
	}
	isGet := func(path string) func(*http.Request) bool {
		return func(r *http.Request) bool {
			return r.Method == http.MethodGet && r.URL.Path == path && !r.URL.Query().Has("watch")
		}
	}
	isWatch := func(r *http.Request) bool { return r.URL.Query().Has("watch") }
	isPatch := func(r *http.Request) bool { return r.Method == http.MethodPatch }
	isJSON := map[string]string{"Content-Type": wire.JSON}
	const kB = 1000
	xs := strings.Repeat("x", kB)
	labels := []string{"-node-label", OwnPodsLabel, "-qps", "100000", "-burst", "100000"}
	cases := []hugeText{
		{
			name:    "an ERROR frame of 20 MB, with viewers",
			isMet:   isWatch,
			code:    200,
			header:  isJSON,
			send:    repeated(`{"type":"ERROR","object":{"message":"`, strings.Repeat("<", kB), 20*kB, `","code":500}}`),
			times:   3,
			viewers: 8,
		},
		{
			name:   "an ERROR frame with 8 million causes",
			isMet:  isWatch,
			code:   200,
			header: isJSON,
			send: repeated(`{"type":"ERROR","object":{"code":500,"details":{"causes":[{}`,
				strings.Repeat(",{}", kB), 8*kB, `]}}}`),
			times: 3,
		},
		{
			name:   "410s with messages of 900 kB",
			isMet:  isWatch,
			code:   200,
			header: isJSON,
			send:   repeated(`{"type":"ERROR","object":{"message":"`, xs, 900, `","reason":"Expired","code":410}}`),
			times:  3,
		},
		{
			name:   "a discovery with 20 million resources",
			isMet:  isGet("/apis/demo.mark8s.io/v1"),
			code:   200,
			header: isJSON,
			send:   repeated(`{"kind":"APIResourceList","resources":[{}`, strings.Repeat(",{}", kB), 20*kB, `]}`),
			times:  1,
			until:  "installed",
		},
		{
			name:   "1000 patches refused with 60 kB each",
			nodes:  1000,
			args:   labels,
			isMet:  isPatch,
			code:   422,
			header: isJSON,
			send:   repeated(`{"message":"`, xs, 60, `","reason":"Invalid","code":422}`),
			times:  1500,
		},
		{
			name:   "a Content-Type of 900 kB",
			nodes:  100,
			args:   labels,
			isMet:  isPatch,
			code:   200,
			header: map[string]string{"Content-Type": strings.Repeat("x", 900*kB)},
			send:   func(io.Writer) {},
			times:  200,
		},
		{
			name:   "answers of 60 MB to patches",
			nodes:  8,
			args:   labels,
			isMet:  isPatch,
			code:   200,
			header: isJSON,
			send:   repeated(`{"metadata":{"annotations":{"a":"`, xs, 60*kB, `"}}}`),
			times:  12,
		},
		{
			name:   "14,000 pods with names of 60 kB",
			isMet:  isGet("/api/v1/pods"),
			code:   200,
			header: isJSON,
			send: repeated(`{"metadata":{"resourceVersion":"7"},"items":[`,
				`{"metadata":{"uid":"u","resourceVersion":"1","name":"`+strings.Repeat(xs, 60)+`######"}},`, 14*kB, `{}]}`),
			times: 2,
		},
	}
	never := func(*http.Request) bool { return false }
	usual := hugeText{nodes: 10, isMet: never, until: "label written"}.run(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testkit.WantBetween(t, "kB more than usual", c.run(t)-usual, -usual, maxExtraMemory)
		})
	}
}

// run runs podcount until it has met the answer, and returns its largest memory in kB. It fails the test if a line of
// the log is too long.
func (h hugeText) run(t *testing.T) (peak int) {
	f := fakekube.New()
	fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
	for i := range h.nodes {
		f.AddNode(fmt.Sprintf("n%d", i), ControlPlane)
	}
	var met atomic.Int64
	isMet := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.isMet(r) {
			f.ServeHTTP(w, r)
			return
		}
		if met.Add(1) == int64(h.times)+1 {
			isMet <- struct{}{}
		}
		for name, value := range h.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(h.code)
		h.send(w)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	args := []string{"-master", server.URL, "-v", "6", "-wire", "json", "-page", "127.0.0.1:0", "-pod-events", "off"}
	cmd, lines := RunBinary(t, nil, append(args, h.args...)...)
	longest := h.follow(t, lines, isMet)
	peak = peakOf(t, cmd.Process.Pid)
	cmd.Process.Signal(syscall.SIGTERM)
	for _, line := range linesUntilExit(cmd, lines) {
		longest = longer(longest, line)
	}
	t.Logf("%d kB at the peak, the longest line has %d bytes", peak, len(longest))
	if len(longest) > maxLogLine {
		t.Errorf("a line of the log has %d bytes: %.300s", len(longest), longest)
	}
	return peak
}

// follow reads the log until podcount has met the answer, and returns the longest line. It lets the viewers look on as
// soon as the page is served.
func (h hugeText) follow(t *testing.T, lines <-chan string, isMet <-chan struct{}) (longest string) {
	t.Helper()
	timeout := time.NewTimer(2 * time.Minute)
	defer timeout.Stop()
	for {
		select {
		case line, isOpen := <-lines:
			if !isOpen {
				t.Fatal("podcount has ended")
			}
			longest = longer(longest, line)
			if address, isServed := afterMark(line, pageMark); isServed {
				lookOn(t, address, h.viewers)
			}
			if h.until != "" && strings.Contains(line, h.until) {
				return longest
			}
		case <-isMet:
			return longest
		case <-timeout.C:
			t.Fatal("podcount has not met the answer often enough")
		}
	}
}

// afterMark returns the word that follows a mark in a line.
func afterMark(line, mark string) (word string, isFound bool) {
	_, rest, isFound := strings.Cut(line, mark)
	word, _, _ = strings.Cut(rest, " ")
	return word, isFound
}

func longer(a, b string) string {
	if len(b) > len(a) {
		return b
	}
	return a
}

// lookOn opens streams of steps from the page, as browsers do, until the test ends. It returns when all of them are
// open.
func lookOn(t *testing.T, address string, viewers int) {
	for range viewers {
		resp, err := http.Get("http://" + address + "/events?steps=1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		go io.Copy(io.Discard, resp.Body)
	}
}

// peakOf returns the most memory that a process has had so far, in kB.
func peakOf(t *testing.T, pid int) int {
	t.Helper()
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	peak := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
	if peak == nil {
		t.Fatalf("the memory of podcount is unknown: %s", status)
	}
	kB, err := strconv.Atoi(string(peak[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kB
}
