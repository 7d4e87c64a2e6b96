package fakekube

import "encoding/json"

// Object is an API object or a part of one, as decoded by encoding/json. Stored objects are immutable, for the fake
// and for its callers: Clone an object before changing it.
type Object = map[string]any

// parsed decodes JSON. It panics if the text is invalid.
func parsed(text string) (v any) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(err)
	}
	return v
}

// MetaOf returns the metadata of an object. It returns nil, from which callers can read, if there is none.
func MetaOf(o Object) Object {
	m, _ := o["metadata"].(Object)
	return m
}

// TextIn returns the text at a path of keys, such as "metadata", "labels", "app". It returns "" if there is no text.
func TextIn(o Object, path ...string) string {
	if len(path) == 0 {
		return ""
	}
	last := len(path) - 1
	text, _ := objectIn(o, path[:last]...)[path[last]].(string)
	return text
}

// objectIn returns the object at a path of keys, or nil if there is none.
func objectIn(o Object, path ...string) Object {
	for _, key := range path {
		o, _ = o[key].(Object)
	}
	return o
}

// objectsIn returns the items of a list as objects, with nil for an item that is not one.
func objectsIn(list any) []Object {
	items, _ := list.([]any)
	objects := make([]Object, len(items))
	for i := range items {
		objects[i], _ = items[i].(Object)
	}
	return objects
}

// textsIn returns the items of a list that are texts.
func textsIn(list any) []string {
	items, _ := list.([]any)
	var texts []string
	for _, item := range items {
		if text, isText := item.(string); isText {
			texts = append(texts, text)
		}
	}
	return texts
}

// Key identifies an object within its resource.
type Key struct {
	Namespace string // "" for a cluster-scoped resource
	Name      string
}

// String returns namespace/name, or the name if there is no namespace.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// KeyOf returns the key of an object.
func KeyOf(o Object) Key { return Key{TextIn(MetaOf(o), "namespace"), TextIn(MetaOf(o), "name")} }

// Clone returns a deep copy of an object as if it went through JSON, so all numbers are float64. It panics if a value
// cannot be encoded in JSON.
func Clone(o Object) Object {
	c, _ := cloned(o).(Object)
	return c
}

func cloned(v any) any {
	switch v := v.(type) {
	case nil, string, bool, float64:
		return v
	case int:
		return float64(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = cloned(v[i])
		}
		return list
	case Object:
		o := make(Object, len(v))
		for key := range v {
			o[key] = cloned(v[key])
		}
		return o
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return parsed(string(data))
}

// mergePatch applies a JSON merge patch to o.
// https://www.rfc-editor.org/rfc/rfc7396
func mergePatch(o, patch Object) {
	for k, v := range patch {
		sub, isObject := v.(Object)
		switch {
		case v == nil:
			delete(o, k)
		case isObject:
			at, ok := o[k].(Object)
			if !ok {
				at = Object{}
			}
			mergePatch(at, sub)
			o[k] = at
		default:
			o[k] = withoutNulls(v)
		}
	}
}

// withoutNulls removes null fields from objects in lists that a merge patch sets. The standard does not require this,
// but the real server does it. Null items stay.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = withoutNulls(item)
		}
		return list
	case Object:
		kept := Object{}
		mergePatch(kept, v)
		return kept
	}
	return v
}
