//go:build js

// Package tab lets podcount run in a tab of a browser, in a worker. It is the network between a worker and the program
// that has started it, and takes the place of signals. No other build has this package.
//
// Each program has a loopback of its own, which net emulates. A MessagePort carries what passes through a connection
// between two programs.
package tab

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"syscall/js"
)

// Peer is another program of the tab. Any goroutine may call its methods.
type Peer struct {
	port js.Value        // a MessagePort; it keeps messages until Listen
	ctx  context.Context // ends when the other program has ended

	// Close breaks all connections with the other program. It must be called when that program has ended.
	Close context.CancelFunc
}

// Parent returns the program that has started this worker. lab/site/worker.js has got its port.
var Parent = sync.OnceValue(func() *Peer { return NewPeer(js.Global().Get("parentPort")) })

// NewPeer returns the program at the other end of a MessagePort.
func NewPeer(port js.Value) *Peer {
	p := &Peer{port: port}
	p.ctx, p.Close = context.WithCancel(context.Background())
	return p
}

// Listen lets the other program connect to this one's loopback. handle gets each message that asks for something else,
// in a goroutine of its own. It must be called once.
func (p *Peer) Listen(handle func(message js.Value)) {
	receive := js.FuncOf(func(_ js.Value, args []js.Value) any {
		message := args[0].Get("data")
		if address := message.Get("dial"); address.IsUndefined() {
			go handle(message)
		} else {
			go p.newLine(message.Get("port")).answer(address.String())
		}
		return nil
	})
	p.port.Set("onmessage", receive)
	context.AfterFunc(p.ctx, receive.Release)
}

// Send sends a message, whose field with this name is true.
func (p *Peer) Send(name string) { p.port.Call("postMessage", map[string]any{name: true}) }

// Dial connects to an address of the other program's loopback, as net.Dialer.DialContext does.
func (p *Peer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	channel := js.Global().Get("MessageChannel").New()
	l := p.newLine(channel.Get("port1"))
	other := channel.Get("port2")
	p.port.Call("postMessage", map[string]any{"dial": address, "port": other}, []any{other})
	select {
	case <-l.acks:
	case <-l.ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case <-ctx.Done():
		l.end()
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	go l.carry(far)
	return near, nil
}

// line is a connection between two programs. It is over when either end is. A Uint8Array carries bytes, null ends the
// line, and anything else acknowledges a dial or bytes. The bytes that follow are sent after that, so that a slow
// reader slows down the writer.
type line struct {
	port  js.Value
	bytes chan []byte
	acks  chan struct{}
	ctx   context.Context // ends with the line
	end   context.CancelFunc
}

// newLine makes a line of a MessagePort.
func (p *Peer) newLine(port js.Value) *line {
	l := &line{port: port, bytes: make(chan []byte, 1), acks: make(chan struct{}, 1)}
	l.ctx, l.end = context.WithCancel(p.ctx)
	receive := js.FuncOf(func(_ js.Value, args []js.Value) any {
		l.receive(args[0].Get("data"))
		return nil
	})
	port.Set("onmessage", receive)
	context.AfterFunc(l.ctx, func() {
		port.Call("postMessage", nil)
		port.Call("close")
		receive.Release()
	})
	return l
}

// receive takes a message. The channels have room: the other end waits for an acknowledgement before it sends more.
func (l *line) receive(message js.Value) {
	switch {
	case message.IsNull():
		l.end()
	case message.InstanceOf(js.Global().Get("Uint8Array")):
		bytes := make([]byte, message.Length())
		js.CopyBytesToGo(bytes, message)
		l.bytes <- bytes
	default:
		l.acks <- struct{}{}
	}
}

// answer connects a line to an address of this program's loopback.
func (l *line) answer(address string) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		l.end()
		return
	}
	l.port.Call("postMessage", true)
	l.carry(conn)
}

// carry passes on what comes through a connection and through the line, until one of them ends. Then both do.
func (l *line) carry(conn net.Conn) {
	context.AfterFunc(l.ctx, func() { conn.Close() })
	defer l.end()
	go l.send(conn)
	for {
		select {
		case bytes := <-l.bytes:
			if _, err := conn.Write(bytes); err != nil {
				return
			}
			l.port.Call("postMessage", true)
		case <-l.ctx.Done():
			return
		}
	}
}

// send sends what comes through a connection.
func (l *line) send(conn net.Conn) {
	defer l.end()
	buffer := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		bytes := js.Global().Get("Uint8Array").New(n)
		js.CopyBytesToJS(bytes, buffer[:n])
		l.port.Call("postMessage", bytes, []any{bytes.Get("buffer")})
		select {
		case <-l.acks:
		case <-l.ctx.Done():
			return
		}
	}
}
