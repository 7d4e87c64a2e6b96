package fakekube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
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

func TestKillBreaksUnacceptedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(&http.Server{})
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

func TestClosedConnectionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := networkOf(t, New())
		for range 3 {
			if err := get(n, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		testkit.WantNumber(t, "connections", len(n.open), 0)
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

// eachEndpoint runs a test over HTTP/1.1, and over TLS with HTTP/2, both over TCP and in real time.
func eachEndpoint(t *testing.T, test func(t *testing.T, e *Endpoint, newClient func() *http.Client)) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			e := New().Listen(scheme)
			defer e.Close()
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(e.CA)
			test(t, e, func() *http.Client {
				transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}}
				t.Cleanup(transport.CloseIdleConnections)
				return &http.Client{Transport: transport}
			})
		})
	}
}

// openWatch returns a running watch.
func openWatch(t *testing.T, client *http.Client, e *Endpoint) *http.Response {
	t.Helper()
	answer, err := client.Get(e.URL + "/api/v1/pods?watch=true&resourceVersion=202")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	testkit.WantNumber(t, "the version of HTTP", answer.ProtoMajor, map[bool]int{false: 1, true: 2}[e.CA != nil])
	return answer
}

func wantNodes(t *testing.T, what string, client *http.Client, e *Endpoint) {
	t.Helper()
	answer, err := client.Get(e.URL + "/api/v1/nodes")
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestRefusingPortServesTheOldConnectionsAndNewOnesAfterRestore(t *testing.T) {
	eachEndpoint(t, func(t *testing.T, e *Endpoint, newClient func() *http.Client) {
		old := newClient()
		wantNodes(t, "at first", old, e)
		e.Refuse()
		e.Refuse() // That changes nothing.
		if _, err := newClient().Get(e.URL + "/api/v1/nodes"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a new connection: %v", err)
		}
		wantNodes(t, "over the old connection", old, e)
		e.Restore()
		e.Restore() // That changes nothing.
		wantNodes(t, "over a new connection", newClient(), e)
		testkit.WantNumber(t, "dials, without refused ones", e.Dialed(), 2)
	})
}

func TestKilledPortBreaksWatches(t *testing.T) {
	eachEndpoint(t, func(t *testing.T, e *Endpoint, newClient func() *http.Client) {
		client := newClient()
		watch := openWatch(t, client, e)
		e.Kill()
		if _, err := io.Copy(io.Discard, watch.Body); err == nil {
			t.Error("the watch ended cleanly")
		}
		if _, err := client.Get(e.URL + "/api/v1/nodes"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("while it is down: %v", err)
		}
		e.Restore()
		wantNodes(t, "when it is restored", client, e)
	})
}

func TestOnlyOldConnectionsToAPortGoSilent(t *testing.T) {
	eachEndpoint(t, func(t *testing.T, e *Endpoint, newClient func() *http.Client) {
		fake := e.server.Handler.(*Server)
		old := newClient()
		watch := openWatch(t, old, e)
		e.GoSilent()
		fake.AddNode("worker")
		fake.AddPod("default", "web", "worker")
		newer := newClient()
		wantNodes(t, "over a new connection", newer, e)
		second := openWatch(t, newer, e)
		if n, err := second.Body.Read(make([]byte, 1)); n != 1 {
			t.Fatalf("a new watch got nothing: %v", err)
		}
		e.Kill()
		sent, err := io.ReadAll(watch.Body)
		if err == nil || len(sent) > 0 {
			t.Errorf("over the half-open connection, the watch got %q, and then %v", sent, err)
		}
	})
}

func TestHalfOpenPortLosesRequests(t *testing.T) {
	eachEndpoint(t, func(t *testing.T, e *Endpoint, newClient func() *http.Client) {
		client := newClient()
		wantNodes(t, "at first", client, e)
		e.GoSilent()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, "GET", e.URL+"/api/v1/pods", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Do(request); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over a half-open connection: %v", err)
		}
		asked := e.server.Handler.(*Server).Received(Requests{Resource: "pods"})
		testkit.WantNumber(t, "requests that arrived", len(asked), 0)
	})
}

// Linux lends ports from 32768 on. One of these could be taken while the Network is down.
func TestFreePortIsNoneThatTheSystemLends(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", ":0"} {
		n := NewTCPNetwork(address, &http.Server{Handler: New()})
		defer n.Close()
		_, port, _ := net.SplitHostPort(n.Addr())
		number, _ := strconv.Atoi(port)
		testkit.WantBetween(t, "the port", number, 1024, 32767)
	}
}

func TestPortThatIsTakenMeanwhileCannotBeRestored(t *testing.T) {
	e := New().Listen("http")
	defer e.Close()
	e.Refuse()
	taken, err := net.Listen("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	wantPanic(t, "the network cannot be restored, because something else took its port meanwhile", e.Restore)
}

func TestClosedPortIsNotRestored(t *testing.T) {
	e := New().Listen("http")
	e.Close()
	e.Restore()
	if _, err := e.Dial(t.Context(), "tcp", "fake:80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}

func TestListenServesAtAnAddress(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		free := New().Listen(scheme)
		free.Close()
		e := New().Listen(free.URL)
		defer e.Close()
		testkit.WantText(t, e.URL, free.URL)
		conn, err := e.Dial(t.Context(), "tcp", "fake:80")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
}

func TestCertificateIsForTheAddress(t *testing.T) {
	for _, host := range []string{"127.0.0.2", "[::1]", "api.example"} {
		leaf := serverPair(NewAuthority("CA"), host+":6443").Leaf
		if err := leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
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

func TestListenNeedsAnAddress(t *testing.T) {
	for _, on := range []string{
		"tcp", "127.0.0.1:8443", "https://127.0.0.1", "https://127.0.0.1:1/", "ftp://127.0.0.1:1",
	} {
		wantPanic(t, `the fake serves http, https, or at a URL such as "https://127.0.0.1:8443", not "`+on, func() {
			New().Listen(on)
		})
	}
	wantPanic(t, "the fake gets no port: ", func() { New().Listen("http://192.0.2.1:1") })
}
