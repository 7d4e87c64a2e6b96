package fakekube

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// attributes describe an action for authorization by RBAC.
type attributes struct {
	verb        string
	group       string
	resource    string // "" for a path outside of the resources
	subresource string
	namespace   string
	name        string
	path        string // set if resource is ""
}

// attributesOf returns the attributes of a request. As in RBAC, a namespace belongs to itself, and a collection
// request whose field selector picks one name counts as a request for that object.
func attributesOf(info Request) attributes {
	a := attributes{
		verb:        info.Verb,
		group:       info.Group,
		resource:    info.Resource,
		subresource: info.Subresource,
		namespace:   info.Namespace,
		name:        info.Name,
	}
	if a.resource == "" {
		a.path = info.Path
		return a
	}
	isNamespace := a.group == "" && a.resource == "namespaces"
	if isNamespace {
		a.namespace = a.name
	}
	isCollection := a.verb == "list" || a.verb == "watch" || a.verb == "deletecollection"
	if isCollection && a.name == "" {
		fields, _ := parseFieldSelector(info.Query.Get("fieldSelector"))
		for _, term := range fields {
			if term.field == "metadata.name" && !term.isNot {
				a.name = term.value
			}
		}
	}
	return a
}

// fullResource returns the resource as in a rule, such as "pods/status".
func (a attributes) fullResource() string {
	return Route{Resource: a.resource, Subresource: a.subresource}.fullResource()
}

// rule is a rule of a role, and the reason why it applies to the user.
type rule struct {
	Object
	reason string
}

// authorize reports whether RBAC lets a user do something. reason names the binding that allows it or, if it is
// denied, the bound roles that do not exist. Forbid overrides all rules.
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/
func (s *Server) authorize(u userInfo, a attributes) (allowed bool, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forbids[a.verb+" "+a.fullResource()] > 0 {
		return false, ""
	}
	if slices.Contains(u.Groups, masters) {
		return true, ""
	}
	rules, problem := s.rulesLocked(u, a.namespace)
	for _, r := range rules {
		if a.isAllowedBy(r.Object) {
			return true, r.reason
		}
	}
	return false, problem
}

// rulesLocked returns the rules that a user has in a namespace, or only in the cluster scope if it is "". problem
// names the roles that are bound but do not exist; it is "" if all exist.
func (s *Server) rulesLocked(u userInfo, namespace string) (rules []rule, problem string) {
	var missing []string
	bindings := sortedByName(s.objectsLocked("clusterrolebindings"), "")
	if namespace != "" {
		bindings = append(bindings, sortedByName(s.objectsLocked("rolebindings"), namespace)...)
	}
	for _, binding := range bindings {
		subject := subjectOf(binding, u)
		if subject == "" {
			continue
		}
		reason := fmt.Sprintf("RBAC: allowed by %s to %s", describeBinding(binding), subject)
		role, problem := s.roleLocked(binding)
		if problem != "" {
			missing = append(missing, problem)
		}
		for _, r := range objectsIn(role["rules"]) {
			rules = append(rules, rule{r, reason})
		}
	}
	return append(rules, defaultRules(u)...), joinProblems(missing)
}

// joinProblems joins problems in the server's form: a list in brackets, without duplicates.
func joinProblems(problems []string) string {
	var distinct []string
	for _, problem := range problems {
		if !slices.Contains(distinct, problem) {
			distinct = append(distinct, problem)
		}
	}
	if len(distinct) < 2 {
		return strings.Join(distinct, "")
	}
	return "[" + strings.Join(distinct, ", ") + "]"
}

// sortedByName returns the objects in a namespace, sorted by name.
func sortedByName(objects map[Key]Object, namespace string) []Object {
	var found []Object
	keys := slices.SortedFunc(maps.Keys(objects), func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	for _, key := range keys {
		if key.Namespace == namespace {
			found = append(found, objects[key])
		}
	}
	return found
}

// describeBinding names a binding and its role in the form of the server's reasons.
func describeBinding(binding Object) string {
	key := KeyOf(binding)
	kind := "ClusterRoleBinding"
	name := key.Name
	if key.Namespace != "" {
		kind = "RoleBinding"
		name += "/" + key.Namespace
	}
	ref := objectIn(binding, "roleRef")
	return fmt.Sprintf("%s %q of %s %q", kind, name, TextIn(ref, "kind"), TextIn(ref, "name"))
}

// subjectOf describes the subject of a binding that matches a user. It returns "" if none does.
func subjectOf(binding Object, u userInfo) string {
	for _, subject := range objectsIn(binding["subjects"]) {
		name := TextIn(subject, "name")
		switch TextIn(subject, "kind") {
		case "User":
			if name == u.Name {
				return fmt.Sprintf("User %q", name)
			}
		case "Group":
			if slices.Contains(u.Groups, name) {
				return fmt.Sprintf("Group %q", name)
			}
		case "ServiceAccount":
			namespace := TextIn(subject, "namespace")
			if namespace == "" {
				namespace = KeyOf(binding).Namespace
			}
			if u.Name == accountPrefix+namespace+":"+name {
				return fmt.Sprintf("ServiceAccount %q", name+"/"+namespace)
			}
		}
	}
	return ""
}

// roleLocked returns the role of a binding. If it does not exist, problem says so.
func (s *Server) roleLocked(binding Object) (role Object, problem string) {
	ref := objectIn(binding, "roleRef")
	key := Key{Name: TextIn(ref, "name")}
	resource := "clusterroles"
	if TextIn(ref, "kind") == "Role" {
		resource = "roles"
		key.Namespace = KeyOf(binding).Namespace
	}
	role = s.objectsLocked(resource)[key]
	if role == nil {
		kind := strings.TrimSuffix(resource, "s")
		return nil, fmt.Sprintf("%s.rbac.authorization.k8s.io %q not found", kind, key.Name)
	}
	return role, ""
}

// isAllowedBy reports whether a rule covers the action.
func (a attributes) isAllowedBy(r Object) bool {
	has := func(field string, values ...string) bool {
		return slices.ContainsFunc(textsIn(r[field]), func(text string) bool { return slices.Contains(values, text) })
	}
	if !has("verbs", "*", a.verb) {
		return false
	}
	if a.resource == "" {
		return slices.ContainsFunc(textsIn(r["nonResourceURLs"]), a.matchesURL)
	}
	resources := []string{"*", a.fullResource()}
	if a.subresource != "" {
		resources = append(resources, "*/"+a.subresource)
	}
	names := textsIn(r["resourceNames"])
	hasName := len(names) == 0 || slices.Contains(names, a.name)
	return hasName && has("apiGroups", "*", a.group) && has("resources", resources...)
}

// matchesURL reports whether the path equals a rule's URL or, if that ends in an asterisk, begins with it.
func (a attributes) matchesURL(url string) bool {
	prefix, isPrefix := strings.CutSuffix(url, "*")
	return a.path == url || isPrefix && strings.HasPrefix(a.path, prefix)
}

// Rules of the default cluster roles system:public-info-viewer, system:basic-user and system:discovery. The fake has
// no other default roles, and does not store these as objects.
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings
var (
	publicInfoViewer = []Object{
		{"verbs": []any{"get"}, "nonResourceURLs": []any{"/healthz", "/livez", "/readyz", "/version", "/version/"}},
	}
	basicUser = []Object{
		{
			"verbs":     []any{"create"},
			"apiGroups": []any{"authorization.k8s.io"},
			"resources": []any{"selfsubjectaccessreviews", "selfsubjectrulesreviews"},
		},
		{
			"verbs":     []any{"create"},
			"apiGroups": []any{"authentication.k8s.io"},
			"resources": []any{"selfsubjectreviews"},
		},
	}
	discoveryRules = []Object{
		{
			"verbs": []any{"get"},
			"nonResourceURLs": []any{
				"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz",
				"/version", "/version/",
			},
		},
	}
)

// defaultRules returns the rules that a user has through the default cluster roles.
func defaultRules(u userInfo) []rule {
	var rules []rule
	give := func(role, group string, given []Object) {
		reason := fmt.Sprintf("RBAC: allowed by ClusterRoleBinding %q of ClusterRole %q to Group %q", role, role, group)
		for _, r := range given {
			rules = append(rules, rule{r, reason})
		}
	}
	switch {
	case slices.Contains(u.Groups, authenticated):
		give("system:public-info-viewer", authenticated, publicInfoViewer)
		give("system:basic-user", authenticated, basicUser)
		give("system:discovery", authenticated, discoveryRules)
	case slices.Contains(u.Groups, unauthenticated):
		give("system:public-info-viewer", unauthenticated, publicInfoViewer)
	}
	return rules
}

// forbidden answers 403. why names the bound roles that do not exist; it may be "".
func (r *request) forbidden(u userInfo, a attributes, reason string) {
	details := Object{}
	message := forbiddenMessage(u.Name, a)
	if a.resource != "" {
		details["kind"] = a.resource
		if a.name != "" {
			details["name"] = a.name
		}
		if a.group != "" {
			details["group"] = a.group
		}
	}
	if reason != "" {
		message += ": RBAC: " + reason
	}
	r.failWith(403, "Forbidden", message, details)
}

// forbiddenMessage is the server's message for a user who lacks a permission.
func forbiddenMessage(user string, a attributes) string {
	if a.resource == "" {
		return fmt.Sprintf("forbidden: User %q cannot %s path %q", user, a.verb, a.path)
	}
	named := kind{group: a.group, resource: a.resource}.qualified()
	if a.name != "" {
		named += fmt.Sprintf(" %q", a.name)
	}
	scope := "at the cluster scope"
	if a.namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", a.namespace)
	}
	return fmt.Sprintf("%s is forbidden: User %q cannot %s resource %q in API group %q %s",
		named, user, a.verb, a.fullResource(), a.group, scope)
}

// Forbid answers an action of anyone with a 403 until permit is called, for each Forbid of that action. action is a
// verb and a resource, such as "patch nodes" or "patch pods/status".
func (s *Server) Forbid(action string) (permit func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbids[action]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forbids[action]--
	})
}
