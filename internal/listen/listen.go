// Package listen is an HTTP server for untrusted clients: any pod of a cluster may ask it.
//
// It promises that idle clients keep no other one out. Where all places are taken, the oldest connection whose request
// has not arrived yet gives its place to the newcomer: only where all requests have arrived is the oldest of these cut
// off. A request has two seconds to arrive, and ten to be answered. What is held for clients is bounded: 64 connections
// at a time, each with 4 KB of headers.
//
// It never reads the body of a request, never keeps a connection for a second request, and knows neither TLS nor who
// asks: what its handler answers is for everybody.
package listen

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"
)

// What is granted to a client. The package's comment names these numbers.
const (
	connectionLimit = 64              // open at a time, of all clients
	headerLimit     = 4 << 10         // bytes of a request's first line and headers
	headerTime      = 2 * time.Second // for these to arrive
)

// Server is an HTTP server for untrusted clients.
type Server struct {
	http     *http.Server
	listener *newestListener
}

// Listen opens a port, as net.Listen does for tcp, for a Server that answers with handler. Serve must be called then,
// and Close in the end. ctx ends a lookup of the address's host, which may hang; it does not end the Server. log
// gets, at the debug level, what is wrong with connections.
//
// The handler must not heed the context of a request. It may be canceled at any moment after the request has arrived,
// although the client still waits: that is how net/http takes the end of all reading.
func Listen(ctx context.Context, address string, handler http.Handler, log *slog.Logger) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &Server{
		http:     newServer(handler, log),
		listener: &newestListener{TCPListener: listener.(*net.TCPListener)},
	}, nil
}

// Addr returns the address that the server listens on, with its port.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers requests until Close is called, and returns nil then. Any other end is an error: no more is answered.
func (s *Server) Serve() error {
	err := s.http.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close closes the port and all connections at once, even those that are answered just now.
func (s *Server) Close() error { return s.http.Close() }

// newServer makes an HTTP server, to be used with a newestListener.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	server := &http.Server{
		Handler:           noteArrival(handler),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       5 * time.Second, // for a body that noteArrival could not cut short
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    max(1, headerLimit-4096), // net/http reads 4,096 bytes more than this says
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	server.SetKeepAlivesEnabled(false) // or a silent client could keep its connection for longer than these times
	return server
}

// newestListener keeps at most connectionLimit connections open: a new one takes the place of the oldest whose request
// has not arrived yet. If newcomers had to wait instead, whoever held that many connections would keep out all others,
// such as the probes by which kubelet learns whether a container is to be restarted.
type newestListener struct {
	*net.TCPListener

	mu   sync.Mutex
	open []*listedConn // oldest first; guarded by mu, as is all of listedConn
}

// listedConn is a connection that leaves its listener's list when it is closed.
type listedConn struct {
	*net.TCPConn // not just a net.Conn: net/http closes half of a TCPConn, so that its last answer arrives
	listener     *newestListener
	hasArrived   bool // the request's headers have been read: its answer is soon made, and has a limit of its own
}

// connKey is the key of a request's *listedConn in its context.
type connKey struct{}

// noteArrival notes of each request that its headers have been read, before handler answers it. Requests need no body:
// nothing more is read, so that nobody keeps a place by announcing one that does not come.
func noteArrival(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(*listedConn)
		conn.listener.mu.Lock()
		conn.hasArrived = true
		conn.listener.mu.Unlock()
		http.NewResponseController(w).SetReadDeadline(time.Now())
		handler.ServeHTTP(w, r)
	})
}

// Accept waits for the next connection, as net.Listener has it.
func (l *newestListener) Accept() (net.Conn, error) {
	tcp, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	conn := &listedConn{TCPConn: tcp, listener: l}
	if oldest := l.add(conn); oldest != nil {
		oldest.Close()
		runtime.Gosched() // lets the server read what the others have sent, before yet another loses its place
	}
	return conn, nil
}

// add lists a connection, and returns the one whose place it takes; nil: there was room.
func (l *newestListener) add(conn *listedConn) *listedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, conn)
	if len(l.open) <= connectionLimit {
		return nil
	}
	for _, old := range l.open[:connectionLimit] {
		if !old.hasArrived {
			return old
		}
	}
	return l.open[0]
}

// Close closes the connection. It may be called again.
func (c *listedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.open = slices.DeleteFunc(c.listener.open, func(open *listedConn) bool { return open == c })
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}
