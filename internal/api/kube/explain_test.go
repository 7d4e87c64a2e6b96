package kube

import (
	"context"
	"crypto/fips140"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"podcount/internal/api/kubeconfig"
	"podcount/internal/view/observe"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// listNodes is a request that any server can answer.
var listNodes = Request{Method: "GET", API: "/api/v1", Resource: "nodes"}

// ask sends a request to the server of the kubeconfig with this text.
func ask(t *testing.T, kubeconfigText string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(kubeconfigText), 0o600); err != nil {
		t.Fatal(err)
	}
	nothing := func(string) string { return "" }
	cfg, err := kubeconfig.Load(t.Context(), kubeconfig.Options{Kubeconfig: file, Getenv: nothing})
	if err != nil {
		t.Fatal(err)
	}
	defer cfg.Close()
	client := NewClient(cfg, Options{})
	defer client.Close()
	return client.Send(t.Context(), listNodes, nil)
}

func TestUnverifiedServerGetsNoRequest(t *testing.T) {
	f := fakekube.New()
	server, _ := fixture.Listen(t, f)
	err := ask(t, fakekube.Kubeconfig(server, nil, "token: t"))
	if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("answered %v", err)
	}
	testkit.WantNumber(t, "requests that arrived", len(all(f)), 0)
}

// named gives a certificate one DNS name, and no IP address.
func named(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.IPAddresses = nil
		c.DNSNames = []string{name}
	}
}

func TestTLSErrorsSayWhatToDo(t *testing.T) {
	ca, other := fakekube.NewAuthority("the CA"), fakekube.NewAuthority("another CA")
	endOfHint := ")"
	if fips140.Enabled() {
		endOfHint = "; " + ruleOfFIPS + ")"
	}
	for name, c := range map[string]struct {
		trusted *fakekube.Authority
		change  func(*x509.Certificate)
		cluster string // more of its fields
		want    string
	}{
		"wrong CA": {
			trusted: other,
			want: "certificate signed by unknown authority (give the CA of this cluster as certificate-authority; " +
				`the server's certificate was issued by "CN=the CA")`,
		},
		"wrong name": {
			trusted: ca,
			cluster: "    tls-server-name: api.example.com\n",
			want: "certificate is valid for localhost, not api.example.com " +
				"(give one of these names as tls-server-name",
		},
		"wrong host": {
			trusted: ca,
			change:  named("a.example.com"),
			want:    "(give one of these names as tls-server-name",
		},
		"its expired": {
			trusted: ca,
			change:  func(c *x509.Certificate) { c.NotAfter = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) },
			want:    "is after 1999-01-01T00:00:00Z (renew the server's certificate, or set the clock of this machine)",
		},
		"no server's": {
			trusted: ca,
			change:  func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
			want:    "incompatible key usage (give the server a certificate for servers",
		},
		"old TLS": {
			trusted: ca,
			want:    "tls: protocol version not supported (this client supports TLS 1.2 and 1.3; ",
		},
		"its clients": {
			trusted: ca,
			want:    "; if the server requires a client certificate, give a valid one that it knows" + endOfHint,
		},
		"no TLS": {
			trusted: ca,
			want:    "(it does not use TLS: is this the address of an API server, and should it begin with http://?)",
		},
		"right name": {
			trusted: ca,
			change:  named("api.example.com"),
			cluster: "    tls-server-name: api.example.com\n",
		},
		"unverified": {
			cluster: "    insecure-skip-tls-verify: true\n",
		},
	} {
		f := fakekube.New()
		certPEM, keyPEM := ca.Issue("server", c.change)
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewUnstartedServer(f)
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		switch name {
		case "old TLS":
			srv.TLS.MinVersion = tls.VersionTLS10
			srv.TLS.MaxVersion = tls.VersionTLS11
		case "its clients":
			srv.TLS.ClientAuth = tls.RequireAndVerifyClientCert
		}
		if name == "no TLS" {
			srv.Start()
		} else {
			srv.StartTLS()
		}
		defer srv.Close()
		url := "https://" + srv.Listener.Addr().String()
		config := fakekube.Kubeconfig(url, nil, "token: s3cret")
		if c.trusted != nil {
			config = fakekube.Kubeconfig(url, c.trusted.PEM(), "token: s3cret")
		}
		const place = "    certificate-authority-data"
		err = ask(t, strings.Replace(config, place, c.cluster+place, 1))
		testkit.WantError(t, name, err, c.want)
		if err == nil {
			continue
		}
		testkit.WantText(t, err.Error(), "list nodes: "+url+", from /")
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the token is in the error: %v", name, err)
		}
		testkit.WantNumber(t, name+": requests that arrived", len(all(f)), 0)
	}
}

// The client asks the proxy for a tunnel, and verifies the server at its other end as usual.
func TestProxyURLLeadsThroughThatProxy(t *testing.T) {
	f := fakekube.New()
	server, ca := fixture.Listen(t, f)
	var tunnels atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnels.Add(1)
		if r.Method != http.MethodConnect || r.Header.Get("Authorization") != "" {
			t.Errorf("the proxy was asked %s with %v", r.Method, r.Header)
		}
		there, err := net.Dial("tcp", r.Host)
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteHeader(200)
		here, rest, _ := http.NewResponseController(w).Hijack()
		go io.Copy(there, rest)
		go io.Copy(here, there)
	}))
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	config := fakekube.Kubeconfig(server, ca, "token: t")
	err := ask(t, strings.Replace(config, "    server:", "    proxy-url: "+proxy.URL+"\n    server:", 1))
	if err != nil || tunnels.Load() != 1 {
		t.Errorf("answered %v through %d tunnels", err, tunnels.Load())
	}
}

func TestRefusingProxyIsNamedWithoutItsPassword(t *testing.T) {
	for code, want := range map[int]string{
		http.StatusForbidden:         "403 Forbidden (allow connections to the API server there",
		http.StatusProxyAuthRequired: "407 Proxy Authentication Required (give its user and password",
	} {
		refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
		proxy := httptest.NewServer(http.HandlerFunc(refuse))
		defer proxy.Close()
		config := strings.Replace(fakekube.Kubeconfig("https://10.1.2.3:6443", nil, "token: t"), "    server:",
			"    proxy-url: "+strings.Replace(proxy.URL, "//", "//me:s3cret@", 1)+"\n    server:", 1)
		err := ask(t, config)
		said := fmt.Sprint(err)
		host := strings.TrimPrefix(proxy.URL, "http://")
		testkit.WantText(t, said, "list nodes: https://10.1.2.3:6443, from ")
		testkit.WantText(t, said, "the proxy http://me:xxxxx@"+host+" refuses the connection: "+want)
		if strings.Contains(said, "s3cret") || strings.Contains(said, "RBAC") {
			t.Error(said)
		}
	}
}

func TestLongTextsOfAServerAreCutInErrors(t *testing.T) {
	long := strings.Repeat("x", 50_000)
	for name, c := range map[string]struct {
		answer string
		want   string
	}{
		"a long Content-Type": {
			"HTTP/1.1 200 OK\r\nContent-Type: " + long + "\r\nContent-Length: 0\r\n\r\n",
			`list nodes: the answer is "xxx`,
		},
		"a long status line": {
			"HTTP/1.1 503 " + long + "\r\nContent-Length: 0\r\n\r\n",
			`list nodes: 503 Service Unavailable: ""`,
		},
		"a line that is no header": {"HTTP/1.1 200 OK\r\n" + long + "\r\n\r\n", "malformed MIME header"},
		"a code that is no number": {"HTTP/1.1 x" + long + "\r\n\r\n", "malformed HTTP status code"},
		"headers without end": {
			"HTTP/1.1 200 OK\r\nA: " + long + "\r\nB: " + long + "\r\n\r\n",
			"server response headers exceeded 65536 bytes",
		},
		"answers 1xx without end": {
			strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", 5000),
			"server response headers exceeded 65536 bytes",
		},
		"a long number": {
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + `{"a":` + strings.Repeat("7", 50_000) + `}`,
			"cannot unmarshal number 777",
		},
	} {
		var observed string
		client := clientOfAnswer(t, c.answer, Options{
			Observe: func(_ context.Context, e observe.Exchange) { observed = e.Status },
		})
		var into struct{ A int }
		err := client.Send(t.Context(), listNodes, testkit.Into(&into))
		testkit.WantError(t, name, err, c.want)
		testkit.WantBetween(t, name+": bytes of the error", len(err.Error()), 1, 2200)
		testkit.WantBetween(t, name+": bytes of the status", len(observed), 1, 30)
	}
}

// clientOfAnswer makes a client of a server that gives every request this answer, and then closes the connection.
func clientOfAnswer(t *testing.T, answer string, o Options) *Client {
	base, _ := url.Parse("http://127.0.0.1:1")
	o.Dial = func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			there.Read(make([]byte, 4096))
			io.WriteString(there, answer)
		}()
		return here, nil
	}
	client := NewClient(&kubeconfig.Config{Server: base, Source: "a test", Credential: noCredential}, o)
	t.Cleanup(client.Close)
	return client
}

func TestErrorKeepsNoCertificate(t *testing.T) {
	ca := fakekube.NewAuthority("the CA")
	label := strings.Repeat("x", 60)
	names := slices.Repeat([]string{label + "." + label + "." + label + ".example.com"}, 90)
	certPEM, keyPEM := ca.Issue("server", func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, names })
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(fakekube.New())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	srv.StartTLS()
	defer srv.Close()
	server := "https://" + srv.Listener.Addr().String()
	text := fakekube.Kubeconfig(server, ca.PEM(), "token: t")
	err = ask(t, strings.Replace(text, "    server:", "    tls-server-name: api.example.com\n    server:", 1))
	testkit.WantError(t, "Send", err, "certificate is valid for "+label+"."+label)
	testkit.WantError(t, "Send", err, " bytes in all) (give one of these names as tls-server-name")
	testkit.WantBetween(t, "bytes of the error", len(err.Error()), 1, 2048)
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		t.Error("the error keeps the certificate")
	}
}

func TestOddCodesOfHTTPAreOneLabel(t *testing.T) {
	for code, want := range map[int]string{
		200:     "200 OK",
		422:     "422 Unprocessable Entity",
		599:     "599",
		99:      "<invalid>",
		600:     "<invalid>",
		1 << 40: "<invalid>",
	} {
		testkit.WantEqual(t, fmt.Sprint(code), describeCode(code), want)
	}
}
