package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Schema says what becomes of the fields of a protobuf message, and of the messages in it. What it does not name is
// skipped without being looked at.
//
// A key is a path: the numbers of the fields that lead there, each with two digits, written as one number. In a pod,
// whose metadata is field 1, whose labels are field 11 of that, the path 111 is the labels, and 11102 is field 2 of a
// label: its value. The numbers are those of the generated.proto files of k8s.io/api and k8s.io/apimachinery. 99 stands
// for all numbers from 99 on, which cannot be told apart: leave it out.
//
// The value says what happens to such a field. A value of any other type than these is a mistake, and panics when the
// field comes:
//
//	*Text, *string   takes a text, of up to 64 KB of UTF-8
//	*int             takes a number
//	Enter            goes on into a message, whose own fields the same schema names, by longer paths
//	func(*Message)   is called with the message in which the field is, and may Enter the field
//
// A field that comes several times is treated so each time. One that does not come changes nothing. A field of another
// type than its value here is an error. For example, of a pod's name and labels:
//
//	var name, key, value wire.Text
//	label := wire.Schema{11101: &key, 11102: &value}
//	wire.Schema{
//		1:   wire.Enter{},
//		101: &name,
//		111: func(m *wire.Message) {
//			m.Enter(111, label)
//			// key and value are those of one label now
//		},
//	}
type Schema map[int]any

// Enter, in a Schema, stands for a message whose fields the same schema names.
type Enter struct{}

// Message is a message of protobuf on its way from a stream into memory, as a func in a Schema gets it. It is of use
// during that call alone.
//
// It reads messages as they arrive, and holds none of them.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
type Message struct {
	in     *bufio.Reader
	source *source // that in reads from

	// The field in hand:
	path     int    // to it, as in a Schema; 99 stands for all numbers above, too
	wireType uint64 // its type in the encoding
	number   uint64 // its value, if that is a varint
	end      int64  // how far the stream has been read after it
}

// The types of fields in the encoding. Groups, 3 and 4, are not in use.
// https://protobuf.dev/programming-guides/encoding/#structure
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeFixed32 = 5
)

func newMessage(src *source) *Message {
	return &Message{in: bufio.NewReaderSize(src, textLimit), source: src}
}

// Enter walks through the field in hand, which must be a message. Its fields have longer paths than the one given: with
// 111, they are 11101, 11102 and so on in the schema; with 0, they are 1, 2 and so on.
//
// It is for a func in a Schema, which may call it once. What is wrong ends that func, and what called it, up to the
// method of the Decoder.
func (m *Message) Enter(path int, known Schema) {
	m.check(m.wireType == typeBytes, "no message but wire type %d", int64(m.wireType))
	m.walk(path, m.end, known)
}

// walk goes through the fields of the message at path that ends at end. The outermost of a list has path 0, and no
// length: its end is math.MaxInt64.
func (m *Message) walk(path int, end int64, known Schema) {
	for m.at() < end && (end < math.MaxInt64 || !m.ended()) {
		m.begin(path, end)
		fieldEnd := m.end // m.end becomes that of the fields in it
		switch field := known[m.path].(type) {
		case *Text:
			*field = append((*field)[:0], m.text()...)
		case *string:
			*field = string(m.text())
		case *int:
			m.check(m.wireType == typeVarint, "no number but wire type %d", int64(m.wireType))
			*field = int(m.number)
		case func(*Message):
			field(m)
		case Enter:
			m.Enter(m.path, known)
		case nil: // the schema does not name it
		default:
			panic(fmt.Sprintf("wire: a %T in a Schema, at %d", field, m.path))
		}
		m.skipTo(fieldEnd)
	}
}

// begin reads what is before the content of a field, and puts the field in hand. The field is one of the message at
// path that ends at end.
func (m *Message) begin(path int, end int64) {
	tag := m.varint()
	m.path = path*100 + int(min(tag>>3, 99))
	m.wireType = tag & 7
	size := uint64(0)
	switch m.wireType {
	case typeVarint:
		m.number = m.varint()
	case typeFixed64:
		size = 8
	case typeBytes:
		size = m.varint()
	case typeFixed32:
		size = 4
	default:
		m.check(false, "unknown wire type %d", int64(m.wireType))
	}
	left := end - m.at()
	m.check(left >= 0 && size <= uint64(left), "a length of %d, more than is left", int64(size))
	m.end = m.at() + int64(size)
}

// skipTo passes over what is left before a place in the stream.
func (m *Message) skipTo(end int64) {
	for m.at() < end {
		const most = 1 << 30 // what an int holds everywhere
		_, err := m.in.Discard(int(min(end-m.at(), most)))
		m.fail(err)
	}
}

// at is how far the stream has been read.
func (m *Message) at() int64 { return m.source.at - int64(m.in.Buffered()) }

// ended reports whether nothing more comes. (Any other error comes again with the next read.)
func (m *Message) ended() bool {
	_, err := m.in.Peek(1)
	return err == io.EOF
}

func (m *Message) varint() uint64 {
	v, err := binary.ReadUvarint(m.in)
	m.fail(err)
	return v
}

// bytes returns the next n, which are there until something else is read.
func (m *Message) bytes(n int64) []byte {
	m.check(n <= textLimit, "a text of %d bytes: too many", n)
	b, err := m.in.Peek(int(n))
	m.fail(err)
	return b
}

// text returns the value of the field in hand, which is there until something else is read.
func (m *Message) text() []byte {
	m.check(m.wireType == typeBytes, "no text but wire type %d", int64(m.wireType))
	b := m.bytes(m.end - m.at())
	m.check(utf8.Valid(b), "%d bytes that are not UTF-8", int64(len(b)))
	return b
}

// magic reads what begins each answer, and each object in a watch. After it comes a message Unknown, whose field 2 is
// the object.
func (m *Message) magic() {
	if b := m.bytes(4); string(b) != "k8s\x00" {
		m.fail(fmt.Errorf("%q in place of \"k8s\\x00\"", b))
	}
	m.in.Discard(4)
}

// checkSize fails unless an object may have so many bytes.
func (m *Message) checkSize(size int64) {
	m.check(size <= objectLimit, "%d bytes in one piece: too many", size)
}

// check fails unless ok. what says what is wrong, and has a place for n.
func (m *Message) check(ok bool, what string, n int64) {
	if !ok {
		m.fail(fmt.Errorf(what, n))
	}
}

// fail throws err, with its place, unless it is nil.
func (m *Message) fail(err error) {
	if err == nil {
		return
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	panic(failure{fmt.Errorf("field %d, before byte %d: %w", m.path, m.at(), err)})
}

// failure is an error on its way up through walk, which is deep in itself and in others' functions there, to the
// function of this package that rescues it.
type failure struct{ error }

// rescue is deferred by the function that is to return the failure thrown below it.
func rescue(err *error) {
	v := recover()
	if f, ok := v.(failure); ok {
		*err = f.error
	} else if v != nil {
		panic(v)
	}
}

// listProtobuf is listJSON in protobuf.
func (d *Decoder) listProtobuf(src *source, meta *ListMeta, item func(error) error) (isList bool, err error) {
	defer rescue(&err)
	object := d.into.Schema()
	read := func(m *Message) (err error) {
		defer rescue(&err)
		m.checkSize(m.end - m.at())
		m.Enter(0, object)
		return nil
	}
	kind := ""
	m := newMessage(src)
	m.magic()
	m.walk(0, math.MaxInt64, Schema{ // of Unknown
		1:     Enter{}, // TypeMeta
		102:   &kind,
		2:     Enter{}, // the list
		201:   Enter{}, // ListMeta
		20102: &meta.ResourceVersion,
		20103: &meta.Continue,
		202:   func(m *Message) { m.fail(item(read(m))) }, // one of the items
	})
	return strings.HasSuffix(kind, "List"), nil
}

// eventsProtobuf is eventsJSON in protobuf. A frame is its length in four bytes, and a message WatchEvent.
func (d *Decoder) eventsProtobuf(src *source) func() (Event, error) {
	m := newMessage(src)
	object := d.into.Schema()
	var event Event
	frame := Schema{
		1: &event.Type,
		2: Enter{}, // RawExtension
	}
	frame[201] = func(m *Message) { // its bytes: an answer of its own
		m.magic()
		m.Enter(201, frame)
	}
	frame[20102] = func(m *Message) { // the object in that
		if event.Type == "ERROR" {
			event.Status = new(Status)
			m.Enter(2, event.Status.schema())
		} else {
			m.Enter(0, object)
		}
	}
	return func() (_ Event, err error) {
		defer rescue(&err)
		event = Event{}
		if m.ended() {
			return event, io.EOF
		}
		size := int64(binary.BigEndian.Uint32(m.bytes(4)))
		m.in.Discard(4)
		m.checkSize(size)
		m.walk(0, m.at()+size, frame)
		return event, nil
	}
}
