package main

// cache.go holds the Store, which keeps the objects of one kind in memory; the Listing, by which a list changes the
// Store; and the indexes. Nothing in this file sends a request, or looks into a pod.

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"podcount/internal/api/object"
	"podcount/internal/api/objectmeta"
)

// These names are short for the kinds of objects, and for the key of an object.
type (
	Key   = object.Key
	Pod   = object.Pod
	Node  = object.Node
	Count = object.Count
)

// Delta is one change of a store. Old is nil if the object was added, and New is nil if it was removed. If Old and New
// are the same object, nothing has changed, and the object is replayed: this is how a controller gets the objects that
// already exist. It gets them again after a change of their CustomResourceDefinition (CRD): see onInstalled; and after
// a panic of a controller's onChange or Resync.
//
// T is *Pod, *Node, *Count or the like. What all of them can do is in object.Object: ObjectMeta returns their metadata,
// and HasSameFields compares the other fields that podcount reads with those of another T.
type Delta[T object.Object[T]] struct{ Old, New T }

// Key returns the key of the object that has changed.
func (d Delta[T]) Key() Key {
	if isNil(d.New) {
		return d.Old.ObjectMeta().Key()
	}
	return d.New.ObjectMeta().Key()
}

// isReplay reports whether an object is only replayed, and nothing has changed.
func (d Delta[T]) isReplay() bool { return d.Old == d.New }

// isNil reports whether obj is nil. Go does not let generic code compare it with nil.
func isNil[T object.Object[T]](obj T) bool {
	var none T
	return obj == none
}

// Lister is what everyone may use of a Store: it reads the objects. It is safe for concurrent use.
type Lister[T object.Object[T]] struct {
	mu    sync.RWMutex // guards items, the Mark of each object, and the lower fields of Store
	items map[string]T // by namespace/name: see Metadata.NamespacedName
}

// Get returns an object, or nil if the store does not have it.
func (l *Lister[T]) Get(key Key) T {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.items[key.String()]
}

// Len returns the number of objects.
func (l *Lister[T]) Len() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.items)
}

// All returns every object, in no particular order.
func (l *Lister[T]) All() []T {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := make([]T, 0, len(l.items))
	return slices.AppendSeq(all, maps.Values(l.items))
}

// Store holds the objects of one kind. Only the kind's Reflector adds, replaces and removes objects: by events of
// watches (apply), lists (Listing) and answers to patches (applyAnswer).
type Store[T object.Object[T]] struct {
	Lister[T]
	reportsEveryVersion bool // see Reflector.NeedEveryVersion

	// Lister.mu guards these.
	indexes  []index[T]
	listings uint32 // how many Listings there were; the number of the newest one
	hasList  bool   // a Listing was committed
}

// NewStore returns an empty store.
func NewStore[T object.Object[T]]() *Store[T] {
	return &Store[T]{Lister: Lister[T]{items: map[string]T{}}}
}

// apply applies a watch event (ADDED, MODIFIED or DELETED), and returns the changes. It changes nothing if the store
// already has a newer version of the object, as after applyAnswer, which may be ahead of the watch.
func (s *Store[T]) apply(eventType string, obj T) []Delta[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOlderLocked(obj) {
		return nil
	}
	if eventType == "DELETED" {
		return s.deleteLocked(obj.ObjectMeta().NamespacedName())
	}
	return s.setLocked(obj)
}

// isOlderLocked reports whether obj is older than the object of its name in the store. If their versions cannot be
// compared, because they are not numbers, it reports false, so that no event is lost.
func (s *Store[T]) isOlderLocked(obj T) bool {
	held, isHeld := s.items[obj.ObjectMeta().NamespacedName()]
	if !isHeld {
		return false
	}
	version := obj.ObjectMeta().ResourceVersion()
	heldVersion := held.ObjectMeta().ResourceVersion()
	areComparable := object.IsDecimal(version) && object.IsDecimal(heldVersion)
	return areComparable && object.IsNewer(heldVersion, version)
}

// setLocked stores obj, and returns the changes. It stores obj even if no change is reported.
func (s *Store[T]) setLocked(obj T) []Delta[T] {
	key := obj.ObjectMeta().NamespacedName()
	old, isHeld := s.items[key]
	if isHeld {
		s.removeFromIndexesLocked(old)
	}
	s.items[key] = obj
	for _, ix := range s.indexes {
		ix.add(obj)
	}
	if !isHeld {
		return []Delta[T]{{New: obj}}
	}
	if old.ObjectMeta().UID() != obj.ObjectMeta().UID() {
		return []Delta[T]{{Old: old}, {New: obj}} // The object was recreated under the same name.
	}
	if !s.hasChanged(old, obj) {
		return nil
	}
	return []Delta[T]{{Old: old, New: obj}}
}

// hasChanged reports whether two versions of an object differ in a way that is reported as a change.
func (s *Store[T]) hasChanged(old, now T) bool {
	if s.reportsEveryVersion && old.ObjectMeta().ResourceVersion() != now.ObjectMeta().ResourceVersion() {
		return true
	}
	return !old.HasSameFields(now) || !old.ObjectMeta().HasSameLabels(&now.ObjectMeta().Metadata)
}

// deleteLocked removes the object with this key, if there is one, and returns the changes.
func (s *Store[T]) deleteLocked(key string) []Delta[T] {
	old, isHeld := s.items[key]
	if !isHeld {
		return nil
	}
	s.removeFromIndexesLocked(old)
	delete(s.items, key)
	return []Delta[T]{{Old: old}}
}

func (s *Store[T]) removeFromIndexesLocked(obj T) {
	for _, ix := range s.indexes {
		ix.remove(obj)
	}
}

// Listing collects the objects of one list, in three steps:
//
//  1. Add compares each object of the list with the store. If the store has an equal one, Add marks that one with the
//     number of the Listing. Otherwise the new object gets the mark, and waits in the Listing.
//  2. Commit moves the objects that wait to the store.
//  3. Commit removes the objects without the mark, because they were not in the list.
//
// Until Commit, nobody sees a difference: only marks change. If a list fails, drop its Listing.
type Listing[T object.Object[T]] struct {
	store      *Store[T]
	number     uint32
	count      int          // the number of objects so far
	onProgress func(int)    // called with count after each object; may be nil
	waiting    map[string]T // by namespace/name, as in the store
}

// newListing returns the Listing of a list that begins. Commit or CommitExact ends it. Earlier Listings of the store
// must not be used after this.
func (s *Store[T]) newListing() *Listing[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listings++
	return &Listing[T]{store: s, number: s.listings, waiting: map[string]T{}}
}

// listLimit is the largest number of objects that a list may have. It protects the memory from a list that never ends,
// and is more than ten times the number of pods that Kubernetes supports in a cluster.
const listLimit = 2_000_000

// Add adds the next object of a list. It fails if the list has too many objects.
//
//   - obj comes without its metadata. Most objects of a list are in the store already, and then nobody needs memory for
//     the metadata of obj.
//   - metadata is a draft of them, in memory that the caller reuses after Add.
//   - kept reports whether Add has copied the draft into obj, and keeps obj. If not, the caller may reuse obj.
func (l *Listing[T]) Add(obj T, metadata objectmeta.Draft) (kept bool, err error) {
	if l.count >= listLimit {
		return false, fmt.Errorf("the list has more than %d objects: "+
			"if they are pods, restrict it with -namespace or -pod-selector", listLimit)
	}
	l.count++
	if l.onProgress != nil {
		l.onProgress(l.count)
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	held, isHeld := l.store.items[string(metadata.NamespacedName())]
	if isHeld && metadata.Equals(&held.ObjectMeta().Metadata) && held.HasSameFields(obj) {
		held.ObjectMeta().Mark = l.number
		return false, nil
	}
	m := obj.ObjectMeta()
	m.Metadata = metadata.Keep()
	m.Mark = l.number
	l.waiting[m.NamespacedName()] = obj
	return true, nil
}

// Len returns the number of objects so far.
func (l *Listing[T]) Len() int { return l.count }

// Rewind sets the number of objects back to n, because a page of the list is read once more. The page brings the same
// objects again, so marks and waiting objects stay right.
func (l *Listing[T]) Rewind(n int) { l.count = n }

// Commit makes the store equal to the list, and returns the changes. The list wins even over a newer version in the
// store. That version may be from before etcd was restored from a backup. Or it is from the answer to a patch that was
// sent while the list was read, and then the watch brings it again.
//
// For the first list, Commit returns no changes, because no controller has begun. Controllers get these objects when
// they begin: see Watch in main.go.
func (l *Listing[T]) Commit() (changes []Delta[T], isFirst bool) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	isFirst = !s.hasList
	s.hasList = true
	if isFirst { // The store is empty, so all objects wait.
		s.items = l.waiting
		s.addAllToIndexesLocked()
		return nil, true
	}
	for _, obj := range l.waiting {
		changes = append(changes, s.setLocked(obj)...)
	}
	for key, obj := range s.items { // The loop may delete from the map that it ranges over.
		wasInList := obj.ObjectMeta().Mark == l.number
		if !wasInList {
			changes = append(changes, s.deleteLocked(key)...)
		}
	}
	return changes, false
}

func (s *Store[T]) addAllToIndexesLocked() {
	for _, obj := range s.items {
		for _, ix := range s.indexes {
			ix.add(obj)
		}
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// What else changes a Store: answers to patches, and audits

// applyAnswer stores the object in the server's answer to a patch, and returns the changes. The watch may have
// delivered later changes before the answer arrived, so applyAnswer neither brings back an object that the watch has
// removed nor replaces a newer version.
func (s *Store[T]) applyAnswer(obj T) []Delta[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, isHeld := s.items[obj.ObjectMeta().NamespacedName()]
	if !isHeld || held.ObjectMeta().UID() != obj.ObjectMeta().UID() || s.isOlderLocked(obj) {
		return nil
	}
	// A list that is being read may have marked the old object: see Listing. Without the mark, Commit would remove the
	// new one. If the old one is not marked, the list still brings the object.
	obj.ObjectMeta().Mark = held.ObjectMeta().Mark
	return s.setLocked(obj)
}

// knows reports whether the store has all that a watch event says, or something newer:
//
//	event             if the store has the object            if it does not
//	ADDED, MODIFIED   true for this version or a newer one   false
//	DELETED           true for a newer version               true
//
// So a DELETED of the version in the store is news: the object is gone.
func (s *Store[T]) knows(eventType string, obj T) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	held, isHeld := s.items[obj.ObjectMeta().NamespacedName()]
	switch {
	case !isHeld:
		return eventType == "DELETED"
	case eventType == "DELETED":
		return s.isOlderLocked(obj)
	default:
		return held.ObjectMeta().IsSameVersion(obj.ObjectMeta()) || s.isOlderLocked(obj)
	}
}

// newestHeld returns the newest version of an object in the store. It is "" if none has a version that is a number.
func (s *Store[T]) newestHeld() (newest string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, obj := range s.items {
		version := obj.ObjectMeta().ResourceVersion()
		if object.IsDecimal(version) && object.IsNewer(version, newest) {
			newest = version
		}
	}
	return newest
}

// CommitExact makes the store equal to a list of the objects as they were at exactly this version, for an audit. It
// returns the objects that differed, and the changes. Not every difference is a change: if an update was missed that
// touched no field which the store keeps, only the resourceVersion differs.
//
// The store may hold objects that are newer than the list, from answers to patches. They stay, and are no differences.
func (l *Listing[T]) CommitExact(version string) (differences, changes []Delta[T]) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	isNewerThanList := func(obj T) bool { return object.IsNewer(obj.ObjectMeta().ResourceVersion(), version) }
	for key, obj := range l.waiting {
		held, isHeld := s.items[key]
		if isHeld && isNewerThanList(held) {
			continue // It stays without the mark. The loop below leaves it alone, too.
		}
		// Compare again, and exactly: Add is fast, but may take equal objects for different ones. Besides, the answer
		// to a patch may have brought this version since.
		isSame := isHeld && held.ObjectMeta().IsSameVersion(obj.ObjectMeta()) && !s.hasChanged(held, obj)
		if !isSame {
			differences = append(differences, Delta[T]{Old: held, New: obj})
		}
		// Store it even if it is the same. The held one may lack the mark of this list, and would be removed below.
		changes = append(changes, s.setLocked(obj)...)
	}
	for key, obj := range s.items {
		wasInList := obj.ObjectMeta().Mark == l.number
		if !wasInList && !isNewerThanList(obj) {
			differences = append(differences, Delta[T]{Old: obj})
			changes = append(changes, s.deleteLocked(key)...)
		}
	}
	return differences, changes
}

// ---------------------------------------------------------------------------------------------------------------------
// Indexes

// index is what a store needs to keep an index up to date. The store calls the methods while it holds its lock.
type index[T any] interface {
	add(obj T)
	remove(obj T)
}

// addIndex adds all objects to an index, and keeps it up to date from now on.
func (s *Store[T]) addIndex(ix index[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range s.items {
		ix.add(obj)
	}
	s.indexes = append(s.indexes, ix)
}

// NumberIndex counts the objects of a store by a key that its user chooses, such as the name of a pod's node, or the
// namespace and the app of a pod. It is safe for concurrent use.
type NumberIndex[T object.Object[T]] struct {
	keyOf   func(T) Key
	mu      *sync.RWMutex             // the store's lock, held by the store when it calls add and remove; guards numbers
	numbers map[string]map[string]int // by namespace and then by name, so that a namespace takes memory only once
}

// NumberBy adds a NumberIndex to a store. It leaves out objects whose key has no name. keyOf must always return the
// same key for the same object.
func NumberBy[T object.Object[T]](s *Store[T], keyOf func(T) Key) *NumberIndex[T] {
	ix := &NumberIndex[T]{keyOf: keyOf, mu: &s.mu, numbers: map[string]map[string]int{}}
	s.addIndex(ix)
	return ix
}

// Number returns the number of objects with a key, in O(1).
func (ix *NumberIndex[T]) Number(key Key) int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.numbers[key.Namespace][key.Name]
}

// All yields the names of the keys in a namespace with their numbers of objects, in any order, as they are when the
// loop begins.
func (ix *NumberIndex[T]) All(namespace string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		ix.mu.RLock()
		copied := maps.Clone(ix.numbers[namespace])
		ix.mu.RUnlock()
		for name, number := range copied {
			if !yield(name, number) {
				return
			}
		}
	}
}

func (ix *NumberIndex[T]) add(obj T) { ix.change(obj, +1) }

func (ix *NumberIndex[T]) remove(obj T) { ix.change(obj, -1) }

func (ix *NumberIndex[T]) change(obj T, by int) {
	key := ix.keyOf(obj)
	if key.Name == "" {
		return
	}
	names := ix.numbers[key.Namespace]
	if names == nil {
		names = map[string]int{}
		ix.numbers[key.Namespace] = names
	}
	names[key.Name] += by
	if names[key.Name] == 0 {
		delete(names, key.Name)
	}
	if len(names) == 0 {
		delete(ix.numbers, key.Namespace)
	}
}

// ObjectIndex finds the objects of a store by a key that its user chooses. Unlike a NumberIndex, it takes memory for
// each object. It is safe for concurrent use.
type ObjectIndex[T object.Object[T]] struct {
	keyOf   func(T) Key
	mu      *sync.RWMutex // the store's lock, as in NumberIndex; guards objects
	objects map[Key]map[Key]T
}

// IndexBy adds an ObjectIndex to a store. It leaves out objects whose key has no name. keyOf must always return the
// same key for the same object.
func IndexBy[T object.Object[T]](s *Store[T], keyOf func(T) Key) *ObjectIndex[T] {
	ix := &ObjectIndex[T]{keyOf: keyOf, mu: &s.mu, objects: map[Key]map[Key]T{}}
	s.addIndex(ix)
	return ix
}

// Objects returns the objects with a key, in no particular order.
func (ix *ObjectIndex[T]) Objects(key Key) []T {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return slices.Collect(maps.Values(ix.objects[key]))
}

func (ix *ObjectIndex[T]) add(obj T) {
	key := ix.keyOf(obj)
	if key.Name == "" {
		return
	}
	if ix.objects[key] == nil {
		ix.objects[key] = map[Key]T{}
	}
	ix.objects[key][obj.ObjectMeta().Key()] = obj
}

func (ix *ObjectIndex[T]) remove(obj T) {
	key := ix.keyOf(obj) // If it has no name, it has no objects either, and nothing is removed.
	delete(ix.objects[key], obj.ObjectMeta().Key())
	if len(ix.objects[key]) == 0 {
		delete(ix.objects, key)
	}
}
