package main

// queue.go is the workqueue: keys that wait for a worker, with their delays and retries.

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"podcount/internal/metrics"
	"podcount/internal/retry"
)

// Result is what a reconcile asks for.
type Result struct {
	RequeueAfter time.Duration // where it did not fail: add the key again after this long; 0: no need
	// RetryAfter is for the manager to set where a reconcile failed: the server has asked to wait so long. The key is
	// tried again no sooner, and no sooner than its own backoff says.
	RetryAfter time.Duration
}

// Queue is a workqueue: a key that is added waits for a worker, once, however often it is added. Two workers never
// have the same key, and one that is added while a worker has it is handed out again after Done, so no change is
// lost. A key that failed is held back for a while, alone. One goroutine owns all state; everyone else talks to it
// over channels.
type Queue[K comparable] struct {
	log         *slog.Logger
	metrics     *metrics.Registry
	name        string        // of the controller
	base, limit time.Duration // backoff of a failed key
	isUrgent    func(K) bool  // nil: no key is
	ops         chan func()
	out         chan K
	ctx         context.Context

	// Owned by the goroutine.
	items        map[K]*queued[K] // all keys that something is known of
	urgent       line[K]          // ready, and handed out before all others
	urgentInARow int              // urgent keys that were handed out since the last other one
	ordinary     line[K]          // ready, too
	lastTaken    time.Time        // when a worker took a key
}

// queued is all that the queue knows of a key. One that says nothing any more is forgotten.
type queued[K comparable] struct {
	key      K
	dirty    bool      // wants work
	busy     bool      // is in one of the queue's lines, or a worker has it
	working  bool      // a worker has it
	urgent   bool      // the line that it is in is Queue.urgent
	place    uint32    // in that line
	since    time.Time // when that began
	held     time.Time // not to be handed out before, after a failure
	later    time.Time // becomes dirty then (AddAfter); zero: no
	failures int       // in a row
}

// line is keys that are ready, in the order in which they became so. A key may leave it from the middle.
type line[K comparable] struct {
	places []*queued[K] // nil where a key has left; the first never is
	first  uint32       // the number of the first place: each place has the number after the last one's
	gaps   int          // places that are nil
}

func (l *line[K]) len() int { return len(l.places) - l.gaps }

// head returns the key that has waited longest, nil where none waits.
func (l *line[K]) head() *queued[K] {
	if len(l.places) == 0 {
		return nil
	}
	return l.places[0]
}

func (l *line[K]) add(it *queued[K]) {
	it.place = l.first + uint32(len(l.places)) // may wrap around, as the difference in remove then does
	l.places = append(l.places, it)
}

func (l *line[K]) remove(it *queued[K]) {
	l.places[it.place-l.first] = nil
	l.gaps++
	for len(l.places) > 0 && l.places[0] == nil {
		l.places = l.places[1:]
		l.first++
		l.gaps--
	}
	if l.gaps > len(l.places)/2 {
		l.closeGaps()
	}
}

// closeGaps moves the keys together. As half of the places are gaps then, it costs little for each key that has left.
func (l *line[K]) closeGaps() {
	old := l.places
	l.places = make([]*queued[K], 0, len(old)-l.gaps)
	l.gaps = 0
	for _, it := range old {
		if it != nil {
			l.add(it)
		}
	}
}

// QueueOptions are what a queue is made with. All of them but IsUrgent are needed.
type QueueOptions[K comparable] struct {
	Name string // of the controller, in the log and in the metrics

	// A key that fails n times in a row is held for retry.Backoff(n, Backoff, MaxBackoff).
	Backoff    time.Duration
	MaxBackoff time.Duration

	// A key that is urgent when it becomes ready, or when it is added again while it waits, is handed out before all
	// that are not. nil: no key is urgent. The queue's goroutine calls it, so it must be quick, and must not call the
	// queue.
	IsUrgent func(K) bool

	Log     *slog.Logger
	Metrics *metrics.Registry // those that begin with workqueue_
}

// NewQueue starts a queue. When ctx has ended nothing is added, and Get returns false, while workers finish what they
// hold.
func NewQueue[K comparable](ctx context.Context, o QueueOptions[K]) *Queue[K] {
	q := &Queue[K]{
		log:      o.Log,
		metrics:  o.Metrics,
		name:     o.Name,
		base:     o.Backoff,
		limit:    o.MaxBackoff,
		isUrgent: o.IsUrgent,
		ops:      make(chan func()),
		out:      make(chan K),
		ctx:      ctx,
		items:    map[K]*queued[K]{},
	}
	go q.own()
	return q
}

// ready returns how many keys wait for a worker.
func (q *Queue[K]) ready() int { return q.urgent.len() + q.ordinary.len() }

// lineOf returns the line that a key is in, or belongs in.
func (q *Queue[K]) lineOf(it *queued[K]) *line[K] {
	if it.urgent {
		return &q.urgent
	}
	return &q.ordinary
}

// urgentTurns is how many urgent keys are handed out in a row while others wait: then one of these has its turn. Keys
// that become urgent again and again must not keep the others waiting for ever.
const urgentTurns = 3

// next returns the key that is handed out next, nil where none is ready.
func (q *Queue[K]) next() *queued[K] {
	urgent, ordinary := q.urgent.head(), q.ordinary.head()
	if urgent == nil || ordinary != nil && q.urgentInARow >= urgentTurns {
		return ordinary
	}
	return urgent
}

// noteTurn notes that a key was handed out.
func (q *Queue[K]) noteTurn(it *queued[K]) {
	if it.urgent {
		q.urgentInARow++
	} else {
		q.urgentInARow = 0
	}
}

// State returns what is known of the queue, for people, and sets its gauges. left is how many keys want work that is
// not done, now or within a second; failed is how many have failed at least tries times in a row.
func (q *Queue[K]) State(tries int) (state map[string]any, left, failed int) {
	q.do(func() {
		working, all, longest := map[string]any{}, 0.0, 0.0
		for k, it := range q.items {
			if seconds := time.Since(it.since).Seconds(); it.working {
				working[fmt.Sprint(k)], all, longest = seconds, all+seconds, max(longest, seconds)
			}
			if it.isLeft() {
				left++
			}
			if it.failures >= tries {
				failed++
			}
		}
		q.metrics.Set(float64(q.ready()), "workqueue_depth", q.name)
		q.metrics.Set(all, "workqueue_unfinished_work_seconds", q.name)
		q.metrics.Set(longest, "workqueue_longest_running_processor_seconds", q.name)
		state = map[string]any{"ready": q.ready(), "keys": len(q.items), "secondsAtWork": working}
	})
	return state, left, failed
}

// Left returns the keys that are not done: those that wait for no more than a second, and those that workers have. Keys
// that have failed are among them. They come in no order.
func (q *Queue[K]) Left() (keys []K) {
	q.do(func() {
		for k, it := range q.items {
			if it.isLeft() {
				keys = append(keys, k)
			}
		}
	})
	return keys
}

// isLeft reports whether a key wants work that is not done, now or within a second.
func (it *queued[K]) isLeft() bool {
	isDueSoon := !it.later.IsZero() && time.Until(it.later) < time.Second
	return it.dirty || it.busy || isDueSoon
}

// Stuck says what has not moved for longer than limit: a key that a worker has, or keys that are ready and that no
// worker takes. It returns "" where all is well.
func (q *Queue[K]) Stuck(limit time.Duration) (what string) {
	q.do(func() {
		for _, it := range q.items {
			if at := time.Since(it.since); it.working && at > limit {
				what = fmt.Sprintf("a worker has had %v for %v", it.key, at.Round(time.Second))
				return
			}
		}
		var longest time.Duration
		for _, head := range []*queued[K]{q.urgent.head(), q.ordinary.head()} {
			if head != nil {
				longest = max(longest, time.Since(head.since))
			}
		}
		waited := min(longest, time.Since(q.lastTaken))
		if waited > limit {
			what = fmt.Sprintf("%d keys are ready, and no worker has taken one for %v", q.ready(), waited.Round(time.Second))
		}
	})
	return what
}

// Add says that these keys want work. It never blocks for long, and does nothing after the end.
func (q *Queue[K]) Add(keys ...K) { q.step("add", func(it *queued[K]) { it.dirty = true }, keys...) }

// AddAfter adds the key after d. Of several times the earliest holds.
func (q *Queue[K]) AddAfter(k K, d time.Duration) {
	q.step("add later", func(it *queued[K]) {
		if it.later.IsZero() || time.Now().Add(d).Before(it.later) {
			it.later = q.wake(k, d)
		}
	}, k)
}

// Get waits for a key and hands it to the caller, who must call Done. It returns false when the queue has ended.
func (q *Queue[K]) Get() (k K, ok bool) {
	select {
	case k = <-q.out:
		return k, true
	case <-q.ctx.Done():
		return k, false
	}
}

// Done gives back a key that Get handed out. With an error it is tried again after a backoff of its own, or after
// res.RetryAfter if that is longer; without one its failures are forgotten. It returns how often in a row the key has
// failed.
func (q *Queue[K]) Done(k K, res Result, err error) (failures int) {
	q.step("done", func(it *queued[K]) {
		it.busy = false
		it.working = false
		if err != nil {
			failures = it.failures + 1
			wait := max(retry.Backoff(failures, q.base, q.limit), res.RetryAfter)
			it.dirty = true
			it.held = q.wake(k, wait)
			q.metrics.Count("workqueue_retries_total", q.name)
		}
		it.failures = failures
		q.metrics.Observe(it.since, "workqueue_work_duration_seconds", q.name)
	}, k)
	if err == nil && res.RequeueAfter > 0 {
		q.AddAfter(k, res.RequeueAfter)
	}
	return failures
}

// step changes what is known of these keys, in the owner's goroutine, and waits for that; after the end it does
// nothing.
func (q *Queue[K]) step(name string, change func(*queued[K]), keys ...K) {
	if len(keys) == 0 {
		return
	}
	q.do(func() {
		for _, k := range keys {
			it := q.items[k]
			if it == nil {
				it = &queued[K]{key: k}
				q.items[k] = it
			}
			change(it)
			q.settle(name, it)
		}
	})
}

// do runs op in the owner's goroutine, and waits for that; after the end it does nothing.
func (q *Queue[K]) do(op func()) {
	done := make(chan struct{})
	select {
	case q.ops <- func() { op(); close(done) }:
		<-done // the owner runs what it has taken
	case <-q.ctx.Done():
	}
}

func (q *Queue[K]) own() {
	for {
		var out chan K // nil, which blocks, while nothing is ready
		var key K
		next := q.next()
		if next != nil {
			out = q.out
			key = next.key
		}
		select {
		case <-q.ctx.Done():
			return
		case op := <-q.ops:
			op()
		case out <- key:
			q.lineOf(next).remove(next)
			q.noteTurn(next)
			q.metrics.Observe(next.since, "workqueue_queue_duration_seconds", q.name)
			next.dirty = false
			next.working = true
			next.since = time.Now()
			q.lastTaken = next.since
			q.settle("get", next)
		}
	}
}

// wake has the key settled again after d, and returns when that is.
func (q *Queue[K]) wake(k K, d time.Duration) (at time.Time) {
	at = time.Now().Add(d)
	time.AfterFunc(d, func() { q.step("wake", func(*queued[K]) {}, k) })
	return at
}

// settle works out after each step where a key belongs: in one of the lines, or out of memory.
func (q *Queue[K]) settle(step string, it *queued[K]) {
	now := time.Now()
	if !it.later.IsZero() && !now.Before(it.later) {
		it.later, it.dirty = time.Time{}, true
	}
	if it.dirty && !it.busy && !now.Before(it.held) {
		it.busy, it.since = true, now
		it.urgent = q.isUrgent != nil && q.isUrgent(it.key)
		q.metrics.Count("workqueue_adds_total", q.name)
		q.lineOf(it).add(it)
	} else if it.dirty && it.busy && !it.working && !it.urgent && q.isUrgent != nil && q.isUrgent(it.key) {
		q.ordinary.remove(it)
		it.urgent = true
		q.urgent.add(it)
	}
	if !it.dirty && !it.busy && it.later.IsZero() && it.failures == 0 {
		delete(q.items, it.key)
	}
	if q.log.Enabled(q.ctx, slog.LevelDebug) { // else the arguments would be made for nothing
		q.log.Debug("queue: "+step, "controller", q.name, "key", it.key,
			"ready", q.ready(), "keys", len(q.items), "failures", it.failures,
			"held", max(0, it.held.Sub(now)), "later", max(0, it.later.Sub(now)))
	}
}
