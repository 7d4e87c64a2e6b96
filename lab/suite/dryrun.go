package suite

import (
	"fmt"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// DryRun shows that -dry-run reports what podcount would write, and writes nothing.
var DryRun = Topic{
	{"-dry-run reports what it would write and writes nothing", dryRunWritesNothing},
	{"-dry-run does not wait for -qps", dryRunIgnoresQPS},
	{"-dry-run reports a node once an interval, as it would write it", dryRunCoolsDown},
	{"-dry-run reports a label again that was right in between", dryRunReportsAgain},
	{"-dry-run reports a label once, whatever happens to another label", dryRunReportsEachLabel},
}

func dryRunWritesNothing(t *testing.T, podcount Program) {
	isNotGet := func(r fakekube.Request) bool { return r.Method != "GET" }
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		fixture.AddPods(f, 2)
		fixture.AddCount(f, "nginx", `{"name":"nginx","count":1}`)
		p := podcount.Start(t, f, "-dry-run", "-leader-elect", "-v", "2")
		wantOnce := func(line string) {
			t.Helper()
			testkit.WantNumber(t, line, p.Logged(line), 1)
		}
		testkit.Pass(5 * time.Minute)
		// They stay wrong, but podcount reports each only once.
		wantOnce(`msg="would write node cp: hopegi/pod-count none → 2"`)
		wantOnce(`msg="would write count default/nginx: status none → 0 unhealthy"`)

		f.AddPod("default", "one-more", "")
		testkit.Pass(time.Minute)
		wantOnce(`msg="would write node cp: hopegi/pod-count none → 3"`)
		wantOnce(`msg="would post an Event on pod default/one-more: PodCounted: pod count is 3"`)

		testkit.WantError(t, "the end", p.Stop(), "")
		wantOnce("1 node: 1 would be written, 0 right, 0 failed, in 360.")
		wantOnce("1 count: 1 would be written, 0 right, 0 failed, in 360.")
		testkit.WantNumber(t, "requests that are not GET", len(fixture.Requests(f, isNotGet)), 0)

		once := podcount.Start(t, f, "-dry-run", "-once", "-v", "0")
		testkit.WantError(t, "the end of -once", once.Finish(), "")
		testkit.WantText(t, once.Log.String(), "1 node: 1 would be written, 0 right, 0 failed, in 0.")
		testkit.WantNumber(t, "requests that are not GET", len(fixture.Requests(f, isNotGet)), 0)
	})
}

// dryRunIgnoresQPS shows that a dry run, which sends no writes, looks at 500 nodes at once.
func dryRunIgnoresQPS(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 500 {
			f.AddNode(fmt.Sprint("n", i))
		}
		fixture.AddPods(f, 3)
		p := podcount.Start(t, f, "-dry-run", "-once", "-total-nodes", "", "-qps", "1", "-burst", "1")
		start := time.Now()
		testkit.WantError(t, "the end", p.Finish(), "")
		testkit.WantBetween(t, "the time it took", time.Since(start), 0, time.Second)
		testkit.WantNumber(t, "reported nodes", p.Logged("would write node "), 500)
		testkit.WantText(t, p.Log.String(), "500 nodes: 500 would be written, 0 right, 0 failed, in 0.")
	})
}

func dryRunCoolsDown(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		p := podcount.Start(t, f, "-dry-run", "-interval", "10s")
		for i := range 58 {
			f.AddPod("default", fmt.Sprint("p", i), "")
			testkit.Pass(time.Second)
		}
		testkit.WantNumber(t, "reports in a minute", p.Logged(`"would write node cp: `), 6)
	})
}

func dryRunReportsAgain(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		fixture.AddPods(f, 3)
		p := podcount.Start(t, f, "-dry-run", "-interval", "1s")
		testkit.Pass(5 * time.Second)
		for _, label := range []string{"3", "77"} {
			fixture.SetLabel(f, "cp", TotalLabel, label)
			testkit.Pass(5 * time.Second)
		}
		testkit.WantNumber(t, "none → 3", p.Logged(`"would write node cp: hopegi/pod-count none → 3"`), 1)
		testkit.WantNumber(t, "77 → 3", p.Logged(`"would write node cp: hopegi/pod-count 77 → 3"`), 1)
	})
}

func dryRunReportsEachLabel(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		p := podcount.Start(t, f, "-dry-run", "-interval", "1s", "-node-label", OwnPodsLabel)
		for pods := range 3 {
			f.AddPod("default", fmt.Sprint("p", pods), "") // on no node
			testkit.Pass(5 * time.Second)
		}
		testkit.WantNumber(t, "the total", p.Logged(`"would write node cp: hopegi/pod-count none → `), 3)
		testkit.WantNumber(t, "the node's own pods", p.Logged(`"would write node cp: example.com/pods none → 0"`), 1)
	})
}
