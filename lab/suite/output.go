package suite

import (
	"fmt"
	"io"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Output shows what podcount prints and logs, and what it does if nobody reads its output.
var Output = Topic{
	{"-v shows watches, then changes and keys, then requests", verbosity},
	{"pod-printer prints each pod that comes, changes or goes", podPrinter},
	{"a leader whose output nobody reads works and stops", unreadLeader},
}

// verbosities are the levels of -v that show more than the level below. Each also shows all lines of the levels below.
var verbosities = []struct {
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
}

func verbosity(t *testing.T, podcount Program) {
	for _, row := range verbosities {
		SimulateCase(t, "-v "+row.v, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			fixture.AddPods(f, 3)
			p := podcount.Start(t, f, "-v", row.v)
			synctest.Wait()
			f.AddPod("default", "late", "")
			synctest.Wait()
			testkit.WantText(t, p.Log.String(), row.shown...)
			for _, line := range row.hidden {
				testkit.WantNumber(t, "lines with "+line, p.Logged(line), 0)
			}
		})
	}
}

func podPrinter(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPod("default", "a", "")
		p := podcount.Start(t, f, "-controllers", "pod-printer")
		testkit.Pass(time.Second)
		f.AddPod("default", "b", "")
		synctest.Wait()
		fixture.AddPodWithLabels(f, "b", fakekube.Object{"app": "web", "new": "label"})
		synctest.Wait()
		f.Remove("pods", At("default", "a"))
		synctest.Wait()
		// The watch reports two events for the deletion: first deletionTimestamp is set, then the pod is gone. So its
		// key may be reconciled once or twice.
		const (
			syncA = "Sync/Add/Update for Pod default/a\n"
			syncB = "Sync/Add/Update for Pod default/b\n"
			goneA = "Pod default/a does not exist anymore\n"
		)
		expected := regexp.MustCompile("^" + syncA + syncB + syncB + "(" + syncA + ")?(" + goneA + "){1,2}$")
		if !expected.MatchString(p.Out.String()) {
			t.Errorf("podcount printed:\n%s", p.Out)
		}
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 0)
	})
}

func unreadLeader(t *testing.T, podcount Program) {
	for _, verbosity := range []string{"0", "2", "6"} {
		SimulateCase(t, "-v "+verbosity, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			p, read := podcount.startUnread(t, f, "a", "-v", verbosity, "-controllers", "*,pod-printer")
			testkit.Pass(5 * time.Second)
			for i := range 300 {
				f.AddPod("default", fmt.Sprint("p", i), "")
				testkit.Pass(time.Second)
			}
			WantLabel(t, f, "cp", TotalLabel, "300")
			start := time.Now()
			testkit.WantError(t, "the end", p.Stop(), "")
			took := time.Since(start)
			testkit.WantBetween(t, "the time until it stopped", took, 0, eventsTimeout+2*flushTimeout)
			testkit.WantEqual(t, "the holder after the release", fakekube.TextIn(LeaseNow(f), "holderIdentity"), "")
			read()
		})
	}
}

// startUnread starts a replica whose stdout and stderr are pipes that nobody reads until read is called.
func (podcount Program) startUnread(
	t *testing.T, f *fakekube.Server, name string, args ...string,
) (p *Process, read func()) {
	t.Helper()
	reading := make(chan struct{})
	read = sync.OnceFunc(func() { close(reading) })
	wires := Wiring{Pipe: func(w io.Writer) io.Writer { return &pipe{w, reading} }}
	flags := []string{"-master", "http://" + name + ":1", "-leader-elect", "-interval", "1s"}
	p = podcount.StartWith(t, fixture.Network(t, f), wires, append(flags, args...)...)
	t.Cleanup(read) // runs before the cleanup that waits for podcount
	return p, read
}

// pipe is a full pipe: a write to it takes until somebody reads.
type pipe struct {
	io.Writer
	reading <-chan struct{} // closed when somebody reads
}

func (p *pipe) Write(b []byte) (int, error) {
	<-p.reading
	return p.Writer.Write(b)
}
