package fakekube

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// typed is a value as the server stores it, once it has gone through the types of the API: without the fields that the
// types do not have, without what is empty, unless answers show that, and with a zero where answers always show one.
// The value itself is not changed. The error says, in the server's words, what is not of its type.
func typed(typ string, v any) (any, error) {
	return (&typing{}).value(v, typ)
}

// typing goes through a value. It knows where it is.
type typing struct {
	path   []string // of field names, from the root
	within string   // the type that has the field
}

// wrong says that a value is not of its type.
func (t *typing) wrong(v any, typ string) error {
	at := ""
	if len(t.path) > 0 {
		at = "Go struct field " + t.within + "." + strings.Join(t.path, ".")
	} else {
		at = "Go value"
	}
	return fmt.Errorf("json: cannot unmarshal %s into %s of type %s", jsonKind(v, typ), at, goType(typ))
}

// jsonKind is what encoding/json calls a value. It repeats a number that does not fit its type.
func jsonKind(v any, typ string) string {
	switch v := v.(type) {
	case bool:
		return "bool"
	case float64:
		if strings.HasPrefix(typ, "int") {
			return "number " + strconv.FormatFloat(v, 'f', -1, 64)
		}
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// goType is a type as Go's packages qualify it.
func goType(typ string) string {
	if items, isList := strings.CutPrefix(typ, "[]"); isList {
		return "[]" + goType(items)
	}
	if items, isMap := strings.CutPrefix(typ, "map[string]"); isMap {
		return "map[string]" + goType(items)
	}
	if _, isStruct := structs[typ]; isStruct {
		return "v1." + typ
	}
	return typ
}

func (t *typing) value(v any, typ string) (any, error) {
	switch {
	case v == nil:
		return nil, nil
	case typ == anything:
		return cloned(v), nil
	case structs[typ] != nil:
		return t.object(v, typ)
	case strings.HasPrefix(typ, "map[string]"):
		return t.mapping(v, typ)
	case typ == "[]byte":
		return t.encoded(v)
	case strings.HasPrefix(typ, "[]"):
		return t.list(v, typ)
	}
	return t.scalar(v, typ)
}

// object is a value of a type that has fields.
func (t *typing) object(v any, typ string) (any, error) {
	from, isObject := v.(Object)
	if !isObject {
		return nil, t.wrong(v, typ)
	}
	within := t.within
	t.within = typ
	defer func() { t.within = within }()
	into := Object{}
	for _, name := range fieldNames[typ] {
		f := structs[typ][name]
		t.path = append(t.path, name)
		value, err := t.value(from[name], f.typ)
		t.path = t.path[:len(t.path)-1]
		if err != nil {
			return nil, err
		}
		switch {
		case f.isShown && isNoItem(value):
			into[name] = zero(f.typ) // what etcd keeps does not tell an empty list from none
		case value != nil && f.shows(value):
			into[name] = value
		}
	}
	return into, nil
}

// shows reports whether answers show a field with this value.
func (f field) shows(value any) bool {
	if f.isNonzero && (value == false || value == float64(0)) {
		return false
	}
	return f.isShown || f.isKept || !isEmpty(value) || isSetExplicitly(value, f.typ)
}

// isEmpty reports whether a value is left out of answers: what is nothing, and what holds nothing.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case Object:
		return len(v) == 0
	}
	return false
}

// isNoItem reports whether a value is nothing, or a list of nothing.
func isNoItem(v any) bool {
	list, isList := v.([]any)
	return v == nil || isList && len(list) == 0
}

// isSetExplicitly reports whether a value that holds nothing tells more than none: an object {} does, in most places,
// as in "emptyDir: {}", and so does any value in the schema of a definition, as in "default: {}".
func isSetExplicitly(v any, typ string) bool {
	_, isObject := v.(Object)
	isPartOfSchema := strings.HasPrefix(typ, "JSON")
	return isObject && structs[typ] != nil || isPartOfSchema
}

// zero is what answers show of a field that is not set.
func zero(typ string) any {
	switch {
	case structs[typ] != nil:
		shown, _ := typed(typ, Object{})
		return shown
	case typ == "string":
		return ""
	case typ == "bool":
		return false
	case strings.HasPrefix(typ, "int"):
		return float64(0)
	}
	return nil
}

// mapping is a value of a type that maps texts to values.
func (t *typing) mapping(v any, typ string) (any, error) {
	from, isObject := v.(Object)
	if !isObject {
		return nil, t.wrong(v, typ)
	}
	into := Object{}
	items := strings.TrimPrefix(typ, "map[string]")
	if items == "Quantity" {
		return resourceList(from)
	}
	for _, key := range slices.Sorted(maps.Keys(from)) {
		value, err := t.value(from[key], items)
		if err != nil {
			return nil, err
		}
		if value == nil && items == "string" {
			value = ""
		}
		into[key] = value
	}
	return into, nil
}

// resourceList is the amounts of resources, by their names.
func resourceList(from Object) (any, error) {
	into := Object{}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		text, err := quantityText(cmp.Or(from[name], any("0")), milliExponent)
		if err != nil {
			return nil, err
		}
		into[name] = text
	}
	return into, nil
}

// list is a value of a type that is a list.
func (t *typing) list(v any, typ string) (any, error) {
	from, isList := v.([]any)
	if !isList {
		return nil, t.wrong(v, typ)
	}
	items := typeOfItem(typ)
	into := make([]any, len(from))
	for i, item := range from {
		value, err := t.value(item, items)
		if err != nil {
			return nil, err
		}
		if value == nil {
			value = zero(items)
		}
		into[i] = value
	}
	return into, nil
}

// encoded is bytes in base64.
func (t *typing) encoded(v any) (any, error) {
	text, isText := v.(string)
	if !isText {
		return nil, t.wrong(v, "[]uint8")
	}
	_, err := base64.StdEncoding.DecodeString(text)
	return text, err
}

// microTime is the layout of times with exactly six digits after the second.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// scalar is a value that has no parts.
func (t *typing) scalar(v any, typ string) (any, error) {
	isOf := true
	switch typ {
	case "string":
		_, isOf = v.(string)
	case "bool":
		_, isOf = v.(bool)
	case "int32":
		number, isNumber := v.(float64)
		isOf = isNumber && number == math.Trunc(number) && number >= math.MinInt32 && number <= math.MaxInt32
	case "int64":
		number, isNumber := v.(float64)
		isOf = isNumber && isInt64(number)
	case "float64":
		_, isOf = v.(float64)
	case "Time":
		return t.time(v, time.RFC3339)
	case "MicroTime":
		return t.time(v, microTime)
	case "Quantity":
		return quantityText(v, nanoExponent)
	}
	if !isOf {
		return nil, t.wrong(v, typ)
	}
	return cloned(v), nil
}

// isInt64 reports whether a number is one of int64.
func isInt64(number float64) bool {
	return number == math.Trunc(number) && number >= -1<<63 && number < 1<<63
}

// time is a time of this layout.
func (t *typing) time(v any, layout string) (any, error) {
	text, isText := v.(string)
	if !isText {
		return nil, fmt.Errorf("json: cannot unmarshal %s into Go value of type string", jsonKind(v, "string"))
	}
	at, err := time.Parse(layout, text)
	if err != nil {
		return nil, err
	}
	return at.UTC().Format(layout), nil
}

// quantityText is a quantity as the server shows it, rounded up to this power of ten. It may be sent as a number.
func quantityText(v any, exponent int) (any, error) {
	text, isText := v.(string)
	if number, isNumber := v.(float64); isNumber {
		text = strconv.FormatFloat(number, 'f', -1, 64)
		isText = true
	}
	if !isText {
		return nil, errQuantity
	}
	q, err := parseQuantity(text)
	if err != nil {
		return nil, err
	}
	q.roundUp(exponent)
	return q.String(), nil
}

// isSame reports whether two values are the same to a reader of JSON.
func isSame(a, b any) bool { return reflect.DeepEqual(cloned(a), cloned(b)) }
