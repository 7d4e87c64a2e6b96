package fakekube

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Directives of a strategic merge patch.
// https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
const (
	patchDirective      = "$patch"
	retainKeysDirective = "$retainKeys"
	deleteDirective     = "$deleteFromPrimitiveList/"
	orderDirective      = "$setElementOrder/"
)

// strategicMerge applies a strategic merge patch to an object of this type, which it may modify. Lists with a merge
// key are merged item by item. Errors have the server's wording.
func strategicMerge(typ string, o, patch Object) (Object, error) {
	if directive, isSet := patch[patchDirective]; isSet {
		return replaceObject(directive, patch)
	}
	if o == nil {
		o = Object{}
	}
	retainKeys(o, patch)
	if err := mergeOrdered(typ, o, patch); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		isOrdered := patch[orderDirective+name] != nil
		if isOrdered || name == retainKeysDirective || strings.HasPrefix(name, orderDirective) {
			continue
		}
		if list, isDeletion := strings.CutPrefix(name, deleteDirective); isDeletion {
			removeItems(o, list, patch[name])
			continue
		}
		if err := mergeField(typ, o, name, patch[name]); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// replaceObject returns the result of a patch with the directive $patch.
func replaceObject(directive any, patch Object) (Object, error) {
	switch directive {
	case "delete":
		return Object{}, nil
	case "replace":
		replaced := maps.Clone(patch)
		delete(replaced, patchDirective)
		return replaced, nil
	}
	return nil, fmt.Errorf("unknown patch type: %v in map: %v", directive, patch)
}

// retainKeys removes the fields that the directive $retainKeys does not name.
func retainKeys(o, patch Object) {
	kept, isSet := patch[retainKeysDirective].([]any)
	if !isSet {
		return
	}
	maps.DeleteFunc(o, func(name string, _ any) bool { return !slices.Contains(kept, any(name)) })
}

// removeItems removes items from a list of primitive values.
func removeItems(o Object, name string, removed any) {
	list, isList := o[name].([]any)
	gone, hasList := removed.([]any)
	if isList && hasList {
		o[name] = slices.DeleteFunc(slices.Clone(list), func(item any) bool { return field{}.indexIn(gone, item) >= 0 })
	}
}

// mergeField merges a field of an object of this type.
func mergeField(typ string, o Object, name string, value any) error {
	if value == nil {
		delete(o, name)
		return nil
	}
	merged, err := mergedField(typ, o, name, value)
	if err != nil {
		return err
	}
	o[name] = merged
	return nil
}

// mergedField returns the merged value of a field.
func mergedField(typ string, o Object, name string, value any) (any, error) {
	if o[name] == nil {
		return withoutDirectives(value), nil
	}
	of, _ := typeOfField(typ, name)
	f := structs[typ][name]
	if of == untyped {
		f = untypedList(name, nil)
	}
	switch value := value.(type) {
	case Object:
		before, _ := o[name].(Object)
		return strategicMerge(of, before, value)
	case []any:
		before, _ := o[name].([]any)
		if f.mergeKey == "" && !f.isSet {
			return cloned(value), nil
		}
		return mergeList(f, before, value)
	}
	return value, nil
}

// withoutDirectives returns the value that a patch sets if nothing was there before. It drops directives and objects
// that contain $patch.
func withoutDirectives(value any) any {
	switch value := value.(type) {
	case Object:
		if value[patchDirective] != nil {
			return nil
		}
		kept := Object{}
		for name, part := range value {
			if part != nil && !strings.HasPrefix(name, "$") {
				kept[name] = withoutDirectives(part)
			}
		}
		return kept
	case []any:
		var kept []any
		for _, item := range value {
			if item = withoutDirectives(item); item != nil {
				kept = append(kept, item)
			}
		}
		return kept
	}
	return value
}

// mergeOrdered merges the lists whose order a patch sets.
func mergeOrdered(typ string, o, patch Object) error {
	for _, directive := range slices.Sorted(maps.Keys(patch)) {
		name, isOrder := strings.CutPrefix(directive, orderDirective)
		if !isOrder {
			continue
		}
		order, _ := patch[directive].([]any)
		before, _ := o[name].([]any)
		items, _ := patch[name].([]any)
		f := structs[typ][name]
		if of, _ := typeOfField(typ, name); of == untyped {
			f = untypedList(name, order)
		}
		if !isInOrder(f, items, order) {
			const outOfOrder = "The order in patch list:\n%v\n doesn't match $setElementOrder list:\n%v\n"
			text := fmt.Sprintf(outOfOrder, items, order)
			return errors.New(text)
		}
		merged := before
		if items != nil {
			var err error
			merged, err = mergeList(f, before, items)
			if err != nil {
				return err
			}
		}
		if merged != nil {
			o[name] = f.inPatchOrder(merged, order, before)
		}
	}
	return nil
}

// untypedList returns how a patch merges a list that the schema does not describe: conditions by their type, and
// otherwise as the order tells that the patch names. An item of the order has nothing but its merge key; a text or a
// number is an item of a set.
func untypedList(name string, order []any) field {
	f := field{typ: "[]" + untyped}
	if name == "conditions" {
		f.mergeKey = "type"
		return f
	}
	if len(order) == 0 {
		return f
	}
	item, isObject := order[0].(Object)
	f.isSet = !isObject
	for key := range item {
		f.mergeKey = key
	}
	return f
}

// isInOrder reports whether the items of a patch all occur in order, and in that order.
func isInOrder(f field, items, order []any) bool {
	last := -1
	for _, item := range items {
		if part, isObject := item.(Object); isObject && part[patchDirective] != nil {
			continue
		}
		i := f.indexIn(order, item)
		if i < last || i < 0 {
			return false
		}
		last = i
	}
	return true
}

// mergeList merges the items of a patch into a list, either by their merge key or as a set.
func mergeList(f field, before, items []any) ([]any, error) {
	if f.mergeKey == "" {
		merged := slices.Clone(before)
		for _, item := range items {
			if f.indexIn(merged, item) < 0 {
				merged = append(merged, item)
			}
		}
		return f.inPatchOrder(merged, items, before), nil
	}
	before, items, err := f.applyDirectives(slices.Clone(before), items)
	if err != nil {
		return nil, err
	}
	merged := slices.Clone(before)
	for _, item := range items {
		part := item.(Object)
		if part[f.mergeKey] == nil {
			return nil, fmt.Errorf("map: %v does not contain declared merge key: %s", part, f.mergeKey)
		}
		i := f.indexIn(merged, part)
		var from Object
		if i >= 0 {
			from, _ = merged[i].(Object)
		}
		after, err := strategicMerge(typeOfItem(f.typ), Clone(from), part)
		if err != nil {
			return nil, err
		}
		if i >= 0 {
			merged[i] = after
		} else {
			merged = append(merged, any(after))
		}
	}
	return f.inPatchOrder(merged, items, before), nil
}

// applyDirectives carries out the directives among the items of a patch. It returns the remaining list and the
// remaining items.
func (f field) applyDirectives(before, items []any) (left, rest []any, err error) {
	isReplaced := false
	for _, item := range items {
		part, isObject := item.(Object)
		if !isObject {
			return nil, nil, fmt.Errorf("list element types are not identical: %v", []any{before, items})
		}
		directive, isDirective := part[patchDirective]
		switch {
		case !isDirective:
			rest = append(rest, item)
		case directive == "delete":
			before = slices.DeleteFunc(before, func(old any) bool { return f.isSameItem(old, item) })
		case directive == "replace":
			isReplaced = true
		default:
			return nil, nil, fmt.Errorf("unknown patch type: %v in map: %v", directive, part)
		}
	}
	if isReplaced {
		return nil, rest, nil
	}
	return before, rest, nil
}

// isSameItem reports whether two items have the same merge key or, without one, are equal.
func (f field) isSameItem(a, b any) bool {
	first, isObject := a.(Object)
	second, isToo := b.(Object)
	if isObject && isToo && f.mergeKey != "" {
		return reflect.DeepEqual(first[f.mergeKey], second[f.mergeKey])
	}
	return reflect.DeepEqual(a, b)
}

// indexIn returns the index of an item in a list, or -1.
func (f field) indexIn(list []any, item any) int {
	return slices.IndexFunc(list, func(other any) bool { return f.isSameItem(other, item) })
}

// inPatchOrder returns a merged list in the server's order: items of the patch in the patch's order, and other items
// in their previous order. Another item precedes an item of the patch only if it did so before.
func (f field) inPatchOrder(merged, order, before []any) []any {
	var named, others []any
	for _, item := range merged {
		if f.indexIn(order, item) >= 0 {
			named = append(named, item)
		} else {
			others = append(others, item)
		}
	}
	slices.SortStableFunc(named, func(a, b any) int { return f.indexIn(order, a) - f.indexIn(order, b) })
	var all []any
	for len(named) > 0 && len(others) > 0 {
		stood := f.indexIn(before, others[0])
		wasNamed := f.indexIn(before, named[0])
		if stood >= 0 && wasNamed >= 0 && stood < wasNamed {
			all = append(all, others[0])
			others = others[1:]
			continue
		}
		all = append(all, named[0])
		named = named[1:]
	}
	return slices.Concat(all, named, others)
}
