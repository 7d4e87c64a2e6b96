package fakekube

import (
	"fmt"
	"regexp"
)

// quotedText finds what stands in quotes in an expression of CEL.
var quotedText = regexp.MustCompile(`'([^']*)'`)

// quotedIn is the first text in quotes in the first of a policy's conditions or validations, "" where there is none.
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

// isDeniedByPolicyLocked answers a write to a node that a ValidatingAdmissionPolicy refuses, and reports whether one does. Of
// CEL, the fake knows two sentences: that the object has a name (as the condition), and that it has no such label (as
// the validation).
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
		validation := objectsIn(spec["validations"])[0] // it names the label
		message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s",
			name, TextIn(MetaOf(binding), "name"), TextIn(validation, "message"))
		d := r.details()
		d["causes"] = []any{Object{"message": message}}
		r.failWith(422, "Invalid", fmt.Sprintf("%s %q is forbidden: %s", r.kind.qualified(), r.key.Name, message), d)
		return true
	}
	return false
}

// admitLocked is what o becomes on its way into the place of old, which is nil where there is none yet: every write
// of a client passes here, and meets the defaults, the webhook that Strip sets up, the checks and the policies, in this
// order. It is nil where the write was refused, which has been answered.
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
