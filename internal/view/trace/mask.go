package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"slices"
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

// field is a field of a message that stays. If it has parts, only these stay, and the names of an object's members in
// JSON. In protobuf, numbers stay, too.
type field struct {
	number uint64 // in protobuf; 0 if it needs none there
	name   string // in JSON; "" if it needs none there
	parts  []field
}

// The fields that stay of an object.
// https://github.com/kubernetes/apimachinery/blob/master/pkg/apis/meta/v1/generated.proto
var (
	objectFields = []field{
		{0, "apiVersion", nil},
		{0, "kind", nil},
		{1, "metadata", metadataFields},
		{2, "spec", []field{{10, "nodeName", nil}, {0, "name", nil}, {0, "count", nil}}},
		{3, "status", statusFields},
	}

	statusFields = []field{{1, "phase", nil}, {0, "count", nil}, {0, "healthy", nil}, {0, "observedGeneration", nil}}

	metadataFields = []field{
		{1, "name", nil},
		{2, "generateName", nil},
		{3, "namespace", nil},
		{5, "uid", nil},
		{6, "resourceVersion", nil},
		{0, "generation", nil},
		{8, "creationTimestamp", nil},
		{11, "labels", nil},
		{12, "annotations", []field{{1, "", nil}}}, // only their keys
		{13, "ownerReferences", nil},
		{14, "finalizers", nil},
	}
)

// The fields that stay of a frame. In protobuf, the object is in an Unknown, which is in a RawExtension.
var (
	jsonFrame     = field{parts: []field{{0, "type", nil}, {0, "object", objectFields}}}
	protobufFrame = []field{{1, "type", nil}, {2, "object", []field{{1, "raw", unknownFields}}}}
	unknownFields = []field{{1, "typeMeta", nil}, {2, "raw", objectFields}}
)

// maskProtobuf masks a frame: four bytes with its length, and a WatchEvent.
func maskProtobuf(head []byte, size int) ([]byte, error) {
	const lengthSize = 4
	if len(head) < lengthSize || int64(binary.BigEndian.Uint32(head)) != int64(size-lengthSize) {
		return nil, errGarbled
	}
	masked := bytes.Clone(head)
	return masked, maskMessage(masked[lengthSize:], size-len(head), protobufFrame)
}

// The wire types of protobuf. https://protobuf.dev/programming-guides/encoding/#structure
const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireFixed4 = 5
)

// maskMessage masks the beginning of a message in place, but for these fields. missing is how many bytes of the message
// are not there.
func maskMessage(message []byte, missing int, kept []field) error {
	rest := bytes.TrimPrefix(message, []byte("k8s\x00")) // An Unknown begins with it, and nothing else does.
	for len(rest) > 0 {
		tag, err := cutVarint(&rest, missing)
		if err != nil {
			return err
		}
		size := uint64(0) // of the content, which may be cut off
		switch tag & 7 {
		case wireVarint:
			_, err = cutVarint(&rest, missing)
		case wireFixed8:
			size = 8
		case wireFixed4:
			size = 4
		case wireBytes:
			size, err = cutVarint(&rest, missing)
		default:
			err = errGarbled
		}
		if err != nil {
			return err
		}
		if size > uint64(len(rest)+missing) {
			return errGarbled
		}
		content := rest[:min(size, uint64(len(rest)))]
		rest = rest[len(content):]
		if tag&7 == wireBytes {
			if err := maskContent(tag>>3, content, int(size)-len(content), kept); err != nil {
				return err
			}
		}
	}
	return nil
}

// cutVarint reads a varint at the beginning of the rest of a message, and removes it there.
func cutVarint(rest *[]byte, missing int) (uint64, error) {
	value, size := binary.Uvarint(*rest)
	switch {
	case size > 0:
		*rest = (*rest)[size:]
		return value, nil
	case size == 0 && missing > 0:
		return 0, errCut
	}
	return 0, errGarbled
}

// maskContent masks a text, bytes or a message, unless it is of a field that stays. missing is how many bytes of it are
// not there.
func maskContent(number uint64, content []byte, missing int, kept []field) error {
	at := slices.IndexFunc(kept, func(f field) bool { return f.number == number && number > 0 })
	switch {
	case at < 0:
		for i := range content {
			content[i] = '*'
		}
		return nil
	case kept[at].parts == nil:
		return nil
	}
	return maskMessage(content, missing, kept[at].parts)
}

// jsonMasker copies what stays of a frame.
type jsonMasker struct {
	head []byte
	in   *json.Decoder // reads head
	out  []byte
}

// maskJSON masks a frame in JSON.
func maskJSON(head []byte) ([]byte, error) {
	m := &jsonMasker{head: head, in: json.NewDecoder(bytes.NewReader(head))}
	err := m.copyValue(&jsonFrame)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errCut
	}
	return m.out, err
}

// copyValue reads the next value, and writes what of it stays: nothing if kept is nil.
func (m *jsonMasker) copyValue(kept *field) error {
	next := bytes.TrimLeft(m.head[m.in.InputOffset():], " \t\r\n:,")
	if len(next) == 0 || len(m.out) >= ByteLimit {
		return errCut
	}
	isWhole := kept != nil && kept.parts == nil
	if kept != nil && !isWhole && next[0] == '{' {
		return m.copyMembers(kept.parts)
	}
	if !isWhole {
		m.write(`"***"`)
	}
	var value json.RawMessage
	if err := m.in.Decode(&value); err != nil {
		return err
	}
	if isWhole {
		m.out = append(m.out, value...)
	}
	return nil
}

// copyMembers reads the next value, which is an object, and writes the names of its members with what stays of their
// values.
func (m *jsonMasker) copyMembers(kept []field) error {
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
		if err := m.copyValue(named(kept, name.(string))); err != nil {
			return err
		}
	}
	if _, err := m.in.Token(); err != nil { // }
		return err
	}
	m.write("}")
	return nil
}

// named returns the field with this name in JSON, or nil if it does not stay.
func named(kept []field, name string) *field {
	at := slices.IndexFunc(kept, func(f field) bool { return f.name == name && name != "" })
	if at < 0 {
		return nil
	}
	return &kept[at]
}

func (m *jsonMasker) write(text string) { m.out = append(m.out, text...) }
