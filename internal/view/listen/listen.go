// Package listen is an HTTP server for untrusted clients: any pod in the cluster may connect to it.
//
// Idle clients cannot lock out others. The server has at most 64 open connections. To accept one more, it closes the
// oldest connection whose request has not fully arrived within a moment. A connection whose request has arrived is not
// closed before its answer: if there is no other, the new one waits. A request must arrive within two seconds, with at
// most 4 KB of headers. The answer may take ten seconds. See Pages for the few places that slow readers can take.
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

	// While others wait for a place, a request has maxGrace to arrive. It may have come already, but a busy machine has
	// not let the server read it, or the client send it. While idle connections are closed, that time is halved, but
	// only once in that time, and down to minGrace. Each request that arrives adds graceStep. So idle connections have
	// minGrace within a second, and then 1,280 of them come and go in a second. As many as the kernel lets wait, 4,096 by
	// default, do so in less time than a probe has.
	maxGrace  = 500 * time.Millisecond
	minGrace  = 50 * time.Millisecond
	graceStep = time.Millisecond
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
	host, _, _ := net.SplitHostPort(address) // It has been possible to listen on it.
	return &Server{
		http: newServer(handler, log),
		listener: &cappedListener{
			TCPListener: listener.(*net.TCPListener),
			host:        host,
			grace:       maxGrace,
			freed:       make(chan struct{}, 1),
			closed:      make(chan struct{}),
		},
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

// cappedListener keeps at most connectionLimit connections open. To accept one more, it closes one whose request does
// not come. If it let the new one wait instead, a client with that many connections could lock out the kubelet, which
// restarts a container whose probes are not answered.
type cappedListener struct {
	*net.TCPListener
	host   string        // the host that it was asked to listen on
	freed  chan struct{} // gets a value when a place may be free, unless one is there already
	closed chan struct{} // closed with the listener

	mu        sync.Mutex     // guards the fields below, and answerUntil of all connections
	open      []*trackedConn // oldest first
	grace     time.Duration  // how long a connection keeps its place without a request, from minGrace to maxGrace
	shortened time.Time      // when grace was last halved
}

// trackedConn is a connection that removes itself from its listener's list when it is closed.
//
// It embeds a TCPConn, not just a net.Conn: net/http closes the two directions of a TCPConn one after the other, so
// that the client gets the last answer.
type trackedConn struct {
	*net.TCPConn
	listener    *cappedListener
	accepted    time.Time
	answerUntil time.Time // until when the request must be answered; zero if there is none, or none any more
}

// connKey is the key of a request's *trackedConn in the request's context.
type connKey struct{}

// markArrival returns a handler that tells the listener of each request, and then calls the given one. It also stops
// reading from the connection: no request needs a body, and a client could keep the connection open by announcing a
// body that never comes.
func markArrival(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Context().Value(connKey{}).(*trackedConn).listener.lengthenGrace()
		http.NewResponseController(w).SetReadDeadline(time.Now())
		handler.ServeHTTP(w, r)
	})
}

// shortenGrace is called when a connection has lost its place.
func (l *cappedListener) shortenGrace() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.shortened) < l.grace {
		return
	}
	l.grace = max(l.grace/2, minGrace)
	l.shortened = time.Now()
}

// lengthenGrace is called when a request has arrived.
func (l *cappedListener) lengthenGrace() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grace = min(l.grace+graceStep, maxGrace)
}

// Accept waits for the next connection, and then for a place for it. It implements net.Listener.
func (l *cappedListener) Accept() (net.Conn, error) {
	tcp, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	tcp.SetWriteBuffer(sendBuffer) // Without it, the kernel may take megabytes before a slow client is noticed.
	conn := &trackedConn{TCPConn: tcp, listener: l}
	for {
		first, wait := l.add(conn)
		if first == nil {
			return conn, nil
		}
		if wait <= 0 {
			first.Close()
			l.shortenGrace()
			runtime.Gosched() // let the server read other requests before it closes one more connection
			continue
		}
		select {
		case <-l.freed:
		case <-time.After(wait):
			runtime.Gosched() // a request may have come meanwhile
		case <-l.closed:
			tcp.Close()
			return nil, net.ErrClosed
		}
	}
}

// add adds a connection to the list, and returns nil. If there are too many, it does not. Then it returns the one that
// is the first to lose its place, and how long that takes.
func (l *cappedListener) add(conn *trackedConn) (first *trackedConn, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) < connectionLimit {
		conn.accepted = time.Now()
		l.open = append(l.open, conn)
		return nil, 0
	}
	first = slices.MinFunc(l.open, func(a, b *trackedConn) int {
		return l.placeUntilLocked(a).Compare(l.placeUntilLocked(b))
	})
	return first, time.Until(l.placeUntilLocked(first))
}

// placeUntilLocked returns until when a connection keeps its place even if another one needs it.
func (l *cappedListener) placeUntilLocked(conn *trackedConn) time.Time {
	if conn.answerUntil.IsZero() {
		return conn.accepted.Add(l.grace)
	}
	return conn.answerUntil
}

// Close closes the port. The server calls it once.
func (l *cappedListener) Close() error {
	close(l.closed)
	return l.TCPListener.Close()
}

// SetWriteDeadline sets how long an answer may take. net/http calls it when the request has arrived, or cannot be read,
// and without a time when the answer was sent.
func (c *trackedConn) SetWriteDeadline(deadline time.Time) error {
	c.listener.mu.Lock()
	c.answerUntil = deadline
	c.listener.mu.Unlock()
	return c.TCPConn.SetWriteDeadline(deadline)
}

// CloseWrite ends what the server sends. net/http calls it after the last answer, also after the one to a request that
// it could not read, and then gives the client half a second. Meanwhile, the connection need not keep its place.
func (c *trackedConn) CloseWrite() error {
	c.listener.mu.Lock()
	c.answerUntil = time.Time{}
	c.listener.mu.Unlock()
	c.listener.signalFreed()
	return c.TCPConn.CloseWrite()
}

// Close closes the connection. It may be called more than once.
func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.open = slices.DeleteFunc(c.listener.open, func(open *trackedConn) bool { return open == c })
	c.listener.mu.Unlock()
	c.listener.signalFreed()
	return c.TCPConn.Close()
}

// signalFreed lets Accept look for a place again.
func (l *cappedListener) signalFreed() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
}
