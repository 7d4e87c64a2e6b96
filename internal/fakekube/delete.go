package fakekube

import (
	"fmt"
	"slices"
	"time"
)

// The finalizers that the server sets where the garbage collector has to act before an object may go.
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/
const (
	orphanFinalizer     = "orphan"
	foregroundFinalizer = "foregroundDeletion"
)

// delete answers a DELETE of one object.
func (s *Server) delete(r *request) {
	d := r.readDeleteOptions()
	if d == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.isProtectedNamespace() {
		message := fmt.Sprintf("namespaces %q is forbidden: this namespace may not be deleted", r.key.Name)
		r.failWith(403, "Forbidden", message, r.details())
		return
	}
	old := s.objects[r.kind.qualified()][r.key]
	if old == nil {
		r.notFound()
		return
	}
	if message := d.failedPrecondition(r.kind, old); message != "" {
		r.failedPrecondition(message)
		return
	}
	left, isGone := s.deleteLocked(r.kind, old, d)
	if isGone && !r.kind.traits().returnsDeletedObject {
		r.answer(200, r.deleted(old))
		return
	}
	r.answer(200, r.render(left, false))
}

// deleteCollection answers a DELETE of all objects that are selected, or of one page of them. The answer is the list of
// them, as they were.
func (s *Server) deleteCollection(r *request) {
	d := r.readDeleteOptions()
	if d == nil {
		return
	}
	if !r.readListOptions() {
		return
	}
	s.list(r)
	if r.code != 200 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, listed := range r.items {
		old := s.objects[r.kind.qualified()][KeyOf(listed)]
		if old != nil && d.failedPrecondition(r.kind, old) == "" {
			s.deleteLocked(r.kind, old, d)
		}
	}
}

// isProtectedNamespace reports whether a request is about one of the namespaces that every cluster has.
func (r *request) isProtectedNamespace() bool {
	isProtected := slices.Contains([]string{"default", "kube-system", "kube-public"}, r.key.Name)
	return r.kind.qualified() == "namespaces" && isProtected
}

// deleted is the Status that says that an object was deleted.
func (r *request) deleted(o Object) Object {
	details := r.details()
	details["uid"] = MetaOf(o)["uid"]
	return Object{
		"kind":       "Status",
		"apiVersion": "v1",
		"metadata":   Object{},
		"status":     "Success",
		"details":    details,
	}
}

// failedPrecondition answers 409. The server names the kind here, and not the resource.
func (r *request) failedPrecondition(message string) {
	details := r.details()
	qualified := r.kind.qualified()
	if !r.kind.hasOwnDeletion() {
		details["kind"] = r.kind.kind
		qualified = r.kind.kind
		if r.kind.group != "" {
			qualified += "." + r.kind.group
		}
	}
	r.failWith(409, "Conflict", fmt.Sprintf("Operation cannot be fulfilled on %s %q: %s", qualified, r.key.Name, message),
		details)
}

// hasOwnDeletion reports whether the first DELETE of an object of this kind only marks it, so that the server's own
// controllers clear up before it goes. These kinds have words of their own for a precondition that is not met.
func (k kind) hasOwnDeletion() bool { return k.qualified() == "namespaces" || k.isDefinition() }

// failedPrecondition says which precondition an object does not meet; "" is none.
func (d *deletion) failedPrecondition(k kind, o Object) string {
	uid := TextIn(MetaOf(o), "uid")
	version := TextIn(MetaOf(o), "resourceVersion")
	isOtherUID := d.uid != nil && *d.uid != uid
	isOtherVersion := d.version != nil && *d.version != version
	switch {
	case isOtherUID && k.hasOwnDeletion():
		return fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", *d.uid, uid)
	case isOtherUID:
		return fmt.Sprintf("the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", *d.uid, uid)
	case isOtherVersion && k.hasOwnDeletion():
		return fmt.Sprintf("Precondition failed: ResourceVersion in precondition: %s, "+
			"ResourceVersion in object meta: %s", *d.version, version)
	case isOtherVersion:
		return fmt.Sprintf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record "+
			"(%s). The object might have been modified", *d.version, version)
	}
	return ""
}

// deleteLocked does what a DELETE asks for. An object that has finalizers stays, marked as being deleted, until a write
// removes the last of them; so does a pod on a node, until its node has ended it. Where it stays, left is what it is
// now; where it goes, left is what it was last. A dry run only says what would be.
func (s *Server) deleteLocked(k kind, old Object, d *deletion) (left Object, isGone bool) {
	if k.qualified() == "namespaces" {
		return s.deleteNamespaceLocked(k, old, d), false
	}
	if k.isDefinition() {
		return s.deleteDefinitionLocked(k, old, d)
	}
	isPod := k.qualified() == "pods"
	isEnding := isPod && isTerminating(old) && !d.shortensGrace(old)
	if isEnding && (graceOf(old) > 0 || d.grace != nil) {
		return old, false
	}
	dying := Clone(old)
	isChanged := k.traits().hasDependents && d.setFinalizers(dying)
	if isEnding && !isChanged {
		return old, false
	}
	if isPod && d.setGracePeriod(dying) {
		isChanged = true
	}
	hasFinalizers := len(finalizersOf(dying)) > 0
	if hasFinalizers && !isTerminating(dying) {
		markTerminating(dying, 0)
		isChanged = true
	}
	stays := hasFinalizers || graceOf(dying) > 0
	if isChanged && (stays || isPod) {
		dying = s.replaceLocked(k, dying, d.isDryRun)
	}
	if d.isDryRun {
		return dying, !stays
	}
	if !stays {
		return s.eraseLocked(k, KeyOf(dying)), true
	}
	if !s.NoControllers {
		s.finishDeletionLocked(k, KeyOf(dying))
	}
	return dying, false
}

// deleteDefinitionLocked marks a definition as being deleted; then the server's own controller removes its objects, and
// it after them.
func (s *Server) deleteDefinitionLocked(k kind, old Object, d *deletion) (left Object, isGone bool) {
	dying := Clone(old)
	MetaOf(dying)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	setFinalizers(dying, append(finalizersOf(dying), "customresourcecleanup.apiextensions.k8s.io"))
	if status := objectIn(dying, "status"); status != nil {
		setCondition(status, "Terminating", "True", "InstanceDeletionPending",
			"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
	}
	dying = s.replaceLocked(k, dying, d.isDryRun)
	if !d.isDryRun {
		s.clearDefinitionLocked(k, dying)
	}
	return dying, !d.isDryRun
}

// clearDefinitionLocked removes a definition that is marked as being deleted, and the objects of its kind before it.
func (s *Server) clearDefinitionLocked(k kind, dying Object) {
	clearing := Clone(dying)
	if status := objectIn(clearing, "status"); status != nil {
		setCondition(status, "Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
		s.replaceLocked(k, clearing, false)
	}
	s.removeLocked(definitions, KeyOf(dying))
}

// shortensGrace reports whether a pod that is being deleted is to end sooner than it was told to.
func (d *deletion) shortensGrace(pod Object) bool {
	return d.grace != nil && d.graceFor(pod) < graceOf(pod)
}

// setGracePeriod marks a pod as being deleted, or shortens the time that it still has. It reports whether that changes
// the pod.
func (d *deletion) setGracePeriod(pod Object) bool {
	grace := d.graceFor(pod)
	if !isTerminating(pod) {
		markTerminating(pod, grace)
		return true
	}
	if !d.shortensGrace(pod) {
		return false
	}
	meta := MetaOf(pod)
	end, err := time.Parse(time.RFC3339, TextIn(meta, "deletionTimestamp"))
	if err == nil {
		end = end.Add(time.Duration(grace-graceOf(pod)) * time.Second)
		meta["deletionTimestamp"] = end.Format(time.RFC3339)
	}
	meta["deletionGracePeriodSeconds"] = float64(grace)
	return true
}

// graceFor is how many seconds a pod gets to end: none where it has no node yet, or has ended.
func (d *deletion) graceFor(pod Object) int64 {
	spec := objectIn(pod, "spec")
	phase := TextIn(objectIn(pod, "status"), "phase")
	if TextIn(spec, "nodeName") == "" || phase == "Failed" || phase == "Succeeded" {
		return 0
	}
	grace := int64(30)
	if own, isSet := spec["terminationGracePeriodSeconds"].(float64); isSet {
		grace = int64(own)
	}
	if d.grace != nil {
		grace = *d.grace
	}
	if grace < 0 {
		return 1
	}
	return grace
}

// setFinalizers gives an object the finalizer of the garbage collector that a deletion asks for, and takes away the
// other. It reports whether that changes anything. The finalizer itself asks for its kind of deletion, too.
func (d *deletion) setFinalizers(o Object) bool {
	was := finalizersOf(o)
	isOrphaning := d.policy == "Orphan" || d.policy == "" && slices.Contains(was, orphanFinalizer)
	isInForeground := d.policy == "Foreground" || d.policy == "" && slices.Contains(was, foregroundFinalizer)
	is := slices.DeleteFunc(slices.Clone(was), isCollectorFinalizer)
	if isOrphaning {
		is = append(is, orphanFinalizer)
	}
	if isInForeground {
		is = append(is, foregroundFinalizer)
	}
	setFinalizers(o, is)
	return !slices.Equal(was, is)
}

// isCollectorFinalizer reports whether the garbage collector removes a finalizer.
func isCollectorFinalizer(finalizer string) bool {
	return finalizer == orphanFinalizer || finalizer == foregroundFinalizer
}

func finalizersOf(o Object) []string { return textsIn(MetaOf(o)["finalizers"]) }

func setFinalizers(o Object, finalizers []string) {
	if len(finalizers) == 0 {
		delete(MetaOf(o), "finalizers")
		return
	}
	list := make([]any, len(finalizers))
	for i, finalizer := range finalizers {
		list[i] = finalizer
	}
	MetaOf(o)["finalizers"] = list
}

// isTerminating reports whether an object is being deleted.
func isTerminating(o Object) bool { return MetaOf(o)["deletionTimestamp"] != nil }

// graceOf is how many seconds an object that is being deleted has got.
func graceOf(o Object) int64 {
	grace, _ := MetaOf(o)["deletionGracePeriodSeconds"].(float64)
	return int64(grace)
}

// markTerminating marks an object as being deleted so many seconds from now. Where it has a generation, that goes up.
func markTerminating(o Object, grace int64) {
	meta := MetaOf(o)
	end := time.Now().UTC().Add(time.Duration(grace) * time.Second)
	meta["deletionTimestamp"] = end.Format(time.RFC3339)
	meta["deletionGracePeriodSeconds"] = float64(grace)
	if generation, has := meta["generation"].(float64); has {
		meta["generation"] = generation + 1
	}
}

// finishDeletionLocked does for an object that is being deleted what a cluster's controllers do: the node of a pod ends it, and
// the garbage collector removes its finalizers. Objects that it owns stay where they are.
func (s *Server) finishDeletionLocked(k kind, key Key) {
	o := Clone(s.objects[k.qualified()][key])
	if graceOf(o) > 0 && s.HasKubelets {
		return
	}
	if graceOf(o) > 0 {
		MetaOf(o)["deletionGracePeriodSeconds"] = float64(0)
		MetaOf(o)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		o = s.replaceLocked(k, o, false)
	}
	was := finalizersOf(o)
	left := slices.DeleteFunc(slices.Clone(was), isCollectorFinalizer)
	if len(left) == 0 {
		s.eraseLocked(k, key)
		return
	}
	if len(left) < len(was) {
		o = Clone(o)
		setFinalizers(o, left)
		s.replaceLocked(k, o, false)
	}
}

// canBeRemoved reports whether nothing keeps an object, which is being deleted, any longer.
func canBeRemoved(o Object) bool {
	return isTerminating(o) && graceOf(o) == 0 && len(finalizersOf(o)) == 0
}
