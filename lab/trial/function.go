package trial

import (
	"context"
	"fmt"
	"sync"

	"podcount/lab/fakekube"
)

// function is a process that is a function of Go.
type function struct {
	cancel context.CancelFunc
	net    *fakekube.Network
	ended  chan struct{}
	prints *tail

	mu      sync.Mutex // guards the fields below
	isAsked bool       // to stop
	problem string
	exit    int
}

func startFunction(run func(context.Context, Cluster) error, c Cluster, network *fakekube.Network) *function {
	ctx, cancel := context.WithCancel(context.Background())
	f := &function{cancel: cancel, net: network, ended: make(chan struct{}), prints: &tail{}}
	c.Output = f.prints
	go func() {
		defer close(f.ended)
		err := run(ctx, c)
		f.mu.Lock()
		defer f.mu.Unlock()
		if err != nil {
			f.exit = 1
			fmt.Fprintln(f.prints, err)
		}
		switch {
		case err != nil && !f.isAsked:
			f.problem = err.Error()
		case !f.isAsked:
			f.problem = "it has returned without an error"
		}
	}()
	return f
}

func (f *function) terminate() {
	f.mu.Lock()
	f.isAsked = true
	f.mu.Unlock()
	f.cancel()
}

// kill breaks the connections first, so that nothing that the function does at its end reaches the server.
func (f *function) kill() {
	f.net.Kill()
	f.terminate()
}

func (f *function) freeze() { panic("a function cannot be frozen") }

func (f *function) thaw() {}

func (f *function) done() <-chan struct{} { return f.ended }

func (f *function) ending() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

func (f *function) code() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.exit
}

func (f *function) output() string { return f.prints.String() }

func (f *function) peak() float64 { return 0 }
