package suite

import (
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Stop shows how podcount stops after a signal.
var Stop = Topic{
	{"a stop finishes writes in flight and posts waiting Events", stopFinishesWrites},
	{"a stop does not wait long for Events", stopLimitsEvents},
	{"a stop at any stage is prompt and begins nothing more", stopAtAnyStage},
	{"a write that fails after a stop is reported", failureAfterAStop},
	{"a stop does not wait for -qps", stopIgnoresQPS},
}

func stopFinishesWrites(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Script(t, "write nodes: delay 3s")
		p := podcount.Start(t, f)
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "-") // the write is in flight
		testkit.WantError(t, "the stop", p.Stop(), "")
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
		testkit.WantError(t, "the stop", p.Stop(), "")
		testkit.WantEqual(t, "time to stop", time.Since(stopped), eventsTimeout)
	})
}

func stopAtAnyStage(t *testing.T, podcount Program) {
	for _, row := range []struct {
		name    string
		faults  string        // what the fake does, in the text form of its faults
		after   time.Duration // how long podcount has run when it is stopped
		mayTake time.Duration // how long the stop may take
	}{
		{"with no server", "list pods|nodes, always: drop request", 20 * time.Second, 0},
		{"before the first list", "list pods|nodes, always: stall", 0, 0},
		{"in the first list", "list pods|nodes, always: hang after 40 bytes", 0, 0},
		{"in one of the first lists", "list nodes, always: hang after 40 bytes", 0, 0},
		{"in the backoff of a list", "list pods|nodes, always: refuse 500", 20 * time.Second, 0},
		{"at rest", "", 20 * time.Second, 0},
		{"in the backoff of a watch", "watch pods, always: refuse 500", 20 * time.Second, 0},
		{"in a write", "write nodes, always: delay 3s", 0, 3 * time.Second},
		{"in a write that is not answered", "write nodes, always: stall", 0, drainTimeout},
		{"in the backoff of a write", "write nodes, always: refuse 500", 20 * time.Second, 0},
		{"in the Retry-After of a write", "write nodes, always: refuse 429 retry-after 30s", 20 * time.Second, 0},
		{"between two writes of a node", "", 1500 * time.Millisecond, 0},
		{"in an Event", "write events, always: stall", time.Second, eventsTimeout},
	} {
		SimulateCase(t, row.name, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			fixture.AddPods(f, 2)
			faults := f.Script(t, row.faults)
			p := podcount.Start(t, f)
			testkit.Pass(row.after)
			wantPromptStop(t, f, p, row.mayTake)

			// The next podcount makes everything right.
			for _, fault := range faults {
				fault.Lift()
			}
			fixture.AddPods(f, 4)
			podcount.Start(t, f)
			WantPeace(t, f)
		})
	}
}

// wantPromptStop gives podcount something to write, stops it at once, and checks how long the stop takes. From then on,
// podcount must not begin anything except to post Events and to release the lease.
func wantPromptStop(t *testing.T, f *fakekube.Server, p *Process, mayTake time.Duration) {
	t.Helper()
	isWork := func(r fakekube.Request) bool {
		isLeaseUpdate := r.Method == "PUT" && r.Path == LeasePath
		return !isEvent(r) && !isLeaseUpdate
	}
	fixture.AddPods(f, 3)
	synctest.Wait()
	before := len(fixture.Requests(f, isWork))
	stopped := time.Now()
	testkit.WantError(t, "the stop", p.Stop(), "")
	testkit.WantBetween(t, "time to stop", time.Since(stopped), 0, mayTake)
	for _, r := range fixture.Requests(f, isWork)[before:] {
		t.Errorf("begun after the stop: %s", r)
	}
}

func failureAfterAStop(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Script(t, "write nodes: delay 3s, reply 500 body {}")
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
		synctest.Wait() // the second write waits for 100 s
		stopped := time.Now()
		testkit.WantError(t, "the stop", p.Stop(), "")
		testkit.WantEqual(t, "time to stop", time.Since(stopped), 0)
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 1)
	})
}
