package kube

import (
	"net/http"
	"net/url"
	"strings"
)

// Call is a request in the words of RBAC and of error messages.
type Call struct{ verb, group, resource, object string }

func (c Call) String() string {
	return strings.TrimSpace(c.verb + " " + strings.TrimSuffix(c.resource+"/"+c.object, "/"))
}

// CallOf reads a call from a request: /api/v1/… or /apis/GROUP/VERSION/…, then [namespaces/NS/]RESOURCE[/NAME[/SUB]].
func CallOf(method, path string, query url.Values) (c Call) {
	p := append(strings.Split(strings.Trim(path, "/"), "/"), make([]string, 7)...) // what is not there is ""
	if p[0] == "apis" {
		c.group, p = p[1], p[1:]
	}
	namespace := ""
	if p = p[2:]; p[0] == "" {
		return Call{verb: "get", resource: strings.TrimPrefix(path, "/apis/")} // discovery
	} else if p[0] == "namespaces" && p[2] != "" {
		namespace, p = p[1]+"/", p[2:]
	}
	c.resource = strings.TrimSuffix(p[0]+"/"+p[2], "/")
	c.verb = map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
	if p[1] != "" {
		c.object = namespace + p[1]
	} else if method == http.MethodGet {
		c.verb = "list"
	}
	if query.Get("watch") != "" {
		c.verb = "watch"
	}
	return c
}
