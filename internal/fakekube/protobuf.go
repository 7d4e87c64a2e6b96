package fakekube

import (
	"encoding/binary"
	"encoding/json"
	"strings"
)

// ProtobufMessage is a protobuf message that is being written, field by field, in the order of the calls. The zero one
// is empty and ready. It is for tests that need bytes no server would send.
// https://protobuf.dev/programming-guides/encoding/
type ProtobufMessage []byte

// Bytes adds a field of bytes, or of a message.
func (b *ProtobufMessage) Bytes(field int, v []byte) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3|2)
	*b = binary.AppendUvarint(*b, uint64(len(v)))
	*b = append(*b, v...)
}

// Text adds a field of text.
func (b *ProtobufMessage) Text(field int, v string) { b.Bytes(field, []byte(v)) }

// Int adds a field of a number.
func (b *ProtobufMessage) Int(field, v int) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3)
	*b = binary.AppendUvarint(*b, uint64(v))
}

// Protobuf is the answer in protobuf that is this one in JSON: an object of a built-in kind, a list of such, their
// metadata, or a Status. Fields that their types do not have are left out. It panics where the answer is no JSON.
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

// protobufAnswer is a message as it is sent, in an envelope that names its type.
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

// protobufList is what Protobuf makes of a list in JSON, but made from the objects themselves: large lists take a third
// of the time. kind is that of the items.
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

// protoTypeOf is the type of a kind, that of pods where an object does not say its kind.
func protoTypeOf(kind string) string {
	if kind == "" {
		return "Pod"
	}
	return kind
}

// ProtobufObject is the message of an object, without the envelope. One that does not say its kind is taken for a pod.
func ProtobufObject(o Object) ProtobufMessage {
	var m ProtobufMessage
	m.object(protoTypeOf(TextIn(o, "kind")), o)
	return m
}

// ProtobufEvent is a frame of a watch in protobuf, with its length first. o is an object as Protobuf makes it.
func ProtobufEvent(event string, o []byte) []byte {
	var frame, raw ProtobufMessage
	raw.Bytes(1, o)
	frame.Text(1, event)
	frame.Bytes(2, raw)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}
