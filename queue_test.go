package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestStuckReportsAKeyThatAWorkerDoesNotGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a", "b")
		wantReady(t, q, "a")
		pass(time.Minute)
		q.Done("a", Result{}, nil)
		wantReady(t, q, "b")
		pass(time.Minute)
		if got := q.Stuck(time.Minute); got != "" {
			t.Errorf("after a minute: %s", got)
		}
		pass(time.Second)
		if got, want := q.Stuck(time.Minute), "a worker has been processing b for 1m1s"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		q.Done("b", Result{}, nil)
		if got := q.Stuck(time.Minute); got != "" {
			t.Errorf("after it was given back: %s", got)
		}
	})
}

func TestStuckReportsThatNoWorkerTakesWhatIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		pass(time.Hour)
		q.Add("a", "b", "c")
		pass(time.Minute)
		if got := q.Stuck(time.Minute); got != "" {
			t.Errorf("after a minute: %s", got)
		}
		pass(time.Second)
		if got, want := q.Stuck(time.Minute), "3 keys are ready, but no worker has taken one for 1m1s"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		wantReady(t, q, "a") // one is taken: the others may wait for their turn
		q.Done("a", Result{}, nil)
		if got := q.Stuck(time.Minute); got != "" {
			t.Errorf("after one was taken: %s", got)
		}
	})
}

// urgentVowels is a queue where keys that begin with a vowel are urgent, and those in more.
func urgentVowels(t *testing.T, more map[string]bool) *Queue[string] {
	options := quietQueue[string](5*time.Millisecond, 30*time.Second)
	options.IsUrgent = func(key string) bool { return more[key] || strings.Contains("aeiou", key[:1]) }
	return NewQueue(t.Context(), options)
}

func TestUrgentKeysGoFirstAndInOrderAmongThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := urgentVowels(t, nil)
		q.Add("x", "y", "a", "z", "e", "a")
		for _, want := range []string{"a", "e", "x", "y", "z", ""} {
			wantReady(t, q, want)
		}
	})
}

func TestKeyThatBecomesUrgentMovesForwardWhenItIsAddedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		urgent := map[string]bool{}
		q := urgentVowels(t, urgent)
		q.Add("v", "w", "x", "y", "z")
		for _, key := range []string{"x", "v", "z"} { // from the middle of the line, its head and its end
			urgent[key] = true
			q.Add(key)
		}
		q.Add("x") // it is there already
		wantNumber(t, "keys ready", q.State().Ready, 5)
		wantNumber(t, "keys left", len(q.Left()), 5)
		for _, want := range []string{"x", "v", "z", "w", "y", ""} {
			wantReady(t, q, want)
		}
		delete(urgent, "v")
		q.Add("v") // a worker has it: it comes again after Done, and is urgent no more
		q.Add("w")
		q.Done("w", Result{}, nil)
		q.Done("v", Result{}, nil)
		wantReady(t, q, "w")
		wantReady(t, q, "v")
	})
}

func TestUrgentKeyIsHeldBackAfterAFailureAsAnyOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := urgentVowels(t, nil)
		q.Add("a")
		wantReady(t, q, "a")
		q.Done("a", Result{}, errors.New("no"))
		q.Add("x")
		wantReady(t, q, "x")
		pass(time.Second)
		wantReady(t, q, "a")
	})
}

func TestQueueWhoseWorkersHangIsStuckWhicheverLineItsKeysAreIn(t *testing.T) {
	for _, key := range []string{"urgent", "later"} {
		synctest.Test(t, func(t *testing.T) {
			q := urgentVowels(t, nil)
			q.Add(key)
			pass(time.Minute)
			if what := q.Stuck(59 * time.Second); !strings.HasPrefix(what, "1 keys are ready") {
				t.Errorf("%s: %q", key, what)
			}
		})
	}
}

// quietQueue makes the options of a queue that nobody hears of.
func quietQueue[K comparable](backoff, most time.Duration) QueueOptions[K] {
	log := quietLog()
	return QueueOptions[K]{Name: "test", Backoff: backoff, MaxBackoff: most, Log: log.Logger, Metrics: log.Registry}
}

func testQueue(t *testing.T) *Queue[string] {
	ctx, cancel := context.WithCancel(t.Context())
	q := NewQueue(ctx, quietQueue[string](5*time.Millisecond, 30*time.Second))
	t.Cleanup(cancel)
	return q
}

// ready is the next key if there is one right now, else "".
func ready(q *Queue[string]) string {
	synctest.Wait()
	select {
	case k := <-q.out:
		return k
	default:
		return ""
	}
}

func wantReady(t *testing.T, q *Queue[string], want string) {
	t.Helper()
	if got := ready(q); got != want {
		t.Errorf("ready: %q, want %q", got, want)
	}
}

func TestQueueHoldsAKeyOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a", "b", "a")
		q.Add("a")
		for _, want := range []string{"a", "b", ""} {
			wantReady(t, q, want)
		}
	})
}

func TestQueueHandsOutAKeyAgainThatWasAddedWhileAWorkerHadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a")
		wantReady(t, q, "a")
		q.Add("a")
		q.Add("a")
		wantReady(t, q, "") // not to a second worker
		q.Done("a", Result{}, nil)
		wantReady(t, q, "a")
		q.Done("a", Result{}, nil)
		wantReady(t, q, "")
	})
}

func TestQueueGivesNoKeyToTwoWorkersAndLosesNoChange(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := NewQueue(ctx, quietQueue[int](time.Microsecond, time.Millisecond))
	const keys, workers, adders, rounds = 20, 8, 4, 2000
	var hands [keys]atomic.Int32        // who has the key
	var wanted, done [keys]atomic.Int64 // the newest change of a key, and the newest that a worker saw
	var workersDone, addersDone sync.WaitGroup
	seen := make(chan struct{}, 1)
	for range workers {
		workersDone.Go(func() {
			for {
				k, ok := q.Get()
				if !ok {
					return
				}
				if hands[k].Add(1) != 1 {
					t.Errorf("key %d is with two workers", k)
				}
				done[k].Store(wanted[k].Load())
				var err error
				if rand.IntN(10) == 0 {
					err = errors.New("once more")
				}
				hands[k].Add(-1)
				q.Done(k, Result{RequeueAfter: time.Duration(rand.IntN(20)) * time.Microsecond}, err)
				select {
				case seen <- struct{}{}:
				default:
				}
			}
		})
	}
	for range adders {
		addersDone.Go(func() {
			for range rounds {
				k := rand.IntN(keys)
				wanted[k].Add(1)
				if rand.IntN(4) == 0 {
					q.AddAfter(k, time.Duration(rand.IntN(50))*time.Microsecond)
				} else {
					q.Add(k)
				}
			}
		})
	}
	addersDone.Wait()
	late := time.After(20 * time.Second)
	for k := 0; k < keys; {
		if done[k].Load() == wanted[k].Load() {
			k++
			continue
		}
		select {
		case <-seen:
		case <-late:
			t.Fatalf("key %d: change %d was never seen, %d was", k, wanted[k].Load(), done[k].Load())
		}
	}
	cancel()
	workersDone.Wait()
}

func TestQueueAddAfterKeepsTheEarliestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.AddAfter("a", 20*time.Second)
		q.AddAfter("a", 10*time.Second)
		q.AddAfter("a", 30*time.Second)
		q.AddAfter("b", 15*time.Second)
		pass(9 * time.Second)
		wantReady(t, q, "")
		pass(time.Second)
		wantReady(t, q, "a")
		q.Done("a", Result{RequeueAfter: time.Second}, nil)
		pass(time.Second)
		wantReady(t, q, "a")
		q.Done("a", Result{}, nil)
		pass(time.Hour)
		wantReady(t, q, "b")
		wantReady(t, q, "")
	})
}

func TestQueueRetriesAFailedKeyByABackoffOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("bad", "good")
		wantReady(t, q, "bad")
		for n := 1; n <= 20; n++ {
			if got := q.Done("bad", Result{}, errors.New("no")); got != n {
				t.Fatalf("%d failures, want %d", got, n)
			}
			least := min(5*time.Millisecond<<(n-1), 30*time.Second)
			q.Add("bad") // neither a tick nor a change cuts the backoff short
			pass(least - time.Nanosecond)
			if n == 1 {
				wantReady(t, q, "good")
				q.Done("good", Result{}, nil)
			}
			wantReady(t, q, "")
			pass(least + time.Nanosecond)
			wantReady(t, q, "bad")
		}
		q.Done("bad", Result{}, nil)
		pass(time.Hour)
		wantReady(t, q, "") // what was added meanwhile was seen by the retry
		q.Add("bad")
		wantReady(t, q, "bad")
		wantNumber(t, "failures after a success", q.Done("bad", Result{}, errors.New("no")), 1)
	})
}

func TestQueueTriesAFailedKeyNoSoonerThanItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a")
		wantReady(t, q, "a")
		q.Done("a", Result{RetryAfter: 9 * time.Second}, errors.New("too many requests"))
		pass(9*time.Second - 1)
		wantReady(t, q, "")
		pass(1)
		wantReady(t, q, "a")
	})
}

func TestQueueForgetsAKeyThatSaysNothingAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a", "b")
		for range 2 {
			q.Done(ready(q), Result{}, errors.New("no"))
		}
		pass(time.Second)
		for range 2 {
			q.Done(ready(q), Result{RequeueAfter: time.Second}, nil)
		}
		wantNumber(t, "keys in memory", len(q.items), 2)
		pass(time.Second)
		for range 2 {
			q.Done(ready(q), Result{}, nil)
		}
		wantNumber(t, "keys in memory in the end", len(q.items), 0)
	})
}

func TestQueueEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := NewQueue(ctx, quietQueue[string](time.Millisecond, time.Second))
		q.Add("a", "b")
		k, ok := q.Get()
		if !ok || k != "a" {
			t.Fatalf("got %q, %v", k, ok)
		}
		cancel()
		synctest.Wait()
		if k, ok := q.Get(); ok {
			t.Errorf("got %q after the end", k)
		}
		q.Add("c") // neither blocks
		q.Done("a", Result{}, errors.New("late"))
	})
}

// A million keys: what each costs.
func BenchmarkMillionKeys(b *testing.B) {
	const n = 1000000
	perKey := func(b *testing.B, fill func() any) {
		for b.Loop() {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			held := fill()
			runtime.GC()
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(held)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/key")
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
		b.ReportAllocs()
	}
	b.Run("queue", func(b *testing.B) {
		perKey(b, func() any {
			q := NewQueue(b.Context(), quietQueue[int](time.Millisecond, time.Second))
			for i := range n {
				q.Add(i)
			}
			return q
		})
	})
	b.Run("store", func(b *testing.B) {
		perKey(b, func() any {
			s := NewStore(func(p *Pod) string { return p.NodeName })
			for i := range n {
				s.Apply("ADDED", makePod(fmt.Sprintf("web-5d4f8c7b9-%06d", i), "5a2b7c1e-93d4-4f6a-8b1c-000000000000", "1234567", "node"))
			}
			return s
		})
	})
}

func BenchmarkQueue(b *testing.B) {
	for _, workers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("%d-workers", workers), func(b *testing.B) {
			q := NewQueue(b.Context(), quietQueue[int](time.Millisecond, time.Second))
			var handled sync.WaitGroup
			for range workers {
				go func() {
					for {
						k, ok := q.Get()
						if !ok {
							return
						}
						q.Done(k, Result{}, nil)
						handled.Done()
					}
				}()
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				handled.Add(1)
				q.Add(i)
				i++
			}
			handled.Wait()
		})
	}
}
