package main

// queue.go is the workqueue. It decides which key a worker gets next, and when. It does not know what a key means.
// After the types comes the life of a key: Add, Get, Done, and settleLocked, which moves it to where it belongs. Then
// comes what others ask of a queue, and at the end, how urgent keys go first.

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"podcount/internal/api/retry"
	"podcount/internal/view/observe"
)

// Queue is a workqueue. Add puts a key in. A worker gets it with Get, and gives it back with Done. These rules hold:
//
//   - A key that is added several times before a worker gets it is handed out once.
//   - Two workers never have the same key. A key that is added while a worker has it is handed out again after Done,
//     so that no change is lost.
//   - A key that failed waits for a backoff of its own, even if it is added again. Only RetryNow cuts the wait short.
//     The key delays no other key.
//
// Safe for concurrent use.
type Queue struct {
	options  QueueOptions
	observer observe.Queue
	ended    <-chan struct{} // closed when the queue's context ends
	isUrgent func(Key) bool  // see Prefer

	// wake holds a token if a key may be ready, and Get waits for the token. settleLocked adds it when it makes a key
	// ready. The method take adds it again if more keys are ready. A token without a key does no harm: Get waits again.
	wake chan struct{}

	mu          sync.Mutex         // guards the fields below
	items       map[Key]*queueItem // every key that is ready, with a worker, or waiting; nil at the end
	ready       readyLine          // the keys that are ready, in the order in which workers get them
	lastTakenAt time.Time          // when a worker last took a key
}

// queueItem is what the queue knows about one key.
type queueItem struct {
	key Key

	// dirty means that the key has work which no worker has begun. A key can be dirty in any stage: if it is added
	// while a worker has it, it becomes dirty, because the worker may not have seen the change.
	dirty bool

	stage      queueStage
	stageBegan time.Time // when the key became ready, or when a worker took it; kept after that, for the time that the work took

	addAt   time.Time    // when AddAfter or RequeueAfter makes the key dirty, or zero
	failing *keyFailures // nil if the last reconcile has succeeded, or if there was none

	inUrgentLine bool // while the key is ready: see readyLine
}

// queueStage is how far a key has come on its way to a worker.
type queueStage uint8

const (
	stageWaiting queueStage = iota // for the end of its backoff, or for AddAfter; also a key that is just made
	stageReady                     // in line for a worker
	stageWorking                   // a worker has it
)

// keyFailures are the failures of a key since its last success. There are two streaks of them, each with a backoff of
// its own: one for the failures without an answer, and one for all other failures, also panics. So the failures of an
// outage do not lengthen the waits after it.
type keyFailures struct {
	count      int
	since      time.Time // when the first of them was
	lastErr    error
	retryAt    time.Time // the end of the wait after the last one
	unanswered retry.Streak
	others     retry.Streak
}

// QueueOptions configure a queue. All of them are required.
type QueueOptions struct {
	Name  string        // the controller's name, for the log and the metrics
	Sinks observe.Sinks // where the queue tells what it does

	// Backoff and BackoffLimit are the base and the limit of a key's backoff: see retry.Backoff.
	Backoff      time.Duration
	BackoffLimit time.Duration

	// IsUnanswered reports whether an error says that the server does not answer: see keyFailures and RetryNow.
	IsUnanswered func(error) bool
}

// NewQueue makes a queue, which ends when ctx does. Then it forgets its keys, and its methods change nothing. That
// loses nothing, because a key carries no information: the next process compares every object.
func NewQueue(ctx context.Context, o QueueOptions) *Queue {
	q := &Queue{
		options:  o,
		observer: observe.Queue{Sinks: o.Sinks, Controller: o.Name},
		ended:    ctx.Done(),
		wake:     make(chan struct{}, 1),
		isUrgent: func(Key) bool { return false },
		items:    map[Key]*queueItem{},
	}
	context.AfterFunc(ctx, q.end)
	return q
}

// end forgets all keys.
func (q *Queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = nil
	q.ready = readyLine{}
}

// Add marks keys as having work to do. It does not wait for workers.
func (q *Queue) Add(keys ...Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items == nil {
		return
	}
	for _, key := range keys {
		item := q.itemLocked(key)
		item.dirty = true
		q.settleLocked("add", item)
	}
}

// AddAfter adds the key after d. If another AddAfter of the key has not come due, the earlier of the two times counts.
func (q *Queue) AddAfter(key Key, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items == nil {
		return
	}
	item := q.itemLocked(key)
	q.planLocked(item, d)
	q.settleLocked("add after", item)
}

// planLocked plans that a key is added after d, unless it is planned for an earlier time already.
func (q *Queue) planLocked(item *queueItem, d time.Duration) {
	at := time.Now().Add(d)
	if item.addAt.IsZero() || at.Before(item.addAt) {
		item.addAt = at
		q.settleAfter(item.key, d)
	}
}

// itemLocked returns what the queue knows about a key. If it does not know the key yet, it does from now on.
func (q *Queue) itemLocked(key Key) *queueItem {
	item := q.items[key]
	if item == nil {
		item = &queueItem{key: key}
		q.items[key] = item
	}
	return item
}

// Get waits for a key and gives it to the caller, who must call Done. ok is false once the queue has ended.
func (q *Queue) Get() (key Key, ok bool) {
	for {
		select {
		case <-q.wake:
		case <-q.ended:
			return key, false
		}
		if key, ok = q.take(); ok {
			return key, true
		}
	}
}

// take hands the next key to a worker. ok is false if none is ready.
func (q *Queue) take() (key Key, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	item := q.ready.next()
	if item == nil {
		return key, false
	}
	q.observer.Taken(item.key, item.stageBegan)
	q.lastTakenAt = time.Now()
	item.stage = stageWorking
	item.stageBegan = q.lastTakenAt
	item.dirty = false // From now on, a change needs another reconcile.
	q.observer.Changed("get", item.state(), q.ready.length(), len(q.items))
	if q.ready.length() > 0 {
		q.wakeWorker()
	}
	return item.key, true
}

// wakeWorker makes one Get look for a key. If no Get waits, the next one looks at once.
func (q *Queue) wakeWorker() {
	select {
	case q.wake <- struct{}{}:
	default: // There is a token already.
	}
}

// Done gives back a key that Get returned. If err is nil, Done forgets the key's failures, and adds the key again after
// result.RequeueAfter, unless that is 0. If err is not nil, the key is handed out again after result.RetryAfter or its
// backoff.
func (q *Queue) Done(key Key, result Result, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	item := q.items[key]
	if item == nil {
		return // The queue has ended.
	}
	item.stage = stageWaiting
	if err != nil {
		wait := q.backOffLocked(item, result.RetryAfter, err)
		q.observer.Retried(key, item.stageBegan, wait, item.failing.count, err)
	} else {
		item.failing = nil
		if result.RequeueAfter > 0 {
			q.planLocked(item, result.RequeueAfter)
		}
		q.observer.Done(key, item.stageBegan, result.RequeueAfter)
	}
	q.settleLocked("done", item)
}

// backOffLocked makes a key that failed wait, and returns how long. A retryAfter above 0 replaces the backoff, but only
// three times in a streak. After that, the longer of the two counts: see retry.Streak.
func (q *Queue) backOffLocked(item *queueItem, retryAfter time.Duration, err error) (wait time.Duration) {
	now := time.Now()
	if item.failing == nil {
		item.failing = &keyFailures{since: now}
	}
	failing := item.failing
	failing.count++
	failing.lastErr = err
	streak := &failing.others
	if q.options.IsUnanswered(err) {
		streak = &failing.unanswered
	}
	wait = streak.Fail(retryAfter, q.options.Backoff, q.options.BackoffLimit)
	failing.retryAt = now.Add(wait)
	item.dirty = true
	q.settleAfter(item.key, wait)
	return wait
}

// settleAfter settles the key after d, in a goroutine of its own. Its timer is never stopped: if it fires when nothing
// is due, or when the queue has forgotten the key, that does no harm.
func (q *Queue) settleAfter(key Key, d time.Duration) {
	time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if item := q.items[key]; item != nil {
			q.settleLocked("wake", item)
		}
	})
}

// settleLocked moves a key to where it belongs now. It runs after every change of a key, except in take, and at the end
// of every wait. A key that a worker has stays where it is until Done, so no other worker can get it.
func (q *Queue) settleLocked(why string, item *queueItem) {
	now := time.Now()
	isDue := !item.addAt.IsZero() && !now.Before(item.addAt)
	if isDue {
		item.addAt = time.Time{}
		item.dirty = true
	}
	isHeldBack := item.failing != nil && now.Before(item.failing.retryAt)
	isIdle := !item.dirty && item.addAt.IsZero()
	switch {
	case item.stage == stageWaiting && item.dirty && !isHeldBack: // It has work, and no longer waits for a backoff.
		item.stage = stageReady
		item.stageBegan = now
		q.ready.add(item, q.isUrgent(item.key))
		q.observer.Added(item.key, q.ready.length())
		q.wakeWorker()
	case item.stage == stageWaiting && isIdle: // There is nothing to remember.
		delete(q.items, item.key)
	case item.stage == stageReady && !item.inUrgentLine && q.isUrgent(item.key): // It has become urgent in line.
		q.ready.promote(item)
	default: // It stays where it is: in line, with a worker, or waiting for a timer, which settles it again.
	}
	q.observer.Changed(why, item.state(), q.ready.length(), len(q.items))
}

// ---------------------------------------------------------------------------------------------------------------------
// What others ask of a queue (may be skipped)

// RetryNow ends the backoff of the keys whose last reconcile got no answer, because the server answers again.
func (q *Queue) RetryNow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, item := range q.items {
		isWaiting := item.stage == stageWaiting && item.failing != nil
		if isWaiting && q.options.IsUnanswered(item.failing.lastErr) {
			item.failing.retryAt = time.Now()
			q.settleLocked("retry now", item)
		}
	}
}

// All yields the state of every key that the queue knows, in no particular order: for -once, and for people. The loop
// must not use the queue, and should be quick, because workers wait meanwhile.
func (q *Queue) All() iter.Seq[observe.KeyState] {
	return func(yield func(observe.KeyState) bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, item := range q.items {
			if !yield(item.state()) {
				return
			}
		}
	}
}

// state returns the state of the key, for All and the log.
func (item *queueItem) state() observe.KeyState {
	state := observe.KeyState{
		Key:        item.key,
		IsReady:    item.stage == stageReady,
		IsWorking:  item.stage == stageWorking,
		StageBegan: item.stageBegan,
		IsDirty:    item.dirty,
		AddAt:      item.addAt,
	}
	if item.failing != nil {
		state.Failures = item.failing.count
		state.FailingSince = item.failing.since
		state.LastErr = item.failing.lastErr
		state.RetryAt = item.failing.retryAt
	}
	return state
}

// LastTakenAt returns when a worker last took a key. It is zero before that.
func (q *Queue) LastTakenAt() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lastTakenAt
}

// ---------------------------------------------------------------------------------------------------------------------
// Urgent keys go first (may be skipped)

// Prefer makes the keys for which isUrgent is true go before the others. Call it before the first Add. isUrgent is
// called when a key becomes ready, and whenever a ready key is settled. It must return at once, and not call the queue.
func (q *Queue) Prefer(isUrgent func(Key) bool) { q.isUrgent = isUrgent }

// maxUrgentInARow is how many urgent keys in a row go before an ordinary one has its turn. Urgent keys count even if no
// ordinary key was ready when they went, so an ordinary key may have its turn at once.
const maxUrgentInARow = 3

// readyLine are the keys that are ready, in the order in which they came. Urgent keys go first, but an ordinary key has
// its turn after maxUrgentInARow of them. Otherwise a steady stream of urgent keys would keep it waiting for ever.
type readyLine struct {
	urgent, ordinary []*queueItem
	urgentInARow     int // how many urgent keys were handed out since the last ordinary one
}

func (l *readyLine) length() int { return len(l.urgent) + len(l.ordinary) }

// add puts a key in line.
func (l *readyLine) add(item *queueItem, isUrgent bool) {
	item.inUrgentLine = isUrgent
	if isUrgent {
		l.urgent = append(l.urgent, item)
	} else {
		l.ordinary = append(l.ordinary, item)
	}
}

// promote moves an ordinary key to the urgent ones. It takes time in proportion to the number of ordinary keys in line.
func (l *readyLine) promote(item *queueItem) {
	at := slices.Index(l.ordinary, item)
	l.ordinary = slices.Delete(l.ordinary, at, at+1)
	l.add(item, true)
}

// next takes the key that goes first out of the line. It returns nil if the line is empty.
func (l *readyLine) next() *queueItem {
	isOrdinaryTurn := len(l.ordinary) > 0 && l.urgentInARow >= maxUrgentInARow
	switch {
	case l.length() == 0:
		return nil
	case len(l.urgent) == 0 || isOrdinaryTurn:
		l.urgentInARow = 0
		return pop(&l.ordinary)
	default:
		l.urgentInARow++
		return pop(&l.urgent)
	}
}

// pop takes the first key out of a line.
func pop(line *[]*queueItem) *queueItem {
	first := (*line)[0]
	(*line)[0] = nil // so that its memory is free when the queue forgets it
	*line = (*line)[1:]
	return first
}
