// Package control runs controllers over caches. It knows no kind of object and no watch, and not what a key means.
//
// A controller goes this way:
//
//	this replica leads? → its caches are usable? → begun → workers start → look, at each interval → stop
//
// From then on, keys go this way:
//
//	a change in a cache → onChange, given to Watch ────┐
//	look, at each interval → Resync ───────────────────┴→ Queue.Add → Queue.Get → Reconcile → Brakes.Correct
//
// The Manager stops everything in this order:
//
//	Stop ends → work in flight ends → Events are posted → the Lease is released → requests are cut → connections close
package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"sync/atomic"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/object"
	"podcount/internal/control/brakes"
	"podcount/internal/run/process"
	"podcount/internal/view/observe"
)

// Controller is one of podcount's jobs at work. Its keys stand for objects that may be wrong: changes of the objects
// that it watches add keys to its queue, and so does Resync. Workers take keys from the queue, and call Reconcile with
// them. The Manager runs the workers.
type Controller struct {
	Name string

	Brakes *brakes.Brakes // Its method Correct writes to an object.

	// Reconcile makes one object what it should be. Several workers may call it at once, but never with the same key.
	// If it fails, it is called again after a backoff. ctx ends when the shutdown can wait no longer.
	Reconcile func(ctx context.Context, key object.Key) (Result, error)

	// Resync returns the keys to reconcile at the start, and again at each interval. It may be nil.
	Resync func() []object.Key

	// IsUrgent reports whether a key goes before those that are not urgent. The queue calls it, so it must be quick,
	// and must not call the queue. If it is nil, no key is urgent.
	IsUrgent func(object.Key) bool

	// Summary returns the numbers for the last line of -once and -dry-run. If it is nil, there is no such line.
	Summary func() Summary

	queue    Queue
	observer *observe.ControllerReport
	stop     context.Context   // ends the workers
	begun    chan struct{}     // closed when work begins
	looking  process.Stopwatch // runs while look does
	tally    *tally            // counts keys with -once; otherwise it is nil

	// unknown says why keys that need work may be unknown: the objects were not looked at yet, or a function that adds
	// keys has panicked since. It is nil if all keys are known.
	unknown atomic.Pointer[error]

	// AddCache adds to the fields below.

	caches    map[Cache]struct{}
	replayAll []func() // one for each cache
}

// Queue is what a controller needs of its queue of keys.
type Queue interface {
	Add(keys ...object.Key)
	AddAfter(key object.Key, d time.Duration)
	Get() (key object.Key, ok bool)
	Done(key object.Key, result Result, err error)
	RetryNow()

	// Prefer makes the keys for which isUrgent is true go before the others.
	Prefer(isUrgent func(object.Key) bool)

	// All yields how each key stands, and LastTakenAt returns when a worker last took one.
	All() iter.Seq[observe.KeyState]
	LastTakenAt() time.Time
}

// Result is what a reconcile asks for.
type Result struct {
	// RequeueAfter adds the key again after this time, if the reconcile succeeded. 0 does not add it.
	RequeueAfter time.Duration

	// RetryAfter is how long to wait before the next try, if the reconcile failed, or 0 for the key's backoff. The
	// worker raises it to what the server asked for. A key that asks for it again and again waits at least for its
	// backoff: see retry.Streak.
	RetryAfter time.Duration
}

// Summary says how many objects a controller writes to, and how many are wrong.
type Summary struct {
	Noun  string // the name of one object, as in "node"; "" if the resource is not installed
	All   int
	Wrong int   // how many objects are not what they should be
	Unmet error // what the flags ask for, and no object allows; -once fails with it
}

// AddCache says that the controller watches a cache. replayAll must hand each object that is there to the controller.
// It is called when the controller begins, and once more after a panic of a function that adds keys: a key says which
// object to look at, so no change is lost that way.
func (c *Controller) AddCache(cache Cache, replayAll func()) {
	c.caches[cache] = struct{}{}
	c.replayAll = append(c.replayAll, replayAll)
}

// HasBegun reports whether the controller has begun to work.
func (c *Controller) HasBegun() bool { return process.IsClosed(c.begun) }

// SkipsChanges reports whether changes are left to the next run, because of -once.
func (c *Controller) SkipsChanges() bool { return c.tally != nil }

// Caches returns the caches that the controller watches.
func (c *Controller) Caches() iter.Seq[Cache] { return maps.Keys(c.caches) }

// Looking returns a stopwatch that runs while the controller looks for work.
func (c *Controller) Looking() *process.Stopwatch { return &c.looking }

// Add adds keys to the queue. -once counts them first, because a worker may be done with them at once.
func (c *Controller) Add(keys ...object.Key) {
	c.tally.mark(todo, keys...)
	c.queue.Add(keys...)
}

// AddAfter adds a key to the queue after d. -once does not count it.
func (c *Controller) AddAfter(key object.Key, d time.Duration) { c.queue.AddAfter(key, d) }

// Keys yields how each key in the queue stands.
func (c *Controller) Keys() iter.Seq[observe.KeyState] { return c.queue.All() }

// LastTakenAt returns when a worker last took a key.
func (c *Controller) LastTakenAt() time.Time { return c.queue.LastTakenAt() }

var errNotLooked = errors.New("it has not looked yet")

// look adds the keys that Resync returns. At first, and when a panic has left keys unknown, it also replays every
// object that is there.
func (c *Controller) look() {
	c.looking.Start()
	defer c.looking.Stop()
	unknown := c.unknown.Load()
	if unknown != nil {
		for _, replayAll := range c.replayAll {
			replayAll()
		}
	}
	if c.Resync != nil {
		c.Call(func() { c.Add(c.Resync()...) })
	}
	c.unknown.CompareAndSwap(unknown, nil) // unless there was a panic meanwhile
}

// Call calls a function of the controller that adds keys. If the function panics, keys that need work may be unknown.
func (c *Controller) Call(addKeys func()) {
	err := c.recovered(addKeys)
	if err != nil {
		c.unknown.Store(&err)
	}
}

// work reconciles keys until the queue ends.
func (c *Controller) work(ctx context.Context) {
	for {
		key, ok := c.queue.Get()
		if !ok {
			return
		}
		var result Result
		var err error
		panicked := c.recovered(func() { result, err = c.Reconcile(ctx, key) })
		err = cmp.Or(panicked, err)
		switch {
		case err != nil:
			c.observer.Failed(key, kube.PauseBetweenComplaints(err), err)
		case c.stop.Err() == nil: // Otherwise it may have given up because of the shutdown.
			c.observer.NeedsNothing(key)
			c.tally.mark(done, key)
		}
		result.RetryAfter = max(result.RetryAfter, kube.RetryAfter(err))
		c.queue.Done(key, result, err)
	}
}

// recordWrite records that a write of an object has succeeded, and that the server has kept what was written.
func (c *Controller) recordWrite(key object.Key) {
	c.observer.Wrote(key)
	c.tally.mark(written, key)
}

// panicError is the error that a panic becomes.
type panicError struct{ value any }

func (e panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// Advice says what a person can do about the error of a reconcile.
func Advice(err error) string {
	if errors.As(err, new(panicError)) {
		return "This is a bug in the controller. The log has the stack."
	}
	if errors.Is(err, object.ErrStripped) {
		return "Find out what removes the value: a webhook, a MutatingAdmissionPolicy or the schema of the CRD."
	}
	return kube.Advice(err)
}

// recovered calls a function of the controller, and turns a panic into an error, because a bug in one controller must
// not stop the others.
func (c *Controller) recovered(call func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError{p}
			c.observer.Panicked(err)
		}
	}()
	call()
	return nil
}

// isUrgent calls IsUrgent. If that panics, the key is not urgent.
func (c *Controller) isUrgent(key object.Key) (isUrgent bool) {
	if c.IsUrgent != nil {
		c.recovered(func() { isUrgent = c.IsUrgent(key) })
	}
	return isUrgent
}

// summary calls Summary. If it panics, there are no numbers.
func (c *Controller) summary() (summary Summary) {
	if c.Summary != nil {
		c.recovered(func() { summary = c.Summary() })
	}
	return summary
}
