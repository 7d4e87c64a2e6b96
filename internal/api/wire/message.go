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
// A field of the wrong wire type is an error. A field that occurs several times is handled each time; one that does not
// occur changes nothing.
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
type Schema map[int]Target

// Target receives the content of a field. Its type says what the field must be:
//
//	*Text      a string of up to 64 KiB of UTF-8
//	StringMap  an entry of a map<string, string>
//	Schema     a nested message
type Target interface {
	// readField reads the content of f, which has the right wire type, or as much of it as the target needs.
	readField(r *protobufReader, f field) error
}

// StringMap is called for each entry of a map of strings. Copy the key and the value to keep them: their memory is used
// again after the call.
type StringMap func(key, value []byte)

// The targets that only this package needs.
type (
	// shortTarget receives the beginning of a string of any length: see Shorten.
	shortTarget struct {
		into  *string
		limit int
	}

	// intTarget receives a number.
	intTarget int

	// contentReader reads the content of a nested message itself. The content ends at the given offset.
	contentReader func(end int64) error
)

// wireType says how the value of a field is encoded. The types 3 and 4, groups, are obsolete and never sent.
// https://protobuf.dev/programming-guides/encoding/#structure
type wireType uint64

const (
	varintType  wireType = 0
	fixed64Type wireType = 1
	bytesType   wireType = 2 // strings, byte slices and nested messages: a length, then the content
	fixed32Type wireType = 5
)

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

	// The entry of a map of strings that is being read, and the schema that stores it here.
	key, value Text
	entry      Schema
}

func newProtobufReader(src *source) *protobufReader {
	r := &protobufReader{in: bufio.NewReaderSize(src, textLimit), source: src}
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
		if target := schema[f.number]; target != nil {
			if err := r.readInto(target, f); err != nil {
				return err
			}
		}
		if err := r.skipTo(f.end); err != nil {
			return err
		}
	}
	return nil
}

// readInto reads the content of a field into a target.
func (r *protobufReader) readInto(target Target, f field) error {
	wanted := bytesType
	if _, isNumber := target.(*intTarget); isNumber {
		wanted = varintType
	}
	if f.wireType != wanted {
		return r.errorf("the field %d has the wire type %d, not %d", f.number, f.wireType, wanted)
	}
	return target.readField(r, f)
}

// atEnd reports whether a message that ends at the given offset has no more fields. A read error other than io.EOF does
// not count as the end: the next read reports it, because a failed body fails again.
func (r *protobufReader) atEnd(end int64) bool {
	if end != unbounded {
		return r.offset() >= end
	}
	_, err := r.in.Peek(1)
	return err == io.EOF
}

// readTag reads what precedes the content of a field: its number, its wire type, and its length. If the field is a
// varint, readTag reads its value, too. The field must not end after its message.
func (r *protobufReader) readTag(messageEnd int64) (field, error) {
	tag, err := r.readVarint()
	if err != nil {
		return field{}, err
	}
	f := field{
		number:   int(min(tag>>3, math.MaxInt32)), // valid numbers are far below this
		wireType: wireType(tag & 7),
	}
	unread := uint64(0) // the size of the content, except of a varint, which is read here
	switch f.wireType {
	case varintType:
		f.value, err = r.readVarint()
	case fixed64Type:
		unread = 8
	case bytesType:
		unread, err = r.readVarint()
	case fixed32Type:
		unread = 4
	default:
		err = r.errorf("the field has the unknown wire type %d", f.wireType)
	}
	if err != nil {
		return f, err
	}
	left := messageEnd - r.offset()
	if left < 0 {
		return f, r.errorf("the field ends after its message")
	}
	if unread > uint64(left) {
		return f, r.errorf("the field's length is %d, which is more than its message has left", unread)
	}
	f.end = r.offset() + int64(unread)
	return f, nil
}

func (t *Text) readField(r *protobufReader, f field) error {
	size := f.end - r.offset()
	if size > textLimit {
		return r.errorf("a string of %d bytes is too long, the limit is %d", size, textLimit)
	}
	text, err := r.peek(int(size))
	if err != nil {
		return err
	}
	if !utf8.Valid(text) {
		return r.errorf("a string of %d bytes is not UTF-8", size)
	}
	*t = append((*t)[:0], text...)
	return nil
}

func (s *shortTarget) readField(r *protobufReader, f field) error {
	size := int(f.end - r.offset())
	beginning, err := r.peek(min(size, s.limit))
	if err != nil {
		return err
	}
	*s.into = string(beginning)
	if size > s.limit {
		*s.into = markCut(beginning, size)
	}
	*s.into = strings.ToValidUTF8(*s.into, "\uFFFD")
	return nil
}

func (n *intTarget) readField(r *protobufReader, f field) error {
	*n = intTarget(f.value)
	return nil
}

func (s Schema) readField(r *protobufReader, f field) error {
	return r.readMessage(f.end, s)
}

func (read contentReader) readField(r *protobufReader, f field) error {
	return read(f.end)
}

// readField calls set with the entry that f contains. An entry is encoded as a message.
func (set StringMap) readField(r *protobufReader, f field) error {
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
	return fmt.Errorf("after byte %d: %w", r.offset(), err)
}
