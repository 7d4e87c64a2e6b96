package fakekube

import (
	"io"
	"slices"
	"strings"
)

// kind is a kind that the fake serves.
type kind struct {
	group    string // "" is the core group
	version  string
	resource string // in paths, such as "pods"
	kind     string // in objects, such as "Pod"

	isNamespaced bool
}

// kinds are all kinds that there can be, in the order of discovery. Counts are there while they have a CRD.
var kinds = []kind{
	{"", "v1", "pods", "Pod", true},
	{"", "v1", "nodes", "Node", false},
	{"", "v1", "namespaces", "Namespace", false},
	{"", "v1", "events", "Event", true},
	{"", "v1", "serviceaccounts", "ServiceAccount", true},
	{"coordination.k8s.io", "v1", "leases", "Lease", true},
	{"demo.mark8s.io", "v1", "counts", "Count", true},
	{"apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false},
	{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false},
	{"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false},
	{"admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false},
	{"admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false},
}

// kindOf is the kind of a resource. It panics where the fake has none.
func kindOf(resource string) kind {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.resource == resource })
	if i < 0 {
		panic("the fake has no " + resource)
	}
	return kinds[i]
}

// apiVersion is the group and the version, as objects name them: "v1", or "coordination.k8s.io/v1".
func (k kind) apiVersion() string { return strings.TrimPrefix(k.group+"/"+k.version, "/") }

// path is where the API has the group and version.
func (k kind) path() string {
	if k.group == "" {
		return "api/" + k.version
	}
	return "apis/" + k.group + "/" + k.version
}

// qualified is the resource as messages name it: "pods", or "leases.coordination.k8s.io".
func (k kind) qualified() string { return strings.TrimSuffix(k.resource+"."+k.group, ".") }

// CRD is the CustomResourceDefinition of Counts, the one custom resource that the fake knows.
type CRD struct {
	// HasStatus gives Counts a status subresource: a client's write to the object does not change its status, and one
	// to the status changes nothing else. Without it, counts/status is a 404.
	HasStatus bool

	// DropsStatus says that the schema has no status: what clients send of it is dropped without a word.
	DropsStatus bool
}

// InstallCRD puts the CRD of Counts in place, or changes it; nil removes it, and all Counts. Either ends their watches.
func (s *Server) InstallCRD(crd *CRD) {
	for _, o := range s.All("counts") {
		if crd == nil {
			s.Remove("counts", KeyOf(o))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crd = crd
	s.movedLocked()
}

// InstalledCRD is the CRD of Counts, or nil. It must not be changed: install another one.
func (s *Server) InstalledCRD() *CRD {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crd
}

// serves reports whether the fake has a kind now.
func (s *Server) serves(k kind) bool { return k.resource != "counts" || s.InstalledCRD() != nil }

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
	for _, k := range kinds {
		if isKnown[k.group] || !s.serves(k) {
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
	for _, k := range kinds {
		if path != k.path() || !s.serves(k) {
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

// crdOf reads the first version in a CustomResourceDefinition. It is nil where there is none.
func crdOf(o Object) *CRD {
	spec, _ := o["spec"].(Object)
	versions, _ := spec["versions"].([]any)
	if len(versions) == 0 {
		return nil
	}
	version, _ := versions[0].(Object)
	subresources, _ := version["subresources"].(Object)
	validation, _ := version["schema"].(Object)
	schema, _ := validation["openAPIV3Schema"].(Object)
	properties, _ := schema["properties"].(Object)
	return &CRD{
		HasStatus:   subresources["status"] != nil,
		DropsStatus: properties["status"] == nil,
	}
}
