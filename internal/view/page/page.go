package page

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"time"

	"podcount/internal/view/listen"
	"podcount/internal/view/trace"
)

// Options say what a Page shows, and to whom. All fields are required except for TokenFile.
type Options struct {
	// State returns the present state. It is called once a second while somebody looks, when a viewer comes, and for
	// /debug/state. It may hang: the page goes on without it, and does not call it again until it has returned.
	State func() State

	// Sample returns the numbers of the last second. Run calls it once a second, and sets the time of the sample. It
	// must not wait.
	Sample func() Sample

	Trace   *trace.Trace // the page listens to it only while a viewer wants steps
	Flags   []Flag       // what /flagz shows, sorted by name
	Version string
	Started time.Time

	// TokenFile is a file with the token that a viewer must have. If it is "", the page refuses requests that were sent
	// to another name than one of this machine's loopback.
	TokenFile string

	Log *slog.Logger
}

// Flag is a flag of the command line with its value.
type Flag struct{ Name, Value string }

// Page is podcount's web page. It writes nothing to the cluster, and changes nothing in the program.
type Page struct {
	options Options
	guard   *guard
	states  listen.Shared[State]
	hub     *hub
}

// New makes a Page. Call Run, so that it has something to show, and serve Handler.
func New(o Options) *Page {
	return &Page{
		options: o,
		guard:   newGuard(o),
		states:  listen.Shared[State]{Read: o.State},
		hub:     newHub(o.Trace),
	}
}

// Run takes a sample each second, and feeds the viewers, until ctx ends. Then it ends the streams of all viewers.
func (p *Page) Run(ctx context.Context) {
	defer p.hub.end()
	if p.options.TokenFile != "" {
		p.guard.readToken() // logs at once if nobody will be let in
	}
	everySecond := time.NewTicker(time.Second)
	defer everySecond.Stop()
	var reading *listen.Reading[State] // the newest reading of the state for the viewers
	var stateIsRead <-chan struct{}    // closed when it has ended; nil if its state was sent
	beginReading := func() {
		reading = p.states.Begin()
		stateIsRead = reading.Ended
	}
	var flush <-chan time.Time // when to send the steps; nil while there are none
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-everySecond.C:
			sample := p.options.Sample()
			sample.At = now
			p.hub.addSample(sample)
			if p.hub.hasViewers() {
				beginReading()
			}
		case <-p.hub.joined:
			beginReading()
		case <-stateIsRead:
			p.hub.send(messageOf("state", reading.Value()))
			stateIsRead = nil
		case <-p.hub.hasSteps:
			if flush == nil {
				flush = time.After(flushInterval)
			}
		case <-flush:
			p.hub.sendSteps()
			flush = nil
		}
	}
}

// Handler answers requests for the page. It ignores the context of a request: package listen stops reading from the
// connection, which ends that context.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", Serve(HTML))
	mux.HandleFunc("GET /events", p.serveEvents)
	mux.HandleFunc("GET /debug/state", p.serveState)
	mux.HandleFunc("GET /statusz", p.serveStatusz)
	mux.HandleFunc("GET /flagz", p.serveFlagz)
	mux.HandleFunc("GET /playground", servePlayground)
	return WithHeaders(HTML, p.guard.protect(mux))
}

// paths are what /statusz lists.
var paths = []string{"/", "/debug/state", "/events", "/flagz", "/statusz"}

// WithHeaders adds the headers that every answer has. They keep it out of caches, and away from other sites. The policy
// is that of the page with this HTML.
func WithHeaders(html string, next http.Handler) http.Handler {
	policy := PolicyOf(html)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", policy)
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// stateTimeout is how long /debug/state waits for the state.
const stateTimeout = 5 * time.Second

// serveState answers with the state as JSON, for people.
func (p *Page) serveState(w http.ResponseWriter, _ *http.Request) {
	state, isRead := p.states.Within(stateTimeout)
	if !isRead {
		http.Error(w, "podcount's state cannot be read: a part of it does not answer", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.Encode(state)
}

// servePlayground answers that there are no buttons. In front of a playground's podcount, a proxy answers instead.
func servePlayground(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"buttons": []}`+"\n")
}
