package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/options"
	"podcount/internal/testkit"
)

// Election shows what replicas do as leaders, and while another one leads. What a Lease looks like, and when it is
// taken and released, is shown by the tests of package leader.
var Election = Topic{
	{"of three replicas one writes; the others keep caches warm", oneOfThree},
	{"replicas that start together spread their requests", twentyReplicas},
	{"the lease names the host of its holder", leaseNamesHost},
	{"flags say where the lease is, and how long it lasts", leaseFlags},
	{"a leader that cannot renew exits, and another leads", leaderCannotRenew},
	{"a killed leader is followed within 24 s", killedLeader},
	{"a leader whose lease is taken stops at once", leaseTaken},
	{"without the lease nothing is sent", nothingWithoutLease},
	{"a leader releases its lease after its last write", releaseAfterLastWrite},
	{"a release is given up when there is no more time", releaseGivenUp},
	{"a standby stops at once", standbyStops},
}

// leaderAt returns the name of the replica that has sent the newest write, except those to the Lease.
func leaderAt(f *fakekube.Server) string {
	writes := f.Requests(isWorkOfLeader)
	if len(writes) == 0 {
		return "nobody"
	}
	return strings.TrimSuffix(writes[len(writes)-1].Host, ":1")
}

// isWorkOfLeader matches what only the leader may send.
func isWorkOfLeader(r fakekube.Request) bool {
	return r.Method != "GET" && !strings.Contains(r.Path, "/leases/")
}

// wantOneLeader fails the test for each write that was sent by a replica that did not hold the lease at that time. It
// works that out from the requests and the changes that the fake has seen.
func wantOneLeader(t *testing.T, f *fakekube.Server) {
	t.Helper()
	const renewDeadline = 10 * time.Second
	wasStored := storedLeases(f)
	var newest fakekube.Request // the newest request that has renewed the lease
	for _, r := range f.Requests(All) {
		if r.Method == "PUT" && r.Path == LeasePath && wasStored[renewalIn(r)] {
			newest = r
		}
		if !isWorkOfLeader(r) {
			continue
		}
		isHeld := newest.Host == r.Host && r.At.Sub(newest.At) < renewDeadline
		if !isHeld {
			t.Errorf("%s wrote %s at %s, but the newest renewal was by %q at %s",
				r.Host, r.Path, r.At.Format("15:04:05.000"), newest.Host, newest.At.Format("15:04:05.000"))
		}
	}
}

// renewal is what a request, or a change of the Lease, says about its holder.
type renewal struct{ HolderIdentity, RenewTime string }

func renewalIn(put fakekube.Request) renewal {
	var lease struct{ Spec renewal }
	json.Unmarshal([]byte(put.Body), &lease)
	return lease.Spec
}

// storedLeases returns the renewals that the server has accepted, without the releases.
func storedLeases(f *fakekube.Server) map[renewal]bool {
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

// addNewPod adds a pod with a name that it has not used before. Time must pass between two calls.
func addNewPod(f *fakekube.Server) {
	f.AddPod("default", fmt.Sprint("p", time.Now().UnixNano()), "")
}

// lastsUntil adds a pod and lets step pass, again and again, until isTrue. It fails the test after limit.
func lastsUntil(t *testing.T, f *fakekube.Server, step, limit time.Duration, what string, isTrue func() bool) {
	t.Helper()
	start := time.Now()
	for !isTrue() {
		if time.Since(start) > limit {
			t.Fatalf("within %v, this did not happen: %s", limit, what)
		}
		addNewPod(f)
		testkit.Pass(step)
	}
}

func oneOfThree(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.AddCount("web", `{"name":"web","count":1}`)
		replicas := map[string]*Process{}
		for _, name := range []string{"a", "b", "c"} {
			replicas[name] = podcount.StartReplica(t, f, name)
		}
		testkit.Pass(time.Minute)
		first := leaderAt(f)
		for range 30 {
			addNewPod(f)
			testkit.Pass(2 * time.Second)
		}
		WantLabel(t, f, "cp", TotalLabel, "30")
		testkit.WantText(t, f.CountStatus("web"), "false 30 1")
		testkit.WantEqual(t, "the leader a minute later", leaderAt(f), first)
		for name, p := range replicas {
			wantWarmCache(t, f, name)
			standsBy := 1
			if name == first {
				standsBy = 0
			}
			lines := p.Logged("standing by")
			testkit.WantNumber(t, "log lines of "+name+" on the holder", lines, standsBy)
		}

		stopped := time.Now()
		if err := replicas[first].Stop(); err != nil {
			t.Error(err)
		}
		testkit.WantText(t, replicas[first].Log.String(), "the lease is released")
		testkit.WantEqual(t, "the holder after the release", fakekube.TextIn(LeaseNow(f), "holderIdentity"), "")
		testkit.WantEqual(t, "the duration after the release", LeaseNow(f)["leaseDurationSeconds"], 1.0)
		f.AddPod("default", "last", "")
		for f.Label("cp", TotalLabel) != "31" {
			testkit.Pass(100 * time.Millisecond)
			if time.Since(stopped) > 5*time.Second {
				t.Fatal("no other replica has taken over within 5 s")
			}
		}
		second := leaderAt(f)
		if second == first {
			t.Errorf("%s has stopped and still leads", first)
		}
		testkit.WantEqual(t, "the transitions", LeaseNow(f)["leaseTransitions"], 1.0)
		wantPromptStart(t, f, second)
		wantOneLeader(t, f)
	})
}

// wantWarmCache fails the test unless a replica has listed the pods exactly once.
func wantWarmCache(t *testing.T, f *fakekube.Server, name string) {
	t.Helper()
	lists := f.Requests(func(r fakekube.Request) bool { return r.Host == name+":1" && IsList("pods")(r) })
	testkit.WantNumber(t, "lists of pods by "+name, len(lists), 1)
}

// wantPromptStart fails the test unless the leader has written within a second after it was elected.
func wantPromptStart(t *testing.T, f *fakekube.Server, leader string) {
	t.Helper()
	elected, err := time.Parse(time.RFC3339, fakekube.TextIn(LeaseNow(f), "acquireTime"))
	if err != nil {
		t.Fatal(err)
	}
	writes := f.Requests(func(r fakekube.Request) bool { return r.Host == leader+":1" && IsWriteOf("nodes")(r) })
	if took := writes[0].At.Sub(elected); took > time.Second {
		t.Errorf("the new leader first wrote %v after its election, want at most 1s", took)
	}
}

// Replicas start together when a machine comes back, or when a deployment is scaled up.
func twentyReplicas(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		start := time.Now()
		for i := range 20 {
			podcount.StartReplica(t, f, fmt.Sprint("r", i))
		}
		testkit.Pass(2 * time.Second)
		first := map[string]time.Duration{} // after the start, by host
		for _, r := range f.Requests(All) {
			if _, isKnown := first[r.Host]; !isKnown {
				first[r.Host] = r.At.Sub(start)
			}
		}
		at := slices.Sorted(maps.Values(first))
		if len(at) != 20 {
			t.Fatalf("%d replicas have sent requests, want 20", len(at))
		}
		for i := range 10 {
			if at[i+10]-at[i] < 100*time.Millisecond { // once in 10,000 runs if the times are random
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

func leaseNamesHost(t *testing.T, podcount Program) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		podcount.StartReplica(t, f, "a")
		testkit.Pass(time.Second)
		holder := fakekube.TextIn(LeaseNow(f), "holderIdentity")
		if !strings.HasPrefix(holder, host+"_") {
			t.Errorf("the holder is %s, want %s_…", holder, host)
		}
	})
}

func leaseFlags(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		podcount.StartReplica(t, f, "a",
			"-leader-elect-resource-name", "team-a.podcount",
			"-leader-elect-resource-namespace", "default",
			"-leader-elect-lease-duration", "60s",
			"-leader-elect-renew-deadline", "40s",
			"-leader-elect-retry-period", "15s",
		)
		testkit.Pass(46 * time.Second)
		spec, _ := f.Get("leases", At("default", "team-a.podcount"))["spec"].(fakekube.Object)
		testkit.WantEqual(t, "the duration", spec["leaseDurationSeconds"], 60.0)
		testkit.WantText(t, fakekube.TextIn(spec, "renewTime"), "2000-01-01T00:00:45.")
	})
}

func leaderCannotRenew(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		replicas := map[string]*Process{
			"a": podcount.StartReplica(t, f, "a"),
			"b": podcount.StartReplica(t, f, "b"),
		}
		testkit.Pass(30 * time.Second)
		first := leaderAt(f)
		f.Script(t, "update * at "+first+":1: stall")
		f.Script(t, "* leases at "+first+":1: reply 500 body \"{}\"")
		for range 12 {
			addNewPod(f)
			testkit.Pass(time.Second)
		}
		f.CutOff(first+":1", true)
		lastsUntil(t, f, 200*time.Millisecond, 28*time.Second, "another replica takes over", func() bool {
			return leaderAt(f) != first
		})

		err := replicas[first].Stop()
		if err == nil || errors.As(err, new(options.UsageError)) {
			t.Fatalf("the old leader ended with %v, want an error that is no usage error", err)
		}
		testkit.WantText(t, err.Error(), "the lease is lost: ")
		if strings.Contains(replicas[first].Log.String(), "the lease is released") {
			t.Error("the old leader has released the lease that it had lost")
		}
		wantOneLeader(t, f)
	})
}

func killedLeader(t *testing.T, podcount Program) {
	for range 10 {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			podcount.StartReplica(t, f, "a")
			podcount.StartReplica(t, f, "b")
			testkit.Pass(30*time.Second + rand.N(10*time.Second))
			first := leaderAt(f)
			f.CutOff(first+":1", true)
			killed := time.Now()
			f.AddPod("default", "p", "")
			for f.Label("cp", TotalLabel) != "1" {
				testkit.Pass(50 * time.Millisecond)
				if time.Since(killed) > 24*time.Second {
					t.Fatal("no other replica has taken over within 24 s")
				}
			}
			if leaderAt(f) == first {
				t.Error("the killed replica has written")
			}
			wantOneLeader(t, f)
		})
	}
}

func leaseTaken(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		p := podcount.StartReplica(t, f, "a")
		testkit.Pass(10 * time.Second)
		f.PutJSON("leases", `{
			"metadata": {"namespace": "kube-system", "name": "podcount"},
			"spec": {"holderIdentity": "other", "leaseDurationSeconds": 15}
		}`)
		testkit.Pass(5 * time.Second)
		f.AddPods(3)
		testkit.Pass(10 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "0")
		err := p.Stop()
		if err == nil {
			t.Fatal("podcount ended without an error")
		}
		testkit.WantText(t, err.Error(), `the lease is lost: it is held by "other"`)
		testkit.WantEqual(t, "the holder", fakekube.TextIn(LeaseNow(f), "holderIdentity"), "other")
	})
}

// The write in flight is cut off when the lease is lost, and no Event is sent either.
func nothingWithoutLease(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		p := podcount.StartReplica(t, f, "a", "-pod-events", "on")
		testkit.Pass(10 * time.Second)
		isStalled := make(chan struct{}, 1)
		f.Inject(t, fakekube.Fault{
			On:  fakekube.Requests{Verb: "write", Resource: "nodes"},
			Met: func(fakekube.Request) { isStalled <- struct{}{} },
			Do:  fakekube.Stall{},
		})
		f.AddPods(1)
		<-isStalled
		f.Script(t, `* leases, 4 times: reply 503 body "{}"`)
		lastsUntil(t, f, 100*time.Millisecond, 11*time.Second, "podcount stops", func() bool {
			return strings.Contains(p.Log.String(), "podcount stopped")
		})
		wantOneLeader(t, f)
	})
}

func releaseAfterLastWrite(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		p := podcount.StartReplica(t, f, "a", "-pod-events", "on")
		testkit.Pass(10 * time.Second)
		isSent := make(chan struct{}, 1)
		f.Inject(t, fakekube.Fault{
			On:    fakekube.Requests{Verb: "write", Resource: "nodes"},
			Delay: 8 * time.Second, // longer than from one renewal to the next
			Met:   func(fakekube.Request) { isSent <- struct{}{} },
		})
		f.AddPods(5)
		<-isSent
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if f.Label("cp", TotalLabel) == "0" {
			t.Error("the write in flight was not finished")
		}
		requests := f.Requests(All)
		last := requests[len(requests)-1]
		isRelease := last.Method == "PUT" && strings.Contains(last.Body, `"holderIdentity":""`)
		if !isRelease {
			t.Errorf("the last request was %v, want a release", last)
		}
		wantOneLeader(t, f)
	})
}

func releaseGivenUp(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		p := podcount.StartReplica(t, f, "a")
		testkit.Pass(10 * time.Second)
		f.CutOff("a:1", true)
		stopped := time.Now()
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(stopped); took > 6*time.Second {
			t.Errorf("podcount stopped after %v, want at most 6s", took)
		}
	})
}

func standbyStops(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		podcount.StartReplica(t, f, "a")
		testkit.Pass(time.Second)
		holder := fakekube.TextIn(LeaseNow(f), "holderIdentity")
		standby := podcount.StartReplica(t, f, "b")
		testkit.Pass(time.Minute)
		stopped := time.Now()
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
		testkit.WantEqual(t, "the time that the stop took", time.Since(stopped), 0)
		writes := f.Requests(func(r fakekube.Request) bool { return r.Host == "b:1" && r.Method != "GET" })
		testkit.WantNumber(t, "writes by the standby", len(writes), 0)
		testkit.WantEqual(t, "the holder", fakekube.TextIn(LeaseNow(f), "holderIdentity"), holder)
	})
}
