package kube

import (
	"net/url"
	"strings"
	"testing"
)

func TestCallIsReadFromMethodAndPath(t *testing.T) {
	for _, c := range []struct {
		method, path, query string
		want                call
		text                string
	}{
		{"GET", "/api/v1/pods", "", call{"list", "", "pods", ""}, "list pods"},
		{"GET", "/api/v1/pods", "watch=1", call{"watch", "", "pods", ""}, "watch pods"},
		{"GET", "/api/v1/namespaces/a/pods", "", call{"list", "", "pods", ""}, "list pods"},
		{"GET", "/api/v1/namespaces/a/pods/p", "", call{"get", "", "pods", "a/p"}, "get pods/a/p"},
		{"GET", "/api/v1/namespaces/a/pods/p/log", "", call{"get", "", "pods/log", "a/p"}, "get pods/log/a/p"},
		{"GET", "/api/v1/namespaces", "", call{"list", "", "namespaces", ""}, "list namespaces"},
		{"GET", "/api/v1/namespaces/a", "", call{"get", "", "namespaces", "a"}, "get namespaces/a"},
		{"GET", "/api/v1/nodes/", "", call{"list", "", "nodes", ""}, "list nodes"},
		{"PATCH", "/api/v1/nodes/n", "", call{"patch", "", "nodes", "n"}, "patch nodes/n"},
		{"PATCH", "/api/v1/nodes/n/status", "", call{"patch", "", "nodes/status", "n"}, "patch nodes/status/n"},
		{"POST", "/api/v1/namespaces/a/events", "", call{"create", "", "events", ""}, "create events"},
		{"DELETE", "/api/v1/nodes/n", "", call{"delete", "", "nodes", "n"}, "delete nodes/n"},
		{
			"PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "fieldManager=x",
			call{"update", "coordination.k8s.io", "leases", "a/l"}, "update leases/a/l",
		},
		{
			"PATCH", "/apis/demo.example/v1/namespaces/a/counts/x/status", "",
			call{"patch", "demo.example", "counts/status", "a/x"}, "patch counts/status/a/x",
		},
		{"GET", "/apis/demo.example/v1/counts", "", call{"list", "demo.example", "counts", ""}, "list counts"},

		{"GET", "/apis/demo.example/v1", "", call{"get", "", "demo.example/v1", ""}, "get demo.example/v1"},
		{"GET", "/api/v1", "", call{"get", "", "/api/v1", ""}, "get /api/v1"},
		{"GET", "/version", "", call{"get", "", "/version", ""}, "get /version"},
		{"GET", "", "", call{"get", "", "", ""}, "get"},
		{"HEAD", "/api/v1/nodes/n", "", call{"", "", "nodes", "n"}, "nodes/n"},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		got := callOf(c.method, c.path, query)
		if got != c.want || got.String() != c.text {
			t.Errorf("%s %s?%s: %+v, %q", c.method, c.path, c.query, got, got)
		}
	}
}

// Paths come from flags, too: whatever they are, a call can be read and said.
func FuzzCallOf(f *testing.F) {
	const deep = "/apis/a/v1/namespaces/b/counts/c/status"
	for _, path := range []string{"", "/", "//", "/apis/", "/api/v1/pods", deep, "namespaces/"} {
		f.Add("GET", path, "")
	}
	f.Add("0", "0/// ", "")
	f.Fuzz(func(t *testing.T, method, path, watch string) {
		c := callOf(method, path, url.Values{"watch": {watch}})
		end := strings.TrimSpace("/" + c.object) // String trims blanks, too
		if c.object != "" && !strings.HasSuffix(c.String(), end) {
			t.Errorf("%q does not name %q", c, c.object)
		}
		if !strings.Contains(path, c.group) || strings.Count(c.resource, "/") > strings.Count(path, "/") {
			t.Errorf("%+v is not of %q", c, path)
		}
	})
}
