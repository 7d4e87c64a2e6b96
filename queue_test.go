package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/view/metrics"
	"podcount/internal/view/observe"
	"podcount/internal/view/trace"
	"podcount/lab/testkit"
)

// errAway is the error of a server that does not answer.
var errAway = errors.New("the server is away")

// quietQueue returns the options of a queue without a log.
func quietQueue(backoff, maxBackoff time.Duration) QueueOptions {
	return QueueOptions{
		Name:         "test",
		Backoff:      backoff,
		BackoffLimit: maxBackoff,
		IsUnanswered: func(err error) bool { return errors.Is(err, errAway) },
		Sinks:        observe.Sinks{Log: slog.New(slog.DiscardHandler), Metrics: metrics.NewRegistry()},
	}
}

// namedQueue is a queue of keys without a namespace. It takes and returns their names.
type namedQueue struct{ *Queue }

func (q namedQueue) Add(names ...string) {
	var keys []Key
	for _, name := range names {
		keys = append(keys, Key{Name: name})
	}
	q.Queue.Add(keys...)
}

func (q namedQueue) AddAfter(name string, d time.Duration) { q.Queue.AddAfter(Key{Name: name}, d) }

func (q namedQueue) Get() (name string, ok bool) {
	key, ok := q.Queue.Get()
	return key.Name, ok
}

func (q namedQueue) Done(name string, result Result, err error) {
	q.Queue.Done(Key{Name: name}, result, err)
}

// newQueue starts a queue that ends with ctx.
func newQueue(ctx context.Context, o QueueOptions) namedQueue { return namedQueue{NewQueue(ctx, o)} }

// testQueue starts a queue that ends with the test. Its backoff is from 5 ms to 30 s.
func testQueue(t *testing.T) namedQueue {
	return newQueue(t.Context(), quietQueue(5*time.Millisecond, 30*time.Second))
}

// vowelsFirst starts a queue in which keys that begin with a vowel are urgent, and so are the keys in alsoUrgent.
func vowelsFirst(t *testing.T, alsoUrgent map[string]bool) namedQueue {
	q := testQueue(t)
	q.Prefer(func(key Key) bool { return alsoUrgent[key.Name] || strings.Contains("aeiou", key.Name[:1]) })
	return q
}

// stateOf returns what people see of a queue.
func stateOf(q namedQueue) observe.QueueState { return observe.QueueStateOf(q.All()) }

// getReady gets the next key as a worker does, but returns "" if none is ready now.
func getReady(q namedQueue) string {
	key, _ := q.take()
	return key.Name
}

// wantReady gets as many keys as are wanted, and checks each. "" means that no key is ready.
func wantReady(t *testing.T, q namedQueue, want ...string) {
	t.Helper()
	for _, key := range want {
		if got := getReady(q); got != key {
			t.Errorf("the key that is ready is %q, want %q", got, key)
		}
	}
}

// done gives back keys without an error.
func done(q namedQueue, keys ...string) {
	for _, key := range keys {
		q.Done(key, Result{}, nil)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// Keys that are added and handed out

func TestQueueHandsOutAKeyOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a", "b", "a")
		q.Add("a")
		wantReady(t, q, "a", "b", "")
	})
}

func TestRetryNowEndsTheBackoffOfTheKeysThatAreMeant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		for _, row := range []struct {
			key string
			err error
		}{{"away", errAway}, {"refused", errors.New("refused")}, {"added later", nil}} {
			q.Add(row.key)
			wantReady(t, q, row.key)
			q.Done(row.key, Result{RetryAfter: time.Hour}, row.err)
		}
		q.AddAfter("added later", time.Hour)
		q.RetryNow()
		wantReady(t, q, "away", "")
		q.RetryNow() // A worker has the key.
		wantReady(t, q, "")
		q.Done("away", Result{RetryAfter: time.Hour}, errAway)
		wantReady(t, q, "")
		testkit.WantNumber(t, "failures", stateOf(q).FailingCount, 2)
	})
}

func TestKeyAddedDuringWorkComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a")
		wantReady(t, q, "a")
		q.Add("a")
		q.Add("a")
		wantReady(t, q, "") // A second worker must not get it.
		done(q, "a")
		wantReady(t, q, "a")
		done(q, "a")
		wantReady(t, q, "")
	})
}

// startWorkers starts workers that take one key each, and returns a channel of what they get: "" at the queue's end.
func startWorkers(q namedQueue, n int) (keys <-chan string) {
	got := make(chan string, n)
	for range n {
		go func() {
			key, _ := q.Get()
			got <- key
		}()
	}
	synctest.Wait()
	return got
}

func TestEachReadyKeyWakesAWorkerThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := vowelsFirst(t, nil)
		q.Add("v", "w")
		testkit.WantNumber(t, "workers that come later and get a key", len(startWorkers(q, 2)), 2)
		keys := startWorkers(q, 5)
		q.Add("x", "a", "y")
		q.Add("z")
		synctest.Wait()
		testkit.WantNumber(t, "workers that got a key", len(keys), 4)
		q.Add("e")
		got := map[string]bool{}
		for range 5 {
			got[<-keys] = true
		}
		testkit.WantEqual(t, "the keys", got, map[string]bool{"x": true, "a": true, "y": true, "z": true, "e": true})
	})
}

func TestKeyWakesAWorkerHoweverItBecomesReady(t *testing.T) {
	failed := errors.New("failed")
	ways := map[string]func(q namedQueue){
		"Add":                    func(q namedQueue) { done(q, "a"); q.Add("a") },
		"AddAfter":               func(q namedQueue) { done(q, "a"); q.AddAfter("a", time.Second) },
		"RequeueAfter":           func(q namedQueue) { q.Done("a", Result{RequeueAfter: time.Second}, nil) },
		"Done, if it was added":  func(q namedQueue) { q.Add("a"); done(q, "a") },
		"the end of its backoff": func(q namedQueue) { q.Done("a", Result{}, failed) },
		"RetryNow": func(q namedQueue) {
			q.Done("a", Result{RetryAfter: time.Hour}, errAway)
			q.RetryNow()
		},
	}
	for name, makeReady := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := testQueue(t)
				q.Add("a")
				wantReady(t, q, "a")
				keys := startWorkers(q, 1)
				makeReady(q)
				testkit.Pass(time.Second)
				select {
				case key := <-keys:
					testkit.WantEqual(t, "the key", key, "a")
				default:
					t.Error("the worker still waits")
				}
			})
		})
	}
}

// stressedKey is what the adders and the workers of a stress test record about one key.
type stressedKey struct {
	holders atomic.Int32 // how many workers have the key
	latest  atomic.Int64 // the number of the key's latest change
	seen    atomic.Int64 // the number of the last change that a worker has seen
}

// numbered returns a key that has a number as its name.
func numbered(i int) Key { return Key{Name: strconv.Itoa(i)} }

// addOne makes a change to a random key, and adds it to the queue, now or a little later.
func addOne(q *Queue, keys map[Key]*stressedKey) {
	key := numbered(rand.IntN(len(keys)))
	keys[key].latest.Add(1)
	if rand.IntN(4) == 0 {
		q.AddAfter(key, time.Duration(rand.IntN(50))*time.Microsecond)
	} else {
		q.Add(key)
	}
}

// workUntilTheEnd processes keys until the queue has ended. One key in ten fails. tried gets a value after each key, if
// it has room for one.
func workUntilTheEnd(t *testing.T, q *Queue, keys map[Key]*stressedKey, tried chan<- struct{}) {
	for {
		key, ok := q.Get()
		if !ok {
			return
		}
		if keys[key].holders.Add(1) != 1 {
			t.Errorf("two workers have key %v", key)
		}
		keys[key].seen.Store(keys[key].latest.Load())
		keys[key].holders.Add(-1)
		var err error
		if rand.IntN(10) == 0 {
			err = errors.New("try again")
		}
		q.Done(key, Result{RequeueAfter: time.Duration(rand.IntN(20)) * time.Microsecond}, err)
		select {
		case tried <- struct{}{}:
		default:
		}
	}
}

// Many goroutines add keys while others work on them, in real time. Each key must be with one worker at a time, and a
// worker must see each key's latest change.
func TestWorkersShareNoKeyAndLoseNoChange(t *testing.T) {
	const workers, adders, rounds = 8, 4, 2000
	keys := map[Key]*stressedKey{}
	for i := range 20 {
		keys[numbered(i)] = &stressedKey{}
	}
	tried := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	q := NewQueue(ctx, quietQueue(time.Microsecond, time.Millisecond))
	var allWorkers, allAdders sync.WaitGroup
	for range workers {
		allWorkers.Go(func() { workUntilTheEnd(t, q, keys, tried) })
	}
	for range adders {
		allAdders.Go(func() {
			for range rounds {
				addOne(q, keys)
			}
		})
	}
	allAdders.Wait()
	timeout := time.After(20 * time.Second)
	for key, stressed := range keys {
		for stressed.seen.Load() != stressed.latest.Load() {
			select {
			case <-tried:
			case <-timeout:
				seen, latest := stressed.seen.Load(), stressed.latest.Load()
				t.Fatalf("key %v: a worker saw change %d, but not %d", key, seen, latest)
			}
		}
	}
	cancel()
	allWorkers.Wait()
}

func TestAddAfterKeepsTheEarliestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.AddAfter("a", 20*time.Second)
		q.AddAfter("a", 10*time.Second)
		q.AddAfter("a", 30*time.Second)
		q.AddAfter("b", 15*time.Second)
		testkit.Pass(9 * time.Second)
		wantReady(t, q, "")
		testkit.Pass(time.Second)
		wantReady(t, q, "a")
		q.Done("a", Result{RequeueAfter: time.Second}, nil)
		testkit.Pass(time.Second)
		wantReady(t, q, "a")
		done(q, "a")
		testkit.Pass(time.Hour)
		wantReady(t, q, "b", "")
	})
}

// A row tells what happens to the key "a", which a worker has had for a second, and when it is handed out again.
func TestDelaysOfAKeyAreKeptApart(t *testing.T) {
	const second = time.Second
	failed := errors.New("failed")
	for _, row := range []struct {
		name  string
		story func(q namedQueue)
		want  []time.Duration // since the story
	}{
		{"AddAfter comes due while a worker has the key", func(q namedQueue) {
			q.AddAfter("a", second)
			testkit.Pass(5 * second)
			done(q, "a")
		}, []time.Duration{5 * second}},
		{"AddAfter comes due while the key is ready", func(q namedQueue) {
			q.AddAfter("a", second)
			q.Add("a")
			done(q, "a")
			testkit.Pass(5 * second)
		}, []time.Duration{5 * second}},
		{"AddAfter comes due during the backoff", func(q namedQueue) {
			q.Done("a", Result{RetryAfter: 10 * second}, failed)
			q.AddAfter("a", second)
		}, []time.Duration{10 * second}},
		{"AddAfter comes due after the backoff", func(q namedQueue) {
			q.Done("a", Result{RetryAfter: second}, failed)
			q.AddAfter("a", 10*second)
		}, []time.Duration{second, 10 * second}},
		{"AddAfter is still to come when the key succeeds", func(q namedQueue) {
			q.AddAfter("a", 10*second)
			q.Add("a")
			done(q, "a")
		}, []time.Duration{0, 10 * second}},
		{"RequeueAfter is later than AddAfter", func(q namedQueue) {
			q.AddAfter("a", second)
			q.Done("a", Result{RequeueAfter: 10 * second}, nil)
		}, []time.Duration{second}},
		{"RequeueAfter of a key that failed", func(q namedQueue) {
			q.Done("a", Result{RetryAfter: second, RequeueAfter: 10 * second}, failed)
		}, []time.Duration{second}},
		{"RetryAfter of a key that succeeded", func(q namedQueue) {
			q.Done("a", Result{RetryAfter: second}, nil)
		}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := testQueue(t)
				q.Add("a")
				wantReady(t, q, "a")
				testkit.Pass(second)
				start := time.Now()
				row.story(q)
				var got []time.Duration
				for time.Since(start) < time.Minute {
					if key := getReady(q); key != "" {
						got = append(got, time.Since(start))
						done(q, key)
					}
					testkit.Pass(second)
				}
				testkit.WantEqual(t, "when the key is handed out", got, row.want)
			})
		})
	}
}

func TestQueueForgetsAKeyThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a", "b")
		for range 2 {
			q.Done(getReady(q), Result{}, errors.New("failed"))
		}
		testkit.Pass(time.Second)
		for range 2 {
			q.Done(getReady(q), Result{RequeueAfter: time.Second}, nil)
		}
		testkit.WantNumber(t, "keys that will be added again", len(q.items), 2)
		testkit.Pass(time.Second)
		for range 2 {
			done(q, getReady(q))
		}
		testkit.WantNumber(t, "keys in the end", len(q.items), 0)
	})
}

func TestStateTellsWhatEachKeyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := vowelsFirst(t, nil)
		q.AddAfter("later", time.Hour)
		q.Add("failing", "working", "ready", "urgent")
		wantReady(t, q, "urgent", "failing")
		q.Done("failing", Result{RetryAfter: time.Hour}, errors.New("no"))
		wantReady(t, q, "working")
		testkit.Pass(time.Minute)
		state := stateOf(q)
		state.Failing = nil
		testkit.WantEqual(t, "the state", state, observe.QueueState{
			Ready:        1,
			ReadySince:   time.Now().Add(-time.Minute),
			Waiting:      1,
			Working:      map[string]time.Duration{"urgent": time.Minute, "working": time.Minute},
			FailingCount: 1,
		})
		stateOf(q).SetGauges(q.options.Sinks.Metrics, "test")
		testkit.WantText(t, q.options.Sinks.Metrics.Text(), `workqueue_depth{name="test"} 1`+"\n")
	})
}

func TestQueueTellsWhichKeysFailSinceWhenAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		start := time.Now()
		q.Add("a", "b")
		q.Done(getReady(q), Result{}, errors.New("first"))
		testkit.Pass(time.Second)
		done(q, getReady(q)) // b
		last := errors.New("second")
		q.Done(getReady(q), Result{RetryAfter: time.Minute}, last)
		want := observe.FailingKey{Key: "a", Failures: 2, Since: start, Err: last, RetryAt: time.Now().Add(time.Minute)}
		testkit.WantEqual(t, "the failing keys", stateOf(q).Failing, []observe.FailingKey{want})
		testkit.Pass(time.Minute)
		done(q, getReady(q))
		testkit.WantNumber(t, "failing keys after a success", len(stateOf(q).Failing), 0)
	})
}

func TestKeysThatFailForLongestAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		var want []string
		for i := range 20 + 5 {
			key := fmt.Sprint("key ", i)
			q.Add(key)
			wantReady(t, q, key)
			q.Done(key, Result{RetryAfter: time.Hour}, errors.New("no"))
			testkit.Pass(time.Second)
			if i < 20 {
				want = append(want, key)
			}
		}
		var got []string
		for _, failing := range stateOf(q).Failing {
			got = append(got, failing.Key)
		}
		testkit.WantEqual(t, "the failing keys", got, want)
		testkit.WantNumber(t, "failing keys", stateOf(q).FailingCount, 20+5)
	})
}

func TestMetricsTellHowLongWorkersHaveHadTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := quietQueue(time.Minute, time.Minute)
		q := newQueue(t.Context(), options)
		q.Add("a", "b", "c")
		wantReady(t, q, "a")
		testkit.Pass(time.Minute)
		wantReady(t, q, "b")
		testkit.Pass(time.Minute)
		stateOf(q).SetGauges(q.options.Sinks.Metrics, "test")
		testkit.WantText(t, options.Sinks.Metrics.Text(),
			`workqueue_queue_duration_seconds_count{name="test"} 2`+"\n",
			`workqueue_unfinished_work_seconds{name="test"} 180`+"\n",
			`workqueue_longest_running_processor_seconds{name="test"} 120`+"\n")
	})
}

// reportedQueue starts a queue, and returns what it reports while a key fails and succeeds a second later.
func reportedQueue(t *testing.T) (steps []trace.Step, log, metrics string) {
	options := quietQueue(time.Minute, time.Minute)
	var lines bytes.Buffer
	options.Sinks.Log = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	options.Sinks.Trace = new(trace.Trace)
	options.Sinks.Trace.Listen(func(s trace.Step) { steps = append(steps, s) })
	q := newQueue(t.Context(), options)
	q.Add("a", "b")
	for _, err := range []error{errors.New("refused"), nil} {
		key, _ := q.Get()
		testkit.Pass(10 * time.Second)
		q.Done(key, Result{RetryAfter: 2 * time.Second, RequeueAfter: 3 * time.Second}, err)
	}
	testkit.Pass(3 * time.Second)
	stateOf(q).SetGauges(q.options.Sinks.Metrics, "test")
	return steps, lines.String(), options.Sinks.Metrics.Text()
}

func TestQueueEmitsTheStepsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _, _ := reportedQueue(t)
		var steps []string
		for _, s := range all {
			steps = append(steps, fmt.Sprintf("%s %s %s count=%d took=%v wait=%v %s",
				s.Point, s.Controller, s.Key, s.Count, s.Took, s.Wait, s.Text))
		}
		want := []string{
			"added test a count=1 took=0s wait=0s ",
			"added test b count=2 took=0s wait=0s ",
			"taken test a count=0 took=0s wait=0s ",
			"retried test a count=1 took=10s wait=2s refused",
			"taken test b count=0 took=0s wait=0s ",
			"added test a count=1 took=0s wait=0s ",
			"done test b count=0 took=10s wait=3s ",
			"added test b count=2 took=0s wait=0s ",
		}
		testkit.WantEqual(t, "the steps", steps, want)
	})
}

func TestQueueCountsWhatItDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, metrics := reportedQueue(t)
		testkit.WantText(t, metrics,
			`workqueue_adds_total{name="test"} 4`+"\n",
			`workqueue_retries_total{name="test"} 1`+"\n",
			`workqueue_depth{name="test"} 2`+"\n",
			`workqueue_queue_duration_seconds_sum{name="test"} 10`+"\n",
			`workqueue_queue_duration_seconds_count{name="test"} 2`+"\n",
			`workqueue_work_duration_seconds_sum{name="test"} 20`+"\n",
			`workqueue_work_duration_seconds_count{name="test"} 2`+"\n")
	})
}

func TestQueueLogsTheStepsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, log, _ := reportedQueue(t)
		var lines []string
		for line := range strings.Lines(log) {
			_, step, _ := strings.Cut(strings.TrimSpace(line), "level=DEBUG msg=")
			lines = append(lines, step)
		}
		want := []string{
			`"queue: add" controller=test key=a ready=1 keys=1 failures=0 backoff=0s add_in=0s`,
			`"queue: add" controller=test key=b ready=2 keys=2 failures=0 backoff=0s add_in=0s`,
			`"queue: get" controller=test key=a ready=1 keys=2 failures=0 backoff=0s add_in=0s`,
			`"queue: done" controller=test key=a ready=1 keys=2 failures=1 backoff=2s add_in=0s`,
			`"queue: get" controller=test key=b ready=0 keys=2 failures=0 backoff=0s add_in=0s`,
			`"queue: wake" controller=test key=a ready=1 keys=2 failures=1 backoff=0s add_in=0s`,
			`"queue: done" controller=test key=b ready=1 keys=2 failures=0 backoff=0s add_in=3s`,
			`"queue: wake" controller=test key=b ready=2 keys=2 failures=0 backoff=0s add_in=0s`,
		}
		testkit.WantEqual(t, "the lines", lines, want)
	})
}

func TestQueueEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newQueue(ctx, quietQueue(time.Millisecond, time.Second))
		q.Add("a", "b")
		if key, ok := q.Get(); !ok || key != "a" {
			t.Fatalf("Get returned %q, %v, want a", key, ok)
		}
		cancel()
		synctest.Wait()
		if key, ok := q.Get(); ok {
			t.Errorf("Get returned %q after the end", key)
		}
		// None of these calls may block.
		q.Add("c")
		q.AddAfter("d", time.Second)
		q.Done("a", Result{}, errors.New("too late"))
		q.RetryNow()
		testkit.Pass(time.Hour)
		testkit.WantNumber(t, "keys after the end", len(q.items)+stateOf(q).Ready, 0)
		wantStuck(t, "after the end", q, "")
	})
}

func TestWorkersThatWaitReturnAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newQueue(ctx, quietQueue(time.Millisecond, time.Second))
		keys := startWorkers(q, 3)
		cancel()
		synctest.Wait()
		testkit.WantNumber(t, "workers that have returned", len(keys), 3)
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// Keys that failed

func TestFailedKeyWaitsForItsOwnBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("bad", "good")
		wantReady(t, q, "bad")
		for n := 1; n <= 20; n++ {
			q.Done("bad", Result{}, errors.New("failed"))
			q.Add("bad") // This must not cut the backoff short.
			shortest := min(5*time.Millisecond<<(n-1), 30*time.Second)
			testkit.Pass(shortest - time.Nanosecond)
			if n == 1 {
				wantReady(t, q, "good")
				done(q, "good")
			}
			wantReady(t, q, "")
			testkit.Pass(shortest + time.Nanosecond) // The jitter is no longer than the shortest backoff.
			wantReady(t, q, "bad")
		}
		q.Add("bad")
		done(q, "bad")
		wantReady(t, q, "bad") // It was added during the try that has succeeded.
		q.Done("bad", Result{}, errors.New("failed"))
		testkit.Pass(10 * time.Millisecond) // The success has made the backoff short again.
		wantReady(t, q, "bad")
		done(q, "bad")
		testkit.Pass(time.Hour)
		wantReady(t, q, "") // The last try has seen what was added before it.
	})
}

// The failures of a key while the server is away do not lengthen its waits when the server is back, nor does a server
// that is away again begin with short waits.
func TestUnansweredFailuresOfAKeyHaveABackoffOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		fail := func(retryAfter time.Duration, err error) (wait time.Duration) {
			q.Add("a")
			testkit.Pass(time.Minute) // the longest backoff
			wantReady(t, q, "a")
			q.Done("a", Result{RetryAfter: retryAfter}, err)
			return time.Until(stateOf(q).Failing[0].RetryAt)
		}
		errFailed := errors.New("the server has an error")
		for range 12 {
			fail(0, errAway)
		}
		testkit.WantBetween(t, "the first wait after an answer", fail(0, errFailed), 5*time.Millisecond, 10*time.Millisecond)
		testkit.WantBetween(t, "the wait that it asks for", fail(time.Second, errFailed), time.Second, time.Second)
		testkit.WantBetween(t, "the second wait", fail(0, errFailed), 10*time.Millisecond, 20*time.Millisecond)
		testkit.WantBetween(t, "the wait when it is away", fail(0, errAway), 20480*time.Millisecond, 41*time.Second)
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// Keys that are urgent

func TestUrgentKeysGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := vowelsFirst(t, nil)
		q.Add("x", "y", "a", "z", "e", "a")
		wantReady(t, q, "a", "e", "x", "y", "z", "")
	})
}

func TestOrdinaryKeyHasItsTurnAmongUrgentOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := vowelsFirst(t, nil)
		q.Add("x", "y", "a", "e", "i", "o", "u")
		wantReady(t, q, "a", "e", "i", "x", "o", "u", "y", "")
	})
}

func TestOrdinaryKeyHasItsTurnAfterUrgentOnesThatCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := vowelsFirst(t, nil)
		q.Add("a", "e", "i", "o")
		wantReady(t, q, "a", "e", "i", "o")
		q.Add("x", "y", "u")
		wantReady(t, q, "x", "u", "y", "")
	})
}

// Random keys of a line become urgent while others are handed out. Both the urgent and the ordinary keys keep their
// order.
func TestKeysKeepTheirOrderWhicheverBecomeUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		isUrgent := map[string]bool{}
		q := vowelsFirst(t, isUrgent)
		var ordinary, urgent []string
		for i := range 200 {
			ordinary = append(ordinary, fmt.Sprintf("key %d", i))
		}
		q.Add(ordinary...)
		urgentInARow := 0
		for len(ordinary)+len(urgent) > 0 {
			for range rand.IntN(4) {
				if len(ordinary) == 0 {
					break
				}
				i := rand.IntN(len(ordinary))
				key := ordinary[i]
				isUrgent[key] = true
				q.Add(key)
				urgent = append(urgent, key)
				ordinary = slices.Delete(ordinary, i, i+1)
			}
			line := &urgent
			urgentInARow++
			isOrdinaryTurn := len(ordinary) > 0 && urgentInARow > maxUrgentInARow
			if len(urgent) == 0 || isOrdinaryTurn {
				line = &ordinary
				urgentInARow = 0
			}
			wantReady(t, q, (*line)[0])
			*line = (*line)[1:]
			testkit.WantNumber(t, "keys ready", stateOf(q).Ready, len(ordinary)+len(urgent))
		}
	})
}

func TestReadyKeyThatBecomesUrgentMovesForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		urgent := map[string]bool{}
		q := vowelsFirst(t, urgent)
		q.Add("v", "w", "x", "y", "z")
		// These keys are in the middle of the line, at its start, and at its end.
		for _, key := range []string{"x", "v", "z"} {
			urgent[key] = true
			q.Add(key)
		}
		q.Add("x") // It stands among the urgent keys already.
		testkit.WantNumber(t, "keys ready", stateOf(q).Ready, 5)
		wantReady(t, q, "x", "v", "z", "w", "y", "")

		delete(urgent, "v")
		q.Add("v") // A worker has it, so it becomes ready after Done, and is not urgent then.
		q.Add("w")
		done(q, "w", "v")
		wantReady(t, q, "w", "v")
	})
}

func TestUrgentKeyThatFailedWaitsForItsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := vowelsFirst(t, nil)
		q.Add("a")
		wantReady(t, q, "a")
		q.Done("a", Result{}, errors.New("failed"))
		q.Add("x")
		wantReady(t, q, "x")
		testkit.Pass(time.Second)
		wantReady(t, q, "a")
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// Workers that hang

// wantStuck checks what the queue reports as stuck for more than a minute.
func wantStuck(t *testing.T, when string, q namedQueue, want string) {
	t.Helper()
	testkit.WantEqual(t, when, stateOf(q).Stuck(q.LastTakenAt(), time.Minute), want)
}

func TestStuckReportsAKeyThatAWorkerKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a", "b")
		wantReady(t, q, "a")
		testkit.Pass(time.Minute)
		done(q, "a")
		wantReady(t, q, "b")
		testkit.Pass(time.Minute)
		wantStuck(t, "after a minute", q, "")
		testkit.Pass(time.Second)
		wantStuck(t, "after a minute and a second", q, "a worker has been processing b for 1m1s")
		done(q, "b")
		wantStuck(t, "after Done", q, "")
	})
}

func TestStuckReportsKeysThatNoWorkerTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		testkit.Pass(time.Hour)
		q.Add("a", "b", "c")
		testkit.Pass(time.Minute)
		wantStuck(t, "after a minute", q, "")
		testkit.Pass(time.Second)
		wantStuck(t, "after a minute and a second", q, "no worker has taken a key for 1m1s (3 ready)")
		wantReady(t, q, "a") // The line moves, so the other keys may wait for their turn.
		done(q, "a")
		wantStuck(t, "after a worker took a key", q, "")
	})
}

func TestStuckLooksAtUrgentAndOrdinaryKeys(t *testing.T) {
	for _, key := range []string{"urgent", "later"} {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := vowelsFirst(t, nil)
				q.Add(key)
				testkit.Pass(time.Minute + time.Second)
				wantStuck(t, "after a minute and a second", q, "no worker has taken a key for 1m1s (1 ready)")
			})
		})
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// Benchmarks

// BenchmarkMillionKeys measures how much memory and time each of a million keys takes.
func BenchmarkMillionKeys(b *testing.B) {
	const keys = 1000000
	b.Run("queue", func(b *testing.B) {
		all := make([]Key, keys) // The names are not counted: a queue shares them with the store.
		for i := range all {
			all[i] = numbered(i)
		}
		measurePerKey(b, keys, func() any {
			q := NewQueue(b.Context(), quietQueue(time.Millisecond, time.Second))
			for _, key := range all {
				q.Add(key)
			}
			return q
		})
	})
	b.Run("store", func(b *testing.B) {
		const uid = "5a2b7c1e-93d4-4f6a-8b1c-000000000000"
		measurePerKey(b, keys, func() any {
			s := NewStore[*Pod]()
			for i := range keys {
				name := fmt.Sprintf("web-5d4f8c7b9-%06d", i)
				s.apply("ADDED", makePod(name, uid, "1234567", "node"))
			}
			return s
		})
	})
}

// measurePerKey reports the memory and the time for each key of what fill returns.
func measurePerKey(b *testing.B, keys float64, fill func() any) {
	for b.Loop() {
		b.ReportMetric(testkit.HeapBytes(fill)/keys, "B/key")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
	b.ReportAllocs()
}

// BenchmarkQueue measures how long a key takes from Add to Done, with several numbers of workers.
func BenchmarkQueue(b *testing.B) {
	for _, workers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("%d-workers", workers), func(b *testing.B) {
			q := NewQueue(b.Context(), quietQueue(time.Millisecond, time.Second))
			var unfinished sync.WaitGroup
			for range workers {
				go func() {
					for {
						key, ok := q.Get()
						if !ok {
							return
						}
						q.Done(key, Result{}, nil)
						unfinished.Done()
					}
				}()
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				unfinished.Add(1)
				q.Add(numbered(i))
				i++
			}
			unfinished.Wait()
		})
	}
}
