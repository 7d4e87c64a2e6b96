package page

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"podcount/internal/view/trace"
	"podcount/lab/browser"
	"podcount/lab/testkit"
)

// program stands for a podcount that a page shows. A test changes its state as it likes.
type program struct {
	trace      *trace.Trace
	playground *playground // nil if there is none

	mu    sync.Mutex // guards state
	state State
}

func newProgram(state State) *program {
	return &program{trace: new(trace.Trace), state: state}
}

// change changes the state, and returns the time at which it did.
func (p *program) change(change func(*State)) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.state)
	return time.Now()
}

func (p *program) read() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *program) sample() Sample {
	return Sample{Pods: p.read().Kinds[0].Objects, Events: 3, Writes: 1}
}

// playground stands for a playground in front of a podcount.
type playground struct {
	buttons  string            // JSON
	refusals map[string]string // why the presses of a button are refused, by its name
	presses  atomic.Int64      // requests that were accepted or refused
	reports  chan string       // JSON, to be sent to the page
}

// passOn returns a handler that serves the buttons, and passes on everything else.
func (g *playground) passOn(page http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", page)
	mux.HandleFunc("GET /playground", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, g.buttons) })
	mux.HandleFunc("POST /playground/{name}", func(w http.ResponseWriter, r *http.Request) {
		g.presses.Add(1)
		refusal := g.refusals[r.PathValue("name")]
		if refusal != "" {
			w.WriteHeader(http.StatusConflict)
		}
		fmt.Fprintf(w, `{"run": 1, "error": %q}`, refusal)
	})
	mux.HandleFunc("GET /playground/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			http.NewResponseController(w).Flush()
			select {
			case report := <-g.reports:
				fmt.Fprintf(w, "event: report\ndata: %s\n\n", report)
			case <-r.Context().Done():
				return
			}
		}
	})
	return mux
}

// shown is a page that is served on a port of this machine.
type shown struct {
	url  string
	stop func() // stops the server, as the end of the process would
}

// show serves the page of a program until the test ends. The address is HOST:PORT; port 0 is any free one.
func show(t *testing.T, p *program, address string) *shown {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	page := New(Options{
		State:   p.read,
		Sample:  p.sample,
		Trace:   p.trace,
		Version: "v1",
		Started: time.Now(),
		Log:     slog.New(slog.NewTextHandler(new(testkit.Buffer), nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	handler := page.Handler()
	if p.playground != nil {
		handler = p.playground.passOn(handler)
	}
	server := &http.Server{Handler: handler}
	var running sync.WaitGroup
	running.Go(func() { page.Run(ctx) })
	running.Go(func() { server.Serve(listener) })
	stop := sync.OnceFunc(func() {
		cancel()
		server.Close()
		running.Wait()
	})
	t.Cleanup(stop)
	return &shown{url: "http://" + listener.Addr().String(), stop: stop}
}

// looks are the sizes and themes in which people see the page.
var looks = []struct {
	name    string
	options browser.Options
}{
	{"wide and light", browser.Options{Width: 1440, HasReducedMotion: true}},
	{"wide and dark", browser.Options{Width: 1440, IsDark: true, HasReducedMotion: true}},
	{"narrow and light", browser.Options{Width: 360, Height: 740, IsMobile: true, HasReducedMotion: true}},
	{"narrow and dark", browser.Options{Width: 360, Height: 740, IsMobile: true, IsDark: true, HasReducedMotion: true}},
}

// openView opens the page, waits until it shows the state of the program, and chooses a view.
func openView(tab *browser.Tab, url, view string) {
	tab.Open(url)
	tab.Await("the state", `document.querySelector("#kinds").textContent.includes("Pod")`)
	tab.Click("#show-" + view)
	tab.Await("the view", fmt.Sprintf("!document.getElementById(%q).hidden", view))
}

// openMachine opens the view of the machine, and waits until the page gets steps.
func openMachine(tab *browser.Tab, url string) {
	openView(tab, url, "machine")
	tab.Await("the stream of steps", "page.wantsSteps && page.source.readyState === EventSource.OPEN")
}

// open opens a view of a program that does well, in a test that runs beside others. Until the end, nothing may be on
// the console of the page.
func open(t *testing.T, chromium *browser.Browser, view string) (*program, *browser.Tab) {
	t.Helper()
	t.Parallel()
	p := newProgram(wellState())
	server := show(t, p, "127.0.0.1:0")
	tab := chromium.NewTab(t, browser.Options{HasReducedMotion: true})
	t.Cleanup(func() { tab.WantQuiet(server.url) })
	if view == "machine" {
		openMachine(tab, server.url)
	} else {
		openView(tab, server.url, view)
	}
	return p, tab
}

func seconds(n float64) *float64 { return &n }

// wellState is the state of a program that does well.
func wellState() State {
	return State{
		Version:   "v1.2.3",
		Host:      "podcount-7d9f8-x2x1z",
		Server:    "https://10.0.0.1:443",
		Started:   time.Now().Add(-time.Hour),
		UpSeconds: 3600,
		Kinds: []Kind{
			{Name: "Pod", IsReady: true, Objects: 4711, ResourceVersion: "123456", SecondsSinceHeard: seconds(0.4),
				LastWatch: &WatchEnd{At: time.Now(), Outcome: "closed", Text: "It watched again."},
				Relists:   map[string]int{"start": 1}, Audits: map[string]int{"clean": 2}},
			{Name: "Node", IsReady: true, Objects: 12, ResourceVersion: "123400", SecondsSinceHeard: seconds(7)},
		},
		Controllers: []Controller{
			{Name: "nodes", HasBegun: true, Ready: 2, Working: []Work{{"node-7", 0.1}}, Waiting: 1},
		},
		Lease: &Lease{
			Name:     "default/podcount",
			Identity: "podcount-a",
			IsOurs:   true,
			Holder:   "podcount-a",
			IsKnown:  true,
		},
		Writes:     Writes{Written: 512},
		Events:     Events{Posted: 7},
		Nodes:      []Crowd{{"node-1", 110}, {"node-2", 98}},
		Namespaces: []Crowd{{"default", 800}, {"web", 300}},
	}
}

// markup would show something, or run, if the page took a name for HTML.
const markup = `<script>hacked=1</script><img src=x onerror=hacked=1>`

// longName is a name of 253 characters, as long as Kubernetes allows.
var longName = strings.Repeat("long-name-", 25) + "end"

// badState is the state of a program for which all goes wrong, and all names are as bad as can be.
func badState() State {
	s := wellState()
	now := time.Now()
	s.Host = longName
	s.Mode = "dry run"
	s.Labels = []Label{
		{Name: longName, IsKnown: true, Value: markup, Nodes: []string{longName}, NodeCount: 1, Wrong: []string{markup},
			WrongCount: 1},
		{Name: markup, IsOwn: true},
	}
	s.Waiting = []string{"Node " + markup}
	s.Stuck = []string{"the watch of Pod " + longName}
	s.Kinds[0].SecondsSinceHeard = seconds(200)
	s.Kinds[0].Drift = 3
	s.Kinds[1] = Kind{Name: "Node" + markup, Problem: longName, ProblemAdvice: "Grant list to " + markup}
	s.Kinds = append(s.Kinds, Kind{Name: "Count", IsAbsent: true})
	s.Controllers[0].FailingCount = 2
	s.Controllers[0].Failing = []FailingKey{
		{Key: longName, Since: now, Failures: 7, Error: "PATCH nodes/x: " + markup, Advice: "do this", RetryAt: now},
		{Key: markup, Since: now, Failures: 1, Error: longName, Advice: "do that", RetryAt: now.Add(time.Minute)},
	}
	s.Controllers[0].Working = []Work{{longName, 12}, {markup, 30}}
	s.Lease = &Lease{Name: longName + "/" + longName, Identity: longName, Holder: markup, IsKnown: true}
	s.Writes = Writes{Written: 1, Failed: 2, Stripped: 3, Gone: 4}
	s.Events = Events{Posted: 1, Dropped: 2, Waiting: 3}
	s.Nodes = []Crowd{{longName, 2}, {markup, 1}}
	s.Namespaces = []Crowd{{markup, 2}, {longName, 1}}
	return s
}

// emitLife emits the steps of a pod that comes, whose node is then labelled. Another node cannot be labelled.
func (p *program) emitLife(pod, failingNode string) {
	for _, step := range []trace.Step{
		{Point: trace.Frame, Kind: "Pod", Key: pod, Type: "ADDED", Version: "4711",
			Bytes: []byte(`{"type":"ADDED","object":{"metadata":{"name":"web-1","resourceVersion":"4711"}}}`)},
		{Point: trace.Change, Kind: "Pod", Key: pod, Type: "added", Version: "4711"},
		{Point: trace.Added, Controller: "nodes", Key: "node-1", Count: 1},
		{Point: trace.Taken, Controller: "nodes", Key: "node-1"},
		{Point: trace.Patch, Kind: "Node", Key: "node-1", Bytes: []byte(`{"metadata":{"labels":{"pods":"7"}}}`)},
		{Point: trace.Request, Type: "PATCH", Text: "/api/v1/nodes/node-1", Code: "200 OK", Took: 3 * time.Millisecond},
		{Point: trace.Patched, Kind: "Node", Key: "node-1", Version: "4712", Type: "written"},
		{Point: trace.Done, Controller: "nodes", Key: "node-1", Took: 4 * time.Millisecond},
		{Point: trace.LogLine, Type: "INFO", Text: "msg=\"label written\" node=node-1 pod=" + pod},
		{Point: trace.Taken, Controller: "nodes", Key: failingNode},
		{Point: trace.Retried, Controller: "nodes", Key: failingNode, Text: "403 Forbidden", Wait: time.Minute, Count: 3},
	} {
		p.trace.Emit(step)
	}
}

// history is what the simulator records: the server, the faults, and the steps of each process, in lanes.
const history = `{
  "title": "seed 17",
  "began": "2000-01-01T00:00:00Z",
  "lanes": ["server", "faults", "podcount-0"],
  "steps": [
    {"lane": 0, "at": "2000-01-01T00:00:01Z", "point": "stored", "kind": "Pod", "key": "default/web-1",
      "type": "created"},
    {"lane": 2, "at": "2000-01-01T00:00:02Z", "n": 1, "point": "frame", "kind": "Pod", "key": "default/web-1",
      "type": "ADDED", "rv": "7", "where": "watch.go:1 (*Reflector).handleEvent"},
    {"lane": 1, "at": "2000-01-01T00:01:00Z", "point": "fault", "text": "the server is down",
      "until": "2000-01-01T00:02:00Z"},
    {"lane": 2, "at": "2000-01-01T00:01:01Z", "n": 2, "point": "ended", "kind": "Pod", "type": "cut"},
    {"lane": 2, "at": "2000-01-01T00:01:02Z", "n": 3, "point": "log", "type": "WARN", "text": "watch ended"}
  ]
}`
