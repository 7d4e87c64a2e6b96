package fakekube

import (
	"slices"
	"strings"
)

// kind is a version of a kind of objects that the fake serves. A kind that is served in several versions has one of
// these for each; they share their objects.
type kind struct {
	group   string // "" is the core group
	version string

	resource string // in paths, such as "pods"
	kind     string // in objects, such as "Pod"
	singular string // what kubectl calls one object, such as "pod"

	shortNames []string // that kubectl understands, such as "po"
	categories []string // groups of resources that kubectl lists together, such as "all"

	isNamespaced bool
	hasStatus    bool // the status is a subresource: a write to the object does not change it
	isReview     bool // it is created to get an answer, and not kept

	// crd is the version in the CustomResourceDefinition, with its schema and columns. It is nil for a built-in kind.
	crd Object

	// installation tells one definition of a custom resource from the one before it. It is 0 for a built-in kind.
	installation int
}

// builtIn are the kinds that are always there, in the order of discovery.
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

// apiVersion is the group and the version, as objects name them: "v1", or "coordination.k8s.io/v1".
func (k kind) apiVersion() string { return strings.TrimPrefix(k.group+"/"+k.version, "/") }

// path is where the API has the group and version.
func (k kind) path() string {
	if k.group == "" {
		return "api/" + k.version
	}
	return "apis/" + k.group + "/" + k.version
}

// qualified is the resource as messages name it: "pods", or "leases.coordination.k8s.io". The fake keeps the objects
// under this name.
func (k kind) qualified() string {
	if k.group == "" {
		return k.resource
	}
	return k.resource + "." + k.group
}

// isCustom reports whether the kind comes from a CustomResourceDefinition.
func (k kind) isCustom() bool { return k.installation > 0 }

// isDefinition reports whether the kind is CustomResourceDefinition.
func (k kind) isDefinition() bool { return k.qualified() == definitions }

// kindsLocked are all kinds that the fake serves now: those that are built in, and then those of the definitions that
// clients have made. The slice must not be changed.
func (s *Server) kindsLocked() []kind { return s.kinds }

// servedKinds is kindsLocked for whoever does not hold the lock.
func (s *Server) servedKinds() []kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kinds
}

// kindLocked finds the kind of a resource, named by its plural ("leases") or, where two groups have the same, by its
// plural and group ("leases.coordination.k8s.io"). Of several versions it is the preferred one.
func (s *Server) kindLocked(resource string) (k kind, isServed bool) {
	i := slices.IndexFunc(s.kinds, func(k kind) bool { return k.resource == resource })
	if i < 0 {
		i = slices.IndexFunc(s.kinds, func(k kind) bool { return k.qualified() == resource })
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

// objectsLocked are the objects of a resource, named as for kindLocked; nil where the fake has no such resource.
func (s *Server) objectsLocked(resource string) map[Key]Object {
	k, isServed := s.kindLocked(resource)
	if !isServed {
		return nil
	}
	return s.objects[k.qualified()]
}
