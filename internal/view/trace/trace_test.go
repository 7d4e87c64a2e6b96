package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"podcount/lab/testkit"
)

// record listens to a trace until the test ends, and returns a function that returns the steps so far.
func record(t *testing.T, tr *Trace) (steps func() []Step) {
	var mu sync.Mutex
	var all []Step
	stop := tr.Listen(func(s Step) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, s)
	})
	t.Cleanup(stop)
	return func() []Step {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestStepsReachEachListenerUntilItStops(t *testing.T) {
	tr := new(Trace)
	first := record(t, tr)
	var second []string
	stop := tr.Listen(func(s Step) { second = append(second, s.Key) })
	tr.Emit(Step{Point: Added, Key: "a"})
	stop()
	tr.Emit(Step{Point: Taken, Key: "b"})
	testkit.WantEqual(t, "the keys that the second one got", second, []string{"a"})
	testkit.WantEqual(t, "how many steps the first one got", len(first()), 2)
	testkit.WantEqual(t, "the number of the second step", first()[1].Number, 2)
}

func TestTraceIsOnOnlyWhileSomebodyListens(t *testing.T) {
	tr := new(Trace)
	testkit.WantEqual(t, "IsOn before", tr.IsOn(), false)
	stop := tr.Listen(func(Step) {})
	testkit.WantEqual(t, "IsOn meanwhile", tr.IsOn(), true)
	stop()
	testkit.WantEqual(t, "IsOn after", tr.IsOn(), false)
	testkit.WantEqual(t, "IsOn of no trace", (*Trace)(nil).IsOn(), false)
}

// emitsStep stands for a function of the program that has a point.
func emitsStep(tr *Trace) { tr.Emit(Step{Point: Done}) }

// logsLine stands for a function of the program that has a point because it logs.
func logsLine(tr *Trace) { slog.New(NewHandler(slog.DiscardHandler, tr)).Info("a line") }

func TestStepNamesTheFunctionThatHasThePoint(t *testing.T) {
	tr := new(Trace)
	steps := record(t, tr)
	emitsStep(tr)
	logsLine(tr)
	func() { tr.Emit(Step{}) }()
	wants := []string{" trace.emitsStep", " trace.logsLine", " trace.TestStepNamesTheFunctionThatHasThePoint.func1"}
	for i, want := range wants {
		where := steps()[i].Where
		if !strings.HasPrefix(where, "trace_test.go:") || !strings.HasSuffix(where, want) {
			t.Errorf("step %d was emitted by %q, want a line of trace_test.go and %q", i, where, want)
		}
	}
}

func TestStepShowsTheFirstBytesAndTheWholeSize(t *testing.T) {
	tr := new(Trace)
	steps := record(t, tr)
	tr.Emit(Step{Bytes: make([]byte, ByteLimit+1)})
	testkit.WantEqual(t, "the bytes", len(steps()[0].Bytes), ByteLimit)
	testkit.WantEqual(t, "the size", steps()[0].Size, ByteLimit+1)
}

func TestStepHasItsOwnBytes(t *testing.T) {
	tr := new(Trace)
	steps := record(t, tr)
	patch := []byte("before")
	frame := []byte(`{"type":"ADDED"}`)
	tr.EmitBuilt(func() Step { return Step{Bytes: patch} })
	tr.EmitBuilt(func() Step { return Step{Size: len(frame)}.WithFrame(frame) })
	clear(patch)
	clear(frame)
	testkit.WantEqual(t, "the bytes of a patch", string(steps()[0].Bytes), "before")
	testkit.WantEqual(t, "the bytes of a frame", string(steps()[1].Masked().Bytes), `{"type":"ADDED"}`)
}

func TestStepHasOnlyTheBeginningOfAFrame(t *testing.T) {
	step := Step{}.WithFrame(make([]byte, 1<<20))
	testkit.WantNumber(t, "bytes of the frame", cap(*step.frame), frameLimit)
}

func TestStepShowsItsFrameOnlyMasked(t *testing.T) {
	frame := []byte(`{"type":"ADDED","object":{"secret":"hunter2"}}`)
	tr := new(Trace)
	steps := record(t, tr)
	tr.Emit(Step{Point: Frame, Size: len(frame)}.WithFrame(frame))
	step := steps()[0]
	text, err := json.Marshal(step)
	testkit.WantError(t, "Marshal", err, "")
	var read Step
	testkit.WantError(t, "Unmarshal", json.Unmarshal(text, &read), "")
	testkit.WantEqual(t, "the bytes in its JSON", string(read.Bytes), `{"type":"ADDED","object":{"secret":"***"}}`)
	testkit.WantNumber(t, "bytes beside that", len(step.Bytes), 0)
	for _, printed := range []string{fmt.Sprintf("%v", step), fmt.Sprintf("%+v", &step), fmt.Sprintf("%#v", step)} {
		if strings.Contains(printed, "hunter2") || strings.Contains(printed, "104 117 110") {
			t.Errorf("it prints its frame: %s", printed)
		}
	}
}

func TestStepForWhichNoListenerHasRoomIsNotBuilt(t *testing.T) {
	tr := new(Trace)
	built, handled := 0, 0
	build := func() Step {
		built++
		return Step{}
	}
	hasRoom := false
	defer tr.ListenWithin(func() bool { return hasRoom }, func(Step) { handled++ })()
	log := slog.New(NewHandler(slog.DiscardHandler, tr))
	value := &countedValue{}
	tr.EmitBuilt(build)
	log.Info("a line", "value", value)
	testkit.WantNumber(t, "steps that were built", built, 0)
	testkit.WantNumber(t, "values that were formatted", value.formatted, 0)
	hasRoom = true
	tr.EmitBuilt(build)
	log.Info("a line", "value", value)
	testkit.WantNumber(t, "steps that were built with room", built, 1)
	testkit.WantNumber(t, "values that were formatted with room", value.formatted, 1)
	testkit.WantNumber(t, "steps that were handled", handled, 2)
}

// countedValue is a value of a log line that counts how often it is formatted.
type countedValue struct{ formatted int }

func (v *countedValue) String() string {
	v.formatted++
	return "value"
}

func TestStepIsBuiltOnceForAllListeners(t *testing.T) {
	tr := new(Trace)
	first, second := record(t, tr), record(t, tr)
	built := 0
	tr.EmitBuilt(func() Step {
		built++
		return Step{Text: strings.Repeat("x", ByteLimit+1), Error: strings.Repeat("x", ByteLimit+1)}
	})
	testkit.WantNumber(t, "steps that were built", built, 1)
	testkit.WantEqual(t, "the second one's step", second()[0], first()[0])
	step := second()[0]
	testkit.WantNumber(t, "the length of its text", len(step.Text), ByteLimit)
	testkit.WantNumber(t, "the length of its error", len(step.Error), ByteLimit)
}

func TestStepIsShortJSON(t *testing.T) {
	text, err := json.Marshal(Step{Number: 1, Point: Added, Key: "default/web"})
	testkit.WantError(t, "Marshal", err, "")
	testkit.WantEqual(t, "the JSON", string(text),
		`{"n":1,"at":"0001-01-01T00:00:00Z","point":"added","where":"","key":"default/web"}`)
}

func TestTraceTravelsInContext(t *testing.T) {
	tr := new(Trace)
	testkit.WantEqual(t, "the trace", FromContext(NewContext(t.Context(), tr)), tr)
	if FromContext(t.Context()) == nil {
		t.Error("a context without a trace gives none, want a new one")
	}
}

func TestLogLinesBecomeSteps(t *testing.T) {
	var out bytes.Buffer
	tr := new(Trace)
	next := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})
	log := slog.New(NewHandler(next, tr)).With("kind", "Pod")
	log.Debug("nobody listens")
	steps := record(t, tr)
	log.Log(t.Context(), slog.LevelDebug+2, "watching", "rv", 7)
	testkit.WantEqual(t, "what the next handler wrote", out.String(), "")
	testkit.WantEqual(t, "the number of steps", len(steps()), 1)
	testkit.WantEqual(t, "the line", steps()[0].Text, "msg=watching kind=Pod rv=7")
	testkit.WantEqual(t, "the level", steps()[0].Type, "DEBUG")
	testkit.WantText(t, steps()[0].Where, "trace_test.go:", " trace.TestLogLinesBecomeSteps")
	log.Info("listed")
	testkit.WantText(t, out.String(), "msg=listed kind=Pod")
}

func TestHandlerWithoutListenersWantsOnlyWhatTheNextOneWants(t *testing.T) {
	next := slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn})
	h := NewHandler(next, new(Trace))
	testkit.WantEqual(t, "INFO is enabled", h.Enabled(t.Context(), slog.LevelInfo), false)
	testkit.WantEqual(t, "WARN is enabled", h.Enabled(t.Context(), slog.LevelWarn), true)
}

func BenchmarkPointWithoutListener(b *testing.B) {
	tr := new(Trace)
	for b.Loop() {
		tr.Emit(Step{Point: Added})
	}
}

func BenchmarkLogLineWithoutListener(b *testing.B) {
	log := slog.New(NewHandler(slog.NewTextHandler(io.Discard, nil), new(Trace)))
	for b.Loop() {
		log.Log(context.Background(), slog.LevelDebug, "queue: add")
	}
}
