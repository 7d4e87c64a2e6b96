// Package listen is an HTTP server for untrusted clients: any pod in the cluster may connect to it.
//
// Idle clients cannot lock out others. The server has at most 64 open connections. To accept one more, it closes the
// oldest connection whose request has not fully arrived. If all requests have arrived, it closes the oldest connection.
// A request must arrive within two seconds, with at most 4 KB of headers. The answer may take ten seconds.
//
// The server does not read the body of a request, and closes a connection after one answer. It has no TLS and no
// authentication: the handler's answers are public.
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

// The package comment names these limits, too.
const (
	connectionLimit = 64               // open connections
	headerLimit     = 4 << 10          // bytes of the first line and the headers of a request
	headerTimeout   = 2 * time.Second  // for the first line and the headers to arrive
	answerTimeout   = 10 * time.Second // for the answer, once the headers have arrived
	sendBuffer      = 64 << 10         // bytes of an answer that the kernel holds for a client that does not read
)

// Server is an HTTP server for untrusted clients.
type Server struct {
	http     *http.Server
	listener *cappedListener
}

// Listen opens a TCP port for a Server that answers with the handler. Then call Serve, and finally Close. ctx limits
// only the lookup of the address's host name. Errors of connections are logged at the debug level.
//
// The handler must ignore the context of a request: markArrival stops reading from the connection, and net/http then
// cancels the context, although the client still waits for the answer.
func Listen(ctx context.Context, address string, handler http.Handler, log *slog.Logger) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &Server{
		http:     newServer(handler, log),
		listener: &cappedListener{TCPListener: listener.(*net.TCPListener)},
	}, nil
}

// Addr returns the address that the server listens on, with its port.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers requests until Close is called, and then returns nil. If it returns an error, the Server has ended.
func (s *Server) Serve() error {
	err := s.http.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close closes the port and all connections at once, even a connection on which an answer is being sent.
func (s *Server) Close() error { return s.http.Close() }

// newServer makes an HTTP server. It works only with the connections of a cappedListener.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	server := &http.Server{
		Handler:           markArrival(handler),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       5 * time.Second, // only matters if markArrival cannot stop the reading of a body
		WriteTimeout:      answerTimeout,
		MaxHeaderBytes:    max(1, headerLimit-4096), // net/http allows 4,096 bytes more
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	server.SetKeepAlivesEnabled(false) // an idle connection could otherwise stay open for longer than the timeouts
	return server
}

// cappedListener keeps at most connectionLimit connections open. To accept one more, it closes an old one. If it let
// the new one wait instead, a client with that many connections could lock out the kubelet, which restarts a container
// whose probes are not answered.
type cappedListener struct {
	*net.TCPListener

	mu   sync.Mutex     // guards open, and hasArrived of its connections
	open []*trackedConn // oldest first
}

// trackedConn is a connection that removes itself from its listener's list when it is closed.
//
// It embeds a TCPConn, not just a net.Conn: net/http closes the two directions of a TCPConn one after the other, so
// that the client gets the last answer.
type trackedConn struct {
	*net.TCPConn
	listener   *cappedListener
	hasArrived bool // the headers of the request have been read
}

// connKey is the key of a request's *trackedConn in the request's context.
type connKey struct{}

// markArrival returns a handler that marks the request's connection as hasArrived, and then calls the given one. It
// also stops reading from the connection: no request needs a body, and a client could keep the connection open by
// announcing a body that never comes.
func markArrival(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(*trackedConn)
		conn.listener.mu.Lock()
		conn.hasArrived = true
		conn.listener.mu.Unlock()
		http.NewResponseController(w).SetReadDeadline(time.Now())
		handler.ServeHTTP(w, r)
	})
}

// Accept waits for the next connection. It implements net.Listener.
func (l *cappedListener) Accept() (net.Conn, error) {
	tcp, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	tcp.SetWriteBuffer(sendBuffer) // Without it, the kernel may take megabytes before a slow client is noticed.
	conn := &trackedConn{TCPConn: tcp, listener: l}
	surplus := l.add(conn)
	if surplus != nil {
		surplus.Close()
		runtime.Gosched() // let the server read other requests before it closes one more connection
	}
	return conn, nil
}

// add adds a connection to the list. If there are now too many, add returns the one to close, else nil.
func (l *cappedListener) add(conn *trackedConn) *trackedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, conn)
	if len(l.open) <= connectionLimit {
		return nil
	}
	older := l.open[:len(l.open)-1]
	for _, old := range older {
		if !old.hasArrived {
			return old
		}
	}
	return older[0]
}

// Close closes the connection. It may be called more than once.
func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.open = slices.DeleteFunc(c.listener.open, func(open *trackedConn) bool { return open == c })
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}
