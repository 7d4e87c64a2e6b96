package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"unicode/utf8"
)

// failure is an error on its way through the reader of protobuf, up to the function that rescues it.
type failure struct{ error }

// rescue is deferred by the function that is to return the failure below it.
func rescue(err *error) {
	v := recover()
	if f, ok := v.(failure); ok {
		*err = f.error
	} else if v != nil {
		panic(v)
	}
}

// Message reads messages as they arrive, and holds none of them: what nobody asks for is skipped. What is wrong is
// thrown. https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
type Message struct {
	*bufio.Reader
	src    *source
	field  int    // the number of the field in hand, behind those of the fields that it lies in, two digits each: 111 is field 11 of field 1
	wire   uint64 // its type: https://protobuf.dev/programming-guides/encoding/
	end    int64  // where it ends
	number uint64 // its value, with wire type 0
}

func newProtobuf(src *source) *Message {
	return &Message{Reader: bufio.NewReaderSize(src, textLimit), src: src}
}

// at is how far the stream has been read.
func (p *Message) at() int64 { return p.src.at - int64(p.Buffered()) }

// check throws, unless ok, what is wrong, with its place.
func (p *Message) check(ok bool, what string, n int64) {
	if !ok {
		p.fail(fmt.Errorf(what, n))
	}
}

// fail throws err, unless it is nil.
func (p *Message) fail(err error) {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		panic(failure{fmt.Errorf("field %d, before byte %d: %w", p.field, p.at(), err)})
	}
}

// ended reports whether nothing more comes. (Any other error comes again with the next read.)
func (p *Message) ended() bool {
	_, err := p.Peek(1)
	return err == io.EOF
}

func (p *Message) varint() uint64 {
	v, err := binary.ReadUvarint(p)
	p.fail(err)
	return v
}

// bytes are the next n, until something else is read.
func (p *Message) bytes(n int64) []byte {
	p.check(n <= textLimit, "a text of %d bytes: too many", n)
	b, err := p.Peek(int(n))
	p.fail(err)
	return b
}

// text is the value of the field in hand, until something else is read.
func (p *Message) text() []byte {
	p.check(p.wire == 2, "no text but wire type %d", int64(p.wire))
	b := p.bytes(p.end - p.at())
	p.check(utf8.Valid(b), "%d bytes that are not UTF-8", int64(len(b)))
	return b
}

// magic begins each answer, and each object in a watch. Behind it stands a message Unknown, whose field 2 is the object.
func (p *Message) magic() {
	if b := p.bytes(4); string(b) != "k8s\x00" {
		p.fail(fmt.Errorf("%q in place of \"k8s\\x00\"", b))
	}
	p.Discard(4)
}

// Schema says what becomes of the fields of a message, by their numbers: a *buffer, *string or *int takes the value, a
// func(*protobuf) reads it, an enter is walked through, by the same fields. What is not among them is skipped.
type Schema map[int]any

// enter, in a schema, stands for a message whose fields the same schema names.
type Enter struct{}

// walk goes through the message that ends at end; the outermost has no length: math.MaxInt64. At first, path is 0.
func (p *Message) walk(path int, end int64, known Schema) {
	for p.at() < end && (end < math.MaxInt64 || !p.ended()) {
		tag := p.varint()
		p.field, p.wire = path*100+int(min(tag>>3, 99)), tag&7 // 99 stands for all above
		p.check(p.wire <= 2 || p.wire == 5, "unknown wire type %d", int64(p.wire))
		size := [...]uint64{1: 8, 5: 4}[p.wire]
		if p.wire == 0 {
			p.number = p.varint()
		} else if p.wire == 2 {
			size = p.varint()
		}
		left := end - p.at()
		p.check(left >= 0 && size <= uint64(left), "a length of %d, more than is left", int64(size))
		p.end = p.at() + int64(size)
		fieldEnd := p.end
		switch field := known[p.field].(type) {
		case *Text:
			*field = append((*field)[:0], p.text()...)
		case *string:
			*field = string(p.text())
		case *int:
			p.check(p.wire == 0, "no number but wire type %d", int64(p.wire))
			*field = int(p.number)
		case func(*Message):
			field(p)
		case Enter:
			p.Enter(p.field, known)
		}
		for p.at() < fieldEnd {
			_, err := p.Discard(int(min(fieldEnd-p.at(), 1<<30)))
			p.fail(err)
		}
	}
}

// Enter walks through the field in hand, which is a message. path is the number before those of its own fields in known.
func (p *Message) Enter(path int, known Schema) {
	p.check(p.wire == 2, "no message but wire type %d", int64(p.wire))
	p.walk(path, p.end, known)
}
