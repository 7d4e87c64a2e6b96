package behaviours

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync/atomic"
	"time"

	"podcount/internal/fakekube"
)

// proxy stands between podcount and the server. It speaks plain HTTP/1.1 and adds the credential itself, as kubectl
// proxy does, because podcount sends none over plain HTTP.
type proxy struct {
	access  []string     // the flags that lead podcount through the proxy
	patches atomic.Int32 // how many PATCH requests have been answered
}

// startProxy starts a proxy that has the rights of podcount's manifest. account is the name of its service account.
func (w *world) startProxy(account string) *proxy {
	w.Helper()
	return w.startProxyWith(account, func(*http.Response) error { return nil })
}

// startProxyWith is startProxy with a function that sees each answer, and may change it. If it returns an error, the
// proxy breaks the connection.
func (w *world) startProxyWith(account string, onAnswer func(*http.Response) error) *proxy {
	w.Helper()
	credential, err := w.config.Credential(w.Context(), nil)
	if err != nil {
		w.Fatal(err)
	}
	tlsConfig := credential.TLS.Clone()
	tlsConfig.GetClientCertificate = nil // or the server would take us for the admin, whatever the token
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	token := w.addPodcountAccount(account)
	p := &proxy{}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(w.config.Server)
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			defer w.wake()
			if r.Request.Method == "PATCH" {
				p.patches.Add(1)
			}
			return onAnswer(r)
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	})
	w.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	p.access = append(w.as("token: "+token), "-master", server.URL)
	return p
}

// awaitStill waits until, for five intervals, the object at path stays as it is and podcount writes nothing at all.
func (w *world) awaitStill(p *proxy, path string) {
	w.Helper()
	state := func() string {
		version := fakekube.TextIn(fakekube.MetaOf(w.send("GET", path, nil)), "resourceVersion")
		return fmt.Sprint(p.patches.Load(), " ", version)
	}
	before := state()
	for range 20 {
		w.pause(500 * time.Millisecond)
		now := state()
		if now == before {
			return
		}
		before = now
	}
	w.Fatalf("%s is written again and again", path)
}

// heldBody holds back what it has read, while isHeld, until released is closed.
type heldBody struct {
	io.ReadCloser
	isHeld   *atomic.Bool
	released <-chan struct{}
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.isHeld.Load() {
		<-b.released
	}
	return n, err
}
