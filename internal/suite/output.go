package suite

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// Output shows what podcount prints and logs, and what it does if nobody reads that.
var Output = Topic{
	{"-v shows more of the inside", verbosity},
	{"-log-format json prints one JSON object a line", jsonLogs},
	{"secrets are not logged", secrets},
	{"pod-printer prints each pod that comes, changes or goes", podPrinter},
	{"a leader whose output nobody reads works and stops", unreadLeader},
	{"a leader whose output nobody reads can lose its lease", unreadLeaderThatLoses},
	{"dropped lines are reported once somebody reads again", droppedLines},
}

// verbosity: each level shows a line of its own, and all that the levels below it show.
func verbosity(t *testing.T, podcount Program) {
	for _, row := range []struct {
		v      string
		shown  []string
		hidden []string
	}{
		{
			v: "0",
			shown: []string{
				"level=INFO msg=listed kind=Pod objects=3 rv=",
				`msg="label written" node=cp label=hopegi/pod-count from=none to=3`,
			},
			hidden: []string{"msg=watching", "queue: add", "GET /api"},
		},
		{
			v:      "2",
			shown:  []string{"msg=watching kind=Pod rv="},
			hidden: []string{"queue: add", "GET /api"},
		},
		{
			v: "4",
			shown: []string{
				"msg=watching",
				`msg="ADDED Pod default/late" rv=`,
				`msg="queue: add" controller=pod-count key=cp`,
			},
			hidden: []string{"GET /api"},
		},
		{
			v: "6",
			shown: []string{
				"msg=watching",
				"queue: add",
				`msg="GET /api/v1/pods?`,
				`status="200 OK" took=`,
				`msg="PATCH /api/v1/nodes/cp?fieldManager=podcount"`,
			},
		},
	} {
		t.Run("-v "+row.v, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				f.AddPods(3)
				p := podcount.Start(t, f, "-v", row.v)
				synctest.Wait()
				f.AddPod("default", "late", "")
				synctest.Wait()
				testkit.WantText(t, p.Log.String(), row.shown...)
				for _, line := range row.hidden {
					testkit.WantNumber(t, "lines with "+line, p.Logged(line), 0)
				}
			})
		})
	}
}

func jsonLogs(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Inject(t,
			fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Reply{Code: 500, Body: "{}"}})
		p := podcount.Start(t, f, "-log-format", "json")
		testkit.Pass(time.Second)
		testkit.WantText(t, p.Log.String(), `"msg":"cannot reconcile","controller":"pod-count","key":"cp"`)
		testkit.WantText(t, p.Log.String(), `"took":"0s"`)
		for line := range strings.Lines(p.Log.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
	})
}

func secrets(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Allow("another")
		dir := t.TempDir()
		p := podcount.StartOn(t, f.ServeAs(t, dir, "token: sEcReT"), "-kubeconfig", filepath.Join(dir, "config"),
			"-v", "9")
		testkit.Pass(time.Minute)
		testkit.WantText(t, p.Log.String(), "401 Unauthorized")
		if strings.Contains(p.Log.String(), "sEcReT") {
			t.Error("the token is in the log")
		}
	})
}

func podPrinter(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPod("default", "a", "")
		p := podcount.Start(t, f, "-controllers", "pod-printer")
		testkit.Pass(time.Second)
		f.AddPod("default", "b", "")
		synctest.Wait()
		f.Put("pods", fakekube.PodOn(
			fakekube.Object{
				"namespace": "default",
				"name":      "b",
				"labels":    fakekube.Object{"app": "web", "new": "label"},
			},
			"",
		))
		synctest.Wait()
		f.Remove("pods", At("default", "a"))
		synctest.Wait()
		// The deletion shows first as a change of the pod: it is looked at once for both, or twice.
		const come, gone = "Sync/Add/Update for Pod default/%s\n", "Pod default/a does not exist anymore\n"
		a, b := fmt.Sprintf(come, "a"), fmt.Sprintf(come, "b")
		if !regexp.MustCompile("^" + a + b + b + "(" + a + ")?(" + gone + "){1,2}$").MatchString(p.Out.String()) {
			t.Errorf("printed:\n%s", p.Out)
		}
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 0)
	})
}

func unreadLeader(t *testing.T, podcount Program) {
	for _, verbosity := range []string{"0", "2", "6"} {
		t.Run("-v "+verbosity, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				p, open := podcount.startBlocked(t, f, "a", "-v", verbosity, "-controllers", "*,pod-printer")
				testkit.Pass(5 * time.Second)
				for i := range 300 {
					f.AddPod("default", fmt.Sprint("p", i), "")
					testkit.Pass(time.Second)
				}
				WantLabel(t, f, "cp", TotalLabel, "300")
				stopped := time.Now()
				if err := p.Stop(); err != nil {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(stopped); took > eventsTimeout+2*flushTimeout {
					t.Errorf("it took %v to stop", took)
				}
				if fakekube.TextIn(LeaseNow(f), "holderIdentity") != "" {
					t.Errorf("the lease was not released: %v", LeaseNow(f))
				}
				open()
			})
		})
	}
}

func unreadLeaderThatLoses(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		p, open := podcount.startBlocked(t, f, "a", "-v", "0")
		testkit.Pass(10 * time.Second)
		f.PutJSON("leases",
			`{"metadata":{"namespace":"kube-system","name":"podcount"},`+
				`"spec":{"holderIdentity":"other","leaseDurationSeconds":15}}`)
		taken := time.Now()
		p.Finish()
		if took := time.Since(taken); took > 5*time.Second {
			t.Errorf("it took %v to end", took)
		}
		if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "the lease is lost") {
			t.Errorf("it ended with %v", err)
		}
		open()
	})
}

// droppedLines: the log shows how many lines are missing, at the place where they are.
func droppedLines(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		p, open := podcount.startBlocked(t, f, "a", "-v", "6")
		testkit.Pass(5 * time.Second) // what is in the first list is not logged one by one
		for i := range 6000 {         // with two lines each, of 100 bytes and more
			f.AddPod("default", fmt.Sprint("p", i), "")
		}
		testkit.Pass(time.Minute)
		open()
		testkit.Pass(time.Second)
		reports := regexp.MustCompile(`log lines were dropped, because stderr was not read, or failed" lines=([0-9]+)`).
			FindAllStringSubmatch(p.Log.String(), -1)
		if len(reports) != 1 || reports[0][1] == "0" {
			t.Fatalf("want one report of dropped lines, got %q", reports)
		}
		f.AddPod("default", "one-more", "")
		testkit.Pass(time.Second)
		if after := p.Log.String(); !strings.Contains(after, "ADDED Pod default/one-more") {
			t.Error("nothing is logged afterwards")
		}
	})
}

// stuckPipe is a pipe whose reader reads only while it is open.
type stuckPipe struct {
	to   io.Writer
	open chan struct{} // closed: everything gets through
}

func (p *stuckPipe) Write(b []byte) (int, error) {
	<-p.open
	return p.to.Write(b)
}

// startBlocked starts a replica whose stdout and stderr are pipes that nobody reads, until open is called.
func (podcount Program) startBlocked(
	t *testing.T,
	f *fakekube.Server,
	name string,
	args ...string,
) (p *Process, open func()) {
	n, reading := f.ServeIn(t), make(chan struct{})
	stuck := func(w io.Writer) io.Writer { return &stuckPipe{w, reading} }
	args = append([]string{"-master", "http://" + name + ":1", "-leader-elect", "-interval", "1s"}, args...)
	open = sync.OnceFunc(func() { close(reading) })
	p = podcount.StartWith(t, n, Wiring{Pipe: stuck}, args...)
	t.Cleanup(open) // before the program is waited for
	return p, open
}
