package object

import "strings"

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
	Labels []string   // the keys of the labels to keep; all other labels are dropped
	Fields []Field[T] // texts beside the metadata, which are read as they arrive

	// ReadJSON reads all other fields from the whole object in JSON, a valid object. nil means that there are none. The
	// object may be one that was read before, and the memory of the text is reused after the call.
	ReadJSON func(obj T, text []byte)

	// PatchMetric is the metric that counts patches of this kind. "" means that they are not counted.
	PatchMetric string
}

// Field is a text in an object, beside its metadata: where the server has it, and where podcount keeps it. In an object
// that came as PartialObjectMetadata, it is "". A value that is longer than any name counts as "", too.
type Field[T any] struct {
	JSON     string // the two names that lead to it, such as spec.nodeName
	Protobuf [2]int // the numbers that lead to it, from the generated.proto files in k8s.io/api
	Of       func(obj T) *string
}

// IsOptional reports whether the server may lack the resource. Resources under /apis/ may come from
// CustomResourceDefinitions, which may be created and removed at any time. All of them are treated like that.
func (k *Kind[T]) IsOptional() bool { return strings.HasPrefix(k.API, "/apis/") }

// APIVersion returns the apiVersion of the kind's objects: v1, or GROUP/VERSION.
func (k *Kind[T]) APIVersion() string {
	if k.IsOptional() {
		return strings.TrimPrefix(k.API, "/apis/")
	}
	return strings.TrimPrefix(k.API, "/api/")
}
