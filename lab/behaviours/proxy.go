package behaviours

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync/atomic"
	"time"

	"podcount/lab/fakekube"
)

// proxy stands between podcount and the server. It speaks plain HTTP/1.1 and adds the credential itself, as kubectl
// proxy does, because podcount sends none over plain HTTP.
type proxy struct {
	access  []string     // flags that lead podcount through the proxy
	patches atomic.Int32 // how many PATCH requests have been answered
}

// startProxy starts a proxy that has the rights of podcount's manifest. account is the name of its service account. The
// proxy calls onAnswer with each answer, which onAnswer may change.
func (w *world) startProxy(account string, onAnswer func(*http.Response)) *proxy {
	w.Helper()
	credential, err := w.config.Credential(w.Context(), nil)
	if err != nil {
		w.Fatal(err)
	}
	tlsConfig := credential.TLS.Clone()
	tlsConfig.GetClientCertificate = nil // a client certificate would win over the token
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
			onAnswer(r)
			return nil
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

// awaitStill waits until nobody changes the object at path, and podcount patches nothing, for 500 ms. These are five of
// its intervals.
func (w *world) awaitStill(p *proxy, path string) {
	w.Helper()
	patches := p.patches.Load()
	version := w.version(path)
	for range 20 {
		w.pause(500 * time.Millisecond)
		newPatches := p.patches.Load()
		newVersion := w.version(path)
		if newPatches == patches && newVersion == version {
			return
		}
		patches = newPatches
		version = newVersion
	}
	w.Fatalf("%s is written again and again", path)
}

// version returns the resourceVersion of the object at path.
func (w *world) version(path string) string {
	w.Helper()
	return fakekube.TextIn(fakekube.MetaOf(w.send("GET", path, nil)), "resourceVersion")
}
