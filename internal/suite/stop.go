package suite

import (
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
	{"a standby stops at once, too", stopOfAStandby},
	{"a write that fails after a stop is reported", failureAfterAStop},
	{"a stop does not wait for -qps", stopIgnoresQPS},
}

func stopFinishesWrites(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Delay: 3 * time.Second})
		p := podcount.Start(t, f)
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "-") // the write is in flight
		testkit.WantError(t, "the end", p.Stop(), "")
		WantLabel(t, f, "cp", TotalLabel, "0")
		testkit.WantNumber(t, "Events", len(EventsOf(f, "PodCountChanged")), 1)
	})
}

func stopLimitsEvents(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Script(t, "create events: stall")
		p := podcount.Start(t, f)
		synctest.Wait()
		stopped := time.Now()
		testkit.WantError(t, "the end", p.Stop(), "")
		testkit.WantEqual(t, "time to stop", time.Since(stopped), eventsTimeout)
	})
}

// stage is a moment of podcount's life at which it is stopped.
type stage struct {
	name  string
	fault fakekube.Fault // every request that it is for meets it; none if it has no effect
	after time.Duration  // since podcount was started
	takes time.Duration  // that the stop takes, at most
}

// stages returns moments at which podcount waits or works in different ways.
func stages() []stage {
	isFirstList := func(r fakekube.Request) bool { return IsList("pods")(r) || IsList("nodes")(r) }
	lists := fakekube.Requests{If: isFirstList}
	nodeLists := fakekube.Requests{Verb: "list", Resource: "nodes"}
	watches := fakekube.Requests{Verb: "watch", Resource: "pods"}
	writes := fakekube.Requests{If: fakekube.IsWrite}
	events := fakekube.Requests{Resource: "events"}

	fail := func(on fakekube.Requests) fakekube.Fault { return StatusFault(on, 0, 500, "InternalError", nil) }
	busy := StatusFault(writes, 0, 429, "TooManyRequests", nil, "Retry-After", "30")
	none := fakekube.Fault{}
	return []stage{
		{"with no server", fakekube.Fault{On: lists, Do: fakekube.DropRequest{}}, 20 * time.Second, 0},
		{"before the first list", fakekube.Fault{On: lists, Do: fakekube.Stall{}}, 0, 0},
		{"in the first list", fakekube.Fault{On: lists, Do: fakekube.Hang{After: 40}}, 0, 0},
		{"in one of the first lists", fakekube.Fault{On: nodeLists, Do: fakekube.Hang{After: 40}}, 0, 0},
		{"in the backoff of a list", fail(lists), 20 * time.Second, 0},
		{"at rest", none, 20 * time.Second, 0},
		{"in the backoff of a watch", fail(watches), 20 * time.Second, 0},
		{"in a write", fakekube.Fault{On: writes, Delay: 3 * time.Second}, 0, 3 * time.Second},
		{"in a write that is not answered", fakekube.Fault{On: writes, Do: fakekube.Stall{}}, 0, drainTimeout},
		{"in the backoff of a write", fail(writes), 20 * time.Second, 0},
		{"in the Retry-After of a write", busy, 20 * time.Second, 0},
		{"between two writes of a node", none, 1500 * time.Millisecond, 0},
		{"in an Event", fakekube.Fault{On: events, Do: fakekube.Stall{}}, time.Second, eventsTimeout},
	}
}

func stopAtAnyStage(t *testing.T, podcount Program) {
	for _, stage := range stages() {
		t.Run(stage.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				f.AddPods(2)
				lift := func() {}
				if stage.fault.Do != nil || stage.fault.Delay > 0 {
					stage.fault.Times = fakekube.Always
					lift = f.Inject(t, stage.fault).Lift
				}
				p := podcount.Start(t, f)
				stopIsPrompt(t, f, p, stage)
				lift()
				f.AddPods(4)
				podcount.Start(t, f)
				WantPeace(t, f)
			})
		})
	}
}

func stopOfAStandby(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.AddPods(2)
		podcount.Start(t, f, "-leader-elect")
		testkit.Pass(time.Second)
		standby := podcount.Start(t, f, "-leader-elect")
		stopIsPrompt(t, f, standby, stage{after: 20 * time.Second})
		f.AddPods(4)
		podcount.Start(t, f)
		WantPeace(t, f)
	})
}

// stopIsPrompt gives podcount something to write at a stage, and stops it at once. Nothing may be begun after that,
// except Events and the release of the lease.
func stopIsPrompt(t *testing.T, f *fakekube.Server, p *Process, stage stage) {
	t.Helper()
	testkit.Pass(stage.after)
	f.AddPods(3)
	synctest.Wait()
	isWork := func(r fakekube.Request) bool {
		return !isEvent(r) && r.Method+r.Path != "PUT"+LeasePath
	}
	before := len(f.Requests(isWork))
	stopped := time.Now()
	testkit.WantError(t, "the end", p.Stop(), "")
	testkit.WantBetween(t, "time to stop", time.Since(stopped), 0, stage.takes)
	for _, r := range f.Requests(isWork)[before:] {
		t.Errorf("begun after the stop: %s", r)
	}
}

func failureAfterAStop(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Inject(t, fakekube.Fault{
			On:    fakekube.Requests{If: fakekube.IsWrite},
			Delay: 3 * time.Second,
			Do:    fakekube.Reply{Code: 500, Body: "{}"},
		})
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
		stopped := time.Now()
		testkit.WantError(t, "the end", p.Stop(), "")
		testkit.WantEqual(t, "time to stop", time.Since(stopped), 0)
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 1)
	})
}
