package fakekube

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// Network is an in-process network with one server. Unlike real connections, it works in virtual time. Clients
// connect with Dial. Its methods may be called at any time and from any goroutine.
type Network struct {
	server *http.Server
	conns  chan net.Conn
	done   chan struct{}
	close  func() // closes done, once

	isDown     atomic.Bool  // connections are refused
	dials      atomic.Int32 // attempts to connect so far
	generation atomic.Int32 // number of calls of GoSilent; connections of earlier generations are half-open

	mu   sync.Mutex    // guards open
	open []*serverConn // open connections
}

// NewNetwork lets a server serve on a new Network, until the Network is closed. The server has a fake as its Handler,
// or something that stands before one, such as a proxy:
//
//	network := fakekube.NewNetwork(&http.Server{Handler: fake})
//	defer network.Close()
//
// With a TLSConfig, it serves with TLS and, unless its Protocols exclude that, HTTP/2. It accepts any client
// certificate in the handshake; the fake checks it later. ConnContext and ClientAuth are overwritten. The server must
// not be used in any other way. Within a bubble, clients must close their idle connections before the test ends.
func NewNetwork(server *http.Server) *Network {
	n := newNetwork(server)
	startOn(listener{n}, server)
	return n
}

func newNetwork(server *http.Server) *Network {
	n := &Network{server: server, conns: make(chan net.Conn), done: make(chan struct{})}
	n.close = sync.OnceFunc(func() { close(n.done) })
	return n
}

// Close ends the server and breaks all connections. Later ones are refused.
func (n *Network) Close() {
	n.close()
	n.server.Close()
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

// Refuse refuses new connections until Restore is called. Existing connections continue.
func (n *Network) Refuse() { n.isDown.Store(true) }

// Restore undoes Kill and Refuse.
func (n *Network) Restore() { n.isDown.Store(false) }

// GoSilent makes all existing connections half-open: data is lost in both directions without an error. New
// connections work. The client still notices if the server or Kill closes a half-open connection.
func (n *Network) GoSilent() { n.generation.Add(1) }

// Dialed returns how many times clients have tried to connect, successfully or not.
func (n *Network) Dialed() int { return int(n.dials.Load()) }

// clientConn is the client's end of a connection. It is half-open once its network has a later generation.
type clientConn struct {
	net.Conn

	// buffered buffers incoming data like a real network. Without it, two ends that both write would deadlock.
	buffered   io.Reader
	net        *Network
	generation int32
}

// Read discards incoming data while the connection is half-open.
func (c clientConn) Read(p []byte) (n int, err error) {
	for {
		n, err = c.buffered.Read(p)
		if c.generation == c.net.generation.Load() || err != nil {
			return n, err
		}
	}
}

// Write discards outgoing data while the connection is half-open.
func (c clientConn) Write(p []byte) (int, error) {
	if c.generation != c.net.generation.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// serverConn is the server's end of a connection. The network keeps track of it until it is closed.
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

// listener is the net.Listener of a Network.
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

// Close does nothing: the network ends with its own Close.
func (l listener) Close() error { return nil }

// Addr returns an empty address.
func (l listener) Addr() net.Addr { return &net.TCPAddr{} }

// Dial connects a client to the server, whatever the address. It suits http.Transport.DialContext and the like. If
// the network refuses connections or has ended, the error is that of a refused connection; if ctx ends, it is the
// context's error.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.dials.Add(1)
	refused := &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	clientEnd, other := net.Pipe()
	serverEnd := &serverConn{Conn: other, net: n}
	client := clientConn{
		Conn:       clientEnd,
		buffered:   bufio.NewReaderSize(clientEnd, 32<<10),
		net:        n,
		generation: n.generation.Load(),
	}
	if !n.add(serverEnd) {
		return nil, refused
	}
	select {
	case n.conns <- serverEnd:
		return client, nil
	case <-n.done:
		serverEnd.Close()
		return nil, refused
	case <-ctx.Done():
		serverEnd.Close()
		return nil, ctx.Err()
	}
}

// add registers a connection before the server gets it, so that Kill finds it. It returns false if the network
// refuses connections.
func (n *Network) add(serverEnd *serverConn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isDown.Load() {
		return false
	}
	n.open = append(n.open, serverEnd)
	return true
}
