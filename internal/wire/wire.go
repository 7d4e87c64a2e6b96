// Package wire reads what an API server answers, in protobuf or in JSON, as it arrives: lists, watches, and refusals. It
// holds one object at most, whatever the length of a list, and takes nothing of an object but the fields that its reader
// asks for. It bounds what one piece may take, and its errors name the place.
//
// It knows no kind: an ObjectReader says which fields are read, and where they go. It opens no connection, and never
// tries anything again.
//
// https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

const (
	objectLimit = 8 << 20  // of an object in protobuf (API servers take 3 MB); in JSON it is thrice that, as "<" is "\u003c" there
	textLimit   = 64 << 10 // of a text in protobuf
)

// ObjectReader takes the fields of one object after the other, be it in JSON or in protobuf.
type ObjectReader interface {
	// Reset forgets the object before.
	Reset()
	// ReadJSON takes the fields of an object of JSON, whose syntax is right. Names of fields are exact, as Kubernetes'
	// are: encoding/json would take NAME for name. So it should use members.
	ReadJSON(object []byte) error
	// Schema says where the fields of an object in protobuf go. It is called once for each stream.
	Schema() Schema
}

// Decoder reads lists and watches, one at a time, through memory that it uses again. It holds one object at most.
type Decoder struct {
	into ObjectReader
	raw  json.RawMessage // the object of JSON, or the frame, in hand
}

func NewDecoder(into ObjectReader) *Decoder { return &Decoder{into: into} }

// Object reads one object of JSON.
func (d *Decoder) Object(data []byte) error {
	d.into.Reset()
	return d.decode(json.NewDecoder(bytes.NewReader(data)))
}

const rawLimit = 1 << 20 // bytes that wireDecoder.raw keeps for the next object

// decodeRaw reads the next value of JSON into raw.
func (d *Decoder) decodeRaw(s *json.Decoder) error {
	if cap(d.raw) > rawLimit {
		d.raw = nil
	}
	return s.Decode(&d.raw)
}

// decode reads the next value of JSON, which is an object.
func (d *Decoder) decode(s *json.Decoder) error {
	err := d.decodeRaw(s)
	if err == nil {
		err = d.into.ReadJSON(d.raw)
	}
	if err != nil {
		return fmt.Errorf("behind byte %d: %w", s.InputOffset(), err)
	}
	return nil
}

// ListMeta is a list's own metadata.
type ListMeta struct{ ResourceVersion, Continue string }

// List reads a list, never held whole. It calls each for each object once that is read, or with what is wrong with it.
// An error that each returns ends the list, and is returned as it is. Other errors name the place.
func (d *Decoder) List(r io.Reader, isProtobuf bool, each func(error) error) (meta ListMeta, err error) {
	defer rescue(&err)
	item := func(err error) {
		if err := each(err); err != nil {
			panic(failure{err}) // past all that would add to it
		}
		d.into.Reset()
	}
	d.into.Reset()
	read := d.listJSON
	if isProtobuf {
		read = d.listProtobuf
	}
	isList, err := read(newSource(r), &meta, item)
	if err == nil && (!isList || meta.ResourceVersion == "") {
		err = errors.New("no items or no metadata.resourceVersion in it: not a list")
	}
	return meta, err
}

func (d *Decoder) listJSON(src *source, meta *ListMeta, item func(error)) (isList bool, err error) {
	s := json.NewDecoder(src)
	src.json = s
	err = eachField(s, func(field string) error {
		switch field {
		case "metadata":
			return d.decodeListMeta(s, meta)
		case "items":
			isList = true
			t, err := s.Token()
			if err != nil || t == nil { // "items":null is an empty list
				return err
			} else if t != json.Delim('[') {
				return errors.New("not a list")
			}
			for s.More() {
				item(d.decode(s))
			}
			_, err = s.Token()
			return err
		}
		return d.decodeRaw(s) // skip it
	})
	return isList, err
}

func (d *Decoder) decodeListMeta(s *json.Decoder, meta *ListMeta) error {
	if err := d.decodeRaw(s); err != nil {
		return err
	}
	if err := WantObject(d.raw, "metadata"); err != nil {
		return err
	}
	for name, value := range Members(d.raw) {
		var err error
		switch string(name) {
		case "resourceVersion":
			err = Unmarshal(value, &meta.ResourceVersion, "metadata.resourceVersion")
		case "continue":
			err = Unmarshal(value, &meta.Continue, "metadata.continue")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) listProtobuf(src *source, meta *ListMeta, item func(error)) (isList bool, err error) {
	p := newProtobuf(src)
	kind := ""
	object := d.into.Schema()
	read := func(p *Message) (err error) {
		defer rescue(&err)
		p.check(p.end-p.at() <= objectLimit, "%d bytes in one piece: too many", p.end-p.at())
		p.Enter(0, object)
		return nil
	}
	p.magic()
	p.walk(0, math.MaxInt64, Schema{
		1:     Enter{},
		102:   &kind,
		2:     Enter{},
		201:   Enter{},
		20102: &meta.ResourceVersion,
		20103: &meta.Continue,
		202:   func(p *Message) { item(read(p)) },
	})
	return strings.HasSuffix(kind, "List"), nil
}

// Event is one frame of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, whose object is in the objectReader then; ERROR
// with a Status; or another type, of which nothing is read.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type Event struct {
	Type   string
	Status *Status
}

// GarbageError marks a watch frame that cannot be understood: the stream is useless from here on.
type GarbageError struct{ error }

// Garbage makes a garbageError of what is wrong with a frame.
func Garbage(err error) error { return GarbageError{fmt.Errorf("undecodable watch frame: %w", err)} }

// Events calls handle for each frame until the stream ends, or handle fails. An end between two frames is nil; a broken
// connection is its error as it is; everything that cannot be understood is a garbageError.
func (d *Decoder) Events(r io.Reader, isProtobuf bool, handle func(Event) error) error {
	src := newSource(r)
	next := d.eventsProtobuf
	if !isProtobuf {
		next = d.eventsJSON
	}
	for read := next(src); ; {
		d.into.Reset()
		ev, err := read()
		switch {
		case err == io.EOF:
			return nil
		case err != nil && src.err != nil && src.err != io.EOF:
			return src.err // the connection broke, wherever in a frame that was
		case err != nil:
			return Garbage(err)
		}
		if err := handle(ev); err != nil {
			return err
		}
	}
}

func (d *Decoder) eventsJSON(src *source) func() (Event, error) {
	s := json.NewDecoder(src)
	src.json = s
	return func() (ev Event, err error) {
		if err := d.decodeRaw(s); err != nil {
			return ev, err
		}
		ev, err = d.readEvent(d.raw)
		if err != nil {
			return ev, fmt.Errorf("before byte %d: %w", s.InputOffset(), err)
		}
		return ev, nil
	}
}

// readEvent reads a frame of JSON, whose type may stand after its object.
func (d *Decoder) readEvent(frame []byte) (ev Event, err error) {
	if err := WantObject(frame, ""); err != nil {
		return ev, err
	}
	object := []byte("null")
	for name, value := range Members(frame) {
		switch string(name) {
		case "type":
			if err := Unmarshal(value, &ev.Type, "type"); err != nil {
				return ev, err
			}
		case "object":
			object = value
		}
	}
	switch ev.Type {
	case "ERROR":
		ev.Status = new(Status)
		return ev, Unmarshal(object, ev.Status, "object")
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
		return ev, d.into.ReadJSON(object)
	}
	return ev, nil // of a type that the caller refuses
}

func (d *Decoder) eventsProtobuf(src *source) func() (Event, error) {
	p := newProtobuf(src)
	ev := Event{}
	object := d.into.Schema()
	frame := Schema{1: &ev.Type, 2: Enter{}}
	frame[201] = func(p *Message) { // object.raw
		p.magic()
		p.Enter(201, frame)
	}
	frame[20102] = func(p *Message) { // the object itself
		if ev.Type == "ERROR" {
			ev.Status = new(Status)
			p.Enter(2, ev.Status.schema())
		} else {
			p.Enter(0, object)
		}
	}
	return func() (_ Event, err error) {
		defer rescue(&err)
		if ev = (Event{}); p.ended() {
			return ev, io.EOF
		}
		size := int64(binary.BigEndian.Uint32(p.bytes(4)))
		p.Discard(4)
		p.check(size <= objectLimit, "%d bytes in one piece: too many", size)
		p.walk(0, p.at()+size, frame)
		return ev, nil
	}
}

const (
	JSON     = "application/json"
	Protobuf = "application/vnd.kubernetes.protobuf"
)
