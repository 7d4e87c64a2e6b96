package fakekube

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// object appends the fields of an object, and drops fields that the type lacks. In protoTypes, the fields of one
// nested message are adjacent.
func (b *wireMessage) object(typ string, o Object) {
	fields := protoTypes[typ]
	for i := 0; i < len(fields); {
		f := fields[i]
		if f.inner == 0 {
			b.field(f.number, f, o[f.name])
			i++
			continue
		}
		var nested wireMessage
		for ; i < len(fields) && fields[i].number == f.number; i++ {
			nested.field(fields[i].inner, fields[i], o[fields[i].name])
		}
		if len(nested) > 0 {
			b.Bytes(f.number, nested)
		}
	}
}

// field appends a field of an object. A field that protobuf always contains defaults to its zero value.
func (b *wireMessage) field(number int, f protoField, v any) {
	if v != nil || !f.isWritten {
		b.value(number, f.typ, v)
		return
	}
	switch f.typ {
	case "bool", "int32", "int64":
		b.Int(number, 0)
	case "string", "Time", "MicroTime":
		b.Text(number, "")
	default:
		b.value(number, f.typ, Object{})
	}
}

// value appends a field with a value as decoded by encoding/json. It appends nothing if the value is nil or has
// another type.
func (b *wireMessage) value(field int, typ string, v any) {
	if v == nil {
		return
	}
	if items, isList := strings.CutPrefix(typ, "[]"); isList && items != "byte" {
		list, _ := v.([]any)
		for _, item := range list {
			b.value(field, items, item)
		}
		return
	}
	if items, isMap := strings.CutPrefix(typ, "map[string]"); isMap {
		entries, _ := v.(Object)
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			var entry wireMessage
			entry.Text(1, key)
			entry.value(2, items, entries[key])
			b.Bytes(field, entry)
		}
		return
	}
	if o, isObject := v.(Object); isObject && protoTypes[typ] != nil {
		var m wireMessage
		m.object(typ, o)
		b.Bytes(field, m)
		return
	}
	b.scalar(field, typ, v)
}

// scalar appends a field whose JSON value has no fields.
func (b *wireMessage) scalar(field int, typ string, v any) {
	text, isText := v.(string)
	number, isNumber := v.(float64)
	switch typ {
	case "string":
		if isText {
			b.Text(field, text)
		}
	case "bool":
		if v == true {
			b.Int(field, 1)
		} else {
			b.Int(field, 0)
		}
	case "int32", "int64":
		if isNumber {
			b.Int(field, int(number))
		}
	case "float64":
		if isNumber {
			*b = binary.AppendUvarint(*b, uint64(field)<<3|wireFixed64)
			*b = binary.LittleEndian.AppendUint64(*b, math.Float64bits(number))
		}
	case "[]byte":
		if data, err := base64.StdEncoding.DecodeString(text); isText && err == nil {
			b.Bytes(field, data)
		}
	default:
		if m, isKnown := wrapScalar(typ, v); isKnown {
			b.Bytes(field, m)
		}
	}
}

// wrapScalar returns the message for a value that is a scalar in JSON.
func wrapScalar(typ string, v any) (m wireMessage, isKnown bool) {
	text, isText := v.(string)
	number, isNumber := v.(float64)
	switch typ {
	case "Time", "MicroTime":
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, false
		}
		m.Int(1, int(at.Unix()))
		m.Int(2, at.Nanosecond())
	case "Quantity":
		if !isText {
			text = fmt.Sprint(v)
		}
		m.Text(1, text)
	case "IntOrString":
		isString := 1
		if isNumber {
			isString = 0
		}
		m.Int(1, isString)
		m.Int(2, int(number))
		m.Text(3, text)
	case "ExtraValue":
		m.value(1, "[]string", v)
	case "FieldsV1", anything:
		data, err := json.Marshal(v)
		if err != nil {
			return nil, false
		}
		m.Bytes(1, data)
	default:
		return nil, false
	}
	return m, true
}
