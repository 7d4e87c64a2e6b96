package kube

import (
	"net/http"
	"net/url"
	"strings"
)

// call is a request in the words of RBAC and of error messages.
// https://kubernetes.io/docs/reference/access-authn-authz/authorization/#request-verb-resource
type call struct {
	verb     string // such as "list"
	group    string // "" is the core group
	resource string // with its subresource, as in "counts/status"; of a discovery, the path that is asked for
	object   string // "" for a collection; with its namespace, if it has one, as in "default/web"
}

// callOf reads a call from a request for /api/VERSION/… or /apis/GROUP/VERSION/…, with
// [namespaces/NS/]RESOURCE[/NAME[/SUB]] at the end; without that it is a discovery.
func callOf(method, path string, query url.Values) call {
	root, rest, _ := strings.Cut(strings.Trim(path, "/"), "/")
	group := ""
	if root == "apis" {
		group, rest, _ = strings.Cut(rest, "/")
	}
	_, rest, _ = strings.Cut(rest, "/") // the version
	if rest == "" {
		return call{verb: "get", resource: strings.TrimPrefix(path, "/apis/")}
	}
	namespace, rest := cutNamespace(rest)
	resource, rest, _ := strings.Cut(rest, "/")
	name, rest, _ := strings.Cut(rest, "/")
	subresource, _, _ := strings.Cut(rest, "/")

	c := call{verb: verbOf(method, name, query), group: group, resource: resource}
	if subresource != "" {
		c.resource += "/" + subresource
	}
	if name != "" {
		c.object = namespace + name
	}
	return c
}

// cutNamespace cuts namespaces/NS/ off a path, and returns NS/. The path of a namespace itself stays whole.
func cutNamespace(path string) (namespace, rest string) {
	after, isIn := strings.CutPrefix(path, "namespaces/")
	name, inside, _ := strings.Cut(after, "/")
	if !isIn || inside == "" {
		return "", path
	}
	return name + "/", inside
}

// verbOf returns RBAC's verb for a request of the object of this name, or of a collection where that is "".
func verbOf(method, name string, query url.Values) string {
	if query.Get("watch") != "" {
		return "watch"
	}
	switch method {
	case http.MethodGet:
		if name == "" {
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// String is the verb, the resource and the object, as in "patch nodes/n1".
func (c call) String() string {
	text := c.verb + " " + c.resource
	if c.object != "" {
		text += "/" + c.object
	}
	return strings.TrimSpace(text)
}
