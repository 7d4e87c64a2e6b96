package fakekube

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// jsonPatchOp is an operation of a JSON patch.
// https://www.rfc-editor.org/rfc/rfc6902
type jsonPatchOp struct {
	Op    string
	Path  *string
	From  string
	Value any
}

// The server's limits for a JSON patch. Without them, a small patch could exhaust the memory.
const (
	maxPatchOps    = 10000
	maxCopiedBytes = 3 << 20 // total size in JSON of the values that "copy" operations copy
)

// jsonPatching applies the operations of one JSON patch, and counts the copied bytes.
type jsonPatching struct{ copied int }

// applyJSONPatch applies a JSON patch to an object, which it may modify. If one operation fails, the whole patch
// fails with errPatch. Like the real server, it allows "replace" to add a missing field, and "copy" to copy one as
// null.
func applyJSONPatch(o Object, body []byte) (Object, error) {
	var ops []jsonPatchOp
	if err := json.Unmarshal(body, &ops); err != nil {
		// The real server's message names its own Go type, which is in package handlers.
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

// apply applies an operation to a document and returns the changed document.
func (p *jsonPatching) apply(op jsonPatchOp, root any) (any, error) {
	to := parsePointer(*op.Path)
	switch op.Op {
	case "add":
		return setAt(root, to, cloned(op.Value), true)
	case "replace":
		if *op.Path == "" {
			return op.Value, nil
		}
		return setAt(root, to, cloned(op.Value), false)
	case "remove":
		return removeAt(root, to)
	case "test":
		value, err := lookUp(root, to)
		if err == nil && !reflect.DeepEqual(value, op.Value) {
			err = errPatch
		}
		return root, err
	case "move":
		return p.move(root, parsePointer(op.From), to)
	case "copy":
		return p.copy(root, parsePointer(op.From), to)
	}
	return nil, errPatch
}

// move moves a value within a document.
func (p *jsonPatching) move(root any, from, to []string) (any, error) {
	value, err := lookUp(root, from)
	if err != nil {
		return nil, err
	}
	root, err = removeAt(root, from)
	if err != nil {
		return nil, err
	}
	return setAt(root, to, value, true)
}

// copy copies a value within a document.
func (p *jsonPatching) copy(root any, from, to []string) (any, error) {
	value, err := lookUp(root, from)
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
	return setAt(root, to, cloned(value), true)
}

// parsePointer splits a JSON pointer into its steps. It returns nil if the text is not a pointer.
// https://www.rfc-editor.org/rfc/rfc6901
func parsePointer(text string) []string {
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

// pointerEscapes decodes escaped slashes and tildes in a step.
var pointerEscapes = strings.NewReplacer("~1", "/", "~0", "~")

// lookUp returns the value at a path. If only the last field is missing, it returns nil.
func lookUp(at any, steps []string) (any, error) {
	if len(steps) == 0 {
		return nil, errPatch
	}
	var next any
	switch at := at.(type) {
	case Object:
		next = at[steps[0]]
	case []any:
		i, err := itemIndex(steps[0], len(at))
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

// itemIndex parses an index into a list of this length. A negative index counts from the end.
func itemIndex(text string, length int) (int, error) {
	i, err := strconv.Atoi(text)
	if err != nil || i >= length || i < -length {
		return 0, errPatch
	}
	if i < 0 {
		i += length
	}
	return i, nil
}

// setAt sets the value at a path and returns the changed document. If isNew, it inserts an item into a list instead
// of replacing one.
func setAt(at any, steps []string, value any, isNew bool) (any, error) {
	if len(steps) == 0 {
		return nil, errPatch
	}
	if len(steps) > 1 {
		return changeBelow(at, steps, func(next any) (any, error) { return setAt(next, steps[1:], value, isNew) })
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
			i, err := itemIndex(steps[0], len(at)+1)
			if err != nil {
				return nil, err
			}
			return slices.Insert(at, i, value), nil
		}
		i, err := itemIndex(steps[0], len(at))
		if err != nil {
			return nil, err
		}
		at[i] = value
		return at, nil
	}
	return nil, errPatch
}

// removeAt removes the value at a path, which must exist, and returns the changed document.
func removeAt(at any, steps []string) (any, error) {
	if len(steps) == 0 {
		return nil, errPatch
	}
	if len(steps) > 1 {
		return changeBelow(at, steps, func(next any) (any, error) { return removeAt(next, steps[1:]) })
	}
	switch at := at.(type) {
	case Object:
		if _, isThere := at[steps[0]]; !isThere {
			return nil, errPatch
		}
		delete(at, steps[0])
		return at, nil
	case []any:
		i, err := itemIndex(steps[0], len(at))
		if err != nil {
			return nil, err
		}
		return slices.Delete(at, i, i+1), nil
	}
	return nil, errPatch
}

// changeBelow replaces the value at the first step, which must exist, by the result of change.
func changeBelow(at any, steps []string, change func(any) (any, error)) (any, error) {
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
		i, err := itemIndex(steps[0], len(at))
		if err != nil {
			return nil, err
		}
		changed, err := change(at[i])
		at[i] = changed
		return at, err
	}
	return nil, errPatch
}
