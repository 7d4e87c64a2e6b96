package suite

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// WantLabel fails the test unless a node has a label with that value. The value "-" means that it must not have it.
func WantLabel(t *testing.T, f *fakekube.Server, node, label, want string) {
	t.Helper()
	got := f.Label(node, label)
	if got != want {
		t.Errorf("node %s: label %s is %s, want %s", node, label, got, want)
	}
}

// WantPeace is the oracle: when faults have stopped, labels equal the truth, and then nothing is written at all.
//
// It lets the time pass that podcount may need: its longest backoff, one interval, and the writes at -qps. Then the
// label of every node must equal the truth, which WantPeace works out from the fake's objects, without podcount's code.
// And for five more intervals, podcount must not try to write a label or a status. args are the flags that podcount was
// started with; the oracle knows those that change what is right.
func WantPeace(t *testing.T, f *fakekube.Server, args ...string) {
	t.Helper()
	flags := flagsIn(t, args)
	nodes := f.All("nodes")
	writing := time.Duration(float64(len(nodes)) / flags.qps * float64(time.Second))
	testkit.Pass(time.Minute + flags.interval + writing)
	wantTruth(t, f, flags)

	peace := time.Now()
	testkit.Pass(5 * flags.interval)
	late := f.Requests(func(r fakekube.Request) bool {
		return fakekube.IsWrite(r) && !strings.Contains(r.Path, "/leases/") && r.At.After(peace)
	})
	for _, r := range late {
		t.Errorf("podcount has written although all was right: %s", r)
	}
}

// wantTruth fails the test for each node whose labels are not those that the pods of the fake lead to.
func wantTruth(t *testing.T, f *fakekube.Server, flags truthFlags) {
	t.Helper()
	pods := f.Selected("pods", flags.namespace, flags.podSelector, flags.fieldSelector)
	ownPods := map[string]int{} // by node
	for _, pod := range pods {
		spec, _ := pod["spec"].(fakekube.Object)
		ownPods[fakekube.TextIn(spec, "nodeName")]++
	}
	showsTotal := map[string]bool{} // by node
	for _, selector := range flags.totalNodes {
		for _, node := range f.Selected("nodes", "", selector, "") {
			showsTotal[fakekube.KeyOf(node).Name] = true
		}
	}
	for _, node := range f.All("nodes") {
		name := fakekube.KeyOf(node).Name
		total := "-"
		if showsTotal[name] {
			total = strconv.Itoa(len(pods))
		}
		WantLabel(t, f, name, flags.totalLabel, total)
		if flags.nodeLabel != "" {
			WantLabel(t, f, name, flags.nodeLabel, strconv.Itoa(ownPods[name]))
		}
	}
}

// truthFlags are the flags of podcount on which it depends what is right, and when.
type truthFlags struct {
	interval time.Duration
	qps      float64

	namespace     string
	podSelector   string
	fieldSelector string

	totalLabel string
	totalNodes []string // selectors: a node that any of them chooses shows the total
	nodeLabel  string
}

// flagsIn reads the flags that the oracle knows. Those that are not given have podcount's defaults.
func flagsIn(t *testing.T, args []string) truthFlags {
	t.Helper()
	flags := truthFlags{
		interval:   10 * time.Second,
		qps:        20,
		totalLabel: TotalLabel,
		totalNodes: []string{ControlPlane, oldControlPlane},
	}
	for i := 0; i < len(args); i += 2 {
		if !strings.HasPrefix(args[i], "-") || i+1 == len(args) {
			t.Fatalf("the oracle reads flags in pairs, -name and value; it cannot read %q", args[i:])
		}
		value := args[i+1]
		var err error
		switch args[i] {
		case "-interval":
			flags.interval, err = time.ParseDuration(value)
		case "-qps":
			flags.qps, err = strconv.ParseFloat(value, 64)
		case "-namespace":
			flags.namespace = value
		case "-pod-selector":
			flags.podSelector = value
		case "-field-selector":
			flags.fieldSelector = value
		case "-total-label":
			flags.totalLabel = value
		case "-total-nodes":
			flags.totalNodes = []string{value}
		case "-node-label":
			flags.nodeLabel = value
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return flags
}

// Survive lets a cluster live for half a minute while a podcount is at work in it. After ten seconds it calls fault, in
// a goroutine of its own; fault must wait with timers, because only one goroutine may call testkit.Pass. When both have
// ended, Survive asks the oracle, for the labels and for the status of a Count.
func (podcount Program) Survive(t *testing.T, f *fakekube.Server, fault func(p *Process), args ...string) *Process {
	t.Helper()
	start := func(args ...string) *Process { return podcount.Start(t, f, args...) }
	return SurviveFrom(t, f, start, fault, args...)
}

// SurviveFrom is Survive for a podcount that start starts.
func SurviveFrom(
	t *testing.T, f *fakekube.Server, start func(args ...string) *Process, fault func(p *Process), args ...string,
) *Process {
	t.Helper()
	args = append([]string{"-node-label", OwnPodsLabel}, args...)
	f.InstallCRD(&fakekube.CRD{HasStatus: true})
	f.AddNode("cp", ControlPlane)
	f.AddNode("other", ControlPlane)
	f.AddNode("worker")
	f.AddPod("default", "there", "worker")
	f.AddCount("web", `{"name":"web","count":18}`)
	p := start(args...)
	Churn(f, 10)
	ended := make(chan struct{})
	go func() {
		fault(p)
		close(ended)
	}()
	Churn(f, 20)
	f.AddPods(2) // a total that was never there before
	<-ended
	WantPeaceAndCount(t, f, args...)
	return p
}

// Churn lets a cluster live for a number of seconds: a pod comes in each, and every other one goes.
func Churn(f *fakekube.Server, seconds int) {
	nodes := []string{"cp", "other", "worker", ""}
	for i := range seconds {
		name := fmt.Sprintf("life-%d", time.Now().Unix())
		f.AddPod("default", name, nodes[i%4])
		testkit.Pass(time.Second)
		if i%2 > 0 {
			f.Remove("pods", At("default", name))
		}
	}
}

// WantPeaceAndCount is WantPeace in a cluster of Survive, where the status of the Count must be right, too.
func WantPeaceAndCount(t *testing.T, f *fakekube.Server, args ...string) {
	t.Helper()
	WantPeace(t, f, args...)
	have := len(f.All("pods"))
	want := fmt.Sprint(have == 18, " ", have, " 1")
	testkit.WantEqual(t, "the Count's status", f.CountStatus("web"), want)
}
