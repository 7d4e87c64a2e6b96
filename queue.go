package main

// queue.go owns what waits: the channel workqueue with its delays and retries, the token bucket, and the recorder's
// outgoing events. It does not know what a key means.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// backoff is the wait after the nth failure in a row (n >= 1): base, doubled each time up to limit, plus a jitter of up
// to as much again, so that many clients that failed together do not come back together.
func backoff(n int, base, limit time.Duration) time.Duration {
	d := min(limit, base<<min(n-1, 30)) // which does not overflow for a base up to 8 s
	return d + rand.N(d)
}

// sleep waits for d, or until ctx ends, whose error it returns then.
func sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Result is what a reconcile that did not fail asks for.
type Result struct {
	RequeueAfter time.Duration // add the key again after this long; 0: no need
}

// Queue is a workqueue: a key that is added waits until a worker gets it, and however often it is added meanwhile, it
// is there once. A key is never in the hands of two workers, and one that is added while a worker has it is handed out
// again after Done, so no change is lost. A key that failed is held back for a while, alone, whoever adds it meanwhile.
//
// One goroutine owns all state; everyone else talks to it over channels. It ends with the context given to NewQueue:
// from then on nothing is added and Get returns false, while workers finish what they hold.
type Queue[K comparable] struct {
	log         *slog.Logger
	base, limit time.Duration // backoff of a failed key
	ops         chan func()
	out         chan K
	ctx         context.Context

	// Owned by own, alone.
	items map[K]*queued[K]
	ready []*queued[K] // to be handed out, the first first
}

// queued is all that the queue knows of a key. One that says nothing any more is forgotten.
type queued[K comparable] struct {
	key      K
	dirty    bool      // wants work
	busy     bool      // is in Queue.ready, or a worker has it
	held     time.Time // not to be handed out before, after a failure
	later    time.Time // becomes dirty then (AddAfter); zero: no
	failures int       // in a row
}

// NewQueue starts a queue that ends with ctx. A key that fails n times in a row is held for backoff(n, base, limit).
func NewQueue[K comparable](ctx context.Context, log *slog.Logger, base, limit time.Duration) *Queue[K] {
	q := &Queue[K]{log: log, base: base, limit: limit, ops: make(chan func()), out: make(chan K), ctx: ctx, items: map[K]*queued[K]{}}
	go q.own()
	return q
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

// Done gives back a key that Get handed out. With an error the key is tried again after a backoff of its own, or after
// what the server asked for with it where that is longer; without one its failures are forgotten. It returns how
// often in a row the key has failed.
func (q *Queue[K]) Done(k K, res Result, err error) (failures int) {
	q.step("done", func(it *queued[K]) {
		if it.busy = false; err != nil {
			failures = it.failures + 1
			it.dirty, it.held = true, q.wake(k, max(backoff(failures, q.base, q.limit), retryAfter(err)))
		}
		it.failures = failures
	}, k)
	if err == nil && res.RequeueAfter > 0 {
		q.AddAfter(k, res.RequeueAfter)
	}
	return failures
}

// step changes what is known of these keys, in the owner's goroutine, and waits for that; after the end it does nothing.
func (q *Queue[K]) step(name string, change func(*queued[K]), keys ...K) {
	if len(keys) == 0 {
		return
	}
	done := make(chan struct{})
	op := func() {
		for _, k := range keys {
			it := q.items[k]
			if it == nil {
				it = &queued[K]{key: k}
				q.items[k] = it
			}
			change(it)
			q.settle(name, it)
		}
		close(done)
	}
	select {
	case q.ops <- op:
		<-done // the owner runs what it has taken
	case <-q.ctx.Done():
	}
}

func (q *Queue[K]) own() {
	for {
		var out chan K // nil, which blocks, while nothing is ready
		var next K
		if len(q.ready) > 0 {
			out, next = q.out, q.ready[0].key
		}
		select {
		case <-q.ctx.Done():
			return
		case op := <-q.ops:
			op()
		case out <- next:
			it := q.ready[0]
			it.dirty, q.ready = false, q.ready[1:]
			q.settle("get", it)
		}
	}
}

// wake has the key settled again after d, and returns when that is.
func (q *Queue[K]) wake(k K, d time.Duration) (at time.Time) {
	at = time.Now().Add(d)
	time.AfterFunc(d, func() { q.step("wake", func(*queued[K]) {}, k) })
	return at
}

// settle puts a key, behind one step, where its fields and the time say that it belongs: into ready, or out of memory.
func (q *Queue[K]) settle(step string, it *queued[K]) {
	now := time.Now()
	if !it.later.IsZero() && !now.Before(it.later) {
		it.later, it.dirty = time.Time{}, true
	}
	if it.dirty && !it.busy && !now.Before(it.held) {
		it.busy = true
		q.ready = append(q.ready, it)
	}
	if !it.dirty && !it.busy && it.later.IsZero() && it.failures == 0 {
		delete(q.items, it.key)
	}
	if q.log.Enabled(q.ctx, slog.LevelDebug) {
		q.log.Debug("queue: "+step, "key", it.key, "ready", len(q.ready), "keys", len(q.items), "failures", it.failures,
			"held", max(0, it.held.Sub(now)), "later", max(0, it.later.Sub(now)))
	}
}

// Bucket is a token bucket: burst at once, then rate a second. Safe for concurrent use.
type Bucket struct {
	rate, burst float64

	mu     sync.Mutex // guards both below
	tokens float64    // negative: promised to those who wait
	filled time.Time  // when tokens was right
}

// NewBucket makes a full bucket.
func NewBucket(rate float64, burst int) *Bucket {
	return &Bucket{rate: rate, burst: float64(burst), tokens: float64(burst), filled: time.Now()}
}

func (b *Bucket) Allow() bool { return b.take(false) == 0 }

// Wait takes a token, waiting for it, or returns ctx's error.
func (b *Bucket) Wait(ctx context.Context) error { return sleep(ctx, b.take(true)) }

// take takes a token if it is there or patient, and returns how long to wait for it; -1: not taken.
func (b *Bucket) take(patient bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(b.burst, b.tokens+now.Sub(b.filled).Seconds()*b.rate)
	b.filled = now
	wait := (1 - b.tokens) / b.rate
	if wait > 0 && !patient {
		return -1
	}
	b.tokens--
	return max(0, time.Duration(min(wait, 1e9)*float64(time.Second)))
}

// lru remembers the newest max values. It is for a few thousand, as it looks through them. Not safe for concurrent use.
type lru[K comparable, V any] struct {
	max   int
	items []lruItem[K, V] // the newest last
}

type lruItem[K comparable, V any] struct {
	key   K
	value V
}

// get returns the value under k and makes it the newest; where there is none it is made.
func (l *lru[K, V]) get(k K, makeOne func() V) V {
	for i, it := range slices.Backward(l.items) {
		if it.key == k {
			l.items = append(slices.Delete(l.items, i, i+1), it)
			return it.value
		}
	}
	it := lruItem[K, V]{k, makeOne()}
	l.items = append(l.items[max(0, len(l.items)+1-l.max):], it)
	return it.value
}

// ObjectReference says which object an event is about.
type ObjectReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// event is what happened to an object, and when.
type event struct {
	about                     ObjectReference
	kind, reason, message, at string
}

// posted is the Event of something, by its name, and how often that has happened.
type posted struct {
	name  string
	count int // 0: the server does not have it
}

const (
	eventQueue     = 1000 // events that may wait; more are dropped
	eventObjects   = 4096 // objects, and events, that the recorder remembers
	eventBurst     = 25   // events at once about one object,
	eventRefill    = 1.0 / 300
	eventPatience  = 2 * time.Minute // with one event while the server cannot be reached
	eventRetryWait = 10 * time.Second
)

// Recorder posts Events without ever making anyone wait for it: what does not fit its queue, or comes too often, is
// dropped and counted. An event that says the same again raises the count of the first.
type Recorder struct {
	send     func(context.Context, request, any) error // Client.Send
	log      *Log
	instance string // reportingInstance: this process
	queue    chan event
	pace     *Bucket // over all objects
	dropped  atomic.Int64

	// Owned by Run, alone.
	stamp   int64                // the newest Event's, in nanoseconds: no two are the same
	sent    lru[event, *posted]  // by what happened, whenever
	objects lru[string, *Bucket] // by uid
}

// NewRecorder makes a recorder that sends with send, 10 events a second at most. Run must run for that.
func NewRecorder(send func(context.Context, request, any) error, log *Log, instance string) *Recorder {
	return &Recorder{
		send: send, log: log, instance: instance, queue: make(chan event, eventQueue), pace: NewBucket(10, 50),
		sent: lru[event, *posted]{max: eventObjects}, objects: lru[string, *Bucket]{max: eventObjects},
	}
}

// Event records that something happened to an object, now. kind is Normal or Warning. It never blocks.
func (r *Recorder) Event(about ObjectReference, kind, reason, message string) {
	ev := event{about, kind, reason, message, time.Now().UTC().Format(time.RFC3339)}
	select {
	case r.queue <- ev:
	default:
		r.drop(ev, errors.New("too many events wait"))
	}
}

// Dropped is the number of events that were not sent.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

func (r *Recorder) drop(ev event, why error) {
	r.dropped.Add(1)
	r.log.Debug("event dropped", "object", ev.about.Name, "reason", ev.reason, "err", why)
}

// Run sends until stop has ended and nothing waits any more. ctx, which must end after it, cuts that short.
func (r *Recorder) Run(ctx, stop context.Context) {
	for stop.Err() == nil || len(r.queue) > 0 {
		select {
		case ev := <-r.queue:
			r.post(ctx, stop, ev)
		case <-stop.Done():
		}
	}
}

// post sends one event, trying again while the server cannot be reached, or once more where it asks for a moment's
// patience: what it has refused stays refused, and other events wait behind this one. After stop there is one try for each.
func (r *Recorder) post(ctx, stop context.Context, ev event) {
	if !r.objects.get(ev.about.UID, func() *Bucket { return NewBucket(eventRefill, eventBurst) }).Allow() {
		r.drop(ev, errors.New("too many events about this object"))
		return
	}
	start, err := time.Now(), r.once(ctx, ev)
	for try := 1; err != nil; try++ {
		s, wait := statusIn(err), retryAfter(err)
		again := s.Code == 0 && time.Since(start) <= eventPatience || wait > 0 && wait <= 3*eventRetryWait && try == 1
		if !again || sleep(stop, max(wait, backoff(try, time.Second, eventRetryWait))) != nil {
			r.drop(ev, err)
			// That we stop, or that the object's namespace is going, or gone, is everyday life.
			if ctx.Err() == nil && s.Code != http.StatusNotFound && !s.hasCause("NamespaceTerminating") {
				r.log.Complain("cannot post an event", err)
			}
			return
		}
		err = r.once(ctx, ev)
	}
}

// once raises the count of the Event of this, or posts it where the server has none.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
func (r *Recorder) once(ctx context.Context, ev event) error {
	if err := r.pace.Wait(ctx); err != nil {
		return err
	}
	what := ev
	what.at = ""
	sent := r.sent.get(what, func() *posted {
		r.stamp = max(time.Now().UnixNano(), r.stamp+1)
		suffix := fmt.Sprintf(".%x", r.stamp)
		return &posted{name: strings.TrimRight(ev.about.Name[:min(len(ev.about.Name), 253-len(suffix))], "-.") + suffix}
	})
	namespace := cmp.Or(ev.about.Namespace, "default") // the place of events about cluster-scoped objects
	path := "/api/v1/namespaces/" + namespace + "/events"
	if sent.count > 0 {
		err := r.send(ctx, request{method: http.MethodPatch, path: path + "/" + sent.name, body: map[string]any{"count": sent.count + 1, "lastTimestamp": ev.at}}, nil)
		if err == nil {
			sent.count++
		}
		if statusIn(err).Reason != "NotFound" {
			return err
		}
	}
	err := r.send(ctx, request{method: http.MethodPost, path: path, body: map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": sent.name, "namespace": namespace},
		"involvedObject": ev.about, "type": ev.kind, "reason": ev.reason, "message": ev.message,
		"count": 1, "firstTimestamp": ev.at, "lastTimestamp": ev.at,
		"source": map[string]any{"component": "podcount"}, "reportingComponent": "podcount", "reportingInstance": r.instance,
	}}, nil)
	if err == nil || statusIn(err).Reason == "AlreadyExists" { // as an earlier try had arrived after all
		sent.count, err = 1, nil
	}
	return err
}
