package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/view/metrics"
	"podcount/internal/view/trace"
	"podcount/lab/testkit"
)

// errAway is the error of a server that does not answer.
var errAway = errors.New("the server is away")

// quietQueue returns the options of a queue without a log.
func quietQueue[K comparable](backoff, maxBackoff time.Duration) QueueOptions[K] {
	return QueueOptions[K]{
		Name:         "test",
		Backoff:      backoff,
		MaxBackoff:   maxBackoff,
		IsUnanswered: func(err error) bool { return errors.Is(err, errAway) },
		Log:          slog.New(slog.DiscardHandler),
		Metrics:      metrics.NewRegistry(),
	}
}

// testQueue starts a queue that ends with the test. Its backoff is from 5 ms to 30 s.
func testQueue(t *testing.T) *Queue[string] {
	return NewQueue(t.Context(), quietQueue[string](5*time.Millisecond, 30*time.Second))
}

// vowelsFirst starts a queue in which keys that begin with a vowel are urgent, and so are the keys in alsoUrgent.
func vowelsFirst(t *testing.T, alsoUrgent map[string]bool) *Queue[string] {
	options := quietQueue[string](5*time.Millisecond, 30*time.Second)
	options.IsUrgent = func(key string) bool { return alsoUrgent[key] || strings.Contains("aeiou", key[:1]) }
	return NewQueue(t.Context(), options)
}

// getReady gets the next key as a worker does, but returns "" if none is ready now.
func getReady(q *Queue[string]) string {
	synctest.Wait()
	select {
	case key := <-q.out:
		return key
	default:
		return ""
	}
}

// wantReady gets as many keys as are wanted, and checks each. "" means that no key is ready.
func wantReady(t *testing.T, q *Queue[string], want ...string) {
	t.Helper()
	for _, key := range want {
		if got := getReady(q); got != key {
			t.Errorf("the key that is ready is %q, want %q", got, key)
		}
	}
}

// done gives back keys without an error.
func done(q *Queue[string], keys ...string) {
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
		testkit.WantNumber(t, "failures", q.State().FailingCount, 2)
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

// stressedKey is what the adders and the workers of a stress test record about one key.
type stressedKey struct {
	holders atomic.Int32 // how many workers have the key
	latest  atomic.Int64 // the number of the key's latest change
	seen    atomic.Int64 // the number of the last change that a worker has seen
}

// addOne makes a change to a random key, and adds it to the queue, now or a little later.
func addOne(q *Queue[int], keys []stressedKey) {
	key := rand.IntN(len(keys))
	keys[key].latest.Add(1)
	if rand.IntN(4) == 0 {
		q.AddAfter(key, time.Duration(rand.IntN(50))*time.Microsecond)
	} else {
		q.Add(key)
	}
}

// workUntilTheEnd processes keys until the queue has ended. One key in ten fails. tried gets a value after each key, if
// it has room for one.
func workUntilTheEnd(t *testing.T, q *Queue[int], keys []stressedKey, tried chan<- struct{}) {
	for {
		key, ok := q.Get()
		if !ok {
			return
		}
		if keys[key].holders.Add(1) != 1 {
			t.Errorf("two workers have key %d", key)
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
	keys := make([]stressedKey, 20)
	tried := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	q := NewQueue(ctx, quietQueue[int](time.Microsecond, time.Millisecond))
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
	for i := range keys {
		key := &keys[i]
		for key.seen.Load() != key.latest.Load() {
			select {
			case <-tried:
			case <-timeout:
				t.Fatalf("key %d: a worker saw change %d, but not %d", i, key.seen.Load(), key.latest.Load())
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
		testkit.WantNumber(t, "keys that will be added again", q.State().Keys, 2)
		testkit.Pass(time.Second)
		for range 2 {
			done(q, getReady(q))
		}
		testkit.WantNumber(t, "keys in the end", q.State().Keys, 0)
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
		want := FailingKey{Key: "a", Failures: 2, Since: start, Err: last, RetryAt: time.Now().Add(time.Minute)}
		testkit.WantEqual(t, "the failing keys", q.State().Failing, []FailingKey{want})
		testkit.Pass(time.Minute)
		done(q, getReady(q))
		testkit.WantNumber(t, "failing keys after a success", len(q.State().Failing), 0)
	})
}

func TestKeysThatFailForLongestAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		var want []string
		for i := range maxFailingKeys + 5 {
			key := fmt.Sprint("key ", i)
			q.Add(key)
			wantReady(t, q, key)
			q.Done(key, Result{RetryAfter: time.Hour}, errors.New("no"))
			testkit.Pass(time.Second)
			if i < maxFailingKeys {
				want = append(want, key)
			}
		}
		var got []string
		for _, failing := range q.State().Failing {
			got = append(got, failing.Key)
		}
		testkit.WantEqual(t, "the failing keys", got, want)
		testkit.WantNumber(t, "failing keys", q.State().FailingCount, maxFailingKeys+5)
	})
}

func TestDepthIsTheNumberOfKeysThatWaitForAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := quietQueue[string](time.Minute, time.Minute)
		q := NewQueue(t.Context(), options)
		q.Add("failing", "working", "ready", "ready too")
		wantReady(t, q, "failing", "working")
		q.Done("failing", Result{}, errors.New("no"))
		q.AddAfter("later", time.Hour)
		q.SetGauges()
		testkit.WantText(t, options.Metrics.Text(), `workqueue_depth{name="test"} 2`+"\n")
	})
}

func TestMetricsTellHowLongWorkersHaveHadTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := quietQueue[string](time.Minute, time.Minute)
		q := NewQueue(t.Context(), options)
		q.Add("a", "b", "c")
		wantReady(t, q, "a")
		testkit.Pass(time.Minute)
		wantReady(t, q, "b")
		testkit.Pass(time.Minute)
		q.SetGauges()
		testkit.WantText(t, options.Metrics.Text(),
			`workqueue_queue_duration_seconds_count{name="test"} 2`+"\n",
			`workqueue_unfinished_work_seconds{name="test"} 180`+"\n",
			`workqueue_longest_running_processor_seconds{name="test"} 120`+"\n")
	})
}

func TestQueueEmitsTheStepsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := quietQueue[string](time.Second, time.Second)
		options.Trace = new(trace.Trace)
		var steps []string
		options.Trace.Listen(func(s trace.Step) {
			steps = append(steps, fmt.Sprintf("%s %s %s %s", s.Point, s.Controller, s.Key, s.Text))
		})
		q := NewQueue(t.Context(), options)
		q.Add("a")
		for _, err := range []error{errors.New("refused"), nil} {
			key, _ := q.Get()
			q.Done(key, Result{}, err)
		}
		synctest.Wait()
		want := []string{
			"added test a ",
			"taken test a ",
			"retried test a refused",
			"added test a ",
			"taken test a ",
			"done test a ",
		}
		testkit.WantEqual(t, "the steps", steps, want)
	})
}

func TestQueueEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := NewQueue(ctx, quietQueue[string](time.Millisecond, time.Second))
		q.Add("a", "b")
		if key, ok := q.Get(); !ok || key != "a" {
			t.Fatalf("Get returned %q, %v, want a", key, ok)
		}
		cancel()
		synctest.Wait()
		if key, ok := q.Get(); ok {
			t.Errorf("Get returned %q after the end", key)
		}
		// Neither call may block.
		q.Add("c")
		q.Done("a", Result{}, errors.New("too late"))
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

func TestFailedKeyWaitsForRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a")
		wantReady(t, q, "a")
		q.Done("a", Result{RetryAfter: 9 * time.Second}, errors.New("too many requests"))
		testkit.Pass(9*time.Second - 1)
		wantReady(t, q, "")
		testkit.Pass(1)
		wantReady(t, q, "a")
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
			return time.Until(q.State().Failing[0].RetryAt)
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

func TestCountPendingSkipsKeysThatFailedOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("bad", "good")
		q.AddAfter("soon", time.Second/2)
		q.AddAfter("late", time.Hour)
		wantReady(t, q, "bad", "good")
		q.Done("bad", Result{}, errors.New("failed"))
		testkit.WantNumber(t, "keys left", len(q.Pending()), 3)
		testkit.WantNumber(t, "keys that have failed less than twice", q.CountPending(2), 3)
		testkit.WantNumber(t, "keys that have not failed", q.CountPending(1), 2)
		done(q, "good")
		testkit.WantNumber(t, "keys that have not failed after a success", q.CountPending(1), 1)
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
		q.Add("x") // It is in the urgent line already.
		testkit.WantNumber(t, "keys ready", q.State().Ready, 5)
		testkit.WantNumber(t, "keys left", len(q.Pending()), 5)
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
func wantStuck(t *testing.T, when string, q *Queue[string], want string) {
	t.Helper()
	testkit.WantEqual(t, when, q.Stuck(time.Minute), want)
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

func TestStuckLooksAtBothLines(t *testing.T) {
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
		measurePerKey(b, keys, func() any {
			q := NewQueue(b.Context(), quietQueue[int](time.Millisecond, time.Second))
			for i := range keys {
				q.Add(i)
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
				s.Apply("ADDED", makePod(name, uid, "1234567", "node"))
			}
			return s
		})
	})
}

// measurePerKey reports the memory and the time for each key of what fill returns.
func measurePerKey(b *testing.B, keys float64, fill func() any) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		filled := fill()
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(filled)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "B/key")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
	b.ReportAllocs()
}

// BenchmarkQueue measures how long a key takes from Add to Done, with several numbers of workers.
func BenchmarkQueue(b *testing.B) {
	for _, workers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("%d-workers", workers), func(b *testing.B) {
			q := NewQueue(b.Context(), quietQueue[int](time.Millisecond, time.Second))
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
			key := 0
			b.ReportAllocs()
			for b.Loop() {
				unfinished.Add(1)
				q.Add(key)
				key++
			}
			unfinished.Wait()
		})
	}
}
