package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"podcount/internal/view/listen"
)

// The page gets the first free port from firstPort on, out of this many.
const (
	firstPort = 8081
	manyPorts = 100
)

// front is the server of the page. It passes requests on to the replica that is shown, and serves the buttons.
type front struct {
	listener  net.Listener
	server    *http.Server
	transport *http.Transport
}

// startFront listens on the first free port of 127.0.0.1.
func startFront(p *playground) (*front, error) {
	listener, err := listenOnFreePort()
	if err != nil {
		return nil, err
	}
	f := &front{
		listener: listener,
		transport: &http.Transport{
			DialContext:        (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
			DisableCompression: true, // leaves the answer as it is
		},
	}
	f.server = &http.Server{
		Handler:           onlyFromHere(p.routes(f.transport)),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	go f.server.Serve(listener)
	return f, nil
}

func listenOnFreePort() (listener net.Listener, err error) {
	for port := firstPort; port < firstPort+manyPorts; port++ {
		listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return listener, nil
		}
	}
	return nil, err
}

// url returns the address of the page.
func (f *front) url() string { return "http://" + f.listener.Addr().String() + "/" }

func (f *front) close() {
	f.server.Close()
	f.transport.CloseIdleConnections()
}

// routes serves the buttons, and passes on everything else to podcount's page.
func (p *playground) routes(transport http.RoundTripper) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /playground", p.serveButtons)
	mux.HandleFunc("GET /playground/events", p.serveReports)
	mux.HandleFunc("POST /playground/{name}", p.servePress)
	api := p.api()
	mux.Handle("/api/", api)
	mux.Handle("/apis/", api)
	mux.Handle("/", p.passOn(transport))
	return mux
}

// api passes requests on to the API server, with a credential, as kubectl proxy does.
func (p *playground) api() http.Handler {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.endpoint.CA)
	server, err := url.Parse(p.endpoint.URL)
	if err != nil {
		panic(err) // It is our own.
	}
	return &httputil.ReverseProxy{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
		FlushInterval: -1, // each event at once
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
	}
}

// onlyFromHere refuses requests for another host, so that no website reaches the page through a name that it points to
// 127.0.0.1. It also refuses writes that another website's page sends.
func onlyFromHere(next http.Handler) http.Handler {
	return listen.LoopbackOnly(http.NewCrossOriginProtection().Handler(next))
}

// passOn passes requests on to the page of the replica that is shown.
func (p *playground) passOn(transport http.RoundTripper) http.Handler {
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // each event at once
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: shownAddress(r.In)}) // sets the host, too
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { answerAway(w) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		replica := p.replicas.shown()
		if replica == nil {
			answerAway(w)
			return
		}
		ctx := context.WithValue(r.Context(), shownAddressKey{}, replica.pageAddress)
		proxy.ServeHTTP(w, r.WithContext(ctx))
	})
}

// shownAddressKey is the key of the address of a page in the context of a request for it.
type shownAddressKey struct{}

// shownAddress returns the HOST:PORT of the page that a request is for.
func shownAddress(r *http.Request) string {
	address, _ := r.Context().Value(shownAddressKey{}).(string)
	return address
}

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
