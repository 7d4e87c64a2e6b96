package fakekube

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
)

// create answers a POST.
func (s *Server) create(r *request) {
	if !r.convertBodyToJSON() || !r.readOptions("CreateOptions") {
		return
	}
	o := r.decodeObject()
	if o == nil || !r.checkNamespaceInPath(o) {
		return
	}
	version := TextIn(MetaOf(o), "resourceVersion")
	r.key.Name = nameForCreate(MetaOf(o))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasGoneLocked(r) {
		r.notFound()
		return
	}
	if r.kind.isNamespaced && !s.checkNamespaceLocked(r) {
		return
	}
	o = s.admitLocked(r, nil, o)
	if o == nil {
		return
	}
	if version != "" && version != "0" {
		r.internalError("resourceVersion should not be set on objects to be created")
		return
	}
	if existing := s.objects[r.kind.place()][r.key]; existing != nil {
		r.alreadyExists(existing)
		return
	}
	r.answer(201, r.render(s.createdLocked(r, o), false))
	if r.kind.isDefinition() && !r.options.isDryRun {
		s.updateCRDStatusLocked(r.key)
	}
}

// nameForCreate returns the name in an object's metadata. If there is none, it sets a generated one.
func nameForCreate(meta Object) string {
	name := TextIn(meta, "name")
	if name == "" {
		name = generatedName(TextIn(meta, "generateName"))
		meta["name"] = name
	}
	return name
}

// alreadyExists answers 409 because the name is taken.
func (r *request) alreadyExists(existing Object) {
	message := fmt.Sprintf("%s %q already exists", r.kind.qualified(), r.key.Name)
	if isTerminating(existing) {
		message = "object is being deleted: " + message
	}
	r.failWith(409, "AlreadyExists", message, r.details())
}

// createdLocked stores a new object and returns it. In a dry run, it only returns what would have been stored.
func (s *Server) createdLocked(r *request, o Object) Object {
	if !r.options.isDryRun {
		return s.putLocked(r.kind.place(), o)
	}
	o = Clone(o)
	s.setSystemMetadataLocked(r.kind, nil, o)
	if TextIn(MetaOf(o), "resourceVersion") == "0" {
		delete(MetaOf(o), "resourceVersion")
	}
	return o
}

// The server completes a generateName with generatedLength characters of an alphabet that spells no words. It
// shortens the prefix so that the name fits into a label.
const (
	generatedAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	generatedLength   = 5
)

// generatedName completes a generateName. It returns "" if the prefix is empty.
func generatedName(prefix string) string {
	if prefix == "" {
		return ""
	}
	prefix = prefix[:min(len(prefix), labelLength-generatedLength)]
	suffix := make([]byte, generatedLength)
	for i := range suffix {
		suffix[i] = generatedAlphabet[rand.IntN(len(generatedAlphabet))]
	}
	return prefix + string(suffix)
}

// update answers a PUT.
func (s *Server) update(r *request) {
	if !r.convertBodyToJSON() || !r.readOptions("UpdateOptions") {
		return
	}
	o := r.decodeObject()
	if o == nil || !r.checkNamespaceInPath(o) || !r.checkNameInPath(o) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[r.kind.place()][r.key]
	if r.rejectInvalidName() {
		return
	}
	if old == nil && r.kind.traits().allowsCreateOnUpdate && !r.isStatus {
		s.createByPutLocked(r, o)
		return
	}
	if old == nil || r.isStatus && !r.kind.hasStatus {
		r.notFound()
		return
	}
	if r.checkUID(old, o) {
		s.writeLocked(r, old, o)
	}
}

// checkUID reports whether the uid in an object that a client sends is that of the stored object. If not, it answers
// 409. An object without a uid always passes.
func (r *request) checkUID(stored, sent Object) bool {
	storedUID := TextIn(MetaOf(stored), "uid")
	sentUID := TextIn(MetaOf(sent), "uid")
	if sentUID == "" || sentUID == storedUID {
		return true
	}
	r.failWith(409, "Conflict", fmt.Sprintf("Operation cannot be fulfilled on %s %q: StorageError: invalid object, "+
		"Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, "+
		"UID in object meta: %s", r.kind.qualified(), r.key.Name, r.pathInEtcd(), sentUID, storedUID), r.details())
	return false
}

// createByPutLocked answers a PUT that creates its object.
func (s *Server) createByPutLocked(r *request, o Object) {
	if r.kind.isNamespaced && !s.checkNamespaceLocked(r) {
		return
	}
	o = s.admitLocked(r, nil, o)
	if o != nil {
		r.answer(201, r.render(s.createdLocked(r, o), false))
	}
}

// pathInEtcd returns the key under which the real server stores the request's object in etcd. Some messages contain
// it.
func (r *request) pathInEtcd() string {
	place := r.kind.resource
	switch {
	case r.kind.isCustom() || r.kind.isDefinition():
		place = r.kind.group + "/" + place
	case place == "nodes":
		place = "minions"
	}
	return "/registry/" + place + "/" + r.key.String()
}

// writeLocked answers a PUT or a PATCH that replaces the stored object by o.
func (s *Server) writeLocked(r *request, stored, o Object) {
	if !r.checkVersion(stored, o) {
		return
	}
	// Put stores objects without defaults. Adding them now must not count as a change by the client.
	old := r.kind.completed(stored)
	o = s.admitLocked(r, old, o)
	if o == nil {
		return
	}
	MetaOf(o)["resourceVersion"] = MetaOf(stored)["resourceVersion"]
	s.setSystemMetadataLocked(r.kind, old, o)
	o = Clone(o)
	isNamespace := r.kind.qualified() == "namespaces"
	if canBeRemoved(o) && isTerminating(old) && !isNamespace {
		r.answer(200, r.render(o, false))
		if !r.options.isDryRun {
			s.eraseLocked(r.kind, r.key)
		}
		return
	}
	if reflect.DeepEqual(o, old) {
		r.answer(200, r.render(stored, false))
		return
	}
	r.answer(200, r.render(s.replaceLocked(r.kind, o, r.options.isDryRun), false))
	if r.options.isDryRun {
		return
	}
	if r.kind.isDefinition() {
		s.updateCRDStatusLocked(r.key)
	}
	if isNamespace {
		s.removeNamespaceIfEmptyLocked(r.key.Name)
	}
}

// completed returns an object with the defaults that it would have if a client had written it.
func (k kind) completed(o Object) Object {
	full, _, err := k.stored().toStored(Clone(o))
	if err != nil {
		return o // Put may have stored an invalid object
	}
	if k.isCustom() {
		return o // its schema may have changed
	}
	k.setDefaults(full)
	return full
}

// checkVersion reports whether the resourceVersion in a write allows it to replace old. If not, it answers with the
// error. A write without one replaces any version, if the kind allows that.
func (r *request) checkVersion(old, o Object) bool {
	version := TextIn(MetaOf(o), "resourceVersion")
	isUnset := version == "" || version == "0"
	if !isUnset {
		if _, err := strconv.ParseUint(version, 10, 64); err != nil {
			r.internalError(err.Error())
			return false
		}
	}
	if isUnset && r.kind.traits().requiresVersionOnUpdate {
		refusal := invalidValue("metadata.resourceVersion", 0, "must be specified for an update")
		r.refuseWith(r.kind.qualified(), r.key.Name, r.details(), []cause{refusal})
		return false
	}
	if !isUnset && version != TextIn(MetaOf(old), "resourceVersion") {
		r.conflict()
		return false
	}
	return true
}

// checkNameInPath reports whether an object has the name in the request's path. If not, it answers 400.
func (r *request) checkNameInPath(o Object) bool {
	name := TextIn(MetaOf(o), "name")
	if name == "" {
		r.badRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided",
			r.key.Name))
		return false
	}
	if name != r.key.Name {
		r.badRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)",
			name, r.key.Name))
		return false
	}
	return true
}

// checkNamespaceInPath reports whether an object has the namespace in the request's path. If it has another, it
// answers 400. An object without a namespace gets the path's, and a cluster-scoped object loses its own.
func (r *request) checkNamespaceInPath(o Object) bool {
	meta := MetaOf(o)
	namespace := TextIn(meta, "namespace")
	if !r.kind.isNamespaced {
		delete(meta, "namespace")
		return true
	}
	if namespace != "" && namespace != r.key.Namespace {
		r.badRequest("the namespace of the provided object does not match the namespace sent on the request")
		return false
	}
	meta["namespace"] = r.key.Namespace
	return true
}
