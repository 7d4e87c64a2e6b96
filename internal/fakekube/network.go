package fakekube

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// Network is a network within the process, with one server, on which the fake serves. It works in virtual time, which
// real connections do not. Clients connect by Dial.
type Network struct {
	conns chan net.Conn
	done  chan struct{}

	isDown     atomic.Bool  // connections are refused
	dials      atomic.Int32 // attempts to connect so far
	generation atomic.Int32 // counts calls of GoSilent; the connections of earlier eras are half open

	mu   sync.Mutex    // guards open
	open []*serverConn // of the connections that are there
}

// Kill breaks all connections and refuses new ones until Restore is called.
func (n *Network) Kill() {
	n.Refuse()
	n.mu.Lock()
	open := n.open
	n.open = nil
	n.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// Refuse lets nobody connect until Restore is called. The connections that are there go on.
func (n *Network) Refuse() { n.isDown.Store(true) }

// Restore ends Kill and Refuse.
func (n *Network) Restore() { n.isDown.Store(false) }

// GoSilent makes all connections that are there half open: nothing that either end sends arrives any more, and nobody
// is told. New connections work. A client does hear of it if the server closes a half-open connection, or Kill does.
func (n *Network) GoSilent() { n.generation.Add(1) }

// Dialed is how many times a client has tried to connect, whether it could or not.
func (n *Network) Dialed() int { return int(n.dials.Load()) }

// clientConn is the client's end of a connection. Once its network's era is over, the client alone knows of it.
type clientConn struct {
	net.Conn

	// in buffers what arrives, as a real network does. Without that, two ends that both write would wait for each
	// other for ever.
	buffered   io.Reader
	net        *Network
	generation int32
}

// Read passes over what arrives once the era is over.
func (c clientConn) Read(p []byte) (n int, err error) {
	for {
		n, err = c.buffered.Read(p)
		if c.generation == c.net.generation.Load() || err != nil {
			return n, err
		}
	}
}

// Write loses what is sent once the era is over.
func (c clientConn) Write(p []byte) (int, error) {
	if c.generation != c.net.generation.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// serverConn is the server's end of a connection. Its network knows of it until it is closed.
type serverConn struct {
	net.Conn
	net *Network
}

// Close closes the connection.
func (c *serverConn) Close() error {
	c.net.mu.Lock()
	c.net.open = slices.DeleteFunc(c.net.open, func(other *serverConn) bool { return other == c })
	c.net.mu.Unlock()
	return c.Conn.Close()
}

// listener is the server's end of a Network.
type listener struct {
	net *Network
}

// Accept waits for the next connection, or for the end of the network.
func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.net.conns:
		return c, nil
	case <-l.net.done:
		return nil, net.ErrClosed
	}
}

// Close does nothing: the network ends with its test.
func (l listener) Close() error { return nil }

// Addr is an address that says nothing.
func (l listener) Addr() net.Addr { return &net.TCPAddr{} }

// Dial connects a client to the server, whatever the address. It is for http.Transport.DialContext and the like. Its
// error is that of a refused connection, also once the network has ended, or the context's.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.dials.Add(1)
	refused := &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	ours, other := net.Pipe()
	theirs := &serverConn{Conn: other, net: n}
	client := clientConn{Conn: ours, buffered: bufio.NewReaderSize(ours, 32<<10), net: n, generation: n.generation.Load()}
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

// add lists a connection before the server gets it, so that Kill finds it. It reports whether the connection may be
// made.
func (n *Network) add(theirs *serverConn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isDown.Load() {
		return false
	}
	n.open = append(n.open, theirs)
	return true
}
