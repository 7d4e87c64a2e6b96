// Package wire reads what an API server sends: lists, watches and errors, in protobuf or in JSON. It reads them as they
// arrive, and takes only the fields that its caller asks for. However long the list is, it holds one object at a time
// in JSON, and one string at a time in protobuf. It limits the size of each piece.
//
// The package knows no kind, opens no connection, and never retries.
//
// To read a kind of object, implement ObjectReader, and make a Reader that reads into it. EachMember, At, Text and Raw
// help to write ReadJSON; Schema and StringMap are for the method Schema.
//
// https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The media types of the two forms, for the headers Accept and Content-Type.
const (
	JSON     = "application/json"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

const (
	// objectLimit is the maximum size of an object in protobuf, in bytes. API servers store objects of up to 3 MB.
	objectLimit = 8 << 20
	// pieceLimit is the maximum size of an object, or of any other single value, in JSON. It is larger because JSON can
	// be: encoders write one "<" as the six bytes "\u003c".
	pieceLimit = 3 * objectLimit
	// textLimit is the maximum size of a string, as it is written.
	textLimit = 64 << 10
	// versionLimit is the maximum size of a resourceVersion, which is a decimal number.
	versionLimit = 64
	// continueLimit is the maximum size of the token for the next page. It becomes part of a URL. API servers make it
	// of a version and a name.
	continueLimit = 4 << 10
	// typeLimit is how many bytes of the type of a frame are kept.
	typeLimit = 50
	// keptLimit is the maximum size of the memory that a Reader keeps for the next object.
	keptLimit = 1 << 20
	// headLimit is the maximum size of Event.Head.
	headLimit = 8 << 10
)

// ObjectReader receives the fields of one object after another. A Reader calls its methods, one at a time.
type ObjectReader interface {
	// Reset forgets the previous object. It is called before each object, and before each frame of a watch.
	Reset()

	// ReadJSON reads the fields of a JSON value, whose syntax has been checked. The value need not be an object. Read
	// it with EachMember, which checks that, and takes names exactly, as Kubernetes does; encoding/json would accept
	// NAME for name. Copy what must last: the memory is overwritten after the call.
	ReadJSON(object []byte) error

	// Schema returns the protobuf fields to read, and where to store them. It is called once for each stream in
	// protobuf, before the first object.
	Schema() Schema
}

// Reader reads objects, lists and watches, one after another, and reuses its memory for them. It can be used again
// after an error. It is not safe for concurrent use, and must not be called from its own callbacks.
type Reader struct {
	// WantsHead is called once for each frame of a watch, and reports whether Event.Head is wanted. nil means no.
	WantsHead func() bool

	into ObjectReader
	raw  json.RawMessage // the JSON value that was read last
}

// NewReader returns a Reader that reads every object into the same ObjectReader.
func NewReader(into ObjectReader) *Reader { return &Reader{into: into} }

func (rd *Reader) wantsHead() bool { return rd.WantsHead != nil && rd.WantsHead() }

// Object reads one JSON object, and ignores what follows it. Its errors name the offset.
func (rd *Reader) Object(r io.Reader) error {
	return rd.readObject(newSource(r).newJSONDecoder())
}

// ListMeta is the metadata of a list itself.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/list-meta/
type ListMeta struct {
	ResourceVersion string // the version of the cluster that the list shows
	Continue        string // the token for the next page, "" on the last page
}

// List reads a list, or one page of it, object by object. It calls handle after each object, while the ObjectReader
// holds that object. The first error ends the list, and the metadata may then be incomplete.
//
// List returns
//   - the error of handle, unchanged;
//   - an error that names the item if an object cannot be read, for example because the connection broke;
//   - an error if the answer is not a list: it has no items or no resourceVersion, or its metadata are too long;
//   - any other syntax error, or error of r.
func (rd *Reader) List(r io.Reader, isProtobuf bool, handle func() error) (ListMeta, error) {
	var meta ListMeta
	read := rd.listJSON
	if isProtobuf {
		read = rd.listProtobuf
	}
	isList, err := read(newSource(r), &meta, handle)
	if err != nil {
		return meta, err
	}
	if !isList || meta.ResourceVersion == "" {
		return meta, errors.New("not a list: it has no items or no metadata.resourceVersion")
	}
	return meta, meta.check()
}

// check returns an error if a field is longer than it can be.
func (m ListMeta) check() error {
	if len(m.ResourceVersion) > versionLimit {
		return fmt.Errorf("metadata.resourceVersion has %d bytes; the limit is %d", len(m.ResourceVersion), versionLimit)
	}
	if len(m.Continue) > continueLimit {
		return fmt.Errorf("metadata.continue has %d bytes; the limit is %d", len(m.Continue), continueLimit)
	}
	return nil
}

// Event is one frame of a watch. If its type is ADDED, MODIFIED, DELETED or BOOKMARK, the ObjectReader holds its
// object. The caller must reject types that Kubernetes does not have.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type Event struct {
	Type string // cut off if it is longer than any type of Kubernetes

	// Status is set if the type is ERROR. It is nil for other types, and if an ERROR in protobuf has no object. In JSON,
	// if the object is not a Status, or too large for one, the message of Status quotes the beginning.
	Status *Status

	// Size is the size of the frame in bytes, with the white space before it.
	Size int64

	// Head has the first bytes of the frame, at most 8 KB. It is nil unless Reader.WantsHead. Its memory is overwritten
	// after the call.
	Head []byte
}

// GarbageError means that a frame of a watch cannot be understood. Nothing after it in the stream can be used.
type GarbageError struct{ error }

// Unwrap returns the error that Garbage was given, with a prefix.
func (e GarbageError) Unwrap() error { return e.error }

// Garbage wraps err in a GarbageError. Callers of Events use it for what Events cannot check: the event's type, the
// object's name.
func Garbage(err error) error {
	return GarbageError{fmt.Errorf("frame: %w", err)}
}

// Events reads a watch, and calls handle for each frame, until the stream ends or handle fails. It returns
//   - nil if the stream ends between two frames;
//   - the error of handle, unchanged;
//   - the error of r, unchanged, if the connection breaks, even within a frame;
//   - a GarbageError if a frame cannot be understood, or is cut off by the end of the stream.
func (rd *Reader) Events(r io.Reader, isProtobuf bool, handle func(Event) error) error {
	src := newSource(r)
	var next func() (Event, error)
	if isProtobuf {
		next = rd.eventsProtobuf(src)
	} else {
		next = rd.eventsJSON(src)
	}
	for {
		event, err := next()
		if err == io.EOF {
			return nil
		}
		isBroken := src.err != nil && src.err != io.EOF // the connection
		if err != nil && isBroken {
			return src.err
		}
		if err != nil {
			return Garbage(err)
		}
		if err := handle(event); err != nil {
			return err
		}
	}
}
