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

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// Scale shows what podcount costs: nothing at rest, and little in a large or busy cluster.
var Scale = Topic{
	{"an idle hour is exactly the expected requests", idleHour},
	{"a thousand events a second cost one write an interval", busyMinute},
	{"five thousand changed nodes are right within the bound", fiveThousandNodes},
	{"at the limits of Kubernetes, memory stays under 60 MB", memoryAtTheLimits},
}

// An hour, and what goes with it: each request is accounted for. Drawn by lot are how long a watch lasts, when the hourly
// list is due, and when discovery is asked again.
func idleHour(t *testing.T, podcount Program) {
	for _, args := range [][]string{nil, {"-leader-elect"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.InstallCRD(&fakekube.CRD{HasStatus: true})
				f.AddNode("cp", ControlPlane)
				f.AddPods(2)
				f.AddCount("web", `{"name":"web","count":2}`)
				start := time.Now()
				podcount.Start(t, f, args...)
				type change struct {
					at      time.Time
					version int
				}
				var changes []change                                                                                           // of what podcount does not look at: so that bookmarks have something to tell
				for testkit.Pass(500 * time.Millisecond); time.Since(start) < 70*time.Minute; testkit.Pass(30 * time.Second) { // when no watch ends
					other := f.Put("namespaces", fakekube.Object{"metadata": fakekube.Object{"name": "default"}})
					version, _ := strconv.Atoi(fakekube.TextIn(fakekube.MetaOf(other), "resourceVersion"))
					changes = append(changes, change{time.Now(), version})
				}
				sent := map[string][]fakekube.Request{}
				for _, s := range f.Requests(All) {
					what := s.Method + " " + s.Path
					sent[what] = append(sent[what], s)
				}
				// take removes the requests of one kind, and fails the test if one is not from to to after the one before.
				take := func(what, query string, from, to time.Duration) (all []fakekube.Request) {
					all = sent[what]
					delete(sent, what)
					for i, s := range all {
						if got := s.Query.Encode(); got != query {
							t.Errorf("%s with %q, want %q", what, got, query)
						}
						if i > 0 && (s.At.Sub(all[i-1].At) < from || s.At.Sub(all[i-1].At) > to) {
							t.Errorf("%s %v after the one before, want %v to %v", what, s.At.Sub(all[i-1].At),
								from, to)
						}
					}
					if len(all) == 0 || all[0].At.Sub(start) > time.Second || time.Since(all[len(all)-1].At) > to {
						t.Errorf("%s: %d of them, not from beginning to end", what, len(all))
					}
					return all
				}
				take("GET /apis/demo.mark8s.io/v1", "", discoveryInterval*4/5, discoveryInterval*6/5)
				leased := 0
				if args != nil {
					testkit.WantNumber(t, "looks at the lease", len(take("GET "+LeasePath, "", 0, 2*time.Hour)), 1)
					leased = len(take("PUT "+LeasePath, "fieldManager=podcount", 2*time.Second, 2*time.Second))
				}
				// versionAt is the newest at a time, but for renewals of the lease: up to 16 behind it. And when one comes in the very
				// moment in which a watch ends, the server says no more, and what counts is the bookmark up to a minute before.
				versionAt := func(at time.Time) (v int) {
					v = changes[0].version - 1
					for _, c := range changes {
						if !c.at.After(at) {
							v = c.version
						}
					}
					return v
				}
				for what, path := range map[string]string{"pods": "/api/v1/pods", "nodes": "/api/v1/nodes", "counts": "/apis/demo.mark8s.io/v1/counts"} {
					all := sent["GET "+path]
					delete(sent, "GET "+path)
					if len(all) < 9 || fakekube.IsWatch(what)(all[0]) {
						t.Fatalf("%d requests for %s, the first %s", len(all), what, all[0])
					}
					listed, lists, ends := all[0].At, 0, all[0].At
					for _, s := range all {
						if IsList(what)(s) {
							if got := s.Query.Encode(); got != "" {
								t.Errorf("a list of %s with %s", what, got)
							}
							if since := s.At.Sub(listed); lists > 0 &&
								(since < relistInterval*9/10 || since > relistInterval*11/10) {
								t.Errorf("%s listed again after %v", what, since)
							}
							listed, ends, lists = s.At, s.At, lists+1
							continue
						}
						seconds, _ := strconv.Atoi(s.Query.Get("timeoutSeconds"))
						version, _ := strconv.Atoi(s.Query.Get("resourceVersion"))
						if got, want := s.Query.Encode(), fmt.Sprintf("allowWatchBookmarks=true&resourceVersion=%d&timeoutSeconds=%d&watch=1", version, seconds); got != want ||
							seconds < 300 ||
							seconds >= 600 {
							t.Errorf("a watch of %s with %s", what, got)
						}
						if !s.At.Equal(ends) {
							t.Errorf("a watch of %s at %v, though the one before ended at %v", what, s.At, ends)
						}
						told := versionAt(
							s.At.Add(-2*time.Second - 1)) // by the last bookmark, two seconds before the end
						newest := versionAt(s.At)
						if s.At.Sub(start) > time.Minute &&
							(version < told-32*min(leased, 1) || version > newest+16*min(leased, 1)) {
							t.Errorf("a watch of %s from version %d, though a bookmark said %d", what, version,
								told)
						}
						ends = s.At.Add(time.Duration(seconds) * time.Second)
					}
					testkit.WantNumber(t, "lists of "+what, lists, 2)
					if ends.Before(time.Now()) {
						t.Errorf("nobody watches %s", what)
					}
				}
				for what, all := range sent { // the label, the status, and their events: once, at the start
					rest := regexp.MustCompile(
						`^PATCH /api/v1/nodes/cp$|^PATCH /apis/demo.mark8s.io/v1/namespaces/default/counts/web/status$|^POST /api/v1/namespaces/default/events$`)
					if bound := 1 + 2*strings.Count(what, "POST"); !rest.MatchString(what) || len(all) != bound ||
						all[0].At.Sub(start) > 2*time.Second {
						t.Errorf("%d × %s, at %v", len(all), what, all[0].At)
					}
				}
			})
		})
	}
}

func busyMinute(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		nodes := []string{"cp", "w1", "w2", "w3"}
		for _, name := range nodes {
			f.AddNode(name)
		}
		f.SetLabel("cp", ControlPlane, "")
		podcount.Start(t, f, "-node-label", OwnPodsLabel, "-v", "0")
		synctest.Wait()
		first := f.Latest()
		for i := range 60_000 / 40 {
			for j := range testkit.Fewer(10) { // each comes, changes, and goes, which is two changes
				name := fmt.Sprintf("p-%d-%d", i, j)
				f.AddPod("default", name, "")
				f.AddPod("default", name, nodes[rand.IntN(4)])
				if i%50 < 40 {
					f.Remove("pods", At("default", name))
				}
			}
			testkit.Pass(40 * time.Millisecond)
		}
		if n := f.Latest() - first; n < testkit.Fewer(50_000) {
			t.Errorf("there were %d events", n)
		}
		for _, name := range nodes {
			writes := len(f.Requests(
				func(s fakekube.Request) bool { return IsWriteOf("nodes")(s) && strings.HasSuffix(s.Path, "/"+name) }))
			testkit.WantNumber(t, "writes to "+name, writes, 7)
		}
		testkit.Pass(11 * time.Second) // no need of more
		WantLabel(t, f, "cp", TotalLabel, strconv.Itoa(len(f.All("pods"))))
		WantPeace(t, f, "-node-label", OwnPodsLabel)
		testkit.WantNumber(t, "lists of pods", len(f.Requests(IsList("pods"))), 1)
	})
}

func fiveThousandNodes(t *testing.T, podcount Program) {
	nodes, qps := testkit.Fewer(5000), 1000
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		args := []string{
			"-node-label",
			OwnPodsLabel,
			"-total-nodes",
			"",
			"-qps",
			strconv.Itoa(qps),
			"-pod-events",
			"off",
			"-v",
			"0",
		}
		for i := range nodes {
			f.AddNode(fmt.Sprintf("n%d", i))
		}
		podcount.Start(t, f, args...)
		testkit.Pass(15 * time.Second)
		before := len(f.Requests(IsWriteOf("nodes")))
		testkit.WantNumber(t, "writes at the start", before, nodes)
		for i := range nodes {
			f.AddPod("default", fmt.Sprintf("p%d", i), fmt.Sprintf("n%d", i))
		}
		WantPeace(t, f, args...)
		writes := f.Requests(IsWriteOf("nodes"))[before:]
		if len(writes) < nodes || len(writes) > 2*nodes {
			t.Errorf("%d writes to %d nodes", len(writes), nodes)
		}
	})
}

// The limits of Kubernetes itself: https://kubernetes.io/docs/setup/best-practices/cluster-large/
func memoryAtTheLimits(t *testing.T, podcount Program) {
	if runtime.GOOS != "linux" || testkit.Fewer(1) == 0 {
		t.Skip("memory is read from /proc, and is another with the race detector")
	}
	program := filepath.Join(t.TempDir(), "podcount")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, more := range [][]string{{}, {"-wire", "json"}, {"-node-label", "example.com/n"}} {
		c := &Crowd{Pods: 150000, Nodes: 5000}
		cmd := exec.Command(program, append(c.Serve(t), more...)...)
		start := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		select {
		case total := <-c.Patched:
			if total != "150000" {
				t.Errorf("%q: the label is %s", more, total)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%q: no label", more)
		}
		took := time.Since(start).Round(10 * time.Millisecond)
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		peak := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
		if kB, err := strconv.Atoi(string(peak[1])); err != nil || kB > 60<<10 {
			t.Errorf("%q: %d kB, %v", more, kB, err)
		} else {
			t.Logf("%q: %d kB, the label after %v", more, kB, took)
		}
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v", more, err)
		}
	}
}
