package fakekube

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// convert returns a value in the form in which the server stores it after decoding it into its Go types: without
// unknown fields and empty values, but with zeros for fields that answers always show. It does not modify v. The
// error has the server's wording.
func convert(typ string, v any) (any, error) {
	return (&converter{}).value(v, typ)
}

// converter converts a value and keeps track of its position.
type converter struct {
	path  []string // field names from the root
	owner string   // type that has the field
}

// typeError returns encoding/json's error for a value of the wrong type.
func (t *converter) typeError(v any, typ string) error {
	at := ""
	if len(t.path) > 0 {
		at = "Go struct field " + goName(t.owner) + "." + strings.Join(t.path, ".")
	} else {
		at = "Go value"
	}
	return fmt.Errorf("json: cannot unmarshal %s into %s of type %s", jsonKind(v, typ), at, goType(typ))
}

// jsonKind returns encoding/json's name for a value. It includes a number that is out of range.
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

// goType returns a type's qualified Go name.
func goType(typ string) string {
	if items, isList := strings.CutPrefix(typ, "[]"); isList {
		return "[]" + goType(items)
	}
	if items, isMap := strings.CutPrefix(typ, "map[string]"); isMap {
		return "map[string]" + goType(items)
	}
	if _, isStruct := structs[typ]; isStruct {
		return "v1." + goName(typ)
	}
	return typ
}

// goName returns the Go name of a type, without the package that may precede it in the schema.
func goName(typ string) string { return typ[strings.LastIndex(typ, ".")+1:] }

func (t *converter) value(v any, typ string) (any, error) {
	switch {
	case v == nil:
		return nil, nil
	case typ == anything:
		return cloned(v), nil
	case structs[typ] != nil:
		return t.object(v, typ)
	case strings.HasPrefix(typ, "map[string]"):
		return t.stringMap(v, typ)
	case typ == "[]byte":
		return t.base64Bytes(v)
	case strings.HasPrefix(typ, "[]"):
		return t.list(v, typ)
	}
	return t.scalar(v, typ)
}

// object converts a value of a type with fields.
func (t *converter) object(v any, typ string) (any, error) {
	from, isObject := v.(Object)
	if !isObject {
		return nil, t.typeError(v, typ)
	}
	within := t.owner
	t.owner = typ
	defer func() { t.owner = within }()
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
		case f.isShown && isEmptyList(value):
			into[name] = zeroValue(f.typ) // etcd stores an empty list like a missing one
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

// isEmpty reports whether a value is null, or an empty text, list or object.
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

// isEmptyList reports whether a value is null or an empty list.
func isEmptyList(v any) bool {
	list, isList := v.([]any)
	return v == nil || isList && len(list) == 0
}

// isSetExplicitly reports whether an empty value differs from a missing one. That holds for objects in most places,
// as in "emptyDir: {}", and for all values in a definition's schema, as in "default: {}".
func isSetExplicitly(v any, typ string) bool {
	_, isObject := v.(Object)
	isPartOfSchema := strings.HasPrefix(typ, "JSON")
	return isObject && structs[typ] != nil || isPartOfSchema
}

// zeroValue is what answers show for a field that is not set.
func zeroValue(typ string) any {
	switch {
	case structs[typ] != nil:
		shown, _ := convert(typ, Object{})
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

// stringMap converts a map with string keys.
func (t *converter) stringMap(v any, typ string) (any, error) {
	from, isObject := v.(Object)
	if !isObject {
		return nil, t.typeError(v, typ)
	}
	into := Object{}
	items := strings.TrimPrefix(typ, "map[string]")
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

// list converts a list.
func (t *converter) list(v any, typ string) (any, error) {
	from, isList := v.([]any)
	if !isList {
		return nil, t.typeError(v, typ)
	}
	items := typeOfItem(typ)
	into := make([]any, len(from))
	for i, item := range from {
		value, err := t.value(item, items)
		if err != nil {
			return nil, err
		}
		if value == nil {
			value = zeroValue(items)
		}
		into[i] = value
	}
	return into, nil
}

// base64Bytes checks bytes in base64.
func (t *converter) base64Bytes(v any) (any, error) {
	text, isText := v.(string)
	if !isText {
		return nil, t.typeError(v, "[]uint8")
	}
	_, err := base64.StdEncoding.DecodeString(text)
	return text, err
}

// microTime is the layout of times with microseconds.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// scalar converts a value without parts.
func (t *converter) scalar(v any, typ string) (any, error) {
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
		return quantityText(v)
	}
	if !isOf {
		return nil, t.typeError(v, typ)
	}
	return cloned(v), nil
}

// isInt64 reports whether a number fits into an int64.
func isInt64(number float64) bool {
	return number == math.Trunc(number) && number >= -1<<63 && number < 1<<63
}

// time converts a time in this layout to UTC.
func (t *converter) time(v any, layout string) (any, error) {
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

// quantityPattern is the syntax of quantities. The server's message contains it.
const quantityPattern = `^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$`

var quantitySyntax = regexp.MustCompile(quantityPattern)

// quantityText converts a quantity, which may be a number, to a text. It keeps the unit, where the server changes it to
// the largest possible one.
func quantityText(v any) (any, error) {
	if number, isNumber := v.(float64); isNumber {
		return strconv.FormatFloat(number, 'f', -1, 64), nil
	}
	text, isText := v.(string)
	if !isText || !quantitySyntax.MatchString(text) {
		return nil, errors.New("quantities must match the regular expression '" + quantityPattern + "'")
	}
	return text, nil
}

// isEqualJSON reports whether two values are equal in JSON.
func isEqualJSON(a, b any) bool { return reflect.DeepEqual(cloned(a), cloned(b)) }
