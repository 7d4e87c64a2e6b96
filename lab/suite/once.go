package suite

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"podcount/internal/run/options"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Once shows what podcount does with -once and -prune: it writes what is wrong, and exits.
var Once = Topic{
	{"-once writes what is wrong and exits", onceWritesAndExits},
	{"-once waits for a slow reader, and fails if nobody reads", onceWaitsForReader},
	{"-once fails if one write fails, but does the others", onceDoesTheOtherWrites},
	{"-once gives up if lists fail for two minutes", onceWithoutLists},
	{"-once says every ten seconds how long it will wait for lists", onceReminders},
	{"-once ends at once if only a person can help", onceHopeless},
	{"-once fails if no node gets the total", onceWithoutNode},
	{"-once-timeout blames missing lists, not missing nodes", onceTimeoutOfLists},
	{"-once does not wait for a resource that was removed", onceWithRemovedResource},
	{"-once writes each node once even while pods keep coming", onceWritesEachNodeOnce},
	{"the numbers of a summary add up whatever changes meanwhile", summaryAddsUp},
	{"-once-timeout ends -once and names the objects left wrong", onceTimeout},
	{"-prune removes podcount's labels from all nodes", prune},
}

func onceWritesAndExits(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.AddNode("n1")
		f.AddNode("left", TotalLabel+"=7")
		f.AddPod("default", "p1", "n1")
		fixture.AddPodWithLabels(f, "p2", fakekube.Object{"app": "nginx"})
		fixture.AddCount(f, "nginx", `{"name":"nginx","count":1}`)
		start := time.Now()
		err := podcount.Start(t, f, "-once", "-node-label", OwnPodsLabel).Finish()
		testkit.WantError(t, "-once", err, "")
		testkit.WantBetween(t, "time it took", time.Since(start), 0, 3*time.Second)
		WantLabel(t, f, "cp", TotalLabel, "2")
		WantLabel(t, f, "n1", OwnPodsLabel, "1")
		WantLabel(t, f, "left", TotalLabel, "-")
		testkit.WantText(t, fixture.CountStatus(f, "nginx"), "true 1 1")
		testkit.WantNumber(t, "Events on changed labels", len(EventsOf(f, "PodCountChanged")), 5)

		before := len(WritesTo(f))
		err = podcount.Start(t, f, "-once", "-node-label", OwnPodsLabel).Finish()
		testkit.WantError(t, "a second -once", err, "")
		testkit.WantNumber(t, "writes of a second run", len(WritesTo(f))-before, 0)
	})
}

// onceWaitsForReader shows that a slow reader gets all that -once prints, because that is its result. But -once ends
// even if nobody reads.
func onceWaitsForReader(t *testing.T, podcount Program) {
	const (
		linesWereLost = "lines of output were lost"
		withReason    = linesWereLost + ", because the reader was too slow or stopped"
	)
	for _, row := range []struct {
		name    string
		args    []string
		isRead  bool
		wantErr string
	}{
		{"a slow reader", []string{"-dry-run"}, true, ""},
		{"nobody reads a dry run", []string{"-dry-run"}, false, withReason},
		{"nobody reads the log of writes", nil, false, ""},
		{"nobody reads what is printed", []string{"-controllers", "pod-printer"}, false, linesWereLost},
	} {
		SimulateCase(t, row.name, func(t *testing.T, f *fakekube.Server) {
			addNodes(f, 500)
			fixture.AddPods(f, 3)
			reading := make(chan struct{})
			if row.isRead {
				close(reading)
			}
			args := []string{"-master", "http://127.0.0.1:1", "-once", "-total-nodes", ""}
			args = append(args, "-qps", "1000", "-burst", "1000")
			args = append(args, row.args...)
			p := podcount.StartWith(t, fixture.Network(t, f), Wiring{Pipe: slowPipe(reading)}, args...)
			testkit.WantError(t, "-once", p.Finish(), row.wantErr)
			if !row.isRead {
				close(reading)
			}
			testkit.Pass(time.Minute) // until the last line is written
			if row.isRead {
				testkit.WantNumber(t, "lines", p.Logged("would write node "), 500)
			}
		})
	}
}

// slowPipe returns the Pipe of a Wiring with a slow reader. It reads nothing until reading is closed. After that, it
// takes 10 ms for each line.
func slowPipe(reading <-chan struct{}) func(w io.Writer) io.Writer {
	return func(w io.Writer) io.Writer {
		return testkit.WriterFunc(func(line []byte) (int, error) {
			<-reading
			pause(10 * time.Millisecond)
			return w.Write(line)
		})
	}
}

func onceDoesTheOtherWrites(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("a", ControlPlane)
		f.AddNode("b", ControlPlane)
		f.Script(t, "patch nodes a, always: refuse 500")
		err := podcount.Start(t, f, "-once").Finish()
		want := "-once: pod-count could not correct 1 object (a): the log says why"
		testkit.WantEqual(t, "the error", fmt.Sprint(err), want)
		if errors.As(err, new(options.UsageError)) {
			t.Error("the failure was reported as wrong usage")
		}
		WantLabel(t, f, "b", TotalLabel, "0")
		tries := fixture.Requests(f, func(r fakekube.Request) bool { return strings.HasSuffix(r.Path, "/nodes/a") })
		testkit.WantNumber(t, "tries", len(tries), onceTries)
	})
}

func onceWithoutLists(t *testing.T, podcount Program) {
	for _, row := range []struct{ kind, path, why string }{
		{"Pod", "/api/v1/pods", ""},
		{"Node", "/api/v1/nodes", ""},
		{"Count", "/apis/demo.mark8s.io/v1", " (it is not known whether the cluster has it)"},
	} {
		SimulateCase(t, row.kind, func(t *testing.T, f *fakekube.Server) {
			fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
			f.AddNode("cp", ControlPlane)
			f.Script(t, "* "+row.path+", always: refuse 503")
			start := time.Now()
			err := podcount.Start(t, f, "-once").Finish()
			want := "-once: after 2m0s there is no complete list of " + row.kind + row.why
			testkit.WantEqual(t, "the error", fmt.Sprint(err), want)
			testkit.WantBetween(t, "time it took", time.Since(start), 0, onceListTimeout+time.Second)
			if row.kind != "Count" {
				testkit.WantNumber(t, "writes of labels", len(WritesTo(f)), 0)
			}
		})
	}
}

func onceReminders(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		n := fixture.Network(t, f)
		n.Refuse()
		p := podcount.StartOn(t, n, "-master", "http://127.0.0.1:1", "-once", "-v", "0", "-controllers", "pod-count")
		testkit.Pass(35 * time.Second)
		testkit.WantText(t, p.Log.String(), `msg="the API server cannot be reached" err=`,
			`msg="there is no complete list yet" of="Pod, Node" gives_up_in=1m50s`, "gives_up_in=1m40s", "gives_up_in=1m30s")
		n.Restore()
		testkit.WantError(t, "-once", p.Finish(), "")
		testkit.WantBetween(t, "reports of missing lists", p.Logged("no complete list yet"), 3, 9)
		WantLabel(t, f, "cp", TotalLabel, "0")
	})
}

func onceHopeless(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		n := fixture.Network(t, f)
		start := time.Now()
		for _, controller := range []string{"pod-count", "count"} { // One begins with a list, the other with discovery.
			p := podcount.StartWith(t, n, Wiring{Dial: unknownHostDial("nowhere")},
				"-master", "http://nowhere:1", "-once", "-controllers", controller)
			err := p.Finish()
			testkit.WantError(t, "-once", err, "-once: ") // and then the first request that has failed
			testkit.WantError(t, "-once", err, "no such host (is the API server running, and is this its address?)")
			testkit.WantEqual(t, "it is a usage error", errors.As(err, new(options.UsageError)), false)
		}
		testkit.WantBetween(t, "time it took", time.Since(start), 0, time.Second)

		other := podcount.StartWith(t, n, Wiring{Dial: unknownHostDial("nowhere")}, "-master", "http://nowhere:1")
		testkit.Pass(time.Hour)
		testkit.WantError(t, "without -once", other.Stop(), "")
	})
}

func onceWithoutNode(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("worker")
		err := podcount.Start(t, f, "-once", "-node-label", OwnPodsLabel).Finish()
		testkit.WantError(t, "-once", err, "-once: no node gets the total, because no node matches -total-nodes (")
		WantLabel(t, f, "worker", OwnPodsLabel, "0") // All that can be done is done.
		testkit.WantError(t, "-prune", podcount.Start(t, f, "-prune").Finish(), "")
	})
}

func onceTimeoutOfLists(t *testing.T, podcount Program) {
	for range 20 { // because two timers end at the same moment
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			f.Script(t, "list, always: drop request")
			err := podcount.Start(t, f, "-once", "-once-timeout", "30s").Finish()
			testkit.WantError(t, "-once", err, "-once: after 30s there is no complete list of Pod, Node")
		})
	}
}

func onceWithRemovedResource(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.Script(t, "list counts, always: refuse 503")
		start := time.Now()
		p := podcount.Start(t, f, "-once")
		testkit.Pass(time.Second)
		fixture.InstallCRD(f, nil)
		testkit.WantError(t, "-once", p.Finish(), "")
		testkit.WantBetween(t, "time it took", time.Since(start), 0, 30*time.Second)
	})
}

func onceWritesEachNodeOnce(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		addNodes(f, 400)
		p := podcount.Start(t, f, "-once", "-total-nodes", "", "-controllers", "pod-count")
		for i := range 60 {
			f.AddPod("default", fmt.Sprint("p", i), "")
			testkit.Pass(time.Second)
		}
		testkit.WantError(t, "-once", p.Finish(), "")
		testkit.WantText(t, p.Log.String(), "400 nodes: 400 written, 0 right, 0 failed, in ")
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 400)
	})
}

// summaryAddsUp changes something when six of ten nodes are written.
func summaryAddsUp(t *testing.T, podcount Program) {
	const allWritten = "10 nodes: 10 written, 0 right, 0 failed, in "
	const sixWritten = "10 nodes: 6 written, 0 right, 0 failed, 4 not done, in "
	const stopped = "-once: stopped before all was done"
	for _, row := range []struct {
		name    string
		change  func(f *fakekube.Server, p *Process)
		summary string
		wantErr string
	}{
		{"written nodes are removed", removeWrittenNodes, allWritten, ""},
		{"a node is added", func(f *fakekube.Server, _ *Process) { f.AddNode("new") }, allWritten, ""},
		{"a pod is added", func(f *fakekube.Server, _ *Process) { f.AddPod("default", "new", "") }, allWritten, ""},
		{"podcount stops", func(_ *fakekube.Server, p *Process) { p.Stop() }, sixWritten, stopped},
	} {
		SimulateCase(t, row.name, func(t *testing.T, f *fakekube.Server) {
			addNodes(f, 10)
			fixture.AddPods(f, 2)
			p := podcount.Start(t, f, "-once", "-total-nodes", "", "-qps", "1", "-burst", "1", "-workers", "1")
			testkit.Pass(5500 * time.Millisecond) // six writes, at one a second
			row.change(f, p)
			testkit.WantError(t, "-once", p.Finish(), row.wantErr)
			testkit.WantText(t, p.Log.String(), row.summary)
		})
	}
}

// removeWrittenNodes removes the nodes that show the total of summaryAddsUp.
func removeWrittenNodes(f *fakekube.Server, _ *Process) {
	for _, node := range f.All("nodes") {
		key := fakekube.KeyOf(node)
		if fixture.Label(f, key.Name, TotalLabel) == "2" {
			f.Remove("nodes", key)
		}
	}
}

// onceTimeout shows that -once ends although the server asks it to wait for an hour before the next try.
func onceTimeout(t *testing.T, podcount Program) {
	for _, row := range []struct {
		name    string
		args    []string
		timeout time.Duration
	}{
		{"by default", nil, 10 * time.Minute},
		{"with -once-timeout", []string{"-once-timeout", "30s"}, 30 * time.Second},
	} {
		SimulateCase(t, row.name, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("a", ControlPlane)
			f.AddNode("b", ControlPlane)
			f.Script(t, "patch nodes a: refuse 429 retry-after 1h")
			start := time.Now()
			p := podcount.Start(t, f, append(row.args, "-once")...)
			err := p.Finish()
			want := "-once: pod-count could not correct 1 object (a) after %v: the log says why"
			testkit.WantEqual(t, "the error", fmt.Sprint(err), fmt.Sprintf(want, row.timeout))
			took := time.Since(start).Round(5 * time.Second)
			testkit.WantEqual(t, "time it took", took, row.timeout)
			testkit.WantText(t, p.Log.String(), "2 nodes: 1 written, 0 right, 1 failed, in ")
			WantLabel(t, f, "b", TotalLabel, "0")
		})
	}
}

func prune(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane, TotalLabel+"=3", OwnPodsLabel+"=3", "z/other=1")
		f.AddNode("n1", TotalLabel+"=3", OwnPodsLabel+"=1")
		f.AddNode("n2")
		fixture.AddPods(f, 3)
		err := podcount.Start(t, f, "-prune", "-dry-run", "-node-label", OwnPodsLabel).Finish()
		testkit.WantError(t, "a dry run", err, "")
		WantLabel(t, f, "cp", TotalLabel, "3")

		// Without -node-label, only the total is removed. -total-nodes does not matter.
		err = podcount.Start(t, f, "-total-nodes", "none", "-prune").Finish()
		testkit.WantError(t, "-prune", err, "")
		WantLabel(t, f, "cp", TotalLabel, "-")
		WantLabel(t, f, "n1", TotalLabel, "-")
		WantLabel(t, f, "n1", OwnPodsLabel, "1")

		// With -node-label, both labels are removed. Selectors of pods do not matter.
		selectors := []string{"-namespace", "a", "-pod-selector", "b=c", "-field-selector", "spec.nodeName=d"}
		err = podcount.Start(t, f, append(selectors, "-node-label", OwnPodsLabel, "-prune")...).Finish()
		testkit.WantError(t, "-prune with -node-label", err, "")
		WantLabel(t, f, "cp", TotalLabel, "-")
		WantLabel(t, f, "n1", TotalLabel, "-")
		WantLabel(t, f, "cp", OwnPodsLabel, "-")
		WantLabel(t, f, "n1", OwnPodsLabel, "-")

		// Nothing else is changed, and podcount does not look at pods.
		WantLabel(t, f, "cp", "z/other", "1")
		WantLabel(t, f, "cp", ControlPlane, "")
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 4)
		testkit.WantNumber(t, "Events", len(f.All("events")), 0)
		ofPods := fixture.Requests(f, func(r fakekube.Request) bool { return strings.Contains(r.Path, "pods") })
		testkit.WantNumber(t, "requests for pods", len(ofPods), 0)
	})
}
