package fakekube

import (
	"io"
	"strings"
)

// discover answers what a client asks before it knows the API: whether the server is well, its version, its groups and
// their resources. It reports whether the request was for one of these.
func (s *Server) discover(r *request) bool {
	path := strings.Trim(r.asked.Path, "/")
	switch path {
	case "readyz", "livez", "healthz":
		r.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(r.w, "ok")
		return true
	case "version":
		r.answer(200, Object{"major": "1", "minor": "35", "gitVersion": "v1.35.0-fake"})
		return true
	case "api":
		r.answer(200, Object{"kind": "APIVersions", "versions": []any{"v1"}})
		return true
	case "apis":
		r.answer(200, Object{"kind": "APIGroupList", "apiVersion": "v1", "groups": s.groups()})
		return true
	}
	resources := s.resources(path)
	if len(resources) == 0 {
		return false
	}
	_, groupVersion, _ := strings.Cut(path, "/")
	r.answer(200, Object{
		"kind":         "APIResourceList",
		"apiVersion":   "v1",
		"groupVersion": groupVersion,
		"resources":    resources,
	})
	return true
}

// groups are the API groups but the core group.
func (s *Server) groups() []any {
	groups := []any{}
	isKnown := map[string]bool{"": true}
	for _, k := range s.servedKinds() {
		if isKnown[k.group] {
			continue
		}
		isKnown[k.group] = true
		version := Object{"groupVersion": k.apiVersion(), "version": k.version}
		groups = append(groups, Object{"name": k.group, "versions": []any{version}, "preferredVersion": version})
	}
	return groups
}

// shortNames are what kubectl understands beside the resources' names.
var shortNames = map[string]string{"pods": "po", "nodes": "no", "namespaces": "ns", "events": "ev"}

// resources are those that discovery names under a path, such as "api/v1" or "apis/demo.mark8s.io/v1".
func (s *Server) resources(path string) []any {
	resources := []any{}
	for _, k := range s.servedKinds() {
		if path != k.path() {
			continue
		}
		resource := Object{
			"name":         k.resource,
			"singularName": strings.ToLower(k.kind),
			"namespaced":   k.isNamespaced,
			"kind":         k.kind,
			"verbs":        []any{"create", "delete", "get", "list", "patch", "update", "watch"},
		}
		if short := shortNames[k.resource]; short != "" {
			resource["shortNames"] = []any{short}
		}
		resources = append(resources, resource)
		crd := s.InstalledCRD()
		if k.resource == "counts" && crd != nil && crd.HasStatus {
			resources = append(resources, Object{
				"name":         "counts/status",
				"singularName": "",
				"namespaced":   true,
				"kind":         k.kind,
				"verbs":        []any{"get", "patch", "update"},
			})
		}
	}
	return resources
}
