package fakekube

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

// fakeWithTwoPods returns a fake with the pods a and b.
func fakeWithTwoPods() *Server {
	f := New()
	f.AddPod("default", "a", "")
	f.AddPod("default", "b", "")
	return f
}

// watchFromStart is a watch that ends after a second. It begins at the version of a new fake, so it reports each pod
// that was added.
const watchFromStart = "/api/v1/pods?watch=1&resourceVersion=202&timeoutSeconds=1"

// answerTo returns as much of an answer as is sent before it ends or breaks off, and whether it breaks off.
func answerTo(f *Server, target, accept string) (answer *httptest.ResponseRecorder, isBroken bool) {
	r := httptest.NewRequest("GET", target, nil)
	r.Header.Set("Accept", accept)
	answer = httptest.NewRecorder()
	defer func() {
		problem := recover()
		isBroken = problem == http.ErrAbortHandler
		if problem != nil && !isBroken {
			panic(problem)
		}
	}()
	f.ServeHTTP(answer, r)
	return answer, false
}

// framesOf returns the frames of an answer.
func framesOf(t *testing.T, f *Server, target, accept string) (frames []string) {
	t.Helper()
	var recorded []RecordedFrame
	begin := func(Request) func(Recording) {
		return func(r Recording) { recorded = r.Frames }
	}
	f.Inject(t, Fault{Do: Record{Begin: begin}})
	answer, _ := answerTo(f, target, accept)
	rest := answer.Body.String()
	for _, frame := range recorded {
		frames = append(frames, rest[:frame.Size])
		rest = rest[frame.Size:]
	}
	if rest != "" {
		t.Errorf("after the last frame: %q", rest)
	}
	return frames
}

func TestItemsAndEventsAreFrames(t *testing.T) {
	for _, row := range []struct {
		target, accept string
		want           []string // what each frame contains
	}{
		{"/api/v1/pods", mediaJSON, []string{`"items":[`, `"a"`, `,{"metadata":{"creation`, `]}`}},
		{"/api/v1/pods", mediaProtobuf, []string{"PodList", "\x01a\x12", "\x01b\x12", "\x1a\x00\x22\x00"}},
		{"/api/v1/pods?labelSelector=none", mediaJSON, []string{`"items":[`, `]}`}},
		{"/api/v1/pods?labelSelector=none", mediaProtobuf, []string{"PodList"}},
		{"/api/v1/namespaces/default/pods/a", mediaJSON, []string{`{"apiVersion":"v1"`}},
		{"/api/v1/namespaces/default/pods/a", mediaProtobuf, []string{"k8s\x00"}},
		{"/api/v1", mediaJSON, []string{`"APIResourceList"`}},
		{watchFromStart, mediaJSON, []string{`{"type":"ADDED"`, `{"type":"ADDED"`}},
		{watchFromStart, mediaProtobuf, []string{"ADDED", "ADDED"}},
	} {
		t.Run(row.target+" in "+row.accept, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fakeWithTwoPods()
				frames := framesOf(t, f, row.target, row.accept)
				testkit.WantNumber(t, "frames", len(frames), len(row.want))
				for i, frame := range frames {
					testkit.WantText(t, frame, row.want[i])
				}
				behind := framesOf(t, proxyOf(t, f), row.target, row.accept)
				if !slices.Equal(behind, frames) {
					t.Errorf("as an upstream, it has the frames %q, want %q", behind, frames)
				}
			})
		})
	}
}

func TestAnswerIsCutAtItsFrames(t *testing.T) {
	for _, target := range []string{"/api/v1/pods", watchFromStart} {
		for _, accept := range []string{mediaJSON, mediaProtobuf} {
			synctest.Test(t, func(t *testing.T) {
				f := fakeWithTwoPods()
				proxy := proxyOf(t, f)
				frames := framesOf(t, f, target, accept)
				whole := strings.Join(frames, "")
				for frame := range len(frames) + 1 {
					end := len(strings.Join(frames[:frame], ""))
					for _, extra := range []int{-1, 0, 1} {
						isInside := end+extra >= 0 && end+extra <= len(whole)
						if isInside {
							cut := CutFrame{Frame: frame, Extra: extra}
							checkCut(t, f, target, accept, cut, end+extra)
							checkCut(t, proxy, target, accept, cut, end+extra)
						}
					}
				}
			})
		}
	}
}

// checkCut checks that an answer breaks off after a number of bytes, as soon as these are sent.
func checkCut(t *testing.T, f *Server, target, accept string, cut CutFrame, bytes int) {
	t.Helper()
	f.Inject(t, Fault{Do: cut})
	start := time.Now()
	answer, isBroken := answerTo(f, target, accept)
	testkit.WantNumber(t, fmt.Sprint(cut, ": bytes"), answer.Body.Len(), bytes)
	if !isBroken || time.Since(start) > 0 {
		t.Errorf("%s: it breaks off: %v, after %v", cut, isBroken, time.Since(start))
	}
}

func TestAllBytesBeforeACutArriveOverHTTP2(t *testing.T) {
	for _, target := range []string{"/api/v1/pods", watchFromStart} {
		synctest.Test(t, func(t *testing.T) {
			f := fakeWithTwoPods()
			transport := clientOverTLS(t, f)
			defer transport.CloseIdleConnections()
			whole := 0
			for i, frame := range framesOf(t, f, target, mediaJSON) {
				whole += len(frame)
				f.Inject(t, Fault{Do: CutFrame{Frame: i + 1}})
				r, _ := http.NewRequest("GET", "https://127.0.0.1:1"+target, nil)
				answer, err := transport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err == nil || len(body) != whole || answer.ProtoMajor != 2 {
					t.Errorf("%s, cut after frame %d: %d bytes by HTTP/%d, want %d; %v",
						target, i+1, len(body), answer.ProtoMajor, whole, err)
				}
			}
		})
	}
}

func TestTruncatedAnswerEndsAsIfItWereWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.AddPod("default", "a", "")
		n := networkOf(t, f)
		transport := &http.Transport{DialContext: n.Dial}
		defer transport.CloseIdleConnections()
		for _, target := range []string{"/api/v1/pods", watchFromStart} {
			whole := strings.Join(framesOf(t, f, target, mediaJSON), "") // the watch has one event
			f.Script(t, "*: truncate")
			answer, err := (&http.Client{Transport: transport}).Get("http://fake" + target)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil {
				t.Errorf("%s: %v", target, err)
			}
			testkit.WantNumber(t, "bytes", len(body), len(whole)/2)
		}
	})
}

// clientOverTLS serves f over TLS and HTTP/2, and returns a transport that trusts it.
func clientOverTLS(t *testing.T, f *Server) *http.Transport {
	t.Helper()
	ca := NewAuthority("CA")
	n := NewNetwork(&http.Server{
		Handler:   f,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{*serverPair(ca, "127.0.0.1:0")}},
	})
	t.Cleanup(n.Close)
	return &http.Transport{
		DialContext:       n.Dial,
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: ca.Pool()},
	}
}

// Over HTTP/2, other effects break only one request.
func TestResetBreaksAllRequestsOfTheConnection(t *testing.T) {
	for effect, want := range map[string]bool{"reset before acting": true, "drop request": false} {
		synctest.Test(t, func(t *testing.T) {
			f := New()
			transport := clientOverTLS(t, f)
			defer transport.CloseIdleConnections()
			watch := func() error {
				r, _ := http.NewRequest("GET", "https://127.0.0.1:1/api/v1/pods?watch=1", nil)
				answer, err := transport.RoundTrip(r)
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				_, err = io.Copy(io.Discard, answer.Body)
				return err
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() { cancel(watch()) }()
			synctest.Wait()
			f.Script(t, "get /version: "+effect)
			r, _ := http.NewRequest("GET", "https://127.0.0.1:1/version", nil)
			_, err := transport.RoundTrip(r)
			synctest.Wait()
			isBroken := ctx.Err() != nil
			if err == nil || isBroken != want {
				t.Errorf("%s: %v; the watch is broken: %v, %v", effect, err, isBroken, context.Cause(ctx))
			}
			f.EndWatches()
		})
	}
}
