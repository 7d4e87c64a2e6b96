package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"podcount/internal/fakekube"
	"podcount/internal/kubeconfig"
)

// permitOf is a permit to write that is asked for, and never ends by itself.
type permitOf func() error

func (p permitOf) MayWrite() error { return p() }

func (p permitOf) WhileLeading(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// The lease may run out while a credential is awaited, or while the process was stopped: a timer may tell that too late.
func TestClientAsksRightBeforeAWriteWhetherItMayBeSent(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("n")
		base, _ := url.Parse("http://127.0.0.1:1")
		may := true
		client := NewClient(&kubeconfig.Config{Server: base, Credential: func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
			may = false
			return &kubeconfig.Credential{}, nil
		}}, Options{Dial: f.ServeIn(t).Dial})
		defer client.Close()
		client.permit = permitOf(func() error {
			if !may {
				return errors.New("not any more")
			}
			return nil
		})
		for r, sent := range map[*Request]bool{
			{Method: "GET", Path: "/api/v1/nodes/n"}:                                                                                   true,
			{Method: "PATCH", Path: "/api/v1/nodes/n", Body: fakekube.Object{}}:                                                        false,
			{Method: "POST", Path: "/api/v1/namespaces/default/events", Body: fakekube.Object{}}:                                       false,
			{Method: "PUT", Path: "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", Body: fakekube.Object{}, WithoutPermit: true}: true,
			{Method: "DELETE", Path: "/api/v1/nodes/n"}:                                                                                false,
		} {
			may = true
			before := len(f.Requests(func(fakekube.Request) bool { return true }))
			err := client.Send(t.Context(), *r, nil)
			if got := len(f.Requests(func(fakekube.Request) bool { return true })) > before; got != sent || !sent && (err == nil || !strings.Contains(err.Error(), "not any more")) {
				t.Errorf("%s %s was sent: %v, %v", r.Method, r.Path, got, err)
			}
		}
	})
}

// lateDial is a network on which a connection takes a while, whatever the context says: as when the process is frozen.
func lateDial(dial Dialer, wait func()) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		wait()
		return dial(context.WithoutCancel(ctx), network, addr)
	}
}

func TestWriteWhosePermitEndsWhileItsConnectionIsMadeIsNotSent(t *testing.T) {
	for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("n")
			may := true
			isTLS := over == "HTTP/2"
			client := clientOver(t, f, isTLS, func(dial Dialer) Dialer {
				return lateDial(dial, func() { may = false })
			})
			defer client.Close()
			client.permit = permitOf(func() error {
				if !may {
					return errors.New("not any more")
				}
				return nil
			})
			err := client.Send(t.Context(), Request{Method: "PATCH", Path: "/api/v1/nodes/n", Body: fakekube.Object{}}, nil)
			if err == nil || !strings.Contains(err.Error(), "not any more") {
				t.Errorf("%s: %v", over, err)
			}
			synctest.Wait()
			wantNumber(t, over+": requests that came", len(f.Requests(func(fakekube.Request) bool { return true })), 0)
			may = true
			client.permit = permitOf(func() error { return nil })
			err = client.Send(t.Context(), Request{Method: "PATCH", Path: "/api/v1/nodes/n", Body: fakekube.Object{"metadata": fakekube.Object{"labels": fakekube.Object{"a": "b"}}}}, nil)
			if err != nil || f.Label("n", "a") != "b" {
				t.Errorf("%s: with a permit: %v", over, err)
			}
		})
	}
}

// clientOver makes a client of the fake, over HTTP/1.1 or over TLS and HTTP/2, on a network that change has changed.
func clientOver(t *testing.T, f *fakekube.Server, isTLS bool, change func(Dialer) Dialer) *Client {
	cred := &kubeconfig.Credential{}
	base, _ := url.Parse("http://127.0.0.1:1")
	var certificate []func() *tls.Certificate
	if isTLS {
		base.Scheme = "https"
		ca := fakekube.NewAuthority(t, "CA")
		cert, key := ca.Issue(t, "server", nil)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		cred.TLS = &tls.Config{RootCAs: ca.Pool()}
		certificate = append(certificate, func() *tls.Certificate { return &pair })
	}
	credential := func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) { return cred, nil }
	return NewClient(&kubeconfig.Config{Server: base, Credential: credential}, Options{Dial: change(f.ServeIn(t, certificate...).Dial)})
}

func TestBodyOfAWriteIsGuardedHoweverOftenItIsSent(t *testing.T) {
	may := true
	permit := permitOf(func() error {
		if !may {
			return errNoPermit
		}
		return nil
	})
	req := httptest.NewRequest("PATCH", "/x", nil)
	guardBody(req, []byte("body"), permit)
	for _, name := range []string{"first", "again"} {
		body := req.Body
		if name == "again" {
			body, _ = req.GetBody()
		}
		may = true
		if text, err := io.ReadAll(body); string(text) != "body" || err != nil || req.ContentLength != 4 {
			t.Errorf("%s: %q of %d bytes, %v", name, text, req.ContentLength, err)
		}
		body, _ = req.GetBody()
		may = false
		if text, err := io.ReadAll(body); len(text) > 0 || err != errNoPermit {
			t.Errorf("%s, without a permit: %q, %v", name, text, err)
		}
	}
}
