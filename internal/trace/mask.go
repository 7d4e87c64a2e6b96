package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
)

// Mask returns a frame of a watch in which the values of most fields are replaced by asterisks. Steps may show only what
// it returns: environment variables and annotations, such as the one of kubectl apply, may have secrets. What stays are
// the fields that podcount reads, harmless metadata, and in protobuf also numbers. In protobuf, every byte keeps its
// place; JSON is written again.
// If the frame cannot be understood, Mask returns nil. It may change the frame.
func Mask(frame []byte, isProtobuf bool) []byte {
	mask := maskJSON
	if isProtobuf {
		mask = maskProtobuf
	}
	masked, err := mask(frame)
	if err != nil {
		return nil
	}
	return masked
}

// protobufMask says which fields of a message stay. Of the fields that it does not name, texts, bytes and messages are
// masked. Numbers stay.
type protobufMask struct {
	keepsAll bool                     // the field stays as it is
	prefix   []byte                   // what stands before the message
	fields   map[uint64]*protobufMask // by field number
}

// keepAll is the mask of a field that stays as it is.
var keepAll = &protobufMask{keepsAll: true}

// The masks of a frame's messages.
// https://github.com/kubernetes/apimachinery/blob/master/pkg/apis/meta/v1/generated.proto
var (
	frameMask = &protobufMask{fields: map[uint64]*protobufMask{ // WatchEvent
		1: keepAll, // type
		2: {fields: map[uint64]*protobufMask{ // RawExtension
			1: {prefix: []byte("k8s\x00"), fields: map[uint64]*protobufMask{ // Unknown
				1: keepAll, // apiVersion and kind
				2: objectMask,
			}},
		}},
	}}

	objectMask = &protobufMask{fields: map[uint64]*protobufMask{
		1: metadataMask,
		2: {fields: map[uint64]*protobufMask{10: keepAll}}, // nodeName in the spec of a pod
		3: {fields: map[uint64]*protobufMask{1: keepAll}},  // phase in the status of a pod
	}}

	metadataMask = &protobufMask{fields: map[uint64]*protobufMask{
		1:  keepAll,                                        // name
		2:  keepAll,                                        // generateName
		3:  keepAll,                                        // namespace
		5:  keepAll,                                        // uid
		6:  keepAll,                                        // resourceVersion
		8:  keepAll,                                        // creationTimestamp
		11: keepAll,                                        // labels
		12: {fields: map[uint64]*protobufMask{1: keepAll}}, // the keys of annotations
		13: keepAll,                                        // ownerReferences
		14: keepAll,                                        // finalizers
	}}
)

// errGarbled means that a frame is not what it should be.
var errGarbled = errors.New("the frame cannot be understood")

// maskProtobuf masks a frame: four bytes with its length, and a WatchEvent.
func maskProtobuf(frame []byte) ([]byte, error) {
	const lengthSize = 4
	if len(frame) < lengthSize {
		return nil, errGarbled
	}
	const errorType = "\x0a\x05ERROR" // field 1, a text of five bytes
	isError := bytes.HasPrefix(frame[lengthSize:], []byte(errorType))
	if isError {
		return frame, nil // The object is a Status, which has nothing to hide.
	}
	return frame, frameMask.apply(frame[lengthSize:])
}

// The wire types of protobuf. https://protobuf.dev/programming-guides/encoding/#structure
const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireFixed4 = 5
)

// apply masks a message in place.
func (m *protobufMask) apply(message []byte) error {
	rest, hasPrefix := bytes.CutPrefix(message, m.prefix)
	if !hasPrefix {
		return errGarbled
	}
	for len(rest) > 0 {
		tag, tagSize := binary.Uvarint(rest)
		if tagSize <= 0 {
			return errGarbled
		}
		rest = rest[tagSize:]
		number := tag >> 3
		size := 0
		switch tag & 7 {
		case wireVarint:
			_, size = binary.Uvarint(rest)
		case wireFixed8:
			size = 8
		case wireFixed4:
			size = 4
		case wireBytes:
			contentSize, prefixSize := binary.Uvarint(rest)
			if prefixSize <= 0 || contentSize > uint64(len(rest)-prefixSize) {
				return errGarbled
			}
			size = prefixSize + int(contentSize)
			if err := m.maskField(number, rest[prefixSize:size]); err != nil {
				return err
			}
		default:
			return errGarbled
		}
		if size <= 0 || size > len(rest) {
			return errGarbled
		}
		rest = rest[size:]
	}
	return nil
}

// maskField masks the content of a field that has a length: a text, bytes or a message.
func (m *protobufMask) maskField(number uint64, content []byte) error {
	field, isKnown := m.fields[number]
	switch {
	case !isKnown:
		for i := range content {
			content[i] = '*'
		}
		return nil
	case field.keepsAll:
		return nil
	}
	return field.apply(content)
}

// jsonMask says which fields of an object stay: those with the value nil as they are, the others by their own mask.
// Fields that it does not name are masked.
type jsonMask map[string]jsonMask

var jsonObjectMask = jsonMask{
	"apiVersion": nil,
	"kind":       nil,
	"metadata": {
		"name":              nil,
		"generateName":      nil,
		"namespace":         nil,
		"uid":               nil,
		"resourceVersion":   nil,
		"generation":        nil,
		"creationTimestamp": nil,
		"labels":            nil,
		"annotations":       {}, // their keys
		"ownerReferences":   nil,
		"finalizers":        nil,
	},
	"spec":   {"nodeName": nil, "name": nil, "count": nil},
	"status": {"phase": nil, "count": nil, "healthy": nil, "observedGeneration": nil},
}

// maskJSON masks a frame in JSON.
func maskJSON(frame []byte) ([]byte, error) {
	var event struct {
		Type   string         `json:"type"`
		Object map[string]any `json:"object"`
	}
	decoder := json.NewDecoder(bytes.NewReader(frame))
	decoder.UseNumber() // A float64 could change a number.
	if err := decoder.Decode(&event); err != nil {
		return nil, err
	}
	if event.Type == "ERROR" {
		return frame, nil
	}
	jsonObjectMask.apply(event.Object)
	return json.Marshal(event)
}

// apply masks the fields of an object in place.
func (m jsonMask) apply(object map[string]any) {
	for name, value := range object {
		mask, isKnown := m[name]
		part, isObject := value.(map[string]any)
		switch {
		case isKnown && mask == nil:
			// It stays as it is.
		case isKnown && isObject:
			mask.apply(part)
		default:
			object[name] = "***"
		}
	}
}
