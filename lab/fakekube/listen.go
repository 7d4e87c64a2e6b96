package fakekube

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
)

// Endpoint is a port of 127.0.0.1 on which a fake serves in real time.
type Endpoint struct {
	URL string // such as "https://127.0.0.1:40123"
	CA  []byte // of the server's certificate, in PEM; nil for plain HTTP

	server *http.Server
}

// Close stops the server and breaks its connections.
func (e *Endpoint) Close() { e.server.Close() }

// Listen serves the fake on a free port of 127.0.0.1 in real time, until the Endpoint is closed: with TLS and HTTP/2 if
// the scheme is "https", and with plain HTTP/1.1 if it is "http". It may be called several times. Like a real server,
// it accepts any client certificate in the handshake and checks it later.
//
// Any server of net/http can serve a fake. Those of Listen and NewNetwork break running watches when they are closed,
// and can Reset a connection. As httptest.NewServer does, Listen panics if it gets no port. It panics if the scheme is
// another one, too.
func (s *Server) Listen(scheme string) *Endpoint {
	if scheme != "http" && scheme != "https" {
		panic(fmt.Sprintf("the fake serves http and https, not %q", scheme))
	}
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("the fake gets no port: %v", err))
	}
	e := &Endpoint{URL: scheme + "://" + port.Addr().String(), server: &http.Server{Handler: s}}
	if scheme == "https" {
		ca := NewAuthority("fakekube's CA")
		e.CA = ca.PEM()
		e.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*serverPair(ca)}}
	}
	startOn(port, e.server)
	return e
}

// serverPair returns a certificate for a server, with its key.
func serverPair(ca *Authority) *tls.Certificate {
	pair, err := tls.X509KeyPair(ca.Issue("fakekube", nil))
	if err != nil {
		panic(err)
	}
	return &pair
}

// startOn lets a server serve until it is closed, with TLS if that is configured. The server does not log errors of
// connections, because tests cause them.
func startOn(l net.Listener, server *http.Server) {
	if server.ErrorLog == nil {
		server.ErrorLog = log.New(io.Discard, "", 0)
	}
	server.ConnContext = withConn
	if server.TLSConfig == nil {
		go server.Serve(l)
		return
	}
	server.TLSConfig = server.TLSConfig.Clone()
	server.TLSConfig.ClientAuth = tls.RequestClientCert
	go server.ServeTLS(l, "", "")
}

// connKey is the key of a request's connection in its context. The connection is the one below TLS.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	if overTLS, isTLS := conn.(*tls.Conn); isTLS {
		conn = overTLS.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}
