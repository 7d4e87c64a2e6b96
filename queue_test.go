package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
)

// writerFunc is a Writer that is a function.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestWhatIsPrintedAndNotReadIsSaidInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		isBroken := true
		printed := newPrintOutput(writerFunc(func(b []byte) (int, error) {
			if isBroken {
				return 0, errors.New("broken pipe")
			}
			return len(b), nil
		}), &options{}, newLog(log, &options{}))
		fmt.Fprintln(printed, "one")
		synctest.Wait()
		isBroken = false
		fmt.Fprintln(printed, "two")
		printed.Close(t.Context(), time.Minute, flushTimeout)
		wantText(t, log.String(), `msg="printed lines were dropped, as stdout was not read, or failed" lines=1`)
	})
}

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

// At 20 writes a second the labels of 1,000 nodes take 50 s.
func TestTotalThatChangesDoesNotWaitBehindTheNodesOwnLabels(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 1000 {
			f.AddNode("n" + strconv.Itoa(i))
		}
		f.AddNode("cp", controlPlane)
		f.AddPods(3)
		startPodcount(t, f, "-node-label", "example.com/n")
		pass(15 * time.Second) // the total's own node has rested since its first label
		before := len(writesAt(f))
		for total := 4; total < 7; total++ {
			f.AddPod("default", "more-"+strconv.Itoa(total), "n999")
			pass(1500 * time.Millisecond) // the total is looked at once a second
			wantLabel(t, f, "cp", podCountLabel, strconv.Itoa(total))
			pass(10 * time.Second)
		}
		if n := len(writesAt(f)) - before; n < 500 || n > 1000 {
			t.Errorf("%d writes in 34 s, which should have been busy ones", n)
		}
		wantPeace(t, f, "-node-label", "example.com/n")
	})
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
				r := recorderTo(sink, newLog(lines, &options{}))
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

// panicky is a controller whose function for the keys of pods panics while isBroken says so. It tells what it read.
func panicky(t *testing.T, isBroken func(Delta[*Pod]) bool) (keys *[]string, tries *atomic.Int64) {
	keys = new([]string)
	tries = new(atomic.Int64)
	withController(t, Controller{Name: "panicky", Setup: func(m *manager, c *Controller) {
		On(c, m.pods, func(d Delta[*Pod]) []Key {
			tries.Add(1)
			if isBroken(d) {
				panic("no keys of " + d.Key().Name)
			}
			return []Key{d.Key()}
		})
		c.Reconcile = func(_ context.Context, key Key) (Result, error) {
			*keys = append(*keys, key.Name)
			return Result{}, nil
		}
	}})
	return keys, tries
}

func TestKeysOfAChangeWhoseFunctionPanicsAreNotLost(t *testing.T) {
	var isBroken atomic.Bool
	keys, _ := panicky(t, func(d Delta[*Pod]) bool { return isBroken.Load() && d.Key().Name != "good" })
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		startPodcount(t, f, "-workers", "1")
		pass(time.Second)
		isBroken.Store(true)
		f.AddPod("default", "bad", "")
		f.AddPod("default", "gone", "")
		f.Remove("pods", at("default", "gone"))
		f.AddPod("default", "good", "")
		pass(time.Minute)
		if got := strings.Join(*keys, " "); got != "good" {
			t.Errorf("while it panics, keys came of: %s", got)
		}
		isBroken.Store(false)
		pass(2 * time.Minute) // the longest backoff, and its jitter
		slices.Sort(*keys)
		if got := strings.Join(slices.Compact(*keys), " "); got != "bad gone good" {
			t.Errorf("in the end, keys came of: %s", got)
		}
	})
}

func TestControllerThatPanicsForEverIsSaidOnceAMinuteAndCostsLittle(t *testing.T) {
	_, tries := panicky(t, func(d Delta[*Pod]) bool { return true })
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(1)
		p := startPodcount(t, f, "-pod-events", "off")
		pass(time.Second)
		for i := range 1000 { // one object that changes, again and again
			f.AddPodWith("changing", fakekube.Object{"n": strconv.Itoa(i)})
		}
		pass(10 * time.Minute)
		log := p.log.String()
		wantNumber(t, "stacks", strings.Count(log, "queue_test.go"), 1)
		if n := strings.Count(log, "a controller panics again"); n < 5 || n > 10 {
			t.Errorf("%d more lines in 10 minutes", n)
		}
		wantText(t, log, `msg="a controller panics again" controller=panicky err="panic: no keys of changing" times=`)
		before := tries.Load()
		pass(time.Hour)
		if n := tries.Load() - before; n < 60 || n > 60*(1+pendingPerObject) {
			t.Errorf("%d tries in an hour", n)
		}
		wantLabel(t, f, "cp", podCountLabel, "2")
	})
}

func TestOnceFailsWhereAFunctionThatPanicsCouldNotSayItsKeys(t *testing.T) {
	panicky(t, func(d Delta[*Pod]) bool { return true })
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		p := startPodcount(t, f, "-once")
		<-p.done
		wantText(t, fmt.Sprint(p.stop()), "-once: panicky could not make 2 objects right")
		wantLabel(t, f, "cp", podCountLabel, "2")
	})
}
