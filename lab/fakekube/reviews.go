package fakekube

import (
	"slices"
	"time"
)

// review answers a question about permissions. It stores nothing.
// https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
func (s *Server) review(r *request) {
	if !r.convertBodyToJSON() || !r.readOptions("CreateOptions") {
		return
	}
	o := r.decodeObject()
	if o == nil {
		return
	}
	if MetaOf(o) == nil {
		o["metadata"] = Object{}
	}
	if r.kind.isNamespaced {
		MetaOf(o)["namespace"] = r.key.Namespace
	}
	switch r.kind.resource {
	case "selfsubjectreviews":
		s.reviewSelf(r, o)
	case "selfsubjectrulesreviews":
		s.reviewRules(r, o)
	default:
		s.reviewAccess(r, o)
	}
}

// reviewSelf answers who the user is.
func (s *Server) reviewSelf(r *request, o Object) {
	info := Object{"username": r.user.Name, "groups": r.user.Groups}
	if r.user.UID != "" {
		info["uid"] = r.user.UID
	}
	MetaOf(o)["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	o["status"] = Object{"userInfo": info}
	r.answer(201, r.render(o, false))
}

// reviewAccess answers whether the named user, or for a self review the sender, may do something.
func (s *Server) reviewAccess(r *request, o Object) {
	spec := objectIn(o, "spec")
	about, isResource := spec["resourceAttributes"].(Object)
	path, _ := spec["nonResourceAttributes"].(Object)
	user := userInfo{Name: TextIn(spec, "user"), UID: TextIn(spec, "uid"), Groups: textsIn(spec["groups"])}
	isSelf := r.kind.resource == "selfsubjectaccessreviews"
	if isSelf {
		user = r.user
	}
	causes := r.validateReview(user, about, path)
	if len(causes) > 0 {
		r.refuseWith("."+r.kind.group, "", Object{"group": r.kind.group}, causes)
		return
	}
	a := attributes{verb: TextIn(path, "verb"), path: TextIn(path, "path")}
	if isResource {
		a = attributes{
			verb:        TextIn(about, "verb"),
			group:       TextIn(about, "group"),
			resource:    TextIn(about, "resource"),
			subresource: TextIn(about, "subresource"),
			namespace:   TextIn(about, "namespace"),
			name:        TextIn(about, "name"),
		}
	}
	allowed, reason := s.authorize(user, a)
	status := Object{"allowed": allowed}
	switch {
	case allowed && reason != "":
		status["reason"] = reason
	case reason != "":
		status["reason"] = "RBAC: " + reason
	}
	o["status"] = status
	r.answer(201, r.render(o, false))
}

// validateReview validates an access review. resource and path are its attributes; one of them must be nil.
func (r *request) validateReview(user userInfo, resource, path Object) []cause {
	var causes []cause
	switch {
	case resource != nil && path != nil:
		both := Object{"Path": TextIn(path, "path"), "Verb": TextIn(path, "verb")}
		causes = append(causes, invalidValue("spec.nonResourceAttributes", both,
			"cannot be specified in combination with resourceAttributes"))
	case resource == nil && path == nil:
		causes = append(causes, invalidValue("spec.resourceAttributes", nil,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if user.Name == "" && len(user.Groups) == 0 {
		causes = append(causes, invalidValue("spec.user", "", "at least one of user or group must be specified"))
	}
	namespace := TextIn(resource, "namespace")
	if r.kind.isNamespaced && namespace != r.key.Namespace {
		causes = append(causes, invalidValue("spec.resourceAttributes.namespace", namespace,
			"must match metadata.namespace"))
	}
	return causes
}

// reviewRules answers what the sender may do in a namespace.
func (s *Server) reviewRules(r *request, o Object) {
	namespace := TextIn(objectIn(o, "spec"), "namespace")
	if namespace == "" {
		r.badRequest("no namespace on request")
		return
	}
	resources := []any{}
	paths := []any{}
	if slices.Contains(r.user.Groups, masters) {
		all := []any{"*"}
		resources = append(resources, Object{"verbs": all, "apiGroups": all, "resources": all})
		paths = append(paths, Object{"verbs": all, "nonResourceURLs": all})
	}
	s.mu.Lock()
	rules, problem := s.rulesLocked(r.user, namespace)
	s.mu.Unlock()
	for _, rule := range rules {
		if rule.Object["nonResourceURLs"] != nil {
			paths = append(paths, rule.Object)
			continue
		}
		resources = append(resources, rule.Object)
	}
	status := Object{"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}
	if problem != "" {
		status["evaluationError"] = problem
	}
	o["spec"] = Object{}
	o["status"] = status
	r.answer(201, r.render(o, false))
}
