package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
)

// maskFrame returns the first bytes of a frame of a watch, in which asterisks replace the values of most fields:
// environment variables and annotations, such as the one of kubectl apply, may have secrets. What stays are the fields
// that podcount reads, harmless metadata, and in protobuf also numbers. In protobuf, every byte keeps its place. JSON
// gets shorter. The Status in an ERROR has nothing to hide.
//
// The head is the beginning of the frame that the step is about, and may end anywhere. If it cannot be understood,
// maskFrame returns nil.
func maskFrame(head []byte, step Step) []byte {
	var masked []byte
	var err error
	switch {
	case step.Type == "ERROR":
		masked = head
	case step.IsProtobuf:
		masked, err = maskProtobuf(head, step.Size)
	default:
		masked, err = maskJSON(head)
	}
	if err != nil && err != errCut {
		return nil
	}
	return masked[:min(len(masked), ByteLimit)]
}

// Both mean that a head cannot be masked any further.
var (
	errGarbled = errors.New("the frame cannot be understood")
	errCut     = errors.New("the head ends within a value")
)

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

// maskProtobuf masks a frame: four bytes with its length, and a WatchEvent.
func maskProtobuf(head []byte, size int) ([]byte, error) {
	const lengthSize = 4
	if len(head) < lengthSize || int64(binary.BigEndian.Uint32(head)) != int64(size-lengthSize) {
		return nil, errGarbled
	}
	masked := bytes.Clone(head)
	return masked, watchEventMask.apply(masked[lengthSize:], size-len(head))
}

// The wire types of protobuf. https://protobuf.dev/programming-guides/encoding/#structure
const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireFixed4 = 5
)

// apply masks the beginning of a message in place. missing is how many bytes of the message are not there.
func (m *protobufMask) apply(message []byte, missing int) error {
	prefix := m.prefix
	if missing > 0 {
		prefix = prefix[:min(len(prefix), len(message))]
	}
	rest, hasPrefix := bytes.CutPrefix(message, []byte(prefix))
	if !hasPrefix {
		return errGarbled
	}
	for len(rest) > 0 {
		tag, tagSize, err := readVarint(rest, missing)
		if err != nil {
			return err
		}
		rest = rest[tagSize:]
		size := uint64(0) // of the content, after its length
		isBytes := false
		switch tag & 7 {
		case wireVarint:
			_, varintSize, err := readVarint(rest, missing)
			if err != nil {
				return err
			}
			size = uint64(varintSize)
		case wireFixed8:
			size = 8
		case wireFixed4:
			size = 4
		case wireBytes:
			contentSize, prefixSize, err := readVarint(rest, missing)
			if err != nil {
				return err
			}
			rest = rest[prefixSize:]
			size = contentSize
			isBytes = true
		default:
			return errGarbled
		}
		if size > uint64(len(rest)+missing) {
			return errGarbled
		}
		content := rest[:min(size, uint64(len(rest)))]
		rest = rest[len(content):]
		if isBytes {
			if err := m.maskField(tag>>3, content, int(size)-len(content)); err != nil {
				return err
			}
		}
	}
	return nil
}

// readVarint reads a varint at the beginning of the rest of a message.
func readVarint(rest []byte, missing int) (value uint64, size int, err error) {
	value, size = binary.Uvarint(rest)
	switch {
	case size > 0:
		return value, size, nil
	case size == 0 && missing > 0:
		return 0, 0, errCut
	}
	return 0, 0, errGarbled
}

// maskField masks the content of a field that has a length: a text, bytes or a message. missing is how many bytes of it
// are not there.
func (m *protobufMask) maskField(number uint64, content []byte, missing int) error {
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
	return mask.apply(content, missing)
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

// jsonMask says which parts of a value in JSON stay. The names of an object's members stay, too.
type jsonMask struct {
	keepsAll bool                 // the value stays as it is
	members  map[string]*jsonMask // if the value is an object; other values, and members without a mask, are masked
}

// jsonKeepAll is the mask of a value that stays as it is.
var jsonKeepAll = &jsonMask{keepsAll: true}

// jsonObject returns the mask of an object. The kept members stay as they are, and each of the parts has a mask.
func jsonObject(kept []string, parts map[string]*jsonMask) *jsonMask {
	members := map[string]*jsonMask{}
	maps.Copy(members, parts)
	for _, name := range kept {
		members[name] = jsonKeepAll
	}
	return &jsonMask{members: members}
}

// The masks of a frame in JSON.
var (
	jsonEventMask = jsonObject([]string{"type"}, map[string]*jsonMask{"object": jsonObjectMask})

	jsonObjectMask = jsonObject([]string{"apiVersion", "kind"}, map[string]*jsonMask{
		"metadata": jsonMetadataMask,
		"spec":     jsonObject([]string{"nodeName", "name", "count"}, nil),
		"status":   jsonObject([]string{"phase", "count", "healthy", "observedGeneration"}, nil),
	})

	jsonMetadataMask = jsonObject([]string{
		"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "labels",
		"ownerReferences", "finalizers",
	}, map[string]*jsonMask{"annotations": jsonObject(nil, nil)})
)

// jsonMasker copies what stays of a frame.
type jsonMasker struct {
	head []byte
	in   *json.Decoder // reads head
	out  []byte
}

// maskJSON masks a frame in JSON.
func maskJSON(head []byte) ([]byte, error) {
	m := &jsonMasker{head: head, in: json.NewDecoder(bytes.NewReader(head))}
	err := m.copyValue(jsonEventMask)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errCut
	}
	return m.out, err
}

// copyValue reads the next value, and writes what of it stays: nothing if mask is nil.
func (m *jsonMasker) copyValue(mask *jsonMask) error {
	next := bytes.TrimLeft(m.head[m.in.InputOffset():], " \t\r\n:,")
	if len(next) == 0 || len(m.out) >= ByteLimit {
		return errCut
	}
	isKept := mask != nil && mask.keepsAll
	if mask != nil && !isKept && next[0] == '{' {
		return m.copyMembers(mask)
	}
	if !isKept {
		m.write(`"***"`)
	}
	var value json.RawMessage
	if err := m.in.Decode(&value); err != nil {
		return err
	}
	if isKept {
		m.out = append(m.out, value...)
	}
	return nil
}

// copyMembers reads the next value, which is an object, and writes the names of its members with what stays of their
// values.
func (m *jsonMasker) copyMembers(mask *jsonMask) error {
	if _, err := m.in.Token(); err != nil { // {
		return err
	}
	m.write("{")
	for isFirst := true; m.in.More(); isFirst = false {
		start := m.in.InputOffset()
		name, err := m.in.Token()
		if err != nil {
			return err
		}
		if !isFirst {
			m.write(",")
		}
		asWritten := m.head[start:m.in.InputOffset()]
		m.out = append(m.out, bytes.TrimLeft(asWritten, " \t\r\n,")...)
		m.write(":")
		if err := m.copyValue(mask.members[name.(string)]); err != nil {
			return err
		}
	}
	if _, err := m.in.Token(); err != nil { // }
		return err
	}
	m.write("}")
	return nil
}

func (m *jsonMasker) write(text string) { m.out = append(m.out, text...) }
