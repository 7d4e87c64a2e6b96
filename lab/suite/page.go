package suite

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"podcount/internal/view/page"
	"podcount/internal/view/trace"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Page shows the web page of -page. How it looks and works in a browser is shown elsewhere.
var Page = Topic{
	{"the state names the lease, the caches and the controllers", statePage},
	{"the state tells what the labels show, and since when", labelsOnPage},
	{"statusz and flagz tell the version and the flags, and no secret", zpages},
	{"the address of the page is logged unless the flag names it", addressOfPage},
	{"with -page-token-file, the page asks for the token", tokenPage},
	{"the trace tells when this replica has begun and ended to lead", leaseSteps},
}

// pageMark is what podcount logs before the address of its page.
const pageMark = `msg="the page is served" on=`

// startPage runs podcount in real time with -page, and returns a function that gets one of its pages.
func (podcount Program) startPage(t *testing.T, f *fakekube.Server, args ...string) getPage {
	t.Helper()
	args = append([]string{"-page", "127.0.0.1:0"}, args...)
	return pagesAt(t, podcount.startServing(t, f, pageMark, args...))
}

// stateOf returns the state that /debug/state shows.
func stateOf(t *testing.T, get getPage) (state page.State) {
	t.Helper()
	code, text := get("/debug/state")
	testkit.WantNumber(t, "the code of /debug/state", code, 200)
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return state
}

func statePage(t *testing.T, podcount Program) {
	state := stateOf(t, startSettled(t, podcount.startPage))
	testkit.WantEqual(t, "the version", state.Version, "dev")
	testkit.WantEqual(t, "there is a lease", state.Lease != nil, true)
	testkit.WantEqual(t, "the lease is ours", state.Lease.IsOurs, true)
	testkit.WantEqual(t, "the holder is this replica", state.Lease.Holder, state.Lease.Identity)
	testkit.WantNumber(t, "controllers", len(state.Controllers), 2)
	testkit.WantNumber(t, "kinds", len(state.Kinds), 3)
	for i, kind := range state.Kinds {
		testkit.WantEqual(t, "the kind in this place", kind.Name, []string{"Pod", "Node", "Count"}[i])
		testkit.WantEqual(t, kind.Name+" is ready", kind.IsReady, true)
		testkit.WantEqual(t, kind.Name+" has a version", kind.ResourceVersion != "", true)
		if kind.Name == "Pod" {
			testkit.WantNumber(t, "pods", kind.Objects, 4)
		}
	}
	testkit.WantNumber(t, "patches", state.Writes.Written, 3) // two of the label, one of the status
	testkit.WantBetween(t, "Events, some of which may still wait", state.Events.Posted, 1, 5)
}

func labelsOnPage(t *testing.T, podcount Program) {
	f := fakekube.New()
	f.AddNode("b", ControlPlane)
	f.AddNode("a", ControlPlane)
	f.AddNode("worker")
	f.AddPod("default", "web", "worker")
	f.Script(t, "patch nodes worker, always: refuse 500")
	get := podcount.startPage(t, f, "-interval", "10ms", "-node-label", OwnPodsLabel)
	var labels []page.Label
	f.Await(t, "labels that are written, and right wherever they can be", func() bool {
		labels = stateOf(t, get).Labels
		areWritten := labels[0].SecondsSinceWrite != nil && labels[1].SecondsSinceWrite != nil
		return areWritten && labels[0].WrongCount == 0 && labels[1].WrongCount == 1
	})
	testkit.WantNumber(t, "labels", len(labels), 2)
	isRight := labels[0].SecondsRight != nil && *labels[0].SecondsRight < 60
	testkit.WantEqual(t, "it is known since when the total is right", isRight, true)
	testkit.WantEqual(t, "the total", withoutTimes(labels[0]), page.Label{
		Name: TotalLabel, IsKnown: true, Value: "1", Nodes: []string{"a", "b"}, NodeCount: 2,
		Wrong: []string{},
	})
	testkit.WantEqual(t, "the nodes' own pods are right", labels[1].SecondsRight != nil, false)
	testkit.WantEqual(t, "the nodes' own pods", withoutTimes(labels[1]), page.Label{
		Name: OwnPodsLabel, IsOwn: true, IsKnown: true, Nodes: []string{"a", "b", "worker"}, NodeCount: 3,
		Wrong: []string{"worker"}, WrongCount: 1,
	})
}

// withoutTimes returns what the page shows of a label, without what differs from run to run.
func withoutTimes(label page.Label) page.Label {
	label.SecondsRight = nil
	label.SecondsSinceWrite = nil
	return label
}

func zpages(t *testing.T, podcount Program) {
	get := podcount.startPage(t, fakekube.New(), "-qps", "7")
	_, statusz := get("/statusz")
	testkit.WantText(t, statusz, "podcount statusz\n", "Binary version: dev\n", "Go version: go1.", "Up: 0 hr 00 min ")
	_, flagz := get("/flagz")
	testkit.WantText(t, flagz, "podcount flagz\n", "\nqps=7\n", "\nburst=40\n", "\npage=127.0.0.1:0\n")
	if strings.Contains(statusz+flagz, "secret-token") {
		t.Errorf("there is a secret in %s%s", statusz, flagz)
	}
}

func addressOfPage(t *testing.T, podcount Program) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := listener.Addr().String()
	listener.Close()
	f := fakekube.New()
	f.AddNode("cp", ControlPlane)
	server := f.Listen("http")
	t.Cleanup(server.Close)
	p := podcount.StartWith(t, nil, Wiring{Dial: new(net.Dialer).DialContext}, "-master", server.URL, "-page", free)
	f.Await(t, "the label", func() bool { return fixture.Label(f, "cp", TotalLabel) == "0" })
	testkit.WantText(t, stateOf(t, pagesAt(t, free)).Version, "dev")
	testkit.WantNumber(t, "lines with the address that the flag names", p.Logged("the page is served"), 0)
}

func tokenPage(t *testing.T, podcount Program) {
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"token": "page-token\n"})
	args := []string{"-page", "127.0.0.1:0", "-page-token-file", filepath.Join(dir, "token")}
	address := podcount.startServing(t, fakekube.New(), pageMark, args...)
	get := pagesAt(t, address)
	code, text := get("/debug/state")
	testkit.WantNumber(t, "the code without a token", code, 401)
	testkit.WantText(t, text, "needs its token")
	get = pagesAt(t, "anybody:page-token@"+address)
	code, _ = get("/debug/state")
	testkit.WantNumber(t, "the code with the token", code, 200)
}

func leaseSteps(t *testing.T, podcount Program) {
	f := fakekube.New()
	f.AddNode("cp", ControlPlane)
	server, ca := fixture.Listen(t, f)
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: any")})
	args := []string{"-kubeconfig", filepath.Join(dir, "config"), "-leader-elect"}
	tr := new(trace.Trace)
	var mu sync.Mutex
	var steps []string
	stop := tr.Listen(func(s trace.Step) {
		if s.Point == trace.Lease {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, s.Type+" "+s.Key)
		}
	})
	defer stop()
	ctx, cancel := context.WithCancel(trace.NewContext(t.Context(), tr))
	ended := make(chan error)
	go func() { ended <- podcount(ctx, args, NoEnv, io.Discard, io.Discard, nil) }()
	f.Await(t, "the label", func() bool { return fixture.Label(f, "cp", TotalLabel) == "0" })
	cancel()
	testkit.WantError(t, "podcount", <-ended, "")
	testkit.WantEqual(t, "the steps", steps, []string{"acquired kube-system/podcount", "released kube-system/podcount"})
}
