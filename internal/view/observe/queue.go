package observe

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sort"
	"time"

	"podcount/internal/api/object"
	"podcount/internal/view/metrics"
	"podcount/internal/view/trace"
)

// Queue tells what happens to the keys of one controller's workqueue.
type Queue struct {
	Sinks
	Controller string // its name
}

// Added tells that a key has become ready. ready is the number of ready keys, with this one.
func (q Queue) Added(key object.Key, ready int) {
	q.Metrics.Count("workqueue_adds_total", q.Controller)
	q.emit(key, trace.Step{Point: trace.Added, Count: ready})
}

// Taken tells that a worker has taken a key, which has been ready since then.
func (q Queue) Taken(key object.Key, readySince time.Time) {
	q.Metrics.Observe(readySince, "workqueue_queue_duration_seconds", q.Controller)
	q.emit(key, trace.Step{Point: trace.Taken})
}

// Done tells that a worker has given back a key, which it took then, without an error. wait is the time after which the
// key is added again, or 0.
func (q Queue) Done(key object.Key, takenAt time.Time, wait time.Duration) {
	q.Metrics.Observe(takenAt, "workqueue_work_duration_seconds", q.Controller)
	q.emit(key, trace.Step{Point: trace.Done, Took: time.Since(takenAt), Wait: wait})
}

// Retried tells that a worker has given back a key, which it took then, with an error. wait is the key's backoff, and
// failures is how often the key has failed in a row.
func (q Queue) Retried(key object.Key, takenAt time.Time, wait time.Duration, failures int, err error) {
	q.Metrics.Observe(takenAt, "workqueue_work_duration_seconds", q.Controller)
	q.Metrics.Count("workqueue_retries_total", q.Controller)
	took := time.Since(takenAt)
	q.emit(key, trace.Step{Point: trace.Retried, Took: took, Wait: wait, Text: err.Error(), Count: failures})
}

// emit emits a step about a key.
func (q Queue) emit(key object.Key, step trace.Step) {
	q.Trace.EmitBuilt(func() trace.Step {
		step.Controller, step.Key = q.Controller, key.String()
		return step
	})
}

// Changed tells how a key stands after a change, such as "add". ready and keys are how many keys are ready, and how
// many the queue knows.
func (q Queue) Changed(change string, now KeyState, ready, keys int) {
	if !q.Log.Enabled(context.Background(), slog.LevelDebug) {
		return // This saves building the arguments.
	}
	q.Log.Debug("queue: "+change,
		"controller", q.Controller,
		"key", now.Key,
		"ready", ready,
		"keys", keys,
		"failures", now.Failures,
		"backoff", max(0, time.Until(now.RetryAt)),
		"add_in", max(0, time.Until(now.AddAt)))
}

// KeyState is how a key of a queue stands. A key that is neither ready nor with a worker waits for its backoff, or for
// AddAfter.
type KeyState struct {
	Key        object.Key
	IsReady    bool
	IsWorking  bool      // a worker has it
	StageBegan time.Time // when it became ready, or when the worker took it
	IsDirty    bool      // it has work to do that no worker has begun
	AddAt      time.Time // when AddAfter adds it, or zero

	Failures     int       // in a row
	FailingSince time.Time // when the first of them was; this and the fields below are zero if there was none
	LastErr      error
	RetryAt      time.Time // the end of its backoff
}

// QueueState is the state of a queue, for people.
type QueueState struct {
	Ready      int       // the number of keys that wait for a worker
	ReadySince time.Time // when the first of them became ready, or zero

	Working map[string]time.Duration // how long a worker has had each key
	Waiting int                      // the number of keys that wait for their time, although they have not failed

	FailingCount int          // the number of keys whose last reconcile has failed
	Failing      []FailingKey // those that fail for longest, at most maxFailingKeys
}

// FailingKey is a key whose last reconcile has failed.
type FailingKey struct {
	Key      string
	Failures int       // in a row
	Since    time.Time // when the first of them was
	Err      error     // of the last one
	RetryAt  time.Time // the end of the key's backoff
}

// maxFailingKeys is how many failing keys a QueueState describes.
const maxFailingKeys = 20

// QueueStateOf adds up how the keys of a queue stand.
func QueueStateOf(keys iter.Seq[KeyState]) QueueState {
	state := QueueState{Working: map[string]time.Duration{}}
	for key := range keys {
		switch {
		case key.IsReady:
			state.Ready++
			if state.ReadySince.IsZero() || key.StageBegan.Before(state.ReadySince) {
				state.ReadySince = key.StageBegan
			}
		case key.IsWorking:
			state.Working[key.Key.String()] = time.Since(key.StageBegan)
		case key.Failures == 0:
			state.Waiting++
		}
		if key.Failures > 0 {
			state.FailingCount++
			state.Failing = insertFailing(state.Failing, FailingKey{
				Key:      key.Key.String(),
				Failures: key.Failures,
				Since:    key.FailingSince,
				Err:      key.LastErr,
				RetryAt:  key.RetryAt,
			})
		}
	}
	return state
}

// insertFailing inserts a key among those that fail for longest, of which it keeps maxFailingKeys. To sort all of them
// would take long, and the workers would wait meanwhile.
func insertFailing(oldest []FailingKey, key FailingKey) []FailingKey {
	isAfter := func(i int) bool { return key.Since.Before(oldest[i].Since) }
	place := sort.Search(len(oldest), isAfter)
	oldest = slices.Insert(oldest, place, key)
	return oldest[:min(len(oldest), maxFailingKeys)]
}

// Stuck describes what has made no progress for longer than limit: a worker that still has its key, or ready keys that
// no worker takes. lastTakenAt is when a worker last took a key. Stuck returns "" if nothing is stuck.
func (s QueueState) Stuck(lastTakenAt time.Time, limit time.Duration) string {
	for key, took := range s.Working {
		if took > limit {
			return fmt.Sprintf("a worker has been processing %s for %v", key, took.Round(time.Second))
		}
	}
	if s.Ready == 0 {
		return ""
	}
	// A long wait is normal in a line that moves. So the line is stuck only if the last key was taken long ago, too.
	stuckFor := min(time.Since(s.ReadySince), time.Since(lastTakenAt))
	if stuckFor <= limit {
		return ""
	}
	return fmt.Sprintf("no worker has taken a key for %v (%d ready)", stuckFor.Round(time.Second), s.Ready)
}

// SetGauges tells how many keys of a controller are ready, and for how long each worker has had its key.
func (s QueueState) SetGauges(m *metrics.Registry, controller string) {
	var total, longest time.Duration
	for _, took := range s.Working {
		total += took
		longest = max(longest, took)
	}
	m.Set(float64(s.Ready), "workqueue_depth", controller)
	m.Set(total.Seconds(), "workqueue_unfinished_work_seconds", controller)
	m.Set(longest.Seconds(), "workqueue_longest_running_processor_seconds", controller)
}
