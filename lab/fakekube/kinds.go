package fakekube

import (
	"slices"
	"strings"
)

// kind is one version of a kind of objects that the fake serves. If a kind is served in several versions, each has
// its own entry, and they share their objects.
type kind struct {
	group   string // "" for the core group
	version string

	resource string // plural, as in paths, such as "pods"
	kind     string // as in objects, such as "Pod"
	singular string // kubectl's word for one object, such as "pod"

	shortNames []string // kubectl's abbreviations, such as "po"
	categories []string // kubectl's groups of resources, such as "all"

	isNamespaced bool
	hasStatus    bool // status is a subresource, so writes to the object do not change it
	isReview     bool // a POST is answered but nothing is stored
	isAdded      bool // Serve has added the kind: the schema describes only its metadata

	// crd is the entry for this version in the CustomResourceDefinition, with its schema and columns. It is nil for any
	// other kind.
	crd Object

	// installation differs between successive definitions of the same custom resource. It is 0 for any other kind.
	installation int
}

// builtIn lists the kinds that are always served, in the order of discovery.
var builtIn = []kind{
	{
		version: "v1", resource: "pods", kind: "Pod", singular: "pod",
		shortNames: []string{"po"}, categories: []string{"all"},
		isNamespaced: true, hasStatus: true,
	},
	{
		version: "v1", resource: "nodes", kind: "Node", singular: "node",
		shortNames: []string{"no"},
		hasStatus:  true,
	},
	{
		version: "v1", resource: "namespaces", kind: "Namespace", singular: "namespace",
		shortNames: []string{"ns"},
		hasStatus:  true,
	},
	{
		version: "v1", resource: "events", kind: "Event", singular: "event",
		shortNames:   []string{"ev"},
		isNamespaced: true,
	},
	{
		version: "v1", resource: "configmaps", kind: "ConfigMap", singular: "configmap",
		shortNames:   []string{"cm"},
		isNamespaced: true,
	},
	{
		version: "v1", resource: "secrets", kind: "Secret", singular: "secret",
		isNamespaced: true,
	},
	{
		version: "v1", resource: "serviceaccounts", kind: "ServiceAccount", singular: "serviceaccount",
		shortNames:   []string{"sa"},
		isNamespaced: true,
	},
	{
		group: eventsGroup, version: "v1", resource: "events", kind: "Event", singular: "event",
		shortNames:   []string{"ev"},
		isNamespaced: true,
	},
	{
		group: "authentication.k8s.io", version: "v1",
		resource: "selfsubjectreviews", kind: "SelfSubjectReview", singular: "selfsubjectreview",
		isReview: true,
	},
	{
		group: "authorization.k8s.io", version: "v1",
		resource: "localsubjectaccessreviews", kind: "LocalSubjectAccessReview", singular: "localsubjectaccessreview",
		isNamespaced: true, isReview: true,
	},
	{
		group: "authorization.k8s.io", version: "v1",
		resource: "selfsubjectaccessreviews", kind: "SelfSubjectAccessReview", singular: "selfsubjectaccessreview",
		isReview: true,
	},
	{
		group: "authorization.k8s.io", version: "v1",
		resource: "selfsubjectrulesreviews", kind: "SelfSubjectRulesReview", singular: "selfsubjectrulesreview",
		isReview: true,
	},
	{
		group: "authorization.k8s.io", version: "v1",
		resource: "subjectaccessreviews", kind: "SubjectAccessReview", singular: "subjectaccessreview",
		isReview: true,
	},
	{
		group: "rbac.authorization.k8s.io", version: "v1",
		resource: "clusterrolebindings", kind: "ClusterRoleBinding", singular: "clusterrolebinding",
	},
	{
		group: "rbac.authorization.k8s.io", version: "v1",
		resource: "clusterroles", kind: "ClusterRole", singular: "clusterrole",
	},
	{
		group: "rbac.authorization.k8s.io", version: "v1",
		resource: "rolebindings", kind: "RoleBinding", singular: "rolebinding",
		isNamespaced: true,
	},
	{
		group: "rbac.authorization.k8s.io", version: "v1",
		resource: "roles", kind: "Role", singular: "role",
		isNamespaced: true,
	},
	{
		group: "admissionregistration.k8s.io", version: "v1",
		resource: "validatingadmissionpolicies", kind: "ValidatingAdmissionPolicy",
		singular:   "validatingadmissionpolicy",
		categories: []string{"api-extensions"},
		hasStatus:  true,
	},
	{
		group: "admissionregistration.k8s.io", version: "v1",
		resource: "validatingadmissionpolicybindings", kind: "ValidatingAdmissionPolicyBinding",
		singular:   "validatingadmissionpolicybinding",
		categories: []string{"api-extensions"},
	},
	{
		group: "apiextensions.k8s.io", version: "v1",
		resource: "customresourcedefinitions", kind: "CustomResourceDefinition",
		singular:   "customresourcedefinition",
		shortNames: []string{"crd", "crds"}, categories: []string{"api-extensions"},
		hasStatus: true,
	},
	{
		group: "coordination.k8s.io", version: "v1", resource: "leases", kind: "Lease", singular: "lease",
		isNamespaced: true,
	},
}

// apiVersion returns the group and version as in objects: "v1" or "coordination.k8s.io/v1".
func (k kind) apiVersion() string { return strings.TrimPrefix(k.group+"/"+k.version, "/") }

// path returns the path of the group and version, without a leading slash.
func (k kind) path() string {
	if k.group == "" {
		return "api/" + k.version
	}
	return "apis/" + k.group + "/" + k.version
}

// qualified returns the resource as in messages: "pods" or "leases.coordination.k8s.io".
func (k kind) qualified() string {
	if k.group == "" {
		return k.resource
	}
	return k.resource + "." + k.group
}

// isCustom reports whether a CustomResourceDefinition defines the kind.
func (k kind) isCustom() bool { return k.installation > 0 }

// isKnown reports whether the fake knows the kind by itself, with all its fields.
func (k kind) isKnown() bool { return !k.isCustom() && !k.isAdded }

// typ returns the kind's type in the schema. A custom resource has none.
func (k kind) typ() string {
	if k.isAdded {
		return untypedObject
	}
	return typeOfKind(k.apiVersion(), k.kind)
}

// typeOfKind returns the type of a built-in kind in the schema.
func typeOfKind(apiVersion, kind string) string {
	if strings.HasPrefix(apiVersion, eventsGroup+"/") {
		return "events." + kind
	}
	return kind
}

// isDefinition reports whether the kind is CustomResourceDefinition.
func (k kind) isDefinition() bool { return k.qualified() == definitions }

// kindsLocked returns all served kinds: first the built-in ones, then those of Serve, then the custom ones. The caller
// must not modify the slice.
func (s *Server) kindsLocked() []kind { return s.kinds }

// servedKinds is kindsLocked for callers that do not hold the lock.
func (s *Server) servedKinds() []kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kinds
}

// kindLocked finds a kind by its plural ("leases") or by its plural and group ("leases.coordination.k8s.io"), which
// tells apart groups that share a plural. If several versions are served, it returns the preferred one.
func (s *Server) kindLocked(resource string) (k kind, isServed bool) {
	if s.kinds == nil {
		panic("this Server is its zero value: make it by New")
	}
	i := slices.IndexFunc(s.kinds, func(k kind) bool { return k.resource == resource })
	if i < 0 {
		i = slices.IndexFunc(s.kinds, func(k kind) bool { return k.place() == resource })
	}
	if i < 0 || s.kinds[i].isReview {
		return kind{}, false
	}
	return s.kinds[i], true
}

// kindOfRouteLocked finds the kind that a path names.
func (s *Server) kindOfRouteLocked(rt Route) (k kind, isServed bool) {
	i := slices.IndexFunc(s.kinds, func(k kind) bool {
		return k.resource == rt.Resource && k.group == rt.Group && k.version == rt.Version
	})
	if i < 0 {
		return kind{}, false
	}
	return s.kinds[i], true
}

// objectsLocked returns the objects of a resource, named as for kindLocked, or nil if it is not served.
func (s *Server) objectsLocked(resource string) map[Key]Object {
	k, isServed := s.kindLocked(resource)
	if !isServed {
		return nil
	}
	return s.objects[k.place()]
}
