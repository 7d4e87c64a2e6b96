package fakekube

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// schemaCauses are what is wrong with a custom resource by the schema in its definition. Of OpenAPI, the fake knows
// what most definitions use: types, formats, required, enum, the bounds of numbers, texts, lists and objects, pattern,
// allOf, anyOf, oneOf and not. Rules in CEL (x-kubernetes-validations) pass.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation
func (k kind) schemaCauses(o Object, isStatus bool) []cause {
	schema := objectIn(k.crd, "schema", "openAPIV3Schema")
	rest := maps.Clone(o)
	delete(rest, "metadata")
	if !isStatus {
		return schemaProblems("", rest, schema)
	}
	// The server looks at the status alone; its messages begin there.
	causes := schemaProblems("", o["status"], objectIn(schema, "properties", "status"))
	for i := range causes {
		causes[i].field = "status." + causes[i].field
	}
	return causes
}

// schemaProblems are what is wrong with a value that stands at this path.
func schemaProblems(path string, v any, schema Object) []cause {
	if v == nil && (schema["nullable"] == true || path == "") {
		return nil
	}
	if c, isWrong := typeCause(path, v, schema); isWrong {
		return append([]cause{c}, enumCauses(path, v, schema)...)
	}
	causes := enumCauses(path, v, schema)
	causes = append(causes, combinedCauses(path, v, schema)...)
	switch v := v.(type) {
	case float64:
		return append(causes, numberCauses(path, v, schema)...)
	case string:
		return append(causes, textCauses(path, v, schema)...)
	case []any:
		return append(causes, listCauses(path, v, schema)...)
	case Object:
		return append(causes, objectCauses(path, v, schema)...)
	}
	return causes
}

// typeCause is that a value is not of the type that its schema demands.
func typeCause(path string, v any, schema Object) (c cause, isWrong bool) {
	is := schemaType(v)
	want := TextIn(schema, "type")
	isIntOrString := schema["x-kubernetes-int-or-string"] == true
	if isIntOrString {
		want = "integer,string"
	}
	isOf := want == "" || is == want || want == "number" && is == "integer"
	if isIntOrString && (is == "integer" || is == "string") {
		isOf = true
	}
	if isOf {
		return cause{}, false
	}
	message := fmt.Sprintf("Invalid value: %q: %s in body must be of type %s: %q", is, path, want, is)
	return cause{"FieldValueTypeInvalid", path, message}, true
}

// schemaType is what schemas call the type of a value.
func schemaType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		if v == math.Trunc(v) {
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

// enumCauses is that a value is none of those that there are.
func enumCauses(path string, v any, schema Object) []cause {
	values, isEnum := schema["enum"].([]any)
	if !isEnum || slices.ContainsFunc(values, func(one any) bool { return isSame(one, v) }) {
		return nil
	}
	quoted := make([]string, len(values))
	for i, one := range values {
		quoted[i] = inWords(one)
	}
	why := fmt.Sprintf("Unsupported value: %s: supported values: %s", inWords(v), strings.Join(quoted, ", "))
	return []cause{{"FieldValueNotSupported", path, why}}
}

// inBody refuses a value in the words that schemas have for that.
func inBody(path string, v any, why string) cause {
	return invalidValue(path, v, path+" in body "+why)
}

// numberCauses are what is wrong with a number.
func numberCauses(path string, v float64, schema Object) []cause {
	var causes []cause
	if limit, isSet := schema["maximum"].(float64); isSet {
		if schema["exclusiveMaximum"] == true && v >= limit {
			causes = append(causes, inBody(path, v, fmt.Sprintf("should be less than %v", limit)))
		} else if v > limit {
			causes = append(causes, inBody(path, v, fmt.Sprintf("should be less than or equal to %v", limit)))
		}
	}
	if limit, isSet := schema["minimum"].(float64); isSet {
		if schema["exclusiveMinimum"] == true && v <= limit {
			causes = append(causes, inBody(path, v, fmt.Sprintf("should be greater than %v", limit)))
		} else if v < limit {
			causes = append(causes, inBody(path, v, fmt.Sprintf("should be greater than or equal to %v", limit)))
		}
	}
	if unit, isSet := schema["multipleOf"].(float64); isSet && math.Mod(v, unit) != 0 {
		causes = append(causes, inBody(path, v, fmt.Sprintf("should be a multiple of %v", unit)))
	}
	return causes
}

// textCauses are what is wrong with a text.
func textCauses(path, v string, schema Object) []cause {
	var causes []cause
	length := float64(utf8.RuneCountInString(v))
	if limit, isSet := schema["maxLength"].(float64); isSet && length > limit {
		causes = append(causes, tooLong(path, int(limit)))
	}
	if limit, isSet := schema["minLength"].(float64); isSet && length < limit {
		causes = append(causes, inBody(path, v, fmt.Sprintf("should be at least %v chars long", limit)))
	}
	if pattern := TextIn(schema, "pattern"); pattern != "" {
		syntax, err := regexp.Compile(pattern)
		if err == nil && !syntax.MatchString(v) {
			causes = append(causes, inBody(path, v, fmt.Sprintf("should match '%s'", pattern)))
		}
	}
	if format := TextIn(schema, "format"); !isOfFormat(v, format) {
		why := fmt.Sprintf("Invalid value: %q: %s in body must be of type %s: %q", v, path, format, v)
		causes = append(causes, cause{"FieldValueTypeInvalid", path, why})
	}
	return causes
}

// isOfFormat reports whether a text has a format. Those that the fake does not know, any text has.
func isOfFormat(text, format string) bool {
	var err error
	switch format {
	case "date-time":
		_, err = time.Parse(time.RFC3339, text)
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "uri":
		_, err = url.ParseRequestURI(text)
	case "ipv4", "ipv6":
		var at netip.Addr
		at, err = netip.ParseAddr(text)
		return err == nil && at.Is4() == (format == "ipv4")
	case "cidr":
		_, err = netip.ParsePrefix(text)
	}
	return err == nil
}

// listCauses are what is wrong with a list.
func listCauses(path string, v []any, schema Object) []cause {
	var causes []cause
	length := float64(len(v))
	if limit, isSet := schema["maxItems"].(float64); isSet && length > limit {
		why := fmt.Sprintf("Too many: %v: must have at most %v items", length, limit)
		causes = append(causes, cause{"FieldValueTooMany", path, why})
	}
	if limit, isSet := schema["minItems"].(float64); isSet && length < limit {
		causes = append(causes, inBody(path, length, fmt.Sprintf("should have at least %v items", limit)))
	}
	for i, item := range v {
		causes = append(causes, schemaProblems(fmt.Sprintf("%s[%d]", path, i), item, objectIn(schema, "items"))...)
	}
	return causes
}

// objectCauses are what is wrong with an object.
func objectCauses(path string, v, schema Object) []cause {
	var causes []cause
	under := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	for _, name := range textsIn(schema["required"]) {
		if _, isThere := v[name]; !isThere {
			causes = append(causes, required(under(name), ""))
		}
	}
	length := float64(len(v))
	if limit, isSet := schema["maxProperties"].(float64); isSet && length > limit {
		why := fmt.Sprintf("Too many: %v: must have at most %v items", length, limit)
		causes = append(causes, cause{"FieldValueTooMany", path, why})
	}
	if limit, isSet := schema["minProperties"].(float64); isSet && length < limit {
		causes = append(causes, inBody(path, length, fmt.Sprintf("should have at least %v properties", limit)))
	}
	additional, _ := schema["additionalProperties"].(Object)
	for _, name := range slices.Sorted(maps.Keys(v)) {
		property, isKnown := objectIn(schema, "properties")[name].(Object)
		if !isKnown {
			property = additional
		}
		causes = append(causes, schemaProblems(under(name), v[name], property)...)
	}
	return causes
}

// combinedCauses are what is wrong with a value by the schemas that its schema combines.
func combinedCauses(path string, v any, schema Object) []cause {
	var causes []cause
	fits := func(one Object) bool { return len(schemaProblems(path, v, one)) == 0 }
	for _, one := range objectsIn(schema["allOf"]) {
		causes = append(causes, schemaProblems(path, v, one)...)
	}
	anyOf := objectsIn(schema["anyOf"])
	if len(anyOf) > 0 && !slices.ContainsFunc(anyOf, fits) {
		causes = append(causes, invalidValue(path, "", path+" in body must validate at least one schema (anyOf)"))
	}
	oneOf := objectsIn(schema["oneOf"])
	fitting := 0
	for _, one := range oneOf {
		if fits(one) {
			fitting++
		}
	}
	if len(oneOf) > 0 && fitting != 1 {
		why := path + " in body must validate one and only one schema (oneOf)"
		if fitting > 1 {
			why += fmt.Sprintf(". Found %d valid alternatives", fitting)
		} else {
			why += ". Found none valid"
		}
		causes = append(causes, invalidValue(path, "", why))
	}
	if not, isSet := schema["not"].(Object); isSet && fits(not) {
		causes = append(causes, invalidValue(path, "", path+" in body must not validate the schema (not)"))
	}
	return causes
}
