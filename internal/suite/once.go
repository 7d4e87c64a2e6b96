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
		if err := podcount.Start(t, f, "-once", "-node-label", "x.y/pods").Finish(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		WantLabel(t, f, "cp", TotalLabel, "2")
		WantLabel(t, f, "n1", "x.y/pods", "1")
		WantLabel(t, f, "left", TotalLabel, "-")
		testkit.WantText(t, f.CountStatus("nginx"), "true 1 1")
		testkit.WantNumber(t, "events of changed labels", len(EventsOf(f, "PodCountChanged")), 5)
		before := len(WritesTo(f))
		if err := podcount.Start(t, f, "-once", "-node-label", "x.y/pods").Finish(); err != nil {
			t.Error(err)
		}
		testkit.WantNumber(t, "writes of a second run", len(WritesTo(f))-before, 0)
	})
}

// A cluster is never quiet: what changes meanwhile is for the next run.
// What -once prints is its product: a reader that is slow gets all of it, and one that does not read is not taken for one.
func onceAndItsReader(t *testing.T, podcount Program) {
	for name, c := range map[string]struct {
		args  []string
		reads bool
		want  string // of the error
	}{
		"a slow reader":                  {[]string{"-dry-run"}, true, ""},
		"nobody reads a dry run":         {[]string{"-dry-run"}, false, "lines of its output were lost, because nobody read them"},
		"nobody reads the log of writes": {nil, false, ""},
		"nobody reads what is printed":   {[]string{"-controllers", "pod-printer"}, false, "lines of its output were lost"},
	} {
		t.Run(name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				for i := range 500 {
					f.AddNode(fmt.Sprint("n", i))
				}
				f.AddPods(3)
				n, reading := f.ServeIn(t), make(chan struct{}, 1)
				slow := func(w io.Writer) io.Writer {
					return testkit.WriterFunc(func(line []byte) (int, error) {
						if !c.reads {
							<-reading
						}
						<-time.After(10 * time.Millisecond)
						return w.Write(line)
					})
				}
				args := []string{"-master", "http://127.0.0.1:1", "-once", "-total-nodes", "", "-qps", "1000", "-burst", "1000"}
				p := podcount.StartWith(t, n, Wiring{Pipe: slow}, append(args, c.args...)...)
				err := p.Finish()
				close(reading)
				testkit.Pass(time.Minute) // for what still waits
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("it ended with %v, want %q", err, c.want)
				}
				if c.reads {
					testkit.WantNumber(t, "lines", p.Logged("would write node "), 500)
				}
			})
		})
	}
}

func onceInABusyCluster(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		p := podcount.Start(t, f, "-once", "-controllers", "*,pod-printer")
		go Churn(f, 60)
		start := time.Now()
		if err := p.Finish(); err != nil || time.Since(start) > 20*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		<-time.After(time.Minute)
	})
}

func onceWritesTheRest(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("a", ControlPlane)
		f.AddNode("b", ControlPlane)
		f.Inject(t, StatusFault(fakekube.Requests{Verb: "patch", Resource: "nodes", Name: "a"}, fakekube.Always, 500, "InternalError", nil))
		err := podcount.Start(t, f, "-once").Finish()
		if err == nil || err.Error() != "-once: pod-count could not make 1 object right (a): the log says why" || errors.As(err, new(options.UsageError)) {
			t.Error(err)
		}
		WantLabel(t, f, "b", TotalLabel, "0")
		testkit.WantNumber(t, "tries", len(f.Requests(func(s fakekube.Request) bool { return strings.HasSuffix(s.Path, "/nodes/a") })), onceTries)
	})
}

func onceWithoutAServer(t *testing.T, podcount Program) {
	for kind, path := range map[string]string{"Pod": "/api/v1/pods", "Node": "/api/v1/nodes", "Count": "/apis/demo.mark8s.io/v1"} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.InstallCRD(&fakekube.CRD{HasStatus: true})
			f.AddNode("cp", ControlPlane)
			f.Inject(t, StatusFault(fakekube.Requests{Resource: path}, fakekube.Always, 503, "ServiceUnavailable", nil))
			start := time.Now()
			err := podcount.Start(t, f, "-once").Finish()
			if err == nil || err.Error() != "-once: after 2m0s there is no complete list of "+kind || time.Since(start) > onceListTimeout+time.Second {
				t.Errorf("%s, after %v: %v", kind, time.Since(start), err)
			}
			if kind != "Count" {
				testkit.WantNumber(t, "writes of labels", len(WritesTo(f)), 0)
			}
		})
	}
}

func onceAndADroppedStatus(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true, DropsStatus: true})
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		p := podcount.Start(t, f, "-once")
		err := p.Finish()
		if err == nil || !strings.Contains(err.Error(), "count could not make 1 object right (default/nginx)") {
			t.Error(err)
		}
		testkit.WantText(t, p.Log.String(), "1 count: 0 written, 0 right, 1 failed, in ")
	})
}

// Each object is written once at most: what changes meanwhile is for the next run.
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
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
		testkit.WantText(t, p.Log.String(), "400 nodes: 400 written, 0 right, 0 failed, in ")
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 400)
	})
}

func summaryAddsUp(t *testing.T, podcount Program) {
	for name, c := range map[string]struct {
		change func(f *fakekube.Server, p *Process)
		want   string
		err    string
	}{
		"nodes that were written are removed": {func(f *fakekube.Server, _ *Process) {
			for i := range 10 {
				if f.Label(fmt.Sprint("n", i), TotalLabel) == "2" {
					f.Remove("nodes", At("", fmt.Sprint("n", i)))
				}
			}
		}, "10 nodes: 10 written, 0 right, 0 failed, in ", ""},
		"nodes are added": {func(f *fakekube.Server, _ *Process) { f.AddNode("new") }, "10 nodes: 10 written, 0 right, 0 failed, in ", ""},
		"a pod is added":  {func(f *fakekube.Server, _ *Process) { f.AddPod("default", "new", "") }, "10 nodes: 10 written, 0 right, 0 failed, in ", ""},
		"a stop": {func(_ *fakekube.Server, p *Process) { p.Stop() }, "10 nodes: 6 written, 0 right, 0 failed, 4 not done, in ",
			"-once: stopped before all was done"},
	} {
		t.Run(name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				for i := range 10 {
					f.AddNode(fmt.Sprint("n", i))
				}
				f.AddPods(2)
				p := podcount.Start(t, f, "-once", "-total-nodes", "", "-qps", "1", "-burst", "1", "-workers", "1")
				testkit.Pass(5500 * time.Millisecond)
				c.change(f, p)
				err := p.Finish()
				if c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
					t.Errorf("it ended with %v, want %q", err, c.err)
				}
				testkit.WantText(t, p.Log.String(), c.want)
			})
		})
	}
}

func onceNamesWhatIsLeft(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		f.Inject(t, StatusFault(fakekube.Requests{If: fakekube.IsWrite}, fakekube.Always, 500, "InternalError", nil))
		err := podcount.Start(t, f, "-once").Finish()
		want := "-once: pod-count could not make 1 object right (cp); count could not make 1 object right (default/nginx): the log says why"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		err = podcount.Start(t, f, "-prune").Finish()
		if err != nil { // no label is there
			t.Error(err)
		}
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
		isRefused := func(s fakekube.Request) bool {
			return s.Method == "PATCH" && strings.HasSuffix(s.Path, "/nodes/refused")
		}
		f.Inject(t, StatusFault(fakekube.Requests{If: isRefused}, fakekube.Always, 500, "InternalError", nil))
		p := podcount.Start(t, f, "-once", "-total-nodes", "")
		if err := p.Finish(); err == nil {
			t.Error("it ended well")
		}
		testkit.WantText(t, p.Log.String(), "50 nodes: 2 written, 47 right, 1 failed, in ")
		testkit.WantText(t, p.Log.String(), "1 count: 1 written, 0 right, 0 failed, in ")
		p = podcount.Start(t, f, "-prune")
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
		testkit.WantText(t, p.Log.String(), "50 nodes: 49 written, 1 right, 0 failed, in ")
	})
}

// A server may ask for an hour's patience with each answer, and -once would wait ten times.
func onceTimeout(t *testing.T, podcount Program) {
	for timeout, args := range map[time.Duration][]string{10 * time.Minute: nil, 30 * time.Second: {"-once-timeout", "30s"}} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("a", ControlPlane)
			f.AddNode("b", ControlPlane)
			busy := StatusFault(fakekube.Requests{Verb: "patch", Resource: "nodes", Name: "a"}, 1,
				429, "TooManyRequests", nil, "Retry-After", "3600")
			f.Inject(t, busy)
			start := time.Now()
			p := podcount.Start(t, f, append(args, "-once")...)
			err := p.Finish()
			want := fmt.Sprintf("-once: pod-count could not make 1 object right (a) after %v: the log says why", timeout)
			if err == nil || err.Error() != want || time.Since(start).Round(5*time.Second) != timeout {
				t.Errorf("after %v: %v, want %s", time.Since(start), err, want)
			}
			testkit.WantText(t, p.Log.String(), "2 nodes: 1 written, 0 right, 1 failed, in ")
			WantLabel(t, f, "b", TotalLabel, "0")
		})
	}
}

func prune(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane, TotalLabel+"=3", "x.y/pods=3", "z/other=1")
		f.AddNode("n1", TotalLabel+"=3", "x.y/pods=1")
		f.AddNode("n2")
		f.AddPods(3)
		if err := podcount.Start(t, f, "-prune", "-dry-run", "-node-label", "x.y/pods").Finish(); err != nil {
			t.Error(err)
		}
		WantLabel(t, f, "cp", TotalLabel, "3")
		for _, selectors := range [][]string{{"-total-nodes", "none"}, {"-node-label", "x.y/pods", "-namespace", "a", "-pod-selector", "b=c", "-field-selector", "spec.nodeName=d"}} {
			if err := podcount.Start(t, f, append(selectors, "-prune")...).Finish(); err != nil {
				t.Error(err)
			}
			WantLabel(t, f, "cp", TotalLabel, "-")
			WantLabel(t, f, "n1", TotalLabel, "-")
			if selectors[0] == "-total-nodes" {
				WantLabel(t, f, "n1", "x.y/pods", "1")
			}
		}
		WantLabel(t, f, "cp", "x.y/pods", "-")
		WantLabel(t, f, "n1", "x.y/pods", "-")
		WantLabel(t, f, "cp", "z/other", "1")
		WantLabel(t, f, "cp", ControlPlane, "")
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 4)
		testkit.WantNumber(t, "events", len(f.All("events")), 0)
		testkit.WantNumber(t, "lists of pods", len(f.Requests(func(s fakekube.Request) bool { return strings.Contains(s.Path, "pods") })), 0)
	})
}
