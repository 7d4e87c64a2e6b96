package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/wire"
	"podcount/lab/testkit"
)

// dialFailure returns a dialer that always fails.
func dialFailure(err error) Dialer {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
}

// wantAnswer checks what is known after a request to list the pods, which must fail.
func wantAnswer(t *testing.T, ctx context.Context, client *Client, isUnanswered, isHopeless bool) {
	t.Helper()
	err := client.Send(ctx, Request{Method: "GET", API: "/api/v1", Resource: "pods"}, nil)
	if err == nil {
		t.Fatal("the request succeeds")
	}
	testkit.WantEqual(t, "unanswered: "+err.Error(), IsUnanswered(err), isUnanswered)
	testkit.WantEqual(t, "hopeless: "+err.Error(), IsHopeless(err), isHopeless)
}

func TestServerThatIsAway(t *testing.T) {
	noHost := &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}
	noResolver := &net.DNSError{Err: "server misbehaving", Name: "nowhere", IsTemporary: true}
	for _, row := range []struct {
		name       string
		dial       Dialer
		isHopeless bool
	}{
		{"connection refused", dialFailure(syscall.ECONNREFUSED), false},
		{"no such host", dialFailure(noHost), true},
		{"no resolver", dialFailure(noResolver), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f server) {
				wantAnswer(t, t.Context(), clientOf(t, f, noCredential, Options{Dial: row.dial}), true, row.isHopeless)
			})
		})
	}
}

func TestAnswerThatComesTooLateIsNone(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.Script(t, "list pods, always: stall")
		client := clientOf(t, f, noCredential, Options{})
		wantAnswer(t, t.Context(), client, true, false)
		_, err := client.Stream(t.Context(), Request{Method: "GET", API: "/api/v1", Resource: "pods"})
		testkit.WantEqual(t, "a stream that is silent", errors.Is(err, ErrSilent) && IsUnanswered(err), true)
	})
}

func TestCutOffRequestIsNotUnanswered(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.Script(t, "list pods: stall")
		client := clientOf(t, f, noCredential, Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("it is no longer needed")) })
		wantAnswer(t, ctx, client, false, false)

		client.SetPermit(permitOf(func() error { return errNoPermit }))
		err := client.Send(t.Context(), Request{Method: "PATCH", API: "/api/v1", Resource: "nodes", Name: "n", Body: 1}, nil)
		testkit.WantEqual(t, "a write without a permit is unanswered", IsUnanswered(err), false)
	})
}

func TestRefusalIsAnAnswer(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		for _, refusal := range []string{"401", "403", "429", "500", "503", "504"} {
			f.Script(t, "list pods: refuse "+refusal)
			wantAnswer(t, t.Context(), clientOf(t, f, noCredential, Options{}), false, false)
		}
	})
}

// Only the server can write what is in an ERROR frame of a watch. No proxy does.
func TestErrorFrameIsAnAnswer(t *testing.T) {
	frame := &Status{Status: wire.Status{Code: 503}}
	testkit.WantEqual(t, "an ERROR frame is an answer", IsAnswer(frame), true)
}

// A proxy answers for a server that is away, but the answer is not that of a server.
func TestProxyMayAnswerThatTheServerIsAway(t *testing.T) {
	const page = ` header Content-Type text/html body "<html>Sorry</html>"`
	simulate(t, func(t *testing.T, f server) {
		client := clientOf(t, f, noCredential, Options{})
		for _, code := range []string{"502", "503", "504"} {
			f.Script(t, "list pods: reply "+code+page)
			wantAnswer(t, t.Context(), client, true, false)
		}
		for _, reply := range []string{"500", "404", "503 header Retry-After 5"} {
			f.Script(t, "list pods: reply "+reply+page)
			wantAnswer(t, t.Context(), client, false, false)
		}
	})
}

func TestWrongCertificateIsHopeless(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		if f.line.TLS == nil {
			t.Skip("this connection has no TLS")
		}
		knowsNoCA := func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
			return &kubeconfig.Credential{TLS: &tls.Config{RootCAs: x509.NewCertPool()}}, nil
		}
		wantAnswer(t, t.Context(), clientOf(t, f, knowsNoCA, Options{}), true, true)
	})
}
