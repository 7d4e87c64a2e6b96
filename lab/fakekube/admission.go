package fakekube

import (
	"fmt"
	"regexp"
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

// admitLocked prepares an object for storage. Every write of a client passes through the defaults, the webhook of
// Strip, validation and the policies, in this order. old is the replaced object, or nil. If the write is refused, it
// answers so and returns nil.
func (s *Server) admitLocked(r *request, old, o Object) Object {
	o = r.kind.prepareForWrite(old, o, r.isStatus)
	if s.strippedLabel != "" && r.kind.qualified() == "nodes" {
		delete(objectIn(o, "metadata", "labels"), s.strippedLabel)
	}
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
