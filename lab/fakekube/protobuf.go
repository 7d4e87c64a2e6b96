package fakekube

import (
	"encoding/binary"
	"encoding/json"
	"strings"
)

// wireMessage is a protobuf message under construction. Its methods append fields.
// https://protobuf.dev/programming-guides/encoding/
type wireMessage []byte

// Bytes appends a field of bytes or a nested message.
func (b *wireMessage) Bytes(field int, v []byte) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3|2)
	*b = binary.AppendUvarint(*b, uint64(len(v)))
	*b = append(*b, v...)
}

// Text appends a string field.
func (b *wireMessage) Text(field int, v string) { b.Bytes(field, []byte(v)) }

// Int appends a varint field.
func (b *wireMessage) Int(field, v int) {
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
	apiVersion := TextIn(o, "apiVersion")
	kind := TextIn(o, "kind")
	items, isList := o["items"].([]any)
	var m wireMessage
	if isList {
		m.value(1, "ListMeta", o["metadata"])
		m.value(2, "[]"+protoTypeOf(apiVersion, strings.TrimSuffix(kind, "List")), items)
	} else {
		m.object(protoTypeOf(apiVersion, kind), o)
	}
	return protobufAnswer(apiVersion, kind, m)
}

// protobufAnswer wraps a message in the API's envelope, which names its type.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
func protobufAnswer(apiVersion, kind string, m wireMessage) []byte {
	var types wireMessage
	types.Text(1, apiVersion)
	types.Text(2, kind)
	var unknown wireMessage
	unknown.Bytes(1, types)
	unknown.Bytes(2, m)
	unknown.Text(3, "")
	unknown.Text(4, "")
	return append([]byte(protobufMagic), unknown...)
}

// protobufList does the same as Protobuf for a list, but directly from its objects, in a third of the time. typ is
// that of the items.
func protobufList(typ string, meta listMeta, items []Object) wireMessage {
	remaining := any(nil)
	if meta.RemainingItemCount > 0 {
		remaining = float64(meta.RemainingItemCount)
	}
	token := ""
	if meta.Continue != nil {
		token = *meta.Continue
	}
	var m wireMessage
	m.value(1, "ListMeta", Object{
		"resourceVersion":    meta.ResourceVersion,
		"continue":           token,
		"remainingItemCount": remaining,
	})
	for _, o := range items {
		m.value(2, typ, o)
	}
	return m
}

// protoTypeOf returns the type of a kind. It defaults to Pod.
func protoTypeOf(apiVersion, kind string) string {
	if kind == "" {
		return "Pod"
	}
	return typeOfKind(apiVersion, kind)
}

// protobufEvent returns a watch event in protobuf, preceded by its length. o is an object as encoded by Protobuf.
func protobufEvent(event string, o []byte) []byte {
	var frame, raw wireMessage
	raw.Bytes(1, o)
	frame.Text(1, event)
	frame.Bytes(2, raw)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}
