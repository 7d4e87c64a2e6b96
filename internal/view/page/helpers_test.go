package page

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/view/trace"
	"podcount/lab/testkit"
)

// fixture is a Page that is served without a network, so that it can be in virtual time.
type fixture struct {
	*Page
	trace  *trace.Trace
	log    *testkit.Buffer
	states atomic.Int64 // the calls of Options.State
	stop   func()       // ends Run, and waits for its end

	dial   func() net.Conn
	client *http.Client
}

// start runs a Page until the test ends, and serves it as package listen does: the requests' contexts end at once, and
// a whole answer may take ten seconds. change, if not nil, changes the options.
func start(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{trace: new(trace.Trace), log: new(testkit.Buffer)}
	o := Options{
		State: func() State {
			f.states.Add(1)
			return State{Version: "v1", Host: "host"}
		},
		Sample:  func() Sample { return Sample{Pods: 7} },
		Trace:   f.trace,
		Flags:   []Flag{{"burst", "40"}, {"qps", "20"}},
		Version: "v1",
		Started: time.Now(),
		Log:     slog.New(slog.NewTextHandler(f.log, nil)),
	}
	if change != nil {
		change(&o)
	}
	f.Page = New(o)
	f.run(t)
	f.serve(t)
	return f
}

func (f *fixture) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	f.stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(f.stop)
}

func (f *fixture) serve(t *testing.T) {
	listener := &pipes{make(chan net.Conn), make(chan struct{})}
	handler := f.Handler()
	server := &http.Server{
		WriteTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).SetReadDeadline(time.Now())
			handler.ServeHTTP(w, r)
		}),
	}
	server.SetKeepAlivesEnabled(false)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(listener)
	}()
	f.dial = listener.dial
	f.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return f.dial(), nil },
	}}
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		server.Close()
		<-ended
	})
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.accepted <- there
	return here
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// answer is what the page has answered to a request.
type answer struct {
	code   int
	header http.Header
	text   string
}

// get requests a path of the page. headers are pairs of a name and a value; Host is one of them.
func (f *fixture) get(t *testing.T, path string, headers ...string) answer {
	t.Helper()
	resp := f.request(t, path, headers...)
	defer resp.Body.Close()
	giveUp := time.AfterFunc(20*time.Second, func() { resp.Body.Close() }) // it is a stream
	defer giveUp.Stop()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (f *fixture) request(t *testing.T, path string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest("GET", "http://localhost:8081"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// stream is a viewer that reads all that it gets.
type stream struct {
	body     io.ReadCloser
	messages chan message // closed when the stream has ended
}

type message struct{ event, data string }

// watch opens a stream at a path, and reads it until the test ends, or the page ends the stream.
func (f *fixture) watch(t *testing.T, path string) *stream {
	t.Helper()
	resp := f.request(t, path)
	testkit.WantNumber(t, "the code of "+path, resp.StatusCode, 200)
	testkit.WantEqual(t, "the type", resp.Header.Get("Content-Type"), "text/event-stream")
	s := &stream{resp.Body, make(chan message, 10000)}
	go s.read()
	t.Cleanup(s.close)
	return s
}

func (s *stream) close() { s.body.Close() }

func (s *stream) read() {
	defer close(s.messages)
	lines := bufio.NewScanner(s.body)
	lines.Buffer(nil, 1<<20)
	var next message
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			next.event = value
		case "data":
			next.data = value
		case "":
			s.messages <- next
		}
	}
}

// received returns what has come since the last call.
func (s *stream) received() (all []message) {
	synctest.Wait()
	for {
		select {
		case m, isOpen := <-s.messages:
			if !isOpen {
				return append(all, message{event: "end"})
			}
			all = append(all, m)
		default:
			return all
		}
	}
}

// eventsOf returns the names of messages.
func eventsOf(messages []message) string {
	var names []string
	for _, m := range messages {
		names = append(names, m.event)
	}
	return strings.Join(names, " ")
}

// dataOf returns the data of the messages of an event.
func dataOf(messages []message, event string) (data []string) {
	for _, m := range messages {
		if m.event == event {
			data = append(data, m.data)
		}
	}
	return data
}
