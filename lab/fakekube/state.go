package fakekube

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Change is an entry in the history of the fake: an object was created, replaced or removed.
type Change struct {
	// Version is the resourceVersion of the change.
	Version int

	// Group is the API group of the object's kind, "" for the core group.
	Group string

	// Resource is the plural name of the object's kind, such as "pods".
	Resource string

	// Old is nil if the object was created. New is nil if it was removed.
	Old, New Object

	// Lost means that no watch reports this change.
	Lost bool

	// Hidden means that a Lie hides this change. Watches that the Lie does not affect report it, and so do all watches
	// that begin before this change after the Lie was lifted.
	Hidden bool
}

// Key returns the key of the changed object.
func (c Change) Key() Key {
	if c.New == nil {
		return KeyOf(c.Old)
	}
	return KeyOf(c.New)
}

// Put stores a copy of an object, replacing the one of the same name if there is one. It returns the object as
// stored, with a resourceVersion, a uid and a creationTimestamp. Put checks neither permissions nor names nor policies.
// A CustomResourceDefinition is established at once, and its kind is served.
//
// Put panics if the resource is unknown, if the object has no metadata, or lacks the namespace that it needs or has one
// that it cannot have, and if a CustomResourceDefinition lacks what makes a kind of it.
func (s *Server) Put(resource string, o Object) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, _ := s.kindLocked(resource); k.isDefinition() {
		if problem := s.definitionProblemLocked(o); problem != "" {
			panic(fmt.Sprintf("the CustomResourceDefinition %q: %s", KeyOf(o).Name, problem))
		}
		o = s.establishedLocked(o)
	}
	return s.putLocked(resource, o)
}

// PutJSON is Put for an object in JSON. It panics if the text is not an object in JSON.
func (s *Server) PutJSON(resource, text string) {
	var o Object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(fmt.Sprintf("PutJSON of %s: this is no object in JSON: %v: %s", resource, err, text))
	}
	s.Put(resource, o)
}

// Edit changes an object, like a patch of another client. change gets a copy of it, and may change anything but its
// name and namespace; it is called with the fake locked and must not call it. What Put says of an object holds for the
// result, which Edit returns as stored. Edit panics if there is no such object.
func (s *Server) Edit(resource string, key Key, change func(Object)) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, _ := s.kindLocked(resource)
	old := s.objects[k.place()][key]
	if old == nil {
		panic(fmt.Sprintf("the fake has no %s %s to edit", resource, key))
	}
	o := Clone(old)
	change(o)
	if k.isDefinition() {
		o = s.establishedLocked(o)
	}
	return s.putLocked(resource, o)
}

func (s *Server) putLocked(resource string, o Object) Object {
	k, isServed := s.kindLocked(resource)
	if !isServed {
		panic("the fake has no " + resource + ": Serve its kind, or Put its CustomResourceDefinition, first")
	}
	if MetaOf(o) == nil {
		panic("an object of " + resource + " needs metadata, which is an Object")
	}
	switch key := KeyOf(o); {
	case k.isNamespaced && key.Namespace == "":
		panic(fmt.Sprintf("%s %q needs a namespace", resource, key.Name))
	case !k.isNamespaced && key.Namespace != "":
		panic(fmt.Sprintf("%s %q has the namespace %q, but %[1]s are in none", resource, key.Name, key.Namespace))
	}
	o = Clone(o)
	s.setSystemMetadataLocked(k, s.objects[k.place()][KeyOf(o)], o)
	return s.storeLocked(k, o)
}

// setSystemMetadataLocked sets the metadata that only the server decides: uid, creationTimestamp and, if the kind has
// one, generation. old is the object that is replaced, or nil if o is new.
func (s *Server) setSystemMetadataLocked(k kind, old, o Object) {
	meta := MetaOf(o)
	if k.traits().hasGeneration {
		meta["generation"] = generationOf(k, old, o)
	}
	if old == nil {
		meta["uid"] = fmt.Sprintf("%08x-0000-4000-8000-%012x", s.latestVersion+1, rand.Uint32())
		meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		return
	}
	meta["uid"] = MetaOf(old)["uid"]
	meta["creationTimestamp"] = MetaOf(old)["creationTimestamp"]
}

// storeLocked stores an object under a new version. It stores o itself, not a copy, so the caller must not modify it
// afterwards.
func (s *Server) storeLocked(k kind, o Object) Object {
	all := s.objects[k.place()]
	if all == nil {
		all = map[Key]Object{}
		s.objects[k.place()] = all
	}
	key := KeyOf(o)
	old := all[key]
	s.latestVersion++
	MetaOf(o)["resourceVersion"] = strconv.Itoa(s.latestVersion)
	all[key] = o
	s.recordLocked(Change{Version: s.latestVersion, Group: k.stored().group, Resource: k.resource, Old: old, New: o})
	return o
}

// replaceLocked stores a copy of an object under a new version and returns it. In a dry run, it only returns the
// copy.
func (s *Server) replaceLocked(k kind, o Object, isDryRun bool) Object {
	o = Clone(o)
	if isDryRun {
		return o
	}
	return s.storeLocked(k, o)
}

// eraseLocked removes an object and returns it with the version of its removal.
func (s *Server) eraseLocked(k kind, key Key) Object {
	all := s.objects[k.place()]
	old := all[key]
	s.latestVersion++
	delete(all, key)
	s.recordLocked(Change{Version: s.latestVersion, Group: k.stored().group, Resource: k.resource, Old: old})
	removed := Clone(old)
	MetaOf(removed)["resourceVersion"] = strconv.Itoa(s.latestVersion)
	s.removeNamespaceIfEmptyLocked(key.Namespace)
	return removed
}

// generationOf returns the generation of an object that replaces old. Each change of the spec increments it. For
// custom resources, so does any other change outside of the metadata and the status subresource.
func generationOf(k kind, old, o Object) float64 {
	generation, isCounted := MetaOf(old)["generation"].(float64)
	if !isCounted {
		return 1
	}
	if !k.isCustom() {
		if !reflect.DeepEqual(o["spec"], old["spec"]) {
			generation++
		}
		return generation
	}
	counted := func(o Object) Object {
		rest := maps.Clone(o)
		delete(rest, "metadata")
		if k.hasStatus {
			delete(rest, "status")
		}
		return Clone(rest)
	}
	if !reflect.DeepEqual(counted(o), counted(old)) {
		generation++
	}
	return generation
}

// recordLocked appends a change to the history and wakes those that wait for one.
func (s *Server) recordLocked(c Change) {
	if s.eventsToLose > 0 {
		s.eventsToLose--
		c.Lost = true
	}
	c.Hidden = s.informLiesLocked(c)
	s.history = append(s.history, c)
	if c.Group == "apiextensions.k8s.io" && c.Resource == "customresourcedefinitions" {
		s.updateServedKindsLocked(c)
	}
	if s.Spy != nil {
		s.Spy.Changed(c)
	}
	s.signalChangeLocked()
}

// signalChangeLocked wakes all watches so that they look for changes.
func (s *Server) signalChangeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
	s.signalActivityLocked()
}

// signalActivityLocked wakes those that wait for a change or a request.
func (s *Server) signalActivityLocked() {
	close(s.activity)
	s.activity = make(chan struct{})
}

// Remove deletes an object at once, whatever its finalizers, and returns its last state, or nil if there is no such
// object. A pod is marked as terminating first, in a change of its own. A CustomResourceDefinition takes all objects
// of its kind with it.
func (s *Server) Remove(resource string, key Key) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removeLocked(resource, key)
}

func (s *Server) removeLocked(resource string, key Key) Object {
	k, _ := s.kindLocked(resource)
	old := s.objects[k.place()][key]
	if old == nil {
		return nil
	}
	if k.qualified() == "pods" {
		terminating := Clone(old)
		markTerminating(terminating, 0)
		old = s.storeLocked(k, terminating)
	}
	if k.isDefinition() {
		s.removeCustomObjectsLocked(old)
	}
	s.eraseLocked(k, key)
	if k.isDefinition() {
		s.retryConflictedCRDsLocked()
	}
	return old
}

// Get returns an object as stored, or nil if there is none, also because the resource is unknown.
func (s *Server) Get(resource string, k Key) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objectsLocked(resource)[k]
}

// All returns the objects of a resource in no particular order. An unknown resource has none.
func (s *Server) All(resource string) []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.objectsLocked(resource)))
}

// Selected returns the objects that a list with these parameters would contain, in no particular order. An empty
// namespace means all namespaces, and an empty selector selects everything. Selected panics if the server would
// refuse a selector.
func (s *Server) Selected(resource, namespace, labelSelector, fieldSelector string) []Object {
	s.mu.Lock()
	k, _ := s.kindLocked(resource)
	s.mu.Unlock()
	selects, err := newSelector(k, namespace, labelSelector, fieldSelector)
	if err != nil {
		panic(err)
	}
	return slices.DeleteFunc(s.All(resource), func(o Object) bool { return !selects(o) })
}

// Compact drops the history, as etcd's compaction does. A watch that has not yet sent all dropped changes ends with a
// 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compactedVersion = s.latestVersion
	s.history = nil
}

// Snapshot saves all objects. The returned function restores them as if etcd were restored from a backup: the API
// servers restart, so watches break and the history is gone. Versions assigned since the snapshot are assigned a
// second time. A client that watches from such a version, which is in the future then, gets no event until the server
// has passed it.
//
// A real restore has an outage: the servers are down until etcd is back, and clients find out from refused connections.
// These lines do all of it, for each Network of the fake:
//
//	network.Kill()
//	restore() // after as much time as the outage takes
//	network.Restore()
func (s *Server) Snapshot() (restore func()) {
	turnBack := s.Checkpoint()
	return func() {
		turnBack()
		s.mu.Lock()
		s.clearLiesLocked()
		s.mu.Unlock()
		s.Compact()
		s.BreakWatches()
	}
}

// Checkpoint saves all objects, the served kinds, the latest version and the history. The returned function brings
// them back silently: watches stay open and are not told. History that was compacted in between stays compacted, and
// faults are not rolled back.
func (s *Server) Checkpoint() (turnBack func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.latestVersion
	history := slices.Clone(s.history)
	kinds := s.kinds
	objects := clonedObjects(s.objects)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.latestVersion = version
		s.history = slices.Clip(history) // appending must copy, because turnBack may be called again
		s.kinds = kinds
		s.objects = clonedObjects(objects)
		s.rewindLiesLocked(version)
	}
}

// clonedObjects copies the maps but shares the objects.
func clonedObjects(objects map[string]map[Key]Object) map[string]map[Key]Object {
	cloned := map[string]map[Key]Object{}
	for resource, all := range objects {
		cloned[resource] = maps.Clone(all)
	}
	return cloned
}

// Latest returns the version of the last change, or the version of a later SetVersion.
func (s *Server) Latest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latestVersion
}

// SetVersion sets the latest version to v, so the next change gets v+1. If v is lower than before, the fake drops the
// later changes from its history but keeps the objects with their versions, like an etcd that was restored
// incorrectly.
func (s *Server) SetVersion(v int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latestVersion = v
	s.history = slices.DeleteFunc(slices.Clone(s.history), func(c Change) bool { return c.Version > v })
	s.rewindLiesLocked(v)
}

// Changes returns the history since the last compaction, oldest change first.
func (s *Server) Changes() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// NextChange returns a channel that is closed with the next change. To wait for a condition without missing a change,
// get the channel before checking the condition.
func (s *Server) NextChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}
