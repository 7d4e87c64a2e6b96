package suite

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
	"podcount/internal/wire"
)

// Formats shows in which formats podcount asks for objects, and which answers it understands.
var Formats = Topic{
	{"podcount asks for as little as its flags allow", requestedFormats},
	{"a server that knows only one format is understood", otherFormatsAreUnderstood},
	{"a refusal in protobuf is reported like one in JSON", refusalsInProtobuf},
}

func requestedFormats(t *testing.T, podcount Program) {
	metadata := ";as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"
	for args, want := range map[string]struct{ pods, nodes string }{
		"":                                     {wire.Protobuf + metadata + ", " + wire.Protobuf + ", " + wire.JSON + metadata + ", " + wire.JSON, wire.Protobuf + metadata + ", " + wire.Protobuf + ", " + wire.JSON + metadata + ", " + wire.JSON},
		"-wire json":                           {wire.JSON + metadata + ", " + wire.JSON, wire.JSON + metadata + ", " + wire.JSON},
		"-node-label example.com/n":            {wire.Protobuf + ", " + wire.JSON, wire.Protobuf + metadata + ", " + wire.Protobuf + ", " + wire.JSON + metadata + ", " + wire.JSON},
		"-node-label example.com/n -wire json": {wire.JSON, wire.JSON + metadata + ", " + wire.JSON},
	} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			f.AddPods(3)
			podcount.Start(t, f, strings.Fields(args)...)
			synctest.Wait()
			for resource, want := range map[string]string{"pods": want.pods, "nodes": want.nodes} {
				for _, s := range f.Requests(IsList(resource)) {
					testkit.WantText(t, "^"+s.Header.Get("Accept")+"$", "^"+strings.ReplaceAll(want, "%s", "List")+"$")
				}
				for _, s := range f.Requests(fakekube.IsWatch(resource)) {
					testkit.WantText(t, "^"+s.Header.Get("Accept")+"$", "^"+strings.ReplaceAll(want, "%s", "")+"$")
				}
			}
			WantLabel(t, f, "cp", TotalLabel, "3")
			f.AddPods(5)
			testkit.Pass(10 * time.Second)
			WantLabel(t, f, "cp", TotalLabel, "5")
		})
	}
}

func otherFormatsAreUnderstood(t *testing.T, podcount Program) {
	for _, only := range []string{wire.Protobuf, wire.JSON} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.OnlyMediaType = only // and no metadata alone
			f.AddNode("cp", ControlPlane)
			f.AddPods(3)
			podcount.Start(t, f)
			synctest.Wait()
			WantLabel(t, f, "cp", TotalLabel, "3")
			f.AddPods(5)
			f.Remove("pods", At("default", "web-0"))
			testkit.Pass(10 * time.Second)
			WantLabel(t, f, "cp", TotalLabel, "4")
		})
	}
}

func refusalsInProtobuf(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Forbid("list pods", true)
		p := podcount.Start(t, f)
		testkit.Pass(time.Second)
		testkit.WantText(t, p.Log.String(), `list pods: 403 Forbidden: pods is forbidden`)
		testkit.WantText(t, p.Log.String(), `(the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"list\"])`)
		f.Forbid("list pods", false)
		f.AddPods(2)
		body := fakekube.Protobuf([]byte(`{"kind":"Status","code":429,"reason":"TooManyRequests","message":"later","details":{"retryAfterSeconds":7}}`))
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "watch", Resource: "pods"}, Do: fakekube.Reply{Code: 429, Header: map[string]string{"Content-Type": wire.Protobuf}, Body: string(body)}})
		testkit.Pass(5 * time.Second)
		testkit.WantText(t, p.Log.String(), "watch pods: 429 TooManyRequests: later")
		if n := len(f.Requests(fakekube.IsWatch("pods"))); n != 1 {
			t.Errorf("%d watches in 5 s, though the server asked for 7", n)
		}
		testkit.Pass(15 * time.Second)
		f.AddPods(3)
		synctest.Wait()
		testkit.WantNumber(t, "watches", len(f.Requests(fakekube.IsWatch("pods"))), 2)
	})
}
