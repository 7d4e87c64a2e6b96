package fakekube

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Route is what a request asks for, in the words of RBAC. All of it but the verb is empty in a request for something
// that is no resource, such as /version or a group's discovery.
type Route struct {
	// Verb is list, watch, get, create, update, patch, delete or deletecollection. For what is no resource, it is the
	// method in small letters.
	Verb string

	Group   string // "" is the core group
	Version string

	Resource    string // such as "pods"
	Subresource string // such as "status"; "" for the object itself
	Namespace   string // "" for cluster-scoped resources, and for all namespaces
	Name        string // "" for a collection
}

// String is the verb, the resource and the object, such as "patch counts/status/default/web", or the verb alone.
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

// fullResource is the resource as a rule of RBAC names it, such as "counts/status".
func (r Route) fullResource() string {
	if r.Subresource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.Subresource
}

// address is what a path of the API names, whatever the method.
type address struct {
	group   string // "" is the core group
	version string // "" where the path names less than a group and its version

	isWatch       bool // the path has the old form of a watch, /watch/RESOURCE
	isInNamespace bool // the path has /namespaces/NAMESPACE before the resource

	namespace   string
	resource    string // "" where the path is about no resource
	name        string // "" for a collection
	subresource string

	isTooLong bool // there is something after the subresource
}

// addressOf reads a path by the layout of the API's paths,
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris:
//
//	/api/VERSION/… or /apis/GROUP/VERSION/…
//
// and then, inside a namespace or without one,
//
//	[watch/][namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]
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

// isOfBuiltInGroup reports whether a path leads to the core group, or to another one that is built in.
func (at address) isOfBuiltInGroup() bool {
	if at.version == "" {
		return false
	}
	return slices.ContainsFunc(builtIn, func(k kind) bool { return k.group == at.group })
}

// routeOf is what a request asks for.
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

// verbOf is the verb of RBAC for a request for one named object, or for a collection. It is "" for a method that the
// API does not have.
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

// isOn reads a parameter that is on or off as the server does: any value turns it on, but "0" and "false".
func isOn(query url.Values, name string) bool {
	value := query.Get(name)
	return query.Has(name) && value != "0" && value != "false"
}
