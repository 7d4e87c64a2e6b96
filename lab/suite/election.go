package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/run/options"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Election shows how replicas share the work: one leads, and the others stand by. The tests of package leader show what
// the Lease looks like, and when it is acquired and released.
var Election = Topic{
	{"a leader that stops hands over within 5 s", handover},
	{"replicas that start together spread their requests", twentyReplicas},
	{"a leader that cannot renew exits, and another leads", leaderCannotRenew},
	{"a killed leader is replaced within 24 s", killedLeader},
	{"without the lease nothing is sent", nothingWithoutLease},
	{"a leader releases its lease after its last write", releaseAfterLastWrite},
	{"a leader releases its lease after its last Event", releaseAfterLastEvent},
	{"a new leader writes nothing from an old cache", oldCacheIsNotWritten},
	{"a new leader waits for a list, keeps the lease and says why", leaderWithoutLists},
	{"a new leader does not wait for a CRD that is gone", leaderWithoutCRD},
	{"a new leader that waits for its caches stops at once", waitingLeaderStops},
}

// handover shows that the next leader need not wait until the lease expires, because the old one releases it.
func handover(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		replicas := podcount.startReplicas(t, f, "a", "b", "c")
		testkit.Pass(time.Minute)
		first := leaderNow(f)
		testkit.WantError(t, "the stop", replicas[first].Stop(), "")
		testkit.WantText(t, replicas[first].Log.String(), "the lease is released")
		testkit.WantEqual(t, "the holder after the release", holderNow(f), "")
		testkit.WantEqual(t, "the duration after the release", LeaseNow(f)["leaseDurationSeconds"], 1.0)

		fixture.AddPods(f, 1)
		wantTotalWithin(t, f, "1", 5*time.Second)
		second := leaderNow(f)
		if second == first {
			t.Errorf("%s has stopped and still leads", first)
		}
		testkit.WantEqual(t, "the transitions", LeaseNow(f)["leaseTransitions"], 1.0)
		wantPromptStart(t, f, second)
		wantOneLeader(t, f)
	})
}

// wantPromptStart fails the test unless the leader has written within a second after its election.
func wantPromptStart(t *testing.T, f *fakekube.Server, leader string) {
	t.Helper()
	elected, err := time.Parse(time.RFC3339, fakekube.TextIn(LeaseNow(f), "acquireTime"))
	if err != nil {
		t.Fatal(err)
	}
	writes := f.Received(fakekube.Requests{Host: hostOf(leader), If: IsWriteOf("nodes")})
	if len(writes) == 0 {
		t.Fatalf("the leader %s has written nothing", leader)
	}
	testkit.WantBetween(t, "time from the election to the first write", writes[0].At.Sub(elected), 0, time.Second)
}

// twentyReplicas shows what happens when a machine comes back, or when a Deployment is scaled up.
func twentyReplicas(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		start := time.Now()
		for i := range 20 {
			podcount.StartReplica(t, f, fmt.Sprint("r", i))
		}
		testkit.Pass(2 * time.Second)
		firstRequest := map[string]time.Duration{} // since the start, by host
		for _, r := range f.Received(fakekube.Requests{}) {
			if _, isKnown := firstRequest[r.Host]; !isKnown {
				firstRequest[r.Host] = r.At.Sub(start)
			}
		}
		at := slices.Sorted(maps.Values(firstRequest))
		if len(at) != 20 {
			t.Fatalf("%d replicas have sent requests, want 20", len(at))
		}
		for i := range 10 {
			// At random times, this happens once in 10,000 runs.
			if at[i+10]-at[i] < 100*time.Millisecond {
				t.Fatalf("half of the replicas sent their first requests within 100 ms: %v", at)
			}
		}
		isSpread := at[0] <= 500*time.Millisecond && at[19] <= time.Second && at[19]-at[0] >= 500*time.Millisecond
		if !isSpread {
			t.Errorf("the first requests came from %v to %v after the start", at[0], at[19])
		}
		WantPeace(t, f, "-interval", "1s")
		wantOneLeader(t, f)
	})
}

func leaderCannotRenew(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		replicas := podcount.startReplicas(t, f, "a", "b")
		testkit.Pass(30 * time.Second)
		first := leaderNow(f)
		f.Script(t, "update * at "+hostOf(first)+": stall")
		f.Script(t, "* leases at "+hostOf(first)+": reply 500 body {}")
		for range 12 {
			addNewPod(f)
			testkit.Pass(time.Second)
		}
		f.CutOff(hostOf(first))
		addPodsUntil(t, f, 200*time.Millisecond, 28*time.Second, "another replica leads", func() bool {
			return leaderNow(f) != first
		})

		err := replicas[first].Stop()
		testkit.WantError(t, "the old leader", err, "the lease is lost: ")
		if errors.As(err, new(options.UsageError)) {
			t.Error("the old leader has reported wrong usage")
		}
		testkit.WantNumber(t, "releases by the old leader", replicas[first].Logged("the lease is released"), 0)
		wantOneLeader(t, f)
	})
}

func killedLeader(t *testing.T, podcount Program) {
	for range 10 {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			podcount.startReplicas(t, f, "a", "b")
			testkit.Pass(30*time.Second + rand.N(10*time.Second))
			first := leaderNow(f)
			f.CutOff(hostOf(first))
			fixture.AddPods(f, 1)
			wantTotalWithin(t, f, "1", 24*time.Second)
			if leaderNow(f) == first {
				t.Error("the killed replica has written")
			}
			wantOneLeader(t, f)
		})
	}
}

// nothingWithoutLease shows that podcount breaks off the write in flight when it loses the lease, and posts no Event
// either.
func nothingWithoutLease(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		p := podcount.leaderInAWrite(t, f, "write nodes: stall")
		f.Script(t, "* leases, 4 times: reply 503 body {}")
		addPodsUntil(t, f, 100*time.Millisecond, 11*time.Second, "podcount stops", func() bool {
			return p.Logged("podcount stopped") > 0
		})
		wantOneLeader(t, f)
	})
}

// releaseAfterLastWrite stops a leader during a write that takes longer than the time between two renewals.
func releaseAfterLastWrite(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		p := podcount.leaderInAWrite(t, f, "write nodes: delay 8s")
		testkit.WantError(t, "the stop", p.Stop(), "")
		WantLabel(t, f, "cp", TotalLabel, "1")
		requests := f.Received(fakekube.Requests{})
		last := requests[len(requests)-1]
		isRelease := last.Method == "PUT" && strings.Contains(last.Body, `"holderIdentity":""`)
		if !isRelease {
			t.Errorf("the last request was %v, want a release", last)
		}
		wantOneLeader(t, f)
	})
}

func releaseAfterLastEvent(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		p := podcount.leaderInAWrite(t, f, "write nodes: delay 1s")
		f.Script(t, "create events, always: delay 2s")
		testkit.WantError(t, "the stop", p.Stop(), "")
		requests := f.Received(fakekube.Requests{})
		release := requests[len(requests)-1]
		testkit.WantText(t, release.Body, `"holderIdentity":""`)
		posted := 0
		for _, r := range fixture.Requests(f, isEvent) {
			if r.Method == "POST" && r.At.Before(release.At.Add(-2*time.Second+1)) {
				posted++
			}
		}
		testkit.WantNumber(t, "Events that were posted before the release", posted, len(f.All("events")))
		testkit.WantBetween(t, "Events", posted, 2, 4) // on the pod, and on the node after each write
	})
}

// leaderInAWrite starts a replica, lets it become the leader, and returns while its write of the total 1 is in flight.
// fault, in the text form of the fake's faults, keeps the write there.
func (podcount Program) leaderInAWrite(t *testing.T, f *fakekube.Server, fault string) *Process {
	t.Helper()
	f.AddNode("cp", ControlPlane)
	p := podcount.StartReplica(t, f, "a", "-pod-events", "on")
	testkit.Pass(10 * time.Second)
	injected := f.Script(t, fault)[0]
	fixture.AddPods(f, 1)
	synctest.Wait()
	testkit.WantNumber(t, "writes in flight", injected.Used(), 1)
	return p
}

// oldCacheIsNotWritten shows that a replica whose watches cannot be opened does not write what they showed last. The
// label is right all the time, so the new leader must not write it.
func oldCacheIsNotWritten(t *testing.T, podcount Program) {
	for _, resources := range []string{"pods", "nodes", "pods|nodes"} {
		SimulateCase(t, "the watches of "+resources+" are refused", func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			first, second := podcount.startTwo(t, f)
			refused := f.Script(t, "watch "+resources+" at b:1, always: refuse 503")
			f.BreakWatches()
			testkit.Pass(2 * time.Minute)
			fixture.AddPods(f, 3)
			testkit.Pass(2 * time.Second)
			WantLabel(t, f, "cp", TotalLabel, "3")

			first.Stop()
			awaitLog(t, second, time.Minute+24*time.Second, "work begins")
			testkit.Pass(time.Minute)
			writes := f.Received(fakekube.Requests{Host: "b:1", If: IsWriteOf("nodes")})
			testkit.WantNumber(t, "needless writes by the new leader", len(writes), 0)
			for _, fault := range refused {
				fault.Lift()
			}
			fixture.AddPods(f, 4)
			WantPeace(t, f, "-interval", "1s")
			wantOneLeader(t, f)
		})
	}
}

// leaderWithoutLists shows a new leader that may no longer list.
func leaderWithoutLists(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		first, second := podcount.startTwo(t, f)
		refused := f.Script(t, "list pods at b:1, always: refuse 403")[0]
		first.Stop()
		fixture.AddPods(f, 1)
		testkit.Pass(40 * time.Minute)
		testkit.WantNumber(t, "controllers that work", second.Logged("work begins"), 0)
		testkit.WantText(t, second.Log.String(), `level=WARN msg="cannot confirm the cache" kind=Pod`)
		testkit.WantBetween(t, "warnings in 40 minutes", second.Logged("level=WARN"), 2, 41)
		testkit.WantNumber(t, "releases", second.Logged("the lease is released"), 0)
		testkit.WantNumber(t, "elections", second.Logged("elected: this replica leads"), 1)
		refused.Lift()
		WantPeace(t, f, "-interval", "1s")
		isConfirmed := regexp.MustCompile(`Pod: the cache is confirmed after (39|4\d)m`).MatchString(second.Log.String())
		testkit.WantEqual(t, "the log says when the cache is confirmed", isConfirmed, true)
		wantOneLeader(t, f)
	})
}

// leaderWithoutCRD removes the CRD while the replica stands by. It has noticed that, or not yet, when it is elected.
func leaderWithoutCRD(t *testing.T, podcount Program) {
	for _, after := range []time.Duration{time.Second, time.Minute} {
		SimulateCase(t, fmt.Sprint(after, " after the removal"), func(t *testing.T, f *fakekube.Server) {
			fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
			f.AddNode("cp", ControlPlane)
			fixture.AddCount(f, "web", `{"name":"web","count":1}`)
			first, second := podcount.startTwo(t, f)
			fixture.InstallCRD(f, nil)
			testkit.Pass(after)
			first.Stop()
			fixture.AddPods(f, 1)
			testkit.Pass(time.Minute)
			WantLabel(t, f, "cp", TotalLabel, "1")
			testkit.WantNumber(t, "controllers that work", second.Logged("work begins"), 2)
			fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
			fixture.AddCount(f, "web", `{"name":"web","count":1}`)
			WantPeace(t, f, "-interval", "1s")
			testkit.WantText(t, fixture.CountStatus(f, "web"), "true 1 1")
		})
	}
}

func waitingLeaderStops(t *testing.T, podcount Program) {
	for _, fault := range []string{
		"list pods at b:1, always: stall",
		"list pods at b:1, always: refuse 503",
		"list nodes at b:1, skip 1, always: stall",
	} {
		SimulateCase(t, fault, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			first, second := podcount.startTwo(t, f)
			f.Script(t, fault)
			first.Stop()
			awaitLog(t, second, 5*time.Second, "elected: this replica leads")
			testkit.Pass(8 * time.Second)
			testkit.WantNumber(t, "controllers that work", second.Logged("work begins"), 0)
			wantPromptStop(t, f, second, 0)
			testkit.WantText(t, second.Log.String(), "the lease is released")
		})
	}
}

// startTwo starts two replicas, and returns them half a minute later, long before the next bookmark. The first one, a,
// leads.
func (podcount Program) startTwo(t *testing.T, f *fakekube.Server) (leader, standby *Process) {
	t.Helper()
	leader = podcount.StartReplica(t, f, "a")
	testkit.Pass(2 * time.Second)
	standby = podcount.StartReplica(t, f, "b")
	testkit.Pass(30 * time.Second)
	testkit.WantNumber(t, "log lines of b that it stands by", standby.Logged("standing by"), 1)
	return leader, standby
}

// awaitLog lets time pass until a process has logged a text. It ends the test if that takes longer than limit.
func awaitLog(t *testing.T, p *Process, limit time.Duration, text string) {
	t.Helper()
	start := time.Now()
	for p.Logged(text) == 0 {
		testkit.Pass(50 * time.Millisecond)
		if time.Since(start) > limit {
			t.Fatalf("podcount has not logged %q within %v", text, limit)
		}
	}
}

// startReplicas starts several replicas, and returns them by name.
func (podcount Program) startReplicas(t *testing.T, f *fakekube.Server, names ...string) map[string]*Process {
	t.Helper()
	replicas := map[string]*Process{}
	for _, name := range names {
		replicas[name] = podcount.StartReplica(t, f, name)
	}
	return replicas
}

// leaderNow returns the name of the replica that has sent the newest write other than to the Lease.
func leaderNow(f *fakekube.Server) string {
	writes := fixture.Requests(f, onlyLeaderMaySend)
	if len(writes) == 0 {
		return "nobody"
	}
	return strings.TrimSuffix(writes[len(writes)-1].Host, ":1")
}

// onlyLeaderMaySend matches the requests that need the lease: all writes except those of the Lease itself.
func onlyLeaderMaySend(r fakekube.Request) bool {
	return r.Method != "GET" && !strings.Contains(r.Path, "/leases/")
}

// addNewPod adds a pod with an unused name, which is the virtual time. Time must pass between two calls.
func addNewPod(f *fakekube.Server) {
	f.AddPod("default", fmt.Sprint("p", time.Now().UnixNano()), "")
}

// addPodsUntil adds a pod and lets step pass, again and again, until isReached. If that takes longer than limit, the
// test ends with the event that was awaited.
func addPodsUntil(t *testing.T, f *fakekube.Server, step, limit time.Duration, event string, isReached func() bool) {
	t.Helper()
	start := time.Now()
	for !isReached() {
		if time.Since(start) > limit {
			t.Fatalf("this did not happen within %v: %s", limit, event)
		}
		addNewPod(f)
		testkit.Pass(step)
	}
}

// wantTotalWithin lets time pass until the node cp shows a total. It ends the test if that takes longer than limit.
func wantTotalWithin(t *testing.T, f *fakekube.Server, total string, limit time.Duration) {
	t.Helper()
	start := time.Now()
	for fixture.Label(f, "cp", TotalLabel) != total {
		testkit.Pass(50 * time.Millisecond)
		if time.Since(start) > limit {
			t.Fatalf("no replica has written the total %s within %v", total, limit)
		}
	}
}

// wantOneLeader fails the test for each write by a replica that did not hold the lease at that time. It derives the
// holder from the requests and the changes that the fake has recorded.
func wantOneLeader(t *testing.T, f *fakekube.Server) {
	t.Helper()
	const renewDeadline = 10 * time.Second
	wasStored := storedRenewals(f)
	var newest fakekube.Request // the newest request that has renewed the lease
	for _, r := range f.Received(fakekube.Requests{}) {
		if r.Method == "PUT" && r.Path == LeasePath && wasStored[renewalIn(r)] {
			newest = r
		}
		if !onlyLeaderMaySend(r) {
			continue
		}
		isHeld := newest.Host == r.Host && r.At.Sub(newest.At) < renewDeadline
		if !isHeld {
			t.Errorf("%s wrote %s at %s, but the newest renewal was by %q at %s",
				r.Host, r.Path, r.At.Format("15:04:05.000"), newest.Host, newest.At.Format("15:04:05.000"))
		}
	}
}

// renewal identifies one renewal of the Lease. The JSON names of its fields are those of a Lease's spec.
type renewal struct{ HolderIdentity, RenewTime string }

func renewalIn(put fakekube.Request) renewal {
	var lease struct{ Spec renewal }
	json.Unmarshal([]byte(put.Body), &lease)
	return lease.Spec
}

// storedRenewals returns the renewals that the server has accepted. It leaves out releases.
func storedRenewals(f *fakekube.Server) map[renewal]bool {
	stored := map[renewal]bool{}
	for _, change := range f.Changes() {
		spec, _ := change.New["spec"].(fakekube.Object)
		holder := fakekube.TextIn(spec, "holderIdentity")
		if change.Resource == "leases" && holder != "" {
			stored[renewal{holder, fakekube.TextIn(spec, "renewTime")}] = true
		}
	}
	return stored
}
