// Package wire reads what an API server answers, in protobuf or in JSON, as it arrives: lists, watches, and refusals.
// It holds one object at most, whatever the length of a list, and takes nothing of an object but the fields that its
// reader asks for. It bounds what one piece may take. Its errors name the place where they can.
//
// It knows no kind: an ObjectReader says which fields are read, and where they go. It opens no connection, and never
// tries anything again.
//
// Whoever reads objects makes a type with the three methods of ObjectReader, and a Decoder that reads into it. For
// ReadJSON, there are Members, WantObject, Text, Unmarshal and Raw; for Schema, there are Schema and Message.
//
// https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The media types of the two forms, as in the headers Accept and Content-Type.
const (
	JSON     = "application/json"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

const (
	// objectLimit is the most bytes of an object in protobuf. API servers take objects of 3 MB.
	objectLimit = 8 << 20
	// pieceLimit is the most bytes of an object in JSON, or of anything else that is read whole there. It is larger
	// than in protobuf, as one byte of text, such as "<", may be six: "\u003c".
	pieceLimit = 3 * objectLimit
	// textLimit is the most bytes of a text that is read in protobuf.
	textLimit = 64 << 10
	// keptLimit is the most bytes of a decoder's memory that the next object may use again.
	keptLimit = 1 << 20
)

// ObjectReader takes the fields of one object after the other, be it in JSON or in protobuf. It is called by one
// Decoder, from within that one's methods.
type ObjectReader interface {
	// Reset forgets the object before. It comes before each object and each frame of a watch, and once more after the
	// last object of a list.
	Reset()

	// ReadJSON takes the fields of a value of JSON whose syntax is right. The value need not be an object: WantObject
	// finds out. Names of fields are exact, as those of Kubernetes are, whereas encoding/json would take NAME for
	// name: so read them with Members. The bytes are overwritten after the call; copy what is to be kept.
	ReadJSON(object []byte) error

	// Schema says where the fields of an object in protobuf go, numbered from the object on: 1 is its metadata. It is
	// called once for each stream in protobuf, before the first object.
	Schema() Schema
}

// Decoder reads lists and watches, one at a time, through memory that it uses again. It holds one object at most. It
// may be used after an error. It is not safe for concurrent use, nor from within what it calls.
type Decoder struct {
	into ObjectReader
	raw  json.RawMessage // the value of JSON in hand
}

// NewDecoder returns a decoder that reads each object into the same reader.
func NewDecoder(into ObjectReader) *Decoder { return &Decoder{into: into} }

// Object reads one object of JSON from memory. What follows the object is not looked at. The error is that of the
// syntax, or ReadJSON's, with the place.
func (d *Decoder) Object(data []byte) error {
	d.into.Reset()
	return d.readObject(json.NewDecoder(bytes.NewReader(data)))
}

// ListMeta is a list's own metadata.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/list-meta/
type ListMeta struct {
	ResourceVersion string // which version of the cluster the list shows
	Continue        string // asks for the next page; "" if this is the last
}

// List reads a list, or a page of one, which it never holds whole. It calls each once for each object, in the order of
// the list: with nil when the object is in the reader, or with what is wrong with it.
//
// The list ends with the first error. One that each returns is returned as it is, so that each may say more of the
// object. Other errors name the place, unless the text is no JSON at all or broken between two fields. What breaks the
// connection is among them, mostly wrapped. What has no items, or no resourceVersion, is no list. With an error, the
// metadata may lack anything.
func (d *Decoder) List(r io.Reader, isProtobuf bool, each func(error) error) (ListMeta, error) {
	var meta ListMeta
	var ended error // by each
	d.into.Reset()
	item := func(wrong error) error {
		ended = cmp.Or(each(wrong), wrong)
		if ended == nil {
			d.into.Reset()
		}
		return ended
	}
	read := d.listJSON
	if isProtobuf {
		read = d.listProtobuf
	}
	isList, err := read(newSource(r), &meta, item)
	if ended != nil {
		return meta, ended
	}
	if err != nil {
		return meta, err
	}
	if !isList || meta.ResourceVersion == "" {
		return meta, errors.New("no items or no metadata.resourceVersion in it: not a list")
	}
	return meta, nil
}

// Event is one frame of a watch. Of ADDED, MODIFIED, DELETED and BOOKMARK, the object is in the reader. Types that
// Kubernetes does not have come through, too, for the caller to refuse.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type Event struct {
	Type   string
	Status *Status // of an ERROR; nil with any other type, and where an ERROR in protobuf brings none
}

// GarbageError marks a frame of a watch that cannot be understood. The stream is useless from there on.
type GarbageError struct{ error }

// Unwrap returns what is wrong with the frame.
func (e GarbageError) Unwrap() error { return e.error }

// Garbage makes a GarbageError of what is wrong with a frame. It is for callers of Events that find more wrong than
// Events can: a type that does not exist, an object without a name.
func Garbage(err error) error {
	return GarbageError{fmt.Errorf("undecodable watch frame: %w", err)}
}

// Events reads a watch, and calls handle for each frame, until the stream ends or handle fails. It returns
//   - nil, if the stream ends between two frames;
//   - the error of handle, as it is;
//   - the error of r, as it is, where the connection breaks, be it within a frame;
//   - a GarbageError for what cannot be understood, also where the stream ends within a frame. It names the place in
//     protobuf; in JSON, it does so unless the syntax itself is wrong, or half a frame is missing.
func (d *Decoder) Events(r io.Reader, isProtobuf bool, handle func(Event) error) error {
	src := newSource(r)
	var next func() (Event, error)
	if isProtobuf {
		next = d.eventsProtobuf(src)
	} else {
		next = d.eventsJSON(src)
	}
	for {
		d.into.Reset()
		event, err := next()
		isBroken := src.err != nil && src.err != io.EOF
		switch {
		case err == io.EOF:
			return nil
		case err != nil && isBroken:
			return src.err
		case err != nil:
			return Garbage(err)
		}
		if err := handle(event); err != nil {
			return err
		}
	}
}
