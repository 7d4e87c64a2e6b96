package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kubeconfig"
	"podcount/internal/labels"
	"podcount/internal/options"
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
		if got, want := q.Stuck(time.Minute), "a worker has had b for 1m1s"; got != want {
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
		if got, want := q.Stuck(time.Minute), "3 keys are ready, and no worker has taken one for 1m1s"; got != want {
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
		state, left, _ := q.State(1)
		wantText(t, fmt.Sprint(state), "ready:5")
		wantNumber(t, "keys left", left, 5)
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

// keptEvents is an EventSink that fails as it is told, and says what it was asked to do.
type keptEvents struct {
	answers []error  // of the next calls; nil once they are used up
	asked   []string // "post" and "amend"
}

func (k *keptEvents) Post(context.Context, string, map[string]any) error { return k.answer("post") }

func (k *keptEvents) Amend(context.Context, string, string, map[string]any) error {
	return k.answer("amend")
}

func (k *keptEvents) answer(asked string) (err error) {
	k.asked = append(k.asked, asked)
	if len(k.answers) > 0 {
		err = k.answers[0]
		k.answers = k.answers[1:]
	}
	return err
}

func recorderTo(sink EventSink, log *Log) *Recorder {
	return NewRecorder(RecorderOptions{Sink: sink, Instance: "test", Log: log.Logger, Metrics: log.Registry})
}

func TestRecorderDoesWithAnEventWhatTheAnswerSays(t *testing.T) {
	answer := func(answer EventAnswer) *EventError {
		return &EventError{Err: errors.New("no"), Answer: answer, Pause: time.Minute}
	}
	patience := answer(EventRefused)
	patience.RetryAfter = 20 * time.Second
	tooMuchPatience := answer(EventRefused)
	tooMuchPatience.RetryAfter = time.Hour
	for name, c := range map[string]struct {
		answers []error
		asked   string // for an event that happens twice
		dropped int64
		lines   int
	}{
		"all is well":               {nil, "post amend", 0, 0},
		"it is there already":       {[]error{answer(EventExists)}, "post amend", 0, 0},
		"it has gone meanwhile":     {[]error{nil, answer(EventGone)}, "post amend post", 0, 0},
		"refused":                   {[]error{answer(EventRefused)}, "post post", 1, 1},
		"refused, within a minute":  {[]error{answer(EventRefused), answer(EventRefused)}, "post post", 2, 1},
		"refused, as often":         {[]error{answer(EventUnwanted)}, "post post", 1, 0},
		"asked for patience":        {[]error{patience}, "post post amend", 0, 0},
		"asked for patience, twice": {[]error{patience, patience}, "post post post", 1, 1},
		"asked for an hour":         {[]error{tooMuchPatience}, "post post", 1, 1},
		"not reached":               {[]error{io.ErrUnexpectedEOF}, "post post amend", 0, 2}, // a beginning and an end
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lines := &logBuffer{}
				sink := &keptEvents{answers: c.answers}
				r := recorderTo(sink, newLog(lines, &options.Options{}))
				for range 2 {
					r.post(t.Context(), t.Context(), event{about: somePod(1), reason: "Twice"})
				}
				if got := strings.Join(sink.asked, " "); got != c.asked {
					t.Errorf("asked to %s, want %s", got, c.asked)
				}
				if got := r.dropped.Load(); got != c.dropped {
					t.Errorf("%d events were dropped, want %d", got, c.dropped)
				}
				wantNumber(t, "lines in the log", strings.Count(lines.String(), "\n"), c.lines)
			})
		})
	}
}

func TestRecorderForgetsTheObjectThatIsOldestAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &keptEvents{}
		r := recorderTo(sink, quietLog())
		posts := func(n int, why string) (isPosted bool) {
			before := len(sink.asked)
			r.post(t.Context(), t.Context(), event{about: somePod(n), reason: why})
			return len(sink.asked) > before
		}
		for i := range eventBurst {
			posts(0, fmt.Sprint("reason ", i))
			posts(1, fmt.Sprint("reason ", i))
		}
		for i := 2; i < eventObjects; i++ {
			posts(i, "once")
		}
		for posts(0, "one more") { // its bucket has got a token back meanwhile
		}
		posts(eventObjects, "once") // the 4,097th takes the place of object 1, as object 0 was used since
		if posts(0, "one more") {
			t.Error("one more object gives another its burst again")
		}
		if !posts(1, "one more") {
			t.Error("more than 4,096 objects are remembered")
		}
		posts(eventObjects-1, "once")
		if last := sink.asked[len(sink.asked)-1]; last != "amend" {
			t.Errorf("an event of late that happened again: %s, not amend", last)
		}
	})
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

func TestBucketGivesABurstThenARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(10, 3)
		start := time.Now()
		for range 8 {
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start).Round(time.Millisecond); d != 500*time.Millisecond {
			t.Errorf("3 + 5 tokens took %v", d)
		}
		if b.Allow() {
			t.Error("a token too many")
		}
		pass(time.Hour)
		n := 0
		for b.Allow() {
			n++
		}
		wantNumber(t, "tokens after an hour", n, 3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if b.Wait(ctx) == nil {
			t.Error("did not end with its context")
		}
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	known, most := map[int]int{}, 0
	for i := range 100 {
		if v, again := remember(known, 10, i, -i), remember(known, 10, i, 7); v != -i || again != -i || known[i] != -i {
			t.Errorf("under %d there is %d, and it gave %d and %d", i, known[i], v, again)
		}
		most = max(most, len(known))
	}
	wantNumber(t, "values kept at most", most, 10)
	synctest.Test(t, func(t *testing.T) {
		r := recorderTo(&keptEvents{}, quietLog())
		for i := range 2*eventObjects + 10 {
			r.post(t.Context(), t.Context(), event{about: somePod(i)})
		}
		wantNumber(t, "objects, and events, that the recorder remembers", r.objects.len()*1000000+r.sent.len(), eventObjects*1000000+eventObjects)
	})
}

// recorderOn runs a recorder against f and returns it with its end.
func recorderOn(t *testing.T, f *fakekube.Server) (r *Recorder, end func()) {
	n := f.ServeIn(t)
	base, _ := url.Parse("http://127.0.0.1:1")
	client := newClient(&options.Options{}, &kubeconfig.Config{Server: base, Credential: noCredential}, n.Dial, quietLog())
	r = recorderTo(clientEvents{client}, quietLog())
	ctx, cancel := context.WithCancel(t.Context())
	stop, stopNow := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		r.Run(ctx, stop)
		close(done)
	}()
	end = sync.OnceFunc(func() {
		stopNow()
		<-done
		cancel()
		client.Close()
	})
	t.Cleanup(end)
	return r, end
}

func somePod(n int) ObjectReference {
	return ObjectReference{"v1", "Pod", "default", fmt.Sprintf("web-%d", n), fmt.Sprintf("uid-%d", n)}
}

func TestSameEventAgainRaisesTheCount(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		r, _ := recorderOn(t, f)
		for range 3 {
			r.Event(somePod(1), "Normal", "Again", "the same")
			pass(time.Minute)
		}
		r.Event(somePod(1), "Normal", "Again", "another")
		pass(time.Second)
		want := []string{"Pod/web-1 in default: another x1", "Pod/web-1 in default: the same x3"}
		if got := eventsOf(f, "Again"); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		for _, e := range f.All("events") {
			first, _ := time.Parse(time.RFC3339, fakekube.TextIn(e, "firstTimestamp"))
			last, _ := time.Parse(time.RFC3339, fakekube.TextIn(e, "lastTimestamp"))
			if gap := last.Sub(first); fakekube.TextIn(e, "message") == "the same" && gap != 2*time.Minute {
				t.Errorf("%v between the first and the last", gap)
			}
		}
		for _, e := range f.All("events") { // they live an hour
			f.Remove("events", fakekube.KeyOf(e))
		}
		r.Event(somePod(1), "Normal", "Again", "the same")
		pass(time.Second)
		if got, want := eventsOf(f, "Again"), []string{"Pod/web-1 in default: the same x1"}; !slices.Equal(got, want) {
			t.Errorf("after a 404: %q, want %q", got, want)
		}
	})
}

func TestEventsAreLimitedPerObjectAndOverAll(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		r, _ := recorderOn(t, f)
		for i := range 40 {
			r.Event(somePod(1), "Normal", "Many", strconv.Itoa(i))
		}
		synctest.Wait()
		wantNumber(t, "events about one object", len(f.All("events")), eventBurst)
		wantNumber(t, "dropped", int(r.dropped.Load()), 40-eventBurst)
		pass(301 * time.Second)
		r.Event(somePod(1), "Normal", "Many", "one more after 300 s")
		r.Event(somePod(1), "Normal", "Many", "but not two")
		synctest.Wait()
		wantNumber(t, "events about one object", len(f.All("events")), eventBurst+1)
		for i := range 100 {
			r.Event(somePod(100+i), "Normal", "Wide", "x")
		}
		synctest.Wait()
		wantNumber(t, "events at once", len(eventsOf(f, "Wide")), 49) // 50, one of which was used just now
		pass(2*time.Second + time.Millisecond)
		wantNumber(t, "events two seconds later", len(eventsOf(f, "Wide")), 69)
	})
}

func TestFullEventQueueDropsAndCountsAndNobodyWaits(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Script(t, "create: stall")
		r, _ := recorderOn(t, f)
		r.Event(somePod(0), "Normal", "Stuck", "x")
		synctest.Wait()
		start := time.Now()
		for i := range eventQueue + 300 {
			r.Event(somePod(1+i), "Normal", "Many", "x")
		}
		if time.Since(start) != 0 {
			t.Errorf("it took %v", time.Since(start))
		}
		wantNumber(t, "dropped", int(r.dropped.Load()), 300)
		pass(10 * time.Minute)
	})
}

func TestEventThatWasRefusedIsDroppedAndOneThatDidNotArriveIsSentAgain(t *testing.T) {
	posts := func(s fakekube.Request) bool { return s.Method == "POST" }
	for name, c := range map[string]struct {
		fault fakekube.Fault
		tries int
		sent  int
	}{
		"the namespace is being deleted": {fakekube.Fault{Do: fakekube.Reply{Code: 403, Body: `{"code":403,"reason":"Forbidden","message":"because it is being terminated"}`}}, 1, 0},
		"too many":                       {fakekube.Fault{Do: fakekube.Reply{Code: 429, Header: map[string]string{"Retry-After": "1"}, Body: "slow down"}}, 2, 1},
		"too many, for an hour":          {fakekube.Fault{Do: fakekube.Reply{Code: 429, Header: map[string]string{"Retry-After": "3600"}, Body: "slow down"}}, 1, 0},
		"broken before it arrived":       {fakekube.Fault{Do: fakekube.DropRequest{}}, 2, 1},
		"broken behind it":               {fakekube.Fault{Do: fakekube.DropAnswer{}}, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				c.fault.On = fakekube.Requests{Verb: "create"}
				f.Inject(t, c.fault)
				r, _ := recorderOn(t, f)
				r.Event(somePod(1), "Normal", "Once", "x")
				pass(time.Minute)
				wantNumber(t, "tries", len(f.Requests(posts)), c.tries)
				wantNumber(t, "events", len(eventsOf(f, "Once")), c.sent)
				wantNumber(t, "dropped", int(r.dropped.Load()), 1-c.sent)
			})
		})
	}
}

func TestEventsKeepNamesOfTheirOwnWhenTheClockIsSetBack(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		r, end := recorderOn(t, f)
		r.stamp = time.Now().Add(time.Hour).UnixNano() // of the last event, an hour before that was an hour ago
		for i := range 20 {
			r.Event(somePod(1), "Normal", "Back", strconv.Itoa(i))
		}
		end()
		wantNumber(t, "events", len(eventsOf(f, "Back")), 20)
	})
}

func TestEventNamesFit(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		r, end := recorderOn(t, f)
		long := strings.Repeat("a", 235) + "-." + strings.Repeat("b", 16)
		for range 3 { // in one instant
			r.Event(ObjectReference{"v1", "Pod", "default", long, "u"}, "Normal", "Long", strconv.FormatUint(rand.Uint64(), 10))
		}
		end()
		wantNumber(t, "events", len(f.All("events")), 3)
		for _, e := range f.All("events") {
			if name := fakekube.TextIn(fakekube.MetaOf(e), "name"); len(name) > 253 || labels.CheckDNSName(name) != nil {
				t.Errorf("an event named %s", name)
			}
		}
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
