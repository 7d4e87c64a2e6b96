// Package suite shows what the whole program does. It runs podcount against the fake API server, most of the time in
// virtual time, and checks what arrives there.
//
// Each file is a topic, with a table at its top: a sentence that podcount keeps, and the function that shows it. A
// function gets the program as its argument, because no package can import package main:
//
//	// firstListIsAwaited shows that podcount writes nothing while it does not know all pods.
//	func firstListIsAwaited(t *testing.T, podcount Program) {
//		Simulate(t, func(t *testing.T, f *fakekube.Server) {
//			f.AddNode("cp", ControlPlane)
//			f.AddPods(3)
//			p := podcount.Start(t, f, "-interval", "1s") // until the test ends
//			testkit.Pass(time.Minute)                    // of virtual time
//			WantLabel(t, f, "cp", TotalLabel, "3")
//			testkit.WantText(t, p.Log.String(), "label written")
//		})
//	}
//
// The tests of package main run the topics: go test -run TestLabels runs one of them, and go test -run
// 'TestLabels/the_total' only the sentences in it that begin like this.
package suite

import (
	"context"
	"io"
	"testing"
	"testing/synctest"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
)

// Program is podcount, from its flags to its end, which comes soon after that of ctx. It is main's function run.
type Program func(
	ctx context.Context,
	args []string,
	getenv func(string) string,
	stdout, stderr io.Writer,
	dial kube.Dialer,
) error

// Topic is a table of sentences about podcount, each with the test that shows it.
type Topic []struct {
	Sentence string
	Test     func(t *testing.T, podcount Program)
}

// Run runs every test of the topic as a subtest that is named by its sentence.
func (topic Topic) Run(t *testing.T, program Program) {
	for _, row := range topic {
		t.Run(row.Sentence, func(t *testing.T) { row.Test(t, program) })
	}
}

// Simulate runs a test in virtual time, with a fake API server of its own.
func Simulate(t *testing.T, test func(t *testing.T, f *fakekube.Server)) {
	synctest.Test(t, func(t *testing.T) { test(t, fakekube.New()) })
}

const (
	// ControlPlane is the label of the nodes that show the total unless -total-nodes chooses others.
	ControlPlane = "node-role.kubernetes.io/control-plane"

	// oldControlPlane is what ControlPlane was called before Kubernetes 1.20. Both mark the same role.
	oldControlPlane = "node-role.kubernetes.io/master"

	// TotalLabel is the label that shows the total unless -total-label names another one.
	TotalLabel = "hopegi/pod-count"

	// OwnPodsLabel is the -node-label of tests that want each node to show the number of its own pods.
	OwnPodsLabel = "example.com/pods"
)
