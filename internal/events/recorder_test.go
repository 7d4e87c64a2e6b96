package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/kubeconfig"
	"podcount/internal/labels"
	"podcount/internal/metrics"
)

// keptEvents is an Sink that fails as it is told, and says what it was asked to do.
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

// recorderTo makes a recorder that writes its log to log.
func recorderTo(sink Sink, log io.Writer) *Recorder {
	return NewRecorder(Options{
		Sink:     sink,
		Instance: "test",
		Log:      slog.New(slog.NewTextHandler(log, nil)),
		Metrics:  metrics.NewRegistry(),
	})
}

func TestRecorderDoesWithAnEventWhatTheAnswerSays(t *testing.T) {
	answer := func(answer Answer) *Error {
		return &Error{Err: errors.New("no"), Answer: answer, Pause: time.Minute}
	}
	patience := answer(Refused)
	patience.RetryAfter = 20 * time.Second
	tooMuchPatience := answer(Refused)
	tooMuchPatience.RetryAfter = time.Hour
	for name, c := range map[string]struct {
		answers []error
		asked   string // for an event that happens twice
		dropped int64
		lines   int
	}{
		"all is well":               {nil, "post amend", 0, 0},
		"it is there already":       {[]error{answer(Exists)}, "post amend", 0, 0},
		"it has gone meanwhile":     {[]error{nil, answer(Gone)}, "post amend post", 0, 0},
		"refused":                   {[]error{answer(Refused)}, "post post", 1, 1},
		"refused, within a minute":  {[]error{answer(Refused), answer(Refused)}, "post post", 2, 1},
		"refused, as often":         {[]error{answer(Unwanted)}, "post post", 1, 0},
		"asked for patience":        {[]error{patience}, "post post amend", 0, 0},
		"asked for patience, twice": {[]error{patience, patience}, "post post post", 1, 1},
		"asked for an hour":         {[]error{tooMuchPatience}, "post post", 1, 1},
		"not reached":               {[]error{io.ErrUnexpectedEOF}, "post post amend", 0, 2}, // a beginning and an end
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lines := &bytes.Buffer{}
				sink := &keptEvents{answers: c.answers}
				r := recorderTo(sink, lines)
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
		r := recorderTo(sink, io.Discard)
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

func TestRecorderRemembersABoundedNumberOfObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorderTo(&keptEvents{}, io.Discard)
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
	client := kube.NewClient(&kubeconfig.Config{Server: base, Credential: noCredential}, kube.Options{Dial: n.Dial})
	r = recorderTo(NewSink(client), io.Discard)
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

func somePod(n int) Reference {
	return Reference{"v1", "Pod", "default", fmt.Sprintf("web-%d", n), fmt.Sprintf("uid-%d", n)}
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
			r.Event(Reference{"v1", "Pod", "default", long, "u"}, "Normal", "Long", strconv.FormatUint(rand.Uint64(), 10))
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
