package suite

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podcount/internal/api/kube"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Process is a running podcount.
type Process struct {
	Net  *fakekube.Network // connects podcount to the fake API server
	Log  *testkit.Buffer   // gets what podcount writes to stderr
	Out  *testkit.Buffer   // gets what podcount writes to stdout
	Done chan struct{}     // is closed when podcount has ended

	t      testing.TB
	cancel context.CancelFunc // asks podcount to stop
	err    error              // what podcount has returned; valid when Done is closed
}

// Start runs podcount against f in virtual time, until the test ends. podcount logs at -v 6 unless args set another
// level.
func (podcount Program) Start(t testing.TB, f *fakekube.Server, args ...string) *Process {
	t.Helper()
	args = append([]string{"-master", "http://127.0.0.1:1", "-v", "6"}, args...)
	return podcount.StartOn(t, fixture.Network(t, f), args...)
}

// StartOverTLS is Start over TLS, which makes podcount use HTTP/2.
func (podcount Program) StartOverTLS(t testing.TB, f *fakekube.Server, args ...string) *Process {
	t.Helper()
	dir := t.TempDir()
	n := fixture.NetworkAs(t, f, dir, "token: t")
	args = append([]string{"-kubeconfig", filepath.Join(dir, "config"), "-v", "6"}, args...)
	return podcount.StartOn(t, n, args...)
}

// StartOn runs podcount on a network until the test ends. podcount gets no flags besides args.
func (podcount Program) StartOn(t testing.TB, n *fakekube.Network, args ...string) *Process {
	t.Helper()
	return podcount.StartWith(t, n, Wiring{}, args...)
}

// Wiring changes how StartWith connects podcount.
type Wiring struct {
	Dial kube.Dialer                 // if set, opens the connections instead of the network
	Pipe func(w io.Writer) io.Writer // if set, wraps stdout and stderr
}

// StartWith is StartOn with a Wiring.
func (podcount Program) StartWith(t testing.TB, n *fakekube.Network, wiring Wiring, args ...string) *Process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &Process{
		Net:    n,
		Log:    &testkit.Buffer{},
		Out:    &testkit.Buffer{},
		Done:   make(chan struct{}),
		t:      t,
		cancel: cancel,
	}
	dial := wiring.Dial
	if dial == nil {
		dial = n.Dial
	}
	var stdout, stderr io.Writer = p.Out, p.Log
	if wiring.Pipe != nil {
		stdout = wiring.Pipe(p.Out)
		stderr = wiring.Pipe(p.Log)
	}
	go func() {
		defer close(p.Done)
		p.err = podcount(ctx, args, NoEnv, stdout, stderr, dial)
	}()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Log(p.Log.String())
		}
	})
	return p
}

// Stop asks podcount to stop, as a signal does, waits until it has ended, and returns its error.
func (p *Process) Stop() error {
	p.cancel()
	<-p.Done
	return p.err
}

// Finish waits until podcount ends by itself, and returns its error. It fails the test after an hour.
func (p *Process) Finish() error {
	p.t.Helper()
	select {
	case <-p.Done:
	case <-time.After(time.Hour):
		p.t.Error("podcount has not ended within an hour")
	}
	return p.Stop()
}

// Logged counts how often text occurs in the log.
func (p *Process) Logged(text string) int { return strings.Count(p.Log.String(), text) }

// NoEnv is an environment without variables.
func NoEnv(string) string { return "" }
