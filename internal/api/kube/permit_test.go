package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kubeconfig"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// permitOf is a permit whose MayWrite is a function, and which does not end requests in flight.
type permitOf func() error

func (p permitOf) MayWrite() error { return p() }

func (p permitOf) WhilePermitted(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// permitWhile returns a permit that lasts while *isLeader is true.
func permitWhile(isLeader *bool) permitOf {
	return func() error {
		if !*isLeader {
			return errNoPermit
		}
		return nil
	}
}

// The lease may expire while the client waits for a credential, or while the process is suspended. A timer may fire
// too late.
func TestPermitIsCheckedRightBeforeAWrite(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.AddNode("n")
		isLeader := true
		client := clientOf(t, f, func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
			isLeader = false
			return &kubeconfig.Credential{}, nil
		}, Options{})
		client.SetPermit(permitWhile(&isLeader))
		const leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"
		for _, c := range []struct {
			request Request
			isSent  bool
		}{
			{Request{Method: "GET", API: "/api/v1", Resource: "nodes", Name: "n"}, true},
			{Request{Method: "PATCH", API: "/api/v1", Resource: "nodes", Name: "n", Body: fakekube.Object{}}, false},
			{Request{Method: "POST", API: "/api/v1/namespaces/default/events", Body: fakekube.Object{}}, false},
			{Request{Method: "PUT", API: leases, Body: fakekube.Object{}, WithoutPermit: true}, true},
			{Request{Method: "DELETE", API: "/api/v1", Resource: "nodes", Name: "n"}, false},
		} {
			isLeader = true
			before := len(all(f.Server))
			err := client.Send(t.Context(), c.request, nil)
			isSent := len(all(f.Server)) > before
			isRefused := err != nil && strings.Contains(err.Error(), errNoPermit.Error())
			if isSent != c.isSent || isRefused == c.isSent {
				t.Errorf("%s %s was sent: %v, %v", c.request.Method, c.request.Path(), isSent, err)
			}
		}
	})
}

// lateDial delays each connection even if the context ends, as if the process were suspended.
func lateDial(dial Dialer, wait func()) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		wait()
		return dial(context.WithoutCancel(ctx), network, addr)
	}
}

func TestPermitThatEndsDuringTheDialStopsTheWrite(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.AddNode("n")
		isLeader := true
		dial := lateDial(f.line.Dial, func() { isLeader = false })
		client := clientOf(t, f, noCredential, Options{Dial: dial})
		client.SetPermit(permitWhile(&isLeader))
		patch := Request{
			Method: "PATCH",
			API:    "/api/v1", Resource: "nodes", Name: "n",
			Body: fakekube.Object{"metadata": fakekube.Object{"labels": fakekube.Object{"a": "b"}}},
		}
		err := client.Send(t.Context(), patch, nil)
		if err == nil || !strings.Contains(err.Error(), errNoPermit.Error()) {
			t.Errorf("without a permit: %v", err)
		}
		synctest.Wait()
		testkit.WantNumber(t, "requests", len(all(f.Server)), 0)

		client.SetPermit(permitOf(func() error { return nil }))
		err = client.Send(t.Context(), patch, nil)
		if err != nil || fixture.Label(f.Server, "n", "a") != "b" {
			t.Errorf("with a permit: %v", err)
		}
	})
}

func TestBodyOfAWriteIsGuardedEachTimeItIsSent(t *testing.T) {
	isLeader := true
	req := httptest.NewRequest("PATCH", "/x", nil)
	guardBody(req, []byte("body"), permitWhile(&isLeader))
	for _, name := range []string{"first", "again"} {
		body := req.Body
		if name == "again" {
			body, _ = req.GetBody()
		}
		isLeader = true
		if text, err := io.ReadAll(body); string(text) != "body" || err != nil || req.ContentLength != 4 {
			t.Errorf("%s: %q of %d bytes, %v", name, text, req.ContentLength, err)
		}
		body, _ = req.GetBody()
		isLeader = false
		if text, err := io.ReadAll(body); len(text) > 0 || !errors.Is(err, errNoPermit) {
			t.Errorf("%s, without a permit: %q, %v", name, text, err)
		}
	}
}

// endingPermit is a permit that ends while a write is in flight.
type endingPermit struct{ term context.Context }

func (endingPermit) MayWrite() error { return nil }

func (p endingPermit) WhilePermitted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.term, func() { cancel(errNoPermit) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func TestWriteInFlightEndsWithItsPermit(t *testing.T) {
	for name, script := range map[string]string{
		"before the answer": "write nodes: stall",
		"within the answer": "write nodes: hang after 10 bytes",
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f server) {
				f.AddNode("n")
				f.Script(t, script)
				client := clientOf(t, f, noCredential, Options{})
				term, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				client.SetPermit(endingPermit{term})
				start := time.Now()
				patch := Request{Method: "PATCH", API: "/api/v1", Resource: "nodes", Name: "n", Body: fakekube.Object{}}
				err := client.Send(t.Context(), patch, testkit.Into(new(fakekube.Object)))
				testkit.WantError(t, "Send", err, "patch nodes/n: "+errNoPermit.Error())
				testkit.WantEqual(t, "time until then", time.Since(start), 5*time.Second)
			})
		})
	}
}
