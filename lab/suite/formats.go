package suite

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/wire"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Formats shows in which formats podcount requests objects, and which answers it understands.
var Formats = Topic{
	{"podcount requests as little as its flags allow", requestedFormats},
	{"a server that sends whole objects in one format is understood", singleFormat},
	{"a refusal in protobuf is reported like one in JSON", refusalsInProtobuf},
}

// What the Accept header of a request has, best first. %s becomes "List" in a list, and "" in a watch.
const (
	protobufMetadata = wire.Protobuf + ";as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"
	jsonMetadata     = wire.JSON + ";as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"

	metadataInAnyFormat = protobufMetadata + ", " + wire.Protobuf + ", " + metadataInJSON
	metadataInJSON      = jsonMetadata + ", " + wire.JSON
	objectsInAnyFormat  = wire.Protobuf + ", " + wire.JSON
	objectsInJSON       = wire.JSON
)

// requestedFormats shows that podcount requests only metadata of nodes, and also of pods unless it needs their
// spec.nodeName.
func requestedFormats(t *testing.T, podcount Program) {
	for _, row := range []struct{ args, pods, nodes string }{
		{"", metadataInAnyFormat, metadataInAnyFormat},
		{"-wire json", metadataInJSON, metadataInJSON},
		{"-node-label example.com/n", objectsInAnyFormat, metadataInAnyFormat},
		{"-node-label example.com/n -wire json", objectsInJSON, metadataInJSON},
	} {
		t.Run(row.args, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				fixture.AddPods(f, 3)
				podcount.Start(t, f, strings.Fields(row.args)...)
				synctest.Wait()
				wantAccept(t, f, "pods", row.pods)
				wantAccept(t, f, "nodes", row.nodes)
				WantLabel(t, f, "cp", TotalLabel, "3")
				fixture.AddPods(f, 5)
				testkit.Pass(10 * time.Second)
				WantLabel(t, f, "cp", TotalLabel, "5")
			})
		})
	}
}

// wantAccept fails the test for each list and watch of a resource whose Accept header differs.
func wantAccept(t *testing.T, f *fakekube.Server, resource, accept string) {
	t.Helper()
	for _, r := range fixture.Requests(f, IsList(resource)) {
		want := strings.ReplaceAll(accept, "%s", "List")
		testkit.WantEqual(t, "what a list of "+resource+" accepts", r.Header.Get("Accept"), want)
	}
	for _, r := range fixture.Requests(f, fixture.IsWatch(resource)) {
		want := strings.ReplaceAll(accept, "%s", "")
		testkit.WantEqual(t, "what a watch of "+resource+" accepts", r.Header.Get("Accept"), want)
	}
}

func singleFormat(t *testing.T, podcount Program) {
	for _, only := range []string{wire.Protobuf, wire.JSON} {
		t.Run(strings.TrimPrefix(only, "application/"), func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.OnlyMediaType = only
				f.AddNode("cp", ControlPlane)
				fixture.AddPods(f, 3)
				podcount.Start(t, f)
				synctest.Wait()
				WantLabel(t, f, "cp", TotalLabel, "3")
				fixture.AddPods(f, 5)
				f.Remove("pods", At("default", "web-0"))
				testkit.Pass(10 * time.Second)
				WantLabel(t, f, "cp", TotalLabel, "4")
			})
		})
	}
}

func refusalsInProtobuf(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		permit := f.Forbid("list pods")
		p := podcount.Start(t, f)
		testkit.Pass(time.Second)
		testkit.WantText(t, p.Log.String(),
			`list pods: 403 Forbidden: pods is forbidden`,
			`(the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"list\"])`)
		permit()
		fixture.AddPods(f, 2)

		const status = `{"kind":"Status","code":429,"reason":"TooManyRequests","message":"later",` +
			`"details":{"retryAfterSeconds":7}}`
		f.Inject(t, fakekube.Fault{
			On: fakekube.Requests{Verb: "watch", Resource: "pods"},
			Do: fakekube.Reply{
				Code:   429,
				Header: map[string]string{"Content-Type": wire.Protobuf},
				Body:   string(fakekube.Protobuf([]byte(status))),
			},
		})
		testkit.Pass(5 * time.Second)
		testkit.WantText(t, p.Log.String(), "watch pods: 429 TooManyRequests: later")
		watches := fakekube.Requests{Verb: "watch", Resource: "pods"}
		testkit.WantNumber(t, "watches before the server's 7 s are over", len(f.Received(watches)), 1)
		testkit.Pass(15 * time.Second)
		fixture.AddPods(f, 3)
		synctest.Wait()
		testkit.WantNumber(t, "watches", len(f.Received(watches)), 2)
	})
}
