package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kubeconfig"
	"podcount/internal/view/observe"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// countedConn is a connection that counts itself in open until it is closed.
type countedConn struct {
	net.Conn
	open *atomic.Int32
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// countConnections returns a dialer that counts the connections that were ever dialed, and those that are open.
func countConnections(f server, dialed, open *atomic.Int32) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := f.line.Dial(ctx, network, addr)
		dialed.Add(1)
		open.Add(1)
		return &countedConn{Conn: conn, open: open}, err
	}
}

func TestNewConnectionServesOneRequest(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.AddNode("n")
		var dialed, open atomic.Int32
		client := clientOf(t, f, noCredential, Options{Dial: countConnections(f, &dialed, &open)})
		list := func(r Request) {
			t.Helper()
			stream, err := client.Stream(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			if _, err := io.Copy(io.Discard, stream); err != nil {
				t.Fatal(err)
			}
		}
		usual := Request{Method: "GET", API: "/api/v1", Resource: "nodes"}
		apart := usual
		apart.NewConnection = true
		list(usual)
		list(usual)
		testkit.WantNumber(t, "connections for two requests", int(dialed.Load()), 1)
		list(apart)
		synctest.Wait()
		testkit.WantNumber(t, "connections with a new one", int(dialed.Load()), 2)
		testkit.WantNumber(t, "open connections", int(open.Load()), 1)
		list(usual)
		testkit.WantNumber(t, "connections after that", int(dialed.Load()), 2)
	})
}

func TestConnectionWithAnOldCertificateIsClosed(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.AddNode("n")
		var dialed, open atomic.Int32
		renewed := func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
			config := cmp.Or(f.line.TLS, &tls.Config{})
			return &kubeconfig.Credential{TLS: config.Clone()}, nil // another pointer means another certificate
		}
		client := clientOf(t, f, renewed, Options{Dial: countConnections(f, &dialed, &open)})
		for range 3 {
			err := client.Send(t.Context(), listNodes, nil)
			testkit.WantError(t, "Send", err, "")
		}
		synctest.Wait()
		testkit.WantNumber(t, "connections", int(dialed.Load()), 3)
		testkit.WantNumber(t, "connections that are open", int(open.Load()), 1)
	})
}

// appendTo returns an observer that appends the method, the code and the path of each exchange to a list.
func appendTo(exchanges *[]string) func(context.Context, observe.Exchange) {
	return func(_ context.Context, e observe.Exchange) {
		code, _, _ := strings.Cut(e.Status, " ")
		*exchanges = append(*exchanges, e.Method+" "+code+" "+e.URI)
	}
}

func TestRequestHasTheHeadersOfTheAPI(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.AddNode("n")
		client := clientOf(t, f, func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
			return &kubeconfig.Credential{Token: "secret"}, nil
		}, Options{UserAgent: "agent/1", FieldManager: "manager"})
		f.Allow("secret")
		query := url.Values{"limit": {"1"}}
		for _, r := range []Request{
			{Method: "GET", API: "/api/v1", Resource: "nodes", Query: query, Accept: Accept(true, "Any", "application/json")},
			{Method: "PATCH", API: "/api/v1", Resource: "nodes", Name: "n", Body: fakekube.Object{}},
			{Method: "POST", API: "/api/v1/namespaces/default/events", Body: fakekube.Object{}},
			{Method: "DELETE", API: "/api/v1/nodes", Query: url.Values{"labelSelector": {"a=b"}}, Body: fakekube.Object{}},
		} {
			client.Send(t.Context(), r, nil) // the answer does not matter
		}
		var got []string
		for _, r := range all(f.Server) {
			var text []string
			for _, name := range slices.Sorted(maps.Keys(r.Header)) {
				if name != "Content-Length" && name != "Accept-Encoding" {
					text = append(text, name+": "+r.Header.Get(name))
				}
			}
			target := strings.TrimSuffix(r.Path+"?"+r.Query.Encode(), "?")
			got = append(got, r.Method+" "+target+" "+strings.Join(text, "; "))
		}
		const mine = "Authorization: Bearer secret; "
		want := []string{
			"GET /api/v1/nodes?limit=1 Accept: application/json;as=Any;g=meta.k8s.io;v=v1, application/json; " +
				mine + "User-Agent: agent/1",
			"PATCH /api/v1/nodes/n?fieldManager=manager Accept: application/json; " +
				mine + "Content-Type: application/merge-patch+json; User-Agent: agent/1",
			"POST /api/v1/namespaces/default/events?fieldManager=manager Accept: application/json; " +
				mine + "Content-Type: application/json; User-Agent: agent/1",
			"DELETE /api/v1/nodes?fieldManager=manager&labelSelector=a%3Db Accept: application/json; " +
				mine + "Content-Type: application/json; User-Agent: agent/1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("sent\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestRequestIsSentAgainOnceAfterA401(t *testing.T) {
	for name, c := range map[string]struct {
		allowed string
		renew   func(old, fresh *kubeconfig.Credential) (*kubeconfig.Credential, error)
		sent    []string
		err     string
	}{
		"a good one": {
			allowed: "new",
			renew:   func(_, fresh *kubeconfig.Credential) (*kubeconfig.Credential, error) { return fresh, nil },
			sent:    []string{"old", "new"},
		},
		"one that is refused, too": {
			allowed: "another",
			renew:   func(_, fresh *kubeconfig.Credential) (*kubeconfig.Credential, error) { return fresh, nil },
			sent:    []string{"old", "new"},
			err:     "what was not accepted: the new one",
		},
		"still the old one": {
			allowed: "another",
			renew:   func(old, _ *kubeconfig.Credential) (*kubeconfig.Credential, error) { return old, nil },
			sent:    []string{"old"},
			err:     "what was not accepted: the old one",
		},
		"still the old one, with another CA": {
			allowed: "another",
			renew: func(_, _ *kubeconfig.Credential) (*kubeconfig.Credential, error) {
				return &kubeconfig.Credential{Token: "old", TLS: &tls.Config{}}, nil
			},
			sent: []string{"old"},
			err:  "what was not accepted: the old one",
		},
		"none": {
			allowed: "another",
			renew:   func(_, _ *kubeconfig.Credential) (*kubeconfig.Credential, error) { return nil, errors.New("no more") },
			sent:    []string{"old"},
			err:     "and then: no more",
		},
	} {
		simulate(t, func(t *testing.T, f server) {
			f.Allow(c.allowed)
			old := &kubeconfig.Credential{Token: "old", Tried: "the old one"}
			fresh := &kubeconfig.Credential{Token: "new", Tried: "the new one"}
			var observed []string
			client := clientOf(t, f, func(_ context.Context, refused *kubeconfig.Credential) (*kubeconfig.Credential, error) {
				if refused == old {
					return c.renew(old, fresh)
				}
				return old, nil
			}, Options{Observe: appendTo(&observed)})
			err := client.Send(t.Context(), listNodes, nil)
			if c.err == "" && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if c.err != "" && (StatusOf(err).Code != 401 || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s: %v, want %s", name, err, c.err)
			}
			if err != nil && strings.Count(err.Error(), "list nodes: ") != 1 {
				t.Errorf("%s: it does not name the request once: %v", name, err)
			}
			var sent []string
			for _, r := range all(f.Server) {
				sent = append(sent, r.Token)
			}
			if !slices.Equal(sent, c.sent) {
				t.Errorf("%s: sent by %q, want %q", name, sent, c.sent)
			}
			testkit.WantNumber(t, name+": exchanges", len(observed), len(c.sent))
		})
	}
}

func TestOnlyA401IsRetriedAndNoRedirectFollowed(t *testing.T) {
	for _, code := range []int{302, 307, 403, 404, 409, 410, 429, 500, 503} {
		simulate(t, func(t *testing.T, f server) {
			const script = `list nodes: reply %d header Location "http://elsewhere/" header Retry-After 1`
			f.Script(t, fmt.Sprintf(script, code))
			var observed []string
			client := clientOf(t, f, noCredential, Options{Observe: appendTo(&observed)})
			err := client.Send(t.Context(), listNodes, nil)
			if StatusOf(err).Code != code {
				t.Errorf("%d: %v", code, err)
			}
			want := []string{fmt.Sprintf("GET %d /api/v1/nodes", code)}
			if !slices.Equal(observed, want) {
				t.Errorf("%d: observed %q, want %q", code, observed, want)
			}
		})
	}
}

func TestObserverGetsEachExchangeOnce(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.AddNode("n")
		f.Script(t, "list nodes: drop request")
		var observed []observe.Exchange
		record := func(_ context.Context, e observe.Exchange) { observed = append(observed, e) }
		client := clientOf(t, f, noCredential, Options{Observe: record})
		start := time.Now()
		// This must be the first request of a connection: net/http retries a later one if its connection breaks.
		dropped := client.Send(t.Context(), listNodes, nil)
		if dropped == nil {
			t.Fatal("there is an answer")
		}
		why := errors.Unwrap(dropped).Error() // without the request
		get := Request{Method: "GET", API: "/api/v1", Resource: "nodes", Name: "n", Query: url.Values{"a": {"b"}}}
		if err := client.Send(t.Context(), get, nil); err != nil {
			t.Error(err)
		}
		patch := Request{Method: "PATCH", API: "/api/v1", Resource: "nodes", Name: "gone", Body: fakekube.Object{}}
		if err := client.Send(t.Context(), patch, nil); StatusOf(err).Code != 404 {
			t.Error(err)
		}
		const host = "127.0.0.1:1"
		want := []observe.Exchange{
			{Method: "GET", URI: "/api/v1/nodes", Host: host, Status: "<error>", Error: why, Start: start},
			{Method: "GET", URI: "/api/v1/nodes/n?a=b", Host: host, Status: "200 OK", Start: start},
			{
				Method: "PATCH", URI: "/api/v1/nodes/gone?fieldManager=", Host: host,
				Status: "404 Not Found", Start: start,
			},
		}
		if !slices.Equal(observed, want) {
			t.Errorf("observed\n%+v\nwant\n%+v", observed, want)
		}
	})
}

func TestDryRunReadsAndSendsNoWrite(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.AddNode("n")
		client := clientOf(t, f, noCredential, Options{DryRun: true})
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			r := Request{Method: method, API: "/api/v1", Resource: "nodes", Name: "n", Body: fakekube.Object{}}
			_, doErr := client.Do(t.Context(), r)
			for _, err := range []error{client.Send(t.Context(), r, nil), doErr} {
				if !errors.Is(err, errDryRun) || !strings.Contains(err.Error(), " nodes/n: not sent") {
					t.Errorf("%s: %v", method, err)
				}
			}
		}
		testkit.WantNumber(t, "requests", len(all(f.Server)), 0)
		var node struct{ Metadata struct{ Name string } }
		get := Request{Method: "GET", API: "/api/v1", Resource: "nodes", Name: "n"}
		err := client.Send(t.Context(), get, testkit.Into(&node))
		if err != nil || node.Metadata.Name != "n" {
			t.Errorf("%+v, %v", node, err)
		}
	})
}

func TestSendTakesNoLongerThanItsTimeout(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: RequestTimeout, time.Second: time.Second} {
		simulate(t, func(t *testing.T, f server) {
			f.Script(t, "list nodes: stall")
			client := clientOf(t, f, noCredential, Options{})
			start := time.Now()
			err := client.Send(t.Context(), Request{Method: "GET", API: "/api/v1", Resource: "nodes", Timeout: given}, nil)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != want {
				t.Errorf("after %v, want %v: %v", time.Since(start), want, err)
			}
		})
	}
}

func TestNetworkErrorNamesTheServerAndItsSource(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		client := clientOf(t, f, noCredential, Options{})
		client.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no way")}
		}
		err := client.Send(t.Context(), listNodes, nil)
		want := "list nodes: " + f.line.Scheme + "://127.0.0.1:1, from a test: dial tcp: no way " +
			"(is the API server running, and is this its address?)"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

func TestHugeAnswerIsNotReadToItsEnd(t *testing.T) {
	const limit = 4 << 20
	simulate(t, func(t *testing.T, f server) {
		f.Script(t, "list pods: reply 200 header Content-Type application/json body "+strings.Repeat("1", 2*limit))
		client := clientOf(t, f, noCredential, Options{})
		list := Request{Method: "GET", API: "/api/v1", Resource: "pods"}
		err := client.Send(t.Context(), list, func(answer io.Reader) error {
			read, err := io.Copy(io.Discard, answer)
			testkit.WantEqual(t, "the bytes that are read", read, limit)
			return err
		})
		testkit.WantError(t, "a huge answer", err, "more than 4194304 bytes")
	})
}
