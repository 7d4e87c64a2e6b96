package kube

import (
	"fmt"
	"net/url"
	"testing"

	"podcount/lab/testkit"
)

func TestRequestIsNamedAsRBACNamesIt(t *testing.T) {
	watch := url.Values{"watch": {"1"}}
	const core, leases, counts = "/api/v1", "/apis/coordination.k8s.io/v1", "/apis/demo.example/v1"
	for _, row := range []struct {
		request          Request
		path, text, rule string
	}{
		{
			Request{Method: "GET", API: core, Resource: "pods"},
			"/api/v1/pods", "list pods",
			`[""], resources ["pods"], verbs ["list"]`,
		},
		{
			Request{Method: "GET", API: core, Namespace: "a", Resource: "pods", Query: watch},
			"/api/v1/namespaces/a/pods", "watch pods",
			`[""], resources ["pods"], verbs ["watch"]`,
		},
		{
			Request{Method: "GET", API: leases, Namespace: "a", Resource: "leases", Name: "l"},
			"/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "get leases/a/l",
			`["coordination.k8s.io"], resources ["leases"], verbs ["get"]`,
		},
		{
			Request{Method: "PUT", API: leases, Namespace: "a", Resource: "leases", Name: "l"},
			"/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "update leases/a/l",
			`["coordination.k8s.io"], resources ["leases"], verbs ["update"]`,
		},
		{
			Request{Method: "PATCH", API: core, Resource: "nodes", Name: "n"},
			"/api/v1/nodes/n", "patch nodes/n",
			`[""], resources ["nodes"], verbs ["patch"]`,
		},
		{
			Request{Method: "PATCH", API: counts, Namespace: "a", Resource: "counts", Name: "x", Subresource: "status"},
			"/apis/demo.example/v1/namespaces/a/counts/x/status", "patch counts/status/a/x",
			`["demo.example"], resources ["counts/status"], verbs ["patch"]`,
		},
		{
			Request{Method: "POST", API: core, Namespace: "a", Resource: "events"},
			"/api/v1/namespaces/a/events", "create events",
			`[""], resources ["events"], verbs ["create"]`,
		},
		{
			Request{Method: "DELETE", API: core, Resource: "nodes", Name: "n"},
			"/api/v1/nodes/n", "delete nodes/n",
			`[""], resources ["nodes"], verbs ["delete"]`,
		},
	} {
		testkit.WantEqual(t, "path", row.request.Path(), row.path)
		testkit.WantEqual(t, "text", row.request.String(), row.text)
		message := "x cannot " + row.request.verb() + " it"
		body := fmt.Sprintf(`{"code":403,"reason":"Forbidden","message":%q}`, message)
		err := readStatus(answer(403, "application/json", body), row.request, "")
		want := "403 Forbidden: " + message + " (the RBAC rule that allows it: apiGroups " + row.rule + ")"
		testkit.WantEqual(t, "the error", err.Error(), want)
	}
}

func TestRequestForAnAPIIsNamedByIt(t *testing.T) {
	for api, want := range map[string]string{"/apis/demo.example/v1": "get demo.example/v1", "/api/v1": "get /api/v1"} {
		request := Request{Method: "GET", API: api}
		testkit.WantEqual(t, "path", request.Path(), api)
		testkit.WantEqual(t, "text", request.String(), want)
	}
}
