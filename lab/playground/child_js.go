package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall/js"

	"podcount/internal/api/tab"
)

// child is a worker that runs podcount.
type child struct {
	worker js.Value
	peer   *tab.Peer
	hear   js.Func    // gets the messages and errors of the worker
	exits  chan error // gets why the worker has ended
}

// startChild starts a worker for a replica: see lab/site/worker.js.
func (rs *replicas) startChild(r *replica) (*child, error) {
	channel := js.Global().Get("MessageChannel").New()
	c := &child{
		worker: js.Global().Get("startWorker").Invoke(),
		peer:   tab.NewPeer(channel.Get("port1")),
		exits:  make(chan error, 1),
	}
	c.peer.Listen(func(js.Value) {}) // podcount asks for nothing but connections.
	c.hear = js.FuncOf(func(_ js.Value, args []js.Value) any {
		c.exit(errorOf(args[0]))
		return nil
	})
	c.worker.Set("onmessage", c.hear)
	c.worker.Set("onerror", c.hear)
	var arguments []any
	for _, argument := range r.arguments() {
		arguments = append(arguments, argument)
	}
	port := channel.Get("port2")
	c.worker.Call("postMessage", map[string]any{
		"program":    js.Global().Get("podcount"),
		"name":       "podcount",
		"args":       arguments,
		"files":      map[string]any{r.kubeconfig: string(rs.kubeconfig(r.token))},
		"parentPort": port,
	}, []any{port})
	return c, nil
}

// errorOf returns what a worker's message or error says about its end: nil if the exit code was 0.
func errorOf(event js.Value) error {
	if message := event.Get("message"); !message.IsUndefined() {
		return errors.New(message.String())
	}
	if code := event.Get("data").Get("exit").Int(); code != 0 {
		return fmt.Errorf("exit status %d", code)
	}
	return nil
}

// exit lets wait return an error. Only the first one counts.
func (c *child) exit(err error) {
	select {
	case c.exits <- err:
	default:
	}
}

// wait waits until the child has ended.
func (c *child) wait() error {
	err := <-c.exits
	c.worker.Call("terminate")
	c.peer.Close()
	c.hear.Release()
	return err
}

// terminate asks the child to stop.
func (c *child) terminate() { c.peer.Send("stop") }

// kill ends the child at once.
func (c *child) kill() { c.exit(errors.New("killed")) }

// pause stops the child where it is, and resume lets it go on.
func (c *child) pause()  { c.worker.Call("postMessage", "pause") }
func (c *child) resume() { c.worker.Call("postMessage", "resume") }

// dial connects to an address at which the child listens.
func (c *child) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return c.peer.Dial(ctx, network, address)
}
