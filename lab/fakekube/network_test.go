package fakekube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// get sends a request with a client of its own.
func get(n *Network, timeout time.Duration) error {
	transport := &http.Transport{DialContext: n.Dial}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: timeout}
	answer, err := client.Get("http://fake/api/v1/pods")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

func TestKilledNetworkRefusesUntilRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := networkOf(t, New())
		conn, err := n.Dial(t.Context(), "tcp", "fake:80")
		if err != nil {
			t.Fatal(err)
		}
		n.Kill()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection still stands")
		}
		if err := get(n, time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("while it is down: %v", err)
		}
		n.Restore()
		if err := get(n, time.Second); err != nil {
			t.Errorf("when it is restored: %v", err)
		}
		wantNumber(t, "dials", n.Dialed(), 3)
	})
}

func TestKillBreaksUnacceptedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(nil)
		dialed := make(chan net.Conn)
		go func() {
			conn, _ := n.Dial(t.Context(), "tcp", "fake:80")
			dialed <- conn
		}()
		synctest.Wait()
		n.Kill()
		if _, err := (listener{n}).Accept(); err != nil {
			t.Fatal(err)
		}
		conn := <-dialed
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection outlives Kill")
		}
	})
}

func TestOnlyOldConnectionsGoSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := networkOf(t, New())
		transport := &http.Transport{DialContext: n.Dial}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: time.Second}
		ask := func() error {
			answer, err := client.Get("http://fake/api/v1/pods")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			_, err = io.Copy(io.Discard, answer.Body)
			return err
		}
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		n.GoSilent()
		if err := ask(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over a half-open connection: %v", err)
		}
		if err := ask(); err != nil {
			t.Errorf("over a new connection: %v", err)
		}
	})
}

func TestClosedConnectionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := networkOf(t, New())
		for range 3 {
			if err := get(n, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		wantNumber(t, "connections", len(n.open), 0)
	})
}

func TestServerHasACertificateForEachNameAndOffersTheChosenProtocols(t *testing.T) {
	for _, withoutHTTP2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ca := NewAuthority("CA")
			f := New()
			protocols := new(http.Protocols)
			protocols.SetHTTP1(true)
			protocols.SetHTTP2(!withoutHTTP2)
			n := NewNetwork(&http.Server{
				Handler:   f,
				Protocols: protocols,
				TLSConfig: &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
					return pairFor(t, ca, hello.ServerName), nil
				}},
			})
			defer n.Close()
			transport := &http.Transport{
				DialContext:       n.Dial,
				ForceAttemptHTTP2: true,
				TLSClientConfig: &tls.Config{
					RootCAs:      ca.Pool(),
					Certificates: []tls.Certificate{*pairFor(t, ca, "client")},
				},
			}
			defer transport.CloseIdleConnections()
			for _, host := range []string{"a:1", "b:1"} {
				answer, err := (&http.Client{Transport: transport}).Get("https://" + host + "/api/v1/pods")
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
			for _, q := range f.Received(Requests{}) {
				if q.HTTP2 == withoutHTTP2 || q.Certificate != "client" {
					t.Errorf("without HTTP/2: %v; a request came over HTTP/2: %v, with the certificate of %q",
						withoutHTTP2, q.HTTP2, q.Certificate)
				}
			}
		})
	}
}

// pairFor returns a certificate for a name, with its key.
func pairFor(t *testing.T, ca *Authority, name string) *tls.Certificate {
	t.Helper()
	certificate, key := ca.Issue(name, func(c *x509.Certificate) { c.DNSNames = []string{name} })
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

func TestDialAfterTheEndIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(&http.Server{Handler: New()})
		n.Close()
		n.Close() // Nothing remains to be closed.
		if _, err := n.Dial(t.Context(), "tcp", "fake:80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v", err)
		}
	})
}

func TestPlainServerEndsDespiteAWatch(t *testing.T) {
	endpoint := New().Listen("http")
	answer, err := http.Get(endpoint.URL + "/api/v1/pods?watch=true&resourceVersion=202")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	endpoint.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err == nil {
		t.Error("the watch ended cleanly")
	}
}

func TestSchemeIsHTTPOrHTTPS(t *testing.T) {
	wantPanic(t, `the fake serves http and https, not "tcp"`, func() { New().Listen("tcp") })
}
