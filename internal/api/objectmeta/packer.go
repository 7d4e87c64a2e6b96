package objectmeta

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"unicode/utf8"
)

// Fields is the metadata of an object as the server sent it.
type Fields struct {
	Namespace       []byte // empty if the object is cluster-scoped
	Name            []byte
	UID             []byte
	ResourceVersion []byte
	Labels          []Label // Labels[i] has the key keys[i] of NewPacker
}

// Label is a label whose key is known. The object does not have the label unless IsPresent is set.
type Label struct {
	IsPresent bool
	Value     []byte
}

// Packer packs the metadata of one object after another. It remembers labels, so that objects with the same labels
// share them. It is not safe for concurrent use.
type Packer struct {
	keys   []string
	buffer []byte // what Pack has written last

	// The first object with certain values of labels is their owner, and has them in its text: the first picture of
	// Metadata. The Packer shares them from the second object on: the second picture. So an object whose labels are
	// unique needs no labelSet of its own.
	unshared *labelSet                     // for all objects that have the values in their text
	owners   boundedMap[uint64, uint64]    // the hash of the values → the hash of their owner's name
	hashSeed maphash.Seed                  // for owners
	shared   boundedMap[string, *labelSet] // by labelSet.values
}

// NewPacker returns a Packer that keeps the labels with these keys.
func NewPacker(keys []string) *Packer {
	return &Packer{
		keys:     keys,
		unshared: &labelSet{keys: keys},
		owners:   boundedMap[uint64, uint64]{},
		hashSeed: maphash.MakeSeed(),
		shared:   boundedMap[string, *labelSet]{},
	}
}

// Draft is a Metadata in the memory of a Packer. It is valid until the next Pack. Comparing it with the Metadata of a
// known object allocates nothing.
type Draft struct {
	text   []byte
	labels *labelSet
}

// NamespacedName returns namespace/name, or only the name of a cluster-scoped object. It is valid until the next Pack.
func (d Draft) NamespacedName() []byte {
	name, _, _ := bytes.Cut(d.text, []byte(separator))
	return name
}

// Equals reports whether m is the same version of the same object, with the same labels.
//
// It is fast because it does not compare the values of shared labels. So it may report false for equal objects if one
// of them was packed before its labels were shared. Metadata.HasSameLabels is exact.
func (d Draft) Equals(m *Metadata) bool { return d.labels == m.labels && string(d.text) == m.text }

// Keep returns the Metadata in memory of its own.
func (d Draft) Keep() Metadata { return Metadata{text: string(d.text), labels: d.labels} }

// Pack packs the metadata of an object. It returns an error if a field is longer than its limit, if a name contains a
// slash, or if a field contains a zero byte, U+FFFD or bytes that are not UTF-8.
func (p *Packer) Pack(fields Fields) (Draft, error) {
	if err := checkSizes(fields); err != nil {
		return Draft{}, err
	}
	p.buffer = appendNames(p.buffer[:0], fields)
	namesEnd := len(p.buffer)
	wantParts := nameParts
	hasLabels := slices.ContainsFunc(fields.Labels, func(l Label) bool { return l.IsPresent })
	if hasLabels {
		p.buffer = appendLabels(p.buffer, fields.Labels)
		wantParts += len(fields.Labels)
	}
	if err := checkParts(p.buffer, wantParts, fields); err != nil {
		return Draft{}, err
	}
	draft := Draft{text: p.buffer[:namesEnd]}
	if !hasLabels {
		return draft, nil
	}
	values := p.buffer[namesEnd+len(separator):]
	draft.labels = p.share(values, draft.NamespacedName())
	if draft.labels == nil {
		draft.labels = p.unshared
		draft.text = p.buffer
	}
	return draft, nil
}

// appendNames appends namespace/name, the uid and the resourceVersion, with separators between them.
func appendNames(text []byte, fields Fields) []byte {
	if len(fields.Namespace) > 0 {
		text = append(text, fields.Namespace...)
		text = append(text, '/')
	}
	text = append(text, fields.Name...)
	text = append(text, separator...)
	text = append(text, fields.UID...)
	text = append(text, separator...)
	return append(text, fields.ResourceVersion...)
}

// appendLabels appends a part for each label, with a separator before it.
func appendLabels(text []byte, labels []Label) []byte {
	for _, label := range labels {
		text = append(text, separator...)
		if label.IsPresent {
			text = append(text, present...)
			text = append(text, label.Value...)
		}
	}
	return text
}

// NameLimit is the length of the longest name of an object, in bytes.
const NameLimit = 253

// The lengths of the longest fields, in bytes. Those of namespaces and labels are of the API. A uid has 36 bytes, and a
// version is a number of 64 bits, so these have room to grow.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
const (
	namespaceLimit = 63
	uidLimit       = 64
	versionLimit   = 64
	labelLimit     = 63
)

// checkSizes returns an error if a field is longer than its limit.
func checkSizes(fields Fields) error {
	switch {
	case len(fields.Namespace) > namespaceLimit:
		return sizeError("namespace", fields.Namespace, namespaceLimit)
	case len(fields.Name) > NameLimit:
		return sizeError("name", fields.Name, NameLimit)
	case len(fields.UID) > uidLimit:
		return sizeError("uid", fields.UID, uidLimit)
	case len(fields.ResourceVersion) > versionLimit:
		return sizeError("resourceVersion", fields.ResourceVersion, versionLimit)
	}
	for _, label := range fields.Labels {
		if label.IsPresent && len(label.Value) > labelLimit {
			return sizeError("value of a label", label.Value, labelLimit)
		}
	}
	return nil
}

func sizeError(field string, text []byte, limit int) error {
	return fmt.Errorf("the %s has %d bytes; the limit is %d", field, len(text), limit)
}

// checkParts checks a text that was made of fields, and must have n parts.
func checkParts(text []byte, n int, fields Fields) error {
	hasSeparatorWithin := bytes.Count(text, []byte(separator)) != n-1
	hasSlashWithin := bytes.IndexByte(fields.Namespace, '/') >= 0 || bytes.IndexByte(fields.Name, '/') >= 0
	// encoding/json replaces bytes that are not UTF-8 by U+FFFD.
	isGarbled := !utf8.Valid(text) || bytes.Contains(text, []byte("\uFFFD"))
	if hasSeparatorWithin || hasSlashWithin || isGarbled {
		return errors.New("a name contains a slash, or a field contains a zero byte, U+FFFD or bytes " +
			"that are not UTF-8")
	}
	return nil
}

// share returns the labelSet that objects with these values share. It is nil if the named object is the owner of the
// values: then it has them in its text. If the values have no owner, share makes the object their owner. It compares
// hashes: a collision does no harm, because it only shares the values too early or too late.
func (p *Packer) share(values, name []byte) *labelSet {
	if known := p.shared[string(values)]; known != nil {
		return known
	}
	nameHash := maphash.Bytes(p.hashSeed, name)
	valuesHash := maphash.Bytes(p.hashSeed, values)
	owner, hasOwner := p.owners[valuesHash]
	if !hasOwner {
		p.owners.add(valuesHash, nameHash)
		return nil
	}
	if owner == nameHash {
		return nil
	}
	delete(p.owners, valuesHash) // From now on, the values are in p.shared.
	set := &labelSet{keys: p.keys, values: string(values)}
	p.shared.add(set.values, set)
	return set
}
