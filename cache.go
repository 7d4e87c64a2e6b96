package main

// cache.go owns what podcount remembers: the kinds and which of their fields are read, the trimmed objects, and their
// store with its indexes. It knows no HTTP.

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
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"podcount/internal/wire"
)

// Key names an object within its kind. Namespace is empty for cluster-scoped kinds.
type Key struct{ Namespace, Name string }

func (k Key) String() string               { return strings.TrimPrefix(k.Namespace+"/"+k.Name, "/") }
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil } // so that JSON has a string

// Meta is what podcount uses of ObjectMeta. Its texts are one string: one allocation an object, and one comparison
// with another. Labels that several objects have in common are held once, in a labelSet. Those that no other object
// has are a part of the string, so that they cost little more than their bytes.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
type Meta struct {
	labels   *labelSet // those that Kind.Keep names; nil: none
	text     string    // namespace/name, uid, resourceVersion and, after a labelMark each, the values of its own labels
	key, uid uint16    // where the first two end in text
	list     uint32    // the number of the newest list that had the object; the store's, under its lock
}

// labelSet is the labels that objects have in common; or, without values, just the keys of labels that they have.
type labelSet struct {
	keys   []string
	values []string // of these keys; nil: they stand in the text of each object
}

const labelMark = "\x00" // in no name and in no label

func (m *Meta) meta() *Meta { return m }

// Key is the object's place in the store and in the workqueue.
func (m *Meta) Key() Key {
	slash := strings.IndexByte(m.text[:m.key], '/') // -1: no namespace
	return Key{m.text[:max(slash, 0)], m.text[slash+1 : m.key]}
}

// UID tells an object from another that had its name before.
func (m *Meta) UID() string { return m.text[m.key:m.uid] }

// ResourceVersion is the version of the object's content.
func (m *Meta) ResourceVersion() string {
	version, _, _ := strings.Cut(m.text[m.uid:], labelMark)
	return version
}

// Label returns the value of a label, if the object has it and Kind.Keep names it.
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

// labelValue returns the value that belongs to the key i of labels.
func (m *Meta) labelValue(i int) string {
	if m.labels.values != nil {
		return m.labels.values[i]
	}
	rest := m.text[m.uid:]
	for range i + 1 {
		_, rest, _ = strings.Cut(rest, labelMark)
	}
	value, _, _ := strings.Cut(rest, labelMark)
	return value
}

// isAs reports whether all is the same, where text is the other's. It compares labelSets by address: equal
// labels do not match if they are in two sets, or if one object alone shares them. That only costs memory, as
// hasSameLabels compares the values.
func (m *Meta) isAs(o *Meta, text []byte) bool {
	return m.uid == o.uid && m.labels == o.labels && m.text == string(text)
}

// hasSameLabels reports whether both have the same labels by keys and values, whether they share them or not.
func (m *Meta) hasSameLabels(o *Meta) bool {
	if m.labels == nil || o.labels == nil {
		return m.labels == o.labels
	}
	if m.labels == o.labels && m.labels.values != nil {
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

// Object is a pointer to a struct with Meta in it. Once stored it is never modified, so that it can be read without a
// lock.
type Object[T any] interface {
	comparable // to nil
	meta() *Meta
	same(T) bool // nothing changed that a controller can see, in what both have beside Meta
	take(*item)  // sets all fields but Meta
}

// Pod is a pod as podcount sees it. NodeName is empty until it is scheduled, and when only metadata was asked for.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
type Pod struct {
	Meta
	NodeName string
}

func (p *Pod) same(o *Pod) bool { return p.NodeName == o.NodeName }
func (p *Pod) take(it *item)    { p.NodeName = it.intern(it.nodeName) }

// podFields are the fields by which the API server selects pods.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
var podFields = []string{
	"metadata.name", "metadata.namespace", "spec.host", "spec.hostNetwork", "spec.nodeName", "spec.restartPolicy",
	"spec.schedulerName", "spec.serviceAccountName", "status.nominatedNodeName", "status.phase", "status.podIP",
	"status.podIPs",
}

// Node is a node as podcount sees it: its name and the labels in question.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/
type Node struct{ Meta }

func (n *Node) same(*Node) bool { return true }
func (n *Node) take(*item)      {}

// label is the label's text, nil where it is not there.
func (n *Node) label(key string) any {
	if v, ok := n.Label(key); ok {
		return v
	}
	return nil
}

// Count is a custom resource, see deploy/count-crd.yaml: it says how many pods of a name its namespace should have.
type Count struct {
	Meta
	countSpec
	Generation int64 // goes up with each change of the spec
	Status     countStatus
}

type countSpec struct {
	Name    string
	Want    int
	Invalid string // what is wrong with the spec; then Name or Want says nothing
}

// countStatus is a Count's status, each field as JSON writes it, and empty where it is not there.
type countStatus struct {
	Healthy            wire.Raw `json:"healthy,omitempty"`
	Count              wire.Raw `json:"count,omitempty"`
	ObservedGeneration wire.Raw `json:"observedGeneration,omitempty"`
}

func (c *Count) same(o *Count) bool {
	return c.countSpec == o.countSpec && c.Generation == o.Generation && c.Status == o.Status
}

func (c *Count) take(it *item) {
	c.countSpec = countSpec{}
	c.Generation = it.generation
	c.Status = it.status
	if json.Unmarshal([]byte(it.specName), &c.Name) != nil || c.Name == "" {
		c.Invalid = fmt.Sprintf("spec.name is %.100s, and must be the name of an app", cmp.Or(it.specName, "missing"))
		return
	}
	var err error
	c.Want, err = strconv.Atoi(string(it.specCount))
	if err != nil || c.Want < 0 {
		had := cmp.Or(it.specCount, "missing")
		c.Invalid = fmt.Sprintf("spec.count is %.100s, and must be a whole number, 0 or more", had)
	}
}

// Kind is all that the generic code has to know of a kind.
type Kind[T Object[T]] struct {
	Name             string   // as in the API: Pod
	API              string   // /api/v1, /apis/GROUP/VERSION; what is under /apis/ may be missing, and come and go
	Resource         string   // pods
	Namespace        string   // look at this one only; "": all, or there are none
	Selector, Fields string   // labelSelector and fieldSelector, evaluated by the server
	Protobuf         bool     // ask for protobuf first: custom resources have none
	MetadataOnly     bool     // spec and status are not needed: ask for PartialObjectMetadata
	Keep             []string // the keys of the labels that stay in memory
	Lenient          bool     // no schema guards it: what is of the wrong type, but in metadata, is read as nothing
	Patches          string   // the metric of patches
	New              func() T
}

// path is that of all objects; with a namespace, of those in it.
func (k *Kind[T]) path(namespace string) string {
	if namespace != "" {
		namespace = "/namespaces/" + namespace
	}
	return k.API + namespace + "/" + k.Resource
}

// newerVersion compares resourceVersions: decimals of any length (KEP-5504). What is none is newer, so that no event is
// lost.
func newerVersion(a, b string) bool {
	decimal := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !decimal(a) || !decimal(b) {
		return a != b
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) > 0
}

// Store is the cache of one kind. Anyone may read; its reflector alone lists and applies; who writes may apply the
// answer.
type Store[T Object[T]] struct {
	index    []func(T) string          // the values under which Count finds an object
	indexIn  []func(T) string          // those under which CountIn finds it, which mean something in its namespace alone
	versions bool                      // each new version is a change, even if nothing that is kept has changed
	mu       sync.RWMutex              // guards all below
	items    map[string]T              // by namespace/name, which is the beginning of the object's own text
	counts   map[string]int            // by index value
	countsIn map[string]map[string]int // by namespace, then by index value
	members  map[string]map[string]T   // the same objects, by index value and key; nil unless By is wanted
	list     uint32                    // the number of the newest list
	listed   bool                      // a list is complete
}

// NewStore makes an empty store. Each index names a value by which Count and By find an object, "" for none.
func NewStore[T Object[T]](index ...func(T) string) *Store[T] {
	return &Store[T]{
		index:    index,
		items:    map[string]T{},
		counts:   map[string]int{},
		countsIn: map[string]map[string]int{},
	}
}

func locked[V any](mu *sync.RWMutex, read func() V) V {
	mu.RLock()
	defer mu.RUnlock()
	return read()
}

// Get returns the object, or nil.
func (s *Store[T]) Get(k Key) T { return locked(&s.mu, func() T { return s.items[k.String()] }) }

// Len is the number of objects.
func (s *Store[T]) Len() int { return locked(&s.mu, func() int { return len(s.items) }) }

// Count is the number of objects whose index value is v, in O(1).
func (s *Store[T]) Count(v string) int { return locked(&s.mu, func() int { return s.counts[v] }) }

// CountIn is the number of objects of a namespace whose value in Store.indexIn is v, in O(1).
func (s *Store[T]) CountIn(namespace, v string) int {
	return locked(&s.mu, func() int { return s.countsIn[namespace][v] })
}

// By returns the objects that have an index value v, in no order and in O(1) of the others. It needs Store.members.
func (s *Store[T]) By(v string) []T {
	return locked(&s.mu, func() []T { return slices.Collect(maps.Values(s.members[v])) })
}

// All returns every object, in no order.
func (s *Store[T]) All() []T {
	return locked(&s.mu, func() []T { return slices.AppendSeq(make([]T, 0, len(s.items)), maps.Values(s.items)) })
}

// countLocked takes the object under k into the indexes (by is 1), or out of them (-1).
func (s *Store[T]) countLocked(k string, obj T, by int) {
	for _, index := range s.indexIn {
		if v := index(obj); v != "" {
			s.countInLocked(obj.meta().Key().Namespace, v, by)
		}
	}
	for _, index := range s.index {
		v := index(obj)
		if v == "" {
			continue
		}
		s.counts[v] += by
		switch {
		case s.counts[v] == 0:
			delete(s.counts, v)
			delete(s.members, v)
		case by < 0:
			delete(s.members[v], k)
		case s.members != nil:
			if s.members[v] == nil {
				s.members[v] = map[string]T{}
			}
			s.members[v][k] = obj
		}
	}
}

// countInLocked adds to the count of an index value in a namespace. The two are not joined to one key of a single
// map, as that would need bytes of its own: those of the value are an object's already.
func (s *Store[T]) countInLocked(namespace, v string, by int) {
	counts := s.countsIn[namespace]
	if counts == nil {
		counts = map[string]int{}
		s.countsIn[strings.Clone(namespace)] = counts // a part of the object's text would keep all of that in memory
	}
	counts[v] += by
	if counts[v] == 0 {
		delete(counts, v)
	}
	if len(counts) == 0 {
		delete(s.countsIn, namespace)
	}
}

// Delta is one change of the cache: Old is nil for an object that is new, New for one that went. With both the same
// nothing has changed, but somebody wants to begin with what there is. Another uid under an object's name makes it two
// deltas.
type Delta[T Object[T]] struct{ Old, New T }

func (d Delta[T]) Key() Key { return cmp.Or(d.New, d.Old).meta().Key() }

// setLocked makes obj the object under k, nil removes it, and returns what changed.
func (s *Store[T]) setLocked(k string, obj T) []Delta[T] {
	var none T
	old := s.items[k]
	if old != none {
		s.countLocked(k, old, -1)
	}
	if obj != none {
		s.countLocked(k, obj, +1)
		s.items[k] = obj
	} else {
		delete(s.items, k)
	}
	switch {
	case old == obj: // there was none
		return nil
	case old == none || obj == none:
	case old.meta().UID() != obj.meta().UID():
		return []Delta[T]{{Old: old}, {New: obj}}
	case s.versions && old.meta().ResourceVersion() != obj.meta().ResourceVersion():
	case old.same(obj) && old.meta().hasSameLabels(obj.meta()):
		return nil
	}
	return []Delta[T]{{old, obj}}
}

// Apply takes one watch event (ADDED, MODIFIED, DELETED) and returns what changed: nothing, if the store knows a later
// version. (A DELETED from a selector has the old content, but a new version.) WRITTEN is what the server answered our
// own write: it only ever replaces the same object (by uid), as what the watch has removed stays removed; what it
// brings, the watch will not tell again.
func (s *Store[T]) Apply(event string, obj T) []Delta[T] {
	m := obj.meta()
	k, version := m.text[:m.key], m.ResourceVersion()
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.items[k]
	switch {
	case known && version != old.meta().ResourceVersion() && !newerVersion(version, old.meta().ResourceVersion()):
		return nil
	case event == "DELETED":
		obj = *new(T)
	case event == "WRITTEN" && (!known || old.meta().UID() != m.UID()):
		return nil
	case event == "WRITTEN":
		m.list = old.meta().list // one that is under way has seen it
	}
	return s.setLocked(k, obj)
}

// Listing collects one list. Until Commit the store is unchanged: a list that fails part-way is simply dropped.
type Listing[T Object[T]] struct {
	store   *Store[T]
	number  uint32
	changed map[string]T // an unchanged object costs no memory: it is only marked
	n       int
}

// List begins a list of everything.
func (s *Store[T]) List() *Listing[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list++
	return &Listing[T]{store: s, number: s.list, changed: map[string]T{}}
}

// listLimit is how many objects a list may have: more than ten times what Kubernetes is made for. Some servers' lists
// have no end.
const listLimit = 2_000_000

// Add takes the list's next object, and its text, a string only if it has to be. What is not kept the caller may use
// again. It fails where the list has too many objects.
func (l *Listing[T]) Add(obj T, text []byte) (kept bool, err error) {
	if l.n >= listLimit {
		return false, fmt.Errorf("the list has more than %d objects: "+
			"give -namespace or -pod-selector, if they are pods", listLimit)
	}
	l.n++
	m := obj.meta()
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	cur, isKnown := l.store.items[string(text[:m.key])]
	if isKnown && cur.meta().isAs(m, text) && cur.same(obj) {
		cur.meta().list = l.number
		return false, nil
	}
	m.text = string(text)
	m.list = l.number
	l.changed[m.text[:m.key]] = obj
	return true, nil
}

// Commit makes the list the truth, whatever versions its objects carry (etcd may have been restored from a backup), and
// returns what changed: added, updated and removed. For the first list it returns nil: that is all the store, twice.
func (l *Listing[T]) Commit() (ds []Delta[T]) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.listed && len(s.items) == 0
	if s.listed = true; first {
		s.items = l.changed
		for k, obj := range s.items {
			s.countLocked(k, obj, +1)
		}
		return nil
	}
	for k, obj := range l.changed {
		ds = append(ds, s.setLocked(k, obj)...)
	}
	for k, obj := range s.items {
		if obj.meta().list != l.number {
			ds = append(ds, s.setLocked(k, *new(T))...)
		}
	}
	return ds
}

const (
	metaLimit   = 64 << 10 // bytes of Meta.text
	internLimit = 8192     // how many texts a decoder remembers
)

// item is one object on its way from the wire into memory: what any kind reads of it. The next one overwrites it. One
// more field needs a place here, a line in Reset, its number in Schema, its name in readMetadata, readSpec or
// readStatus, and a kind that takes and compares it.
type item struct {
	namespace, name, uid, version wire.Text // of metadata
	generation                    int64
	labels                        []itemLabel // one for each of Kind.Keep
	nodeName                      wire.Text   // of spec, as the next two
	specName, specCount           wire.Raw
	status                        countStatus

	text  wire.Text // as in Meta
	key   int       // where the key ends in it
	label wire.Text // the value of the label in hand
	set   wire.Text // the labels, as decoder.keySets and sharedSets have them in their keys
	texts map[string]string
}

// itemLabel is a label that Kind.Keep names.
type itemLabel struct {
	isThere bool
	value   wire.Text
}

// intern returns the text, the same one for the same bytes.
func (it *item) intern(t wire.Text) string {
	if known, ok := it.texts[string(t)]; ok {
		return known
	}
	text := string(t)
	return remember(it.texts, internLimit, text, text)
}

// remember returns what is known of k, or else v, which is known from now on. A map that has limit keys forgets one.
func remember[K comparable, V any](known map[K]V, limit int, k K, v V) V {
	if old, ok := known[k]; ok {
		return old
	}
	if len(known) >= limit {
		for one := range known { // the first is another one each time
			delete(known, one)
			break
		}
	}
	known[k] = v
	return v
}

// decoder makes the objects of one stream at a time, through memory that it uses again: one that is known costs none.
type decoder[T Object[T]] struct {
	kind  *Kind[T]
	wire  *wire.Decoder // reads into item, by way of the methods that make this a wire.ObjectReader
	item  item
	spare T // was made, and nobody kept it

	sharedSets map[string]*labelSet // labels that several objects have, by keys and values
	keySets    map[string]*labelSet // sets without values, for objects that have these in their text, by keys
	seen       map[uint64]uint64    // by the hash of labels not shared yet: that of the object's key that had them first
	seed       maphash.Seed
}

func newDecoder[T Object[T]](kind *Kind[T]) *decoder[T] {
	d := &decoder[T]{
		kind:       kind,
		item:       item{texts: map[string]string{}},
		sharedSets: map[string]*labelSet{},
		keySets:    map[string]*labelSet{},
		seen:       map[uint64]uint64{},
		seed:       maphash.MakeSeed(),
	}
	d.wire = wire.NewDecoder(d)
	return d
}

// Reset forgets the last item.
func (d *decoder[T]) Reset() {
	it := &d.item
	it.namespace = it.namespace[:0]
	it.name = it.name[:0]
	it.uid = it.uid[:0]
	it.version = it.version[:0]
	it.generation = 0
	if len(it.labels) != len(d.kind.Keep) {
		it.labels = make([]itemLabel, len(d.kind.Keep))
	}
	it.dropLabels()
	it.nodeName = it.nodeName[:0]
	it.specName = ""
	it.specCount = ""
	it.status = countStatus{}
}

func (it *item) dropLabels() {
	for i := range it.labels {
		it.labels[i].isThere = false
	}
}

// setLabel gives the item a label, if Kind.Keep names it.
func (d *decoder[T]) setLabel(key, value []byte) {
	for i, kept := range d.kind.Keep {
		if kept == string(key) {
			label := &d.item.labels[i]
			label.isThere = true
			label.value = append(label.value[:0], value...)
			return
		}
	}
}

// object makes an object of the item, but for its text: that stands in item.text. Who keeps the object clears spare.
func (d *decoder[T]) object() (obj T, err error) {
	it := &d.item
	it.text = append(it.text[:0], it.namespace...)
	if len(it.namespace) > 0 {
		it.text = append(it.text, '/')
	}
	it.text = append(it.text, it.name...)
	it.key = len(it.text)
	it.text = append(it.text, it.uid...)
	uid := len(it.text)
	it.text = append(it.text, it.version...)
	if len(it.name) == 0 || len(it.uid) == 0 || len(it.version) == 0 {
		return obj, fmt.Errorf("%s %.300q has no metadata.name, uid or resourceVersion", d.kind.Name, it.text[:it.key])
	}
	// A slash would be taken for the namespace's end; JSON that is not UTF-8 reaches us with U+FFFD in it.
	isOdd := bytes.IndexByte(it.name, '/') >= 0 || bytes.IndexByte(it.namespace, '/') >= 0 ||
		bytes.ContainsRune(it.text, utf8.RuneError) || bytes.IndexByte(it.text, labelMark[0]) >= 0
	labels, err := d.labels()
	if err != nil || isOdd || len(it.text) >= metaLimit {
		return obj, fmt.Errorf("%s %.300q: too long, or with characters that no name has", d.kind.Name, it.text[:it.key])
	}
	if d.spare == *new(T) {
		d.spare = d.kind.New()
	}
	m := d.spare.meta()
	m.key = uint16(it.key)
	m.uid = uint16(uid)
	m.labels = labels
	d.spare.take(it)
	return d.spare, nil
}

var errMarkInLabel = errors.New("a label with a character that no label has")

// labels returns the item's labels. Those that another object had as well are shared from then on. Others are added to
// the item's text.
func (d *decoder[T]) labels() (*labelSet, error) {
	it := &d.item
	it.set = it.set[:0]
	for i, label := range it.labels {
		if label.isThere {
			it.set = binary.AppendUvarint(it.set, uint64(i+1)) // which has no labelMark in it
		}
	}
	if len(it.set) == 0 {
		return nil, nil
	}
	keys := len(it.set)
	for _, label := range it.labels {
		if !label.isThere {
			continue
		}
		if bytes.IndexByte(label.value, labelMark[0]) >= 0 {
			return nil, errMarkInLabel
		}
		it.set = append(it.set, labelMark...)
		it.set = append(it.set, label.value...)
	}
	if shared := d.sharedSets[string(it.set)]; shared != nil {
		return shared, nil
	}
	own := d.keySets[string(it.set[:keys])]
	if own == nil {
		own = remember(d.keySets, internLimit, string(it.set[:keys]), &labelSet{keys: d.labelKeys()})
	}
	if hadByAnother := d.noteLabels(); !hadByAnother {
		it.text = append(it.text, it.set[keys:]...)
		return own, nil
	}
	return remember(d.sharedSets, internLimit, string(it.set), &labelSet{own.keys, d.labelValues(len(own.keys))}), nil
}

// noteLabels remembers which object has the labels in item.set, and reports whether another had them before, as far as
// it is remembered. Such labels are shared from then on, and it forgets them. The price of a mistake is a few bytes.
func (d *decoder[T]) noteLabels() (hadByAnother bool) {
	labels := maphash.Bytes(d.seed, d.item.set)
	object := maphash.Bytes(d.seed, d.item.text[:d.item.key])
	if remember(d.seen, internLimit, labels, object) == object {
		return false
	}
	delete(d.seen, labels)
	return true
}

func (d *decoder[T]) labelKeys() (keys []string) {
	for i, label := range d.item.labels {
		if label.isThere {
			keys = append(keys, d.kind.Keep[i])
		}
	}
	return keys
}

func (d *decoder[T]) labelValues(n int) []string {
	values := make([]string, 0, n)
	for _, label := range d.item.labels {
		if label.isThere {
			values = append(values, string(label.value))
		}
	}
	return values
}

// own is object, with its text: it is the caller's.
func (d *decoder[T]) own() (obj T, err error) {
	if obj, err = d.object(); err == nil {
		obj.meta().text, d.spare = string(d.item.text), *new(T)
	}
	return obj, err
}

// parse reads one object of JSON.
func (d *decoder[T]) parse(data []byte) (obj T, err error) {
	if err := d.wire.Object(data); err != nil {
		return obj, err
	}
	return d.own()
}

// ReadJSON reads an object of JSON into the item.
func (d *decoder[T]) ReadJSON(object []byte) error {
	if err := wire.WantObject(object, ""); err != nil {
		return err
	}
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
		d.item.dropLabels() // of a member of the same name before it; encoding/json drops them, too
	}
	text := &d.item.label
	for name, value := range wire.Members(object) {
		*text = (*text)[:0] // what null stands for
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

// forgive returns the error, but for a lenient kind nil where a value is of the wrong type.
func (d *decoder[T]) forgive(err error) error {
	if d.kind.Lenient && errors.As(err, new(*json.UnmarshalTypeError)) {
		return nil
	}
	return err
}

// Schema says where the fields of an object in protobuf go. The numbers are those of the generated.proto files of
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

// list reads a list object by object, and calls add, which is Listing.Add, for each. Its errors name the object's
// number in the list, and the place in the stream.
func (d *decoder[T]) list(
	r io.Reader, isProtobuf bool, add func(obj T, text []byte) (kept bool, err error),
) (wire.ListMeta, error) {
	n := 0
	take := func() error {
		obj, err := d.object()
		if err != nil {
			return fmt.Errorf("items: item %d: %w", n, err)
		}
		n++
		kept, err := add(obj, d.item.text)
		if kept {
			d.spare = *new(T)
		}
		return err
	}
	meta, err := d.wire.List(r, isProtobuf, take)
	var unreadable *wire.ItemError
	if errors.As(err, &unreadable) && n > 0 {
		previous := d.item.text[:d.item.key]
		err = fmt.Errorf("items: item %d, which follows %.300s: %w", unreadable.Item, previous, unreadable.Err)
	}
	return meta, err
}

// WatchEvent is one frame of a watch: ADDED, MODIFIED, DELETED or BOOKMARK with an Object, ERROR with a Status.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type WatchEvent[T any] struct {
	Type   string
	Object T // of a BOOKMARK, nothing but a resourceVersion
	Status *wire.Status
}

// events calls handle for each frame of a watch until the stream ends, or handle fails. An end between two frames is
// nil; a broken connection is its error as it is; everything that cannot be understood is a wire.GarbageError.
func (d *decoder[T]) events(r io.Reader, isProtobuf bool, handle func(WatchEvent[T]) error) error {
	return d.wire.Events(r, isProtobuf, func(frame wire.Event) error {
		ev := WatchEvent[T]{Type: frame.Type, Status: frame.Status}
		var err error
		switch {
		case ev.Status != nil:
		case ev.Type == "ADDED" || ev.Type == "MODIFIED" || ev.Type == "DELETED":
			ev.Object, err = d.own()
		case ev.Type == "BOOKMARK" && len(d.item.version) > 0:
			ev.Object = d.kind.New()
			ev.Object.meta().text = string(d.item.version)
		default:
			err = fmt.Errorf("unknown event type %q, or a bookmark without metadata.resourceVersion", ev.Type)
		}
		if err != nil {
			return wire.Garbage(err)
		}
		return handle(ev)
	})
}
