package leader

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/kubeconfig"
)

// simulate runs a test in virtual time, with a fake of its own.
func simulate(t *testing.T, test func(t *testing.T, f *fakekube.Server)) {
	synctest.Test(t, func(t *testing.T) { test(t, fakekube.New()) })
}

// pass lets virtual time pass, and then everything come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func noCredential(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
	return &kubeconfig.Credential{}, nil
}

// credentialSource is Config.Credential.
type credentialSource func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error)

// newElection makes an election at a server, whose client closes with the test.
func newElection(
	t *testing.T, f *fakekube.Server, host string, credential credentialSource, onLost func(error),
) *Election {
	base, _ := url.Parse("http://127.0.0.1:1")
	cfg := &kubeconfig.Config{Server: base, Credential: credential}
	client := kube.NewClient(cfg, kube.Options{Dial: f.ServeIn(t).Dial})
	t.Cleanup(client.Close)
	e := New(client, Options{
		Namespace:     "kube-system",
		Name:          "podcount",
		Host:          host,
		LeaseDuration: 15 * time.Second,
		RenewDeadline: 10 * time.Second,
		RetryPeriod:   2 * time.Second,
		ReleaseLimit:  4 * time.Second,
		OnLost:        onLost,
		Log:           slog.New(slog.DiscardHandler),
	})
	client.SetPermit(e)
	return e
}

// replica is an election that runs.
type replica struct {
	election *Election
	won      chan struct{} // closed once it is elected
	lost     chan error    // gets why its lease is lost
	stop     func()        // ends it, and waits until it has ended
}

// startReplica runs an election until the test ends, or until it is stopped.
func startReplica(t *testing.T, f *fakekube.Server, host string, credential credentialSource) *replica {
	r := &replica{won: make(chan struct{}), lost: make(chan error, 1)}
	r.election = newElection(t, f, host, credential, func(err error) { r.lost <- err })
	stop, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.election.Run(stop, stop, func() { close(r.won) })
	}()
	r.stop = func() {
		end()
		<-ended
	}
	t.Cleanup(r.stop)
	return r
}

// leads reports whether the replica may write now.
func (r *replica) leads() bool { return r.election.MayWrite() == nil }

// leadingAt returns an election whose lease was just won; lost gets why it ends.
func leadingAt(
	t *testing.T, f *fakekube.Server, credential credentialSource,
) (e *Election, lost <-chan error) {
	r := startReplica(t, f, "a", credential)
	<-r.won
	return r.election, r.lost
}

func wantText(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	}
}

func wantNumber(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}
