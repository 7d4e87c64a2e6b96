package fakekube

import (
	"fmt"
	"maps"
	"slices"
)

// pruned is a custom resource without what its schema does not know, and with the schema's defaults. unknown are the
// fields that were dropped.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning
func (k kind) pruned(sent Object) (o Object, unknown []string, err error) {
	o = Clone(sent)
	meta, err := typed("ObjectMeta", o["metadata"])
	if err != nil {
		return nil, nil, err
	}
	for name := range MetaOf(o) {
		if _, isKnown := typeOfField("ObjectMeta", name); !isKnown {
			unknown = append(unknown, fmt.Sprintf("unknown field %q", "metadata."+name))
		}
	}
	delete(o, "metadata")
	p := &pruning{}
	schema := objectIn(k.crd, "schema", "openAPIV3Schema")
	p.value("", o, schema)
	fillDefaults(o, schema)
	if meta != nil {
		o["metadata"] = meta
	}
	unknown = append(unknown, p.unknown...)
	slices.Sort(unknown)
	return o, unknown, nil
}

// pruning removes unknown fields, and notes them.
type pruning struct{ unknown []string }

// value prunes a value in place.
func (p *pruning) value(path string, v any, schema Object) {
	if schema["x-kubernetes-embedded-resource"] == true {
		return
	}
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
func (p *pruning) object(path string, o, schema Object) {
	properties := objectIn(schema, "properties")
	additional, isMap := schema["additionalProperties"].(Object)
	keepsAll := schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true
	for _, name := range slices.Sorted(maps.Keys(o)) {
		at := name
		if path != "" {
			at = path + "." + name
		}
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

// fillDefaults gives the fields of a value that are not set, or null although they may not be, their defaults.
func fillDefaults(v any, schema Object) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			fillDefaults(item, objectIn(schema, "items"))
		}
	case Object:
		for name, property := range objectIn(schema, "properties") {
			property, _ := property.(Object)
			value, isSet := v[name]
			fallback, hasDefault := property["default"]
			isMissing := !isSet || value == nil && property["nullable"] != true
			if isMissing && hasDefault {
				v[name] = cloned(fallback)
			}
			fillDefaults(v[name], property)
		}
		additional, _ := schema["additionalProperties"].(Object)
		for name, value := range v {
			if _, isKnown := objectIn(schema, "properties")[name]; !isKnown {
				fillDefaults(value, additional)
			}
		}
	}
}
