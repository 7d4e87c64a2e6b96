package fakekube

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
)

// ServeTLS serves the fake on a port of 127.0.0.1, over TLS and HTTP/2, in real time. It returns the server, which the
// caller closes, and the CA of its certificate, in PEM.
func (s *Server) ServeTLS() (srv *httptest.Server, ca []byte) {
	srv = httptest.NewUnstartedServer(s)
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	srv.StartTLS()
	return srv, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
}

// ServeFor serves the fake on a port of 127.0.0.1, over plain HTTP/1.1, in real time, until the test ends. It returns
// the URL. When the test ends, the watches that still run break; the Close of a plain httptest.Server would wait for
// them.
func (s *Server) ServeFor(t TB) (url string) {
	srv := httptest.NewUnstartedServer(s)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

// ServeTLSFor is ServeTLS until the test ends. It returns the URL, and the CA in PEM.
func (s *Server) ServeTLSFor(t TB) (url string, ca []byte) {
	srv, ca := s.ServeTLS()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL, ca
}

// Network is a network within the process, with one server, on which the fake serves. It works in virtual time, which
// real connections do not. It is the server's net.Listener; clients connect by Dial.
type Network struct {
	conns chan net.Conn
	done  chan struct{}

	isDown atomic.Bool  // connections are refused
	dials  atomic.Int32 // attempts to connect so far
	era    atomic.Int32 // counts calls of GoSilent; the connections of earlier eras are half open

	mu   sync.Mutex // guards open
	open []net.Conn // the server's ends
}

// Kill breaks all connections and refuses new ones until Restore is called.
func (n *Network) Kill() {
	n.Refuse()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.open {
		c.Close()
	}
	n.open = nil
}

// Refuse lets nobody connect until Restore is called. The connections that are there go on.
func (n *Network) Refuse() { n.isDown.Store(true) }

// Restore ends Kill and Refuse.
func (n *Network) Restore() { n.isDown.Store(false) }

// GoSilent makes all connections that are there half open: nothing that either end sends arrives any more, and nobody
// is told. New connections work.
func (n *Network) GoSilent() { n.era.Add(1) }

// Dialed is how many times a client has tried to connect, whether it could or not.
func (n *Network) Dialed() int { return int(n.dials.Load()) }

// halfOpen is the client's end of a connection. Once its network's era is over, the client alone knows of it.
type halfOpen struct {
	net.Conn

	// in buffers what arrives, as a real network does. Without that, two ends that both write would wait for each
	// other for ever.
	in  io.Reader
	net *Network
	era int32
}

// Read passes over what arrives once the era is over.
func (c halfOpen) Read(p []byte) (n int, err error) {
	for {
		n, err = c.in.Read(p)
		if c.era == c.net.era.Load() || err != nil {
			return n, err
		}
	}
}

// Write loses what is sent once the era is over.
func (c halfOpen) Write(p []byte) (int, error) {
	if c.era != c.net.era.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Accept waits for the next connection, or for the end of the network. It is for the server.
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// Close does nothing: the network ends with its test.
func (n *Network) Close() error { return nil }

// Addr is an address that says nothing. net.Listener wants one.
func (n *Network) Addr() net.Addr { return &net.TCPAddr{} }

// Dial connects a client to the server, whatever the address. It is for http.Transport.DialContext and the like. Its
// error is that of a refused connection, also once the network has ended, or the context's.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.dials.Add(1)
	refused := &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	ours, theirs := net.Pipe()
	client := halfOpen{Conn: ours, in: bufio.NewReaderSize(ours, 32<<10), net: n, era: n.era.Load()}
	if !n.add(theirs) {
		return nil, refused
	}
	select {
	case n.conns <- theirs:
		return client, nil
	case <-n.done:
		theirs.Close()
		return nil, refused
	case <-ctx.Done():
		theirs.Close()
		return nil, ctx.Err()
	}
}

// add lists a connection before the server gets it, so that Kill finds it. It reports whether it may be made.
func (n *Network) add(theirs net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isDown.Load() {
		return false
	}
	n.open = append(n.open, theirs)
	return true
}

// ServeIn serves the fake on a network of its own until the test ends. With a certificate, which is asked for at each
// handshake, it does so over TLS, and so over HTTP/2. In a bubble, clients must close their idle connections before
// the test ends.
func (s *Server) ServeIn(t TB, certificate ...func() *tls.Certificate) *Network {
	return ServeHandlerIn(t, s, certificate...)
}

// ServeHandlerIn is ServeIn of something else than a fake, such as a proxy before one.
func ServeHandlerIn(t TB, handler http.Handler, certificate ...func() *tls.Certificate) *Network {
	n := &Network{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	if len(certificate) > 0 {
		srv.TLSConfig = &tls.Config{
			ClientAuth: tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return certificate[0](), nil
			},
		}
		go srv.ServeTLS(n, "", "")
	} else {
		go srv.Serve(n)
	}
	t.Cleanup(func() {
		close(n.done)
		srv.Close()
	})
	return n
}

// ServeAs is ServeIn over TLS, and writes a kubeconfig for that to dir/config. The user is as in Kubeconfig.
func (s *Server) ServeAs(t TB, dir, user string) *Network {
	t.Helper()
	ca := NewAuthority(t, "CA")
	cert, key := ca.Issue(t, "server", nil)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config := Kubeconfig("https://127.0.0.1:1", ca.PEM(), user)
	err = os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return s.ServeIn(t, func() *tls.Certificate { return &pair })
}
