package fakekube

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
)

func TestClientCertificateNeedsTheRightAuthority(t *testing.T) {
	trusted := NewAuthority("ours")
	other := NewAuthority("theirs")
	f := New()
	f.Allow("token")
	f.ClientCA = trusted.Pool()
	for _, c := range []struct {
		ca   *Authority
		want int
	}{{trusted, 200}, {other, 401}} {
		certPEM, keyPEM := c.ca.Issue("me", asAdmin)
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		r := newRequest("GET", "/api/v1/pods", "")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf}}
		if w := serve(f, r); w.Code != c.want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, c.want)
		}
	}
	received := f.Received(Requests{Verb: "list", Resource: "pods"})
	if received[0].User != "me" || !strings.HasPrefix(received[0].String(), "GET /api/v1/pods?") {
		t.Errorf("the first request is %s, by %q", received[0], received[0].User)
	}
}
