//go:build !js

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"podcount/internal/view/listen"
	"podcount/internal/view/page"
	"podcount/lab/tour"
)

// The page gets the first free port from firstPort on, out of this many.
const (
	firstPort = 8081
	manyPorts = 100
)

// front is the server of the page. It passes requests on to the replica that is shown, and serves the buttons.
type front struct {
	listener net.Listener
	server   *http.Server
}

// startFront listens on the first free port of 127.0.0.1.
func startFront(p *playground) (*front, error) {
	listener, err := listenOnFreePort()
	if err != nil {
		return nil, err
	}
	mux := p.routes()
	html := p.page(mux)
	mux.Handle("GET /{$}", page.WithHeaders(html, page.Serve(html)))
	api := p.api()
	mux.Handle("/api/", api)
	mux.Handle("/apis/", api)
	f := &front{listener: listener, server: &http.Server{
		Handler:           onlyFromHere(mux),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}}
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

func (f *front) close() { f.server.Close() }

// page returns the page with the guided tour, whose content mux then serves. Without a checkout, there is no tour.
func (p *playground) page(mux *http.ServeMux) string {
	content, err := tour.Content(os.DirFS(p.checkout))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintln(p.out, "playground: the page has no tour:", err)
		}
		return page.HTML
	}
	mux.HandleFunc("GET /tour.json", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, json.RawMessage(content))
	})
	return tour.Page()
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
