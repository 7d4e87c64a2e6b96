package suite

import (
	"fmt"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// DryRun shows that -dry-run reports what podcount would write, and writes nothing.
var DryRun = Topic{
	{"-dry-run reports what it would write and writes nothing", dryRunWritesNothing},
	{"-dry-run does not wait for -qps", dryRunIgnoresQPS},
	{"-dry-run reports again what was right in between", dryRunReportsAgain},
}

func dryRunWritesNothing(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.AddPods(2)
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		p := podcount.Start(t, f, "-dry-run", "-leader-elect", "-v", "2")
		testkit.Pass(5 * time.Minute)
		wantLines := func(line string, times int) {
			t.Helper()
			testkit.WantNumber(t, line, p.Logged(line), times)
		}
		wantLines(`msg="would write node cp: hopegi/pod-count none → 2"`, 1) // only once, although it stays wrong
		wantLines(`msg="would write count default/nginx: status none → 0 unhealthy"`, 1)
		f.AddPod("default", "one-more", "")
		testkit.Pass(time.Minute)
		wantLines(`msg="would write node cp: hopegi/pod-count none → 3"`, 1)
		wantLines(`msg="would post an Event on pod default/one-more: PodCounted: pod count is 3"`, 1)
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		wantLines("1 node: 1 would be written, 0 right, 0 failed, in 360.", 1)
		wantLines("1 count: 1 would be written, 0 right, 0 failed, in 360.", 1)
		testkit.WantNumber(t, "requests that are not GET",
			len(f.Requests(func(s fakekube.Request) bool { return s.Method != "GET" })), 0)
		p = podcount.Start(t, f, "-dry-run", "-once", "-v", "0")
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
		testkit.WantText(t, p.Log.String(), "1 node: 1 would be written, 0 right, 0 failed, in 0.")
		testkit.WantNumber(t, "requests that are not GET",
			len(f.Requests(func(s fakekube.Request) bool { return s.Method != "GET" })), 0)
	})
}

// dryRunIgnoresQPS: -dry-run sends no writes that -qps would have to spread.
func dryRunIgnoresQPS(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 500 {
			f.AddNode(fmt.Sprint("n", i))
		}
		f.AddPods(3)
		p := podcount.Start(t, f, "-dry-run", "-once", "-total-nodes", "", "-qps", "1", "-burst", "1")
		start := time.Now()
		if err := p.Finish(); err != nil || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		testkit.WantNumber(t, "reported nodes", p.Logged("would write node "), 500)
		testkit.WantText(t, p.Log.String(), "500 nodes: 500 would be written, 0 right, 0 failed, in 0.")
	})
}

func dryRunReportsAgain(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.AddPods(3)
		p := podcount.Start(t, f, "-dry-run", "-interval", "1s")
		testkit.Pass(5 * time.Second)
		for _, label := range []string{"3", "77"} {
			f.SetLabel("cp", TotalLabel, label)
			testkit.Pass(5 * time.Second)
		}
		testkit.WantNumber(t, "none → 3", p.Logged(`"would write node cp: hopegi/pod-count none → 3"`), 1)
		testkit.WantNumber(t, "77 → 3", p.Logged(`"would write node cp: hopegi/pod-count 77 → 3"`), 1)
	})
}
