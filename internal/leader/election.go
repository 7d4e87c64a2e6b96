// Package leader makes one replica of all that know a Lease the leader, by the rules of client-go, with which it can share
// one. While this replica leads it has a term, which ends at a deadline that each renewal moves: an Election is the
// client's permit to write, so that no write begins or continues after the term.
//
// Times in a Lease are never compared with a clock of ours: what counts is how long ago we saw the Lease change, by our
// monotonic clock. The package writes nothing but that one Lease, and never decides what a leader does.
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
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"podcount/internal/kube"
	"podcount/internal/logging"
)

// Election makes one replica of all that know a Lease the leader, by the rules of client-go, with which it can share one.
// The times in a Lease are never compared with a clock: what counts is how long ago we saw it change, by our monotonic
// clock. While this replica leads it has a term, which ends at a deadline that each renewal moves. It is the Client's
// permit: no write begins or continues after the term.
type Election struct {
	Options
	client *kube.Client
	id     string
	path   string          // of the Lease
	bare   json.RawMessage // the metadata of a Lease that is not there yet
	outage *logging.Outage // of what is asked about the Lease

	mu       sync.Mutex         // guards all of the term
	term     context.Context    // nil: we have never led; ended: we do not lead any more
	endTerm  context.CancelFunc // of term
	deadline time.Time          // of term, which guard ends then
	guard    *time.Timer
	lastErr  error // of the newest renewal; nil where it succeeded
	lostTerm bool  // the term has ended because the lease is lost

	// Owned by run.
	observed     lease     // as last seen
	fromOwnWrite bool      // observed is the answer to our own last write, and nothing has failed since
	takeoverAt   time.Time // when we may follow the holder observed, if it is another and does not renew before
	mayHold      bool      // the lease may be ours: we have asked for it, and have not seen it with another since
}

// MaxLeaseDuration is the longest that a Lease can say: its seconds are an int32.
const MaxLeaseDuration = math.MaxInt32 * time.Second

var (
	errHeld       = errors.New("it is held") // by the holder in election.observed
	errNotLeading = errors.New("not sent, as this replica does not lead")
	errCutOff     = errors.New("cut off, as this replica does not lead any more: the server may have acted on it")
)

// Options say about which Lease an election is, and how long what may take. Each duration is needed.
type Options struct {
	Namespace, Name string // of the Lease
	Host            string // of this replica: its identity begins with it

	LeaseDuration time.Duration // after which others may take a lease that is not renewed; whole seconds
	RenewDeadline time.Duration // after which we do not lead any more, if we could not renew; less than leaseDuration
	RetryPeriod   time.Duration // between two tries; less than renewDeadline
	ReleaseLimit  time.Duration // that it may take in the end to give the lease back

	OnLost func(error) // is called, once, when a lease that we held is lost
	Log    *slog.Logger
}

// New makes an election that run holds.
func New(client *kube.Client, o Options) *Election {
	return &Election{
		Options: o,
		client:  client,
		id:      fmt.Sprintf("%s_%016x", o.Host, rand.Uint64()),
		path:    "/apis/coordination.k8s.io/v1/namespaces/" + o.Namespace + "/leases/" + o.Name,
		bare:    json.RawMessage(fmt.Sprintf(`{"namespace":%q,"name":%q}`, o.Namespace, o.Name)),
		outage:  logging.NewOutage(o.Log, "lease", "answered again", "lease", o.Namespace+"/"+o.Name),
	}
}

// Lease returns the path of the Lease, and what this replica calls itself in it.
func (e *Election) Lease() (path, identity string) { return e.path, e.id }

// MayWrite returns an error unless we lead now. It reads the clock, as a timer may be late: after a process was frozen
// its goroutines may go on before its timers have ended the term.
func (e *Election) MayWrite() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || e.term.Err() != nil || !time.Now().Before(e.deadline) {
		return errNotLeading
	}
	return nil
}

// WhileLeading returns a context that ends with ctx and with the term: a write that the server has not answered by then
// is given up. It ignores the present deadline, because a renewal may move that while the write is under way.
func (e *Election) WhileLeading(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	e.mu.Lock()
	term := e.term
	e.mu.Unlock()
	if term == nil {
		cancel(errNotLeading)
		return ctx, func() {}
	}
	unhook := context.AfterFunc(term, func() { cancel(errCutOff) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// Run campaigns until stop has ended. Once elected it calls won, and then renews the lease until it is lost or
// resigned has ended, which must not be before stop. In the end it gives back what may be ours.
func (e *Election) Run(stop, resigned context.Context, won func()) {
	defer e.outage.Stop()
	defer e.release()
	deadline, ok := e.acquire(stop)
	if !ok {
		return
	}
	term := e.beginTerm(resigned, deadline)
	e.Log.Info("elected: this replica leads", "lease", e.path, "identity", e.id)
	won()
	e.renew(term)
}

// acquire tries to get the lease until it is ours, and returns the deadline of the term. ok is false if stop has ended
// first.
func (e *Election) acquire(stop context.Context) (deadline time.Time, ok bool) {
	holder := ""
	for {
		deadline, err := e.tryToHold(stop)
		if err == nil {
			e.outage.Worked("get")
			return deadline, true
		}
		switch now := e.observed.Spec.HolderIdentity; {
		case errors.Is(err, errHeld) && now != holder:
			holder = now
			e.Log.Info("standing by, as another replica leads", "lease", e.path, "holder", holder)
		case errors.Is(err, errHeld):
			e.outage.Worked("get")
		case stop.Err() == nil:
			e.outage.Failed("get", "cannot get the lease", kube.PauseBetweenComplaints(err), "err", err)
		}
		pause := e.RetryPeriod + rand.N(e.RetryPeriod+e.RetryPeriod/5)
		if left := time.Until(e.takeoverAt); left > 0 {
			pause = min(pause, left)
		}
		if sleep(stop, pause) != nil {
			return time.Time{}, false
		}
	}
}

// beginTerm makes this replica the leader until the deadline, or until resigned has ended.
func (e *Election) beginTerm(resigned context.Context, deadline time.Time) (term context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.endTerm = context.WithCancel(resigned)
	e.deadline = deadline
	// Whatever a renewal does, or however long it hangs, the term ends at its deadline.
	e.guard = time.AfterFunc(time.Until(deadline), e.endTermAtDeadline)
	return e.term
}

// renew keeps the lease until the term has ended.
func (e *Election) renew(term context.Context) {
	for sleep(term, e.RetryPeriod) == nil {
		deadline, err := e.tryToHold(term)
		e.noteRenewal(deadline, err)
		switch {
		case errors.Is(err, errHeld):
			e.loseTerm(err)
			return
		case err == nil:
			e.outage.Worked("renew")
		case term.Err() == nil:
			e.outage.Failed("renew", "cannot renew the lease", kube.PauseBetweenComplaints(err), "err", err)
		}
	}
}

// noteRenewal moves the term's deadline after a renewal that succeeded. A term that has ended is not begun again.
func (e *Election) noteRenewal(deadline time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastErr = err
	if err == nil && e.term.Err() == nil {
		e.deadline = deadline
		e.guard.Reset(time.Until(deadline))
	}
}

// endTermAtDeadline is called by the guard.
func (e *Election) endTermAtDeadline() {
	e.mu.Lock()
	left := time.Until(e.deadline)
	cause := cmp.Or(e.lastErr, context.DeadlineExceeded)
	why := fmt.Errorf("it could not be renewed for %v: %w", e.RenewDeadline, cause)
	e.mu.Unlock()
	if left <= 0 { // else it was renewed at the last moment, and the guard set again
		e.loseTerm(why)
	}
}

// loseTerm ends the term because the lease is another's, or soon will be.
func (e *Election) loseTerm(why error) {
	e.mu.Lock()
	if e.term.Err() != nil {
		e.mu.Unlock()
		return // it has ended already: we have resigned
	}
	e.lostTerm = true
	e.endTermLocked()
	e.mu.Unlock()
	e.OnLost(fmt.Errorf("the lease is lost: %w", why))
}

func (e *Election) endTermLocked() {
	e.guard.Stop()
	e.endTerm()
}

// release gives the lease back if it may be ours, so that the next replica need not wait until it has run out. What
// was lost is not given back.
func (e *Election) release() {
	e.mu.Lock()
	if e.term != nil {
		e.endTermLocked()
	}
	isLost := e.lostTerm
	e.mu.Unlock()
	if isLost {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(e.ReleaseLimit, e.RenewDeadline/2))
	defer cancel()
	for e.mayHold && ctx.Err() == nil {
		err := e.replace(ctx, e.giveBack)
		if err == nil {
			e.Log.Info("the lease is released", "lease", e.path)
		} else if e.mayHold {
			e.outage.Failed("release", "cannot release the lease", kube.PauseBetweenComplaints(err), "err", err)
			sleep(ctx, e.RetryPeriod/4)
		}
	}
}

// sleep waits for d, or until ctx ends, whose error it returns then.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}
