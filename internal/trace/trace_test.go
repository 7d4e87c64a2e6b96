package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"podcount/internal/testkit"
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

// helps stands for a helper between a point and Emit.
func helps(tr *Trace) { tr.EmitFor(1, Step{Point: Done}) }

func callsHelper(tr *Trace) { helps(tr) }

func TestStepNamesTheFunctionThatHasThePoint(t *testing.T) {
	tr := new(Trace)
	steps := record(t, tr)
	emitsStep(tr)
	callsHelper(tr)
	func() { tr.Emit(Step{}) }()
	wants := []string{" emitsStep", " callsHelper", " TestStepNamesTheFunctionThatHasThePoint"}
	for i, want := range wants {
		where := steps()[i].Where
		if !strings.HasPrefix(where, "internal/trace/trace_test.go:") || !strings.HasSuffix(where, want) {
			t.Errorf("step %d was emitted by %q, want a line of internal/trace/trace_test.go and %q", i, where, want)
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
	log := slog.New(NewHandler(next, tr)).With("kind", "Pod").WithGroup("list")
	log.Debug("nobody listens")
	steps := record(t, tr)
	log.Log(t.Context(), slog.LevelDebug+2, "watching", "rv", 7)
	testkit.WantEqual(t, "what the next handler wrote", out.String(), "")
	testkit.WantEqual(t, "the number of steps", len(steps()), 1)
	testkit.WantEqual(t, "the line", steps()[0].Text, "msg=watching kind=Pod list.rv=7")
	testkit.WantEqual(t, "the level", steps()[0].Type, "DEBUG")
	testkit.WantText(t, steps()[0].Where, "internal/trace/trace_test.go:", " TestLogLinesBecomeSteps")
	log.Info("listed")
	testkit.WantText(t, out.String(), "msg=listed kind=Pod")
}

func TestHandlerWithoutListenersWantsOnlyWhatTheNextOneWants(t *testing.T) {
	next := slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn})
	h := NewHandler(next, new(Trace))
	testkit.WantEqual(t, "INFO is enabled", h.Enabled(t.Context(), slog.LevelInfo), false)
	testkit.WantEqual(t, "WARN is enabled", h.Enabled(t.Context(), slog.LevelWarn), true)
}

func TestTapTakesTheBytesOfAFrame(t *testing.T) {
	tr := new(Trace)
	record(t, tr)
	tap := NewTap(tr, strings.NewReader("onetwothree"))
	io.CopyN(io.Discard, tap, 8) // a decoder reads ahead
	testkit.WantEqual(t, "the first frame", string(tap.Take(0, 3)), "one")
	testkit.WantEqual(t, "the second frame", string(tap.Take(3, 6)), "two")
	io.Copy(io.Discard, tap)
	testkit.WantEqual(t, "the third frame", string(tap.Take(6, 11)), "three")
}

func TestTapHasOnlyFramesThatBeganWhileSomebodyListened(t *testing.T) {
	tr := new(Trace)
	tap := NewTap(tr, strings.NewReader("onetwo"))
	io.CopyN(io.Discard, tap, 2)
	record(t, tr)
	io.CopyN(io.Discard, tap, 4)
	testkit.WantEqual(t, "the frame that had begun", string(tap.Take(0, 3)), "")
	testkit.WantEqual(t, "the next frame", string(tap.Take(3, 6)), "two")
}

func TestTapForgetsWhatIsTooLong(t *testing.T) {
	tr := new(Trace)
	record(t, tr)
	tap := NewTap(tr, io.LimitReader(zeros{}, 3*tapLimit))
	io.Copy(io.Discard, tap)
	testkit.WantEqual(t, "the frame", len(tap.Take(0, 3*tapLimit)), 0)
	if len(tap.data) > tapLimit {
		t.Errorf("the tap holds %d bytes, want at most %d", len(tap.data), tapLimit)
	}
}

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

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
