package main

// cache.go owns what podcount remembers: the kinds, which of their fields are read, the trimmed objects, and the store
// with its indexes. It knows no HTTP.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"podcount/internal/wire"
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

// MarshalText makes a key a string in JSON.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Object is a pointer to a struct that embeds Meta. An object in a store is never modified, so that everybody can read
// it without a lock.
type Object[T any] interface {
	comparable // to nil
	meta() *Meta

	// hasSameFields compares all fields except those of Meta.
	hasSameFields(T) bool

	// readFrom sets all fields except those of Meta.
	readFrom(*item)
}

// Delta is one change of a store. Old is nil for an object that was added, and New is nil for one that was removed. If
// both are the same object, it has not changed: a controller gets to see each object once like this when it begins.
type Delta[T Object[T]] struct{ Old, New T }

// Key returns the key of the object that has changed.
func (d Delta[T]) Key() Key { return cmp.Or(d.New, d.Old).meta().Key() }

// Store is the cache of one kind. Any goroutine may read it. Only its reflector may change it, except that whoever
// patches an object applies the server's answer.
type Store[T Object[T]] struct {
	reportsEveryVersion bool // see Reflector.NeedEveryVersion

	mu       sync.RWMutex // guards all fields below
	items    map[string]T // by namespace/name, which is the beginning of the object's own text
	indexes  []index[T]
	lists    uint32 // the number of the newest list
	isListed bool   // a list is complete
}

// NewStore makes an empty store.
func NewStore[T Object[T]]() *Store[T] {
	return &Store[T]{items: map[string]T{}}
}

// Get returns an object, or nil.
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

// Apply takes the object of a watch event (ADDED, MODIFIED or DELETED), and returns what has changed. That is nothing
// if the store already has a newer version of the object.
func (s *Store[T]) Apply(eventType string, obj T) []Delta[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasNewerLocked(obj) {
		return nil
	}
	key := obj.meta().text[:obj.meta().keyEnd]
	if eventType == "DELETED" {
		return s.deleteLocked(key)
	}
	return s.setLocked(key, obj)
}

// ApplyAnswer takes the object that the server returned for a patch of ours, and returns what has changed. It only ever
// replaces a state of the same object: if the watch has removed the object meanwhile, it stays removed. Later the watch
// brings the same version, which then changes nothing any more.
func (s *Store[T]) ApplyAnswer(obj T) []Delta[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := obj.meta().text[:obj.meta().keyEnd]
	old, isKnown := s.items[key]
	if !isKnown || old.meta().UID() != obj.meta().UID() || s.hasNewerLocked(obj) {
		return nil
	}
	obj.meta().lastList = old.meta().lastList // a list that is under way may have seen the object
	return s.setLocked(key, obj)
}

// hasNewerLocked reports whether the store has a newer version of an object, or of another one with its name.
func (s *Store[T]) hasNewerLocked(obj T) bool {
	m := obj.meta()
	known, isKnown := s.items[m.text[:m.keyEnd]]
	if !isKnown {
		return false
	}
	version := m.ResourceVersion()
	knownVersion := known.meta().ResourceVersion()
	return version != knownVersion && !newerVersion(version, knownVersion)
}

// newerVersion reports whether resourceVersion a is newer than b. Versions are decimal numbers of any length. A version
// that is not a number is always newer, so that no event is lost.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5504-comparable-resource-version
func newerVersion(a, b string) bool {
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

// setLocked stores obj under its key, and returns what has changed.
func (s *Store[T]) setLocked(key string, obj T) []Delta[T] {
	var none T
	old := s.items[key]
	if old != none {
		s.removeFromIndexesLocked(old)
	}
	s.items[key] = obj
	for _, ix := range s.indexes {
		ix.add(obj)
	}
	if old == none {
		return []Delta[T]{{New: obj}}
	}
	if old.meta().UID() != obj.meta().UID() {
		return []Delta[T]{{Old: old}, {New: obj}} // another object, under the same name
	}
	if !s.hasChanged(old, obj) {
		return nil
	}
	return []Delta[T]{{Old: old, New: obj}}
}

// hasChanged reports whether a controller can see a difference between two states of an object.
func (s *Store[T]) hasChanged(old, now T) bool {
	if s.reportsEveryVersion && old.meta().ResourceVersion() != now.meta().ResourceVersion() {
		return true
	}
	return !old.hasSameFields(now) || !old.meta().hasSameLabels(now.meta())
}

// deleteLocked removes the object under a key, if there is one, and returns what has changed.
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

// Listing collects the objects of one list. The store does not change until Commit, so that a list that fails part-way
// is simply dropped: half a list is never taken for the truth.
type Listing[T Object[T]] struct {
	store   *Store[T]
	number  uint32
	n       int          // objects so far
	changed map[string]T // the objects that the store does not have like this; the others are only marked
}

// BeginList begins a list of all objects. It makes all earlier Listings of the store worthless.
func (s *Store[T]) BeginList() *Listing[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	return &Listing[T]{store: s, number: s.lists, changed: map[string]T{}}
}

// listLimit is the most objects that a list may have. It is more than ten times what Kubernetes is made for, and
// protects the memory from a server whose list never ends.
const listLimit = 2_000_000

// Add takes the next object of a list. text is the object's Meta.text, which Add copies if it keeps the object. If kept
// is false, the caller may use the object again. The error says that the list has too many objects.
func (l *Listing[T]) Add(obj T, text []byte) (kept bool, err error) {
	if l.n >= listLimit {
		return false, fmt.Errorf("the list has more than %d objects: "+
			"if they are pods, restrict it with -namespace or -pod-selector", listLimit)
	}
	l.n++
	m := obj.meta()
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	known, isKnown := l.store.items[string(text[:m.keyEnd])]
	if isKnown && known.meta().isUnchanged(m, text) && known.hasSameFields(obj) {
		known.meta().lastList = l.number
		return false, nil
	}
	m.text = string(text)
	m.lastList = l.number
	l.changed[m.text[:m.keyEnd]] = obj
	return true, nil
}

// Commit makes the list the content of the store, and returns what was added, changed and removed. It does so even if
// objects have older versions than before, because etcd may have been restored from a backup.
//
// For the first list it returns nil, because a delta for every object would double the peak of memory.
func (l *Listing[T]) Commit() (changes []Delta[T]) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	isFirst := !s.isListed && len(s.items) == 0
	s.isListed = true
	if isFirst {
		s.items = l.changed
		s.addAllToIndexesLocked()
		return nil
	}
	for key, obj := range l.changed {
		changes = append(changes, s.setLocked(key, obj)...)
	}
	for key, obj := range s.items {
		wasInList := obj.meta().lastList == l.number
		if !wasInList {
			changes = append(changes, s.deleteLocked(key)...)
		}
	}
	return changes
}

func (s *Store[T]) addAllToIndexesLocked() {
	for _, obj := range s.items {
		for _, ix := range s.indexes {
			ix.add(obj)
		}
	}
}

// index is kept up to date by a store, under the store's lock.
type index[T any] interface {
	add(obj T)
	remove(obj T)
}

// addIndex makes the store keep an index up to date from now on.
func (s *Store[T]) addIndex(ix index[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range s.items {
		ix.add(obj)
	}
	s.indexes = append(s.indexes, ix)
}

// CountIndex knows how many objects of a store have a certain key. The keys are its own: two indexes never mix theirs.
// Safe for concurrent use.
type CountIndex[T Object[T], K comparable] struct {
	keyOf  func(T) K
	mu     *sync.RWMutex // the store's; guards counts
	counts map[K]int
}

// CountBy makes an index of a store that counts objects by key. It leaves out objects whose key is the zero value of K.
// keyOf must always return the same key for the same object.
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

func (ix *CountIndex[T, K]) add(obj T) { ix.change(obj, +1) }

func (ix *CountIndex[T, K]) remove(obj T) { ix.change(obj, -1) }

func (ix *CountIndex[T, K]) change(obj T, by int) {
	key := ix.keyOf(obj)
	if key == *new(K) {
		return
	}
	ix.counts[key] += by
	if ix.counts[key] == 0 {
		delete(ix.counts, key)
	}
}

// ObjectIndex finds the objects of a store by a key. It costs memory for each object, which a CountIndex does not. Safe
// for concurrent use.
type ObjectIndex[T Object[T], K comparable] struct {
	keyOf   func(T) K
	mu      *sync.RWMutex // the store's; guards objects
	objects map[K]map[Key]T
}

// IndexBy makes an index of a store that finds objects by key. It leaves out objects whose key is the zero value of K.
// keyOf must always return the same key for the same object.
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
	key := ix.keyOf(obj)
	if key == *new(K) {
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

// Meta is the part of an object's metadata that podcount uses. Its fields are private, because they are packed to save
// memory: an object costs one string, and its labels cost nothing if other objects have the same ones.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
type Meta struct {
	// text is namespace/name, uid, resourceVersion and then, if the labels are not shared, a labelMark and a value for
	// each label. One string takes one allocation, and is compared at once.
	text   string
	labels *labelSet // nil if the object has none of the labels that are kept
	keyEnd uint16    // where namespace/name ends in text
	uidEnd uint16    // where the uid ends in text

	// lastList is the number of the newest list that had the object. The store's lock guards it.
	lastList uint32
}

// labelSet is a set of labels that several objects share. If values is nil, the objects share only the keys, and each
// has its values in Meta.text.
type labelSet struct {
	keys   []string
	values []string
}

const labelMark = "\x00" // no name and no label can contain it

func (m *Meta) meta() *Meta { return m }

// Key returns the object's place in the store and in the workqueue.
func (m *Meta) Key() Key {
	namespace, name, isNamespaced := strings.Cut(m.text[:m.keyEnd], "/")
	if !isNamespaced {
		return Key{Name: namespace}
	}
	return Key{Namespace: namespace, Name: name}
}

// UID distinguishes an object from others that had the same name before it.
func (m *Meta) UID() string { return m.text[m.keyEnd:m.uidEnd] }

// ResourceVersion is the version of the object's content.
func (m *Meta) ResourceVersion() string {
	version, _, _ := strings.Cut(m.text[m.uidEnd:], labelMark)
	return version
}

// Label returns the value of a label. ok is false if the object does not have it, or if Kind.Labels does not name it.
func (m *Meta) Label(key string) (value string, ok bool) {
	if m.labels == nil {
		return "", false
	}
	i := slices.Index(m.labels.keys, key)
	if i < 0 {
		return "", false
	}
	return m.labelValue(i), true
}

// labelValue returns the value for m.labels.keys[i].
func (m *Meta) labelValue(i int) string {
	if m.labels.values != nil {
		return m.labels.values[i]
	}
	rest := m.text[m.uidEnd:]
	for range i + 1 {
		_, rest, _ = strings.Cut(rest, labelMark)
	}
	value, _, _ := strings.Cut(rest, labelMark)
	return value
}

// isUnchanged reports whether m has the same content as o, whose text is still in a buffer. It compares label sets by
// address, which is quick. Equal labels in two different sets count as a change here; hasSameLabels finds out later.
func (m *Meta) isUnchanged(o *Meta, text []byte) bool {
	return m.uidEnd == o.uidEnd && m.labels == o.labels && m.text == string(text)
}

// hasSameLabels reports whether both objects have the same labels.
func (m *Meta) hasSameLabels(o *Meta) bool {
	if m.labels == nil || o.labels == nil {
		return m.labels == o.labels
	}
	isShared := m.labels == o.labels && m.labels.values != nil
	if isShared {
		return true
	}
	if !slices.Equal(m.labels.keys, o.labels.keys) {
		return false
	}
	for i := range m.labels.keys {
		if m.labelValue(i) != o.labelValue(i) {
			return false
		}
	}
	return true
}

// Kind is all that the reflector, the store and the decoder have to know about a kind.
type Kind[T Object[T]] struct {
	Name     string // as in Pod
	API      string // /api/v1, or /apis/GROUP/VERSION
	Resource string // as in pods
	New      func() T

	// Which objects are read.
	Namespace string // "" means all namespaces, or that the kind has none
	Selector  string // a labelSelector, which the server evaluates
	Fields    string // a fieldSelector, which the server evaluates

	// How they are read.
	Protobuf     bool     // ask for protobuf first; custom resources have no such form
	MetadataOnly bool     // ask for PartialObjectMetadata, because spec and status are not needed
	Labels       []string // the keys of the labels to keep; all others are dropped
	Lenient      bool     // no schema protects the objects: treat a field of the wrong type as missing

	PatchMetric string // the metric that counts patches of this kind; "" if none does
}

// isOptional reports whether the resource may be missing, and may come and go, because it is defined by a
// CustomResourceDefinition.
func (k *Kind[T]) isOptional() bool { return strings.HasPrefix(k.API, "/apis/") }

// apiVersion returns the value of apiVersion that objects of this kind have: v1, or GROUP/VERSION.
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
	NodeName string // "" until the pod is scheduled, and always if only metadata is asked for
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

func (p *Pod) readFrom(it *item) { p.NodeName = it.intern(it.nodeName) }

// podFields are the fields that the API server can select pods by.
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

func (n *Node) hasSameFields(*Node) bool { return true } // there are none

func (n *Node) readFrom(*item) {}

// Count is a custom resource, which deploy/count-crd.yaml defines. It says how many pods of a certain name its
// namespace should have.
type Count struct {
	Meta
	countSpec
	Generation int64 // increases with each change of the spec
	Status     countStatus
}

type countSpec struct {
	Name string
	Want int

	// Invalid says what is wrong with the spec in the server. If it is not "", Name and Want mean nothing.
	Invalid string
}

// countStatus is the status of a Count. Each field is as JSON writes it, or "" if the status does not have it. So a
// value of a wrong type, which a lax schema may let through, is never mistaken for a right one.
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

func (c *Count) readFrom(it *item) {
	c.Generation = it.generation
	c.Status = it.status
	c.countSpec = countSpec{}

	err := json.Unmarshal([]byte(it.specName), &c.Name)
	if err != nil || c.Name == "" {
		found := cmp.Or(it.specName, "missing")
		c.Invalid = fmt.Sprintf("spec.name is %.100s, and must be the name of an app", found)
		return
	}
	c.Want, err = strconv.Atoi(string(it.specCount))
	if err != nil || c.Want < 0 {
		found := cmp.Or(it.specCount, "missing")
		c.Invalid = fmt.Sprintf("spec.count is %.100s, and must be a whole number, 0 or more", found)
	}
}

// JSONObject is an object of a kind that only one controller reads. F is a struct with the fields that it wants, at
// the places where they are in the object, as for encoding/json:
//
//	type deployment struct {
//		Spec struct{ Replicas int }
//	}
type JSONObject[F any] struct {
	Meta
	Fields F

	// Invalid says which field has another type in the server than in F. If it is not "", Fields may be incomplete.
	Invalid string
}

// JSONKind makes a kind of JSONObjects, as in JSONKind[deployment]("Deployment", "/apis/apps/v1", "deployments"). The
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

func (o *JSONObject[F]) readFrom(it *item) {
	o.Fields = *new(F)
	o.Invalid = ""
	if err := json.Unmarshal(it.json, &o.Fields); err != nil {
		o.Invalid = err.Error()
	}
}

// decoder makes objects of what the server sends, for one stream at a time. It reuses its memory, so that an object
// that the store already has costs none.
type decoder[T Object[T]] struct {
	kind *Kind[T]
	wire *wire.Decoder // fills item by calling the methods that make decoder a wire.ObjectReader
	item item

	// spare is an object that was made but not kept. The next one is made in its place.
	spare T

	// Labels that several objects have are stored once. See labelSet.
	sharedLabels map[string]*labelSet // by keys and values
	sharedKeys   map[string]*labelSet // by keys; these sets have no values
	firstOwners  map[uint64]uint64    // the hash of labels that one object has → the hash of that object's key
	hashSeed     maphash.Seed
}

const (
	metaLimit   = 64 << 10 // bytes of Meta.text
	internLimit = 8192     // texts that a decoder remembers, of each sort
)

func newDecoder[T Object[T]](kind *Kind[T]) *decoder[T] {
	d := &decoder[T]{
		kind:         kind,
		item:         item{interned: map[string]string{}},
		sharedLabels: map[string]*labelSet{},
		sharedKeys:   map[string]*labelSet{},
		firstOwners:  map[uint64]uint64{},
		hashSeed:     maphash.MakeSeed(),
	}
	d.wire = wire.NewDecoder(d)
	return d
}

// list reads a list without ever holding all of it, and calls add for each object: see Listing.Add. Errors name the
// object's position in the list, and the place in the object.
func (d *decoder[T]) list(
	r io.Reader, isProtobuf bool, add func(obj T, text []byte) (kept bool, err error),
) (wire.ListMeta, error) {
	position := 0
	addNext := func() error {
		obj, err := d.object()
		if err != nil {
			return fmt.Errorf("items: item %d: %w", position, err)
		}
		position++
		kept, err := add(obj, d.item.text)
		if kept {
			d.spare = *new(T)
		}
		return err
	}
	meta, err := d.wire.List(r, isProtobuf, addNext)
	var unreadable *wire.ItemError
	if errors.As(err, &unreadable) && position > 0 {
		previous := d.item.text[:d.item.keyEnd]
		err = fmt.Errorf("items: item %d, which follows %.300s: %w", unreadable.Item, previous, unreadable.Err)
	}
	return meta, err
}

// WatchEvent is one frame of a watch.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type WatchEvent[T any] struct {
	Type   string       // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	Object T            // nil with ERROR; of a BOOKMARK, it has only a resourceVersion
	Status *wire.Status // nil except with ERROR
}

// events calls handle for each frame of a watch, until the stream ends or handle fails. It returns nil if the stream
// ends between two frames, the connection's own error if that breaks, and a wire.GarbageError for everything that
// cannot be understood.
func (d *decoder[T]) events(r io.Reader, isProtobuf bool, handle func(WatchEvent[T]) error) error {
	return d.wire.Events(r, isProtobuf, func(frame wire.Event) error {
		event, err := d.watchEvent(frame)
		if err != nil {
			return wire.Garbage(err)
		}
		return handle(event)
	})
}

// watchEvent makes a WatchEvent of a frame, whose object is in the item.
func (d *decoder[T]) watchEvent(frame wire.Event) (event WatchEvent[T], err error) {
	event.Type = frame.Type
	event.Status = frame.Status
	if frame.Status != nil {
		return event, nil
	}
	switch frame.Type {
	case "ADDED", "MODIFIED", "DELETED":
		event.Object, err = d.ownedObject()
		return event, err
	case "BOOKMARK":
		if len(d.item.version) == 0 {
			return event, errors.New("a bookmark without metadata.resourceVersion")
		}
		event.Object = d.kind.New()
		event.Object.meta().text = string(d.item.version)
		return event, nil
	}
	return event, fmt.Errorf("unknown event type %q", frame.Type)
}

// parse reads one object of JSON.
func (d *decoder[T]) parse(data []byte) (obj T, err error) {
	if err := d.wire.Object(data); err != nil {
		return obj, err
	}
	return d.ownedObject()
}

// ownedObject makes an object from the item, complete with its text, that the caller may keep.
func (d *decoder[T]) ownedObject() (obj T, err error) {
	obj, err = d.object()
	if err != nil {
		return obj, err
	}
	obj.meta().text = string(d.item.text)
	d.spare = *new(T)
	return obj, nil
}

// object makes an object from the item. The object's text is still in item.text, and the object itself is still
// d.spare: whoever keeps the object gives it a text of its own, and clears d.spare.
func (d *decoder[T]) object() (obj T, err error) {
	it := &d.item
	it.buildText()
	name := it.text[:it.keyEnd]
	if len(it.name) == 0 || len(it.uid) == 0 || len(it.version) == 0 {
		return obj, fmt.Errorf("%s %.300q has no metadata.name, uid or resourceVersion", d.kind.Name, name)
	}
	uidEnd := it.keyEnd + len(it.uid)
	hasOddText := it.hasOddText()
	labels, err := d.labelSet() // may add to it.text
	if err != nil || hasOddText || len(it.text) >= metaLimit {
		return obj, fmt.Errorf("%s %.300q: too long, or with characters that no name has", d.kind.Name, name)
	}
	if d.spare == *new(T) {
		d.spare = d.kind.New()
	}
	m := d.spare.meta()
	m.keyEnd = uint16(it.keyEnd)
	m.uidEnd = uint16(uidEnd)
	m.labels = labels
	d.spare.readFrom(it)
	return d.spare, nil
}

// item is one object on its way from the wire into memory: all that any kind reads of it. The next object overwrites
// it.
//
// To read one more field, add it here, reset it in decoder.Reset, read it in readMetadata, readSpec or readStatus
// (JSON) and in decoder.Schema (protobuf), and let the kind use it in readFrom and hasSameFields. A kind that only one
// controller reads needs none of this: see JSONObject.
type item struct {
	// Of metadata.
	namespace  wire.Text
	name       wire.Text
	uid        wire.Text
	version    wire.Text
	generation int64
	labels     []itemLabel // one for each key in Kind.Labels

	// Of spec and status.
	nodeName  wire.Text
	specName  wire.Raw
	specCount wire.Raw
	status    countStatus

	// Made from the fields above.
	text     wire.Text // as Meta.text
	keyEnd   int       // as Meta.keyEnd
	labelKey wire.Text // what decoder.labelSet looks up

	labelValue wire.Text // of the label that is being read
	interned   map[string]string

	// json is the whole object, for JSONObject. It is the decoder's memory: nothing may keep it. Protobuf leaves it nil.
	json []byte
}

// itemLabel is a label that Kind.Labels names.
type itemLabel struct {
	isPresent bool
	value     wire.Text
}

// buildText joins namespace, name, uid and version to the item's text.
func (it *item) buildText() {
	it.text = append(it.text[:0], it.namespace...)
	if len(it.namespace) > 0 {
		it.text = append(it.text, '/')
	}
	it.text = append(it.text, it.name...)
	it.keyEnd = len(it.text)
	it.text = append(it.text, it.uid...)
	it.text = append(it.text, it.version...)
}

// hasOddText reports whether the text could not be taken apart again: a slash in a name would end the namespace. It
// also finds U+FFFD, which JSON that is not UTF-8 arrives with.
func (it *item) hasOddText() bool {
	return bytes.IndexByte(it.name, '/') >= 0 ||
		bytes.IndexByte(it.namespace, '/') >= 0 ||
		bytes.IndexByte(it.text, labelMark[0]) >= 0 ||
		bytes.ContainsRune(it.text, utf8.RuneError)
}

// intern returns text as a string, and for equal texts the same string, as long as it remembers them.
func (it *item) intern(text wire.Text) string {
	if known, ok := it.interned[string(text)]; ok {
		return known
	}
	fresh := string(text)
	return remember(it.interned, fresh, fresh)
}

// remember returns what is known for a key. If nothing is, it remembers value, and returns that. A map that has
// internLimit keys forgets a random one.
func remember[K comparable, V any](known map[K]V, key K, value V) V {
	if old, ok := known[key]; ok {
		return old
	}
	if len(known) >= internLimit {
		for random := range known {
			delete(known, random)
			break
		}
	}
	known[key] = value
	return value
}

var errMarkInLabel = errors.New("a label with a character that no label has")

// labelSet returns the labels of the item, or nil if it has none. Labels that two objects have are shared from the
// second one on. Otherwise it adds the values to the item's text, where they cost little more than their bytes.
func (d *decoder[T]) labelSet() (*labelSet, error) {
	it := &d.item
	it.labelKey = it.labelKey[:0]
	for i, label := range it.labels {
		if label.isPresent {
			it.labelKey = binary.AppendUvarint(it.labelKey, uint64(i+1)) // which never contains labelMark
		}
	}
	if len(it.labelKey) == 0 {
		return nil, nil
	}
	keysEnd := len(it.labelKey)
	for _, label := range it.labels {
		if !label.isPresent {
			continue
		}
		if bytes.IndexByte(label.value, labelMark[0]) >= 0 {
			return nil, errMarkInLabel
		}
		it.labelKey = append(it.labelKey, labelMark...)
		it.labelKey = append(it.labelKey, label.value...)
	}
	if shared := d.sharedLabels[string(it.labelKey)]; shared != nil {
		return shared, nil
	}
	onlyKeys := d.sharedKeys[string(it.labelKey[:keysEnd])]
	if onlyKeys == nil {
		onlyKeys = remember(d.sharedKeys, string(it.labelKey[:keysEnd]), &labelSet{keys: d.labelKeys()})
	}
	if d.hasAnotherOwner() {
		full := &labelSet{keys: onlyKeys.keys, values: d.labelValues(len(onlyKeys.keys))}
		return remember(d.sharedLabels, string(it.labelKey), full), nil
	}
	it.text = append(it.text, it.labelKey[keysEnd:]...)
	return onlyKeys, nil
}

func (d *decoder[T]) labelKeys() (keys []string) {
	for i, label := range d.item.labels {
		if label.isPresent {
			keys = append(keys, d.kind.Labels[i])
		}
	}
	return keys
}

// hasAnotherOwner reports whether another object had the labels in item.labelKey before. If none had, it remembers this
// one as the owner. It compares hashes: a mistake only costs a few bytes.
func (d *decoder[T]) hasAnotherOwner() bool {
	labels := maphash.Bytes(d.hashSeed, d.item.labelKey)
	object := maphash.Bytes(d.hashSeed, d.item.text[:d.item.keyEnd])
	owner := remember(d.firstOwners, labels, object)
	if owner == object {
		return false
	}
	delete(d.firstOwners, labels) // the labels are shared from now on
	return true
}

func (d *decoder[T]) labelValues(n int) []string {
	values := make([]string, 0, n)
	for _, label := range d.item.labels {
		if label.isPresent {
			values = append(values, string(label.value))
		}
	}
	return values
}

// Reset forgets the last item.
func (d *decoder[T]) Reset() {
	it := &d.item
	it.namespace = it.namespace[:0]
	it.name = it.name[:0]
	it.uid = it.uid[:0]
	it.version = it.version[:0]
	it.generation = 0
	if len(it.labels) != len(d.kind.Labels) {
		it.labels = make([]itemLabel, len(d.kind.Labels))
	}
	it.dropLabels()
	it.nodeName = it.nodeName[:0]
	it.specName = ""
	it.specCount = ""
	it.status = countStatus{}
	it.json = nil
}

func (it *item) dropLabels() {
	for i := range it.labels {
		it.labels[i].isPresent = false
	}
}

// setLabel gives the item a label, if Kind.Labels names it.
func (d *decoder[T]) setLabel(key, value []byte) {
	for i, wanted := range d.kind.Labels {
		if wanted == string(key) {
			label := &d.item.labels[i]
			label.isPresent = true
			label.value = append(label.value[:0], value...)
			return
		}
	}
}

// ReadJSON reads a JSON object into the item. It makes decoder a wire.ObjectReader, with Reset and Schema.
func (d *decoder[T]) ReadJSON(object []byte) error {
	if err := wire.WantObject(object, ""); err != nil {
		return err
	}
	d.item.json = object
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
	it := &d.item
	for name, value := range wire.Members(object) {
		var err error
		switch string(name) {
		case "namespace":
			err = it.namespace.Read(value, "metadata.namespace")
		case "name":
			err = it.name.Read(value, "metadata.name")
		case "uid":
			err = it.uid.Read(value, "metadata.uid")
		case "resourceVersion":
			err = it.version.Read(value, "metadata.resourceVersion")
		case "generation":
			err = wire.Unmarshal(value, &it.generation, "metadata.generation")
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
		d.item.dropLabels() // an earlier member of the same name may have set some, as with encoding/json
	}
	text := &d.item.labelValue
	for name, value := range wire.Members(object) {
		*text = (*text)[:0] // Read leaves it so if the value is null
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
	it := &d.item
	for name, value := range wire.Members(object) {
		switch string(name) {
		case "nodeName":
			err := it.nodeName.Read(value, "spec.nodeName")
			if d.forgive(err) != nil {
				return err
			}
		case "name":
			it.specName = wire.RawOf(value)
		case "count":
			it.specCount = wire.RawOf(value)
		}
	}
	return nil
}

func (d *decoder[T]) readStatus(object []byte) error {
	if err := wire.WantObject(object, "status"); err != nil {
		return d.forgive(err)
	}
	status := &d.item.status
	for name, value := range wire.Members(object) {
		switch string(name) {
		case "healthy":
			status.Healthy = wire.RawOf(value)
		case "count":
			status.Count = wire.RawOf(value)
		case "observedGeneration":
			status.ObservedGeneration = wire.RawOf(value)
		}
	}
	return nil
}

// forgive returns the error, except that it returns nil if a value of a lenient kind has the wrong type.
func (d *decoder[T]) forgive(err error) error {
	if d.kind.Lenient && errors.As(err, new(*json.UnmarshalTypeError)) {
		return nil
	}
	return err
}

// Schema says where the fields of a protobuf object go. The field numbers are those of the generated.proto files in
// k8s.io/api and k8s.io/apimachinery.
func (d *decoder[T]) Schema() wire.Schema {
	it := &d.item
	known := wire.Schema{
		1: wire.Schema{ // metadata
			1:  &it.name,
			3:  &it.namespace,
			5:  &it.uid,
			6:  &it.version,
			11: wire.StringMap(d.setLabel),
		},
	}
	if !d.kind.MetadataOnly {
		known[2] = wire.Schema{ // spec
			10: &it.nodeName,
		}
	}
	return known
}
