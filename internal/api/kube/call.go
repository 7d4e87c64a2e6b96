package kube

import (
	"net/http"
	"net/url"
	"strings"
)

// call describes a request in the terms of RBAC, for error messages.
// https://kubernetes.io/docs/reference/access-authn-authz/authorization/#request-verb-resource
type call struct {
	verb     string // such as "list"
	group    string // the API group; "" is the core group
	resource string // such as "pods" or, with a subresource, "counts/status"; for a discovery request, its path
	object   string // such as "default/web" or, without a namespace, "node-1"; "" for a collection
}

// callOf describes a request by its path, which is /api/VERSION or /apis/GROUP/VERSION, and then
// /[namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]. A path without a resource is that of a discovery request.
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

// cutNamespace splits a path after namespaces/NAMESPACE/, and returns "NAMESPACE/" and the rest. It does not split the
// path of a namespace itself, in which nothing follows the name.
func cutNamespace(path string) (namespace, rest string) {
	after, isNamespaced := strings.CutPrefix(path, "namespaces/")
	name, inside, _ := strings.Cut(after, "/")
	if !isNamespaced || inside == "" {
		return "", path
	}
	return name + "/", inside
}

// verbOf returns the RBAC verb of a request. The request is for the object with this name, or for a collection if name
// is "".
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

// String returns the verb, the resource and the object, as in "patch nodes/n1".
func (c call) String() string {
	text := c.verb + " " + c.resource
	if c.object != "" {
		text += "/" + c.object
	}
	return strings.TrimSpace(text)
}
