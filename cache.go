package main

// cache.go holds the Store, which keeps the objects of one kind in memory, with its indexes. After the Store come the
// kinds, with the few fields that are kept of each object, and the decoder, which reads objects from lists and watches.
//
// Nothing in this file sends a request.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"podcount/internal/api/objectmeta"
	"podcount/internal/api/wire"
)

// Key names an object within its kind. Namespace is empty for cluster-scoped kinds.
type Key struct{ Namespace, Name string }

// String returns namespace/name, or only the name of a cluster-scoped object.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// MarshalText makes JSON show a key as String does.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Object is a pointer to a struct that embeds Meta. Objects in a store never change, except Meta.lastList, so they can
// be read without a lock.
type Object[T any] interface {
	meta() *Meta

	// hasSameFields compares all fields except those of Meta.
	hasSameFields(T) bool

	// readFrom sets all fields except those of Meta. It must not keep the memory of the rawObject.
	readFrom(*rawObject)
}

// Delta is one change of a store. Old is nil if the object was added, and New is nil if it was removed. If Old and New
// are the same object, nothing has changed: this is how a controller receives the objects that already exist.
type Delta[T Object[T]] struct{ Old, New T }

// Key returns the key of the object that has changed.
func (d Delta[T]) Key() Key {
	if isNil(d.New) {
		return d.Old.meta().Key()
	}
	return d.New.meta().Key()
}

// isUnchanged reports whether Old and New are the same object.
func (d Delta[T]) isUnchanged() bool { return any(d.Old) == any(d.New) }

// isNil reports whether a generic function got no object.
//
// It exists because Object does not include comparable, which the operator == would need. With comparable, the compiler
// would not share the code of stores and reflectors between the kinds, and the binary would be 3 % larger.
func isNil[T Object[T]](obj T) bool {
	var none T
	return any(obj) == any(none)
}

// Store holds the objects of one kind. Any goroutine may read it. Only the kind's reflector changes it: with Apply and
// Listings while it runs, and with ApplyAnswer after each patch.
type Store[T Object[T]] struct {
	reportsEveryVersion bool // see Reflector.NeedEveryVersion

	mu         sync.RWMutex // guards all fields below
	items      map[string]T // by namespace/name: see Metadata.NamespacedName
	indexes    []index[T]
	newestList uint32 // the number of the newest Listing
	hasList    bool   // a Listing was committed
}

// NewStore returns an empty store.
func NewStore[T Object[T]]() *Store[T] {
	return &Store[T]{items: map[string]T{}}
}

// Get returns an object, or nil if the store does not have it.
func (s *Store[T]) Get(key Key) T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.items[key.String()]
}

// Len returns the number of objects.
func (s *Store[T]) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.items)
}

// All returns every object, in no particular order.
func (s *Store[T]) All() []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]T, 0, len(s.items))
	return slices.AppendSeq(all, maps.Values(s.items))
}

// Apply applies a watch event (ADDED, MODIFIED or DELETED), and returns the changes. It changes nothing if the store
// already has a newer version of the object, as after ApplyAnswer, which may be ahead of the watch.
func (s *Store[T]) Apply(eventType string, obj T) []Delta[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasNewerLocked(obj) {
		return nil
	}
	if eventType == "DELETED" {
		return s.deleteLocked(obj.meta().NamespacedName())
	}
	return s.setLocked(obj)
}

// isKnown reports whether a watch event only repeats what the store has, or what came before that.
func (s *Store[T]) isKnown(eventType string, obj T) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	held, isHeld := s.items[obj.meta().NamespacedName()]
	if !isHeld {
		return eventType == "DELETED"
	}
	isSame := eventType != "DELETED" && held.meta().isSameVersion(obj.meta())
	return isSame || s.hasNewerLocked(obj)
}

// newestHeld returns the newest version of an object in the store. It is "" if none has a version that is a number.
func (s *Store[T]) newestHeld() (newest string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, obj := range s.items {
		version := obj.meta().ResourceVersion()
		if isDecimal(version) && isNewerVersion(version, newest) {
			newest = version
		}
	}
	return newest
}

// ApplyAnswer stores the object in the server's answer to a patch, and returns the changes. The watch may have
// delivered later changes before the answer arrived, so ApplyAnswer neither brings back an object that the watch has
// removed nor replaces a newer version.
func (s *Store[T]) ApplyAnswer(obj T) []Delta[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, isKnown := s.items[obj.meta().NamespacedName()]
	if !isKnown || old.meta().UID() != obj.meta().UID() || s.hasNewerLocked(obj) {
		return nil
	}
	// A list in progress may have marked the old object. Without the mark, Commit would remove the new one.
	obj.meta().lastList = old.meta().lastList
	return s.setLocked(obj)
}

// hasNewerLocked reports whether the store has a newer version of an object, or a newer object of the same name.
func (s *Store[T]) hasNewerLocked(obj T) bool {
	known, isKnown := s.items[obj.meta().NamespacedName()]
	if !isKnown {
		return false
	}
	version := obj.meta().ResourceVersion()
	knownVersion := known.meta().ResourceVersion()
	// It does not ask whether knownVersion is newer: an event must not be lost if its version is not a number.
	return version != knownVersion && !isNewerVersion(version, knownVersion)
}

// isNewerVersion reports whether resourceVersion a is newer than b. Versions are decimal numbers of any length. If one
// of them is not a number, a is newer than b unless they are equal, so no event is lost.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5504-comparable-resource-version
func isNewerVersion(a, b string) bool {
	if !isDecimal(a) || !isDecimal(b) {
		return a != b
	}
	a = strings.TrimLeft(a, "0")
	b = strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}

func isDecimal(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// setLocked stores obj, and returns the changes. It stores obj even if no change is reported.
func (s *Store[T]) setLocked(obj T) []Delta[T] {
	key := obj.meta().NamespacedName()
	old, wasStored := s.items[key]
	if wasStored {
		s.removeFromIndexesLocked(old)
	}
	s.items[key] = obj
	for _, ix := range s.indexes {
		ix.add(obj)
	}
	if !wasStored {
		return []Delta[T]{{New: obj}}
	}
	if old.meta().UID() != obj.meta().UID() {
		return []Delta[T]{{Old: old}, {New: obj}} // The object was recreated under the same name.
	}
	if !s.hasChanged(old, obj) {
		return nil
	}
	return []Delta[T]{{Old: old, New: obj}}
}

// hasChanged reports whether two versions of an object differ in a way that is reported as a change.
func (s *Store[T]) hasChanged(old, now T) bool {
	if s.reportsEveryVersion && old.meta().ResourceVersion() != now.meta().ResourceVersion() {
		return true
	}
	return !old.hasSameFields(now) || !old.meta().HasSameLabels(&now.meta().Metadata)
}

// deleteLocked removes the object with this key, if there is one, and returns the changes.
func (s *Store[T]) deleteLocked(key string) []Delta[T] {
	old, isKnown := s.items[key]
	if !isKnown {
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

// Listing collects the objects of one list. The store keeps its content until Commit or CommitExact. If a list fails,
// drop its Listing.
type Listing[T Object[T]] struct {
	store  *Store[T]
	number uint32
	count  int // the number of objects so far

	// changed has the objects that are new or have changed. For an unchanged object, Add marks the one in the store: it
	// sets Meta.lastList to number.
	changed map[string]T
}

// BeginList begins a list of all objects, which Commit or CommitExact ends. Earlier Listings of the store must not be
// used after this.
func (s *Store[T]) BeginList() *Listing[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newestList++
	return &Listing[T]{store: s, number: s.newestList, changed: map[string]T{}}
}

// listLimit is the largest number of objects that a list may have. It protects the memory from a list that never ends,
// and is more than ten times the number of pods that Kubernetes supports in a cluster.
const listLimit = 2_000_000

// Add adds the next object of a list. obj has no metadata yet. If kept is true, the Listing owns obj, and has set its
// metadata. If kept is false, the caller may reuse obj. Add fails if the list has too many objects.
func (l *Listing[T]) Add(obj T, metadata objectmeta.Draft) (kept bool, err error) {
	if l.count >= listLimit {
		return false, fmt.Errorf("the list has more than %d objects: "+
			"if they are pods, restrict it with -namespace or -pod-selector", listLimit)
	}
	l.count++
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	known, isKnown := l.store.items[string(metadata.NamespacedName())]
	if isKnown && metadata.Equals(&known.meta().Metadata) && known.hasSameFields(obj) {
		known.meta().lastList = l.number
		return false, nil
	}
	m := obj.meta()
	m.Metadata = metadata.Keep()
	m.lastList = l.number
	l.changed[m.NamespacedName()] = obj
	return true, nil
}

// Commit makes the store equal to the list, and returns the changes. Objects may get older versions than before,
// because etcd was restored from a backup, or because a patch was answered while the list was read. In the second case,
// the watch brings the newer version again.
//
// For the first list Commit returns nil, because a Delta for every object would double the peak memory.
func (l *Listing[T]) Commit() (changes []Delta[T]) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	// The reflector never calls Apply before the first list. If another caller did, the objects that are not in the
	// list would need a Delta.
	isFirst := !s.hasList && len(s.items) == 0
	s.hasList = true
	if isFirst {
		s.items = l.changed
		s.addAllToIndexesLocked()
		return nil
	}
	for _, obj := range l.changed {
		changes = append(changes, s.setLocked(obj)...)
	}
	// Every object of the list carries its number: Add has marked the unchanged ones, too. The others are gone.
	for key, obj := range s.items {
		wasInList := obj.meta().lastList == l.number
		if !wasInList {
			changes = append(changes, s.deleteLocked(key)...)
		}
	}
	return changes
}

// CommitExact makes the store equal to a list of the objects as they were at exactly this version. It returns the
// objects that differed, and the changes. A missed update is a difference even if it changed no field that the store
// keeps. Then there is no change.
//
// The store may hold objects that are newer than the list, from answers to patches. They stay, and are no differences.
func (l *Listing[T]) CommitExact(version string) (differences, changes []Delta[T]) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	isNewerThanList := func(obj T) bool { return isNewerVersion(obj.meta().ResourceVersion(), version) }
	for key, obj := range l.changed {
		held, isHeld := s.items[key]
		if isHeld && isNewerThanList(held) {
			continue
		}
		// The answer to a patch may have brought this version after Add had compared it with an older one. Then nothing
		// differs any more.
		if !isHeld || !held.meta().isSameVersion(obj.meta()) || s.hasChanged(held, obj) {
			differences = append(differences, Delta[T]{Old: held, New: obj})
		}
		changes = append(changes, s.setLocked(obj)...)
	}
	for key, obj := range s.items {
		wasInList := obj.meta().lastList == l.number
		if !wasInList && !isNewerThanList(obj) {
			differences = append(differences, Delta[T]{Old: obj})
			changes = append(changes, s.deleteLocked(key)...)
		}
	}
	return differences, changes
}

func (s *Store[T]) addAllToIndexesLocked() {
	for _, obj := range s.items {
		for _, ix := range s.indexes {
			ix.add(obj)
		}
	}
}

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

// CountIndex counts the objects of a store by a key that its user chooses, such as the name of a pod's node. It is safe
// for concurrent use.
type CountIndex[T Object[T], K comparable] struct {
	keyOf  func(T) K
	mu     *sync.RWMutex // the store's; guards counts
	counts map[K]int
}

// CountBy adds a CountIndex to a store. It leaves out objects whose key is the zero value of K. keyOf must always
// return the same key for the same object.
func CountBy[T Object[T], K comparable](s *Store[T], keyOf func(T) K) *CountIndex[T, K] {
	ix := &CountIndex[T, K]{keyOf: keyOf, mu: &s.mu, counts: map[K]int{}}
	s.addIndex(ix)
	return ix
}

// Count returns the number of objects with a key, in O(1).
func (ix *CountIndex[T, K]) Count(key K) int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.counts[key]
}

// keysPerLock is how many keys CountIndex.All visits before it lets others change the store.
const keysPerLock = 256

// All yields the keys with their numbers of objects, in any order. It holds the store's lock for keysPerLock of them at
// a time, so a number may be of a moment that is past by the end, and a key that goes and returns may come twice. The
// loop must not use the store.
func (ix *CountIndex[T, K]) All() iter.Seq2[K, int] {
	return func(yield func(K, int) bool) {
		ix.mu.RLock()
		defer ix.mu.RUnlock()
		visited := 0
		for key, count := range ix.counts {
			if !yield(key, count) {
				return
			}
			visited++
			if visited%keysPerLock == 0 {
				ix.mu.RUnlock() // A map may change while a loop goes through it.
				ix.mu.RLock()
			}
		}
	}
}

func (ix *CountIndex[T, K]) add(obj T) { ix.change(obj, +1) }

func (ix *CountIndex[T, K]) remove(obj T) { ix.change(obj, -1) }

func (ix *CountIndex[T, K]) change(obj T, by int) {
	var none K
	key := ix.keyOf(obj)
	if key == none {
		return
	}
	ix.counts[key] += by
	if ix.counts[key] == 0 {
		delete(ix.counts, key)
	}
}

// NamespaceCountIndex counts the objects of a store by their namespace and a name that its user chooses, such as the
// app of a pod. A CountIndex by Key could do the same, but would need more memory: here a namespace is stored once, not
// with each name. It is safe for concurrent use.
type NamespaceCountIndex[T Object[T]] struct {
	nameOf func(T) string
	mu     *sync.RWMutex             // the store's; guards counts
	counts map[string]map[string]int // by namespace, then by name
}

// CountInNamespacesBy adds a NamespaceCountIndex to a store. It leaves out objects whose name is "". nameOf must always
// return the same name for the same object.
func CountInNamespacesBy[T Object[T]](s *Store[T], nameOf func(T) string) *NamespaceCountIndex[T] {
	ix := &NamespaceCountIndex[T]{nameOf: nameOf, mu: &s.mu, counts: map[string]map[string]int{}}
	s.addIndex(ix)
	return ix
}

// Count returns the number of objects with this namespace and name, in O(1).
func (ix *NamespaceCountIndex[T]) Count(key Key) int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.counts[key.Namespace][key.Name]
}

func (ix *NamespaceCountIndex[T]) add(obj T) { ix.change(obj, +1) }

func (ix *NamespaceCountIndex[T]) remove(obj T) { ix.change(obj, -1) }

func (ix *NamespaceCountIndex[T]) change(obj T, by int) {
	name := ix.nameOf(obj)
	if name == "" {
		return
	}
	namespace := obj.meta().Key().Namespace
	if ix.counts[namespace] == nil {
		ix.counts[namespace] = map[string]int{}
	}
	ix.counts[namespace][name] += by
	if ix.counts[namespace][name] == 0 {
		delete(ix.counts[namespace], name)
	}
	if len(ix.counts[namespace]) == 0 {
		delete(ix.counts, namespace)
	}
}

// ObjectIndex finds the objects of a store by a key that its user chooses. Unlike a CountIndex, it needs memory for
// each object. It is safe for concurrent use.
type ObjectIndex[T Object[T], K comparable] struct {
	keyOf   func(T) K
	mu      *sync.RWMutex // the store's; guards objects
	objects map[K]map[Key]T
}

// IndexBy adds an ObjectIndex to a store. It leaves out objects whose key is the zero value of K. keyOf must always
// return the same key for the same object.
func IndexBy[T Object[T], K comparable](s *Store[T], keyOf func(T) K) *ObjectIndex[T, K] {
	ix := &ObjectIndex[T, K]{keyOf: keyOf, mu: &s.mu, objects: map[K]map[Key]T{}}
	s.addIndex(ix)
	return ix
}

// Objects returns the objects with a key, in no particular order.
func (ix *ObjectIndex[T, K]) Objects(key K) []T {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return slices.Collect(maps.Values(ix.objects[key]))
}

func (ix *ObjectIndex[T, K]) add(obj T) {
	var none K
	key := ix.keyOf(obj)
	if key == none {
		return
	}
	if ix.objects[key] == nil {
		ix.objects[key] = map[Key]T{}
	}
	ix.objects[key][obj.meta().Key()] = obj
}

func (ix *ObjectIndex[T, K]) remove(obj T) {
	key := ix.keyOf(obj)
	delete(ix.objects[key], obj.meta().Key())
	if len(ix.objects[key]) == 0 {
		delete(ix.objects, key)
	}
}

// Meta is the part of an object's metadata that podcount uses.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
type Meta struct {
	objectmeta.Metadata

	// lastList is the number of the newest Listing that had the object. The store's lock guards it.
	lastList uint32
}

// meta makes every struct that embeds Meta an Object, together with hasSameFields and readFrom.
func (m *Meta) meta() *Meta { return m }

// Key returns the object's namespace and name.
func (m *Meta) Key() Key {
	namespace, name, isNamespaced := strings.Cut(m.NamespacedName(), "/")
	if !isNamespaced {
		return Key{Name: m.NamespacedName()}
	}
	return Key{Namespace: namespace, Name: name}
}

// isSameVersion reports whether two objects are one object in one version.
func (m *Meta) isSameVersion(other *Meta) bool {
	return m.UID() == other.UID() && m.ResourceVersion() == other.ResourceVersion()
}

// Kind describes a kind of object for the reflector, the store and the decoder.
type Kind[T Object[T]] struct {
	Name     string // such as Pod
	API      string // /api/v1, or /apis/GROUP/VERSION
	Resource string // such as pods
	New      func() T

	// Which objects the server sends.
	Namespace     string // "" means all namespaces, or that the kind has none
	LabelSelector string
	FieldSelector string

	// What the server sends of each object.
	Protobuf     bool // objects in protobuf, if the server can send it; custom resources are JSON only
	MetadataOnly bool // PartialObjectMetadata, without spec and status

	// What is kept of each object.
	Labels  []string // the keys of the labels to keep; all other labels are dropped
	Lenient bool     // a field of the wrong type counts as missing, because no schema guarantees the type

	// PatchMetric is the metric that counts patches of this kind. "" means that they are not counted.
	PatchMetric string
}

// isOptional reports whether the server may lack the resource. Resources under /apis/ may come from
// CustomResourceDefinitions, which may be created and removed at any time. All of them are treated like that.
func (k *Kind[T]) isOptional() bool { return strings.HasPrefix(k.API, "/apis/") }

// apiVersion returns the apiVersion of the kind's objects: v1, or GROUP/VERSION.
func (k *Kind[T]) apiVersion() string {
	if k.isOptional() {
		return strings.TrimPrefix(k.API, "/apis/")
	}
	return strings.TrimPrefix(k.API, "/api/")
}

// Pod is a pod as podcount sees it.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
type Pod struct {
	Meta
	NodeName string // "" until the pod is scheduled, and always if the kind is MetadataOnly
}

func newPodKind() Kind[*Pod] {
	return Kind[*Pod]{
		Name:         "Pod",
		API:          "/api/v1",
		Resource:     "pods",
		Protobuf:     true,
		MetadataOnly: true,
		New:          func() *Pod { return new(Pod) },
	}
}

func (p *Pod) hasSameFields(o *Pod) bool { return p.NodeName == o.NodeName }

func (p *Pod) readFrom(raw *rawObject) {
	p.NodeName = ""
	if len(raw.nodeName) <= objectmeta.NameLimit { // no node has a longer name
		p.NodeName = raw.interner.Intern(raw.nodeName)
	}
}

// podFields are the fields that field selectors of pods may use.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
var podFields = []string{
	"metadata.name", "metadata.namespace", "spec.host", "spec.hostNetwork", "spec.nodeName", "spec.restartPolicy",
	"spec.schedulerName", "spec.serviceAccountName", "status.nominatedNodeName", "status.phase", "status.podIP",
	"status.podIPs",
}

// Node is a node as podcount sees it: its name and some of its labels.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/
type Node struct{ Meta }

func newNodeKind() Kind[*Node] {
	return Kind[*Node]{
		Name:         "Node",
		API:          "/api/v1",
		Resource:     "nodes",
		Protobuf:     true,
		MetadataOnly: true,
		PatchMetric:  "podcount_label_patches_total",
		New:          func() *Node { return new(Node) },
	}
}

func (n *Node) hasSameFields(*Node) bool { return true }

func (n *Node) readFrom(*rawObject) {}

// Count is the custom resource that deploy/count-crd.yaml defines. It says how many pods of an app its namespace should
// have.
type Count struct {
	Meta
	countSpec
	Generation int64 // increases with each change of the spec
	Status     countStatus
}

// valueLimit is how many bytes of a value in a custom resource, or of an error about it, are kept.
const valueLimit = 500

type countSpec struct {
	App  string // spec.name
	Want int    // spec.count: how many pods the app should have

	// Invalid says what is wrong with the spec. If it is not "", App and Want must not be used.
	Invalid string
}

// countStatus is the status of a Count. Its fields are "" if the status does not have them. They are compared as JSON
// text, so a value of the wrong type never equals the right one. The server may have such values if the schema is not
// strict.
type countStatus struct {
	Healthy            wire.Raw `json:"healthy,omitempty"`
	Count              wire.Raw `json:"count,omitempty"`
	ObservedGeneration wire.Raw `json:"observedGeneration,omitempty"`
}

func newCountKind() Kind[*Count] {
	return Kind[*Count]{
		Name:        "Count",
		API:         "/apis/demo.mark8s.io/v1",
		Resource:    "counts",
		Lenient:     true,
		PatchMetric: "podcount_status_patches_total",
		New:         func() *Count { return new(Count) },
	}
}

func (c *Count) hasSameFields(o *Count) bool {
	return c.countSpec == o.countSpec && c.Generation == o.Generation && c.Status == o.Status
}

func (c *Count) readFrom(raw *rawObject) {
	c.Generation = raw.generation
	c.Status = raw.status
	c.countSpec = countSpec{}

	err := json.Unmarshal([]byte(raw.specName), &c.App)
	if err != nil || c.App == "" {
		found := cmp.Or(raw.specName, "missing")
		c.Invalid = fmt.Sprintf("spec.name is %.100s, and must be the name of an app", found)
		return
	}
	c.Want, err = strconv.Atoi(string(raw.specCount))
	if err != nil || c.Want < 0 {
		found := cmp.Or(raw.specCount, "missing")
		c.Invalid = fmt.Sprintf("spec.count is %.100s, and must be a whole number, 0 or more", found)
	}
}

// JSONObject is an object of a kind that only one controller reads. F is a struct with the fields that the controller
// needs, which encoding/json fills from the whole object:
//
//	type deployment struct {
//		Spec struct{ Replicas int }
//	}
type JSONObject[F any] struct {
	Meta
	Fields F

	// Invalid says which field has another type on the server than in F. If it is not "", Fields may be incomplete.
	Invalid string
}

// JSONKind returns a kind of JSONObjects, as in JSONKind[deployment]("Deployment", "/apis/apps/v1", "deployments"). The
// parameters are the Kind's fields of the same names.
func JSONKind[F any](name, api, resource string) Kind[*JSONObject[F]] {
	return Kind[*JSONObject[F]]{
		Name:     name,
		API:      api,
		Resource: resource,
		New:      func() *JSONObject[F] { return new(JSONObject[F]) },
	}
}

func (o *JSONObject[F]) hasSameFields(other *JSONObject[F]) bool {
	return o.Invalid == other.Invalid && reflect.DeepEqual(o.Fields, other.Fields)
}

func (o *JSONObject[F]) readFrom(raw *rawObject) {
	var none F
	o.Fields = none
	o.Invalid = ""
	if err := json.Unmarshal(raw.json, &o.Fields); err != nil {
		o.Invalid = wire.Shorten(err.Error(), valueLimit)
	}
}

// decoder reads objects of one kind from lists, watches and other answers. It reuses its memory, so a pod or a node
// that the store already has needs no allocation. Only one goroutine at a time may use it.
type decoder[T Object[T]] struct {
	kind   *Kind[T]
	wire   *wire.Decoder // fills raw through the methods of wire.ObjectReader, which are at the end of this file
	packer *objectmeta.Packer

	// The object that was read last. The next one overwrites it.
	raw      rawObject
	metadata objectmeta.Draft // made from raw by buildObject
	object   T                // made from raw by buildObject, without the metadata; nil after it was kept
}

// newDecoder returns a decoder. kind.Labels must not change after that.
func newDecoder[T Object[T]](kind *Kind[T]) *decoder[T] {
	d := &decoder[T]{
		kind:   kind,
		packer: objectmeta.NewPacker(kind.Labels),
		raw: rawObject{
			labels:   make([]objectmeta.Label, len(kind.Labels)),
			interner: objectmeta.NewInterner(),
		},
	}
	d.wire = wire.NewDecoder(d)
	return d
}

// list reads a list as it arrives, and calls add for each object: see Listing.Add. Errors name the object's position in
// the list, and the place in the object.
func (d *decoder[T]) list(
	r io.Reader, isProtobuf bool, add func(obj T, metadata objectmeta.Draft) (kept bool, err error),
) (wire.ListMeta, error) {
	position := 0
	addNext := func() error {
		if err := d.buildObject(); err != nil {
			return fmt.Errorf("items: item %d: %w", position, err)
		}
		position++
		kept, err := add(d.object, d.metadata)
		if kept {
			d.forgetObject()
		}
		return err
	}
	meta, err := d.wire.List(r, isProtobuf, addNext)
	var unreadable *wire.ItemError
	if errors.As(err, &unreadable) && position > 0 {
		previous := d.metadata.NamespacedName()
		err = fmt.Errorf("items: item %d, which follows %.300s: %w", unreadable.Item, previous, unreadable.Err)
	}
	return meta, err
}

// WatchEvent is one frame of a watch.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type WatchEvent[T any] struct {
	Type   string       // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	Object T            // nil if the type is ERROR; a BOOKMARK has an object with only a resourceVersion
	Status *wire.Status // nil unless the type is ERROR

	size int64  // of the frame, in bytes
	head []byte // the first bytes of the frame, if somebody listens to the trace; overwritten by the next frame
}

// events reads a watch, and calls handle for each frame, until the stream ends or handle fails. It returns
//   - nil if the stream ends between two frames;
//   - the error of handle, or of r, as it is;
//   - a wire.GarbageError if a frame cannot be decoded.
func (d *decoder[T]) events(r io.Reader, isProtobuf bool, handle func(WatchEvent[T]) error) error {
	return d.wire.Events(r, isProtobuf, func(frame wire.Event) error {
		event, err := d.watchEvent(frame)
		if err != nil {
			return wire.Garbage(err)
		}
		return handle(event)
	})
}

// watchEvent returns a frame as a WatchEvent. The frame's object is in d.raw.
func (d *decoder[T]) watchEvent(frame wire.Event) (event WatchEvent[T], err error) {
	event.Type = frame.Type
	event.Status = frame.Status
	event.size = frame.Size
	event.head = frame.Head
	if frame.Status != nil {
		return event, nil
	}
	switch frame.Type {
	case "ADDED", "MODIFIED", "DELETED":
		event.Object, err = d.takeObject()
		return event, err
	case "BOOKMARK":
		event.Object, err = d.bookmark()
		return event, err
	}
	return event, fmt.Errorf("unknown event type %q", frame.Type)
}

// bookmark returns an object with only the resourceVersion that was read last.
func (d *decoder[T]) bookmark() (obj T, err error) {
	if len(d.raw.version) == 0 {
		return obj, errors.New("the bookmark has no metadata.resourceVersion")
	}
	metadata, err := d.packer.Pack(objectmeta.Fields{ResourceVersion: d.raw.version})
	if err != nil {
		return obj, fmt.Errorf("the bookmark's metadata: %w", err)
	}
	obj = d.kind.New()
	obj.meta().Metadata = metadata.Keep()
	return obj, nil
}

// parse decodes one object from JSON.
func (d *decoder[T]) parse(r io.Reader) (obj T, err error) {
	if err := d.wire.Object(r); err != nil {
		return obj, err
	}
	return d.takeObject()
}

// takeObject returns the object that was read last, with its metadata. The caller owns it.
func (d *decoder[T]) takeObject() (obj T, err error) {
	if err := d.buildObject(); err != nil {
		return obj, err
	}
	obj = d.object
	d.forgetObject()
	obj.meta().Metadata = d.metadata.Keep()
	return obj, nil
}

// buildObject sets d.metadata and d.object from d.raw.
func (d *decoder[T]) buildObject() (err error) {
	raw := &d.raw
	if len(raw.name) == 0 || len(raw.uid) == 0 || len(raw.version) == 0 {
		return fmt.Errorf("%s %.300q has no metadata.name, uid or resourceVersion", d.kind.Name, raw.key())
	}
	d.metadata, err = d.packer.Pack(objectmeta.Fields{
		Namespace:       raw.namespace,
		Name:            raw.name,
		UID:             raw.uid,
		ResourceVersion: raw.version,
		Labels:          raw.labels,
	})
	if err != nil {
		return fmt.Errorf("%s %.300q: %w", d.kind.Name, raw.key(), err)
	}
	if isNil(d.object) {
		d.object = d.kind.New()
	}
	d.object.readFrom(raw)
	return nil
}

// forgetObject must be called when d.object is kept, so that the next object gets memory of its own.
func (d *decoder[T]) forgetObject() {
	var none T
	d.object = none
}

// rawObject has the fields of an object as the server sent them. It has every field that any kind needs. The next
// object overwrites it.
//
// To read another field, add it here, reset it in decoder.Reset, read it in readMetadata, readSpec or readStatus (JSON)
// and in decoder.Schema (protobuf), and use it in readFrom and hasSameFields of the kind. If only one controller needs
// the kind, JSONObject is simpler.
type rawObject struct {
	// From metadata.
	namespace  wire.Text
	name       wire.Text
	uid        wire.Text
	version    wire.Text
	generation int64
	labels     []objectmeta.Label // labels[i] is the label with the key Kind.Labels[i]

	// From spec and status.
	nodeName  wire.Text
	specName  wire.Raw
	specCount wire.Raw
	status    countStatus

	// json is the whole object, or nil if it came in protobuf. It is valid only until the next object is read.
	json []byte

	// Shared by all objects.
	labelBuffer wire.Text            // the value of the label that is being read
	interner    *objectmeta.Interner // for strings that many objects have
}

// key returns the object's namespace and name.
func (raw *rawObject) key() Key { return Key{string(raw.namespace), string(raw.name)} }

// Reset empties raw for the next object. It is one of the methods of wire.ObjectReader, with ReadJSON and Schema.
func (d *decoder[T]) Reset() {
	raw := &d.raw
	raw.namespace = raw.namespace[:0]
	raw.name = raw.name[:0]
	raw.uid = raw.uid[:0]
	raw.version = raw.version[:0]
	raw.generation = 0
	raw.dropLabels()
	raw.nodeName = raw.nodeName[:0]
	raw.specName = ""
	raw.specCount = ""
	raw.status = countStatus{}
	raw.json = nil
}

func (raw *rawObject) dropLabels() {
	for i := range raw.labels {
		raw.labels[i].IsPresent = false
	}
}

// setLabel stores a label in raw if its key is in Kind.Labels.
func (d *decoder[T]) setLabel(key, value []byte) {
	for i, wanted := range d.kind.Labels {
		if wanted == string(key) {
			label := &d.raw.labels[i]
			label.IsPresent = true
			label.Value = append(label.Value[:0], value...)
			return
		}
	}
}

// ReadJSON reads a JSON object into raw.
func (d *decoder[T]) ReadJSON(object []byte) error {
	if err := wire.WantObject(object, ""); err != nil {
		return err
	}
	d.raw.json = object
	for name, value := range wire.Members(object) {
		var err error
		switch string(name) {
		case "metadata":
			err = d.readMetadata(value)
		case "spec":
			err = d.readSpec(value)
		case "status":
			err = d.readStatus(value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder[T]) readMetadata(object []byte) error {
	if err := wire.WantObject(object, "metadata"); err != nil {
		return err
	}
	raw := &d.raw
	for name, value := range wire.Members(object) {
		var err error
		switch string(name) {
		case "namespace":
			err = raw.namespace.Read(value, "metadata.namespace")
		case "name":
			err = raw.name.Read(value, "metadata.name")
		case "uid":
			err = raw.uid.Read(value, "metadata.uid")
		case "resourceVersion":
			err = raw.version.Read(value, "metadata.resourceVersion")
		case "generation":
			err = wire.Unmarshal(value, &raw.generation, "metadata.generation")
		case "labels":
			err = d.readLabels(value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder[T]) readLabels(object []byte) error {
	if err := wire.WantObject(object, "metadata.labels"); err != nil {
		return err
	}
	if string(object) == "null" {
		d.raw.dropLabels() // As in encoding/json, null removes the labels of an earlier member "labels".
	}
	text := &d.raw.labelBuffer
	for name, value := range wire.Members(object) {
		*text = (*text)[:0] // Read does not change text if the value is null.
		if err := text.Read(value, "metadata.labels"); err != nil {
			return err
		}
		d.setLabel(name, *text)
	}
	return nil
}

func (d *decoder[T]) readSpec(object []byte) error {
	if err := wire.WantObject(object, "spec"); err != nil {
		return d.forgive(err)
	}
	raw := &d.raw
	for name, value := range wire.Members(object) {
		switch string(name) {
		case "nodeName":
			if len(value) > valueLimit {
				continue // No node has such a name. In a custom resource, the text may even be too long for Read.
			}
			err := raw.nodeName.Read(value, "spec.nodeName")
			if d.forgive(err) != nil {
				return err
			}
		case "name":
			raw.specName = wire.RawOf(value[:min(len(value), valueLimit)]) // A value that was cut is not valid.
		case "count":
			raw.specCount = wire.RawOf(value[:min(len(value), valueLimit)])
		}
	}
	return nil
}

func (d *decoder[T]) readStatus(object []byte) error {
	if err := wire.WantObject(object, "status"); err != nil {
		return d.forgive(err)
	}
	status := &d.raw.status
	for name, value := range wire.Members(object) {
		switch string(name) {
		case "healthy":
			status.Healthy = statusValue(value)
		case "count":
			status.Count = statusValue(value)
		case "observedGeneration":
			status.ObservedGeneration = statusValue(value)
		}
	}
	return nil
}

// statusValue returns a value of a status. One that is longer than any right value counts as missing.
func statusValue(value []byte) wire.Raw {
	if len(value) > valueLimit {
		return ""
	}
	return wire.RawOf(value)
}

// forgive returns err, but nil if the kind is lenient and a value has the wrong type.
func (d *decoder[T]) forgive(err error) error {
	if d.kind.Lenient && errors.As(err, new(*json.UnmarshalTypeError)) {
		return nil
	}
	return err
}

// Schema says where in raw the fields of a protobuf object go. The field numbers are those of the generated.proto files
// in k8s.io/api and k8s.io/apimachinery.
func (d *decoder[T]) Schema() wire.Schema {
	raw := &d.raw
	known := wire.Schema{
		1: wire.Schema{ // metadata
			1:  &raw.name,
			3:  &raw.namespace,
			5:  &raw.uid,
			6:  &raw.version,
			11: wire.StringMap(d.setLabel),
		},
	}
	if !d.kind.MetadataOnly {
		known[2] = wire.Schema{ // spec
			10: &raw.nodeName,
		}
	}
	return known
}
