package main

// queue.go is the workqueue. It decides which key a worker gets next, and when. It does not know what a key means.

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"time"

	"podcount/internal/api/retry"
	"podcount/internal/view/metrics"
	"podcount/internal/view/trace"
)

// Result is what a reconcile asks for.
type Result struct {
	// RequeueAfter adds the key again after this time, if the reconcile succeeded. 0 does not add it.
	RequeueAfter time.Duration

	// RetryAfter is how long to wait before the next try, if the reconcile failed, or 0 for the key's backoff. The
	// manager raises it to what the server asked for. A key that asks for it again and again waits at least for its
	// backoff: see retry.Streak.
	RetryAfter time.Duration
}

// Queue is a workqueue. Add puts a key in. A worker gets it with Get, and gives it back with Done. These rules hold:
//
//   - A key that is added several times before a worker gets it is handed out once.
//   - Two workers never have the same key. A key that is added while a worker has it is handed out again after Done,
//     so that no change is lost.
//   - A key that failed waits for a backoff of its own, even if it is added again meanwhile. It delays no other key.
//
// Safe for concurrent use. There is no lock, because one goroutine owns the state: see run.
type Queue[K comparable] struct {
	options QueueOptions[K]
	ops     chan func()   // carries functions to the owner, which runs them
	out     chan K        // carries keys from the owner to Get
	ended   chan struct{} // closed when the owner has ended

	// Only the owner uses the fields below.
	items        map[K]*queueItem[K] // every key that is ready, with a worker, or waiting
	ordinary     keyLine[K]          // keys that are ready and not urgent
	urgent       keyLine[K]          // keys that are ready and urgent
	urgentInARow int                 // how many urgent keys were handed out since the last ordinary one
	lastGetAt    time.Time           // when a worker last got a key
}

// QueueOptions configure a queue. All of them are required except IsUnanswered, IsUrgent and Trace.
type QueueOptions[K comparable] struct {
	// Name is the controller's name, for the log and the metrics.
	Name string

	// Backoff and MaxBackoff are the base and the limit of a key's backoff: see retry.Backoff.
	Backoff    time.Duration
	MaxBackoff time.Duration

	// IsUnanswered reports whether an error says that the server does not answer. These failures of a key have a
	// backoff of their own, so that they do not lengthen the wait for a server that is back. If it is nil, no error
	// says that.
	IsUnanswered func(error) bool

	// IsUrgent reports whether a key goes before the ordinary ones. The queue calls it when the key becomes ready, and
	// again whenever the key is updated while it is ready and not yet urgent. It must return at once, and must not call
	// the queue's methods. If it is nil, no key is urgent.
	IsUrgent func(K) bool

	Log     *slog.Logger
	Metrics *metrics.Registry // gets the metrics whose names begin with workqueue_
	Trace   *trace.Trace      // gets a step when a key becomes ready, is taken or is given back
}

// NewQueue starts a queue, which ends with ctx. After that, all methods do nothing. Only a Get that runs at that moment
// may still return a key.
func NewQueue[K comparable](ctx context.Context, o QueueOptions[K]) *Queue[K] {
	if o.IsUnanswered == nil {
		o.IsUnanswered = func(error) bool { return false }
	}
	if o.IsUrgent == nil {
		o.IsUrgent = func(K) bool { return false }
	}
	q := &Queue[K]{
		options: o,
		ops:     make(chan func()),
		out:     make(chan K),
		ended:   make(chan struct{}),
		items:   map[K]*queueItem[K]{},
	}
	go q.run(ctx)
	return q
}

// Add marks keys as having work to do. It does not wait for workers.
func (q *Queue[K]) Add(keys ...K) {
	q.update("add", func(item *queueItem[K]) { item.dirty = true }, keys...)
}

// AddAfter adds the key after d. If an earlier AddAfter of the key has not come due, the earlier of the two times
// counts.
func (q *Queue[K]) AddAfter(key K, d time.Duration) {
	q.update("add after", func(item *queueItem[K]) {
		at := time.Now().Add(d)
		if item.addAt.IsZero() || at.Before(item.addAt) {
			item.addAt = at
			q.settleAt(key, at)
		}
	}, key)
}

// Get waits for a key and gives it to the caller, who must call Done. ok is false when the queue has ended.
func (q *Queue[K]) Get() (key K, ok bool) {
	select {
	case key = <-q.out:
		q.emit(key, trace.Step{Point: trace.Taken}) // here, so that it precedes the steps of the worker
		return key, true
	case <-q.ended:
		return key, false
	}
}

// Done gives back a key that Get returned. If err is nil, Done forgets the key's failures, and adds the key again after
// result.RequeueAfter, unless that is 0. Otherwise the key is handed out again after result.RetryAfter or its backoff.
func (q *Queue[K]) Done(key K, result Result, err error) {
	q.update("done", func(item *queueItem[K]) {
		q.options.Metrics.Observe(item.stageBegan, "workqueue_work_duration_seconds", q.options.Name)
		item.stage = stageWaiting
		took := time.Since(item.stageBegan)
		if err == nil {
			item.failing = nil
			q.emit(key, trace.Step{Point: trace.Done, Took: took, Wait: result.RequeueAfter})
		} else {
			q.backOff(item, result.RetryAfter, err)
			q.emit(key, trace.Step{
				Point: trace.Retried,
				Took:  took,
				Wait:  time.Until(item.notBefore),
				Text:  err.Error(),
				Count: item.failures(),
			})
		}
	}, key)
	if err == nil && result.RequeueAfter > 0 {
		q.AddAfter(key, result.RequeueAfter)
	}
}

// RetryNow ends the backoff of the keys whose last reconcile got no answer, because the server answers again.
func (q *Queue[K]) RetryNow() {
	q.do(func() {
		for _, item := range q.items {
			isWaiting := item.stage == stageWaiting && item.failing != nil
			if isWaiting && q.options.IsUnanswered(item.failing.lastErr) {
				item.notBefore = time.Now()
				q.settle(item)
				q.logStep("retry now", item)
			}
		}
	})
}

// Pending returns, in no particular order, the keys that have work to do: those that are ready, that a worker has, that
// wait for their backoff, or that AddAfter adds within a second.
func (q *Queue[K]) Pending() (keys []K) {
	q.do(func() {
		for key, item := range q.items {
			if item.isPending() {
				keys = append(keys, key)
			}
		}
	})
	return keys
}

// CountPending counts the pending keys that have failed fewer than maxFailures times in a row.
func (q *Queue[K]) CountPending(maxFailures int) (count int) {
	q.do(func() {
		for _, item := range q.items {
			if item.isPending() && item.failures() < maxFailures {
				count++
			}
		}
	})
	return count
}

// QueueState is the state of a queue, for people.
type QueueState struct {
	Keys    int                      // the number of keys that the queue knows
	Ready   int                      // the number of keys that wait for a worker
	Waiting int                      // the number of keys that wait for their time, although they have not failed
	Working map[string]time.Duration // how long a worker has had each key

	FailingCount int          // the number of keys whose last reconcile has failed
	Failing      []FailingKey // at most maxFailingKeys of them; those that fail for longest come first
}

// maxFailingKeys is how many failing keys State describes.
const maxFailingKeys = 20

// FailingKey is a key whose last reconcile has failed.
type FailingKey struct {
	Key      string
	Failures int       // in a row
	Since    time.Time // when the first of them was
	Err      error     // of the last one
	RetryAt  time.Time // the end of the key's backoff
}

// State returns the queue's state.
func (q *Queue[K]) State() (state QueueState) {
	q.do(func() {
		state.Keys = len(q.items)
		state.Ready = q.countReady()
		state.Working = map[string]time.Duration{}
		var oldest []*queueItem[K]
		for key, item := range q.items {
			isFailing := item.failing != nil
			if item.stage == stageWorking {
				state.Working[fmt.Sprint(key)] = time.Since(item.stageBegan)
			}
			if item.stage == stageWaiting && !isFailing {
				state.Waiting++
			}
			if isFailing {
				state.FailingCount++
				oldest = insertFailing(oldest, item)
			}
		}
		for _, item := range oldest {
			state.Failing = append(state.Failing, item.describeFailure())
		}
	})
	return state
}

// insertFailing inserts an item among those that fail for longest, of which it keeps maxFailingKeys. To sort all of
// them would take long, and the workers would wait meanwhile.
func insertFailing[K comparable](oldest []*queueItem[K], item *queueItem[K]) []*queueItem[K] {
	isAfter := func(i int) bool { return item.failing.since.Before(oldest[i].failing.since) }
	place := sort.Search(len(oldest), isAfter)
	oldest = slices.Insert(oldest, place, item)
	return oldest[:min(len(oldest), maxFailingKeys)]
}

// SetGauges updates the queue's gauges in Metrics. Call it before each scrape.
func (q *Queue[K]) SetGauges() {
	state := q.State()
	total := 0.0
	longest := 0.0
	for _, took := range state.Working {
		total += took.Seconds()
		longest = max(longest, took.Seconds())
	}
	q.options.Metrics.Set(float64(state.Ready), "workqueue_depth", q.options.Name)
	q.options.Metrics.Set(total, "workqueue_unfinished_work_seconds", q.options.Name)
	q.options.Metrics.Set(longest, "workqueue_longest_running_processor_seconds", q.options.Name)
}

// Stuck describes what has made no progress for longer than limit: a worker that still has its key, or ready keys that
// no worker takes. It returns "" if nothing is stuck.
func (q *Queue[K]) Stuck(limit time.Duration) (problem string) {
	q.do(func() {
		problem = q.describeStuckWorker(limit)
		if problem == "" {
			problem = q.describeStuckLine(limit)
		}
	})
	return problem
}

// queueItem is what the queue knows about one key.
type queueItem[K comparable] struct {
	key K

	failing *keyFailures // nil if the last reconcile has succeeded, or if there was none

	// dirty means that the key has work to do that no worker has begun. A key that a worker has becomes dirty when it
	// is added, because the worker may not have seen the change.
	dirty bool

	// isUrgent means that the key is in Queue.urgent, if it is ready.
	isUrgent bool

	stage      queueStage
	slot       uint32    // the number of the key's slot in its keyLine, if it is ready
	stageBegan time.Time // when the key became ready, or when the worker took it

	notBefore time.Time // the end of the key's backoff
	addAt     time.Time // when AddAfter makes the key dirty, or zero
}

// keyFailures are the failures of a key since its last success.
type keyFailures struct {
	count   int
	since   time.Time // when the first of them was
	lastErr error

	unanswered retry.Streak // those for which IsUnanswered holds
	others     retry.Streak
}

// failures returns how many failures there were in a row.
func (item *queueItem[K]) failures() int {
	if item.failing == nil {
		return 0
	}
	return item.failing.count
}

// queueStage is how far a key has come on its way to a worker.
type queueStage uint8

const (
	stageWaiting queueStage = iota // for its backoff, or for AddAfter
	stageReady                     // in one of the queue's lines
	stageWorking                   // a worker has it
)

// describeFailure describes a key that fails.
func (item *queueItem[K]) describeFailure() FailingKey {
	return FailingKey{
		Key:      fmt.Sprint(item.key),
		Failures: item.failing.count,
		Since:    item.failing.since,
		Err:      item.failing.lastErr,
		RetryAt:  item.notBefore,
	}
}

// isPending reports whether the key has work to do, now or within a second.
func (item *queueItem[K]) isPending() bool {
	isDueSoon := !item.addAt.IsZero() && time.Until(item.addAt) < time.Second
	return item.dirty || item.stage != stageWaiting || isDueSoon
}

// run is the owner: the only goroutine that reads and writes the queue's state. Other goroutines call do or update,
// which send the owner a function to run. All methods below those two run on the owner.
func (q *Queue[K]) run(ctx context.Context) {
	defer close(q.ended)
	for {
		next := q.next()
		var out chan K // A nil channel blocks, so no key is handed out while none is ready.
		var key K
		if next != nil {
			out = q.out
			key = next.key
		}
		select {
		case <-ctx.Done():
			return
		case op := <-q.ops:
			op()
		case out <- key:
			q.startWork(next)
		}
	}
}

// do has the owner run op, and waits until op has returned. It does nothing if the queue has ended. The owner itself
// must not call it.
func (q *Queue[K]) do(op func()) {
	done := make(chan struct{})
	opThenDone := func() {
		op()
		close(done)
	}
	select {
	case q.ops <- opThenDone:
		<-done // The owner runs every op that it has received.
	case <-q.ended:
	}
}

// update applies a change to each of the keys, and then moves the key to its stage: see settle. step names the change
// in the log. The owner itself must not call it.
func (q *Queue[K]) update(step string, change func(*queueItem[K]), keys ...K) {
	if len(keys) == 0 {
		return
	}
	q.do(func() {
		for _, key := range keys {
			item := q.items[key]
			if item == nil {
				item = &queueItem[K]{key: key}
				q.items[key] = item
			}
			change(item)
			q.settle(item)
			q.logStep(step, item)
		}
	})
}

// backOff makes a key that failed wait for retryAfter or its backoff.
func (q *Queue[K]) backOff(item *queueItem[K], retryAfter time.Duration, err error) {
	if item.failing == nil {
		item.failing = &keyFailures{since: time.Now()}
	}
	item.failing.count++
	item.failing.lastErr = err
	streak := &item.failing.others
	if q.options.IsUnanswered(err) {
		streak = &item.failing.unanswered
	}
	wait := streak.Fail(retryAfter, q.options.Backoff, q.options.MaxBackoff)
	item.notBefore = time.Now().Add(wait)
	item.dirty = true
	q.settleAt(item.key, item.notBefore)
	q.options.Metrics.Count("workqueue_retries_total", q.options.Name)
}

// settleAt settles the key at a later time. The timer is never stopped, so it may fire when nothing is due; then
// nothing changes. If the key has left items by then, update makes an item for it, and settle deletes that at once.
func (q *Queue[K]) settleAt(key K, at time.Time) {
	noChange := func(*queueItem[K]) {}
	time.AfterFunc(time.Until(at), func() { q.update("wake", noChange, key) })
}

// settle moves a key to the stage where it belongs now, moves a ready key to the urgent line if it has become urgent,
// or forgets a key that is idle. It runs after every update of a key, and at the end of each wait.
//
// A key that a worker has stays in stageWorking until Done, so no other worker can get it.
func (q *Queue[K]) settle(item *queueItem[K]) {
	now := time.Now()
	isDue := !item.addAt.IsZero() && !now.Before(item.addAt)
	if isDue {
		item.addAt = time.Time{}
		item.dirty = true
	}
	isBackoffOver := !now.Before(item.notBefore)
	isIdle := !item.dirty && item.addAt.IsZero()
	switch {
	case item.stage == stageWaiting && item.dirty && isBackoffOver:
		q.makeReady(item, now)
	case item.stage == stageWaiting && isIdle:
		delete(q.items, item.key)
	case item.stage == stageReady && !item.isUrgent && q.options.IsUrgent(item.key):
		q.makeUrgent(item)
	}
}

// makeReady puts a key at the end of its line.
func (q *Queue[K]) makeReady(item *queueItem[K], now time.Time) {
	item.stage = stageReady
	item.stageBegan = now
	item.isUrgent = q.options.IsUrgent(item.key)
	q.lineOf(item).add(item)
	q.options.Metrics.Count("workqueue_adds_total", q.options.Name)
	q.emit(item.key, trace.Step{Point: trace.Added, Count: q.countReady()})
}

// makeUrgent moves a key that is ready from the ordinary line to the urgent one.
func (q *Queue[K]) makeUrgent(item *queueItem[K]) {
	q.ordinary.remove(item)
	item.isUrgent = true
	q.urgent.add(item)
}

// startWork records that a worker has just received a key.
func (q *Queue[K]) startWork(item *queueItem[K]) {
	q.options.Metrics.Observe(item.stageBegan, "workqueue_queue_duration_seconds", q.options.Name)
	q.lineOf(item).remove(item)
	if item.isUrgent {
		q.urgentInARow++
	} else {
		q.urgentInARow = 0
	}
	q.lastGetAt = time.Now()
	item.stage = stageWorking
	item.stageBegan = q.lastGetAt
	item.dirty = false
	q.logStep("get", item)
}

// maxUrgentInARow is how many urgent keys in a row are handed out before an ordinary one has its turn. Urgent keys that
// are handed out while no ordinary one is ready count, too.
const maxUrgentInARow = 3

// next returns the key to hand out next, or nil if none is ready. Urgent keys go first, but an ordinary key has its
// turn after maxUrgentInARow of them. Otherwise a steady stream of urgent keys would keep the ordinary ones waiting
// forever.
func (q *Queue[K]) next() *queueItem[K] {
	urgent := q.urgent.first()
	ordinary := q.ordinary.first()
	isOrdinaryTurn := ordinary != nil && q.urgentInARow >= maxUrgentInARow
	if urgent == nil || isOrdinaryTurn {
		return ordinary
	}
	return urgent
}

// lineOf returns the line that a ready key belongs to.
func (q *Queue[K]) lineOf(item *queueItem[K]) *keyLine[K] {
	if item.isUrgent {
		return &q.urgent
	}
	return &q.ordinary
}

func (q *Queue[K]) countReady() int { return q.urgent.len() + q.ordinary.len() }

func (q *Queue[K]) describeStuckWorker(limit time.Duration) string {
	for key, item := range q.items {
		took := time.Since(item.stageBegan)
		if item.stage == stageWorking && took > limit {
			return fmt.Sprintf("a worker has been processing %v for %v", key, took.Round(time.Second))
		}
	}
	return ""
}

func (q *Queue[K]) describeStuckLine(limit time.Duration) string {
	var longestWait time.Duration
	for _, first := range []*queueItem[K]{q.urgent.first(), q.ordinary.first()} {
		if first != nil {
			longestWait = max(longestWait, time.Since(first.stageBegan))
		}
	}
	// A long wait is normal in a line that moves. So the line is stuck only if the last Get was long ago, too.
	stuckFor := min(longestWait, time.Since(q.lastGetAt))
	if stuckFor <= limit {
		return ""
	}
	return fmt.Sprintf("no worker has taken a key for %v (%d ready)", stuckFor.Round(time.Second), q.countReady())
}

// emit emits a step of a key for the trace. It adds what all steps of keys have in common.
func (q *Queue[K]) emit(key K, step trace.Step) {
	q.options.Trace.EmitBuilt(1, func() trace.Step {
		step.Controller = q.options.Name
		step.Key = fmt.Sprint(key)
		return step
	})
}

// logStep logs a key's state after a step.
func (q *Queue[K]) logStep(step string, item *queueItem[K]) {
	if !q.options.Log.Enabled(context.Background(), slog.LevelDebug) {
		return // This saves building the arguments.
	}
	q.options.Log.Debug("queue: "+step,
		"controller", q.options.Name,
		"key", item.key,
		"ready", q.countReady(),
		"keys", len(q.items),
		"failures", item.failures(),
		"backoff", max(0, time.Until(item.notBefore)),
		"add_in", max(0, time.Until(item.addAt)))
}

// keyLine holds keys that are ready, oldest first. A key that is removed from the middle leaves a gap.
//
// Slots are numbered in order, and the numbers wrap around after the largest uint32. The difference of two numbers
// stays right, because it wraps around as well.
type keyLine[K comparable] struct {
	slots []*queueItem[K] // nil for a gap; the first slot is never a gap
	start uint32          // the number of the first slot
	gaps  int             // how many slots are gaps
}

func (l *keyLine[K]) len() int { return len(l.slots) - l.gaps }

// first returns the key that has waited longest, or nil if there is none.
func (l *keyLine[K]) first() *queueItem[K] {
	if len(l.slots) == 0 {
		return nil
	}
	return l.slots[0]
}

func (l *keyLine[K]) add(item *queueItem[K]) {
	item.slot = l.start + uint32(len(l.slots))
	l.slots = append(l.slots, item)
}

// remove takes a key out of the line. After that it cuts off leading gaps, so that the first slot is never a gap.
func (l *keyLine[K]) remove(item *queueItem[K]) {
	l.slots[item.slot-l.start] = nil
	l.gaps++
	for len(l.slots) > 0 && l.slots[0] == nil {
		l.slots = l.slots[1:]
		l.start++
		l.gaps--
	}
	if l.gaps > len(l.slots)/2 {
		l.closeGaps()
	}
}

// closeGaps moves the keys together. It runs only when more than half of the slots are gaps, so its cost per removed
// key is constant on average.
func (l *keyLine[K]) closeGaps() {
	old := l.slots
	l.slots = make([]*queueItem[K], 0, len(old)-l.gaps)
	l.gaps = 0
	for _, item := range old {
		if item != nil {
			l.add(item)
		}
	}
}
