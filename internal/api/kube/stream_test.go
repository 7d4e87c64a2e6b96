package kube

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// watchOfPods asks for all pods from now on.
var watchOfPods = Request{Method: "GET", API: "/api/v1", Resource: "pods", Query: url.Values{"watch": {"1"}}}

func TestSilentStreamEnds(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		fixture.AddPods(f.Server, 2)
		f.Script(t, "list pods: hang after 10 bytes")
		client := clientOf(t, f, noCredential, Options{})
		s, err := client.Stream(t.Context(), Request{Method: "GET", API: "/api/v1", Resource: "pods"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		start := time.Now()
		text, err := io.ReadAll(s)
		if !errors.Is(err, ErrSilent) || len(text) == 0 || time.Since(start) != Silence {
			t.Errorf("after %v: %q, %v", time.Since(start), text, err)
		}
		_, err = s.Read(make([]byte, 1)) // The decoder of protobuf looks at the error of the second read.
		testkit.WantEqual(t, "the error of another read", err, ErrSilent)
	})
}

func TestUnansweredStreamEndsAfterSilence(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.Script(t, "watch pods: stall")
		client := clientOf(t, f, noCredential, Options{})
		start := time.Now()
		_, err := client.Stream(t.Context(), watchOfPods)
		if !errors.Is(err, ErrSilent) || time.Since(start) != Silence {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		testkit.WantText(t, err.Error(), "watch pods: no sign of life for 2m30s")
	})
}

func TestHandshakeThatHangsIsGivenUp(t *testing.T) {
	const handshakeTimeout = 10 * time.Second // the default of net/http
	simulate(t, func(t *testing.T, f server) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		go io.Copy(io.Discard, theirs)
		silent := func(context.Context, string, string) (net.Conn, error) { return ours, nil }
		f.line.Scheme = "https"
		client := clientOf(t, f, noCredential, Options{Dial: silent})
		start := time.Now()
		_, err := client.Stream(t.Context(), listNodes)
		testkit.WantError(t, "Stream", err, "TLS handshake timeout")
		testkit.WantEqual(t, "time until then", time.Since(start), handshakeTimeout)
	})
}

func TestStreamEndsWithTheCauseOfItsContext(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		client := clientOf(t, f, noCredential, Options{})
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 4*Silence, why)
		defer cancel()
		watch := watchOfPods
		watch.Query = url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {"3600"}}
		s, err := client.Stream(ctx, watch)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		start := time.Now()
		lines := bufio.NewScanner(s)
		bookmarks := 0
		for lines.Scan() {
			bookmarks++
			s.Heard()
		}
		if lines.Err() != why || time.Since(start) != 4*Silence || bookmarks < 5 {
			t.Errorf("after %v and %d bookmarks: %v", time.Since(start), bookmarks, lines.Err())
		}
	})
}

func TestAnswerMustBeJSONOrProtobuf(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.Script(t, `list pods, 2 times: reply 200 header Content-Type "text/html; charset=utf-8" body "<html>"`)
		client := clientOf(t, f, noCredential, Options{})
		list := Request{Method: "GET", API: "/api/v1", Resource: "pods"}
		_, streamErr := client.Stream(t.Context(), list)
		sendErr := client.Send(t.Context(), list, nil)
		for _, err := range []error{streamErr, sendErr} {
			want := `list pods: the answer is "text/html", neither JSON nor protobuf: is this the API server?`
			if err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}

func TestAcceptPrefersMetadataAndTheFirstType(t *testing.T) {
	types := []string{"a/protobuf", "a/json"}
	for got, want := range map[string]string{
		Accept(false, "Kind", types...): "a/protobuf, a/json",
		Accept(false, "Kind"):           "",
		Accept(true, "Kind", types...): "a/protobuf;as=Kind;g=meta.k8s.io;v=v1, a/protobuf, " +
			"a/json;as=Kind;g=meta.k8s.io;v=v1, a/json",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if types[0] != "a/protobuf" {
		t.Errorf("it has changed its caller's %q", types)
	}
}
