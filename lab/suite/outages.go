package suite

import (
	"context"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"podcount/internal/api/kube"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Outages shows what podcount logs while the API server fails.
var Outages = Topic{
	{"a server that cannot be reached is reported by one line a minute", unreachableServer},
	{"an outage of writes and its end are reported", outageOfWrites},
	{"only a write that worked ends an outage of writes", writingAgain},
	{"one object that always fails hides no outage", oneObjectHidesNoOutage},
	{"podcount without rights to pods names the rule and waits", startWithoutRights},
}

func unreachableServer(t *testing.T, podcount Program) {
	for _, row := range []struct {
		err  string
		dial kube.Dialer
	}{
		{"connection refused", refuseDial()},
		{"no such host", unknownHostDial("nowhere")},
		{"i/o timeout", timeOutDial},
	} {
		SimulateCase(t, row.err, func(t *testing.T, f *fakekube.Server) {
			fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
			f.AddNode("cp", ControlPlane)
			fixture.AddPods(f, 2)
			n := fixture.Network(t, f)
			var isUp atomic.Bool
			dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
				if isUp.Load() {
					return n.Dial(ctx, network, addr)
				}
				return row.dial(ctx, network, addr)
			}
			args := []string{"-master", "http://127.0.0.1:1", "-leader-elect", "-v", "0"}
			p := podcount.StartWith(t, n, Wiring{Dial: dial}, args...)
			testkit.Pass(90 * time.Second)
			for minute := range 60 {
				before := len(p.Log.String())
				testkit.Pass(time.Minute)
				logged := p.Log.String()[before:]
				lines := strings.Count(logged, "\n")
				if lines != 1 || !strings.Contains(logged, `level=WARN msg="the API server cannot be reached"`) {
					t.Fatalf("minute %d: %d lines, want 1:\n%s", minute, lines, logged)
				}
			}
			testkit.WantText(t, p.Log.String(), row.err, "for=1m0s")

			isUp.Store(true)
			WantPeace(t, f)
			log := p.Log.String()
			testkit.WantText(t, log, "API server: reached again after 1h")
			afterwards := log[strings.LastIndex(log, " again after "):]
			testkit.WantNumber(t, "warnings after the outage", strings.Count(afterwards, "level=WARN"), 0)
		})
	}
}

func outageOfWrites(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp-1", ControlPlane)
		f.AddNode("cp-2", ControlPlane)
		outage := f.Script(t, "write nodes, always: refuse 500")[0]
		p := podcount.Start(t, f, "-v", "0")
		testkit.Pass(5*time.Minute + time.Second)
		warning := regexp.MustCompile(`(?m)level=WARN msg="cannot reconcile" controller=pod-count .*$`)
		reports := warning.FindAllString(p.Log.String(), -1)
		testkit.WantNumber(t, "reports in five minutes", len(reports), 6)
		testkit.WantText(t, reports[5], " for=5m0s failed_tries=", " failing=2 ", " key=cp-")

		outage.Lift()
		testkit.Pass(2 * time.Minute)
		endLine := regexp.MustCompile(`level=INFO msg="pod-count: writing again after [56]m`)
		testkit.WantNumber(t, "reports of its end", len(endLine.FindAllString(p.Log.String(), -1)), 1)
		testkit.WantNumber(t, "reports of written labels", p.Logged(`level=INFO msg="label written"`), 2)
	})
}

// writingAgain shows what podcount reports when an outage ends without a write, because nothing is left to write.
func writingAgain(t *testing.T, podcount Program) {
	setsLabel := func(f *fakekube.Server, _ *Process) { fixture.SetLabel(f, "cp", TotalLabel, "0") }
	for _, row := range []struct {
		name string
		end  func(f *fakekube.Server, p *Process)
		want int // reports that nothing fails any more
	}{
		{"podcount stops", func(_ *fakekube.Server, p *Process) { p.Stop() }, 0},
		{"the node is removed", func(f *fakekube.Server, _ *Process) { f.Remove("nodes", At("", "cp")) }, 1},
		{"another client sets the label", setsLabel, 1},
	} {
		SimulateCase(t, row.name, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			f.Script(t, "write nodes, always: refuse 500")
			p := podcount.Start(t, f, "-v", "0", "-controllers", "pod-count", "-qps", "0.1", "-burst", "3")
			testkit.Pass(30 * time.Second)
			row.end(f, p)
			testkit.Pass(2 * time.Minute)
			testkit.WantText(t, p.Log.String(), "cannot reconcile")
			testkit.WantNumber(t, "reports that writes work", p.Logged("writing again"), 0)
			reports := p.Logged(`"pod-count: nothing fails any more after `)
			testkit.WantNumber(t, "reports that nothing fails any more", reports, row.want)
		})
	}
}

func oneObjectHidesNoOutage(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for _, name := range []string{"bad", "a", "b", "c"} {
			f.AddNode(name)
		}
		f.Script(t, "write nodes bad, always: refuse 500")
		p := podcount.Start(t, f, "-v", "0", "-controllers", "pod-count", "-total-nodes", "")
		testkit.Pass(5 * time.Minute)
		f.AddPod("default", "a", "") // writes to the other nodes work
		testkit.Pass(25 * time.Minute)

		before := len(p.Log.String())
		outage := f.Script(t, "write nodes, always: refuse 503")[0]
		f.AddPod("default", "b", "")
		testkit.Pass(5 * time.Second)
		startLine := regexp.MustCompile(`msg="cannot reconcile" controller=pod-count failing=2 key=[abc] .* 503 `)
		logged := p.Log.String()[before:]
		if !startLine.MatchString(logged) {
			t.Errorf("the outage is not reported:\n%s", logged)
		}

		testkit.Pass(5 * time.Minute)
		outage.Lift()
		testkit.Pass(2 * time.Minute)
		logged = p.Log.String()[before:]
		endLine := regexp.MustCompile(`"pod-count: writing again after [56]m[0-9]*s, but 1 still fails"`)
		testkit.WantNumber(t, "reports of its end", len(endLine.FindAllString(logged, -1)), 1)
		testkit.WantBetween(t, "warnings in 37 minutes", p.Logged("level=WARN"), 0, 37+2)
	})
}

func startWithoutRights(t *testing.T, podcount Program) {
	for _, verb := range []string{"list", "watch"} {
		SimulateCase(t, verb, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane, TotalLabel+"=7")
			f.AddNode("worker", TotalLabel+"=7")
			fixture.AddPods(f, 2)
			permit := f.Forbid(verb + " pods")
			p := podcount.Start(t, f, "-v", "0")
			testkit.Pass(9 * time.Minute)
			rule := `the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"` + verb + `\"]`
			testkit.WantText(t, p.Log.String(), rule)
			testkit.WantNumber(t, "warnings in nine minutes", p.Logged("level=WARN"), 1)
			if verb == "list" {
				testkit.WantNumber(t, "writes before the list of pods", len(WritesTo(f)), 0)
			}
			fixture.AddPods(f, 3)
			permit()
			WantPeace(t, f)
		})
	}
}
