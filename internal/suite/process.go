package suite

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/testkit"
)

// Process is a podcount that runs.
type Process struct {
	Net  *fakekube.Network // between podcount and the fake API server
	Log  *testkit.Buffer   // what it has written to stderr
	Out  *testkit.Buffer   // what it has written to stdout
	Done chan struct{}     // closed when podcount has ended

	t    testing.TB
	stop func() error
}

// Start runs podcount against f in virtual time, until the test ends. It logs at -v 6 unless args say otherwise.
func (podcount Program) Start(t testing.TB, f *fakekube.Server, args ...string) *Process {
	t.Helper()
	given := append([]string{"-master", "http://127.0.0.1:1", "-v", "6"}, args...)
	return podcount.StartOn(t, f.ServeIn(t), given...)
}

// StartOverTLS is Start over TLS, and so over HTTP/2.
func (podcount Program) StartOverTLS(t testing.TB, f *fakekube.Server, args ...string) *Process {
	t.Helper()
	dir := t.TempDir()
	n := f.ServeAs(t, dir, "token: t")
	given := append([]string{"-kubeconfig", filepath.Join(dir, "config"), "-v", "6"}, args...)
	return podcount.StartOn(t, n, given...)
}

// StartOn runs podcount on a network until the test ends. args are all its flags.
func (podcount Program) StartOn(t testing.TB, n *fakekube.Network, args ...string) *Process {
	t.Helper()
	return podcount.StartWith(t, n, Wiring{}, args...)
}

// Wiring is what stands between podcount and the world.
type Wiring struct {
	Dial kube.Dialer                 // if set, opens connections in place of the network
	Pipe func(w io.Writer) io.Writer // if set, wraps what podcount gets as stdout and as stderr
}

// StartWith is StartOn with a wiring of its own.
func (podcount Program) StartWith(t testing.TB, n *fakekube.Network, wires Wiring, args ...string) *Process {
	t.Helper()
	p := &Process{
		Net:  n,
		Log:  &testkit.Buffer{},
		Out:  &testkit.Buffer{},
		Done: make(chan struct{}),
		t:    t,
	}
	dial := wires.Dial
	if dial == nil {
		dial = n.Dial
	}
	var stdout, stderr io.Writer = p.Out, p.Log
	if wires.Pipe != nil {
		stdout = wires.Pipe(p.Out)
		stderr = wires.Pipe(p.Log)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	go func() {
		defer close(p.Done)
		err = podcount(ctx, args, NoEnv, stdout, stderr, dial)
	}()
	p.stop = func() error {
		cancel()
		<-p.Done
		return err
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Log(p.Log.String())
		}
	})
	return p
}

// NoEnv is an environment in which no variable is set.
func NoEnv(string) string { return "" }

// Stop asks podcount to stop, as a signal does, and returns the error that it ended with. If it has ended already, Stop
// only returns the error.
func (p *Process) Stop() error { return p.stop() }

// Logged counts how often a text occurs in the log.
func (p *Process) Logged(text string) int { return strings.Count(p.Log.String(), text) }

// Finish waits until podcount ends by itself, and returns the error that it ended with.
func (p *Process) Finish() error {
	p.t.Helper()
	select {
	case <-p.Done:
	case <-time.After(time.Hour):
		p.t.Error("podcount has not ended within an hour")
	}
	return p.Stop()
}
