package fakekube

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

const (
	controlPlane  = "node-role.kubernetes.io/control-plane"
	podCountLabel = "hopegi/pod-count"
)

func wantText(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	}
}

func wantLabel(t *testing.T, f *Server, node, label, want string) {
	t.Helper()
	if got := f.Label(node, label); got != want {
		t.Errorf("node %s has %s=%s, want %s", node, label, got, want)
	}
}

// recording returns the body of a real server's answer.
func recording(t *testing.T, name string) []byte {
	t.Helper()
	body, err := os.ReadFile("../../testdata/transcripts/" + name)
	if err != nil {
		t.Fatal(err)
	}
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
