package audit

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/view/metrics"
	"podcount/internal/view/observe"
	"podcount/internal/view/trace"
	"podcount/lab/testkit"
)

func TestAuditIsDueAnHourAfterTheLastAndSoonerAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Plan
		wantDueIn := func(when string, low, high time.Duration) {
			t.Helper()
			testkit.WantBetween(t, "time to the next audit "+when, time.Until(p.Due()), low, high)
			testkit.Pass(time.Until(p.Due()) - 1)
			testkit.WantEqual(t, "an audit is due a moment before", p.IsDue(), false)
			testkit.Pass(1)
			testkit.WantEqual(t, "an audit is due then", p.IsDue(), true)
		}
		testkit.WantEqual(t, "an audit is due at the start", p.IsDue(), true)
		p.Done()
		wantDueIn("after one", Interval*9/10, Interval*11/10)
		p.fail()
		wantDueIn("after a failure", RetryAfter, 2*RetryAfter)
		p.Postpone()
		wantDueIn("after a list that has failed", RetryAfter, 2*RetryAfter)
	})
}

func TestListReplacesAnAuditThatCannotWork(t *testing.T) {
	var p Plan
	wantObstacle := func(when, version, want string) {
		t.Helper()
		testkit.WantError(t, "obstacle "+when, p.obstacle(version), want)
	}
	wantObstacle("at first", "10", "")
	wantObstacle("if versions are no numbers", "odd", "the version is not a number")
	p.fail()
	p.Postpone() // A list that fails is no audit.
	wantObstacle("after a failure", "10", "")
	p.fail()
	wantObstacle("after two failures", "10", "2 audits in a row have failed")
	p.Done()
	wantObstacle("after a list", "10", "")
}

// stoppedCache is a Cache in whose list podcount is stopped.
type stoppedCache struct{ stop func() }

func (stoppedCache) Len() int { return 0 }

func (stoppedCache) HasServerCaughtUp(context.Context) (bool, error) { return true, nil }

func (c stoppedCache) Correct(context.Context, string) ([]observe.Change, error) {
	c.stop()
	return nil, errors.New("canceled")
}

func (stoppedCache) Relist(context.Context) error { return errors.New("must not be called") }

func TestAuditThatAStopInterruptsHasNotFailed(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	registry := metrics.NewRegistry()
	sinks := observe.Sinks{Log: slog.New(slog.DiscardHandler), Metrics: registry, Trace: new(trace.Trace)}
	report := observe.NewCacheReport(observe.CacheOptions{Sinks: sinks, Kind: "Pod"})
	var p Plan
	testkit.WantError(t, "Audit", p.Audit(ctx, "10", stoppedCache{stop}, report), "")
	testkit.WantNumber(t, "audits that failed", p.failed, 0)
}
