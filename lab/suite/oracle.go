package suite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// WantLabel fails the test unless a node has a label with this value. The value "-" means that the node must not have
// the label.
func WantLabel(t *testing.T, f *fakekube.Server, node, label, want string) {
	t.Helper()
	got := fixture.Label(f, node, label)
	if got != want {
		t.Errorf("node %s: label %s is %s, want %s", node, label, got, want)
	}
}

// WantPeace is the oracle of the tests: when faults have stopped, labels become right, and then nothing is written.
//
// WantPeace lets as much time pass as podcount may need: its longest backoff, one interval, and the writes at -qps.
// Then the labels of every node must be right. WantPeace derives them from the fake's objects, without podcount's code.
// For five more intervals, podcount must not write any label or status.
//
// args are those flags of podcount that change the right labels or the time for them. WantPeace knows -interval,
// -node-label and the selectors of pods.
func WantPeace(t *testing.T, f *fakekube.Server, args ...string) {
	t.Helper()
	flags := flagsIn(t, args)
	const perWrite = time.Second / 20 // the default of -qps
	timeToWrite := time.Duration(len(f.All("nodes"))) * perWrite
	testkit.Pass(time.Minute + flags.interval + timeToWrite)
	wantRightLabels(t, f, flags)

	peace := time.Now()
	testkit.Pass(5 * flags.interval)
	needless := fixture.Requests(f, func(r fakekube.Request) bool {
		return fixture.IsWrite(r) && !strings.Contains(r.Path, "/leases/") && r.At.After(peace)
	})
	for _, r := range needless {
		t.Errorf("podcount has written although all was right: %s", r)
	}
}

// WantPeaceAndCount is WantPeace in a cluster with the Count web, which wants 18 pods. Its status must be right, too.
func WantPeaceAndCount(t *testing.T, f *fakekube.Server, args ...string) {
	t.Helper()
	WantPeace(t, f, args...)
	pods := len(f.All("pods"))
	want := fmt.Sprint(pods == 18, " ", pods, " 1")
	testkit.WantEqual(t, "the Count's status", fixture.CountStatus(f, "web"), want)
}

// wantRightLabels fails the test for each label of a node that does not show the number of the fake's pods.
func wantRightLabels(t *testing.T, f *fakekube.Server, flags oracleFlags) {
	t.Helper()
	pods := f.Selected("pods", "", flags.podSelector, flags.fieldSelector)
	ownPods := map[string]int{} // by node
	for _, pod := range pods {
		spec, _ := pod["spec"].(fakekube.Object)
		ownPods[fakekube.TextIn(spec, "nodeName")]++
	}
	showsTotal := map[string]bool{} // by node
	for _, selector := range []string{ControlPlane, oldControlPlane} {
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
		WantLabel(t, f, name, TotalLabel, total)
		if flags.nodeLabel != "" {
			WantLabel(t, f, name, flags.nodeLabel, strconv.Itoa(ownPods[name]))
		}
	}
}

// oracleFlags are the flags of podcount that the oracle must know.
type oracleFlags struct {
	interval      time.Duration
	podSelector   string
	fieldSelector string
	nodeLabel     string // "" if podcount must not write it
}

// flagsIn reads the flags that the oracle must know. Missing flags get podcount's defaults.
func flagsIn(t *testing.T, args []string) oracleFlags {
	t.Helper()
	flags := oracleFlags{interval: 10 * time.Second}
	for pair := range slices.Chunk(args, 2) {
		name, value := pair[0], pair[1]
		switch name {
		case "-interval":
			var err error
			flags.interval, err = time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
		case "-pod-selector":
			flags.podSelector = value
		case "-field-selector":
			flags.fieldSelector = value
		case "-node-label":
			flags.nodeLabel = value
		case "-wire": // It changes no label.
		default:
			t.Fatalf("the oracle does not know the flag %s", name)
		}
	}
	return flags
}
