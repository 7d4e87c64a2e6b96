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
		SimulateCase(t, row.args, func(t *testing.T, f *fakekube.Server) {
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
		SimulateCase(t, strings.TrimPrefix(only, "application/"), func(t *testing.T, f *fakekube.Server) {
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
	}
}
