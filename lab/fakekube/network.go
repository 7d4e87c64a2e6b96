package fakekube

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Network is a network with one server. Its methods may be called at any time and from any goroutine. NewNetwork
// makes one within the process, which also works in virtual time, and NewTCPNetwork makes one over TCP.
type Network struct {
	server  *http.Server
	serve   func(net.Listener) error // lets the server serve until the listener or the server is closed
	address string                   // HOST:PORT; "" within the process

	conns chan net.Conn // within the process, the connections that clients dial
	done  chan struct{}
	close func() // closes done, once

	dials      atomic.Int32 // attempts to connect so far
	generation atomic.Int32 // number of calls of GoSilent; connections of earlier generations are half-open

	mu     sync.Mutex    // guards all fields below
	isDown bool          // connections are refused
	port   net.Listener  // over TCP, what listens; closed while isDown
	open   []*serverConn // open connections
}

// NewNetwork lets a server serve on a new Network within the process, until the Network is closed. Clients connect
// with Dial. The server has a fake as its Handler, or something that stands before one, such as a proxy:
//
//	network := fakekube.NewNetwork(&http.Server{Handler: fake})
//	defer network.Close()
//
// With a TLSConfig, it serves with TLS and, unless its Protocols exclude that, HTTP/2. It accepts any client
// certificate in the handshake; the fake checks it later. ConnContext and ClientAuth are overwritten. The server must
// not be used in any other way. Within a bubble, clients must close their idle connections before the test ends.
func NewNetwork(server *http.Server) *Network {
	n := newNetwork(server)
	go n.serve(listener{n})
	return n
}

// NewTCPNetwork is NewNetwork over TCP and in real time, for any client. The address is a HOST:PORT, as of net.Listen,
// such as "127.0.0.1:0" for a free port. The port remains the same as long as the Network exists. NewTCPNetwork panics
// if it gets no port.
func NewTCPNetwork(address string, server *http.Server) *Network {
	port, err := listenAt(address)
	if err != nil {
		panic(fmt.Sprintf("the fake gets no port: %v", err))
	}
	n := newNetwork(server)
	n.address = port.Addr().String()
	n.port = port
	go n.serve(tcpListener{port, n})
	return n
}

func newNetwork(server *http.Server) *Network {
	n := &Network{
		server: server,
		serve:  serveFunc(server),
		conns:  make(chan net.Conn),
		done:   make(chan struct{}),
	}
	n.close = sync.OnceFunc(func() { close(n.done) })
	return n
}

// Addr returns the HOST:PORT at which the server serves over TCP. It is "" within the process, where any address will
// do for Dial.
func (n *Network) Addr() string { return n.address }

// Close ends the server and breaks all connections. Later ones are refused.
func (n *Network) Close() {
	n.Refuse()
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
func (n *Network) Refuse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isDown = true
	if n.port != nil {
		n.port.Close()
	}
}

// Restore undoes Kill and Refuse. Over TCP, it panics if the port is taken by then, and remains so for two seconds.
// After Close, it does nothing.
func (n *Network) Restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.isDown || n.isClosed() {
		return
	}
	if n.port != nil {
		n.port = listenAgain(n.address)
		go n.serve(tcpListener{n.port, n})
	}
	n.isDown = false
}

func (n *Network) isClosed() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// listenAt listens on an address for the first time. For port 0, it takes one below those that the system lends to
// connections, and to whoever else asks for a free port: Linux begins at 32768. So none of these takes it while the
// Network is down.
func listenAt(address string) (net.Listener, error) {
	host, port, _ := net.SplitHostPort(address)
	if port != "0" {
		return net.Listen("tcp", address)
	}
	var lastErr error
	for range 100 { // because some are taken
		free := strconv.Itoa(20_000 + rand.IntN(10_000))
		listener, err := net.Listen("tcp", net.JoinHostPort(host, free))
		if err == nil {
			return listener, nil
		}
		lastErr = err
	}
	return nil, lastErr
}

// listenAgain listens on a port that was given up. If the caller had chosen the port, the system may have lent it
// meanwhile for some client's connection, so this tries for a while.
func listenAgain(address string) net.Listener {
	for deadline := time.Now().Add(2 * time.Second); ; <-time.After(20 * time.Millisecond) {
		port, err := net.Listen("tcp", address)
		if err == nil {
			return port
		}
		if time.Now().After(deadline) {
			panic(fmt.Sprintf("the network cannot be restored, because something else took its port meanwhile: %v", err))
		}
	}
}

// GoSilent makes all existing connections half-open: data is lost in both directions without an error. New
// connections work. The client still notices if the server or Kill closes a half-open connection.
func (n *Network) GoSilent() { n.generation.Add(1) }

// Dialed returns how many times clients have tried to connect, successfully or not. Over TCP, it does not count refused
// attempts, which only the operating system sees.
func (n *Network) Dialed() int { return int(n.dials.Load()) }

// serverConn is the server's end of a connection. The network keeps track of it until it is closed. It is half-open
// once the network has a later generation.
type serverConn struct {
	net.Conn
	net        *Network
	generation int32
}

func (c *serverConn) isSilent() bool { return c.generation != c.net.generation.Load() }

// Read discards incoming data while the connection is half-open.
func (c *serverConn) Read(p []byte) (n int, err error) {
	for {
		n, err = c.Conn.Read(p)
		if !c.isSilent() || err != nil {
			return n, err
		}
	}
}

// Write discards outgoing data while the connection is half-open.
func (c *serverConn) Write(p []byte) (int, error) {
	if c.isSilent() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close closes the connection.
func (c *serverConn) Close() error {
	c.net.mu.Lock()
	c.net.open = slices.DeleteFunc(c.net.open, func(other *serverConn) bool { return other == c })
	c.net.mu.Unlock()
	return c.Conn.Close()
}

// add registers a connection before the server gets it, so that Kill finds it. It returns nil, and closes the
// connection, if the network refuses connections.
func (n *Network) add(conn net.Conn) *serverConn {
	c := &serverConn{Conn: conn, net: n, generation: n.generation.Load()}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isDown {
		conn.Close()
		return nil
	}
	n.open = append(n.open, c)
	return c
}

// listener is the net.Listener of a Network within the process.
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

// tcpListener is the net.Listener of a Network over TCP, until the Network refuses connections.
type tcpListener struct {
	net.Listener
	net *Network
}

// Accept waits for the next connection.
func (l tcpListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.net.dials.Add(1)
		if c := l.net.add(conn); c != nil {
			return c, nil
		}
	}
}

// clientConn is the client's end of a connection within the process.
type clientConn struct {
	net.Conn

	// buffered buffers incoming data like a real network. Without it, two ends that both write would deadlock.
	buffered io.Reader
}

func (c clientConn) Read(p []byte) (int, error) { return c.buffered.Read(p) }

// Dial connects a client to the server, whatever the address. It suits http.Transport.DialContext and the like. If
// the network refuses connections or has ended, the error is that of a refused connection; if ctx ends, it is the
// context's error.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if n.address != "" {
		return new(net.Dialer).DialContext(ctx, "tcp", n.address)
	}
	n.dials.Add(1)
	refused := &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	clientEnd, other := net.Pipe()
	serverEnd := n.add(other)
	if serverEnd == nil {
		return nil, refused
	}
	select {
	case n.conns <- serverEnd:
		return clientConn{clientEnd, bufio.NewReaderSize(clientEnd, 32<<10)}, nil
	case <-n.done:
		serverEnd.Close()
		return nil, refused
	case <-ctx.Done():
		serverEnd.Close()
		return nil, ctx.Err()
	}
}
