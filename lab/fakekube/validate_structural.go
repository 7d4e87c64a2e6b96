package fakekube

import (
	"fmt"
	"maps"
	"slices"
)

// Positions of a schema in the server's words.
const (
	atRoot   = "at the root"
	ofItems  = "for specified array items"
	ofFields = "for specified object fields"
)

// validateStructural validates that a schema and the schemas within it are structural.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
func validateStructural(path string, schema Object, where string) []cause {
	var causes []cause
	properties := objectIn(schema, "properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, _ := properties[name].(Object)
		causes = append(causes, validateStructural(fmt.Sprintf("%s.properties[%s]", path, name), property, ofFields)...)
	}
	if items := objectIn(schema, "items"); items != nil {
		causes = append(causes, validateStructural(path+".items", items, ofItems)...)
	}
	if additional, isSchema := schema["additionalProperties"].(Object); isSchema {
		causes = append(causes, validateStructural(path+".additionalProperties", additional, ofFields)...)
	}
	causes = append(causes, validateSchemaType(path, schema, where)...)
	causes = append(causes, validateSchemaFields(path, schema, where)...)
	causes = append(causes, validateListSchema(path, schema)...)
	if len(causes) == 0 {
		return validateDefault(path+".default", schema)
	}
	return causes
}

// validateSchemaType validates the type of a schema.
func validateSchemaType(path string, schema Object, where string) []cause {
	actual := TextIn(schema, "type")
	isEmbedded := schema["x-kubernetes-embedded-resource"] == true
	keepsAll := schema["x-kubernetes-preserve-unknown-fields"] == true
	const objectOnly = "must be object if x-kubernetes-embedded-resource is true"
	switch {
	case actual == "" && isEmbedded:
		return []cause{required(path+".type", objectOnly)}
	case actual == "" && (keepsAll || schema["x-kubernetes-int-or-string"] == true):
		return nil
	case actual == "":
		return []cause{required(path+".type", "must not be empty "+where)}
	case actual != "object" && isEmbedded:
		return []cause{invalidValue(path+".type", actual, objectOnly)}
	case actual != "object" && where == atRoot:
		return []cause{invalidValue(path+".type", actual, "must be object at the root")}
	case actual == "array" && objectIn(schema, "items") == nil:
		return []cause{required(path+".items", "must be specified")}
	}
	return validateOneOf(schema, path+".", "type", "array", "boolean", "integer", "number", "object", "string")
}

// validateSchemaFields refuses forbidden fields and combinations of fields.
func validateSchemaFields(path string, schema Object, where string) []cause {
	var causes []cause
	hasProperties := len(objectIn(schema, "properties")) > 0
	if schema["uniqueItems"] == true {
		reason := "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
		causes = append(causes, forbiddenField(path+".uniqueItems", reason))
	}
	if additional := schema["additionalProperties"]; additional != nil {
		at := path + ".additionalProperties"
		if hasProperties && additional != true {
			causes = append(causes, forbiddenField(at, "additionalProperties and properties are mutual exclusive"))
		}
		if where == atRoot {
			causes = append(causes, forbiddenField(at, "must not be used at the root"))
		}
	}
	keepsAll := schema["x-kubernetes-preserve-unknown-fields"] == true
	if schema["x-kubernetes-embedded-resource"] == true && !keepsAll && !hasProperties {
		reason := "must not be empty if x-kubernetes-embedded-resource is true without " +
			"x-kubernetes-preserve-unknown-fields"
		causes = append(causes, required(path+".properties", reason))
	}
	return causes
}

// validateListSchema validates the schema of a list with a list type.
func validateListSchema(path string, schema Object) []cause {
	actual := TextIn(schema, "type")
	listType := TextIn(schema, "x-kubernetes-list-type")
	if listType == "" {
		return nil
	}
	const arrayOnly = "must be array if x-kubernetes-list-type is specified"
	if actual == "" {
		return []cause{required(path+".type", arrayOnly)}
	}
	if actual != "array" {
		return []cause{invalidValue(path+".type", actual, arrayOnly)}
	}
	switch listType {
	case "atomic":
		return nil
	case "set":
		return validateSetItems(path+".items", objectIn(schema, "items"))
	case "map":
		return validateMapKeys(path, schema)
	}
	return []cause{notSupported(path+".x-kubernetes-list-type", listType, "atomic", "set", "map")}
}

// validateSetItems validates that the items of a set are atomic.
func validateSetItems(path string, items Object) []cause {
	const why = "must be atomic as item of a list with x-kubernetes-list-type=set"
	listType := items["x-kubernetes-list-type"]
	if TextIn(items, "type") == "array" && listType != nil && listType != "atomic" {
		return []cause{invalidValue(path+".x-kubernetes-list-type", listType, why)}
	}
	if TextIn(items, "type") == "object" && items["x-kubernetes-map-type"] != "atomic" {
		// The server shows the list type here as well.
		return []cause{invalidValue(path+".x-kubernetes-map-type", listType, why)}
	}
	return nil
}

// validateMapKeys validates the keys of a list of type map.
func validateMapKeys(path string, schema Object) []cause {
	keys := textsIn(schema["x-kubernetes-list-map-keys"])
	items := objectIn(schema, "items")
	var causes []cause
	if len(keys) == 0 {
		causes = append(causes, required(path+".x-kubernetes-list-map-keys",
			"must not be empty if x-kubernetes-list-type is map"))
	}
	if actual := TextIn(items, "type"); actual != "object" {
		reason := "must be object if parent array's x-kubernetes-list-type is map"
		return append(causes, invalidValue(path+".items.type", actual, reason))
	}
	for _, key := range keys {
		property, isKnown := objectIn(items, "properties")[key].(Object)
		if !isKnown {
			reason := "entries must all be names of item properties"
			causes = append(causes, invalidValue(path+".x-kubernetes-list-map-keys", keys, reason))
			continue
		}
		if property["default"] == nil && !slices.Contains(textsIn(items["required"]), key) {
			causes = append(causes, required(fmt.Sprintf("%s.items.properties[%s].default", path, key),
				"this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"))
		}
	}
	return causes
}

// validateDefault validates the default of a schema against the schema. path is the default's.
func validateDefault(path string, schema Object) []cause {
	value := schema["default"]
	if value == nil {
		return nil
	}
	var causes []cause
	p := &pruner{}
	p.value("", cloned(value), schema)
	if len(p.unknown) > 0 {
		causes = append(causes, invalidValue(path, value, "must not have unknown fields"))
	}
	return append(causes, prefixFields(path, validateValue("", value, schema))...)
}
