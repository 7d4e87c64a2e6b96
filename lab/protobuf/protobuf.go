// Package protobuf builds messages for tests of a decoder: also such as no server would send. fakekube.Protobuf makes
// whole answers, from their JSON.
package protobuf

import (
	"bytes"
	"encoding/binary"
	"encoding/json"

	"podcount/lab/fakekube"
)

// Message is a protobuf message under construction. Its methods append fields. The zero value is an empty message.
// https://protobuf.dev/programming-guides/encoding/
type Message []byte

// Bytes appends a field of bytes or a nested message.
func (b *Message) Bytes(field int, v []byte) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3|2)
	*b = binary.AppendUvarint(*b, uint64(len(v)))
	*b = append(*b, v...)
}

// Text appends a string field.
func (b *Message) Text(field int, v string) { b.Bytes(field, []byte(v)) }

// Int appends a varint field.
func (b *Message) Int(field, v int) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3)
	*b = binary.AppendUvarint(*b, uint64(v))
}

// Event returns a watch event, preceded by its length. o is an object as encoded by fakekube.Protobuf.
func Event(event string, o []byte) []byte {
	var frame, raw Message
	raw.Bytes(1, o)
	frame.Text(1, event)
	frame.Bytes(2, raw)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

// Object returns the message of an object: what fakekube.Protobuf makes of it, without the envelope. It panics if the
// object cannot be encoded in JSON.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
func Object(o fakekube.Object) Message {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	rest := bytes.TrimPrefix(fakekube.Protobuf(text), []byte("k8s\x00"))
	_, rest = cutField(rest) // the type
	object, _ := cutField(rest)
	return object
}

// cutField returns the contents of the first field of a message, and the fields after it. The field's number takes one
// byte, and its contents have a length.
func cutField(message []byte) (contents, rest []byte) {
	length, digits := binary.Uvarint(message[1:])
	start := 1 + digits
	end := start + int(length)
	return message[start:end], message[end:]
}
