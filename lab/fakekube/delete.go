package fakekube

import (
	"fmt"
	"slices"
	"time"
)

// Finalizers that the server sets if the garbage collector must act before an object may be removed.
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
	old := s.objects[r.kind.place()][r.key]
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

// deleteCollection answers a DELETE of all selected objects, or of one page of them. The answer lists them as they
// were before.
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
		old := s.objects[r.kind.place()][KeyOf(listed)]
		if old != nil && d.failedPrecondition(r.kind, old) == "" {
			s.deleteLocked(r.kind, old, d)
		}
	}
}

// isProtectedNamespace reports whether the request is for a namespace that every cluster has.
func (r *request) isProtectedNamespace() bool {
	isProtected := slices.Contains([]string{"default", "kube-system", "kube-public"}, r.key.Name)
	return r.kind.qualified() == "namespaces" && isProtected
}

// deleted returns the Status that confirms a deletion.
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

// failedPrecondition answers 409. Unlike other conflicts, it names the kind instead of the resource.
func (r *request) failedPrecondition(message string) {
	details := r.details()
	qualified := r.kind.qualified()
	if !r.kind.hasOwnDeletion() {
		details["kind"] = r.kind.kind
		qualified = r.kind.kind
		if group := r.kind.stored().group; group != "" {
			qualified += "." + group
		} else {
			delete(details, "group")
		}
	}
	conflict := fmt.Sprintf("Operation cannot be fulfilled on %s %q: %s", qualified, r.key.Name, message)
	r.failWith(409, "Conflict", conflict, details)
}

// hasOwnDeletion reports whether a DELETE only marks objects of this kind, so that the server's own controllers clean
// up first. The server words a failed precondition differently for these kinds.
func (k kind) hasOwnDeletion() bool { return k.qualified() == "namespaces" || k.isDefinition() }

// failedPrecondition describes the precondition that an object does not meet. It returns "" if all are met.
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

// deleteLocked carries out a DELETE. An object with finalizers stays, marked as terminating, until a write removes
// the last one. A pod on a node stays until its node has stopped it. left is the object's present state if it stays,
// and its last state if it is gone. A dry run changes nothing.
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
	terminating := Clone(old)
	isChanged := k.traits().hasDependents && d.setFinalizers(terminating)
	if isEnding && !isChanged {
		return old, false
	}
	if isPod && d.setGracePeriod(terminating) {
		isChanged = true
	}
	hasFinalizers := len(finalizersOf(terminating)) > 0
	if hasFinalizers && !isTerminating(terminating) {
		markTerminating(terminating, 0)
		isChanged = true
	}
	remains := hasFinalizers || graceOf(terminating) > 0
	if isChanged && (remains || isPod) {
		terminating = s.replaceLocked(k, terminating, d.isDryRun)
	}
	if d.isDryRun {
		return terminating, !remains
	}
	if !remains {
		return s.eraseLocked(k, KeyOf(terminating)), true
	}
	if !s.NoControllers {
		s.finishDeletionLocked(k, KeyOf(terminating))
	}
	return terminating, false
}

// deleteDefinitionLocked marks a definition as terminating. Then, like the server's own controller, it removes the
// objects of its kind and finally the definition.
func (s *Server) deleteDefinitionLocked(k kind, old Object, d *deletion) (left Object, isGone bool) {
	terminating := Clone(old)
	MetaOf(terminating)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	setFinalizers(terminating, append(finalizersOf(terminating), "customresourcecleanup.apiextensions.k8s.io"))
	if status := objectIn(terminating, "status"); status != nil {
		setCondition(status, "Terminating", "True", "InstanceDeletionPending",
			"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
	}
	terminating = s.replaceLocked(k, terminating, d.isDryRun)
	if !d.isDryRun {
		s.clearDefinitionLocked(k, terminating)
	}
	return terminating, !d.isDryRun
}

// clearDefinitionLocked removes the objects of a terminating definition's kind, and then the definition.
func (s *Server) clearDefinitionLocked(k kind, terminating Object) {
	clearing := Clone(terminating)
	if status := objectIn(clearing, "status"); status != nil {
		setCondition(status, "Terminating", "True", "InstanceDeletionInProgress",
			"CustomResource deletion is in progress")
		s.replaceLocked(k, clearing, false)
	}
	s.removeLocked(definitions, KeyOf(terminating))
}

// shortensGrace reports whether the deletion gives a terminating pod less time than it has now.
func (d *deletion) shortensGrace(pod Object) bool {
	return d.grace != nil && d.graceFor(pod) < graceOf(pod)
}

// setGracePeriod marks a pod as terminating, or shortens its grace period if it is. It reports whether it changed the
// pod.
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

// graceFor returns the grace period of a pod in seconds. It is 0 if the pod has no node or has finished.
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

// setFinalizers replaces the garbage collector's finalizers of an object by the one for the deletion's policy.
// Without a policy, the present finalizers decide. It reports whether it changed the object.
func (d *deletion) setFinalizers(o Object) bool {
	before := finalizersOf(o)
	isOrphaning := d.policy == "Orphan" || d.policy == "" && slices.Contains(before, orphanFinalizer)
	isInForeground := d.policy == "Foreground" || d.policy == "" && slices.Contains(before, foregroundFinalizer)
	after := slices.DeleteFunc(slices.Clone(before), isCollectorFinalizer)
	if isOrphaning {
		after = append(after, orphanFinalizer)
	}
	if isInForeground {
		after = append(after, foregroundFinalizer)
	}
	setFinalizers(o, after)
	return !slices.Equal(before, after)
}

// isCollectorFinalizer reports whether the garbage collector is the one to remove a finalizer.
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

// graceOf returns the grace period of a terminating object in seconds.
func graceOf(o Object) int64 {
	grace, _ := MetaOf(o)["deletionGracePeriodSeconds"].(float64)
	return int64(grace)
}

// markTerminating marks an object as being deleted after a grace period in seconds. It increments the generation if
// the object has one.
func markTerminating(o Object, grace int64) {
	meta := MetaOf(o)
	end := time.Now().UTC().Add(time.Duration(grace) * time.Second)
	meta["deletionTimestamp"] = end.Format(time.RFC3339)
	meta["deletionGracePeriodSeconds"] = float64(grace)
	if generation, has := meta["generation"].(float64); has {
		meta["generation"] = generation + 1
	}
}

// finishDeletionLocked plays the controllers of a cluster for a terminating object: the node of a pod stops it, and
// the garbage collector removes its finalizers. It leaves dependent objects alone.
func (s *Server) finishDeletionLocked(k kind, key Key) {
	o := Clone(s.objects[k.place()][key])
	if graceOf(o) > 0 && s.HasKubelets {
		return
	}
	if graceOf(o) > 0 {
		MetaOf(o)["deletionGracePeriodSeconds"] = float64(0)
		MetaOf(o)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		o = s.replaceLocked(k, o, false)
	}
	before := finalizersOf(o)
	left := slices.DeleteFunc(slices.Clone(before), isCollectorFinalizer)
	if len(left) == 0 {
		s.eraseLocked(k, key)
		return
	}
	if len(left) < len(before) {
		o = Clone(o)
		setFinalizers(o, left)
		s.replaceLocked(k, o, false)
	}
}

// canBeRemoved reports whether a terminating object has neither grace period nor finalizers left.
func canBeRemoved(o Object) bool {
	return isTerminating(o) && graceOf(o) == 0 && len(finalizersOf(o)) == 0
}
