package fakekube

import (
	"strings"
	"testing"
)

func TestIsWriteIsListIsWatch(t *testing.T) {
	for request, want := range map[string]string{
		"HEAD /api/v1/pods":                         "list",
		"GET /api/v1/pods?watch=false":              "list",
		"GET /api/v1/namespaces/a/pods":             "list",
		"GET /api/v1/pods?limit=1":                  "list",
		"GET /api/v1/pods?watch=1":                  "watch",
		"GET /api/v1/namespaces/pods":               "",
		"GET /api/v1/namespaces/a/pods/pods":        "",
		"POST /api/v1/namespaces/a/pods":            "write",
		"DELETE /api/v1/namespaces/events/pods/a":   "write",
		"PATCH /api/v1/namespaces/a/events/e":       "",
		"POST /version":                             "",
		"DELETE /api/v1/namespaces/a/pods?limit=10": "write",
	} {
		method, target, _ := strings.Cut(request, " ")
		q := RequestOf(newRequest(method, target, ""))
		got := ""
		for name, match := range map[string]func(Request) bool{
			"list": IsList("pods"), "watch": IsWatch("pods"), "write": IsWrite,
		} {
			if match(q) {
				got += name
			}
		}
		if got != want {
			t.Errorf("%s is %q, want %q", request, got, want)
		}
	}
}
