package fakekube

import (
	"net/http"
	"net/url"
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

// routeOf reads a request by the layout of the API's paths,
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris:
//
//	/api/VERSION/… or /apis/GROUP/VERSION/…
//
// and then, inside a namespace or without one,
//
//	[namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]
func routeOf(method, path string, query url.Values) Route {
	noResource := Route{Verb: strings.ToLower(method)}
	segments := strings.Split(strings.Trim(path, "/"), "/")
	rt := Route{}
	switch {
	case segments[0] == "api" && len(segments) > 2:
		rt.Version = segments[1]
		segments = segments[2:]
	case segments[0] == "apis" && len(segments) > 3:
		rt.Group = segments[1]
		rt.Version = segments[2]
		segments = segments[3:]
	default:
		return noResource
	}

	// A namespace is itself an object: /api/v1/namespaces/NAME, which has subresources of its own.
	isInNamespace := segments[0] == "namespaces" && len(segments) > 2 &&
		segments[2] != "status" && segments[2] != "finalize"
	if isInNamespace {
		rt.Namespace = segments[1]
		segments = segments[2:]
	}
	if len(segments) > 3 {
		return noResource
	}
	rt.Resource = segments[0]
	if len(segments) > 1 {
		rt.Name = segments[1]
	}
	if len(segments) > 2 {
		rt.Subresource = segments[2]
	}
	rt.Verb = verbOf(method, rt.Name != "", query)
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

// isWatching reads the parameter watch as the server does: any value turns it on, but "0" and "false".
func isWatching(query url.Values) bool {
	value := query.Get("watch")
	return query.Has("watch") && value != "0" && value != "false"
}
