package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/objectmeta"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// scriptedSink is a Sink that returns prepared errors, and records which methods were called.
type scriptedSink struct {
	errors []error // of the next calls; once they are used up, calls succeed
	calls  []string
}

func (s *scriptedSink) Create(context.Context, string, map[string]any) error {
	return s.answer("create")
}

func (s *scriptedSink) Patch(context.Context, string, string, map[string]any) error {
	return s.answer("patch")
}

func (s *scriptedSink) answer(call string) error {
	s.calls = append(s.calls, call)
	if len(s.errors) == 0 {
		return nil
	}
	err := s.errors[0]
	s.errors = s.errors[1:]
	return err
}

// deliverOne delivers an event about a pod, and returns once it is posted or dropped.
func deliverOne(t *testing.T, r *Recorder, pod int, reason string) {
	r.deliver(t.Context(), t.Context(), event{occurrence{about: somePod(pod), reason: reason}, time.Now()})
}

func TestAnswerDecidesAnEventsFate(t *testing.T) {
	failure := func(answer Answer, retryAfter time.Duration) error {
		return &Failure{Err: errors.New("no"), Answer: answer, RetryAfter: retryAfter, LogPause: time.Minute}
	}
	refused := failure(Refused, 0)
	shortWait := failure(Refused, 20*time.Second)
	longWait := failure(Refused, time.Hour)
	for _, c := range []struct {
		name     string
		errors   []error
		calls    string // for an event that occurs twice
		dropped  int
		logLines int
	}{
		{"success", nil, "create patch", 0, 0},
		{"already exists", []error{failure(AlreadyExists, 0)}, "create patch", 0, 0},
		{"deleted meanwhile", []error{nil, failure(NotFound, 0)}, "create patch create", 0, 0},
		{"refused once", []error{refused}, "create create", 1, 1},
		{"refused twice within a minute", []error{refused, refused}, "create create", 2, 1},
		{"namespace gone", []error{failure(NamespaceGone, 0)}, "create create", 1, 0},
		{"short Retry-After once", []error{shortWait}, "create create patch", 0, 0},
		{"short Retry-After twice", []error{shortWait, shortWait}, "create create create", 1, 1},
		{"long Retry-After", []error{longWait}, "create create", 1, 1},
		// The two lines are the beginning and the end of the outage.
		{"not reached once", []error{io.ErrUnexpectedEOF}, "create create patch", 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &bytes.Buffer{}
				sink := &scriptedSink{errors: c.errors}
				r := newRecorder(sink, log)
				for range 2 {
					deliverOne(t, r, 1, "Twice")
				}
				testkit.WantEqual(t, "calls", strings.Join(sink.calls, " "), c.calls)
				testkit.WantNumber(t, "events dropped", int(r.Dropped()), c.dropped)
				testkit.WantNumber(t, "log lines", strings.Count(log.String(), "\n"), c.logLines)
			})
		})
	}
}

func TestRecorderForgetsOnlyTheOldestObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &scriptedSink{}
		r := newRecorder(sink, io.Discard)
		deliver := func(pod int, reason string) (isPosted bool) {
			before := len(sink.calls)
			deliverOne(t, r, pod, reason)
			return len(sink.calls) > before
		}
		// Pods 0 and 1 use up their bursts.
		for i := range objectBurst {
			deliver(0, fmt.Sprint("Reason", i))
			deliver(1, fmt.Sprint("Reason", i))
		}
		for pod := 2; pod < maxRemembered; pod++ {
			deliver(pod, "Once")
		}
		// Use up the tokens that pod 0 has got since then.
		for deliver(0, "More") {
		}
		// One more pod exceeds the limit. It replaces pod 1, because pod 0 was used later.
		deliver(maxRemembered, "Once")
		if deliver(0, "More") {
			t.Error("pod 0 was forgotten: it has a new burst")
		}
		if !deliver(1, "More") {
			t.Error("pod 1 was not forgotten: it has no new burst")
		}
		deliver(maxRemembered-1, "Once")
		testkit.WantEqual(t, "call for a recent event", sink.calls[len(sink.calls)-1], "patch")
	})
}

func TestRecorderMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(&scriptedSink{}, io.Discard)
		for pod := range 2*maxRemembered + 10 {
			deliverOne(t, r, pod, "Once")
		}
		testkit.WantNumber(t, "objects remembered", r.objectLimits.len(), maxRemembered)
		testkit.WantNumber(t, "Events remembered", r.records.len(), maxRemembered)
	})
}

func TestSameEventAgainRaisesTheCount(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		r, _ := startRecorder(t, f)
		for range 3 {
			r.Event(somePod(1), "Normal", "Again", "the same")
			testkit.Pass(time.Minute)
		}
		r.Event(somePod(1), "Normal", "Again", "another")
		testkit.Pass(time.Second)
		testkit.WantEqual(t, "Events", eventsOf(f, "Again"), []string{
			"Pod/web-1 in default: another x1",
			"Pod/web-1 in default: the same x3",
		})
		testkit.WantEqual(t, "time from the first to the last", ageOf(t, f, "the same"), 2*time.Minute)

		// The server removes Events after an hour.
		for _, ev := range f.All("events") {
			f.Remove("events", fakekube.KeyOf(ev))
		}
		r.Event(somePod(1), "Normal", "Again", "the same")
		testkit.Pass(time.Second)
		want := []string{"Pod/web-1 in default: the same x1"}
		testkit.WantEqual(t, "Events after a 404", eventsOf(f, "Again"), want)
	})
}

// ageOf returns the time from the first to the last occurrence of the one Event with this message.
func ageOf(t *testing.T, f *fakekube.Server, message string) time.Duration {
	t.Helper()
	for _, ev := range f.All("events") {
		if fakekube.TextIn(ev, "message") == message {
			return timeIn(t, ev, "lastTimestamp").Sub(timeIn(t, ev, "firstTimestamp"))
		}
	}
	t.Fatalf("there is no Event %q", message)
	return 0
}

func timeIn(t *testing.T, ev fakekube.Object, field string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, fakekube.TextIn(ev, field))
	if err != nil {
		t.Fatalf("%s: %v", field, err)
	}
	return at
}

func TestEventsAreLimitedPerObject(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		r, _ := startRecorder(t, f)
		const tooMany = 40
		for i := range tooMany {
			r.Event(somePod(1), "Normal", "Many", strconv.Itoa(i))
		}
		synctest.Wait()
		testkit.WantNumber(t, "Events at once", len(f.All("events")), objectBurst)
		testkit.WantNumber(t, "events dropped", int(r.Dropped()), tooMany-objectBurst)

		namesake := somePod(1)
		namesake.UID = "of another pod of this name"
		r.Event(namesake, "Normal", "Namesake", "x")
		synctest.Wait()
		testkit.WantNumber(t, "Events about another object of the name", len(eventsOf(f, "Namesake")), 1)

		testkit.Pass(301 * time.Second)
		r.Event(somePod(1), "Normal", "Many", "one more after 300 s")
		r.Event(somePod(1), "Normal", "Many", "but not two")
		synctest.Wait()
		testkit.WantNumber(t, "Events after 301 s", len(eventsOf(f, "Many")), objectBurst+1)
	})
}

func TestEventsAreLimitedOverAllObjects(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		r, _ := startRecorder(t, f)
		for pod := range 100 {
			r.Event(somePod(pod), "Normal", "Wide", "x")
		}
		synctest.Wait()
		testkit.WantNumber(t, "Events at once", len(f.All("events")), totalBurst)
		testkit.Pass(2*time.Second + time.Millisecond)
		testkit.WantNumber(t, "Events two seconds later", len(f.All("events")), totalBurst+2*totalRate)
	})
}

func TestFullRecorderDropsEventsAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Script(t, "create: stall")
		r, _ := startRecorder(t, f)
		r.Event(somePod(0), "Normal", "Stuck", "x")
		synctest.Wait()
		start := time.Now()
		for i := range maxWaiting + 300 {
			r.Event(somePod(1+i), "Normal", "Many", "x")
		}
		testkit.WantEqual(t, "time that the calls took", time.Since(start), 0)
		testkit.WantNumber(t, "events waiting", r.Waiting(), maxWaiting)
		testkit.WantNumber(t, "events dropped", int(r.Dropped()), 300)
		testkit.Pass(10 * time.Minute)
	})
}

func TestRetryOnlyIfItMayHelp(t *testing.T) {
	terminating := `{"code":403,"reason":"Forbidden","message":"because it is being terminated"}`
	tooMany := func(retryAfter string) fakekube.Fault {
		header := map[string]string{"Retry-After": retryAfter}
		return fakekube.Fault{Do: fakekube.Reply{Code: 429, Header: header, Body: "slow down"}}
	}
	for _, c := range []struct {
		name   string
		fault  fakekube.Fault
		tries  int
		posted int
	}{
		{"namespace being deleted", fakekube.Fault{Do: fakekube.Reply{Code: 403, Body: terminating}}, 1, 0},
		{"too many requests", tooMany("1"), 2, 1},
		{"too many requests for an hour", tooMany("3600"), 1, 0},
		{"request lost", fakekube.Fault{Do: fakekube.DropRequest{}}, 2, 1},
		{"answer lost", fakekube.Fault{Do: fakekube.DropAnswer{}}, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				c.fault.On = fakekube.Requests{Verb: "create"}
				f.Inject(t, c.fault)
				r, _ := startRecorder(t, f)
				r.Event(somePod(1), "Normal", "Once", "x")
				testkit.Pass(time.Minute)
				isPost := func(request fakekube.Request) bool { return request.Method == "POST" }
				testkit.WantNumber(t, "tries", len(fixture.Requests(f, isPost)), c.tries)
				testkit.WantNumber(t, "Events", len(eventsOf(f, "Once")), c.posted)
				testkit.WantNumber(t, "events dropped", int(r.Dropped()), 1-c.posted)
			})
		})
	}
}

func TestEventIsDroppedIfTheServerIsAwayForLong(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Script(t, "create, always: drop request")
		r, _ := startRecorder(t, f)
		r.Event(somePod(1), "Normal", "Once", "x")
		testkit.Pass(retryTimeout)
		testkit.WantNumber(t, "events dropped within the time for retries", int(r.Dropped()), 0)
		testkit.Pass(2 * maxBackoff)
		testkit.WantNumber(t, "events dropped after that", int(r.Dropped()), 1)
		f.Heal()
	})
}

func TestEventHasTheTimeAtWhichItOccurred(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Script(t, "create: delay 30s")
		r, _ := startRecorder(t, f)
		occurred := time.Now()
		r.Event(somePod(0), "Normal", "Slow", "x")
		r.Event(somePod(1), "Normal", "Waiting", "x")
		testkit.Pass(time.Minute)
		for _, ev := range f.All("events") {
			for _, field := range []string{"firstTimestamp", "lastTimestamp"} {
				testkit.WantEqual(t, field, timeIn(t, ev, field).Sub(occurred), 0)
			}
		}
		testkit.WantNumber(t, "Events", len(f.All("events")), 2)
	})
}

func TestNamesDifferWhenTheClockIsSetBack(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		r, end := startRecorder(t, f)
		r.newestStamp = time.Now().Add(time.Hour).UnixNano() // as if the clock was set back by an hour
		for i := range 20 {
			r.Event(somePod(1), "Normal", "Back", strconv.Itoa(i))
		}
		end()
		testkit.WantNumber(t, "Events", len(eventsOf(f, "Back")), 20)
	})
}

func TestNameOfALongObjectIsCut(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		r, end := startRecorder(t, f)
		pod := somePod(1)
		pod.Name = strings.Repeat("a", 235) + "-." + strings.Repeat("b", 16)
		for i := range 3 {
			r.Event(pod, "Normal", "Long", strconv.Itoa(i))
		}
		end()
		testkit.WantNumber(t, "Events", len(f.All("events")), 3)
		for _, ev := range f.All("events") {
			name := fakekube.TextIn(fakekube.MetaOf(ev), "name")
			if len(name) > 253 || objectmeta.CheckDNSName(name) != nil {
				t.Errorf("the server would refuse the name %s", name)
			}
		}
	})
}

func TestLongMessageIsCutBetweenCharacters(t *testing.T) {
	a := func(n int) string { return strings.Repeat("a", n) }
	for _, c := range []struct{ name, message, want string }{
		{"as long as may be", a(1024), a(1024)},
		{"longer by a byte", a(1025), a(1021) + "…"},
		{"a character of two bytes at the end", a(1020) + "ää", a(1020) + "ää"},
		{"a character of two bytes at the cut", a(1020) + "äää", a(1020) + "…"},
		{"a character of four bytes at the cut", a(1018) + "🐘🐘", a(1018) + "…"},
		{"a megabyte", strings.Repeat("ä", 1<<19), strings.Repeat("ä", 510) + "…"},
		{"bytes that are no text", strings.Repeat("\xff-", 400), strings.Repeat("\uFFFD-", 255) + "…"},
	} {
		got := shorten(c.message)
		if got != c.want || len(got) > MaxMessage {
			t.Errorf("%s: %d bytes, which end in %q", c.name, len(got), got[max(0, len(got)-12):])
		}
	}
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		r, end := startRecorder(t, f)
		r.Event(somePod(1), "Normal", "Long", a(5000))
		r.Event(somePod(1), "Normal", "Long", a(6000)) // the same, once both are cut
		end()
		want := []string{"Pod/web-1 in default: " + a(1021) + "… x2"}
		testkit.WantEqual(t, "Events", eventsOf(f, "Long"), want)
	})
}

func TestDryRunPostsNothing(t *testing.T) {
	sink := &scriptedSink{}
	var shown []string
	r := NewRecorder(Options{Sink: sink, DryRun: func(about Reference, reason, message string) {
		shown = append(shown, about.Name+" "+reason+" "+message)
	}})
	r.Event(somePod(1), "Normal", "Counted", "42 pods")
	testkit.WantEqual(t, "events shown", shown, []string{"web-1 Counted 42 pods"})
	testkit.WantNumber(t, "events waiting", r.Waiting(), 0)
}
