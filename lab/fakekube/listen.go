package fakekube

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
)

// Endpoint is an address at which a fake serves over TCP and in real time. The methods of its Network disturb the
// connections, and Close ends it.
type Endpoint struct {
	*Network
	URL string // such as "https://127.0.0.1:40123"
	CA  []byte // of the server's certificate, in PEM; nil for plain HTTP
}

// Listen serves the fake in real time, until the Endpoint is closed. "https" is a free port of 127.0.0.1 with TLS and
// HTTP/2, and "http" one with plain HTTP/1.1. A URL such as "https://127.0.0.1:8443" names another address. Listen may
// be called several times. Like a real server, it accepts any client certificate in the handshake and checks it later.
//
// Any server of net/http can serve a fake. Those of Listen, NewNetwork and NewTCPNetwork break running watches when
// they are closed, and can Reset a connection. As httptest.NewServer does, Listen panics if it gets no port. It panics
// if on is something else, too.
func (s *Server) Listen(on string) *Endpoint {
	scheme, host := parseEndpoint(on)
	server := &http.Server{Handler: s}
	e := &Endpoint{}
	if scheme == "https" {
		ca := NewAuthority("fakekube's CA")
		e.CA = ca.PEM()
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*serverPair(ca, host)}}
	}
	e.Network = NewTCPNetwork(host, server)
	e.URL = scheme + "://" + e.Addr()
	return e
}

// parseEndpoint returns the scheme of what Listen gets, and the HOST:PORT.
func parseEndpoint(on string) (scheme, host string) {
	const freePort = "127.0.0.1:0"
	if on == "http" || on == "https" {
		return on, freePort
	}
	u, err := url.Parse(on)
	isValid := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Port() != "" &&
		on == u.Scheme+"://"+u.Host
	if !isValid {
		panic(fmt.Sprintf(`the fake serves http, https, or at a URL such as "https://127.0.0.1:8443", not %q`, on))
	}
	return u.Scheme, u.Host
}

// serverPair returns a certificate for a server at a HOST:PORT, with its key.
func serverPair(ca *Authority, hostPort string) *tls.Certificate {
	pair, err := tls.X509KeyPair(ca.Issue("fakekube", func(c *x509.Certificate) {
		host, _, _ := net.SplitHostPort(hostPort)
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}))
	if err != nil {
		panic(err)
	}
	return &pair
}

// serveFunc configures a server for a Network, and returns its Serve or, with a TLSConfig, its ServeTLS. The server
// does not log errors of connections, because tests cause them.
func serveFunc(server *http.Server) func(net.Listener) error {
	server.ErrorLog = cmp.Or(server.ErrorLog, log.New(io.Discard, "", 0))
	server.ConnContext = withConn
	if server.TLSConfig == nil { // Serve will set it
		return server.Serve
	}
	server.TLSConfig = server.TLSConfig.Clone()
	server.TLSConfig.ClientAuth = tls.RequestClientCert
	return func(l net.Listener) error { return server.ServeTLS(l, "", "") }
}

// connKey is the key of a request's connection in its context. The connection is the one below TLS.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	if overTLS, isTLS := conn.(*tls.Conn); isTLS {
		conn = overTLS.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}
