package fakekube

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func wantLabel(t *testing.T, f *Server, node, label, want string) {
	t.Helper()
	if got := labelOf(f, node, label); got != want {
		t.Errorf("node %s has %s=%s, want %s", node, label, got, want)
	}
}

// recording returns the body of a real server's answer.
func recording(t *testing.T, name string) []byte {
	t.Helper()
	body := []byte(testkit.ReadFile(t, "../../testdata/transcripts/"+name))
	if strings.HasSuffix(name, ".txt") {
		_, body, _ = bytes.Cut(body, []byte("\n\n"))
	}
	return body
}

// ask sends a request to the fake and returns the answer. code is 0 if the connection breaks.
func ask(t *testing.T, f *Server, method, target, body string) (code int, answer string) {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", mediaOf(method, body))
	w := httptest.NewRecorder()
	defer func() {
		if problem := recover(); problem == http.ErrAbortHandler {
			code = 0
			answer = w.Body.String()
		} else if problem != nil {
			panic(problem)
		}
	}()
	f.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func wantAnswer(t *testing.T, f *Server, request, body string, wantCode int, wantText string) {
	t.Helper()
	method, target, _ := strings.Cut(request, " ")
	code, answer := ask(t, f, method, target, body)
	if code != wantCode || !strings.Contains(answer, wantText) {
		t.Errorf("%s: %d %s, want %d and %q", request, code, answer, wantCode, wantText)
	}
}

// fakeTB is a testing.TB that collects the failures of a test.
type fakeTB struct {
	testing.TB
	errors  []string
	cleanup []func()
}

func (v *fakeTB) Errorf(format string, args ...any) {
	v.errors = append(v.errors, fmt.Sprintf(format, args...))
}
func (v *fakeTB) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	panic("the test has ended")
}
func (v *fakeTB) Cleanup(do func()) { v.cleanup = append(v.cleanup, do) }
func (v *fakeTB) Failed() bool      { return len(v.errors) > 0 }

// finish ends the test and reports whether it has failed.
func (v *fakeTB) finish() bool {
	for _, do := range v.cleanup {
		do()
	}
	return v.Failed()
}

func newRequest(method, target, token string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func serve(f *Server, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

// defineWidgets makes the fake serve the custom resource widgets of example.com, with this version.
func defineWidgets(f *Server, version string) {
	f.PutJSON(definitions, definition("example.com", "widgets", "Widget", version))
}

// addPods puts n pods, without a node, in the namespace default.
func addPods(f *Server, n int) {
	for i := range n {
		f.AddPod("default", fmt.Sprintf("web-%d", i), "")
	}
}

// labelOf returns a node's label, or "-" if the node or the label does not exist.
func labelOf(f *Server, node, label string) string {
	labels := objectIn(f.Get("nodes", Key{Name: node}), "metadata", "labels")
	if v, isSet := labels[label].(string); isSet {
		return v
	}
	return "-"
}

// networkOf returns a Network with plain HTTP, which ends with the test.
func networkOf(t *testing.T, f *Server) *Network {
	n := NewNetwork(&http.Server{Handler: f})
	t.Cleanup(n.Close)
	return n
}

// listen serves with TLS, in real time, until the test ends.
func listen(t *testing.T, f *Server) (url string, ca []byte) {
	endpoint := f.Listen("https")
	t.Cleanup(endpoint.Close)
	return endpoint.URL, endpoint.CA
}

// asAdmin makes the owner of a client certificate an administrator.
func asAdmin(c *x509.Certificate) { c.Subject.Organization = []string{masters} }

// knowsToken reports whether a fake has a token.
func knowsToken(f *Server, token string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, isKnown := f.tokens[token]
	return isKnown
}
