package brakes

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/object"
	"podcount/internal/view/logging"
	"podcount/internal/view/observe"
	"podcount/lab/testkit"
)

var key = object.Key{Namespace: "default", Name: "a"}

// trial is one widget whose size is wrong, and what came of its writes.
type trial struct {
	*Brakes
	log     *testkit.Buffer
	patched int             // writes
	err     error           // of the next writes
	dropped []string        // the fields that the next writes do not change
	again   []time.Duration // when its key is added again
}

func newTrial(t *testing.T) *trial {
	w := &trial{log: &testkit.Buffer{}}
	log := slog.New(logging.NewHandler(w.log, logging.Style{}, slog.LevelInfo))
	sinks := observe.NewSinks(log, nil)
	server := logging.NewServerOutage(log, func(error) bool { return false }, nil)
	w.Brakes = New(Options{
		Stop:     t.Context(),
		QPS:      1,
		Burst:    1,
		Interval: 10 * time.Second,
		AddAfter: func(_ object.Key, d time.Duration) { w.again = append(w.again, d) },
		Wrote:    func(object.Key) {},
		Observer: observe.NewControllerReport(sinks, "widgets", server),
	})
	return w
}

func (w *trial) correct(t *testing.T, isWrong bool) (isFinished bool) {
	t.Helper()
	err := w.Correct(t.Context(), key, func() *Comparison {
		return &Comparison{
			Kind:   "widget",
			UID:    "1",
			Fields: []Field{{Name: "size", From: Value{"1", true}, To: Value{"2", true}, IsWrong: isWrong}},
			Patch: func(context.Context, []Field) ([]string, error) {
				w.patched++
				return w.dropped, w.err
			},
			OnFinished: func() { isFinished = true },
		}
	})
	if err != nil {
		t.Error(err)
	}
	return isFinished
}

func TestObjectIsLeftAloneAfterAWriteAndLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrial(t)
		testkit.WantEqual(t, "it is finished at first", w.correct(t, true), true)
		testkit.Pass(4 * time.Second)
		testkit.WantEqual(t, "it is finished after 4 s", w.correct(t, true), false)
		testkit.WantEqual(t, "its key is added", w.again, []time.Duration{6 * time.Second})
		testkit.Pass(6 * time.Second)
		testkit.WantEqual(t, "it is finished after 10 s", w.correct(t, true), true)
		testkit.WantNumber(t, "writes", w.patched, 2)
		testkit.WantText(t, w.log.String(), `msg="field written" widget=default/a field=size from=1 to=2`)
	})
}

func TestDroppedFieldIsRetriedRarelyUntilItIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrial(t)
		w.err = errors.Join(errors.New("patch"), object.ErrStripped)
		w.dropped = []string{"size"}
		w.correct(t, true)
		testkit.WantEqual(t, "its key is added", w.again, []time.Duration{droppedPause})
		testkit.Pass(droppedPause - 1)
		testkit.WantEqual(t, "it is finished during the pause", w.correct(t, true), true)
		testkit.WantNumber(t, "writes before the end of the pause", w.patched, 1)
		testkit.Pass(1)
		w.err, w.dropped = nil, nil
		w.correct(t, true)
		testkit.WantNumber(t, "writes", w.patched, 2)
		testkit.WantText(t, w.log.String(),
			`msg="the server drops fields that podcount writes, so they are retried rarely" first=default/a field=size`,
			`msg="the server no longer drops the fields that podcount writes" last=default/a field=size`)
	})
}

func TestGoneObjectIsLookedAtAfterAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrial(t)
		w.CoolDown = time.Second
		w.err = object.ErrGone
		testkit.WantEqual(t, "it is finished", w.correct(t, true), false)
		testkit.WantEqual(t, "its key is added", w.again, []time.Duration{10 * time.Second})
	})
}
