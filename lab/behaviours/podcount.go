package behaviours

import (
	"context"
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"podcount/lab/testkit"
)

// podcountArgs returns the flags with which podcount looks only at the pods and nodes of a group. access are the flags
// that lead to the server.
func (w *world) podcountArgs(access []string, group string, more ...string) []string {
	own := []string{
		"-namespace", w.namespace,
		"-pod-selector", "group=" + group,
		"-total-nodes", runLabel + "=" + w.namespace + ",group=" + group,
		"-total-label", w.label,
	}
	return slices.Concat(access, own, more)
}

// start runs podcount on the pods and nodes of a group until the test ends. The parameters are as in podcountArgs.
func (w *world) start(access []string, group string, args ...string) *testkit.Buffer {
	log := &testkit.Buffer{Wrote: w.changed}
	w.startLoggingTo(log, log, access, group, args...)
	return log
}

// startLoggingTo is like start, but with a stderr that passes what it gets on to log, if only later.
func (w *world) startLoggingTo(stderr io.Writer, log *testkit.Buffer, access []string, group string, args ...string) {
	more := append([]string{"-interval", "100ms", "-pod-events", "off"}, args...)
	all := w.podcountArgs(access, group, more...)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.options.Program(ctx, all, os.Getenv, io.Discard, stderr, nil) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("podcount ended with %v", err)
		}
		if w.Failed() {
			w.Log(log.String())
		}
	})
}

// finish runs podcount until it ends by itself, and returns its log.
func (w *world) finish(args []string) string {
	w.Helper()
	log := &testkit.Buffer{Wrote: w.changed}
	err := w.options.Program(w.Context(), args, os.Getenv, io.Discard, log, nil)
	if err != nil {
		w.Fatalf("podcount ended with %v\n%s", err, log)
	}
	return log.String()
}

// runningReflector is a reflector of pods that runs without the rest of podcount.
type runningReflector struct {
	Reflector
	log *testkit.Buffer

	mu          sync.Mutex // guards connections
	connections []net.Conn
}

// reflect runs a reflector of the pods of a group until the test ends.
func (w *world) reflect(group string) *runningReflector {
	return w.reflectWith(ReflectorOptions{Config: w.config, LabelSelector: "group=" + group})
}

func (w *world) reflectWith(o ReflectorOptions) *runningReflector {
	r := &runningReflector{log: &testkit.Buffer{Wrote: w.changed}}
	o.Namespace = w.namespace
	o.Dial = r.dial
	o.Log = r.log
	o.Changed = w.wake
	r.Reflector = w.options.NewReflector(o)

	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	w.Cleanup(func() {
		cancel()
		<-ended
		r.cut() // its client keeps a connection whose last request was just cancelled
		if w.Failed() {
			w.Log(r.log.String())
		}
	})
	return r
}

func (r *runningReflector) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connections = append(r.connections, conn)
	return conn, nil
}

// cut closes all connections.
func (r *runningReflector) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.connections {
		c.Close()
	}
}
