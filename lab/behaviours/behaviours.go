// Package behaviours shows what podcount alone does, and what it relies on, on any API server. Package trial shows what
// every controller has to survive. The same behaviours run on the fake and on a real cluster, and so also show that the
// fake is like a real server.
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
	"podcount/internal/api/kubeconfig"
	"podcount/lab/fakekube"
)

type object = fakekube.Object

// Options are the cluster, and those parts of podcount that no package can import.
type Options struct {
	// Fake is the fake API server that Kubeconfig leads to. It is nil for a real cluster.
	Fake *fakekube.Server

	// Kubeconfig is a file, and Context one of its contexts, or "" for the current one.
	Kubeconfig, Context string

	// Program runs the whole of podcount until ctx ends.
	Program func(
		ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer, dial kube.Dialer,
	) error

	// NewReflector returns a reflector of pods.
	NewReflector func(ReflectorOptions) Reflector

	// DecodePods reads a list of pods. It returns a line for each, with all fields that podcount keeps.
	DecodePods func(list io.Reader, isProtobuf, isMetadataOnly bool) ([]string, error)
}

// ReflectorOptions choose the pods that a reflector lists and watches.
type ReflectorOptions struct {
	// Config is the API server, and Dial connects to it.
	Config *kubeconfig.Config
	Dial   kube.Dialer

	// Namespace, LabelSelector and FieldSelector choose the pods.
	Namespace, LabelSelector, FieldSelector string

	// Version is the version from which the first watch starts. If it is "", the reflector starts with a list.
	Version string

	// Log receives the reflector's log lines, as with -v 4.
	Log io.Writer

	// Changed is called after each change of the cache.
	Changed func()
}

// Reflector keeps a cache of pods in step with the server.
type Reflector interface {
	// Run lists and watches until ctx ends.
	Run(ctx context.Context)

	// Names returns the names of the pods in the cache, sorted.
	Names() []string
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

// all lists the behaviours: first what podcount relies on, then what it alone does.
var all = []struct {
	name string
	show func(w *world)
}{
	{"a list and a watch report every change, also after a break", listAndWatch},
	{"a changed label moves an object in and out", changedLabel},
	{"field selectors select", fieldSelector},
	{"a version that is too old (410) leads to a relist", expiredVersion},

	{"the pages of a list add up to the list", pagedList},
	{"only metadata is sent if only metadata is accepted", metadataOnly},
	{"a list is the same in protobuf and in JSON", sameInEveryForm},
	{"a missing object or resource is a 404", missingIs404},
	{"an object that exists or has changed is a 409", conflictIs409},
	{"a write with another object's uid is a 422", otherUIDIs422},
	{"a lease is created by PUT and guarded by its version", leaseVersions},
	{"discovery names the resources", discovery},
	{"podcount and the server refuse the same selectors", sameSelectors},

	{"a node that stops matching loses the label", labelIsRemoved},
	{"events are posted, and repeated ones are counted", eventsAreCounted},
	{"Counts follow their pods", countsFollowPods},
	{"-dry-run reports, -once writes, -prune removes", onceAndPrune},
	{"the page shows a pod, step by step", pageShowsPods},
	{"an unknown field selector is wrong usage", unknownFieldSelector},
	{"a leader works although nobody reads its stderr", unreadOutput},

	{"a wrong token is named and the right one picked up", wrongToken},
	{"a missing right is named; the manifest's are enough", missingRight},
	{"an exec program's token is used", execToken},
	{"-master replaces the kubeconfig's server", masterFlag},
	{"a server with a wrong certificate is refused", wrongCertificate},
	{"a token that becomes invalid is read again", revokedToken},

	{"a policy's refusal is logged, and the write retried", refusedByPolicy},
	{"a late write to a deleted or recreated node does no harm", lateWrite},
	{"a slow webhook for one node delays no other", slowWebhook},
	{"the manifest's policy allows only podcount's own writes", manifestPolicy},
	{"the manifest's policy guards the managers of Counts", countPolicy},
}
