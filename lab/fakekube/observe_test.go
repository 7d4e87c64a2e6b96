package fakekube

import (
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func TestReceivedSelectsLikeAFault(t *testing.T) {
	f := New()
	f.AddNode("n")
	f.AddPod("default", "p", "")
	for _, request := range []string{
		"GET /api/v1/pods",
		"GET /api/v1/namespaces/default/pods?limit=1",
		"GET /api/v1/pods?watch=1&resourceVersion=204&timeoutSeconds=1",
		"GET /api/v1/nodes/n",
		"DELETE /api/v1/namespaces/default/pods/p",
		"DELETE /api/v1/nodes/n",
		"GET /version",
	} {
		wantAnswer(t, f, request, "", 200, "")
	}
	for _, c := range []struct {
		on   Requests
		want string
	}{
		{Requests{}, "list pods, list pods, watch pods, get nodes/n, delete pods/default/p, delete nodes/n, get"},
		{Requests{Verb: "list", Resource: "pods"}, "list pods, list pods"},
		{Requests{Verb: "list", Namespace: "default"}, "list pods"},
		{Requests{Verb: "watch"}, "watch pods"},
		{Requests{Verb: "write"}, "delete pods/default/p, delete nodes/n"},
		{Requests{Verb: "write|get", Resource: "nodes", Name: "n"}, "get nodes/n, delete nodes/n"},
		{Requests{Resource: "/version"}, "get"},
		{Requests{Verb: "list", If: func(q Request) bool { return q.Query.Get("limit") == "1" }}, "list pods"},
	} {
		var found []string
		for _, q := range f.Received(c.on) {
			found = append(found, q.Route.String())
		}
		if got := strings.Join(found, ", "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.on, got, c.want)
		}
	}
	wantPanic(t, `"lists" is no verb`, func() { f.Received(Requests{Verb: "lists"}) })

	f.ForgetRequests()
	testkit.WantNumber(t, "requests that are left", len(f.Received(Requests{})), 0)
}
