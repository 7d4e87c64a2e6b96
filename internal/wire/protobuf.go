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

// Schema says where the fields of a protobuf message go, by their numbers. Fields that it does not name are skipped
// without being parsed. The numbers are those of the generated.proto files of k8s.io/api and k8s.io/apimachinery.
//
// The type of a value decides what happens to the field:
//
//	*Text, *string  receives a string of up to 64 KB of UTF-8
//	*int            receives a number
//	StringMap       receives the entries of a map<string, string>
//	Schema          says where the fields of a nested message go
//
// Any other type is a programming error, and panics when the field is read. A field of the wrong wire type is an error.
// A field that occurs several times is handled each time; one that does not occur changes nothing.
//
// This schema takes a pod's name, namespace and labels:
//
//	wire.Schema{
//		1: wire.Schema{ // metadata
//			1:  &name,
//			3:  &namespace,
//			11: wire.StringMap(setLabel),
//		},
//	}
type Schema map[int]any

// StringMap is called for each entry of a map of strings. Copy the key and the value to keep them: their memory is used
// again after the call.
type StringMap func(key, value []byte)

// contentReader, in a Schema, reads the content of a field itself. The content ends at the given offset.
type contentReader func(end int64) error

// wireType says how the value of a field is encoded. The types 3 and 4, groups, are obsolete and never sent.
// https://protobuf.dev/programming-guides/encoding/#structure
type wireType uint64

const (
	varintType  wireType = 0
	fixed64Type wireType = 1
	bytesType   wireType = 2 // strings, byte slices and nested messages: a length, then the content
	fixed32Type wireType = 5
)

// String names the type, for error messages.
func (t wireType) String() string {
	switch t {
	case varintType:
		return "a varint"
	case fixed64Type:
		return "a 64-bit value"
	case bytesType:
		return "a length and its bytes"
	case fixed32Type:
		return "a 32-bit value"
	default:
		return fmt.Sprintf("of unknown wire type %d", uint64(t))
	}
}

// field is a field whose tag has been read, and whose value is read next.
type field struct {
	number int
	wireType
	value uint64 // the value, if the field is a varint
	end   int64  // the offset in the stream at which the field ends
}

// protobufReader reads messages as they arrive, and holds none of them.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
type protobufReader struct {
	in     *bufio.Reader
	source *source // in reads from it

	// path holds the numbers of the fields that are being read, the outermost first. It is for error messages only.
	path []int

	// The entry of a map of strings that is being read, and the schema that reads it.
	key, value Text
	entry      Schema
}

func newProtobufReader(src *source) *protobufReader {
	r := &protobufReader{
		in:     bufio.NewReaderSize(src, textLimit),
		source: src,
		path:   make([]int, 0, 8),
	}
	r.entry = Schema{1: &r.key, 2: &r.value}
	return r
}

// unbounded is the end of a message whose length is unknown: it ends where the stream does.
const unbounded = math.MaxInt64

// readMessage reads the fields of a message that ends at the given offset.
func (r *protobufReader) readMessage(end int64, schema Schema) error {
	for !r.atEnd(end) {
		f, err := r.readTag(end)
		if err != nil {
			return err
		}
		if err := r.readContent(f, schema[f.number]); err != nil {
			return err
		}
		if err := r.skipTo(f.end); err != nil {
			return err
		}
		r.path = r.path[:len(r.path)-1]
	}
	return nil
}

// atEnd reports whether a message that ends at the given offset has no more fields. A read error other than io.EOF is
// not the end: the next read returns it again.
func (r *protobufReader) atEnd(end int64) bool {
	if end != unbounded {
		return r.offset() >= end
	}
	_, err := r.in.Peek(1)
	return err == io.EOF
}

// readTag reads what precedes the content of a field: its number, its wire type, and its length or number. The field is
// part of a message that ends at the given offset. Its number becomes the last one of r.path.
func (r *protobufReader) readTag(messageEnd int64) (field, error) {
	tag, err := r.readVarint()
	if err != nil {
		return field{}, err
	}
	f := field{
		number:   int(min(tag>>3, math.MaxInt32)), // so large a number is in no schema
		wireType: wireType(tag & 7),
	}
	r.path = append(r.path, f.number)
	size := uint64(0)
	switch f.wireType {
	case varintType:
		f.value, err = r.readVarint()
	case fixed64Type:
		size = 8
	case bytesType:
		size, err = r.readVarint()
	case fixed32Type:
		size = 4
	default:
		err = r.errorf("the field is %s", f.wireType)
	}
	if err != nil {
		return f, err
	}
	left := messageEnd - r.offset()
	if left < 0 || size > uint64(left) {
		return f, r.errorf("the field's length is %d, which is more than its message has left", size)
	}
	f.end = r.offset() + int64(size)
	return f, nil
}

// readContent reads the content of a field into what the schema has for it. It may leave content unread.
func (r *protobufReader) readContent(f field, into any) error {
	switch into := into.(type) {
	case nil: // the schema does not name this field
		return nil
	case *Text:
		text, err := r.readText(f)
		if err != nil {
			return err
		}
		*into = append((*into)[:0], text...)
		return nil
	case *string:
		text, err := r.readText(f)
		if err != nil {
			return err
		}
		*into = string(text)
		return nil
	case *int:
		if err := r.want(f, varintType, "a number"); err != nil {
			return err
		}
		*into = int(f.value)
		return nil
	case Schema:
		if err := r.want(f, bytesType, "a message"); err != nil {
			return err
		}
		return r.readMessage(f.end, into)
	case StringMap:
		if err := r.want(f, bytesType, "a map"); err != nil {
			return err
		}
		return r.readMapEntry(f, into)
	case contentReader:
		if err := r.want(f, bytesType, "a message"); err != nil {
			return err
		}
		return into(f.end)
	default:
		panic(fmt.Sprintf("wire: a Schema must not contain a %T, but has one for field %s", into, r.pathText()))
	}
}

// want returns an error unless the field has the wire type.
func (r *protobufReader) want(f field, wanted wireType, name string) error {
	if f.wireType == wanted {
		return nil
	}
	return r.errorf("the field should be %s, but is %s", name, f.wireType)
}

// readText returns the content of a field that is a string. It is valid until the next read.
func (r *protobufReader) readText(f field) ([]byte, error) {
	if err := r.want(f, bytesType, "a string"); err != nil {
		return nil, err
	}
	size := f.end - r.offset()
	if size > textLimit {
		return nil, r.errorf("a string of %d bytes is too long, the limit is %d", size, textLimit)
	}
	text, err := r.peek(int(size))
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(text) {
		return nil, r.errorf("a string of %d bytes is not UTF-8", size)
	}
	return text, nil
}

// readMapEntry reads one entry of a map<string, string>, which is encoded as a message.
func (r *protobufReader) readMapEntry(f field, set StringMap) error {
	r.key = r.key[:0]
	r.value = r.value[:0]
	if err := r.readMessage(f.end, r.entry); err != nil {
		return err
	}
	set(r.key, r.value)
	return nil
}

// offset is the number of bytes of the stream that have been read.
func (r *protobufReader) offset() int64 { return r.source.at - int64(r.in.Buffered()) }

// skipTo skips the bytes before an offset, if they have not been read already.
func (r *protobufReader) skipTo(offset int64) error {
	for r.offset() < offset {
		const most = 1 << 30 // fits an int on every platform
		if _, err := r.in.Discard(int(min(offset-r.offset(), most))); err != nil {
			return r.failed(err)
		}
	}
	return nil
}

func (r *protobufReader) readVarint() (uint64, error) {
	v, err := binary.ReadUvarint(r.in)
	if err != nil {
		return 0, r.failed(err)
	}
	return v, nil
}

// peek returns the next n bytes, at most textLimit, without reading them. They are valid until the next read.
func (r *protobufReader) peek(n int) ([]byte, error) {
	b, err := r.in.Peek(n)
	if err != nil {
		return nil, r.failed(err)
	}
	return b, nil
}

// readMagic reads the four bytes that precede each answer, and each object in a watch.
func (r *protobufReader) readMagic() error {
	b, err := r.peek(4)
	if err != nil {
		return err
	}
	if string(b) != "k8s\x00" {
		return r.errorf("protobuf must begin with %q, but this begins with %q", "k8s\x00", b)
	}
	r.in.Discard(4)
	return nil
}

// checkSize returns an error if an object, or a frame of a watch, has too many bytes.
func (r *protobufReader) checkSize(size int64) error {
	if size > objectLimit {
		return r.errorf("%d bytes in one piece are too many, the limit is %d", size, objectLimit)
	}
	return nil
}

// errorf returns an error that begins with the place in the stream.
func (r *protobufReader) errorf(format string, args ...any) error {
	return r.failed(fmt.Errorf(format, args...))
}

// failed adds the place in the stream to an error. The end of the stream is never expected here.
func (r *protobufReader) failed(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if len(r.path) == 0 {
		return fmt.Errorf("after byte %d: %w", r.offset(), err)
	}
	return fmt.Errorf("field %s, after byte %d: %w", r.pathText(), r.offset(), err)
}

// pathText is the path with dots, such as 2.1.11.
func (r *protobufReader) pathText() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(r.path), " ", "."), "[]")
}

// listProtobuf reads a list in protobuf, as listJSON does in JSON.
//
// Each answer is a message Unknown, which wraps the actual message: field 1 names its type, field 2 is its content.
func (d *Decoder) listProtobuf(src *source, meta *ListMeta, take func() error) (isList bool, err error) {
	r := newProtobufReader(src)
	object := d.into.Schema()
	number := 0
	readItem := func(end int64) error {
		d.into.Reset()
		if err := r.readObject(end, object); err != nil {
			return &ItemError{Item: number, Err: err}
		}
		number++
		return take()
	}
	kind := ""
	unknown := Schema{
		1: Schema{ // TypeMeta
			2: &kind,
		},
		2: Schema{ // the list
			1: Schema{ // ListMeta
				2: &meta.ResourceVersion,
				3: &meta.Continue,
			},
			2: contentReader(readItem), // items
		},
	}
	if err := r.readMagic(); err != nil {
		return false, err
	}
	err = r.readMessage(unbounded, unknown)
	return strings.HasSuffix(kind, "List"), err
}

// eventsProtobuf returns a function that reads the next frame of a watch, as eventsJSON does in JSON.
//
// A frame is its length in four bytes, and a message WatchEvent. The object in it is wrapped like an answer.
func (d *Decoder) eventsProtobuf(src *source) func() (Event, error) {
	r := newProtobufReader(src)
	object := d.into.Schema()
	var event Event
	readObject := func(end int64) error {
		if event.Type != "ERROR" {
			return r.readMessage(end, object)
		}
		event.Status = new(Status)
		return r.readMessage(end, event.Status.schema())
	}
	unknown := Schema{
		2: contentReader(readObject),
	}
	readUnknown := func(end int64) error {
		if err := r.readMagic(); err != nil {
			return err
		}
		return r.readMessage(end, unknown)
	}
	watchEvent := Schema{
		1: &event.Type,
		2: Schema{ // RawExtension
			1: contentReader(readUnknown),
		},
	}
	return func() (Event, error) {
		event = Event{}
		d.into.Reset()
		if r.atEnd(unbounded) {
			return event, io.EOF
		}
		size, err := r.readFrameSize()
		if err != nil {
			return event, err
		}
		err = r.readMessage(r.offset()+size, watchEvent)
		return event, err
	}
}

// readFrameSize reads the four bytes that precede each frame of a watch: its length.
func (r *protobufReader) readFrameSize() (int64, error) {
	head, err := r.peek(4)
	if err != nil {
		return 0, err
	}
	size := int64(binary.BigEndian.Uint32(head))
	r.in.Discard(4)
	return size, r.checkSize(size)
}

// readObject reads an object that ends at the given offset.
func (r *protobufReader) readObject(end int64, schema Schema) error {
	if err := r.checkSize(end - r.offset()); err != nil {
		return err
	}
	return r.readMessage(end, schema)
}
