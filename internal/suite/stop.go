package suite

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// Stop shows how podcount ends when it is asked to.
var Stop = Topic{
	{"a stop finishes writes in flight and posts waiting Events", stopFinishesWrites},
	{"a stop waits for Events only for a while", stopLimitsEvents},
	{"a stop at any stage is prompt and begins nothing more", stopAtAnyStage},
	{"a write that fails after a stop is reported", failureAfterAStop},
	{"a stop does not wait for -qps", stopIgnoresQPS},
}

func stopFinishesWrites(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Delay: 3 * time.Second})
		p := podcount.Start(t, f)
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "-")
		if err := p.Stop(); err != nil {
			t.Errorf("stopped with %v", err)
		}
		WantLabel(t, f, "cp", TotalLabel, "0")
		testkit.WantNumber(t, "events", len(EventsOf(f, "PodCountChanged")), 1)
	})
}

func stopLimitsEvents(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Script(t, "create events: stall")
		p := podcount.Start(t, f)
		synctest.Wait()
		start := time.Now()
		if err := p.Stop(); err != nil {
			t.Errorf("stopped with %v", err)
		}
		if d := time.Since(start); d != eventsTimeout {
			t.Errorf("it took %v", d)
		}
	})
}

func stopAtAnyStage(t *testing.T, podcount Program) {
	lists := func(s fakekube.Request) bool { return IsList("pods")(s) || IsList("nodes")(s) }
	for name, c := range map[string]struct {
		faults []fakekube.Fault
		at     time.Duration
		takes  time.Duration
		args   string
	}{
		"with no server":                    {faults: []fakekube.Fault{{On: fakekube.Requests{If: lists}, Do: fakekube.DropRequest{}}}, at: 20 * time.Second},
		"before the first list":             {faults: []fakekube.Fault{{On: fakekube.Requests{If: lists}, Do: fakekube.Stall{}}}},
		"in the first list":                 {faults: []fakekube.Fault{{On: fakekube.Requests{If: lists}, Do: fakekube.Hang{After: 40}}}},
		"in one of the first lists":         {faults: []fakekube.Fault{{On: fakekube.Requests{Verb: "list", Resource: "nodes"}, Do: fakekube.Hang{After: 40}}}},
		"in the backoff of a list":          {faults: []fakekube.Fault{StatusFault(fakekube.Requests{If: lists}, 0, 500, "InternalError", nil)}, at: 20 * time.Second},
		"at rest":                           {at: 20 * time.Second},
		"in the backoff of a watch":         {faults: []fakekube.Fault{StatusFault(fakekube.Requests{Verb: "watch", Resource: "pods"}, 0, 500, "InternalError", nil)}, at: 20 * time.Second},
		"in a write":                        {faults: []fakekube.Fault{{On: fakekube.Requests{If: fakekube.IsWrite}, Delay: 3 * time.Second}}, takes: 3 * time.Second},
		"in a write that is not answered":   {faults: []fakekube.Fault{{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Stall{}}}, takes: drainTimeout},
		"in the backoff of a write":         {faults: []fakekube.Fault{StatusFault(fakekube.Requests{If: fakekube.IsWrite}, 0, 500, "InternalError", nil)}, at: 20 * time.Second},
		"in the wait that a write was told": {faults: []fakekube.Fault{StatusFault(fakekube.Requests{If: fakekube.IsWrite}, 0, 429, "TooManyRequests", nil, "Retry-After", "30")}, at: 20 * time.Second},
		"between two writes of a node":      {at: 1500 * time.Millisecond},
		"in an event":                       {faults: []fakekube.Fault{{On: fakekube.Requests{Resource: "events"}, Do: fakekube.Stall{}}}, at: time.Second, takes: eventsTimeout},
		"standing by":                       {at: 20 * time.Second, args: "-leader-elect"},
	} {
		t.Run(name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				f.AddPods(2)
				if c.args != "" {
					podcount.Start(t, f, c.args)
					testkit.Pass(time.Second)
				}
				lift := func() {}
				for _, ft := range c.faults {
					ft.Times = fakekube.Always
					lift = f.Inject(t, ft).Lift
				}
				p := podcount.Start(t, f, strings.Fields(c.args)...)
				testkit.Pass(c.at)
				f.AddPods(3) // more to write
				synctest.Wait()
				begun := func(s fakekube.Request) bool {
					return !strings.Contains(s.Path, "/events") && s.Method+s.Path != "PUT"+LeasePath
				}
				before, stopped := len(f.Requests(begun)), time.Now()
				if err := p.Stop(); err != nil || time.Since(stopped) > c.takes {
					t.Errorf("stopped with %v after %v", err, time.Since(stopped))
				}
				for _, s := range f.Requests(begun)[before:] {
					t.Errorf("begun after the stop: %s", s)
				}
				lift()
				f.AddPods(4)
				podcount.Start(t, f)
				WantPeace(t, f)
			})
		})
	}
}

func failureAfterAStop(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Delay: 3 * time.Second, Do: fakekube.Reply{Code: 500, Body: "{}"}})
		p := podcount.Start(t, f)
		synctest.Wait()
		p.Stop()
		testkit.WantText(t, p.Log.String(), "cannot reconcile")
	})
}

func stopIgnoresQPS(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("a", ControlPlane)
		f.AddNode("b", ControlPlane)
		p := podcount.Start(t, f, "-qps", "0.01", "-burst", "1")
		synctest.Wait()
		start := time.Now()
		if err := p.Stop(); err != nil || time.Since(start) != 0 {
			t.Errorf("stopped with %v after %v", err, time.Since(start))
		}
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 1)
	})
}
