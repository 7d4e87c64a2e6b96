package fakekube

import "encoding/json"

// Object is an API object, or a part of one, as encoding/json decodes it. One that is stored is never modified, neither
// by the fake nor by whoever gets it: Clone it first.
type Object = map[string]any

// parsed is what a text in JSON means. It panics where it means nothing.
func parsed(text string) (v any) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(err)
	}
	return v
}

// MetaOf is an object's metadata, nil where it has none. Reading from nil finds nothing.
func MetaOf(o Object) Object {
	m, _ := o["metadata"].(Object)
	return m
}

// TextIn is the text under a key, "" where there is no text.
func TextIn(o Object, key string) string {
	s, _ := o[key].(string)
	return s
}

// objectIn is the object under a path of keys, nil where there is none.
func objectIn(o Object, path ...string) Object {
	for _, key := range path {
		o, _ = o[key].(Object)
	}
	return o
}

// objectsIn are the objects of a list, nil for each item that is none.
func objectsIn(list any) []Object {
	items, _ := list.([]any)
	objects := make([]Object, len(items))
	for i := range items {
		objects[i], _ = items[i].(Object)
	}
	return objects
}

// textsIn are the texts of a list, without what is none.
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

// Key names an object among those of its resource.
type Key struct {
	Namespace string // "" where the resource is cluster-scoped
	Name      string
}

// String is namespace/name, or the name alone.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// KeyOf is the key under which an object is stored.
func KeyOf(o Object) Key { return Key{TextIn(MetaOf(o), "namespace"), TextIn(MetaOf(o), "name")} }

// Clone is a deep copy of an object, as if it went through JSON: its numbers are float64. It panics where JSON cannot
// say a value.
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

// mergePatch changes o as a JSON merge patch says, https://www.rfc-editor.org/rfc/rfc7396.
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

// withoutNulls is a value that a merge patch sets: objects in lists lose the fields that are null. The real server does
// so, which the standard does not say. The items that are null stay.
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
