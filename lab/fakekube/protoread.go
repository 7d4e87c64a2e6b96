package fakekube

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"
)

// The protobuf wire types that the API uses. https://protobuf.dev/programming-guides/encoding/#structure
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
)

// protobufMagic is the prefix of all protobuf bodies.
const protobufMagic = "k8s\x00"

// errProtobuf is the server's error for a truncated message. The fake uses it for every message that it cannot read.
var errProtobuf = io.ErrUnexpectedEOF

// openEnvelope unwraps an object from the API's envelope. Errors have the server's wording.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
func openEnvelope(data []byte) (t typeMeta, message []byte, err error) {
	envelope, hasMagic := bytes.CutPrefix(data, []byte(protobufMagic))
	if !hasMagic {
		return t, nil, fmt.Errorf("provided data does not appear to be a protobuf message, expected prefix %v",
			[]byte(protobufMagic))
	}
	if len(envelope) == 0 {
		return t, nil, errors.New("empty body")
	}
	var types []byte
	err = eachField(envelope, func(f wireValue) error {
		switch f.number {
		case 1:
			types = f.bytes
		case 2:
			message = f.bytes
		}
		return nil
	})
	if err != nil {
		return t, nil, err
	}
	err = eachField(types, func(f wireValue) error {
		switch f.number {
		case 1:
			t.APIVersion = string(f.bytes)
		case 2:
			t.Kind = string(f.bytes)
		}
		return nil
	})
	return t, message, err
}

// fromProtobuf decodes an object without its envelope.
func fromProtobuf(t typeMeta, message []byte) (Object, error) {
	typ := typeOfKind(t.APIVersion, t.Kind)
	if protoTypes[typ] == nil {
		return nil, errors.New("the fake has no protobuf of " + t.Kind)
	}
	o := Object{}
	if err := readMessage(o, typ, 0, message); err != nil {
		return nil, err
	}
	o["apiVersion"] = t.APIVersion
	o["kind"] = t.Kind
	return o, nil
}

// readProtobuf replaces the protobuf body of a request by JSON. If it cannot, it answers so and returns false.
func (r *request) readProtobuf() bool {
	t, message, err := openEnvelope(r.body)
	if err != nil {
		r.failUnreadable(err)
		return false
	}
	o, err := fromProtobuf(t, message)
	if err != nil {
		r.failDecoding(t.Kind, t.APIVersion, err.Error())
		return false
	}
	r.body, err = json.Marshal(o)
	if err != nil {
		r.badRequest(err.Error()) // such as an invalid number
		return false
	}
	r.Header = r.Header.Clone()
	r.Header.Set("Content-Type", mediaJSON)
	return true
}

// failUnreadable answers 400 because the body is not an object. Like the server, it says less if the body is
// DeleteOptions.
func (r *request) failUnreadable(err error) {
	if r.Method == http.MethodDelete {
		r.badRequest(err.Error())
		return
	}
	r.badRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)",
		r.kind.kind, err, shownBody(r.body)))
}

// wireValue is a field in an encoded message.
type wireValue struct {
	number int
	scalar uint64 // a varint or the bits of a fixed-size number
	bytes  []byte // a string, bytes or a message
}

// eachField calls do for each field of a message. It stops at the first error.
func eachField(data []byte, do func(wireValue) error) error {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 {
			return errProtobuf
		}
		data = data[n:]
		f := wireValue{number: int(tag >> 3)}
		switch tag & 7 {
		case wireVarint:
			f.scalar, n = binary.Uvarint(data)
			if n <= 0 {
				return errProtobuf
			}
			data = data[n:]
		case wireFixed64:
			if len(data) < 8 {
				return errProtobuf
			}
			f.scalar = binary.LittleEndian.Uint64(data)
			data = data[8:]
		case wireBytes:
			length, n := binary.Uvarint(data)
			if n <= 0 || length > uint64(len(data)-n) {
				return errProtobuf
			}
			f.bytes = data[n : n+int(length)]
			data = data[n+int(length):]
		default:
			return errProtobuf
		}
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

// readMessage adds the fields of a message to an object of a type. For a nested message that JSON does not have,
// outer is its number; otherwise it is 0.
func readMessage(o Object, typ string, outer int, data []byte) error {
	return eachField(data, func(v wireValue) error {
		number := v.number
		inner := 0
		if outer > 0 {
			number = outer
			inner = v.number
		}
		if inner == 0 && isNested(typ, number) {
			return readMessage(o, typ, number, v.bytes)
		}
		f, isKnown := protoFieldOf(typ, number, inner)
		if !isKnown {
			return nil
		}
		return readField(o, f, v)
	})
}

// readField adds a field to an object. It drops values that JSON leaves out: empty texts, unset times, and empty
// values of fields that protobuf always contains.
func readField(o Object, f protoField, v wireValue) error {
	if items, isMap := strings.CutPrefix(f.typ, "map[string]"); isMap {
		entries, _ := o[f.name].(Object)
		if entries == nil {
			entries = Object{}
			o[f.name] = entries
		}
		return readEntry(entries, items, v.bytes)
	}
	items, isList := strings.CutPrefix(f.typ, "[]")
	if isList && items != "byte" {
		item, err := readValue(items, v)
		if err != nil {
			return err
		}
		list, _ := o[f.name].([]any)
		o[f.name] = append(list, item)
		return nil
	}
	value, err := readValue(f.typ, v)
	if err != nil {
		return err
	}
	inner, isObject := value.(Object)
	isEmpty := value == 0.0 || value == false || isObject && len(inner) == 0
	isNothing := value == nil || value == "" && !f.isKept || isEmpty && f.isWritten
	if !isNothing {
		o[f.name] = value
	}
	return nil
}

// readEntry adds an entry to a map. A missing value becomes the zero value of its type.
func readEntry(entries Object, typ string, data []byte) error {
	key := ""
	value, err := readValue(typ, wireValue{})
	if err != nil {
		return err
	}
	err = eachField(data, func(v wireValue) (err error) {
		if v.number == 1 {
			key = string(v.bytes)
			return nil
		}
		value, err = readValue(typ, v)
		return err
	})
	entries[key] = value
	return err
}

// readValue converts a value to what encoding/json would decode. It returns nil if there is none.
func readValue(typ string, v wireValue) (any, error) {
	switch typ {
	case "string":
		return string(v.bytes), nil
	case "bool":
		return v.scalar != 0, nil
	case "int32", "int64":
		return float64(int64(v.scalar)), nil
	case "float64":
		return math.Float64frombits(v.scalar), nil
	case "[]byte":
		return base64.StdEncoding.EncodeToString(v.bytes), nil
	}
	if protoTypes[typ] != nil && typ != "ExtraValue" {
		o := Object{}
		return o, readMessage(o, typ, 0, v.bytes)
	}
	return readWrapped(typ, v.bytes)
}

// readWrapped converts a message to the scalar that JSON has instead, such as a time or a quantity.
func readWrapped(typ string, data []byte) (any, error) {
	var numbers [4]int64
	var text string
	var texts []any
	err := eachField(data, func(v wireValue) error {
		if v.number < len(numbers) {
			numbers[v.number] = int64(v.scalar)
		}
		if v.bytes != nil {
			text = string(v.bytes)
			texts = append(texts, text)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch typ {
	case "Time", "MicroTime":
		if len(data) == 0 {
			return nil, nil
		}
		layout := time.RFC3339
		if typ == "MicroTime" {
			layout = "2006-01-02T15:04:05.000000Z07:00"
		}
		return time.Unix(numbers[1], numbers[2]).UTC().Format(layout), nil
	case "Quantity":
		return text, nil
	case "IntOrString":
		if numbers[1] == 0 {
			return float64(numbers[2]), nil
		}
		return text, nil
	case "ExtraValue":
		return texts, nil
	case "FieldsV1", anything:
		var value any
		return value, json.Unmarshal([]byte(text), &value)
	}
	return nil, errors.New("the fake has no protobuf of " + typ)
}
