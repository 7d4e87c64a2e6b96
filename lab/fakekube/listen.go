package fakekube

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// Serving is a fake that serves on a port of 127.0.0.1 in real time.
type Serving struct {
	URL string // such as "https://127.0.0.1:40123"
	CA  []byte // of the server's certificate, in PEM

	server *http.Server
}

// Close stops the server and breaks its connections.
func (s *Serving) Close() error { return s.server.Close() }

// ServeTLS serves the fake on a port of 127.0.0.1 in real time, with TLS and HTTP/2, until the Serving is closed.
// Like a real server, it accepts any client certificate in the handshake and checks it later.
func (s *Server) ServeTLS() (*Serving, error) {
	ca, err := newAuthority("fakekube's CA")
	if err != nil {
		return nil, err
	}
	certPEM, keyPEM, err := ca.issue("fakekube", nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := quietServer(s)
	server.TLSConfig = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{pair}}
	go server.ServeTLS(port, "", "")
	return &Serving{URL: "https://" + port.Addr().String(), CA: ca.PEM(), server: server}, nil
}

// quietServer returns a server that does not log connection errors, because tests cause them.
func quietServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:     handler,
		ErrorLog:    log.New(io.Discard, "", 0),
		ConnContext: withConn,
	}
}

// connKey is the key of a request's connection in its context. The connection is the one below TLS.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	if overTLS, isTLS := conn.(*tls.Conn); isTLS {
		conn = overTLS.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// ServeFor serves the fake on a port of 127.0.0.1 in real time, with plain HTTP/1.1, until the test ends, and returns
// the URL. Running watches break at the end; httptest.Server would wait for them.
func (s *Server) ServeFor(t TB) (url string) {
	t.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := quietServer(s)
	go server.Serve(port)
	t.Cleanup(func() { server.Close() })
	return "http://" + port.Addr().String()
}

// ServeTLSFor is ServeTLS until the test ends. It returns the URL and the CA in PEM.
func (s *Server) ServeTLSFor(t TB) (url string, ca []byte) {
	t.Helper()
	serving, err := s.ServeTLS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { serving.Close() })
	return serving.URL, serving.CA
}

// ServeIn serves the fake on a new Network until the test ends. If a certificate is given, it serves with TLS and
// HTTP/2 and calls the function at each handshake. Within a bubble, clients must close their idle connections before
// the test ends.
func (s *Server) ServeIn(t TB, certificate ...func() *tls.Certificate) *Network {
	return ServeHandlerIn(t, s, certificate...)
}

// ServeHandlerIn is ServeIn for another handler, such as a proxy in front of a fake.
func ServeHandlerIn(t TB, handler http.Handler, certificate ...func() *tls.Certificate) *Network {
	if len(certificate) == 0 {
		server := quietServer(handler)
		return serveIn(t, server, server.Serve)
	}
	return ServeTLSIn(t, handler, TLS{
		Certificate: func(*tls.ClientHelloInfo) *tls.Certificate { return certificate[0]() },
	})
}

// Protocols are the protocols of Line.
var Protocols = []string{"HTTP/1.1", "HTTP/2"}

// Line is a Network that carries one of the Protocols. With HTTP/2 it has TLS, like a real API server.
type Line struct {
	*Network
	Scheme string      // of the URLs of the server, which may have any host
	TLS    *tls.Config // what clients need; nil without TLS
}

// ServeOver is ServeIn over one of the Protocols. A test of a client should run over each of them: net/http does not
// treat them alike, for example when a context ends.
func (s *Server) ServeOver(t TB, protocol string) Line {
	t.Helper()
	if protocol == "HTTP/1.1" {
		return Line{Network: s.ServeIn(t), Scheme: "http"}
	}
	ca, pair := newServerPair(t)
	return Line{
		Network: s.ServeIn(t, func() *tls.Certificate { return pair }),
		Scheme:  "https",
		TLS:     &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"},
	}
}

// TLS says how ServeTLSIn serves.
type TLS struct {
	// Certificate returns the server's certificate for a handshake. It is required, and it may be called from any
	// goroutine.
	Certificate func(*tls.ClientHelloInfo) *tls.Certificate

	// WithoutHTTP2 makes the server offer only HTTP/1.1.
	WithoutHTTP2 bool
}

// ServeTLSIn is ServeHandlerIn with TLS, and a certificate that may depend on the name by which a client calls the
// server.
func ServeTLSIn(t TB, handler http.Handler, o TLS) *Network {
	server := quietServer(handler)
	server.TLSConfig = &tls.Config{
		ClientAuth: tls.RequestClientCert,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return o.Certificate(hello), nil
		},
	}
	if o.WithoutHTTP2 {
		server.Protocols = &http.Protocols{}
		server.Protocols.SetHTTP1(true)
	}
	return serveIn(t, server, func(l net.Listener) error { return server.ServeTLS(l, "", "") })
}

// serveIn serves on a new Network until the test ends. serve is a method of the server.
func serveIn(t TB, server *http.Server, serve func(net.Listener) error) *Network {
	n := &Network{conns: make(chan net.Conn), done: make(chan struct{})}
	go serve(listener{n})
	t.Cleanup(func() {
		close(n.done)
		server.Close()
	})
	return n
}

// ServeAs is ServeIn with TLS. It also writes a kubeconfig to dir/config, with the user as in Kubeconfig.
func (s *Server) ServeAs(t TB, dir, user string) *Network {
	t.Helper()
	ca, pair := newServerPair(t)
	config := Kubeconfig("https://127.0.0.1:1", ca.PEM(), user)
	err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return s.ServeIn(t, func() *tls.Certificate { return pair })
}

// newServerPair returns a new CA, and a certificate of it for a server.
func newServerPair(t TB) (*Authority, *tls.Certificate) {
	t.Helper()
	ca := NewAuthority(t, "CA")
	cert, key := ca.Issue(t, "server", nil)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return ca, &pair
}
