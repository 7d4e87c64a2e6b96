package main

import (
	"net"
	"sync"
)

// relay passes TCP connections on to a server. It exists because a half-open connection cannot be made at either of its
// ends: something in between must lose what is sent.
type relay struct {
	listener net.Listener
	target   string // HOST:PORT of the server
	work     sync.WaitGroup

	mu    sync.Mutex            // guards pairs and isSilent of each pair
	pairs map[*relayedPair]bool // the connections that are open
}

// relayedPair is a connection of a client, and the one to the server that belongs to it.
type relayedPair struct {
	client   net.Conn
	server   net.Conn
	isSilent bool // what is sent is lost, in both directions
}

// startRelay listens on a port of 127.0.0.1.
func startRelay(target string) (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: listener, target: target, pairs: map[*relayedPair]bool{}}
	r.work.Go(r.accept)
	return r, nil
}

// address returns the HOST:PORT that clients call.
func (r *relay) address() string { return r.listener.Addr().String() }

// silence makes the open connections half-open: nothing passes any more, and neither end gets an error. New connections
// work. It returns how many connections are half-open now.
func (r *relay) silence() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pair := range r.pairs {
		pair.isSilent = true
	}
	return len(r.pairs)
}

// close stops listening, and breaks all connections.
func (r *relay) close() {
	r.listener.Close()
	r.mu.Lock()
	for pair := range r.pairs {
		pair.close()
	}
	r.mu.Unlock()
	r.work.Wait()
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return // close was called
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			client.Close()
			continue
		}
		r.pass(&relayedPair{client: client, server: server})
	}
}

// pass passes on what comes, until one end closes its connection.
func (r *relay) pass(pair *relayedPair) {
	r.mu.Lock()
	r.pairs[pair] = true
	r.mu.Unlock()
	r.work.Go(func() { r.copy(pair, pair.server, pair.client) })
	r.work.Go(func() { r.copy(pair, pair.client, pair.server) })
}

// copy passes on what comes from one end of a pair, or discards it while the pair is silent.
func (r *relay) copy(pair *relayedPair, to, from net.Conn) {
	defer r.forget(pair)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !r.isSilent(pair) {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *relay) isSilent(pair *relayedPair) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return pair.isSilent
}

// forget closes both connections of a pair.
func (r *relay) forget(pair *relayedPair) {
	r.mu.Lock()
	delete(r.pairs, pair)
	r.mu.Unlock()
	pair.close()
}

func (p *relayedPair) close() {
	p.client.Close()
	p.server.Close()
}
