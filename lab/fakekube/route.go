package fakekube

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Route is what a request asks for, in the terms of RBAC. Requests outside of the resources, such as /version or
// discovery, have only a verb.
type Route struct {
	// Verb is list, watch, get, create, update, patch, delete or deletecollection. Outside of the resources, it is
	// the HTTP method in lower case.
	Verb string

	Group   string // "" for the core group
	Version string

	Resource    string // such as "pods"
	Subresource string // such as "status"; "" for the object itself
	Namespace   string // "" for cluster-scoped resources and for all namespaces
	Name        string // "" for a collection
}

// String returns the verb, the resource and the object, such as "patch pods/status/default/web", or only the verb.
func (r Route) String() string {
	if r.Resource == "" {
		return r.Verb
	}
	words := r.Verb + " " + r.fullResource()
	if r.Name == "" {
		return words
	}
	if r.Namespace != "" {
		words += "/" + r.Namespace
	}
	return words + "/" + r.Name
}

// fullResource returns the resource as in a rule of RBAC, such as "pods/status".
func (r Route) fullResource() string {
	if r.Subresource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.Subresource
}

// address is a parsed path of the API, independent of the method.
type address struct {
	group   string // "" for the core group
	version string // "" if the path does not contain a group and a version

	isWatch       bool // the path has the old form of a watch, /watch/RESOURCE
	isInNamespace bool // the path has /namespaces/NAMESPACE before the resource

	namespace   string
	resource    string // "" if the path is not about a resource
	name        string // "" for a collection
	subresource string

	isTooLong bool // the path continues after the subresource
}

// addressOf parses a path. The API's paths have this layout, inside a namespace or not:
//
//	/api/VERSION/… or /apis/GROUP/VERSION/…
//	[watch/][namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]
//
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
func addressOf(path string) address {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	at := address{}
	switch {
	case strings.HasPrefix(path, "//"):
		return at
	case segments[0] == "api" && len(segments) > 1:
		at.version = segments[1]
		segments = segments[2:]
	case segments[0] == "apis" && len(segments) > 2:
		at.group = segments[1]
		at.version = segments[2]
		segments = segments[3:]
	}
	if len(segments) > 1 && segments[0] == "watch" {
		at.isWatch = true
		segments = segments[1:]
	}
	if at.version == "" || len(segments) == 0 {
		return at
	}

	// A namespace is itself an object: /api/v1/namespaces/NAME, which has subresources of its own.
	at.isInNamespace = segments[0] == "namespaces" && len(segments) > 2 &&
		segments[2] != "status" && segments[2] != "finalize"
	if at.isInNamespace {
		at.namespace = segments[1]
		segments = segments[2:]
	}
	at.resource = segments[0]
	if len(segments) > 1 {
		at.name = segments[1]
	}
	if len(segments) > 2 {
		at.subresource = segments[2]
	}
	at.isTooLong = len(segments) > 3
	return at
}

// isOfBuiltInGroup reports whether the group of a path is built in, given the served kinds.
func (at address) isOfBuiltInGroup(kinds []kind) bool {
	if at.version == "" {
		return false
	}
	return slices.ContainsFunc(kinds, func(k kind) bool { return k.group == at.group && !k.isCustom() })
}

// RouteOf returns the route of a request.
func RouteOf(q *http.Request) Route { return routeOf(q.Method, q.URL.Path, q.URL.Query()) }

// routeOf returns the route of a request.
func routeOf(method, path string, query url.Values) Route {
	at := addressOf(path)
	if at.resource == "" && at.name == "" {
		return Route{Verb: strings.ToLower(method)}
	}
	rt := Route{
		Verb:        verbOf(method, at.name != "", query),
		Group:       at.group,
		Version:     at.version,
		Resource:    at.resource,
		Subresource: at.subresource,
		Namespace:   at.namespace,
		Name:        at.name,
	}
	if at.isWatch {
		rt.Verb = "watch"
	}
	return rt
}

// verbOf returns the RBAC verb of a request for a named object or for a collection, or "" if the API does not have
// the method.
func verbOf(method string, isNamed bool, query url.Values) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if isNamed {
			return "delete"
		}
		return "deletecollection"
	case http.MethodGet, http.MethodHead:
		if isNamed {
			return "get"
		}
		if isWatching(query) {
			return "watch"
		}
		return "list"
	}
	return ""
}

// isWatching reports whether a request for a collection asks for a watch.
func isWatching(query url.Values) bool { return isOn(query, "watch") }

// isOn parses a boolean parameter like the server: any value except "0" and "false" turns it on.
func isOn(query url.Values, name string) bool {
	value := query.Get(name)
	return query.Has(name) && value != "0" && value != "false"
}
