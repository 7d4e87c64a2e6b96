package fakekube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// pruned returns a custom resource with defaults and without the fields that its schema lacks. unknown describes the
// dropped fields in the server's words. The error describes a value of the wrong type in the metadata.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning
func (k kind) pruned(sent Object) (o Object, unknown []string, err error) {
	o = Clone(sent)
	meta, err := convert("ObjectMeta", o["metadata"])
	if err != nil {
		return nil, nil, err
	}
	unknown = unknownMetaFields(o["metadata"])
	delete(o, "metadata")
	p := &pruner{}
	schema := objectIn(k.crd, "schema", "openAPIV3Schema")
	p.value("", o, schema)
	fillDefaults(o, schema)
	if meta != nil {
		o["metadata"] = meta
	}
	slices.Sort(p.unknown)
	return o, append(unknown, p.unknown...), nil
}

// unknownMetaFields lists the unknown and duplicate fields of metadata.
func unknownMetaFields(meta any) []string {
	text, err := json.Marshal(meta)
	if err != nil {
		return nil // cannot happen: it was decoded from JSON
	}
	r := &strictReader{decoder: json.NewDecoder(bytes.NewReader(text))}
	r.value("metadata", "ObjectMeta")
	return r.problems
}

// pruner removes unknown fields and records them.
type pruner struct{ unknown []string }

// value prunes a value in place.
func (p *pruner) value(path string, v any, schema Object) {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			p.value(fmt.Sprintf("%s[%d]", path, i), item, objectIn(schema, "items"))
		}
	case Object:
		p.object(path, v, schema)
	}
}

// object prunes the fields of an object.
func (p *pruner) object(path string, o, schema Object) {
	properties := objectIn(schema, "properties")
	additional, isMap := schema["additionalProperties"].(Object)
	keepsAll := schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true
	for _, name := range slices.Sorted(maps.Keys(o)) {
		at := fieldPath(path, name)
		property, isKnown := properties[name].(Object)
		switch {
		case isKnown:
			p.value(at, o[name], property)
		case isMap:
			p.value(at, o[name], additional)
		case !keepsAll:
			p.unknown = append(p.unknown, fmt.Sprintf("unknown field %q", at))
			delete(o, name)
		}
	}
}

// fillDefaults sets the defaults of fields that are missing, or null although the schema forbids that. A forbidden
// null without a default is removed.
func fillDefaults(v any, schema Object) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			fillDefaults(item, objectIn(schema, "items"))
		}
	case Object:
		properties := objectIn(schema, "properties")
		for name, property := range properties {
			property, _ := property.(Object)
			fallback, hasDefault := property["default"]
			if _, isSet := v[name]; !isSet && hasDefault {
				v[name] = cloned(fallback)
			}
		}
		additional, _ := schema["additionalProperties"].(Object)
		for name, value := range v {
			property, isKnown := properties[name].(Object)
			if !isKnown {
				property = additional
			}
			if value == nil && property != nil && property["nullable"] != true {
				replaceNull(v, name, property)
			}
			fillDefaults(v[name], property)
		}
	}
}

// replaceNull sets a field to its default, or removes it if it has none.
func replaceNull(o Object, name string, schema Object) {
	fallback, hasDefault := schema["default"]
	if hasDefault {
		o[name] = cloned(fallback)
	} else {
		delete(o, name)
	}
}
