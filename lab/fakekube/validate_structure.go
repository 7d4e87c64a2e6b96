package fakekube

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// walkSchema calls see for a value and for all values below it that the schema describes, each with its path and its
// part of the schema. In paths, keys of maps are in brackets.
func walkSchema(path string, v any, schema Object, see func(path string, v any, schema Object)) {
	see(path, v, schema)
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			walkSchema(fmt.Sprintf("%s[%d]", path, i), item, objectIn(schema, "items"), see)
		}
	case Object:
		additional, isMap := schema["additionalProperties"].(Object)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			property, isKnown := objectIn(schema, "properties")[name].(Object)
			switch {
			case isKnown:
				walkSchema(fieldPath(path, name), v[name], property, see)
			case isMap:
				walkSchema(fmt.Sprintf("%s[%s]", path, name), v[name], additional, see)
			}
		}
	}
}

// validateListTypes refuses duplicate items in lists that are sets or maps.
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
func validateListTypes(o, schema Object) []cause {
	var causes []cause
	walkSchema("", o, schema, func(path string, v any, schema Object) {
		list, isList := v.([]any)
		if !isList {
			return
		}
		switch TextIn(schema, "x-kubernetes-list-type") {
		case "set":
			causes = append(causes, findDuplicates(path, list)...)
		case "map":
			causes = append(causes, findDuplicateKeys(path, list, textsIn(schema["x-kubernetes-list-map-keys"]))...)
		}
	})
	return causes
}

// findDuplicates returns a cause for each value that occurs more than once in a list, at its second occurrence.
func findDuplicates(path string, list []any) []cause {
	var causes []cause
	times := map[string]int{}
	for i, value := range list {
		text := describeValue(value)
		times[text]++
		if times[text] == 2 {
			causes = append(causes, duplicateValue(fmt.Sprintf("%s[%d]", path, i), value))
		}
	}
	return causes
}

// findDuplicateKeys returns a cause for each repeated key in a list of type map. fields are its keys.
func findDuplicateKeys(path string, list []any, fields []string) []cause {
	keys := make([]any, len(list))
	for i, item := range list {
		o, isObject := item.(Object)
		if !isObject && item != nil {
			reason := "must be an object for an array of list-type map"
			return []cause{invalidValue(fmt.Sprintf("%s[%d]", path, i), item, reason)}
		}
		key := Object{}
		for _, field := range fields {
			copyIfSet(key, o, field)
		}
		keys[i] = key
	}
	return findDuplicates(path, keys)
}

// validateEmbedded validates the types and the metadata of embedded resources.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#rawextension
func validateEmbedded(o, schema Object) []cause {
	var causes []cause
	walkSchema("", o, schema, func(path string, v any, schema Object) {
		embedded, isObject := v.(Object)
		if !isObject || schema["x-kubernetes-embedded-resource"] != true {
			return
		}
		causes = append(causes, validateEmbeddedType(path, embedded)...)
		causes = append(causes, validateEmbeddedMeta(path, MetaOf(embedded))...)
	})
	return causes
}

// validateEmbeddedType validates the apiVersion and the kind of an embedded resource.
func validateEmbeddedType(path string, o Object) []cause {
	var causes []cause
	for _, field := range []string{"apiVersion", "kind"} {
		if _, isSet := o[field]; !isSet {
			causes = append(causes, required(fieldPath(path, field), ""))
		} else if TextIn(o, field) == "" {
			causes = append(causes, invalidValue(fieldPath(path, field), "", "must not be empty"))
		}
	}
	if version := TextIn(o, "apiVersion"); strings.Count(version, "/") > 1 {
		reason := "unexpected GroupVersion string: " + version
		causes = append(causes, invalidValue(fieldPath(path, "apiVersion"), version, reason))
	}
	kind := TextIn(o, "kind")
	if problem := dnsLabelProblem(strings.ToLower(kind)); kind != "" && problem != "" {
		causes = append(causes, invalidValue(fieldPath(path, "kind"), kind, mixedCase+problem))
	}
	return causes
}

// validateEmbeddedMeta validates the metadata of an embedded resource, whose name is optional.
func validateEmbeddedMeta(path string, meta Object) []cause {
	var causes []cause
	name := TextIn(meta, "name")
	if problem := segmentProblem(name); name != "" && problem != "" {
		causes = append(causes, invalidValue("metadata.name", name, problem))
	}
	namespace := TextIn(meta, "namespace")
	if problem := labelProblem(namespace); namespace != "" && problem != "" {
		causes = append(causes, invalidValue("metadata.namespace", namespace, problem))
	}
	causes = slices.Concat(causes, validateLabels(meta), validateOwners(meta), validateFinalizers(meta))
	for i := range causes {
		causes[i].field = fieldPath(path, causes[i].field)
	}
	return causes
}
