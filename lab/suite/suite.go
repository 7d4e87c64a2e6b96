// Package suite tests the whole program. It runs podcount against the fake API server, mostly in virtual time, and
// checks which requests arrive there and what podcount logs.
//
// The tests are sorted by topic, usually one topic a file. A table at the top of the file lists sentences about
// podcount, each with the test that shows it. The tests get the program as an argument, because no package can import
// package main:
//
//	// firstListIsAwaited shows that podcount writes nothing until it knows all pods.
//	func firstListIsAwaited(t *testing.T, podcount Program) {
//		Simulate(t, func(t *testing.T, f *fakekube.Server) {
//			f.AddNode("cp", ControlPlane)
//			fixture.AddPods(f, 3)
//			p := podcount.Start(t, f, "-interval", "1s") // runs until the test ends
//			testkit.Pass(time.Minute)                    // lets virtual time pass
//			WantLabel(t, f, "cp", TotalLabel, "3")
//			testkit.WantText(t, p.Log.String(), "label written")
//		})
//	}
//
// The tests of package main run the topics. From the top directory, go test -run TestLabels runs one topic, and
// go test -run 'TestLabels/the_total' runs only those of its sentences that contain "the total".
package suite

import (
	"context"
	"io"
	"testing"
	"testing/synctest"

	"podcount/internal/api/kube"
	"podcount/lab/fakekube"
)

// Program runs podcount until ctx ends or there is nothing left to do. It is the function run of package main.
type Program func(
	ctx context.Context,
	args []string,
	getenv func(string) string,
	stdout, stderr io.Writer,
	dial kube.Dialer,
) error

// Topic is a table of sentences about podcount. Each has the test that shows it.
type Topic []struct {
	Sentence string
	Test     func(t *testing.T, podcount Program)
}

// Run runs every test of the topic as a subtest with the sentence as its name.
func (topic Topic) Run(t *testing.T, podcount Program) {
	for _, row := range topic {
		t.Run(row.Sentence, func(t *testing.T) { row.Test(t, podcount) })
	}
}

// Simulate runs a test in virtual time, with its own fake API server.
func Simulate(t *testing.T, test func(t *testing.T, f *fakekube.Server)) {
	synctest.Test(t, func(t *testing.T) { test(t, fakekube.New()) })
}

// SimulateCase is Simulate as a subtest with this name.
func SimulateCase(t *testing.T, name string, test func(t *testing.T, f *fakekube.Server)) {
	t.Run(name, func(t *testing.T) { Simulate(t, test) })
}

const (
	// ControlPlane is the label of the nodes that show the total unless -total-nodes selects others.
	ControlPlane = "node-role.kubernetes.io/control-plane"

	// oldControlPlane is the label that ControlPlane replaced in Kubernetes 1.20. Nodes with either show the total.
	oldControlPlane = "node-role.kubernetes.io/master"

	// TotalLabel is the label that shows the total unless -total-label names another one.
	TotalLabel = "hopegi/pod-count"

	// OwnPodsLabel is the -node-label of tests that want each node to show the number of its own pods.
	OwnPodsLabel = "example.com/pods"
)
