// Package behaviours shows what podcount alone does, on any API server. Package trial shows what every controller has
// to survive. The same behaviours run on the fake and on a real cluster, and so also show that the fake is like a real
// server. The recorded exchanges of package fakekube show that request by request.
//
// A behaviour uses real time and real connections, and needs a user who may do everything. It works in a namespace of
// its own, and on nodes of its own, which have no machines. At its end it removes what it has created.
//
// On a real cluster, the node controller of a cloud may remove nodes that are not machines of that cloud. Behaviours
// that need a node fail there.
package behaviours

import (
	"context"
	"io"
	"testing"

	"podcount/internal/api/kube"
	"podcount/lab/fakekube"
)

type object = fakekube.Object

// Options are the cluster, and podcount, whose package nobody can import.
type Options struct {
	// Fake is the fake API server that Kubeconfig leads to. It is nil for a real cluster.
	Fake *fakekube.Server

	// Kubeconfig is a file, and Context one of its contexts, or "" for the current one.
	Kubeconfig, Context string

	// Program runs the whole of podcount until ctx ends.
	Program func(
		ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer, dial kube.Dialer,
	) error
}

// Show runs every behaviour as a subtest of t. The working directory must be the root of the repository, because the
// behaviours read files in deploy and testdata.
//
// Some behaviours run in parallel, after Show has returned. On a real cluster, an interrupt ends the behaviours early.
// What they have created is still removed.
func Show(t *testing.T, o Options) {
	c := openCluster(t, o)
	for _, b := range all {
		if c.interrupted.Err() != nil {
			t.Fatal("interrupted")
		}
		t.Run(b.name, func(t *testing.T) { b.show(newWorld(t, c)) })
	}
}

// all lists the behaviours.
var all = []struct {
	name string
	show func(w *world)
}{
	{"podcount and the server refuse the same selectors", sameSelectors},
	{"a node that stops matching loses the label", labelIsRemoved},
	{"events are posted, and repeated ones are counted", eventsAreCounted},
	{"Counts follow their pods", countsFollowPods},
	{"-dry-run reports, -once writes, -prune removes", onceAndPrune},
	{"the page shows a pod, step by step", pageShowsPods},

	{"a wrong token is named and the right one picked up", wrongToken},
	{"a missing right is named; the manifest's are enough", missingRight},

	{"a policy's refusal is logged, and the write retried", refusedByPolicy},
	{"the manifest's policy allows only podcount's own writes", manifestPolicy},
	{"the manifest's policy guards the managers of Counts", countPolicy},
}
