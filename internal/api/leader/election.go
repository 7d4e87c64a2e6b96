// Package leader elects a leader among replicas. The leader is the holder of a Lease, an object at the API server. The
// algorithm is that of client-go's package leaderelection, so replicas that use client-go can share the Lease.
//
// While a replica leads, it has a term, which ends at a deadline. Each renewal of the lease moves the deadline. An
// Election is also the kube.Permit of a client: no write begins or continues outside a term.
//
// The times in a Lease come from other machines' clocks, so they are never compared with this machine's clock. Only the
// time at which this replica saw the Lease change counts, by the monotonic clock.
//
// https://kubernetes.io/docs/concepts/architecture/leases/
package leader

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/retry"
	"podcount/internal/view/logging"
)

// Options configure an election. All of them are required. The durations mean the same as in client-go, where the usual
// values are 15, 10 and 2 seconds.
// https://pkg.go.dev/k8s.io/client-go/tools/leaderelection#LeaderElectionConfig
type Options struct {
	// Namespace and Name are those of the Lease.
	Namespace string
	Name      string

	// Host is the name of this replica's host. It is the first part of the replica's identity.
	Host string

	// LeaseDuration is how long other replicas wait for a renewal before they take over. It must be whole seconds. A
	// Lease has an int32 for them, which is 68 years.
	LeaseDuration time.Duration

	// RenewDeadline is how long this replica leads without a renewal. It must be less than LeaseDuration.
	RenewDeadline time.Duration

	// RetryPeriod is the time between two tries to renew the lease. Between two tries to acquire it, up to 2.2 periods
	// pass: see pauseBeforeNextTry. RenewDeadline must be more than 1.2 times as long.
	RetryPeriod time.Duration

	// ReleaseTimeout is how long Run may take to release the lease. If it is more than half of RenewDeadline, that half
	// counts.
	ReleaseTimeout time.Duration

	// OnLost is called once if this replica leads and loses the lease. Writes are no longer permitted by then.
	OnLost func(why error)

	ServerBackoff *retry.Shared         // connects the backoffs of all who ask the API server
	ServerOutage  *logging.ServerOutage // logs that the API server is away
	Log           *slog.Logger
}

// Election is one replica's part in an election, and its kube.Permit. All methods except Run are safe for concurrent
// use.
type Election struct {
	options Options
	client  *kube.Client
	id      string          // this replica's identity, as the holder of the Lease
	lease   kube.Request    // reads the Lease
	newMeta json.RawMessage // the metadata of a new Lease
	outage  *logging.Outage // of the requests about the Lease

	serverBackoff *retry.Member // see tellOthers

	tried     chan struct{} // closed by markTried
	markTried func()        // may be called more than once

	mu            sync.Mutex         // guards the fields below
	term          context.Context    // nil before this replica leads; ended when it no longer leads
	endTerm       context.CancelFunc // ends term
	deadline      time.Time          // when term ends unless the lease is renewed before
	deadlineTimer *time.Timer        // calls endTermAtDeadline
	lastErr       error              // the error of the last renewal
	isLost        bool               // term has ended because the lease was lost
	observed      lease              // the Lease as it was last seen; only Run writes it, and Run reads it without mu

	// writes are the contexts of the writes in flight, with the functions that end them.
	writes map[context.Context]context.CancelCauseFunc

	// Only Run uses the fields below.
	fromOwnWrite bool      // observed is the answer to this replica's last write, so it need not be read again
	takeoverAt   time.Time // when this replica may take the lease from the holder in observed; readLease sets it
	mayHold      bool      // the Lease at the server may have this replica as its holder
}

var (
	errHeld       = errors.New("another replica holds it")
	errNotLeading = errors.New("not sent, because this replica does not lead")
	errCutOff     = errors.New("cut off, because this replica no longer leads; the server may have acted on it")
)

// New makes this replica's part in an election, which begins with Run. The replica's identity is its host's name and a
// random number.
func New(client *kube.Client, o Options) *Election {
	tried := make(chan struct{})
	return &Election{
		options: o,
		client:  client,
		id:      fmt.Sprintf("%s_%016x", o.Host, rand.Uint64()),
		lease: kube.Request{
			Method:    http.MethodGet,
			API:       "/apis/coordination.k8s.io/v1",
			Namespace: o.Namespace,
			Resource:  "leases",
			Name:      o.Name,
		},
		newMeta: json.RawMessage(fmt.Sprintf(`{"namespace":%q,"name":%q}`, o.Namespace, o.Name)),
		writes:  map[context.Context]context.CancelCauseFunc{},
		outage: logging.NewOutage(o.Log, "lease", "requests work again", "lease", o.Namespace+"/"+o.Name).
			MutedBy(o.ServerOutage),

		serverBackoff: o.ServerBackoff.Join(),

		tried:     tried,
		markTried: sync.OnceFunc(func() { close(tried) }),
	}
}

// Identity returns the identity of this replica in the Lease.
func (e *Election) Identity() string { return e.id }

// Name returns the namespace and the name of the Lease.
func (e *Election) Name() string { return e.options.Namespace + "/" + e.options.Name }

// Holder returns the identity of the replica that held the Lease when this replica last read or wrote it. It is "" if
// none did. isKnown is false if the Lease was not read yet. While this replica leads, it reads the Lease only after a
// write that has failed.
func (e *Election) Holder() (identity string, isKnown bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.observed.Spec.HolderIdentity, e.observed.Metadata != nil
}

// Problem returns why requests about the Lease fail now. isFailing is false if they work.
func (e *Election) Problem() (now logging.Problem, isFailing bool) { return e.outage.Problem() }

// observe records the Lease as it was read or written.
func (e *Election) observe(current lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observed = current
}

// Tried returns a channel that is closed after Run's first try to acquire the lease, whether it has succeeded or not.
// If it has succeeded, won has returned by then.
func (e *Election) Tried() <-chan struct{} { return e.tried }

// MayWrite returns an error unless this replica leads now. It checks the clock too, because the timer that ends the
// term may be late: when a frozen process continues, its goroutines may run before its timers.
func (e *Election) MayWrite() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	hasTerm := e.term != nil && e.term.Err() == nil
	if !hasTerm || !time.Now().Before(e.deadline) {
		return errNotLeading
	}
	return nil
}

// WhilePermitted returns a context for one write. It ends with ctx or with the term, which cuts off a write in flight.
// It does not end at the current deadline, because a renewal may move that during the write. The caller must call the
// returned function after the write.
func (e *Election) WhilePermitted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || e.term.Err() != nil {
		cancel(errNotLeading)
		return ctx, func() {}
	}
	e.writes[ctx] = cancel
	return ctx, func() {
		e.mu.Lock()
		delete(e.writes, ctx)
		e.mu.Unlock()
		cancel(nil)
	}
}

// Run takes part in the election until stop ends. If this replica leads by then, Run goes on until resigned ends. It
// must be called once. Its steps have the same names as in client-go:
//
//  1. acquire waits until this replica holds the lease. Then Run calls won, which should return soon.
//  2. renew renews the lease until it is lost, or until resigned has ended. resigned must not end before stop.
//  3. release gives the lease back if this replica may hold it.
func (e *Election) Run(stop, resigned context.Context, won func()) {
	defer e.outage.Stop()
	defer e.release()
	defer e.markTried()
	deadline, isOurs := e.acquire(stop)
	if !isOurs {
		return
	}
	term := e.beginTerm(resigned, deadline)
	e.options.Log.Info("elected: this replica leads", "lease", e.lease.Path(), "identity", e.id)
	won()
	e.markTried()
	e.renew(term)
}

// acquire tries to acquire the lease until this replica holds it, and returns the first deadline of the term. isOurs is
// false if stop has ended before.
func (e *Election) acquire(stop context.Context) (firstDeadline time.Time, isOurs bool) {
	loggedHolder := ""
	for {
		deadline, err := e.tryAcquireOrRenew(stop)
		if err == nil {
			e.outage.Worked("acquire")
			return deadline, true
		}
		switch {
		case errors.Is(err, errHeld):
			e.outage.Worked("acquire") // The request worked; only the lease is taken.
			holder := e.observed.Spec.HolderIdentity
			if holder != loggedHolder {
				loggedHolder = holder
				e.options.Log.Info("standing by, because another replica leads", "lease", e.lease.Path(), "holder", holder)
			}
		case stop.Err() == nil: // A try that stop has cut off is no failure.
			e.outage.Failed("acquire", "cannot acquire the lease", kube.PauseBetweenComplaints(err), err)
		}
		e.markTried()
		if retry.Sleep(stop, e.pauseBeforeNextTry()) != nil {
			return time.Time{}, false
		}
	}
}

// pauseBeforeNextTry returns a random time from 1 to 2.2 retry periods, as in client-go. It is shorter if the lease may
// be taken over before.
func (e *Election) pauseBeforeNextTry() time.Duration {
	period := e.options.RetryPeriod
	pause := retry.Between(period, 2*period+period/5)
	if left := time.Until(e.takeoverAt); left > 0 {
		pause = min(pause, left)
	}
	return pause
}

// beginTerm makes this replica the leader until the deadline, or until resigned has ended.
func (e *Election) beginTerm(resigned context.Context, deadline time.Time) (term context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.endTerm = context.WithCancel(resigned)
	e.deadline = deadline
	// The timer ends the term at its deadline even if a renewal hangs.
	e.deadlineTimer = time.AfterFunc(time.Until(deadline), e.endTermAtDeadline)
	return e.term
}

// renew renews the lease every RetryPeriod until the term has ended.
func (e *Election) renew(term context.Context) {
	for {
		if retry.Sleep(term, e.options.RetryPeriod) != nil {
			return
		}
		deadline, err := e.tryAcquireOrRenew(term)
		// Record an error, too: it is the reason for OnLost if the term ends at its deadline.
		e.recordRenewal(deadline, err)
		switch {
		case err == nil:
			e.outage.Worked("renew")
		case errors.Is(err, errHeld):
			e.loseTerm(err)
			return
		case term.Err() == nil: // A renewal that the end of the term has cut off is no failure.
			e.outage.Failed("renew", "cannot renew the lease", kube.PauseBetweenComplaints(err), err)
		}
	}
}

// recordRenewal moves the term's deadline if a renewal has succeeded, and keeps the error if it has failed. A term that
// has ended meanwhile stays ended.
func (e *Election) recordRenewal(deadline time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastErr = err
	if err == nil && e.term.Err() == nil {
		e.deadline = deadline
		e.deadlineTimer.Reset(time.Until(deadline))
	}
}

// endTermAtDeadline ends the term because the lease was not renewed in time. The timer calls it.
func (e *Election) endTermAtDeadline() {
	e.mu.Lock()
	isRenewed := time.Now().Before(e.deadline)
	cause := cmp.Or(e.lastErr, context.DeadlineExceeded)
	e.mu.Unlock()
	if isRenewed {
		return // recordRenewal moved the deadline and reset the timer while the timer fired.
	}
	// A renewal that is recorded after the Unlock comes too late: the term still ends.
	e.loseTerm(fmt.Errorf("it could not be renewed for %v: %w", e.options.RenewDeadline, cause))
}

// loseTerm ends the term and calls OnLost, because another replica holds the lease or may take it soon. It does nothing
// if the term has ended already.
func (e *Election) loseTerm(why error) {
	e.mu.Lock()
	wasLeading := e.term.Err() == nil
	if wasLeading {
		e.isLost = true
		e.endTermLocked()
	}
	e.mu.Unlock()
	if wasLeading {
		e.options.OnLost(fmt.Errorf("the lease is lost: %w", why))
	}
}

func (e *Election) endTermLocked() {
	e.deadlineTimer.Stop()
	e.endTerm()
	// End the writes here, and not by context.AfterFunc: that might run after OnLost, which may end the writes as well,
	// with another cause.
	for _, cutOff := range e.writes {
		cutOff(errCutOff)
	}
}

// IsLost reports whether this replica has led, and has lost the lease. It is known by the time the term ends.
func (e *Election) IsLost() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.isLost
}

// release ends the term, and gives back the lease if this replica may hold it. That saves the next leader the wait
// until the lease expires. A lease that was lost is not given back.
func (e *Election) release() {
	e.mu.Lock()
	if e.term != nil {
		e.endTermLocked()
	}
	isLost := e.isLost
	e.mu.Unlock()
	if isLost {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(e.options.ReleaseTimeout, e.options.RenewDeadline/2))
	defer cancel()
	for e.mayHold && ctx.Err() == nil {
		_, err := e.update(ctx, e.giveBack)
		if err == nil {
			e.options.Log.Info("the lease is released", "lease", e.lease.Path())
			return
		}
		if errors.Is(err, errHeld) {
			return // There is nothing to give back.
		}
		e.outage.Failed("release", "cannot release the lease", kube.PauseBetweenComplaints(err), err)
		retry.Sleep(ctx, e.options.RetryPeriod/4)
	}
}
