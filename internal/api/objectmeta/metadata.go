// Package objectmeta knows the metadata of objects: their names, uids, versions and labels. It knows no kind of object.
//
// It checks names and labels, and parses the selectors that users write. In this, it accepts what the API server
// accepts. A Packer keeps the metadata of many objects in little memory.
//
// https://kubernetes.io/docs/concepts/overview/working-with-objects/
package objectmeta

import (
	"slices"
	"strings"
)

const (
	separator = "\x00" // between two parts of a text
	present   = "="    // before the value of a label that the object has
)

// The parts of Metadata.text. The values of the labels follow these parts, unless they are shared.
const (
	namePart = iota // namespace/name
	uidPart
	versionPart
	nameParts // the number of the parts above
)

// Metadata is the metadata of one object, in little memory. It never changes, so any goroutine may use it. The zero
// value has only empty strings.
//
// It holds all strings of an object in one text. A zero byte, shown as · here, separates its parts:
//
//	team-1/web-0 · 2bda54ea-2b99-47e1-9896-3abbea112061 · 217
//	namespace/name   uid                                  resourceVersion
//
// The values of the labels follow. They are one part for each key that the Packer keeps: = and the value, or nothing if
// the object does not have the label. The first object with certain values has them in its text:
//
//	text    team-1/web-0 · 2bda54ea-2b99-47e1-9896-3abbea112061 · 217 · =web ·  · =blue
//	labels  ──▶ keys    app, run, color
//
// All other objects with these values share them:
//
//	text    team-1/web-0 · 2bda54ea-2b99-47e1-9896-3abbea112061 · 217
//	labels  ──▶ keys    app, run, color
//	            values  =web ·  · =blue
//
// No name and no label of Kubernetes contains a zero byte. A Packer refuses objects that have one.
type Metadata struct {
	text   string
	labels *labelSet // nil if the object has none of the labels that the Packer keeps
}

// labelSet has the keys of the labels that an object can have. It also has the values if several objects share them.
type labelSet struct {
	keys   []string
	values string // "" if each object has the values in its text
}

// NamespacedName returns namespace/name, or only the name of a cluster-scoped object.
func (m *Metadata) NamespacedName() string { return part(m.text, namePart) }

// UID returns the object's uid, which differs from that of every other object, even of one with the same name.
func (m *Metadata) UID() string { return part(m.text, uidPart) }

// ResourceVersion returns the version of the object, which increases with each change.
func (m *Metadata) ResourceVersion() string { return part(m.text, versionPart) }

// Label returns the value of a label. ok is false if the object does not have the label, or if the Packer does not keep
// it.
func (m *Metadata) Label(key string) (value string, ok bool) {
	if m.labels == nil {
		return "", false
	}
	i := slices.Index(m.labels.keys, key)
	if i < 0 {
		return "", false
	}
	return strings.CutPrefix(part(m.labelValues(), i), present)
}

// HasSameLabels reports whether both objects have the same labels. Packers with different keys may have packed them:
// then it reports false, unless neither object has a label.
func (m *Metadata) HasSameLabels(other *Metadata) bool {
	if m.labels == nil || other.labels == nil {
		return m.labels == other.labels
	}
	return slices.Equal(m.labels.keys, other.labels.keys) && m.labelValues() == other.labelValues()
}

// labelValues returns the values of the labels. m.labels must not be nil.
func (m *Metadata) labelValues() string {
	if m.labels.values != "" {
		return m.labels.values
	}
	return skipParts(m.text, nameParts)
}

// part returns the part of a text with this index, or "" if the text has no such part.
func part(text string, index int) string {
	found, _, _ := strings.Cut(skipParts(text, index), separator)
	return found
}

// skipParts returns what follows the first n parts of a text.
func skipParts(text string, n int) string {
	for range n {
		_, text, _ = strings.Cut(text, separator)
	}
	return text
}
