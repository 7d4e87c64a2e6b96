package fakekube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// pruned is a custom resource without what its schema does not know, and with the schema's defaults. unknown are the
// fields that were dropped, in the server's words. The error says what is not of its type in the metadata, or in what
// tells the type of an object within.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning
func (k kind) pruned(sent Object) (o Object, unknown []string, err error) {
	o = Clone(sent)
	meta, err := typed("ObjectMeta", o["metadata"])
	if err != nil {
		return nil, nil, err
	}
	unknown = unknownMeta("metadata", o["metadata"])
	delete(o, "metadata")
	p := &pruning{}
	schema := objectIn(k.crd, "schema", "openAPIV3Schema")
	p.value("", o, schema)
	if p.err != nil {
		return nil, nil, p.err
	}
	fillDefaults(o, schema)
	if meta != nil {
		o["metadata"] = meta
	}
	slices.Sort(p.unknown)
	return o, slices.Concat(unknown, p.unknown, p.unknownMeta), nil
}

// unknownMeta are the fields that the metadata of an object, which stand at a path, should not have.
func unknownMeta(path string, meta any) []string {
	text, err := json.Marshal(meta)
	if err != nil {
		return nil // it came as JSON
	}
	r := &strictReader{decoder: json.NewDecoder(bytes.NewReader(text))}
	r.value(path, "ObjectMeta")
	return r.problems
}

// pruning removes unknown fields, and notes them.
type pruning struct {
	unknown     []string
	unknownMeta []string // in the metadata of embedded resources
	err         error    // the first
}

// value prunes a value in place.
func (p *pruning) value(path string, v any, schema Object) {
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
	isEmbedded := schema["x-kubernetes-embedded-resource"] == true
	for _, name := range slices.Sorted(maps.Keys(o)) {
		at := below(path, name)
		property, isKnown := properties[name].(Object)
		switch {
		case isEmbedded && (name == "apiVersion" || name == "kind"):
			if _, isText := o[name].(string); !isText {
				p.fail(invalidValue(at, o[name], "must be a string"))
			}
		case isEmbedded && name == "metadata":
			p.meta(at, o)
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

// meta prunes the metadata of an embedded resource, which stand at this path.
func (p *pruning) meta(path string, embedded Object) {
	sent := embedded["metadata"]
	meta, err := typed("ObjectMeta", sent)
	if err != nil {
		p.fail(invalidValue(path, sent, err.Error()))
		return
	}
	p.unknownMeta = append(p.unknownMeta, unknownMeta(path, sent)...)
	if meta == nil {
		meta = Object{}
	}
	embedded["metadata"] = meta
}

// fail keeps what is wrong first.
func (p *pruning) fail(c cause) {
	if p.err == nil {
		p.err = errors.New(c.field + ": " + c.message)
	}
}

// fillDefaults gives the fields of a value that are not set, or null although they may not be, their defaults. A field
// that may not be null, and has no default, goes where it is null.
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

// replaceNull gives a field its default, or removes it where it has none.
func replaceNull(o Object, name string, schema Object) {
	fallback, hasDefault := schema["default"]
	if hasDefault {
		o[name] = cloned(fallback)
	} else {
		delete(o, name)
	}
}
