package fakekube

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// validateBySchema validates a custom resource against the schema in its definition: types, required, enum, limits and
// pattern. All other rules always pass: formats, allOf, anyOf, oneOf and not, CEL (x-kubernetes-validations), and those
// of sets, maps and embedded resources.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation
func (k kind) validateBySchema(o Object, isStatus bool) []cause {
	schema := objectIn(k.crd, "schema", "openAPIV3Schema")
	if isStatus {
		// The server validates only the status.
		return prefixFields("status", validateValue("", o["status"], objectIn(schema, "properties", "status")))
	}
	rest := maps.Clone(o)
	delete(rest, "metadata")
	return validateValue("", rest, schema)
}

// prefixFields puts a path before the fields of causes that were found in the value at that path.
func prefixFields(path string, causes []cause) []cause {
	for i, c := range causes {
		if c.field == "" {
			causes[i].field = path
		} else {
			causes[i].field = fieldPath(path, c.field)
		}
	}
	return causes
}

// fieldPath returns the path of a field of the object at a path.
func fieldPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// validateValue validates a value at a path. The causes are in the server's order.
func validateValue(path string, v any, schema Object) []cause {
	if v == nil && (schema["nullable"] == true || path == "") {
		return nil
	}
	causes := validateType(path, v, schema)
	if v == nil {
		return append(causes, validateEnum(path, v, schema)...)
	}
	switch v := v.(type) {
	case float64:
		causes = append(causes, validateNumber(path, v, schema)...)
	case string:
		causes = append(causes, validateText(path, v, schema)...)
	case []any:
		causes = append(causes, validateList(path, v, schema)...)
	}
	causes = append(causes, validateEnum(path, v, schema)...)
	if o, isObject := v.(Object); isObject {
		causes = append(causes, validateObject(path, o, schema)...)
	}
	return causes
}

// validateType validates the type of a value.
func validateType(path string, v any, schema Object) []cause {
	actual := jsonType(v)
	want := TextIn(schema, "type")
	if schema["x-kubernetes-int-or-string"] == true {
		want = "integer,string"
	}
	isNumberToo := want == "number" && actual == "integer"
	if want == "" || isNumberToo || slices.Contains(strings.Split(want, ","), actual) {
		return nil
	}
	message := fmt.Sprintf("Invalid value: %q: %s in body must be of type %s: %q", actual, path, want, actual)
	return []cause{{"FieldValueTypeInvalid", path, message}}
}

// jsonType returns the schema's name for the type of a value.
func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		// The largest int64 is not a float64; it is rounded up to the next one.
		if v == math.Trunc(v) && math.Abs(v) <= -math.MinInt64 {
			return "integer"
		}
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// validateEnum validates that a value is in the enum of its schema.
func validateEnum(path string, v any, schema Object) []cause {
	values, isEnum := schema["enum"].([]any)
	if !isEnum || slices.ContainsFunc(values, func(one any) bool { return isEqualJSON(one, v) }) {
		return nil
	}
	quoted := make([]string, len(values))
	for i, one := range values {
		quoted[i] = describeValue(one)
	}
	reason := fmt.Sprintf("Unsupported value: %s: supported values: %s", describeValue(v), strings.Join(quoted, ", "))
	return []cause{{"FieldValueNotSupported", path, reason}}
}

// invalidInBody refuses a value in the wording of the server's schema validation.
func invalidInBody(path string, v any, reason string) cause {
	return invalidValue(path, v, path+" in body "+reason)
}

// validateNumber validates a number.
func validateNumber(path string, v float64, schema Object) []cause {
	var causes []cause
	if limit, isSet := schema["maximum"].(float64); isSet {
		if schema["exclusiveMaximum"] == true && v >= limit {
			causes = append(causes, invalidInBody(path, v, fmt.Sprintf("should be less than %v", limit)))
		} else if v > limit {
			causes = append(causes, invalidInBody(path, v, fmt.Sprintf("should be less than or equal to %v", limit)))
		}
	}
	if limit, isSet := schema["minimum"].(float64); isSet {
		if schema["exclusiveMinimum"] == true && v <= limit {
			causes = append(causes, invalidInBody(path, v, fmt.Sprintf("should be greater than %v", limit)))
		} else if v < limit {
			causes = append(causes, invalidInBody(path, v, fmt.Sprintf("should be greater than or equal to %v", limit)))
		}
	}
	if unit, isSet := schema["multipleOf"].(float64); isSet && math.Mod(v, unit) != 0 {
		causes = append(causes, invalidInBody(path, v, fmt.Sprintf("should be a multiple of %v", unit)))
	}
	return causes
}

// validateText validates a text.
func validateText(path, v string, schema Object) []cause {
	var causes []cause
	length := float64(utf8.RuneCountInString(v))
	if limit, isSet := schema["maxLength"].(float64); isSet && length > limit {
		causes = append(causes, tooLong(path, int(limit)))
	}
	if limit, isSet := schema["minLength"].(float64); isSet && length < limit {
		causes = append(causes, invalidInBody(path, v, fmt.Sprintf("should be at least %v chars long", limit)))
	}
	if pattern := TextIn(schema, "pattern"); pattern != "" {
		syntax, err := regexp.Compile(pattern)
		if err == nil && !syntax.MatchString(v) {
			causes = append(causes, invalidInBody(path, v, fmt.Sprintf("should match '%s'", pattern)))
		}
	}
	return causes
}

// validateList validates a list.
func validateList(path string, v []any, schema Object) []cause {
	var causes []cause
	length := float64(len(v))
	if limit, isSet := schema["maxItems"].(float64); isSet && length > limit {
		reason := fmt.Sprintf("Too many: %v: must have at most %v items", length, limit)
		causes = append(causes, cause{"FieldValueTooMany", path, reason})
	}
	if limit, isSet := schema["minItems"].(float64); isSet && length < limit {
		causes = append(causes, invalidInBody(path, length, fmt.Sprintf("should have at least %v items", limit)))
	}
	for i, item := range v {
		causes = append(causes, validateValue(fmt.Sprintf("%s[%d]", path, i), item, objectIn(schema, "items"))...)
	}
	return causes
}

// validateObject validates an object.
func validateObject(path string, v, schema Object) []cause {
	var causes []cause
	length := float64(len(v))
	if limit, isSet := schema["maxProperties"].(float64); isSet && length > limit {
		reason := fmt.Sprintf("Too many: %v: must have at most %v items", length, limit)
		causes = append(causes, cause{"FieldValueTooMany", path, reason})
	}
	if limit, isSet := schema["minProperties"].(float64); isSet && length < limit {
		causes = append(causes, invalidInBody(path, length, fmt.Sprintf("should have at least %v properties", limit)))
	}
	additional, _ := schema["additionalProperties"].(Object)
	for _, name := range slices.Sorted(maps.Keys(v)) {
		property, isKnown := objectIn(schema, "properties")[name].(Object)
		if !isKnown {
			property = additional
		}
		causes = append(causes, validateValue(fieldPath(path, name), v[name], property)...)
	}
	for _, name := range textsIn(schema["required"]) {
		if _, isThere := v[name]; !isThere {
			causes = append(causes, required(fieldPath(path, name), ""))
		}
	}
	return causes
}
