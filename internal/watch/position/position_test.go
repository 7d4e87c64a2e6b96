package position

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/wire"
	"podcount/internal/view/logging"
	"podcount/internal/view/metrics"
	"podcount/internal/view/observe"
	"podcount/internal/watch/ending"
	"podcount/lab/testkit"
)

// testPosition is a Position whose questions a test answers.
type testPosition struct {
	*Position
	log    *testkit.Buffer
	asked  int
	answer func() (newest string, err error)
}

// newTestPosition returns a Position at this version, or one at which a list is due if it is "".
func newTestPosition(version string, restores *Restores) *testPosition {
	p := &testPosition{log: &testkit.Buffer{}}
	p.answer = func() (string, error) { return p.State().Version, nil }
	log := slog.New(logging.NewHandler(p.log, logging.Style{}, slog.LevelInfo))
	p.Position = New(Options{
		Resource: "pods",
		Restores: restores,
		Ask: func(context.Context, time.Duration) (string, error) {
			p.asked++
			return p.answer()
		},
		Report: observe.NewCacheReport(observe.CacheOptions{
			Sinks:        observe.Sinks{Log: log, Metrics: metrics.NewRegistry()},
			Kind:         "Pod",
			ServerOutage: logging.NewServerOutage(log, kube.IsUnanswered, nil),
			Pause:        kube.PauseBetweenComplaints,
		}),
	})
	if version != "" {
		p.Listed(p.BeginList(), version)
	}
	return p
}

// simulate runs a test in virtual time, with a Position at version 10 that was listed a minute ago.
func simulate(t *testing.T, test func(t *testing.T, p *testPosition)) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPosition("10", &Restores{})
		testkit.Pass(time.Minute)
		test(t, p)
	})
}

// startConfirm calls Confirm in the background, as of now.
func (p *testPosition) startConfirm(ctx context.Context) <-chan error {
	results := make(chan error, 1)
	since := time.Now()
	go func() { results <- p.Confirm(ctx, since) }()
	synctest.Wait()
	return results
}

func (p *testPosition) wantNext(t *testing.T, when, version, reason string) {
	t.Helper()
	next, isListDue := p.TakeNext()
	testkit.WantEqual(t, "version "+when, next, version)
	testkit.WantEqual(t, "a list is due "+when, isListDue, version == "")
	testkit.WantEqual(t, "reason for a list "+when, p.BeginList().Reason, reason)
}

func TestListIsDueUntilOneIsCompleteOrAgainWhenSomethingSaysSo(t *testing.T) {
	p := newTestPosition("", &Restores{})
	p.wantNext(t, "at the start", "", "start")
	p.Listed(p.BeginList(), "10")
	p.wantNext(t, "after a list", "10", "hour")
	p.MoveTo("12")
	p.wantNext(t, "after an event", "12", "hour")
	p.MakeListDue("garbage")
	p.wantNext(t, "after garbage", "", "garbage")
	p.demandList(restored)
	p.wantNext(t, "after a demand for a list that is due", "", "garbage")
	p.Listed(p.BeginList(), "9")
	p.wantNext(t, "after a list that answers the demand, too", "9", "hour")
	p.demandList(restored)
	p.wantNext(t, "after a demand", "", restored)
	p.Listed(p.BeginList(), "9")
	p.wantNext(t, "after the demanded list", "9", "hour")
}

func TestDemandEndsWhatIsInterruptible(t *testing.T) {
	p := newTestPosition("10", &Restores{})
	before, done := p.Interruptible(t.Context(), time.Time{})
	p.demandList(restored)
	testkit.WantEqual(t, "what runs ends with", context.Cause(before), ErrListDemanded)
	done()
	after, done := p.Interruptible(t.Context(), time.Time{})
	testkit.WantEqual(t, "what begins ends with", context.Cause(after), ErrListDemanded)
	done()
	p.TakeNext()
	next, done := p.Interruptible(t.Context(), time.Time{})
	testkit.WantEqual(t, "what begins after the demand was taken ends with", context.Cause(next), nil)
	done()
	p.demandList(restored)
	testkit.WantEqual(t, "what was done before has ended with", context.Cause(next), context.Canceled)
}

// The watch goes on while the server is asked, so it may be ahead of the answer.
func TestWatchThatOvertakesAQuestionIsNoRestore(t *testing.T) {
	simulate(t, func(t *testing.T, p *testPosition) {
		p.answer = func() (string, error) {
			p.MoveTo("12")
			return "11", nil
		}
		testkit.WantError(t, "Confirm", <-p.startConfirm(t.Context()), "")
		testkit.WantEqual(t, "the log", p.log.String(), "")
	})
}

func TestConfirmReturnsFromEachOfItsStates(t *testing.T) {
	for _, row := range []struct {
		name    string
		newest  string // the answer to its question
		act     func(p *testPosition)
		asks    int
		isAtEnd bool   // Confirm returns after act
		demands string // what it demands after ConfirmPatience if it has not returned
	}{
		{name: "the watch is there already", newest: "10", asks: 1, isAtEnd: true},
		{name: "the watch gets there", newest: "11", act: func(p *testPosition) { p.MoveTo("11") }, asks: 1, isAtEnd: true},
		{name: "the watch lags", newest: "12", act: func(p *testPosition) { p.MoveTo("11") }, asks: 1, demands: elected},
		{name: "it is removed", newest: "11", act: func(p *testPosition) { p.SetAbsent(true) }, asks: 1, isAtEnd: true},
		{name: "a list begins", newest: "11", act: func(p *testPosition) {
			p.Listed(p.BeginList(), "11")
		}, asks: 1, isAtEnd: true},
		{name: "a list ends that has begun before", newest: "12", act: func(p *testPosition) {
			l := p.BeginList()
			l.At = l.At.Add(-time.Second)
			p.Listed(l, "11")
		}, asks: 1, demands: elected},
		{name: "the server has gone back", newest: "9", asks: 1, demands: restored},
	} {
		t.Run(row.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, p *testPosition) {
				p.answer = func() (string, error) { return row.newest, nil }
				ctx, stop := context.WithCancel(t.Context())
				results := p.startConfirm(ctx)
				if row.act != nil {
					row.act(p)
				}
				synctest.Wait()
				testkit.WantNumber(t, "questions", p.asked, row.asks)
				testkit.WantEqual(t, "Confirm has returned", len(results) == 1, row.isAtEnd)
				testkit.Pass(ConfirmPatience)
				testkit.WantEqual(t, "what is demanded", p.demanded, row.demands)
				stop()
				synctest.Wait()
			})
		})
	}
}

func TestLeaderWithdrawsItsOwnDemandAlone(t *testing.T) {
	for told, want := range map[bool]string{false: "", true: restored} {
		simulate(t, func(t *testing.T, p *testPosition) {
			p.answer = func() (string, error) { return "11", nil }
			if told {
				p.demandList(restored)
			}
			results := p.startConfirm(t.Context())
			testkit.Pass(ConfirmPatience)
			p.MoveTo("11")
			testkit.WantError(t, "Confirm", <-results, "")
			testkit.WantEqual(t, "what is demanded", p.demanded, want)
		})
	}
}

func TestQuestionAsksOnlyAfterASuspicion(t *testing.T) {
	p := newTestPosition("10", &Restores{})
	p.answer = func() (string, error) { return "9", nil }
	testkit.WantEqual(t, "a restore without a suspicion", p.AskIfGoneBack(t.Context()), false)
	p.Failed(&kube.Status{Status: wire.Status{Code: 403}})
	testkit.WantEqual(t, "a restore after a refusal", p.AskIfGoneBack(t.Context()), false)
	p.Failed(errors.New("no answer"))
	testkit.WantEqual(t, "a restore", p.AskIfGoneBack(t.Context()), true)
	p.wantNext(t, "after a restore", "", restored)
	testkit.WantNumber(t, "questions", p.asked, 1)
	testkit.WantText(t, p.log.String(), "versions have gone back", "from=10", "to=9")
}

func TestSuspicionLastsUntilAnAnswerOrAList(t *testing.T) {
	simulate(t, func(t *testing.T, p *testPosition) {
		wantAsks := func(when string, want int) {
			t.Helper()
			p.asked = 0
			p.AskIfGoneBack(t.Context())
			testkit.WantNumber(t, "questions "+when, p.asked, want)
		}
		p.answer = func() (string, error) {
			status := wire.Status{Code: 429}
			status.Details.RetryAfterSeconds = 10
			return "", &kube.Status{Status: status}
		}
		p.Failed(errors.New("no answer"))
		wantAsks("at first", 1)
		wantAsks("while Retry-After forbids it", 0)
		testkit.Pass(15 * time.Second)
		p.answer = func() (string, error) { return "", errors.New("no answer") }
		wantAsks("after that", 1)
		p.answer = func() (string, error) { return "10", nil }
		wantAsks("after no answer", 1)
		wantAsks("after an answer", 0)
		p.Failed(errors.New("no answer"))
		p.Listed(p.BeginList(), "10")
		wantAsks("after a list", 0)
	})
}

func TestAnswerIsKnownUntilAListThatBeganAfterIt(t *testing.T) {
	p := newTestPosition("10", &Restores{})
	p.PatchAnswered("20")
	p.PatchAnswered("15")
	p.PatchAnswered("odd")
	p.BeginList() // It fails.
	testkit.WantEqual(t, "the newest version", p.newestKnownLocked(), "20")
	l := p.BeginList()
	p.PatchAnswered("30")
	p.Listed(l, "25")
	testkit.WantEqual(t, "the newest version after a list before the answer", p.newestKnownLocked(), "30")
	p.Listed(p.BeginList(), "28")
	testkit.WantEqual(t, "the newest version after a list", p.newestKnownLocked(), "28")
	testkit.WantNumber(t, "restores", strings.Count(p.log.String(), "versions have gone back"), 1)
}

func TestAnswerIsDoubtedIfAnOpenWatchDoesNotReachIt(t *testing.T) {
	simulate(t, func(t *testing.T, p *testPosition) {
		p.Opened()
		p.PatchAnswered("20")
		testkit.Pass(AnswerPatience - time.Second)
		testkit.WantError(t, "at first", p.CheckAnswers(), "")
		testkit.Pass(time.Second)
		if err := p.CheckAnswers(); !errors.Is(err, ending.ErrContradiction) {
			t.Errorf("after that: %v", err)
		}
		p.AllowCatchUp()
		p.Opened()
		testkit.WantError(t, "after an interruption", p.CheckAnswers(), "")
		testkit.Pass(AnswerPatience)
		p.MoveTo("20")
		testkit.WantError(t, "once it is reached", p.CheckAnswers(), "")
	})
}

func TestLossBeginsWithTheLastSignOfLife(t *testing.T) {
	simulate(t, func(t *testing.T, p *testPosition) {
		silent := ending.End{Err: kube.ErrSilent, IsOpened: true, Lasted: kube.Silence}
		for _, row := range []struct {
			name string
			end  ending.End
			want time.Duration // ago
		}{
			{"a watch that broke", ending.End{IsOpened: true, Lasted: time.Minute}, 0},
			{"a watch that was silent from its beginning", silent, kube.Silence},
			{
				"a watch that was silent for long",
				ending.End{Err: kube.ErrSilent, IsOpened: true, Lasted: time.Hour},
				10 * time.Minute,
			},
			{"a watch that was never opened", ending.End{Err: kube.ErrSilent, Lasted: kube.Silence}, 0},
		} {
			p.MoveTo("11")
			p.Opened()
			testkit.Pass(10 * time.Minute)
			p.WatchEnded(row.end)
			testkit.WantEqual(t, row.name, time.Since(*p.LostAt()), row.want)
			testkit.Pass(time.Second)
			p.WatchEnded(ending.End{})
			testkit.WantEqual(t, row.name+", and the next one failed", time.Since(*p.LostAt()), row.want+time.Second)
		}
		p.Listed(p.BeginList(), "12")
		testkit.WantEqual(t, "the loss after a list", p.LostAt(), nil)
	})
}

func TestRestoreIsToldToOthersOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		restores := &Restores{}
		pods, nodes := newTestPosition("10", restores), newTestPosition("10", restores)
		pods.checkForRestore("10", "9")
		nodes.checkForRestore("10", "9")
		testkit.WantEqual(t, "what is demanded of those who noticed it", pods.demanded, "")
		testkit.WantEqual(t, "what is demanded of the others", nodes.demanded, restored)
		testkit.Pass(retellAfter)
		nodes.checkForRestore("10", "9")
		testkit.WantEqual(t, "what is demanded after a minute", pods.demanded, restored)
	})
}
