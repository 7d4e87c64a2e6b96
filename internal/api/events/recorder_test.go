package events

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/objectmeta"
	"podcount/internal/api/wire"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// script returns prepared errors, and records the methods of the requests.
type script struct {
	errors []error // of the next requests; once they are used up, requests succeed
	calls  []string
}

func (s *script) send(_ context.Context, r kube.Request, _ func(io.Reader) error) error {
	s.calls = append(s.calls, strings.ToLower(r.Method))
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
	refusal := func(code int, reason string) *kube.Status {
		return &kube.Status{Status: wire.Status{Code: code, Reason: reason}}
	}
	terminating := refusal(403, "Forbidden")
	terminating.Details.Causes = []wire.Cause{{Reason: "NamespaceTerminating"}}
	broken := refusal(500, "")
	tooMany := refusal(429, "TooManyRequests")
	tooMany.Details.RetryAfterSeconds = 1
	for _, c := range []struct {
		name     string
		errors   []error
		calls    string // for an event that occurs twice
		dropped  int
		logLines int
	}{
		{"success", nil, "post patch", 0, 0},
		{"already exists", []error{refusal(409, "AlreadyExists")}, "post patch", 0, 0},
		{"deleted meanwhile", []error{nil, refusal(404, "NotFound")}, "post patch post", 0, 0},
		{"404 of a proxy", []error{nil, refusal(404, "")}, "post patch", 1, 0},
		{"refused once", []error{broken}, "post post", 1, 1},
		{"refused twice within a minute", []error{broken, broken}, "post post", 2, 1},
		{"no right", []error{refusal(403, "Forbidden")}, "post post", 1, 1},
		{"namespace gone", []error{refusal(404, "NotFound")}, "post post", 1, 0},
		{"namespace being deleted", []error{terminating}, "post post", 1, 0},
		{"asked to wait", []error{tooMany}, "post post", 1, 1},
		// The two lines are the beginning and the end of the outage.
		{"not reached once", []error{io.ErrUnexpectedEOF}, "post post patch", 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &bytes.Buffer{}
				server := &script{errors: c.errors}
				r := newRecorder(server.send, log)
				for range 2 {
					deliverOne(t, r, 1, "Twice")
				}
				testkit.WantEqual(t, "calls", strings.Join(server.calls, " "), c.calls)
				testkit.WantNumber(t, "events dropped", int(r.Dropped()), c.dropped)
				testkit.WantNumber(t, "log lines", strings.Count(log.String(), "\n"), c.logLines)
			})
		})
	}
}

func TestRecorderMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(new(script).send, io.Discard)
		for pod := range 2*maxRemembered + 10 {
			deliverOne(t, r, pod, "Once")
		}
		testkit.WantNumber(t, "objects remembered", len(r.objectLimits), maxRemembered)
		testkit.WantNumber(t, "Events remembered", len(r.records), maxRemembered)
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
	var shown []string
	r := NewRecorder(Options{DryRun: func(about Reference, reason, message string) {
		shown = append(shown, about.Name+" "+reason+" "+message)
	}})
	r.Event(somePod(1), "Normal", "Counted", "42 pods")
	testkit.WantEqual(t, "events shown", shown, []string{"web-1 Counted 42 pods"})
	testkit.WantNumber(t, "events waiting", r.Waiting(), 0)
}
