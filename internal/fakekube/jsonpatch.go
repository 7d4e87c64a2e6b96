package fakekube

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// jsonPatchOp is one operation of a JSON patch.
// https://www.rfc-editor.org/rfc/rfc6902
type jsonPatchOp struct {
	Op    string
	Path  *string
	From  string
	Value any
}

// The server's limits for one JSON patch, which a few bytes could otherwise make fill the memory.
const (
	maxPatchOps    = 10000
	maxCopiedBytes = 3 << 20 // of the values that "copy" copies, in JSON
)

// jsonPatching applies the operations of one JSON patch. It counts the bytes that they have copied.
type jsonPatching struct{ copied int }

// applyJSONPatch applies a JSON patch to an object, which is used up. Where one operation fails, all do: errPatch.
// Like the real server, it lets "replace" set a field that is not there, and "copy" copy one as null.
func applyJSONPatch(o Object, body []byte) (Object, error) {
	var ops []jsonPatchOp
	if err := json.Unmarshal(body, &ops); err != nil {
		// The message names a type of the real server's.
		return nil, badPatch{"error decoding patch: " + strings.ReplaceAll(err.Error(), "fakekube.", "handlers.")}
	}
	if len(ops) > maxPatchOps {
		return nil, patchTooLarge{len(ops)}
	}
	p := &jsonPatching{}
	var root any = o
	for _, op := range ops {
		if op.Path == nil {
			return nil, errPatch
		}
		changed, err := p.apply(op, root)
		if err != nil {
			return nil, err
		}
		root = changed
	}
	patched, isObject := root.(Object)
	if !isObject {
		return nil, errPatch
	}
	return patched, nil
}

// apply is what an operation makes of a document.
func (p *jsonPatching) apply(op jsonPatchOp, root any) (any, error) {
	to := pointer(*op.Path)
	switch op.Op {
	case "add":
		return put(root, to, cloned(op.Value), true)
	case "replace":
		if *op.Path == "" {
			return op.Value, nil
		}
		return put(root, to, cloned(op.Value), false)
	case "remove":
		return cut(root, to)
	case "test":
		value, err := lookUp(root, to)
		if err == nil && !reflect.DeepEqual(value, op.Value) {
			err = errPatch
		}
		return root, err
	case "move":
		value, err := lookUp(root, pointer(op.From))
		if err != nil {
			return nil, err
		}
		root, err = cut(root, pointer(op.From))
		if err != nil {
			return nil, err
		}
		return put(root, to, value, true)
	case "copy":
		value, err := lookUp(root, pointer(op.From))
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		p.copied += len(text)
		if p.copied > maxCopiedBytes {
			return nil, errPatch
		}
		return put(root, to, cloned(value), true)
	}
	return nil, errPatch
}

// pointer splits a JSON pointer into the steps from the root. It is nil where the text is none.
// https://www.rfc-editor.org/rfc/rfc6901
func pointer(text string) []string {
	rest, isPointer := strings.CutPrefix(text, "/")
	if !isPointer {
		return nil
	}
	steps := strings.Split(rest, "/")
	for i := range steps {
		steps[i] = pointerEscapes.Replace(steps[i])
	}
	return steps
}

// pointerEscapes reads what a step of a JSON pointer writes in place of a slash and of a tilde.
var pointerEscapes = strings.NewReplacer("~1", "/", "~0", "~")

// lookUp is the value to which these steps lead: nil where the last one leads to a field that is not there.
func lookUp(at any, steps []string) (any, error) {
	if len(steps) == 0 {
		return nil, errPatch
	}
	var next any
	switch at := at.(type) {
	case Object:
		next = at[steps[0]]
	case []any:
		i, err := index(steps[0], len(at))
		if err != nil {
			return nil, err
		}
		next = at[i]
	default:
		return nil, errPatch
	}
	if len(steps) == 1 {
		return next, nil
	}
	return lookUp(next, steps[1:])
}

// index is the place of an item in a list of so many. A negative one counts from the end.
func index(text string, length int) (int, error) {
	i, err := strconv.Atoi(text)
	if err != nil || i >= length || i < -length {
		return 0, errPatch
	}
	if i < 0 {
		i += length
	}
	return i, nil
}

// put is a value with another one where these steps lead. isNew says that an item of a list makes room for it.
func put(at any, steps []string, value any, isNew bool) (any, error) {
	if len(steps) == 0 {
		return nil, errPatch
	}
	if len(steps) > 1 {
		return within(at, steps, func(next any) (any, error) { return put(next, steps[1:], value, isNew) })
	}
	switch at := at.(type) {
	case Object:
		at[steps[0]] = value
		return at, nil
	case []any:
		if isNew && steps[0] == "-" {
			return append(at, value), nil
		}
		if isNew {
			i, err := index(steps[0], len(at)+1)
			if err != nil {
				return nil, err
			}
			return slices.Insert(at, i, value), nil
		}
		i, err := index(steps[0], len(at))
		if err != nil {
			return nil, err
		}
		at[i] = value
		return at, nil
	}
	return nil, errPatch
}

// cut is a value without what these steps lead to, which must be there.
func cut(at any, steps []string) (any, error) {
	if len(steps) == 0 {
		return nil, errPatch
	}
	if len(steps) > 1 {
		return within(at, steps, func(next any) (any, error) { return cut(next, steps[1:]) })
	}
	switch at := at.(type) {
	case Object:
		if _, isThere := at[steps[0]]; !isThere {
			return nil, errPatch
		}
		delete(at, steps[0])
		return at, nil
	case []any:
		i, err := index(steps[0], len(at))
		if err != nil {
			return nil, err
		}
		return slices.Delete(at, i, i+1), nil
	}
	return nil, errPatch
}

// within changes what the first step leads to, which must be there.
func within(at any, steps []string, change func(any) (any, error)) (any, error) {
	switch at := at.(type) {
	case Object:
		next, isThere := at[steps[0]]
		if !isThere {
			return nil, errPatch
		}
		changed, err := change(next)
		at[steps[0]] = changed
		return at, err
	case []any:
		i, err := index(steps[0], len(at))
		if err != nil {
			return nil, err
		}
		changed, err := change(at[i])
		at[i] = changed
		return at, err
	}
	return nil, errPatch
}
