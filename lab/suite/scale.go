package suite

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Scale shows what podcount costs: nothing at rest, and little in a large or busy cluster.
var Scale = Topic{
	{"an idle hour costs exactly the expected requests", idleHour},
	{"a thousand events a second cost one write an interval", busyMinute},
	{"at the limits of Kubernetes, memory stays under 60 MB", memoryAtTheLimits},
}

// idleHour accounts for each request of an hour in which nothing changes that podcount looks at. Three times are
// random: how long a watch lasts, when the audit is due, and when the next discovery comes.
func idleHour(t *testing.T, podcount Program) {
	SimulateCase(t, "without an election", func(t *testing.T, f *fakekube.Server) {
		h := podcount.liveAnHour(t, f)
		h.wantIdle()
	})
	SimulateCase(t, "with an election", func(t *testing.T, f *fakekube.Server) {
		h := podcount.liveAnHour(t, f, "-leader-elect")
		h.hasElection = true
		looks := h.wantEvery("GET "+LeasePath, "", 0, 2*time.Hour)
		testkit.WantNumber(t, "looks at the lease", looks, 1)
		h.wantEvery("PUT "+LeasePath, "fieldManager=podcount", 2*time.Second, 2*time.Second)
		h.wantIdle()
	})
}

// hour is an hour of an idle cluster.
type hour struct {
	*testing.T
	start       time.Time
	hasElection bool

	// versions are the resourceVersions of the cluster so far, oldest first, without those of renewals of the Lease.
	versions []versionFrom

	// sent are the requests that are not accounted for yet, by method and path.
	sent map[string][]fakekube.Request
}

// versionFrom is a version that is the newest from a time on.
type versionFrom struct {
	time    time.Time
	version int
}

// liveAnHour runs podcount on an idle cluster.
func (podcount Program) liveAnHour(t *testing.T, f *fakekube.Server, args ...string) *hour {
	t.Helper()
	fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
	f.AddNode("cp", ControlPlane)
	fixture.AddPods(f, 2)
	fixture.AddCount(f, "web", `{"name":"web","count":2}`)
	h := &hour{T: t, start: time.Now(), sent: map[string][]fakekube.Request{}}
	podcount.Start(t, f, args...)
	h.live(f)
	for _, r := range f.Received(fakekube.Requests{}) {
		what := r.Method + " " + r.Path
		h.sent[what] = append(h.sent[what], r)
	}
	return h
}

// live lets 70 minutes pass. Every 30 s, it changes an object that podcount does not look at, so that bookmarks bring
// new versions. No watch ends at one of these times.
func (h *hour) live(f *fakekube.Server) {
	testkit.Pass(500 * time.Millisecond)
	for time.Since(h.start) < 70*time.Minute {
		other := f.Put("namespaces", fakekube.Object{"metadata": fakekube.Object{"name": "default"}})
		version, _ := strconv.Atoi(fakekube.TextIn(fakekube.MetaOf(other), "resourceVersion"))
		h.versions = append(h.versions, versionFrom{time.Now(), version})
		testkit.Pass(30 * time.Second)
	}
}

// wantIdle fails the test unless the remaining requests are exactly those that podcount needs without an election.
func (h *hour) wantIdle() {
	h.Helper()
	h.wantEvery("GET /apis/demo.mark8s.io/v1", "", discoveryInterval*4/5, discoveryInterval*6/5)
	h.wantListsAndWatches("pods", "/api/v1/pods")
	h.wantListsAndWatches("nodes", "/api/v1/nodes")
	h.wantListsAndWatches("counts", "/apis/demo.mark8s.io/v1/counts")

	// At the start, podcount writes the label and the status, and posts three Events on them.
	h.wantAtStart("PATCH /api/v1/nodes/cp", 1)
	h.wantAtStart("PATCH /apis/demo.mark8s.io/v1/namespaces/default/counts/web/status", 1)
	h.wantAtStart("POST /api/v1/namespaces/default/events", 3)
	for what, requests := range h.sent {
		h.Errorf("unexpected: %d × %s, the first at %v", len(requests), what, requests[0].At)
	}
}

// take returns the requests with this method and path, and accounts for them.
func (h *hour) take(what string) []fakekube.Request {
	requests := h.sent[what]
	delete(h.sent, what)
	return requests
}

// wantEvery demands requests from the beginning of the hour to its end. The pauses between them must be from least to
// most. It returns the number of the requests.
func (h *hour) wantEvery(what, query string, least, most time.Duration) int {
	h.Helper()
	requests := h.take(what)
	if len(requests) == 0 {
		h.Errorf("%s: never sent", what)
		return 0
	}
	for i, r := range requests {
		testkit.WantEqual(h, what+": query", r.Query.Encode(), query)
		if i > 0 {
			testkit.WantBetween(h, what+": pause", r.At.Sub(requests[i-1].At), least, most)
		}
	}
	last := requests[len(requests)-1]
	testkit.WantBetween(h, what+": time until the first", requests[0].At.Sub(h.start), 0, time.Second)
	testkit.WantBetween(h, what+": time since the last", time.Since(last.At), 0, most)
	return len(requests)
}

// wantAtStart checks that there are n requests in the first two seconds, and none later.
func (h *hour) wantAtStart(what string, n int) {
	h.Helper()
	requests := h.take(what)
	testkit.WantNumber(h, what, len(requests), n)
	for _, r := range requests {
		testkit.WantBetween(h, what+": time since the start", r.At.Sub(h.start), 0, 2*time.Second)
	}
}

// wantListsAndWatches checks that a resource is listed at the start, audited after an hour, and watched without gaps.
// An audit is a list at exactly the version from which the next watch continues.
func (h *hour) wantListsAndWatches(resource, path string) {
	h.Helper()
	requests := h.take("GET " + path)
	if len(requests) < 9 || fixture.IsWatch(resource)(requests[0]) {
		h.Fatalf("%d requests for %s, the first %s", len(requests), resource, requests[0])
	}
	var lists []time.Time
	watchEnds := requests[0].At

	// A server sends a bookmark two seconds before it ends a watch. A watch that an audit ends had its last bookmark
	// up to a minute before.
	bookmarkAge := time.Minute
	for i, r := range requests {
		if IsList(resource)(r) {
			query := ""
			isAudit := i > 0
			if isAudit {
				next := requests[i+1]
				query = "resourceVersion=" + next.Query.Get("resourceVersion") + "&resourceVersionMatch=Exact"
			}
			testkit.WantEqual(h, "query of a list of "+resource, r.Query.Encode(), query)
			lists = append(lists, r.At)
			watchEnds = r.At
			bookmarkAge = time.Minute
			continue
		}
		if !r.At.Equal(watchEnds) {
			h.Errorf("a watch of %s begins at %v, but the previous one ended at %v", resource, r.At, watchEnds)
		}
		watchEnds = r.At.Add(h.wantWatch(resource, r, bookmarkAge))
		bookmarkAge = 2 * time.Second
	}
	if len(lists) != 2 {
		h.Fatalf("%s were listed %d times, want 2", resource, len(lists))
	}
	testkit.WantBetween(h, "time from the list to the audit of "+resource, lists[1].Sub(lists[0]),
		auditInterval*9/10, auditInterval*11/10)
	if watchEnds.Before(time.Now()) {
		h.Errorf("at the end, there is no watch of %s", resource)
	}
}

// wantWatch checks what a watch asks for. Its version must be that of the last bookmark, which is at most bookmarkAge
// old. It returns how long the watch lasts.
func (h *hour) wantWatch(resource string, r fakekube.Request, bookmarkAge time.Duration) time.Duration {
	h.Helper()
	seconds, _ := strconv.Atoi(r.Query.Get("timeoutSeconds"))
	version, _ := strconv.Atoi(r.Query.Get("resourceVersion"))
	query := "allowWatchBookmarks=true&resourceVersion=%d&timeoutSeconds=%d&watch=1"
	testkit.WantEqual(h, "query of a watch of "+resource, r.Query.Encode(), fmt.Sprintf(query, version, seconds))
	testkit.WantBetween(h, "seconds of a watch of "+resource, seconds, 300, 599)
	if r.At.Sub(h.start) > time.Minute {
		least := h.versionAt(r.At.Add(-bookmarkAge - 1))
		most := h.versionAt(r.At)
		if h.hasElection {
			// The lease is renewed every two seconds, so 15 times between two changes. If that happens in the same
			// moment as the watch ends, the server sends no bookmark then. The last one came a minute before.
			least -= 32
			most += 16
		}
		testkit.WantBetween(h, "version of a watch of "+resource, version, least, most)
	}
	return time.Duration(seconds) * time.Second
}

// versionAt returns the newest version at a time.
func (h *hour) versionAt(at time.Time) int {
	version := h.versions[0].version - 1
	for _, next := range h.versions {
		if !next.time.After(at) {
			version = next.version
		}
	}
	return version
}

func busyMinute(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		nodes := []string{"cp", "w1", "w2", "w3"}
		for _, name := range nodes {
			f.AddNode(name)
		}
		fixture.SetLabel(f, "cp", ControlPlane, "")
		podcount.Start(t, f, "-node-label", OwnPodsLabel, "-v", "0")
		synctest.Wait()
		first := f.Latest()
		for i := range 60_000 / 40 {
			for j := range testkit.Fewer(10) { // each pod comes and changes, and most of them go
				name := fmt.Sprintf("p-%d-%d", i, j)
				f.AddPod("default", name, "")
				f.AddPod("default", name, nodes[rand.IntN(4)])
				if i%50 < 40 {
					f.Remove("pods", At("default", name))
				}
			}
			testkit.Pass(40 * time.Millisecond)
		}
		testkit.WantBetween(t, "events of the watch", f.Latest()-first, testkit.Fewer(50_000), 1_000_000)
		for _, name := range nodes {
			isToNode := func(r fakekube.Request) bool {
				return IsWriteOf("nodes")(r) && strings.HasSuffix(r.Path, "/"+name)
			}
			testkit.WantNumber(t, "writes to "+name, len(fixture.Requests(f, isToNode)), 7)
		}
		testkit.Pass(11 * time.Second) // an interval is enough
		WantLabel(t, f, "cp", TotalLabel, strconv.Itoa(len(f.All("pods"))))
		WantPeace(t, f, "-node-label", OwnPodsLabel)
		testkit.WantNumber(t, "lists of pods", len(fixture.Requests(f, IsList("pods"))), 1)
	})
}

// memoryAtTheLimits runs the binary on as many pods and nodes as Kubernetes itself is made for:
// https://kubernetes.io/docs/setup/best-practices/cluster-large/
func memoryAtTheLimits(t *testing.T, podcount Program) {
	if runtime.GOOS != "linux" || testkit.IsRaced() {
		t.Skip("the test reads memory from /proc, and the race detector needs more of it")
	}
	binary := filepath.Join(t.TempDir(), "podcount")
	out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	limit := 60 << 10
	if testkit.IsSeededByTime() {
		limit += 32 << 10
	}
	for _, row := range []struct {
		name string
		args []string
	}{
		{"by default", nil},
		{"with JSON", []string{"-wire", "json"}},
		{"with a label on each node", []string{"-node-label", OwnPodsLabel}},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := &Crowd{Pods: 150000, Nodes: 5000}
			cmd := exec.Command(binary, append(c.Serve(t), row.args...)...)
			start := time.Now()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill() })
			select {
			case total := <-c.Patched:
				testkit.WantEqual(t, "the label", total, "150000")
			case <-time.After(time.Minute):
				t.Fatal("no label within a minute")
			}
			took := time.Since(start).Round(10 * time.Millisecond)
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			peak := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
			kB, err := strconv.Atoi(string(peak[1]))
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantBetween(t, "kB at the peak", kB, 1, limit)
			t.Logf("%d kB at the peak, the label after %v", kB, took)
			cmd.Process.Signal(os.Interrupt)
			testkit.WantError(t, "the end", cmd.Wait(), "")
		})
	}
}
