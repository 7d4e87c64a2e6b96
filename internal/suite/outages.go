package suite

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/retry"
	"podcount/internal/testkit"
)

// Outages shows what podcount reports while the API server fails.
var Outages = Topic{
	{"each part reports an absent server once a minute", absentServer},
	{"an outage of writes and its end are reported", outageOfWrites},
	{"only a write that worked ends an outage of writes", writingAgain},
	{"one object that always fails hides no outage", oneObjectHidesNoOutage},
	{"the begin and the end of a watch's outage are reported", outageOfAWatch},
	{"a start without rights to pods names the rule and waits", missingRightsAtTheStart},
	{"forbidden writes are reported once in a while, and recover", forbiddenWrites},
}

func absentServer(t *testing.T, podcount Program) {
	dialing := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for name, fail := range map[string]kube.Dialer{
		"connection refused": func(context.Context, string, string) (net.Conn, error) {
			return nil, dialing(os.NewSyscallError("connect", syscall.ECONNREFUSED))
		},
		"no such host": func(context.Context, string, string) (net.Conn, error) {
			return nil, dialing(&net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true})
		},
		"i/o timeout": func(ctx context.Context, _, _ string) (net.Conn, error) { // of the dialer, unless who asks has less patience
			if err := retry.Sleep(ctx, 30*time.Second); err != nil {
				return nil, err
			}
			return nil, dialing(os.ErrDeadlineExceeded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.InstallCRD(&fakekube.CRD{HasStatus: true})
				f.AddNode("cp", ControlPlane)
				f.AddPods(2)
				n, up := f.ServeIn(t), atomic.Bool{}
				dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
					if up.Load() {
						return n.Dial(ctx, network, addr)
					}
					return fail(ctx, network, addr)
				}
				p := podcount.StartWith(t, n, Wiring{Dial: dial}, "-master", "http://127.0.0.1:1", "-leader-elect", "-v", "0")
				asking := []string{"kind=Pod", "kind=Node", "kind=Count", "lease=kube-system/podcount"}
				testkit.Pass(90 * time.Second)
				for minute := range 60 {
					before := len(p.Log.String())
					testkit.Pass(time.Minute)
					said := p.Log.String()[before:]
					for _, who := range asking {
						if lines := strings.Count(said, who); lines != 1 {
							t.Fatalf("%d lines about %s in minute %d:\n%s", lines, who, minute, said)
						}
					}
				}
				testkit.WantText(t, p.Log.String(), name)
				testkit.WantText(t, p.Log.String(), "for=1m0s")
				up.Store(true)
				WantPeace(t, f)
				for _, over := range []string{"Pod: watching", "Node: watching", "Count: discovery answers", "lease: answered"} {
					testkit.WantText(t, p.Log.String(), over+" again after 1h")
				}
				afterwards := p.Log.String()[strings.LastIndex(p.Log.String(), " again after "):]
				testkit.WantNumber(t, "warnings once it is there", strings.Count(afterwards, "level=WARN"), 0)
			})
		})
	}
}

func outageOfWrites(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp-1", ControlPlane)
		f.AddNode("cp-2", ControlPlane)
		refused := f.Inject(t, StatusFault(fakekube.Requests{Verb: "write", Resource: "nodes"}, fakekube.Always, 500, "InternalError", nil))
		p := podcount.Start(t, f, "-v", "0")
		testkit.Pass(5*time.Minute + time.Second)
		lines := regexp.MustCompile(`(?m)level=WARN msg="cannot reconcile" controller=pod-count .*$`).FindAllString(p.Log.String(), -1)
		testkit.WantNumber(t, "lines in five minutes", len(lines), 6)
		testkit.WantText(t, lines[5], " for=5m0s failed_tries=")
		testkit.WantText(t, lines[5], " failing=2 ")
		testkit.WantText(t, lines[5], " key=cp-")
		refused.Lift()
		testkit.Pass(2 * time.Minute)
		ends := regexp.MustCompile(`level=INFO msg="pod-count: writing again after [56]m`)
		testkit.WantNumber(t, "lines at the end", len(ends.FindAllString(p.Log.String(), -1)), 1)
		testkit.WantNumber(t, "labels that are said to be written", p.Logged(`level=INFO msg="label written"`), 2)
	})
}

// That nothing fails any more does not mean that something works.
func writingAgain(t *testing.T, podcount Program) {
	for name, end := range map[string]func(f *fakekube.Server, p *Process){
		"a stop":                    func(_ *fakekube.Server, p *Process) { p.Stop() },
		"the node is removed":       func(f *fakekube.Server, _ *Process) { f.Remove("nodes", At("", "cp")) },
		"somebody else makes it so": func(f *fakekube.Server, _ *Process) { f.SetLabel("cp", TotalLabel, "0") },
	} {
		t.Run(name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				f.Inject(t, StatusFault(fakekube.Requests{Verb: "write", Resource: "nodes"}, fakekube.Always, 500, "InternalError", nil))
				p := podcount.Start(t, f, "-v", "0", "-controllers", "pod-count", "-qps", "0.1", "-burst", "3")
				testkit.Pass(30 * time.Second)
				end(f, p)
				testkit.Pass(2 * time.Minute)
				testkit.WantText(t, p.Log.String(), "cannot reconcile")
				testkit.WantNumber(t, "words on a write that worked", p.Logged("writing again"), 0)
				ends := 1
				if name == "a stop" {
					ends = 0
				}
				testkit.WantNumber(t, "words on the end", p.Logged(`"pod-count: nothing fails any more after `), ends)
			})
		})
	}
}

func oneObjectHidesNoOutage(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for _, name := range []string{"bad", "a", "b", "c"} {
			f.AddNode(name)
		}
		isBad := func(s fakekube.Request) bool { return IsWriteOf("nodes")(s) && strings.HasSuffix(s.Path, "/bad") }
		f.Inject(t, StatusFault(fakekube.Requests{If: isBad}, fakekube.Always, 500, "InternalError", nil))
		p := podcount.Start(t, f, "-v", "0", "-controllers", "pod-count", "-total-nodes", "")
		testkit.Pass(5 * time.Minute)
		f.AddPod("default", "a", "") // others are written
		testkit.Pass(25 * time.Minute)
		before := len(p.Log.String())
		refused := f.Inject(t, StatusFault(fakekube.Requests{Verb: "write", Resource: "nodes"}, fakekube.Always, 503, "ServiceUnavailable", nil))
		f.AddPod("default", "b", "")
		testkit.Pass(5 * time.Second)
		begins := regexp.MustCompile(`msg="cannot reconcile" controller=pod-count failing=2 key=[abc] .* 503 `)
		if said := p.Log.String()[before:]; !begins.MatchString(said) {
			t.Errorf("its beginning is not said: %s", said)
		}
		testkit.Pass(5 * time.Minute)
		refused.Lift()
		testkit.Pass(2 * time.Minute)
		said := p.Log.String()[before:]
		ends := regexp.MustCompile(`"pod-count: writing again after [56]m[0-9]*s, but 1 still fails"`)
		testkit.WantNumber(t, "words on its end", len(ends.FindAllString(said, -1)), 1)
		if lines := p.Logged("level=WARN"); lines > 37+2 {
			t.Errorf("%d lines in 37 minutes", lines)
		}
	})
}

func outageOfAWatch(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		n := f.ServeIn(t)
		p := podcount.StartOn(t, n, "-master", "http://127.0.0.1:1", "-v", "0")
		testkit.Pass(time.Minute)
		refused := f.Inject(t, StatusFault(fakekube.Requests{Verb: "watch", Resource: "pods"}, fakekube.Always, 503, "ServiceUnavailable", nil))
		f.EndWatches(false)
		testkit.Pass(10 * time.Second)
		refused.Lift()
		testkit.Pass(30 * time.Second)
		testkit.WantNumber(t, "lines at the beginning", p.Logged(`level=WARN msg="cannot watch" kind=Pod`), 1)
		testkit.WantNumber(t, "lines at the end", p.Logged(`level=INFO msg="Pod: watching again after `), 1)
		testkit.WantNumber(t, "lines on nodes", p.Logged("kind=Node"), 1) // listed
	})
}

func missingRightsAtTheStart(t *testing.T, podcount Program) {
	for _, verb := range []string{"list", "watch"} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane, TotalLabel+"=7")
			f.AddNode("worker", TotalLabel+"=7")
			f.AddPods(2)
			f.Forbid(verb+" pods", true)
			p := podcount.Start(t, f, "-v", "0")
			testkit.Pass(9 * time.Minute)
			testkit.WantText(t, p.Log.String(), `the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"`+verb+`\"]`)
			testkit.WantNumber(t, "warnings in nine minutes", p.Logged("level=WARN"), 1)
			if verb == "list" {
				testkit.WantNumber(t, "writes while nothing is known of pods", len(WritesTo(f)), 0)
			}
			f.AddPods(3)
			f.Forbid(verb+" pods", false)
			WantPeace(t, f)
		})
	}
}

func forbiddenWrites(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 50 {
			f.AddNode(fmt.Sprintf("cp-%d", i), ControlPlane)
		}
		f.Forbid("patch nodes", true)
		p := podcount.Start(t, f)
		testkit.Pass(9 * time.Minute)
		testkit.WantNumber(t, "warnings in nine minutes", p.Logged("level=WARN"), 1)
		f.Forbid("patch nodes", false)
		testkit.Pass(time.Minute + 10*time.Second)
		for i := range 50 {
			WantLabel(t, f, fmt.Sprintf("cp-%d", i), TotalLabel, "0")
		}
	})
}
