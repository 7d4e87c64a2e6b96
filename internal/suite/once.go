package suite

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/options"
	"podcount/internal/testkit"
)

// Once shows how podcount works with -once and -prune.
var Once = Topic{
	{"-once writes what is wrong and exits", onceWritesAndExits},
	{"-once waits for a slow reader, and fails if nobody reads", onceAndItsReader},
	{"-once ends although everything changes", onceInABusyCluster},
	{"-once fails if one write does, and does the others", onceWritesTheRest},
	{"-once gives up when the server is away", onceWithoutAServer},
	{"-once fails if the schema drops the status", onceAndADroppedStatus},
	{"-once writes each node once even while pods keep coming", onceWritesEachNodeOnce},
	{"the numbers of a summary add up whatever changes meanwhile", summaryAddsUp},
	{"-once names what each controller has left", onceNamesWhatIsLeft},
	{"-once ends with a summary", onceSummary},
	{"-once-timeout ends -once, which names what is left", onceTimeout},
	{"-prune removes its labels from all nodes and nothing else", prune},
}

func onceWritesAndExits(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.AddNode("n1")
		f.AddNode("left", TotalLabel+"=7")
		f.AddPod("default", "p1", "n1")
		f.AddPodWithLabels("p2", fakekube.Object{"app": "nginx"})
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		start := time.Now()
		err := podcount.Start(t, f, "-once", "-node-label", OwnPodsLabel).Finish()
		testkit.WantError(t, "the end", err, "")
		testkit.WantBetween(t, "time it took", time.Since(start), 0, 3*time.Second)
		WantLabel(t, f, "cp", TotalLabel, "2")
		WantLabel(t, f, "n1", OwnPodsLabel, "1")
		WantLabel(t, f, "left", TotalLabel, "-")
		testkit.WantText(t, f.CountStatus("nginx"), "true 1 1")
		testkit.WantNumber(t, "Events on changed labels", len(EventsOf(f, "PodCountChanged")), 5)

		before := len(WritesTo(f))
		err = podcount.Start(t, f, "-once", "-node-label", OwnPodsLabel).Finish()
		testkit.WantError(t, "the end of a second run", err, "")
		testkit.WantNumber(t, "writes of a second run", len(WritesTo(f))-before, 0)
	})
}

// onceAndItsReader: what -once prints is its result, so a slow reader must get all of it. A reader that does not read
// at all must not stop it.
func onceAndItsReader(t *testing.T, podcount Program) {
	const linesWereLost = "lines of its output were lost"
	for _, row := range []struct {
		name   string
		args   []string
		isRead bool
		err    string
	}{
		{"a slow reader", []string{"-dry-run"}, true, ""},
		{"nobody reads a dry run", []string{"-dry-run"}, false, linesWereLost + ", because nobody read them"},
		{"nobody reads the log of writes", nil, false, ""},
		{"nobody reads what is printed", []string{"-controllers", "pod-printer"}, false, linesWereLost},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				for i := range 500 {
					f.AddNode(fmt.Sprint("n", i))
				}
				f.AddPods(3)
				reading := make(chan struct{})
				if row.isRead {
					close(reading)
				}
				slow := func(w io.Writer) io.Writer {
					return testkit.WriterFunc(func(line []byte) (int, error) {
						<-reading
						<-time.After(10 * time.Millisecond)
						return w.Write(line)
					})
				}
				args := []string{"-master", "http://127.0.0.1:1", "-once", "-total-nodes", ""}
				args = append(args, "-qps", "1000", "-burst", "1000")
				args = append(args, row.args...)
				p := podcount.StartWith(t, f.ServeIn(t), Wiring{Pipe: slow}, args...)
				testkit.WantError(t, "the end", p.Finish(), row.err)
				if !row.isRead {
					close(reading)
				}
				testkit.Pass(time.Minute) // until the last line has got through
				if row.isRead {
					testkit.WantNumber(t, "lines", p.Logged("would write node "), 500)
				}
			})
		})
	}
}

// onceInABusyCluster: a cluster is never quiet. Changes during -once are for its next run.
func onceInABusyCluster(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		p := podcount.Start(t, f, "-once", "-controllers", "*,pod-printer")
		go Churn(f, 60)
		start := time.Now()
		testkit.WantError(t, "the end", p.Finish(), "")
		testkit.WantBetween(t, "time it took", time.Since(start), 0, 20*time.Second)
		<-time.After(time.Minute) // until Churn has ended
	})
}

func onceWritesTheRest(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("a", ControlPlane)
		f.AddNode("b", ControlPlane)
		writesToA := fakekube.Requests{Verb: "patch", Resource: "nodes", Name: "a"}
		f.Inject(t, StatusFault(writesToA, fakekube.Always, 500, "InternalError", nil))
		err := podcount.Start(t, f, "-once").Finish()
		want := "-once: pod-count could not correct 1 object (a): the log says why"
		testkit.WantEqual(t, "the end", fmt.Sprint(err), want)
		if errors.As(err, new(options.UsageError)) {
			t.Error("the end is reported as wrong usage")
		}
		WantLabel(t, f, "b", TotalLabel, "0")
		tries := f.Requests(func(r fakekube.Request) bool { return strings.HasSuffix(r.Path, "/nodes/a") })
		testkit.WantNumber(t, "tries", len(tries), onceTries)
	})
}

func onceWithoutAServer(t *testing.T, podcount Program) {
	for _, row := range []struct{ kind, path string }{
		{"Pod", "/api/v1/pods"},
		{"Node", "/api/v1/nodes"},
		{"Count", "/apis/demo.mark8s.io/v1"},
	} {
		t.Run(row.kind, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.InstallCRD(&fakekube.CRD{HasStatus: true})
				f.AddNode("cp", ControlPlane)
				requests := fakekube.Requests{Resource: row.path}
				f.Inject(t, StatusFault(requests, fakekube.Always, 503, "ServiceUnavailable", nil))
				start := time.Now()
				err := podcount.Start(t, f, "-once").Finish()
				want := "-once: after 2m0s there is no complete list of " + row.kind
				testkit.WantEqual(t, "the end", fmt.Sprint(err), want)
				testkit.WantBetween(t, "time it took", time.Since(start), 0, onceListTimeout+time.Second)
				if row.kind != "Count" {
					testkit.WantNumber(t, "writes of labels", len(WritesTo(f)), 0)
				}
			})
		})
	}
}

func onceAndADroppedStatus(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true, DropsStatus: true})
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		p := podcount.Start(t, f, "-once")
		testkit.WantError(t, "the end", p.Finish(), "count could not correct 1 object (default/nginx)")
		testkit.WantText(t, p.Log.String(), "1 count: 0 written, 0 right, 1 failed, in ")
	})
}

func onceWritesEachNodeOnce(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 400 {
			f.AddNode(fmt.Sprint("n", i))
		}
		p := podcount.Start(t, f, "-once", "-total-nodes", "", "-controllers", "pod-count")
		for i := range 60 {
			f.AddPod("default", fmt.Sprint("p", i), "")
			testkit.Pass(time.Second)
		}
		testkit.WantError(t, "the end", p.Finish(), "")
		testkit.WantText(t, p.Log.String(), "400 nodes: 400 written, 0 right, 0 failed, in ")
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 400)
	})
}

// summaryAddsUp: at one write a second, something changes after six of ten nodes are written.
func summaryAddsUp(t *testing.T, podcount Program) {
	const allWritten = "10 nodes: 10 written, 0 right, 0 failed, in "
	const sixWritten = "10 nodes: 6 written, 0 right, 0 failed, 4 not done, in "
	removeWritten := func(f *fakekube.Server) {
		for i := range 10 {
			name := fmt.Sprint("n", i)
			if f.Label(name, TotalLabel) == "2" {
				f.Remove("nodes", At("", name))
			}
		}
	}
	for _, row := range []struct {
		name    string
		change  func(f *fakekube.Server, p *Process)
		summary string
		err     string
	}{
		{"written nodes are removed", func(f *fakekube.Server, _ *Process) { removeWritten(f) }, allWritten, ""},
		{"a node is added", func(f *fakekube.Server, _ *Process) { f.AddNode("new") }, allWritten, ""},
		{"a pod is added", func(f *fakekube.Server, _ *Process) { f.AddPod("default", "new", "") }, allWritten, ""},
		{"podcount stops", func(_ *fakekube.Server, p *Process) { p.Stop() }, sixWritten,
			"-once: stopped before all was done"},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				for i := range 10 {
					f.AddNode(fmt.Sprint("n", i))
				}
				f.AddPods(2)
				p := podcount.Start(t, f, "-once", "-total-nodes", "", "-qps", "1", "-burst", "1", "-workers", "1")
				testkit.Pass(5500 * time.Millisecond)
				row.change(f, p)
				testkit.WantError(t, "the end", p.Finish(), row.err)
				testkit.WantText(t, p.Log.String(), row.summary)
			})
		})
	}
}

func onceNamesWhatIsLeft(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		writes := fakekube.Requests{If: fakekube.IsWrite}
		f.Inject(t, StatusFault(writes, fakekube.Always, 500, "InternalError", nil))
		err := podcount.Start(t, f, "-once").Finish()
		const want = "-once: pod-count could not correct 1 object (cp); " +
			"count could not correct 1 object (default/nginx): the log says why"
		testkit.WantEqual(t, "the end of -once", fmt.Sprint(err), want)
		err = podcount.Start(t, f, "-prune").Finish() // there is no label to remove
		testkit.WantError(t, "the end of -prune", err, "")
	})
}

func onceSummary(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddPods(2)
		for i := range 47 {
			f.AddNode(fmt.Sprint("n", i), TotalLabel+"=2")
		}
		f.AddNode("refused")
		f.AddNode("cp-1")
		f.AddNode("cp-2")
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		refused := fakekube.Requests{Verb: "patch", Resource: "nodes", Name: "refused"}
		f.Inject(t, StatusFault(refused, fakekube.Always, 500, "InternalError", nil))
		p := podcount.Start(t, f, "-once", "-total-nodes", "")
		testkit.WantError(t, "the end of -once", p.Finish(), "(refused)")
		testkit.WantText(t, p.Log.String(),
			"50 nodes: 2 written, 47 right, 1 failed, in ",
			"1 count: 1 written, 0 right, 0 failed, in ")

		p = podcount.Start(t, f, "-prune")
		testkit.WantError(t, "the end of -prune", p.Finish(), "")
		testkit.WantText(t, p.Log.String(), "50 nodes: 49 written, 1 right, 0 failed, in ")
	})
}

// onceTimeout: a server may ask for an hour with each answer, and -once would wait ten times.
func onceTimeout(t *testing.T, podcount Program) {
	for _, row := range []struct {
		name    string
		args    []string
		timeout time.Duration
	}{
		{"by default", nil, 10 * time.Minute},
		{"with -once-timeout", []string{"-once-timeout", "30s"}, 30 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("a", ControlPlane)
				f.AddNode("b", ControlPlane)
				writesToA := fakekube.Requests{Verb: "patch", Resource: "nodes", Name: "a"}
				f.Inject(t, StatusFault(writesToA, 1, 429, "TooManyRequests", nil, "Retry-After", "3600"))
				start := time.Now()
				p := podcount.Start(t, f, append(row.args, "-once")...)
				err := p.Finish()
				want := "-once: pod-count could not correct 1 object (a) after %v: the log says why"
				testkit.WantEqual(t, "the end", fmt.Sprint(err), fmt.Sprintf(want, row.timeout))
				took := time.Since(start).Round(5 * time.Second)
				testkit.WantEqual(t, "time it took", took, row.timeout)
				testkit.WantText(t, p.Log.String(), "2 nodes: 1 written, 0 right, 1 failed, in ")
				WantLabel(t, f, "b", TotalLabel, "0")
			})
		})
	}
}

func prune(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane, TotalLabel+"=3", OwnPodsLabel+"=3", "z/other=1")
		f.AddNode("n1", TotalLabel+"=3", OwnPodsLabel+"=1")
		f.AddNode("n2")
		f.AddPods(3)
		err := podcount.Start(t, f, "-prune", "-dry-run", "-node-label", OwnPodsLabel).Finish()
		testkit.WantError(t, "the end of a dry run", err, "")
		WantLabel(t, f, "cp", TotalLabel, "3")

		// Without -node-label, only the total is podcount's. No selector limits the nodes.
		err = podcount.Start(t, f, "-total-nodes", "none", "-prune").Finish()
		testkit.WantError(t, "the end", err, "")
		WantLabel(t, f, "cp", TotalLabel, "-")
		WantLabel(t, f, "n1", TotalLabel, "-")
		WantLabel(t, f, "n1", OwnPodsLabel, "1")

		selectors := []string{"-namespace", "a", "-pod-selector", "b=c", "-field-selector", "spec.nodeName=d"}
		err = podcount.Start(t, f, append(selectors, "-node-label", OwnPodsLabel, "-prune")...).Finish()
		testkit.WantError(t, "the end with -node-label", err, "")
		WantLabel(t, f, "cp", TotalLabel, "-")
		WantLabel(t, f, "n1", TotalLabel, "-")
		WantLabel(t, f, "cp", OwnPodsLabel, "-")
		WantLabel(t, f, "n1", OwnPodsLabel, "-")

		WantLabel(t, f, "cp", "z/other", "1")
		WantLabel(t, f, "cp", ControlPlane, "")
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 4)
		testkit.WantNumber(t, "Events", len(f.All("events")), 0)
		ofPods := f.Requests(func(r fakekube.Request) bool { return strings.Contains(r.Path, "pods") })
		testkit.WantNumber(t, "requests for pods", len(ofPods), 0)
	})
}
