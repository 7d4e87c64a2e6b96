package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// routes serves the buttons, and passes on everything else to podcount's page.
func (p *playground) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /playground", p.serveButtons)
	mux.HandleFunc("GET /playground/events", p.serveReports)
	mux.HandleFunc("POST /playground/{name}", p.servePress)
	mux.HandleFunc("/", p.passOn())
	return mux
}

// passOn passes requests on to the page of the replica that is shown. The page's connections end with their answers.
func (p *playground) passOn() http.HandlerFunc {
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return p.replicas.dialPage(ctx, shownIn(ctx))
			},
			DisableCompression: true, // leaves the answer as it is
		},
		FlushInterval: -1, // each event at once
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: shownIn(r.In.Context()).pageAddress}) // sets the host, too
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { answerAway(w) },
	}
	return func(w http.ResponseWriter, r *http.Request) {
		replica := p.replicas.shown()
		if replica == nil {
			answerAway(w)
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), shownKey{}, replica)))
	}
}

// shownKey is the key of the replica to whose page a request goes, in the context of the request.
type shownKey struct{}

func shownIn(ctx context.Context) *replica { return ctx.Value(shownKey{}).(*replica) }

// answerAway answers for a podcount that does not answer itself.
func answerAway(w http.ResponseWriter) {
	http.Error(w, "podcount does not answer now.", http.StatusBadGateway)
}

// shownButton is a button in the JSON of GET /playground.
type shownButton struct {
	Name   string `json:"name"`
	Label  string `json:"label"`
	Expect string `json:"expect"`
}

// shownButtons is the JSON of GET /playground, and of the event "buttons".
type shownButtons struct {
	Buttons []shownButton `json:"buttons"`
}

func (p *playground) shownButtons() shownButtons {
	var shown shownButtons
	for _, b := range buttons() {
		shown.Buttons = append(shown.Buttons, shownButton{b.name, b.label(p), b.expect(p)})
	}
	return shown
}

// publishButtons tells the page that the texts on the buttons have changed.
func (p *playground) publishButtons() {
	p.presses.publish(message{"buttons", p.shownButtons()})
}

func (p *playground) serveButtons(w http.ResponseWriter, _ *http.Request) {
	answerJSON(w, http.StatusOK, p.shownButtons())
}

// servePress presses a button.
func (p *playground) servePress(w http.ResponseWriter, r *http.Request) {
	number, err := p.pressButton(r.PathValue("name"))
	var busy busyError
	switch {
	case errors.Is(err, errNoButton):
		answerJSON(w, http.StatusNotFound, map[string]string{"error": err.Error()})
	case errors.Is(err, errEnding):
		answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
	case errors.As(err, &busy):
		answerJSON(w, http.StatusConflict, map[string]any{"error": err.Error(), "isRunning": true})
	case err != nil:
		answerJSON(w, http.StatusConflict, map[string]string{"error": err.Error()})
	default:
		answerJSON(w, http.StatusOK, map[string]int{"run": number})
	}
}

func answerJSON(w http.ResponseWriter, code int, data any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(data)
}

// serveReports streams what the presses report, as server-sent events.
// https://html.spec.whatwg.org/multipage/server-sent-events.html
func (p *playground) serveReports(w http.ResponseWriter, r *http.Request) {
	subscriber := p.presses.subscribe()
	if subscriber == nil {
		answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": "too many pages are open"})
		return
	}
	defer p.presses.unsubscribe(subscriber)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flusher := http.NewResponseController(w)
	flusher.Flush()
	for {
		select {
		case m, isOpen := <-subscriber:
			if !isOpen || writeEvent(w, m) != nil || flusher.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-p.ctx.Done():
			return
		}
	}
}

// writeEvent writes one server-sent event.
func writeEvent(w io.Writer, m message) error {
	data, err := json.Marshal(m.data)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", m.event, data)
	return err
}
