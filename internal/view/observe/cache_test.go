package observe

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"podcount/internal/view/logging"
	"podcount/internal/view/metrics"
	"podcount/internal/view/trace"
	"podcount/lab/testkit"
)

// testObject is a name and a version.
type testObject [2]string

func (o *testObject) NamespacedName() string  { return o[0] }
func (o *testObject) ResourceVersion() string { return o[1] }

func newTestCache(log *testkit.Buffer) *CacheReport {
	logger := slog.New(logging.NewHandler(log, logging.Style{}, slog.LevelInfo))
	return NewCacheReport(CacheOptions{
		Sinks:        Sinks{Log: logger, Metrics: metrics.NewRegistry(), Trace: new(trace.Trace)},
		Kind:         "Pod",
		ServerOutage: logging.NewServerOutage(logger, func(error) bool { return false }, nil),
		Pause:        func(error) time.Duration { return time.Minute },
	})
}

// Each event of a watch calls these.
func TestWhatNobodyReadsIsNotBuilt(t *testing.T) {
	c := newTestCache(&testkit.Buffer{})
	old, now := &testObject{"default/p", "1"}, &testObject{"default/p", "2"}
	c.Frame(Frame{Type: "MODIFIED", Object: now})
	allocated := testing.AllocsPerRun(100, func() {
		c.Received("MODIFIED", now, true)
		c.Changed(Change{Old: old, New: now})
	})
	testkit.WantEqual(t, "memory blocks", allocated, 0)
}

func TestChangesHaveTheirWordsInTheTrace(t *testing.T) {
	c := newTestCache(&testkit.Buffer{})
	var seen []string
	c.Trace.Listen(func(s trace.Step) { seen = append(seen, s.Type+" "+s.Key+" "+s.Version) })
	old, now := &testObject{"default/p", "1"}, &testObject{"default/p", "2"}
	for _, change := range []Change{{New: now}, {Old: old}, {Old: old, New: now}, {Old: now, New: now}} {
		c.Changed(change)
	}
	testkit.WantEqual(t, "the steps", seen, []string{
		"added default/p 2", "removed default/p ", "changed default/p 2", "unchanged default/p 2",
	})
}

func TestProblemIsThatOfDiscoveryFirst(t *testing.T) {
	c := newTestCache(&testkit.Buffer{})
	testkit.WantEqual(t, "the problem at first", c.Problem(), nil)
	c.CannotConfirm(errors.New("c"))
	testkit.WantEqual(t, "the problem of a leader", c.Problem().Text, "cannot confirm the cache: c")
	c.ListFailed(errors.New("b"))
	testkit.WantEqual(t, "the problem of a list", c.Problem().Text, "cannot list: b")
	c.DiscoveryFailed(errors.New("a"))
	testkit.WantEqual(t, "the problem of discovery", c.Problem().Text,
		"cannot find out whether the resource is installed: a")
	c.DiscoveryWorked()
	c.WatchWorks()
	c.Confirmed()
	testkit.WantEqual(t, "the problem at the end", c.Problem(), nil)
	c.End()
}
