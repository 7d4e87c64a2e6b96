// Package leader makes one replica of all that know a Lease the leader, by the rules of client-go, with which it can
// share one. While this replica leads it has a term, which ends at a deadline that each renewal moves: an Election is
// the client's permit to write, so that no write begins or continues after the term.
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
	"podcount/internal/retry"
)

// MaxLeaseDuration is the longest that a Lease can say: its seconds are an int32.
const MaxLeaseDuration = math.MaxInt32 * time.Second

// Options say about which Lease an election is, and how long what may take. All of them are needed. The durations are
// those of client-go's elections, where 15, 10 and 2 seconds are usual.
// https://pkg.go.dev/k8s.io/client-go/tools/leaderelection#LeaderElectionConfig
type Options struct {
	Namespace string // of the Lease
	Name      string // of the Lease
	Host      string // of this replica: its identity begins with it

	// LeaseDuration is the time after which others may take a lease that is not renewed: whole seconds, and at most
	// MaxLeaseDuration.
	LeaseDuration time.Duration

	// RenewDeadline is the time after which this replica does not lead any more, if it could not renew the lease. It is
	// less than LeaseDuration.
	RenewDeadline time.Duration

	// RetryPeriod is the time between two tries. 1.2 times that is less than RenewDeadline.
	RetryPeriod time.Duration

	// ReleaseLimit is how long it may take in the end to give the lease back: no longer than half of RenewDeadline, either.
	ReleaseLimit time.Duration

	// OnLost is called, once, when a lease that this replica held is lost. No write is permitted any more then.
	OnLost func(why error)

	// Log hears who leads, and what fails.
	Log *slog.Logger
}

// Election is one replica's part in an election, and its kube.Permit. Run holds it; the other methods may be called at
// any time, by any goroutine.
type Election struct {
	options Options
	client  *kube.Client
	id      string          // what this replica calls itself in the Lease
	path    string          // of the Lease
	bare    json.RawMessage // the metadata of a Lease that is not there yet
	outage  *logging.Outage // of what is asked about the Lease

	mu       sync.Mutex         // guards all of the term
	term     context.Context    // nil: this replica has never led; ended: it does not lead any more
	endTerm  context.CancelFunc // of term
	deadline time.Time          // of term, which guard ends then
	guard    *time.Timer        // calls endTermAtDeadline
	lastErr  error              // of the newest renewal; nil where it succeeded
	lostTerm bool               // the term has ended because the lease is lost

	// Only Run uses the fields below.
	observed     lease     // as last seen
	fromOwnWrite bool      // observed is the answer to our own last write, and nothing has failed since
	takeoverAt   time.Time // when we may follow the holder observed, if it is another and does not renew before
	mayHold      bool      // the lease may be ours: we have asked for it, and have not seen it with another since
}

var (
	errHeld       = errors.New("it is held") // by the holder in Election.observed
	errNotLeading = errors.New("not sent, as this replica does not lead")
	errCutOff     = errors.New("cut off, as this replica does not lead any more: the server may have acted on it")
)

// New makes an election, which begins with Run. This replica's identity is its host's name and a random number.
func New(client *kube.Client, o Options) *Election {
	return &Election{
		options: o,
		client:  client,
		id:      fmt.Sprintf("%s_%016x", o.Host, rand.Uint64()),
		path:    "/apis/coordination.k8s.io/v1/namespaces/" + o.Namespace + "/leases/" + o.Name,
		bare:    json.RawMessage(fmt.Sprintf(`{"namespace":%q,"name":%q}`, o.Namespace, o.Name)),
		outage:  logging.NewOutage(o.Log, "lease", "answered again", "lease", o.Namespace+"/"+o.Name),
	}
}

// Lease returns the path of the Lease at the API server, and what this replica calls itself in it.
func (e *Election) Lease() (path, identity string) { return e.path, e.id }

// MayWrite returns an error unless this replica leads now. It reads the clock, as a timer may be late: after a process
// was frozen its goroutines may go on before its timers have ended the term.
func (e *Election) MayWrite() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || e.term.Err() != nil || !time.Now().Before(e.deadline) {
		return errNotLeading
	}
	return nil
}

// WhilePermitted returns a context that ends with ctx and with the term: a write that the server has not answered by then
// is given up. It ignores the present deadline, because a renewal may move that while the write is under way. Whoever
// called it calls the function that it returns.
func (e *Election) WhilePermitted(ctx context.Context) (context.Context, context.CancelFunc) {
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

// Run campaigns until stop has ended. Once elected it calls won, which should return soon, and then renews the lease
// until that is lost, or until resigned has ended, which must not be before stop. In the end it gives back what may be
// ours. It may be called once.
func (e *Election) Run(stop, resigned context.Context, won func()) {
	defer e.outage.Stop()
	defer e.release()
	deadline, ok := e.acquire(stop)
	if !ok {
		return
	}
	term := e.beginTerm(resigned, deadline)
	e.options.Log.Info("elected: this replica leads", "lease", e.path, "identity", e.id)
	won()
	e.renew(term)
}

// acquire tries to get the lease until it is ours, and returns the deadline of the term. ok is false if stop has ended
// first.
func (e *Election) acquire(stop context.Context) (deadline time.Time, ok bool) {
	holder := "" // that was said last
	for {
		deadline, err := e.tryToHold(stop)
		if err == nil {
			e.outage.Worked("get")
			return deadline, true
		}
		isNews := e.observed.Spec.HolderIdentity != holder
		switch {
		case errors.Is(err, errHeld) && isNews:
			holder = e.observed.Spec.HolderIdentity
			e.options.Log.Info("standing by, as another replica leads", "lease", e.path, "holder", holder)
		case errors.Is(err, errHeld):
			e.outage.Worked("get")
		case stop.Err() == nil:
			e.outage.Failed("get", "cannot get the lease", kube.PauseBetweenComplaints(err), "err", err)
		}
		if retry.Sleep(stop, e.pauseBeforeNextTry()) != nil {
			return time.Time{}, false
		}
	}
}

// pauseBeforeNextTry is 1 to 2.2 retry periods, by chance, as with client-go; but no longer than until the lease can be
// taken over.
func (e *Election) pauseBeforeNextTry() time.Duration {
	period := e.options.RetryPeriod
	pause := period + rand.N(period+period/5)
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
	// Whatever a renewal does, or however long it hangs, the term ends at its deadline.
	e.guard = time.AfterFunc(time.Until(deadline), e.endTermAtDeadline)
	return e.term
}

// renew keeps the lease until the term has ended.
func (e *Election) renew(term context.Context) {
	for {
		if retry.Sleep(term, e.options.RetryPeriod) != nil {
			return
		}
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

// endTermAtDeadline is called by the guard. It ends the term unless that was renewed at the last moment.
func (e *Election) endTermAtDeadline() {
	e.mu.Lock()
	left := time.Until(e.deadline)
	cause := cmp.Or(e.lastErr, context.DeadlineExceeded)
	why := fmt.Errorf("it could not be renewed for %v: %w", e.options.RenewDeadline, cause)
	e.mu.Unlock()
	if left <= 0 { // else the guard was set again
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
	e.options.OnLost(fmt.Errorf("the lease is lost: %w", why))
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
	ctx, cancel := context.WithTimeout(context.Background(), min(e.options.ReleaseLimit, e.options.RenewDeadline/2))
	defer cancel()
	for e.mayHold && ctx.Err() == nil {
		err := e.replace(ctx, e.giveBack)
		if err == nil {
			e.options.Log.Info("the lease is released", "lease", e.path)
		} else if e.mayHold {
			e.outage.Failed("release", "cannot release the lease", kube.PauseBetweenComplaints(err), "err", err)
			retry.Sleep(ctx, e.options.RetryPeriod/4)
		}
	}
}
