package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
)

// Mask returns a frame of a watch in which asterisks replace the values of most fields. Steps may show only what it
// returns: environment variables and annotations, such as the one of kubectl apply, may have secrets. What stays are the
// fields that podcount reads, harmless metadata, and in protobuf also numbers. In protobuf, every byte keeps its place;
// JSON is written again. If the frame cannot be understood, Mask returns nil. It may change the frame.
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
	keepsAll bool   // the field stays as it is
	prefix   string // what stands before the message
	fields   []protobufField
}

// protobufField is a field of a message that stays, or a part of which stays.
type protobufField struct {
	number uint64
	mask   *protobufMask
}

// keepAll is the mask of a field that stays as it is.
var keepAll = &protobufMask{keepsAll: true}

// The masks of a frame's messages.
// https://github.com/kubernetes/apimachinery/blob/master/pkg/apis/meta/v1/generated.proto
var (
	watchEventMask = &protobufMask{fields: []protobufField{
		{1, keepAll}, // type
		{2, rawExtensionMask},
	}}

	rawExtensionMask = &protobufMask{fields: []protobufField{
		{1, unknownMask},
	}}

	unknownMask = &protobufMask{prefix: "k8s\x00", fields: []protobufField{
		{1, keepAll}, // apiVersion and kind
		{2, objectMask},
	}}

	objectMask = &protobufMask{fields: []protobufField{
		{1, metadataMask},
		{2, specMask},
		{3, statusMask},
	}}

	metadataMask = &protobufMask{fields: []protobufField{
		{1, keepAll},  // name
		{2, keepAll},  // generateName
		{3, keepAll},  // namespace
		{5, keepAll},  // uid
		{6, keepAll},  // resourceVersion
		{8, keepAll},  // creationTimestamp
		{11, keepAll}, // labels
		{12, annotationMask},
		{13, keepAll}, // ownerReferences
		{14, keepAll}, // finalizers
	}}

	annotationMask = &protobufMask{fields: []protobufField{{1, keepAll}}} // its key

	specMask = &protobufMask{fields: []protobufField{{10, keepAll}}} // nodeName of a pod

	statusMask = &protobufMask{fields: []protobufField{{1, keepAll}}} // phase of a pod
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
	return frame, watchEventMask.apply(frame[lengthSize:])
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
	rest, hasPrefix := bytes.CutPrefix(message, []byte(m.prefix))
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
	mask := m.maskOf(number)
	switch {
	case mask == nil:
		for i := range content {
			content[i] = '*'
		}
		return nil
	case mask.keepsAll:
		return nil
	}
	return mask.apply(content)
}

// maskOf returns the mask of a field, or nil if nothing of it stays.
func (m *protobufMask) maskOf(number uint64) *protobufMask {
	for _, field := range m.fields {
		if field.number == number {
			return field.mask
		}
	}
	return nil
}

// The fields of an object in JSON that stay, by the name of the part that they are in. All others are masked.
var (
	keptOfObject   = []string{"apiVersion", "kind"}
	keptOfMetadata = []string{
		"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "labels",
		"ownerReferences", "finalizers",
	}
	keptOfSpec   = []string{"nodeName", "name", "count"}
	keptOfStatus = []string{"phase", "count", "healthy", "observedGeneration"}
)

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
	maskFields(event.Object, keptOfObject, "metadata", "spec", "status")
	maskFields(partOf(event.Object, "spec"), keptOfSpec)
	maskFields(partOf(event.Object, "status"), keptOfStatus)
	metadata := partOf(event.Object, "metadata")
	maskFields(metadata, keptOfMetadata, "annotations")
	maskFields(partOf(metadata, "annotations"), nil)
	return json.Marshal(event)
}

// partOf returns a field that is an object, or nil if it is none.
func partOf(object map[string]any, name string) map[string]any {
	part, _ := object[name].(map[string]any)
	return part
}

// maskFields masks the values of an object, except those of the kept fields, and of the fields that are parts.
func maskFields(object map[string]any, kept []string, parts ...string) {
	for name, value := range object {
		_, isObject := value.(map[string]any)
		isPart := isObject && slices.Contains(parts, name)
		if !isPart && !slices.Contains(kept, name) {
			object[name] = "***"
		}
	}
}
