package fakekube

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Change is one entry of the fake's history: an object was made, replaced or removed.
type Change struct {
	// Version is the resourceVersion that the change has been given.
	Version int

	// Group is the API group of the object's kind, "" for the core group.
	Group string

	// Resource is the plural name of the object's kind, such as "pods".
	Resource string

	// Old is nil where an object was made, New where one was removed.
	Old, New Object

	// Lost says that no watch will tell of this change.
	Lost bool
}

// Key names the object that was changed.
func (c Change) Key() Key {
	if c.New == nil {
		return KeyOf(c.Old)
	}
	return KeyOf(c.New)
}

// Put stores an object, as new or in place of the one of its name, and returns it as stored: with a version, a uid and
// a creationTimestamp. It keeps a copy. Nothing is checked: neither rights, names nor policies. It panics where the
// fake has no such resource now, or the object has no metadata. A CustomResourceDefinition is established at once, and
// its kind served.
func (s *Server) Put(resource string, o Object) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, _ := s.kindLocked(resource); k.isDefinition() {
		o = s.establishedLocked(o)
	}
	return s.putLocked(resource, o)
}

// PutJSON is Put of an object in JSON. It panics where the text is none.
func (s *Server) PutJSON(resource, text string) {
	s.Put(resource, parsed(text).(Object))
}

func (s *Server) putLocked(resource string, o Object) Object {
	k, isServed := s.kindLocked(resource)
	if !isServed {
		panic("the fake has no " + resource + ": a CustomResourceDefinition comes first")
	}
	if MetaOf(o) == nil {
		panic("an object of " + resource + " needs metadata")
	}
	o = Clone(o)
	s.setSystemMetadataLocked(k, s.objects[k.qualified()][KeyOf(o)], o)
	return s.storeLocked(k, o)
}

// setSystemMetadataLocked gives an object what the server alone decides: its uid, its creationTimestamp and, where the kind has
// one, its generation. old is what it takes the place of, nil where it is new.
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

// storeLocked stores an object under a new version. It keeps the object itself, which must not be changed any more.
func (s *Server) storeLocked(k kind, o Object) Object {
	all := s.objects[k.qualified()]
	if all == nil {
		all = map[Key]Object{}
		s.objects[k.qualified()] = all
	}
	key := KeyOf(o)
	old := all[key]
	s.latestVersion++
	MetaOf(o)["resourceVersion"] = strconv.Itoa(s.latestVersion)
	all[key] = o
	s.recordLocked(Change{Version: s.latestVersion, Group: k.group, Resource: k.resource, Old: old, New: o})
	return o
}

// replaceLocked stores an object in place of the one of its name, under a new version. A dry run stores nothing.
func (s *Server) replaceLocked(k kind, o Object, isDryRun bool) Object {
	o = Clone(o)
	if isDryRun {
		return o
	}
	return s.storeLocked(k, o)
}

// eraseLocked removes an object, and returns it under the version at which it went.
func (s *Server) eraseLocked(k kind, key Key) Object {
	all := s.objects[k.qualified()]
	old := all[key]
	s.latestVersion++
	delete(all, key)
	s.recordLocked(Change{Version: s.latestVersion, Group: k.group, Resource: k.resource, Old: old})
	gone := Clone(old)
	MetaOf(gone)["resourceVersion"] = strconv.Itoa(s.latestVersion)
	s.removeNamespaceIfEmptyLocked(key.Namespace)
	return gone
}

// generationOf is the generation of an object that takes the place of old. It goes up with each change of the spec; of
// a custom resource, with each change of anything but the metadata and, where that is a subresource, the status.
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

// recordLocked adds a change to the history, and tells whoever waits for one.
func (s *Server) recordLocked(c Change) {
	if s.eventsToLose > 0 {
		s.eventsToLose--
		c.Lost = true
	}
	s.history = append(s.history, c)
	s.informLiesLocked(c)
	if c.Group == "apiextensions.k8s.io" && c.Resource == "customresourcedefinitions" {
		s.updateServedKindsLocked(c)
	}
	if s.Spy != nil {
		s.Spy.Changed(c)
	}
	s.signalChangeLocked()
}

// signalChangeLocked says that watches may have news.
func (s *Server) signalChangeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
	s.signalActivityLocked()
}

// signalActivityLocked says that there is a change or a request.
func (s *Server) signalActivityLocked() {
	close(s.activity)
	s.activity = make(chan struct{})
}

// Remove deletes an object at once, whatever its finalizers, and returns what it was: a pod's deletion shows first as
// a change of it, and a CustomResourceDefinition takes all objects of its kind with it. It returns nil where there is
// none.
func (s *Server) Remove(resource string, key Key) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removeLocked(resource, key)
}

func (s *Server) removeLocked(resource string, key Key) Object {
	k, _ := s.kindLocked(resource)
	old := s.objects[k.qualified()][key]
	if old == nil {
		return nil
	}
	if k.qualified() == "pods" {
		dying := Clone(old)
		markTerminating(dying, 0)
		old = s.storeLocked(k, dying)
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

// Get returns an object as it is stored, nil where there is none.
func (s *Server) Get(resource string, k Key) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objectsLocked(resource)[k]
}

// All returns the objects of a resource, in no order.
func (s *Server) All(resource string) []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.objectsLocked(resource)))
}

// Selected returns the objects that a list with these parameters would have, in no order. An empty namespace is all of
// them, an empty selector everything. It panics where the server would refuse a selector.
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

// Compact forgets the history, as etcd does. A watch from an older version, or one that has not told all, gets a 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compactedVersion = s.latestVersion
	s.history = nil
}

// Snapshot keeps all objects as they are; the function that it returns is etcd restored from that. The servers start
// again with it: the watches break, the history is gone, and versions from then on are given a second time.
func (s *Server) Snapshot() (restore func()) {
	turnBack := s.Checkpoint()
	return func() {
		turnBack()
		s.mu.Lock()
		s.clearLiesLocked()
		s.mu.Unlock()
		s.Compact()
		s.EndWatches(true)
	}
}

// Checkpoint keeps all objects, the kinds, the version and the history as they are; the function that it
// returns brings them back. Of that, it tells nobody: the watches go on. What Compact has forgotten in between stays
// forgotten, and faults are as they are now.
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
		s.history = slices.Clip(history) // what comes after a second return must not overwrite what came after the first
		s.kinds = kinds
		s.objects = clonedObjects(objects)
		s.rewindLiesLocked(version)
	}
}

// clonedObjects copies the maps, but not the objects.
func clonedObjects(objects map[string]map[Key]Object) map[string]map[Key]Object {
	cloned := map[string]map[Key]Object{}
	for resource, all := range objects {
		cloned[resource] = maps.Clone(all)
	}
	return cloned
}

// Latest is the newest version: that of the last change, unless SetVersion was called after it.
func (s *Server) Latest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latestVersion
}

// SetVersion makes v the newest version, so that the next change is v+1. Where that is back in time, the fake forgets
// the changes after it, but keeps its objects as they are, with their versions: etcd that was restored wrongly.
func (s *Server) SetVersion(v int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latestVersion = v
	s.history = slices.DeleteFunc(slices.Clone(s.history), func(c Change) bool { return c.Version > v })
	s.rewindLiesLocked(v)
}

// Changes returns the history, oldest first, from the last compaction on.
func (s *Server) Changes() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// NextChange is closed with the next change. Take it before looking whether something is so, and wait for it after.
func (s *Server) NextChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}
