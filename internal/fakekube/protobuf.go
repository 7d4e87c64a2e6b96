package fakekube

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Message is a protobuf message that is being written, field by field, in the order of the calls. The zero Message is
// empty and ready. It is for tests that need bytes no server would send.
// https://protobuf.dev/programming-guides/encoding/
type Message []byte

// Bytes adds a field of bytes, or of a message.
func (b *Message) Bytes(field int, v []byte) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3|2)
	*b = binary.AppendUvarint(*b, uint64(len(v)))
	*b = append(*b, v...)
}

// Text adds a field of text.
func (b *Message) Text(field int, v string) { b.Bytes(field, []byte(v)) }

// Int adds a field of a number.
func (b *Message) Int(field, v int) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3)
	*b = binary.AppendUvarint(*b, uint64(v))
}

// Protobuf is the answer in protobuf that is this one in JSON: a pod, a node, their lists or their metadata, or a
// Status. Of these, it writes the fields that clients of such a server read. It panics where the answer is no JSON.
func Protobuf(answer []byte) []byte {
	var o Object
	if err := json.Unmarshal(answer, &o); err != nil {
		panic(err)
	}
	var m Message
	items, isList := o["items"].([]any)
	switch {
	case o["kind"] == "Status":
		m = protobufStatus(o)
	case isList:
		var meta Message
		meta.Text(1, "")
		meta.Text(2, TextIn(MetaOf(o), "resourceVersion"))
		meta.Text(3, TextIn(MetaOf(o), "continue"))
		m.Bytes(1, meta)
		for _, item := range items {
			m.Bytes(2, ProtobufObject(item.(Object)))
		}
	default:
		m = ProtobufObject(o)
	}
	var types Message
	types.Text(1, TextIn(o, "apiVersion"))
	types.Text(2, TextIn(o, "kind"))
	var unknown Message
	unknown.Bytes(1, types)
	unknown.Bytes(2, m)
	unknown.Text(3, "")
	unknown.Text(4, "")
	return append([]byte("k8s\x00"), unknown...)
}

// protobufStatus is the message of a Status.
func protobufStatus(o Object) Message {
	var meta Message
	for field := range 3 {
		meta.Text(field+1, "")
	}
	var m Message
	m.Bytes(1, meta)
	m.Text(2, TextIn(o, "status"))
	m.Text(3, TextIn(o, "message"))
	m.Text(4, TextIn(o, "reason"))
	if details, ok := o["details"].(Object); ok {
		var d Message
		for i, key := range []string{"name", "group", "kind"} {
			d.Text(i+1, TextIn(details, key))
		}
		causes, _ := details["causes"].([]any)
		for _, c := range causes {
			var cause Message
			for i, key := range []string{"reason", "message", "field"} {
				cause.Text(i+1, TextIn(c.(Object), key))
			}
			d.Bytes(4, cause)
		}
		seconds, _ := details["retryAfterSeconds"].(float64)
		d.Int(5, int(seconds))
		m.Bytes(5, d)
	}
	code, _ := o["code"].(float64)
	m.Int(6, int(code))
	return m
}

// ProtobufObject is the message of a pod, a node, or the metadata of either.
func ProtobufObject(o Object) Message {
	var m Message
	m.Bytes(1, protobufMeta(MetaOf(o)))
	if spec, ok := o["spec"].(Object); ok {
		var podSpec Message
		containers, _ := spec["containers"].([]any)
		for _, c := range containers {
			var container Message
			of, _ := c.(Object)
			container.Text(1, TextIn(of, "name"))
			container.Text(2, TextIn(of, "image"))
			podSpec.Bytes(2, container)
		}
		podSpec.Text(10, TextIn(spec, "nodeName"))
		m.Bytes(2, podSpec)
	}
	if status, ok := o["status"].(Object); ok {
		var phase Message
		phase.Text(1, TextIn(status, "phase"))
		m.Bytes(3, phase)
	}
	return m
}

// protobufMeta is the message of an object's metadata.
func protobufMeta(of Object) Message {
	var meta Message
	for i, key := range []string{"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"} {
		meta.Text(i+1, TextIn(of, key))
	}
	generation, _ := of["generation"].(float64)
	meta.Int(7, int(generation))
	var created Message
	at, _ := time.Parse(time.RFC3339, TextIn(of, "creationTimestamp"))
	created.Int(1, int(at.Unix()))
	created.Int(2, 0)
	meta.Bytes(8, created)
	for i, field := range []string{"labels", "annotations"} {
		all, _ := of[field].(Object)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			var entry Message
			entry.Text(1, key)
			entry.Text(2, TextIn(all, key))
			meta.Bytes(11+i, entry)
		}
	}
	return meta
}

// ProtobufEvent is a frame of a watch in protobuf, with its length first. o is an object as Protobuf makes it.
func ProtobufEvent(event string, o []byte) []byte {
	var frame, raw Message
	raw.Bytes(1, o)
	frame.Text(1, event)
	frame.Bytes(2, raw)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}
