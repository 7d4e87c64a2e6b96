package fakekube

import (
	"fmt"
	"regexp"
	"slices"
)

// quotedText matches a quoted text in a CEL expression.
var quotedText = regexp.MustCompile(`'([^']*)'`)

// quotedIn returns the first quoted text in the first condition or validation of a list, or "".
func quotedIn(list any) string {
	items := objectsIn(list)
	if len(items) == 0 {
		return ""
	}
	found := quotedText.FindStringSubmatch(TextIn(items[0], "expression"))
	if found == nil {
		return ""
	}
	return found[1]
}

// isDeniedByPolicyLocked reports whether a ValidatingAdmissionPolicy denies a write to a node. If so, it answers 422.
// The fake understands only two CEL expressions: a condition that the object has a certain name, and a validation
// that it lacks a certain label.
func (s *Server) isDeniedByPolicyLocked(r *request, o Object) bool {
	if r.kind.qualified() != "nodes" {
		return false
	}
	labels, _ := MetaOf(o)["labels"].(Object)
	for _, binding := range s.objectsLocked("validatingadmissionpolicybindings") {
		bound, _ := binding["spec"].(Object)
		name := TextIn(bound, "policyName")
		spec, _ := s.objectsLocked("validatingadmissionpolicies")[Key{Name: name}]["spec"].(Object)
		_, hasLabel := labels[quotedIn(spec["validations"])]
		if !hasLabel || r.key.Name != quotedIn(spec["matchConditions"]) {
			continue
		}
		validation := objectsIn(spec["validations"])[0]
		message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s",
			name, TextIn(MetaOf(binding), "name"), TextIn(validation, "message"))
		d := r.details()
		d["causes"] = []any{Object{"message": message}}
		r.failWith(422, "Invalid", fmt.Sprintf("%s %q is forbidden: %s", r.kind.qualified(), r.key.Name, message), d)
		return true
	}
	return false
}

// mutation is a mutating webhook for a resource.
type mutation struct {
	resource string // qualified
	change   func(Object)
}

// Mutate simulates a mutating webhook: change gets each object of a resource that a client writes, and may modify it,
// before the server validates it. It is called with the fake locked and must not call it. Put and Edit bypass the
// webhook. It remains until stop is called. Mutate panics if the fake does not serve the resource.
func (s *Server) Mutate(resource string, change func(Object)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, isServed := s.kindLocked(resource)
	if !isServed {
		panic("the fake has no " + resource + ", so nobody can write one")
	}
	m := &mutation{k.place(), change}
	s.mutations = append(s.mutations, m)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mutations = slices.DeleteFunc(s.mutations, func(other *mutation) bool { return other == m })
	}
}

// mutatedLocked returns the object that the webhooks of Mutate make of one that a client writes.
func (s *Server) mutatedLocked(k kind, o Object) Object {
	for _, m := range s.mutations {
		if m.resource == k.place() {
			o = Clone(o)
			m.change(o)
		}
	}
	return o
}

// admitLocked prepares an object for storage. Every write of a client passes through the defaults, the webhooks of
// Mutate, validation and the policies, in this order. old is the replaced object, or nil. If the write is refused, it
// answers so and returns nil.
func (s *Server) admitLocked(r *request, old, o Object) Object {
	o = s.mutatedLocked(r.kind, r.kind.prepareForWrite(old, o, r.isStatus))
	causes := r.kind.validate(old, o, r.isStatus)
	if len(causes) > 0 {
		r.refuse(causes)
		return nil
	}
	if s.isDeniedByPolicyLocked(r, o) {
		return nil
	}
	return o
}
