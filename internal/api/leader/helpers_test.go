package leader

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/retry"
	"podcount/internal/view/logging"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

var leaseKey = fakekube.Key{Namespace: "kube-system", Name: "podcount"}

// server is a fake API server, and the protocol by which replicas reach it.
type server struct {
	*fakekube.Server
	protocol string
}

// simulate runs a test in virtual time, with its own fake API server: once over HTTP/1.1, and once over HTTP/2.
func simulate(t *testing.T, test func(t *testing.T, f server)) {
	t.Helper()
	for _, protocol := range fixture.Protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, server{fakekube.New(), protocol}) })
		})
	}
}

// credentialSource has the type of Config.Credential.
type credentialSource func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error)

func noCredential(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
	return &kubeconfig.Credential{}, nil
}

// newElection returns a replica on a host of this name, which does not take part in the election yet. Its requests go
// to the host HOST:1, so that tests can tell the replicas apart. Its client is closed when the test ends.
func newElection(t *testing.T, f server, host string) *replica {
	return newElectionWith(t, f, host, noCredential)
}

func newElectionWith(t *testing.T, f server, host string, credential credentialSource) *replica {
	line := fixture.NetworkOver(t, f.Server, f.protocol)
	base := &url.URL{Scheme: line.Scheme, Host: host + ":1"}
	withTLS := func(ctx context.Context, refused *kubeconfig.Credential) (*kubeconfig.Credential, error) {
		cred, err := credential(ctx, refused)
		cred.TLS = line.TLS
		return cred, err
	}
	cfg := &kubeconfig.Config{Server: base, Credential: withTLS}
	client := kube.NewClient(cfg, kube.Options{Dial: line.Dial})
	t.Cleanup(client.Close)
	quietOutage := logging.NewServerOutage(slog.New(slog.DiscardHandler), kube.IsUnanswered, nil)
	r := &replica{
		log:  &testkit.Buffer{},
		won:  make(chan struct{}),
		lost: make(chan error, 1),
	}
	var cutRequests context.CancelCauseFunc
	r.requests, cutRequests = context.WithCancelCause(t.Context())
	t.Cleanup(func() { cutRequests(nil) })
	r.Election = New(client, Options{
		Namespace:      leaseKey.Namespace,
		Name:           leaseKey.Name,
		Host:           host,
		LeaseDuration:  15 * time.Second,
		RenewDeadline:  10 * time.Second,
		RetryPeriod:    2 * time.Second,
		ReleaseTimeout: 4 * time.Second,
		OnLost: func(why error) {
			cutRequests(why)
			r.lost <- why
		},
		ServerBackoff: retry.NewShared(retry.SharedOptions{OnFailure: func(error) {}, OnOver: func() {}}),
		ServerOutage:  quietOutage,
		Log:           slog.New(slog.NewTextHandler(r.log, nil)),
	})
	client.SetPermit(r.Election)
	return r
}

// replica is an Election with its log, and with channels for its calls of won and OnLost.
type replica struct {
	*Election
	log  *testkit.Buffer
	won  chan struct{} // closed when the replica is elected
	lost chan error    // gets the reason when the replica loses the lease
	stop func()        // asks the replica to stop, and waits until it has stopped

	requests context.Context // of the replica's writes; ends when it loses the lease, as in podcount
}

// startReplica runs a replica until the test ends.
func startReplica(t *testing.T, f server, host string) *replica {
	return startReplicaWith(t, f, host, noCredential)
}

func startReplicaWith(t *testing.T, f server, host string, credential credentialSource) *replica {
	r := newElectionWith(t, f, host, credential)
	stop, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(stop, stop, func() { close(r.won) })
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Log(r.log)
		}
	})
	return r
}

// startLeader runs a replica until the test ends, and returns once it is elected.
func startLeader(t *testing.T, f server, host string) *replica {
	r := startReplica(t, f, host)
	<-r.won
	return r
}

// leads reports whether the replica may write now.
func (r *replica) leads() bool { return r.MayWrite() == nil }

func (r *replica) wantLeading(t *testing.T, when string, want bool) {
	t.Helper()
	if r.leads() != want {
		t.Errorf("%s: %s leads: %v, want %v", when, r.options.Host, r.leads(), want)
	}
}

// wantLost fails the test unless OnLost was called with an error that contains reason.
func (r *replica) wantLost(t *testing.T, reason string) {
	t.Helper()
	select {
	case err := <-r.lost:
		testkit.WantText(t, err.Error(), reason)
	default:
		t.Errorf("OnLost was not called, want %q", reason)
	}
}

// write sends a write that only a leader may send, and returns its error.
func (r *replica) write() error {
	patch := kube.Request{Method: "PATCH", API: "/api/v1", Resource: "nodes", Name: "n", Body: fakekube.Object{}}
	return r.client.Send(r.requests, patch, nil)
}

// storedLease returns the spec of the Lease at the server, or nil if there is none.
func storedLease(f server) fakekube.Object {
	spec, _ := f.Get("leases", leaseKey)["spec"].(fakekube.Object)
	return spec
}

// storedHolder returns the holder of the Lease at the server.
func storedHolder(f server) string {
	return fakekube.TextIn(storedLease(f), "holderIdentity")
}

func storeLease(f server, spec string) {
	f.PutJSON("leases", `{"metadata":{"namespace":"kube-system","name":"podcount"},"spec":`+spec+`}`)
}

// storeHeldLease stores the Lease as if its holder had just renewed it. clock is the time by the holder's clock.
func storeHeldLease(f server, holder string, seconds int, clock time.Time) {
	at := clock.UTC().Format(microTime)
	storeLease(f, fmt.Sprintf(
		`{"holderIdentity":%q,"leaseDurationSeconds":%d,"leaseTransitions":4,"acquireTime":%q,"renewTime":%q}`,
		holder, seconds, at, at))
}

// leaseRequests returns all requests for the Lease that match, oldest first.
func leaseRequests(f server, match func(fakekube.Request) bool) []fakekube.Request {
	return fixture.Requests(f.Server, func(r fakekube.Request) bool {
		return r.Resource == "leases" && match(r)
	})
}
