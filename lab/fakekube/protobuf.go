package fakekube

import (
	"encoding/binary"
	"encoding/json"
	"strings"
)

// ProtobufMessage is a protobuf message under construction. Its methods append fields. The zero value is an empty
// message. Tests use it to build messages that no server would send.
// https://protobuf.dev/programming-guides/encoding/
type ProtobufMessage []byte

// Bytes appends a field of bytes or a nested message.
func (b *ProtobufMessage) Bytes(field int, v []byte) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3|2)
	*b = binary.AppendUvarint(*b, uint64(len(v)))
	*b = append(*b, v...)
}

// Text appends a string field.
func (b *ProtobufMessage) Text(field int, v string) { b.Bytes(field, []byte(v)) }

// Int appends a varint field.
func (b *ProtobufMessage) Int(field, v int) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3)
	*b = binary.AppendUvarint(*b, uint64(v))
}

// Protobuf converts an answer from JSON to protobuf. The answer is an object of a built-in kind, a list of them,
// their metadata, or a Status. Fields that the type lacks are dropped. Protobuf panics if the answer is not valid
// JSON.
func Protobuf(answer []byte) []byte {
	var o Object
	if err := json.Unmarshal(answer, &o); err != nil {
		panic(err)
	}
	kind := TextIn(o, "kind")
	items, isList := o["items"].([]any)
	var m ProtobufMessage
	if isList {
		m.value(1, "ListMeta", o["metadata"])
		m.value(2, "[]"+protoTypeOf(strings.TrimSuffix(kind, "List")), items)
	} else {
		m.object(protoTypeOf(kind), o)
	}
	return protobufAnswer(TextIn(o, "apiVersion"), kind, m)
}

// protobufAnswer wraps a message in the API's envelope, which names its type.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
func protobufAnswer(apiVersion, kind string, m ProtobufMessage) []byte {
	var types ProtobufMessage
	types.Text(1, apiVersion)
	types.Text(2, kind)
	var unknown ProtobufMessage
	unknown.Bytes(1, types)
	unknown.Bytes(2, m)
	unknown.Text(3, "")
	unknown.Text(4, "")
	return append([]byte(protobufMagic), unknown...)
}

// protobufList does the same as Protobuf for a list, but directly from its objects, in a third of the time. kind is
// that of the items.
func protobufList(kind string, meta listMeta, items []Object) ProtobufMessage {
	remaining := any(nil)
	if meta.RemainingItemCount > 0 {
		remaining = float64(meta.RemainingItemCount)
	}
	token := ""
	if meta.Continue != nil {
		token = *meta.Continue
	}
	var m ProtobufMessage
	m.value(1, "ListMeta", Object{
		"resourceVersion":    meta.ResourceVersion,
		"continue":           token,
		"remainingItemCount": remaining,
	})
	for _, o := range items {
		m.value(2, kind, o)
	}
	return m
}

// protoTypeOf returns the type of a kind. It defaults to Pod.
func protoTypeOf(kind string) string {
	if kind == "" {
		return "Pod"
	}
	return kind
}

// ProtobufObject returns the message of an object without the envelope. The kind defaults to Pod.
func ProtobufObject(o Object) ProtobufMessage {
	var m ProtobufMessage
	m.object(protoTypeOf(TextIn(o, "kind")), o)
	return m
}

// ProtobufEvent returns a watch event in protobuf, preceded by its length. o is an object as encoded by Protobuf.
func ProtobufEvent(event string, o []byte) []byte {
	var frame, raw ProtobufMessage
	raw.Bytes(1, o)
	frame.Text(1, event)
	frame.Bytes(2, raw)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}
