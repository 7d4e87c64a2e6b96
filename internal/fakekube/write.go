package fakekube

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strconv"
	"time"
)

// quotedText finds what stands in quotes in an expression of CEL.
var quotedText = regexp.MustCompile(`'([^']*)'`)

// quotedIn is the first text in quotes in the first of a policy's conditions or validations, "" where there is none.
func quotedIn(list any) string {
	items, _ := list.([]any)
	if len(items) == 0 {
		return ""
	}
	first, _ := items[0].(Object)
	found := quotedText.FindStringSubmatch(TextIn(first, "expression"))
	if found == nil {
		return ""
	}
	return found[1]
}

// refusedLocked answers a write to a node that a ValidatingAdmissionPolicy refuses, and reports whether one does. Of
// CEL, the fake knows two sentences: that the object has a name (as the condition), and that it has no such label (as
// the validation).
func (s *Server) refusedLocked(r *request, o Object) bool {
	if r.kind.resource != "nodes" {
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
		validation := spec["validations"].([]any)[0].(Object)
		message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s",
			name, TextIn(MetaOf(binding), "name"), TextIn(validation, "message"))
		d := r.details()
		d["causes"] = []any{Object{"message": message}}
		r.fail(422, "Invalid", fmt.Sprintf("%s %q is forbidden: %s", r.kind.qualified(), r.key.Name, message), d)
		return true
	}
	return false
}

// create answers a POST.
func (s *Server) create(r *request) {
	o := r.decoded()
	if o == nil {
		return
	}
	meta := MetaOf(o)
	if prefix := TextIn(meta, "generateName"); TextIn(meta, "name") == "" && prefix != "" {
		meta["name"] = prefix + strconv.FormatUint(rand.Uint64N(1<<24), 36)
	}
	r.key.Name = TextIn(meta, "name")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasGoneLocked(r) {
		r.notFound()
		return
	}
	if r.kind.isNamespaced {
		meta["namespace"] = r.key.Namespace
		if s.objects["namespaces"][Key{"", r.key.Namespace}] == nil {
			r.fail(404, "NotFound", fmt.Sprintf("namespaces %q not found", r.key.Namespace),
				Object{"name": r.key.Namespace, "kind": "namespaces"})
			return
		}
	}
	if s.objects[r.kind.qualified()][r.key] != nil {
		r.fail(409, "AlreadyExists", fmt.Sprintf("%s %q already exists", r.kind.qualified(), r.key.Name), r.details())
		return
	}
	o = s.admittedLocked(r, nil, o)
	if o == nil {
		return
	}
	if r.kind.isDefinition() {
		s.createCRDLocked(r, o)
		return
	}
	r.answer(201, r.show(s.putLocked(r.kind.qualified(), o), false))
}

// admittedLocked is what o becomes on its way into the place of old, which is nil where there is none yet: every write
// of a client passes here, and meets the CRD, the webhook that Strip sets up, the checks and the policies, in this
// order. It is nil where the write was refused, which has been answered.
func (s *Server) admittedLocked(r *request, old, o Object) Object {
	if r.kind.hasStatus {
		o = partOf(old, o, r.status)
	}
	if r.kind.dropsStatus() {
		delete(o, "status")
	}
	if labels, ok := MetaOf(o)["labels"].(Object); ok && r.kind.resource == "nodes" {
		delete(labels, s.stripped)
	}
	if !r.valid(o) || s.refusedLocked(r, o) {
		return nil
	}
	return o
}

// isNamedAsInPath reports whether an object that is written has the name and the namespace of the request's path;
// where it does not, that is answered. Where the object says no namespace, it gets the path's.
func (r *request) isNamedAsInPath(o Object) bool {
	meta := MetaOf(o)
	name := TextIn(meta, "name")
	namespace := TextIn(meta, "namespace")
	message := ""
	switch {
	case name == "":
		message = fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided",
			r.key.Name)
	case name != r.key.Name:
		message = fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, r.key.Name)
	case namespace != "" && namespace != r.key.Namespace:
		message = fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)",
			namespace, r.key.Namespace)
	}
	if message != "" {
		r.fail(400, "BadRequest", message, nil)
		return false
	}
	if r.kind.isNamespaced {
		meta["namespace"] = r.key.Namespace
	}
	return true
}

// decoded is the object that a request brings. It is nil where the request was answered, as there is none.
func (r *request) decoded() Object {
	var o Object
	err := json.Unmarshal(r.body, &o)
	if err != nil || MetaOf(o) == nil {
		kind := r.kind.kind
		message := fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", kind, r.kind.version, kind, err)
		r.fail(400, "BadRequest", message, nil)
		return nil
	}
	return o
}

// valid reports whether an object may be stored; where it may not, it answers why. Of the server's checks, it has
// those of names and labels, of an Event's namespace, and of a Lease's times.
func (r *request) valid(o Object) bool {
	if about, ok := o["involvedObject"].(Object); ok {
		if ns := TextIn(about, "namespace"); ns != r.key.Namespace && (ns != "" || r.key.Namespace != "default") {
			r.invalid("involvedObject.namespace", fmt.Sprintf("Invalid value: %q: does not match event.namespace", ns))
			return false
		}
	}
	if problem := subdomainProblem(r.key.Name); problem != "" {
		r.invalid("metadata.name", fmt.Sprintf("Invalid value: %q: %s", r.key.Name, problem))
		return false
	}
	labels, _ := MetaOf(o)["labels"].(Object)
	for key := range labels {
		if problem := labelKeyProblem(key); problem != "" {
			r.invalid("metadata.labels", fmt.Sprintf("Invalid value: %q: %s", key, problem))
			return false
		}
		value := TextIn(labels, key)
		if problem := labelValueProblem(value); problem != "" {
			r.invalid("metadata.labels", fmt.Sprintf("Invalid value: %q: %s", value, problem))
			return false
		}
	}
	if r.kind.kind != "Lease" {
		return true
	}
	spec, _ := o["spec"].(Object)
	for _, field := range []string{"acquireTime", "renewTime"} {
		const microTime = "2006-01-02T15:04:05.000000Z07:00"
		value := TextIn(spec, field)
		if value == "" {
			continue
		}
		if _, err := time.Parse(microTime, value); err != nil {
			r.fail(400, "BadRequest", "Lease in version \"v1\" cannot be handled as a Lease: "+err.Error(), nil)
			return false
		}
	}
	return true
}

// update answers a PUT. It may make a Lease, but nothing else.
func (s *Server) update(r *request) {
	o := r.decoded()
	if o == nil || !r.isNamedAsInPath(o) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[r.kind.qualified()][r.key]
	version := TextIn(MetaOf(o), "resourceVersion")
	switch {
	case r.status && !r.kind.hasStatus:
		r.notFound()
	case old == nil && r.kind.kind == "Lease" && version == "":
		if o = s.admittedLocked(r, nil, o); o != nil {
			r.answer(201, r.show(s.putLocked(r.kind.qualified(), o), false))
		}
	case old == nil:
		r.notFound()
	case version == "":
		r.invalid("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
	case version != TextIn(MetaOf(old), "resourceVersion"):
		r.conflict()
	default:
		if o = s.admittedLocked(r, old, o); o != nil {
			s.storeLocked(r, old, o)
		}
	}
}

// storeLocked answers with o in place of old; where nothing has changed, not even the version does.
func (s *Server) storeLocked(r *request, old, o Object) {
	for _, field := range []string{"uid", "creationTimestamp", "resourceVersion"} {
		MetaOf(o)[field] = MetaOf(old)[field]
	}
	if reflect.DeepEqual(Clone(o), Clone(old)) {
		r.answer(200, r.show(old, false))
		return
	}
	r.answer(200, r.show(s.putLocked(r.kind.qualified(), o), false))
	if r.kind.isDefinition() {
		s.settleCRDLocked(r.key)
	}
}

// patch answers a PATCH. A strategic merge patch is taken for a merge patch.
func (s *Server) patch(r *request) {
	media := r.Header.Get("Content-Type")
	if media != "application/merge-patch+json" && media != "application/strategic-merge-patch+json" {
		r.fail(415, "UnsupportedMediaType", "415: Unsupported Media Type", Object{})
		return
	}
	var patch Object
	if err := json.Unmarshal(r.body, &patch); err != nil {
		r.fail(400, "BadRequest", "error decoding patch: "+err.Error(), nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[r.kind.qualified()][r.key]
	if old == nil || r.status && !r.kind.hasStatus {
		r.notFound()
		return
	}
	meta := MetaOf(patch)
	if v := TextIn(meta, "resourceVersion"); v != "" && v != TextIn(MetaOf(old), "resourceVersion") {
		r.conflict()
		return
	}
	if uid := TextIn(meta, "uid"); uid != "" && uid != TextIn(MetaOf(old), "uid") && !r.status {
		r.invalid("metadata.uid", fmt.Sprintf("Invalid value: %q: field is immutable", uid))
		return
	}
	o := Clone(old)
	mergePatch(o, patch)
	if !r.isNamedAsInPath(o) {
		return
	}
	if o = s.admittedLocked(r, old, o); o != nil {
		s.storeLocked(r, old, o)
	}
}

// partOf is what becomes of old where o is written: whoever writes to the status changes nothing else, and the
// other way round.
func partOf(old, o Object, isStatus bool) Object {
	part := maps.Clone(o)
	status := old["status"]
	if isStatus {
		part = Clone(old)
		status = o["status"]
	}
	part["status"] = status
	if status == nil {
		delete(part, "status")
	}
	return part
}

// delete answers a DELETE.
func (s *Server) delete(r *request) {
	if o := s.Remove(r.kind.qualified(), r.key); o != nil {
		r.answer(200, r.show(o, false))
		return
	}
	r.notFound()
}
