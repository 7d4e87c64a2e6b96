package fakekube

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
)

// serveDiscovery answers requests for the server's health, its version, its groups, their resources and their
// schemas. It reports whether the request was one of these.
// https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
func (s *Server) serveDiscovery(r *request) bool {
	path := strings.TrimRight(r.info.Path, "/")
	if s.checkHealth(r, path) || s.serveOpenAPI(r, path) {
		return true
	}
	if path == "" {
		r.answer(200, Object{"paths": s.paths()})
		return true
	}
	document := s.discoveryDocument(r, path)
	if document == nil {
		return false
	}
	mayAggregate := path == "/api" || path == "/apis"
	isAboutGroups := strings.HasPrefix(path, "/apis") && strings.Count(path, "/") < 3
	if r.Method != http.MethodGet && !isAboutGroups {
		r.failWith(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", Object{})
		return true
	}
	switch discoveryMediaType(r.Header.Get("Accept"), mayAggregate) {
	case "":
		r.discoveryNotAcceptable(path, isAboutGroups)
	case mediaJSON:
		r.answer(200, document)
	default:
		s.answerAggregated(r, path == "/api")
	}
	return true
}

// discoveryNotAcceptable answers 406. As in the real server, the wording depends on the path.
func (r *request) discoveryNotAcceptable(path string, isAboutGroups bool) {
	isKnown := slices.ContainsFunc(mediaClauses(r.Header.Get("Accept")), mediaClause.isOfServer)
	switch {
	case path == "/version":
		r.failWith(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: "+mediaJSON, Object{})
	case isAboutGroups || isKnown:
		r.failWith(406, "NotAcceptable", "only the following media types are accepted: "+mediaOfServer, nil)
	default:
		r.failWith(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: "+mediaOfServer, Object{})
	}
}

// discoveryDocument returns the document at a path, or nil if there is none.
func (s *Server) discoveryDocument(r *request, path string) any {
	switch path {
	case "/version":
		return versionInfo()
	case "/api":
		return Object{"kind": "APIVersions", "versions": []any{"v1"}, "serverAddressByClientCIDRs": serverAddresses(r)}
	case "/apis":
		groups := []any{}
		for _, g := range s.groups()[1:] {
			groups = append(groups, g.toObject())
		}
		return Object{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
	}
	return s.groupDocument(path)
}

// groupDocument returns the description of a group or of one of its versions, or nil if the path names neither.
func (s *Server) groupDocument(path string) any {
	for _, g := range s.groups() {
		if g.name != "" && path == "/apis/"+g.name {
			group := g.toObject()
			group["kind"] = "APIGroup"
			group["apiVersion"] = "v1"
			return group
		}
		for _, version := range g.versions {
			if path == "/"+version.kinds[0].path() {
				return version.toObject()
			}
		}
	}
	return nil
}

// versionInfo is the document of /version. Only its major and minor numbers are those of a real release.
func versionInfo() Object {
	return Object{
		"major":                 "1",
		"minor":                 "35",
		"emulationMajor":        "1",
		"emulationMinor":        "35",
		"minCompatibilityMajor": "1",
		"minCompatibilityMinor": "34",
		"gitVersion":            "v1.35.0-fake",
		"gitCommit":             "",
		"gitTreeState":          "",
		"buildDate":             "1970-01-01T00:00:00Z",
		"goVersion":             runtime.Version(),
		"compiler":              runtime.Compiler,
		"platform":              runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// serverAddresses tells clients to keep using the address of this request.
func serverAddresses(r *request) []any {
	return []any{Object{"clientCIDR": "0.0.0.0/0", "serverAddress": r.Host}}
}

// paths lists the paths that the server shows at its root.
func (s *Server) paths() []string {
	paths := []string{"/api", "/api/v1", "/apis", "/openapi/v3", "/version"}
	for _, g := range s.groups()[1:] {
		paths = append(paths, "/apis/"+g.name)
		for _, version := range g.versions {
			paths = append(paths, "/"+version.kinds[0].path())
		}
	}
	for _, endpoint := range healthEndpoints {
		paths = append(paths, "/"+endpoint)
		for _, check := range healthChecks {
			paths = append(paths, "/"+endpoint+"/"+check)
		}
	}
	slices.Sort(paths)
	return paths
}

// group is an API group in discovery.
type group struct {
	name     string // "" for the core group
	versions []groupVersion
}

// groupVersion is a version of a group, with its kinds sorted by resource.
type groupVersion struct {
	version string
	kinds   []kind
}

// groups returns all groups: the core group first, and the groups of custom resources last, sorted by name.
func (s *Server) groups() []group {
	kinds := slices.Clone(s.servedKinds())
	custom := slices.IndexFunc(kinds, kind.isCustom)
	if custom < 0 {
		custom = len(kinds)
	}
	slices.SortStableFunc(kinds[custom:], func(a, b kind) int { return strings.Compare(a.group, b.group) })
	var groups []group
	for _, k := range kinds {
		i := slices.IndexFunc(groups, func(g group) bool { return g.name == k.group })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{name: k.group})
		}
		groups[i].add(k)
	}
	return groups
}

// add adds a kind to its version and keeps the order.
func (g *group) add(k kind) {
	i := slices.IndexFunc(g.versions, func(v groupVersion) bool { return v.version == k.version })
	if i < 0 {
		i = len(g.versions)
		g.versions = append(g.versions, groupVersion{version: k.version})
	}
	g.versions[i].kinds = append(g.versions[i].kinds, k)
	slices.SortStableFunc(g.versions[i].kinds, func(a, b kind) int { return strings.Compare(a.resource, b.resource) })
	slices.SortStableFunc(g.versions, func(a, b groupVersion) int { return compareVersions(a.version, b.version) })
}

// toObject returns the group without its resources. The first version is the preferred one.
func (g group) toObject() Object {
	versions := []any{}
	for _, v := range g.versions {
		versions = append(versions, Object{"groupVersion": v.kinds[0].apiVersion(), "version": v.version})
	}
	return Object{"name": g.name, "versions": versions, "preferredVersion": versions[0]}
}

// toObject returns the list of the version's resources.
func (v groupVersion) toObject() Object {
	resources := []any{}
	for _, k := range v.kinds {
		resource := Object{
			"name":         k.resource,
			"singularName": k.singular,
			"namespaced":   k.isNamespaced,
			"kind":         k.kind,
			"verbs":        k.verbs(),
		}
		if len(k.shortNames) > 0 {
			resource["shortNames"] = k.shortNames
		}
		if len(k.categories) > 0 {
			resource["categories"] = k.categories
		}
		resources = append(resources, resource)
		for _, sub := range k.subresources() {
			resources = append(resources, sub.toObject(k))
		}
	}
	return Object{
		"kind":         "APIResourceList",
		"apiVersion":   "v1",
		"groupVersion": v.kinds[0].apiVersion(),
		"resources":    resources,
	}
}

// verbs returns the verbs that discovery shows for the kind.
func (k kind) verbs() []string {
	switch {
	case k.isReview:
		return []string{"create"}
	case k.isCustom():
		return []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	case k.qualified() == "namespaces":
		return []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	}
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// subresource is a subresource that the fake serves.
type subresource struct {
	name  string
	verbs []string

	// The kind of the body. kind is "" if it is the kind of the object itself.
	group, version, kind string
}

// subresources returns the subresources of the kind.
func (k kind) subresources() []subresource {
	var all []subresource
	switch k.qualified() {
	case "pods":
		all = append(all, subresource{name: "binding", verbs: []string{"create"}, kind: "Binding"})
		eviction := subresource{name: "eviction", verbs: []string{"create"}, kind: "Eviction"}
		eviction.group = "policy"
		eviction.version = "v1"
		all = append(all, eviction)
	case "namespaces":
		all = append(all, subresource{name: "finalize", verbs: []string{"update"}})
	case "serviceaccounts":
		token := subresource{name: "token", verbs: []string{"create"}, kind: "TokenRequest"}
		token.group = "authentication.k8s.io"
		token.version = "v1"
		all = append(all, token)
	}
	if k.hasStatus {
		all = append(all, subresource{name: "status", verbs: []string{"get", "patch", "update"}})
	}
	return all
}

// hasSubresource reports whether the kind has a subresource.
func (k kind) hasSubresource(name string) bool {
	return slices.ContainsFunc(k.subresources(), func(sub subresource) bool { return sub.name == name })
}

func (sub subresource) toObject(of kind) Object {
	o := Object{
		"name":         of.resource + "/" + sub.name,
		"singularName": "",
		"namespaced":   of.isNamespaced,
		"kind":         of.kind,
		"verbs":        sub.verbs,
	}
	if sub.group != "" {
		o["group"] = sub.group
		o["version"] = sub.version
	}
	if sub.kind != "" {
		o["kind"] = sub.kind
	}
	return o
}

// aggregatedDiscovery is the media type of one answer with all groups and resources.
const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discoveryMediaType returns the first media type in an Accept header that the fake supports for discovery: mediaJSON
// or, if mayAggregate, aggregatedDiscovery. It returns "" if there is none.
func discoveryMediaType(accept string, mayAggregate bool) string {
	aggregated := strings.Split(aggregatedDiscovery, ";")
	for clause := range strings.SplitSeq(accept, ",") {
		parts := strings.Split(strings.ReplaceAll(clause, " ", ""), ";")
		isAs := slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(p, "as=") })
		isAll := !slices.ContainsFunc(aggregated, func(p string) bool { return !slices.Contains(parts, p) })
		switch {
		case mayAggregate && isAll:
			return aggregatedDiscovery
		case !isAs && slices.Contains([]string{"", "*/*", "application/*", mediaJSON}, parts[0]):
			return mediaJSON
		}
	}
	return ""
}

// answerAggregated answers with all groups and their resources, or with 304 if the client has the current answer.
func (s *Server) answerAggregated(r *request, isCore bool) {
	items := []any{}
	for _, g := range s.groups() {
		if (g.name == "") == isCore {
			items = append(items, g.toAggregated())
		}
	}
	list := Object{
		"kind":       "APIGroupDiscoveryList",
		"apiVersion": "apidiscovery.k8s.io/v2",
		"metadata":   Object{},
		"items":      items,
	}
	data, _ := json.Marshal(list)
	tag := fmt.Sprintf("\"%X\"", sha512.Sum512(data))
	header := r.w.Header()
	header.Set("ETag", tag)
	header.Set("Vary", "Accept")
	header.Set("Cache-Control", "public")
	if r.Header.Get("If-None-Match") == tag {
		r.w.WriteHeader(http.StatusNotModified)
		return
	}
	r.mediaType = aggregatedDiscovery
	r.answer(200, list)
}

// toAggregated returns the group with all its versions and resources.
func (g group) toAggregated() Object {
	meta := Object{}
	if g.name != "" {
		meta["name"] = g.name
	}
	versions := []any{}
	for _, v := range g.versions {
		resources := []any{}
		for _, k := range v.kinds {
			resources = append(resources, k.toAggregated())
		}
		versions = append(versions, Object{"version": v.version, "resources": resources, "freshness": "Current"})
	}
	return Object{"metadata": meta, "versions": versions}
}

// toAggregated returns the resource with its subresources. Like the server, it names group and version only for
// custom kinds.
func (k kind) toAggregated() Object {
	response := Object{"group": "", "version": "", "kind": k.kind}
	if k.isCustom() {
		response["group"] = k.group
		response["version"] = k.version
	}
	scope := "Cluster"
	if k.isNamespaced {
		scope = "Namespaced"
	}
	resource := Object{
		"resource":         k.resource,
		"responseKind":     response,
		"scope":            scope,
		"singularResource": k.singular,
		"verbs":            k.verbs(),
	}
	if len(k.shortNames) > 0 {
		resource["shortNames"] = k.shortNames
	}
	if len(k.categories) > 0 {
		resource["categories"] = k.categories
	}
	var subresources []any
	for _, sub := range k.subresources() {
		of := maps.Clone(response)
		if sub.kind != "" {
			of = Object{"group": sub.group, "version": sub.version, "kind": sub.kind}
		}
		subresources = append(subresources, Object{"subresource": sub.name, "responseKind": of, "verbs": sub.verbs})
	}
	if len(subresources) > 0 {
		resource["subresources"] = subresources
	}
	return resource
}
