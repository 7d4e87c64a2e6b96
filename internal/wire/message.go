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

// Schema says where to store the fields of a protobuf message, by their numbers. Other fields are skipped without being
// parsed. The numbers are those of the generated.proto files of k8s.io/api and k8s.io/apimachinery.
//
// The type of a value decides what happens to the field:
//
//	*Text, *string  receives a string of up to 64 KB of UTF-8
//	*int            receives a number
//	StringMap       receives the entries of a map<string, string>
//	Schema          says where to store the fields of a nested message
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

// field is a field whose tag has been read. Its content is read next, unless it is a varint.
type field struct {
	number int
	wireType
	value uint64 // if the field is a varint, its value; it has been read already
	end   int64  // the offset in the stream at which the field ends
}

// protobufReader reads messages as they arrive, and holds none of them.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
type protobufReader struct {
	in     *bufio.Reader
	source *source // in reads from it

	// path holds the numbers of the fields that are being read, the outermost first. It is for error messages only.
	path []int

	// The entry of a map of strings that is being read, and the schema that stores it here.
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
		r.path = r.path[:len(r.path)-1] // readTag appended it; after an error it stays, for the message
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

// readTag reads what precedes the content of a field: its number, its wire type, and its length. Of a varint, it reads
// the value, too. The field must end before its message does. Its number is appended to r.path.
func (r *protobufReader) readTag(messageEnd int64) (field, error) {
	tag, err := r.readVarint()
	if err != nil {
		return field{}, err
	}
	f := field{
		number:   int(min(tag>>3, math.MaxInt32)), // valid numbers are far below this
		wireType: wireType(tag & 7),
	}
	r.path = append(r.path, f.number)
	size := uint64(0) // of what is still unread: 0 for a varint, whose value is read here
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
	if left < 0 {
		return f, r.errorf("the field ends after its message")
	}
	if size > uint64(left) {
		return f, r.errorf("the field's length is %d, which is more than its message has left", size)
	}
	f.end = r.offset() + int64(size)
	return f, nil
}

// readContent stores the content of a field in target, which is the schema's value for the field. It may leave content
// unread.
func (r *protobufReader) readContent(f field, target any) error {
	switch target := target.(type) {
	case nil: // the schema does not name this field
		return nil
	case *Text:
		text, err := r.readText(f)
		if err != nil {
			return err
		}
		*target = append((*target)[:0], text...)
		return nil
	case *string:
		text, err := r.readText(f)
		if err != nil {
			return err
		}
		*target = string(text)
		return nil
	case *int:
		if err := r.checkType(f, varintType, "a number"); err != nil {
			return err
		}
		*target = int(f.value)
		return nil
	case Schema:
		if err := r.checkType(f, bytesType, "a message"); err != nil {
			return err
		}
		return r.readMessage(f.end, target)
	case StringMap:
		if err := r.checkType(f, bytesType, "a map"); err != nil {
			return err
		}
		return r.readMapEntry(f, target)
	case contentReader:
		if err := r.checkType(f, bytesType, "a message"); err != nil {
			return err
		}
		return target(f.end)
	default:
		panic(fmt.Sprintf("wire: a Schema must not contain a %T, but has one for field %s", target, r.pathText()))
	}
}

// checkType returns an error unless the field has the wire type t. wanted names that type in the error, as in "a
// string".
func (r *protobufReader) checkType(f field, t wireType, wanted string) error {
	if f.wireType == t {
		return nil
	}
	return r.errorf("the field should be %s, but is %s", wanted, f.wireType)
}

// readText returns the content of a field that is a string. It is valid until the next read.
func (r *protobufReader) readText(f field) ([]byte, error) {
	if err := r.checkType(f, bytesType, "a string"); err != nil {
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
func (r *protobufReader) offset() int64 { return r.source.bytesRead - int64(r.in.Buffered()) }

// skipTo skips the bytes before an offset, if they have not been read already.
func (r *protobufReader) skipTo(offset int64) error {
	for r.offset() < offset {
		const maxDiscard = 1 << 30 // fits an int on every platform
		if _, err := r.in.Discard(int(min(offset-r.offset(), maxDiscard))); err != nil {
			return r.atOffset(err)
		}
	}
	return nil
}

func (r *protobufReader) readVarint() (uint64, error) {
	v, err := binary.ReadUvarint(r.in)
	if err != nil {
		return 0, r.atOffset(err)
	}
	return v, nil
}

// peek returns the next n bytes, at most textLimit, without reading them. They are valid until the next read.
func (r *protobufReader) peek(n int) ([]byte, error) {
	b, err := r.in.Peek(n)
	if err != nil {
		return nil, r.atOffset(err)
	}
	return b, nil
}

// errorf returns an error that begins with the place in the stream.
func (r *protobufReader) errorf(format string, args ...any) error {
	return r.atOffset(fmt.Errorf(format, args...))
}

// atOffset adds the place in the stream to an error. It turns io.EOF into io.ErrUnexpectedEOF, because the stream must
// not end while a field is read.
func (r *protobufReader) atOffset(err error) error {
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
