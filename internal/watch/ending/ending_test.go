package ending

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/retry"
	"podcount/internal/api/wire"
	"podcount/lab/testkit"
)

func newJudge() *Judge {
	return NewJudge(retry.NewShared(retry.SharedOptions{
		Base:      InitialBackoff,
		Limit:     MaxBackoff,
		OnFailure: func(error) {},
		OnOver:    func() {},
	}).Join())
}

// status returns an error that wraps the Status that the server has sent.
func status(code int, reason string) error {
	return fmt.Errorf("watch pods: %w", &kube.Status{Status: wire.Status{Code: code, Reason: reason}})
}

// useful is the end of a watch that has worked.
var useful = End{Err: io.EOF, IsOpened: true, Events: 1, HasProgressed: true, Lasted: time.Minute}

func TestOutcomeOfAWatch(t *testing.T) {
	garbage := fmt.Errorf("watch pods: %w", wire.Garbage(io.ErrUnexpectedEOF))
	contradiction := fmt.Errorf("watch pods: %w: as tested", ErrContradiction)
	for _, row := range []struct {
		end  End
		want string
	}{
		{useful, "ended"},
		{End{Err: io.ErrUnexpectedEOF, IsOpened: true, Lasted: time.Minute}, "ended"},
		{End{Err: io.EOF, IsOpened: true, HasProgressed: true}, "ended"}, // follows one that was not brief

		{End{Err: status(410, "")}, "expired"},
		{End{Err: status(410, "Expired"), IsOpened: true, Lasted: time.Minute}, "expired"},
		{End{Err: status(0, "Expired"), IsOpened: true}, "expired"},
		{End{Err: status(500, "Gone"), IsOpened: true}, "expired"},

		{End{Err: status(400, "BadRequest")}, "refused"},
		{End{Err: status(422, "Invalid"), IsOpened: true}, "refused"},

		{End{Err: status(500, "InternalError"), IsOpened: true}, "error"},
		{End{Err: status(500, "InternalError"), IsOpened: true, Events: 9, HasProgressed: true}, "error"},

		{End{Err: status(429, "TooManyRequests"), IsOpened: true}, "unavailable"},
		{End{Err: status(429, "TooManyRequests")}, "unavailable"},
		{End{Err: status(403, "Forbidden")}, "unavailable"},
		{End{Err: io.ErrUnexpectedEOF}, "unavailable"},
		{End{Err: garbage}, "unavailable"},

		{End{Err: kube.ErrSilent, IsOpened: true, Lasted: kube.Silence}, "silence"},
		{End{Err: kube.ErrSilent, Lasted: kube.Silence}, "silence"},
		{End{Err: kube.ErrSilent, IsOpened: true, Events: 1, Lasted: kube.Silence}, "ended"},

		{End{Err: garbage, IsOpened: true}, "garbage"},
		{End{Err: contradiction, IsOpened: true}, "contradiction"},
		{End{Err: contradiction, IsOpened: true, Events: 9, HasProgressed: true, Lasted: time.Hour}, "contradiction"},

		{End{Err: io.EOF, IsOpened: true, Lasted: Brief - 1}, "short"},
		{End{Err: io.EOF, IsOpened: true, Events: 1, Lasted: Brief - 1}, "short"},
		{End{Err: io.EOF, IsOpened: true, Lasted: Brief}, "ended"},
	} {
		j := newJudge()
		j.Judge(useful)
		verdict := j.Judge(row.end)
		testkit.WantEqual(t, fmt.Sprintf("outcome of %+v", row.end), verdict.Outcome.Name, row.want)
	}
}

func TestBriefWatchBacksOffIfItFollowsAnother(t *testing.T) {
	j := newJudge()
	brief := End{Err: io.EOF, IsOpened: true, Events: 1, HasProgressed: true}
	testkit.WantEqual(t, "the wait after one", j.Judge(brief).Wait, 0)
	j.Judge(End{Err: status(503, "")}) // No watch was opened, so this says nothing about how long they last.
	second := j.Judge(brief)
	testkit.WantEqual(t, "the outcome of the second", second.Outcome.Name, "brief")
	testkit.WantBetween(t, "the wait after the second", second.Wait, InitialBackoff, 4*InitialBackoff)
}

func TestListIsDueAfterFruitlessWatchesWhateverTheirEnds(t *testing.T) {
	silent := End{Err: kube.ErrSilent, IsOpened: true, Lasted: kube.Silence}
	short := End{Err: io.EOF, IsOpened: true}
	failed := End{Err: status(500, ""), IsOpened: true}
	unavailable := End{Err: status(503, "")}
	repeated := End{Err: io.EOF, IsOpened: true, Events: 1, Lasted: time.Minute} // an event that was known already
	for _, row := range []struct {
		name string
		ends []End
		want string // the reason for a list after the last one
	}{
		{"one", []End{silent}, ""},
		{"two", []End{silent, failed}, "error"},
		{"two that are short", []End{short, short}, ""},
		{"three", []End{short, silent, short}, "silence"},
		{"with one that was not opened between them", []End{failed, unavailable, failed}, "error"},
		{"on both sides of a useful one", []End{failed, useful, failed}, ""},
		{"on both sides of one with an event", []End{failed, repeated, failed}, ""},
	} {
		j := newJudge()
		reason := ""
		for _, end := range row.ends {
			if verdict := j.Judge(end); verdict.IsListDue && reason == "" {
				reason = verdict.Outcome.Name
			}
		}
		testkit.WantEqual(t, row.name, reason, row.want)
	}
}

func TestListForgivesFruitlessWatchesAndEndsNoBackoff(t *testing.T) {
	j := newJudge()
	failed := End{Err: status(500, ""), IsOpened: true}
	j.Judge(failed)
	j.ListCompleted()
	verdict := j.Judge(failed)
	testkit.WantEqual(t, "a list is due", verdict.IsListDue, false)
	testkit.WantBetween(t, "the wait", verdict.Wait, 2*InitialBackoff, 4*InitialBackoff)
}

func TestBackoffOfExpiredWatchesIsTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJudge()
		for range 9 {
			j.WaitAfterFailure(status(503, ""))
		}
		expired := End{Err: status(410, "Expired"), IsOpened: true, Lasted: time.Minute}
		for _, shortest := range []time.Duration{InitialBackoff, 2 * InitialBackoff} {
			testkit.WantBetween(t, "the wait", j.Judge(expired).Wait, shortest, 2*shortest)
		}
		j.Opened()
		testkit.Pass(ResetAfter + 1)
		testkit.WantBetween(t, "the wait after a while", j.Judge(expired).Wait, InitialBackoff, 2*InitialBackoff)
	})
}

func TestEachOutcomeHasWordsForPeople(t *testing.T) {
	for _, o := range Outcomes {
		if o.Name == "" || o.When == "" || o.Meaning == "" {
			t.Errorf("something is missing: %+v", o)
		}
	}
}
