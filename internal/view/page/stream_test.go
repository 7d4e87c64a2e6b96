package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/view/trace"
	"podcount/lab/testkit"
)

func TestViewerGetsTheHistoryAndThenOneStateAndOneSampleASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		testkit.Pass(2500 * time.Millisecond)
		s := f.watch(t, "/events")
		first := s.received()
		testkit.WantEqual(t, "the first messages", eventsOf(first), "samples state")
		var history []Sample
		if err := json.Unmarshal([]byte(first[0].data), &history); err != nil {
			t.Fatal(err)
		}
		testkit.WantNumber(t, "samples", len(history), 2)
		testkit.WantNumber(t, "pods of the first sample", history[0].Pods, 7)
		testkit.WantEqual(t, "seconds between samples", history[1].At.Sub(history[0].At), time.Second)

		testkit.Pass(3 * time.Second)
		later := s.received()
		testkit.WantNumber(t, "states in three seconds", len(dataOf(later, "state")), 3)
		testkit.WantNumber(t, "samples in three seconds", len(dataOf(later, "sample")), 3)
		testkit.WantText(t, dataOf(later, "state")[0], `"version":"v1"`, `"host":"host"`)
	})
}

func TestStreamOutlivesTheTimeLimitOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		s := f.watch(t, "/events")
		testkit.Pass(time.Minute)
		messages := s.received()
		testkit.WantNumber(t, "samples in a minute", len(dataOf(messages, "sample")), 60)
	})
}

func TestHistoryBeforeTheFirstSampleIsAnEmptyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		messages := f.watch(t, "/events").received()
		testkit.WantEqual(t, "the history", dataOf(messages, "samples"), []string{"[]"})
	})
}

func TestHistoryHoldsTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		begin := time.Now()
		testkit.Pass(15 * time.Minute)
		messages := f.watch(t, "/events").received()
		var history []Sample
		if err := json.Unmarshal([]byte(dataOf(messages, "samples")[0]), &history); err != nil {
			t.Fatal(err)
		}
		testkit.WantNumber(t, "samples", len(history), 600)
		testkit.WantEqual(t, "the oldest", history[0].At.Sub(begin), 5*time.Minute+time.Second)
		testkit.WantEqual(t, "the newest", history[599].At.Sub(begin), 15*time.Minute)
	})
}

func TestStateIsReadOncePerSecondForAllViewersAndNeverWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "states without a viewer", int(f.states.Load()), 0)

		var streams []*stream
		for range 4 {
			streams = append(streams, f.watch(t, "/events"))
			synctest.Wait()
		}
		before := f.states.Load()
		testkit.Pass(10 * time.Second)
		testkit.WantNumber(t, "states in ten seconds with four viewers", int(f.states.Load()-before), 10)

		for _, s := range streams {
			s.close()
		}
		testkit.Pass(2 * time.Second) // the page notices it by writing
		before = f.states.Load()
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "states when all viewers are gone", int(f.states.Load()-before), 0)
	})
}

func TestStreamGoesOnWhileTheStateHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		calls := 0
		f := start(t, func(o *Options) {
			o.State = func() State {
				calls++
				<-release
				return State{}
			}
		})
		s := f.watch(t, "/events?steps=1")
		testkit.Pass(100 * time.Millisecond)
		f.trace.Emit(trace.Step{Point: trace.Frame})
		testkit.Pass(20 * time.Second)
		messages := s.received()
		testkit.WantNumber(t, "states", len(dataOf(messages, "state")), 0)
		testkit.WantNumber(t, "samples", len(dataOf(messages, "sample")), 20)
		testkit.WantNumber(t, "steps", len(dataOf(messages, "step")), 1)
		testkit.WantNumber(t, "calls that hang", calls, 1)

		begin := time.Now()
		got := f.get(t, "/debug/state")
		testkit.WantNumber(t, "the code of /debug/state", got.code, 503)
		testkit.WantText(t, got.text, "a part of it does not answer")
		testkit.WantEqual(t, "the wait", time.Since(begin), stateTimeout)
		testkit.WantNumber(t, "calls that hang", calls, 1)

		close(release)
		testkit.Pass(2 * time.Second)
		testkit.WantBetween(t, "states after that", len(dataOf(s.received(), "state")), 2, 3)
	})
}

func TestNinthViewerIsRefusedUntilOneLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		var streams []*stream
		for range viewerLimit {
			streams = append(streams, f.watch(t, "/events"))
		}
		refused := f.get(t, "/events")
		testkit.WantNumber(t, "the code", refused.code, 503)
		testkit.WantEqual(t, "Retry-After", refused.header.Get("Retry-After"), "5")
		testkit.WantText(t, refused.text, "8 viewers already", "close one")

		streams[3].close()
		testkit.Pass(2 * time.Second)
		testkit.WantText(t, eventsOf(f.watch(t, "/events").received()), "samples")
	})
}

func TestViewerThatDoesNotReadIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		conn := f.dial()
		defer conn.Close()
		fmt.Fprint(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		reader := f.watch(t, "/events")
		testkit.Pass(writeTimeout - time.Millisecond)
		testkit.WantNumber(t, "viewers", f.viewers(), 2)
		testkit.Pass(time.Millisecond)
		testkit.WantNumber(t, "viewers after the limit", f.viewers(), 1)
		testkit.WantNumber(t, "samples of the other one", len(dataOf(reader.received(), "sample")), 5)
	})
}

// viewers returns the number of viewers.
func (f *fixture) viewers() int {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	return len(f.hub.viewers)
}

func TestTraceIsListenedToOnlyWhileAViewerWantsSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		f.watch(t, "/events")
		testkit.Pass(time.Second)
		testkit.WantEqual(t, "listens for a viewer without steps", f.trace.IsOn(), false)
		first := f.watch(t, "/events?steps=1")
		second := f.watch(t, "/events?steps=1")
		testkit.WantEqual(t, "listens", f.trace.IsOn(), true)
		first.close()
		testkit.Pass(2 * time.Second)
		testkit.WantEqual(t, "listens for the other viewer", f.trace.IsOn(), true)
		second.close()
		testkit.Pass(2 * time.Second)
		testkit.WantEqual(t, "listens for nobody", f.trace.IsOn(), false)
	})
}

func TestStepsComeInOrderToThoseWhoWantThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		student := f.watch(t, "/events?steps=1")
		operator := f.watch(t, "/events")
		testkit.Pass(500 * time.Millisecond)
		for i := range 3 {
			f.trace.Emit(trace.Step{Point: trace.Frame, Count: i + 1})
		}
		testkit.Pass(flushInterval)
		messages := student.received()
		var numbers []uint64
		for _, data := range dataOf(messages, "step") {
			var step trace.Step
			if err := json.Unmarshal([]byte(data), &step); err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, step.Number)
		}
		testkit.WantEqual(t, "the numbers of the steps", numbers, []uint64{1, 2, 3})
		testkit.WantNumber(t, "steps of the other one", len(dataOf(operator.received(), "step")), 0)
	})
}

// Steps that come all the time must not put off their own sending.
func TestStepsOfABusyProgramAreSentEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		s := f.watch(t, "/events?steps=1")
		testkit.Pass(100 * time.Millisecond)
		s.received()
		for range 20 {
			f.trace.Emit(trace.Step{Point: trace.Frame})
			testkit.Pass(10 * time.Millisecond)
		}
		testkit.WantBetween(t, "steps after 200 ms", len(dataOf(s.received(), "step")), 14, 20)
	})
}

func TestStepsThatAreTooFastAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		s := f.watch(t, "/events?steps=1")
		testkit.Pass(500 * time.Millisecond)
		for range stepLimit + 40 {
			f.trace.Emit(trace.Step{Point: trace.Frame})
		}
		testkit.Pass(flushInterval)
		messages := s.received()
		testkit.WantNumber(t, "steps", len(dataOf(messages, "step")), stepLimit)
		testkit.WantEqual(t, "skipped", dataOf(messages, "skipped"), []string{"40"})
	})
}

func TestStepsForWhichThereIsNoRoomAreNotBuilt(t *testing.T) {
	h := newHub(new(trace.Trace))
	h.join(true)
	built := 0
	for range stepLimit + 40 {
		h.trace.EmitBuilt(func() trace.Step {
			built++
			return trace.Step{}
		})
	}
	testkit.WantNumber(t, "steps that were built", built, stepLimit)
	testkit.WantNumber(t, "steps that were skipped", int(h.skipped.Load()), 40)
}

func TestStepsThatAreTooLargeAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		s := f.watch(t, "/events?steps=1")
		testkit.Pass(500 * time.Millisecond)
		for range 200 {
			f.trace.Emit(trace.Step{Point: trace.Frame, Bytes: make([]byte, trace.ByteLimit)})
		}
		testkit.Pass(flushInterval)
		messages := s.received()
		sent := len(dataOf(messages, "step"))
		testkit.WantBetween(t, "steps", sent, 40, 60)
		testkit.WantEqual(t, "skipped", dataOf(messages, "skipped"), []string{fmt.Sprint(200 - sent)})
	})
}

func TestStepsThatAViewerMissesAreCountedForThisViewer(t *testing.T) {
	slow := &viewer{wantsSteps: true, messages: make(chan []byte, 2)}
	slow.offerSteps([]byte("a"), 1, 0)
	slow.offerSteps([]byte("b"), 1, 0)
	slow.offerSteps([]byte("c"), 5, 0) // there is no room
	testkit.WantNumber(t, "skipped", slow.skipped, 5)
	<-slow.messages
	<-slow.messages
	slow.offerSteps([]byte("d"), 1, 3)
	testkit.WantEqual(t, "the next message", string(<-slow.messages), "event: skipped\ndata: 8\n\n")
	testkit.WantEqual(t, "the message after it", string(<-slow.messages), "d")
	testkit.WantNumber(t, "skipped", slow.skipped, 0)
}

func TestEndOfRunEndsAllStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		first := f.watch(t, "/events")
		second := f.watch(t, "/events?steps=1")
		testkit.Pass(time.Second)
		f.stop()
		for _, s := range []*stream{first, second} {
			if !strings.HasSuffix(eventsOf(s.received()), " end") {
				t.Error("a stream goes on after the end")
			}
		}
		testkit.WantEqual(t, "listens", f.trace.IsOn(), false)
		testkit.WantNumber(t, "the code of a new stream", f.get(t, "/events").code, 503)
	})
}

func TestHeadOfTheStreamTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		resp, err := f.client.Head("http://localhost/events")
		if err != nil {
			t.Fatal(err)
		}
		testkit.WantNumber(t, "the code", resp.StatusCode, http.StatusOK)
		testkit.WantNumber(t, "viewers", f.viewers(), 0)
	})
}

// 50 changes a second make about 600 steps a second, which are 30 a batch.
func BenchmarkBatchOfSteps(b *testing.B) {
	h := newHub(new(trace.Trace))
	v := h.join(true)
	for b.Loop() {
		for range 30 {
			h.trace.Emit(trace.Step{Point: trace.Frame, Kind: "Pod", Key: "default/web-0", Bytes: make([]byte, 300)})
		}
		h.sendSteps()
		<-v.messages
	}
}
