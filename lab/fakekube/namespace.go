package fakekube

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// deleteNamespaceLocked makes a namespace Terminating and returns it in that state. Then it deletes the objects in it
// and finally the namespace, like a namespace controller. The namespace stays while objects in it have finalizers.
func (s *Server) deleteNamespaceLocked(k kind, old Object, d *deletion) Object {
	if isTerminating(old) {
		return old
	}
	terminating := Clone(old)
	MetaOf(terminating)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	partIn(terminating, "status")["phase"] = "Terminating"
	d.setFinalizers(terminating)
	terminating = s.replaceLocked(k, terminating, d.isDryRun)
	if d.isDryRun || s.NoControllers {
		return terminating
	}
	name := KeyOf(terminating).Name
	for _, inside := range s.kindsLocked() {
		if inside.isNamespaced {
			s.deleteNamespaceContentLocked(inside, name)
		}
	}
	s.removeNamespaceIfEmptyLocked(name)
	return terminating
}

// deleteNamespaceContentLocked deletes the objects of a kind in a namespace.
func (s *Server) deleteNamespaceContentLocked(k kind, namespace string) {
	now := int64(0)
	for _, key := range s.keysLocked(k, namespace) {
		s.deleteLocked(k, s.objects[k.place()][key], &deletion{grace: &now, policy: "Background"})
	}
}

// keysLocked returns the sorted keys of the objects of a kind in a namespace.
func (s *Server) keysLocked(k kind, namespace string) []Key {
	var keys []Key
	for key := range s.objects[k.place()] {
		if key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// hasObjectsLocked reports whether a namespace contains objects of a kind.
func (s *Server) hasObjectsLocked(k kind, namespace string) bool {
	for key := range s.objects[k.place()] {
		if key.Namespace == namespace {
			return true
		}
	}
	return false
}

// removeNamespaceIfEmptyLocked removes a Terminating namespace if it is empty and has no other finalizer.
func (s *Server) removeNamespaceIfEmptyLocked(name string) {
	key := Key{Name: name}
	namespace := s.objects["namespaces"][key]
	if namespace == nil || !isTerminating(namespace) || s.NoControllers {
		return
	}
	for _, inside := range s.kindsLocked() {
		if inside.isNamespaced && s.hasObjectsLocked(inside, name) {
			return
		}
	}
	k, _ := s.kindLocked("namespaces")
	if !slices.ContainsFunc(finalizersOf(namespace), func(f string) bool { return !isCollectorFinalizer(f) }) {
		s.eraseLocked(k, key)
	}
}

// checkNamespaceLocked reports whether an object may be created in the request's namespace. If the namespace does not
// exist or is Terminating, it answers so.
func (s *Server) checkNamespaceLocked(r *request) bool {
	name := r.key.Namespace
	namespace := s.objects["namespaces"][Key{Name: name}]
	if namespace == nil {
		details := Object{"name": name, "kind": "namespaces"}
		r.failWith(404, "NotFound", fmt.Sprintf("namespaces %q not found", name), details)
		return false
	}
	if !isTerminating(namespace) {
		return true
	}
	message := fmt.Sprintf("%s %q is forbidden: unable to create new content in namespace %s because it is being "+
		"terminated", r.kind.qualified(), r.key.Name, name)
	details := r.details()
	details["causes"] = []any{Object{
		"reason":  "NamespaceTerminating",
		"message": fmt.Sprintf("namespace %s is being terminated", name),
		"field":   "metadata.namespace",
	}}
	r.failWith(403, "Forbidden", message, details)
	return false
}

// finalize answers a PUT to the subresource finalize of a namespace, which only sets spec.finalizers. A Terminating
// namespace without any is removed, even if it is not empty.
func (s *Server) finalize(r *request) {
	if !r.convertBodyToJSON() || !r.readOptions("UpdateOptions") {
		return
	}
	o := r.decodeObject()
	if o == nil || !r.checkNameInPath(o) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects["namespaces"][r.key]
	if old == nil {
		r.notFound()
		return
	}
	if !r.checkVersion(old, o) {
		return
	}
	if causes := validateSpecFinalizers(o); len(causes) > 0 {
		r.refuse(causes)
		return
	}
	finalized := Clone(old)
	finalized["spec"] = o["spec"]
	isRemoved := isTerminating(finalized) && objectIn(finalized, "spec")["finalizers"] == nil
	switch {
	case isRemoved:
		setFinalizers(finalized, nil)
		r.answer(200, r.render(finalized, false))
		if !r.options.isDryRun {
			s.eraseLocked(r.kind, r.key)
		}
	case isEqualJSON(finalized, old):
		r.answer(200, r.render(old, false))
	default:
		r.answer(200, r.render(s.replaceLocked(r.kind, finalized, r.options.isDryRun), false))
	}
}

// validateSpecFinalizers validates the finalizers in the spec of a namespace.
func validateSpecFinalizers(namespace Object) []cause {
	var causes []cause
	for i, finalizer := range textsIn(partIn(namespace, "spec")["finalizers"]) {
		causes = append(causes, validateNamespaceFinalizer(fmt.Sprintf("spec.finalizers[%d]", i), finalizer)...)
	}
	return causes
}
