// Package object knows what podcount keeps of an object: its key, its metadata, and the few fields that each kind has.
// A Decoder reads objects from lists, watches and other answers.
package object

import (
	"errors"
	"strings"

	"podcount/internal/api/objectmeta"
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

// Object is a pointer to a struct that embeds Meta, such as *Pod. Objects in a store never change, except Meta.Mark, so
// they can be read without a lock.
type Object[T any] interface {
	comparable
	ObjectMeta() *Meta

	// HasSameFields compares all fields except those of Meta.
	HasSameFields(T) bool
}

// Meta is the part of an object's metadata that podcount uses.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
type Meta struct {
	objectmeta.Metadata

	// Mark is for the Store that keeps the object, and guarded by its lock. It stands here because a map of marks would
	// need far more memory.
	Mark uint32
}

// ObjectMeta makes every struct that embeds Meta an Object, together with HasSameFields.
func (m *Meta) ObjectMeta() *Meta { return m }

// Key returns the object's namespace and name.
func (m *Meta) Key() Key {
	namespace, name, isNamespaced := strings.Cut(m.NamespacedName(), "/")
	if !isNamespaced {
		return Key{Name: m.NamespacedName()}
	}
	return Key{Namespace: namespace, Name: name}
}

// IsSameVersion reports whether two objects are one object in one version.
func (m *Meta) IsSameVersion(other *Meta) bool {
	return m.UID() == other.UID() && m.ResourceVersion() == other.ResourceVersion()
}

// IsNewer reports whether resourceVersion a is newer than b. Versions are decimal numbers of any length. If one of them
// is not a number, a is newer than b unless they are equal, so no event is lost.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5504-comparable-resource-version
func IsNewer(a, b string) bool {
	if !IsDecimal(a) || !IsDecimal(b) {
		return a != b
	}
	a = strings.TrimLeft(a, "0")
	b = strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}

// IsDecimal reports whether a resourceVersion is a number, so that it can be compared.
func IsDecimal(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// A patch has these errors in two cases that are no failures of the request.
var (
	// ErrGone means that the object was deleted. Perhaps another object was created under its name.
	ErrGone = errors.New("the object was deleted")

	// ErrStripped means that the server accepted a patch, but the object in its answer does not have what was patched.
	ErrStripped = errors.New("the server accepted the patch but dropped what it writes: " +
		"look for a mutating webhook, a MutatingAdmissionPolicy or a schema that removes it")
)
