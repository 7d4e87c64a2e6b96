package fakekube

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
)

// schemaText describes the types of the built-in kinds, as in the API reference. The name of a type is on a line of its
// own. Each of its fields follows on an indented line: its name, its type, and any of these attributes.
//
//	key=NAME    a strategic merge patch merges the list's items by this field
//	set         a strategic merge patch adds missing items to the list
//	retainKeys  a strategic merge patch may contain $retainKeys
//	required    an object without the field is invalid; answers always show it
//	shown       answers show the field even if it is empty
//	kept        answers show the field as sent, even if it is an empty text
//	nonzero     answers do not show the field if it is 0 or false
//
// Types have their Go names. Where two groups have a type of the same name, its Go package precedes one of them.
//
//go:embed schema.txt
var schemaText string

// field is a field of an API type.
type field struct {
	typ         string // such as "string", "[]Container" or "map[string]string"
	mergeKey    string // of a list; "" if a patch replaces the list
	isSet       bool
	retainsKeys bool
	isRequired  bool
	isShown     bool
	isKept      bool
	isNonzero   bool
}

// structs holds the fields, by name, of each API type that has fields.
var structs = parseSchema(schemaText)

// fieldNames holds the sorted field names of each type. Errors are reported in this order, because the server meets
// fields in the order in which kubectl writes them.
var fieldNames = sortedFields(structs)

func sortedFields(types map[string]map[string]field) map[string][]string {
	names := map[string][]string{}
	for typ, fields := range types {
		names[typ] = slices.Sorted(maps.Keys(fields))
	}
	return names
}

func parseSchema(text string) map[string]map[string]field {
	types := map[string]map[string]field{}
	var fields map[string]field
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if !strings.HasPrefix(line, " ") {
			fields = map[string]field{}
			types[words[0]] = fields
			continue
		}
		f := field{typ: words[1]}
		for _, word := range words[2:] {
			f.parseAttribute(word)
		}
		fields[words[0]] = f
	}
	return types
}

// parseAttribute parses a word after a field's type.
func (f *field) parseAttribute(word string) {
	switch word {
	case "set":
		f.isSet = true
	case "retainKeys":
		f.retainsKeys = true
	case "required":
		f.isRequired = true
		f.isShown = true
	case "shown":
		f.isShown = true
	case "kept":
		f.isKept = true
	case "nonzero":
		f.isNonzero = true
	default:
		f.mergeKey = strings.TrimPrefix(word, "key=")
	}
}

// typeOfField returns the type of a field, and whether the field exists. A map has every field.
func typeOfField(typ, name string) (of string, isKnown bool) {
	switch {
	case typ == untypedObject && name == "metadata":
		return "ObjectMeta", true
	case typ == untypedObject || typ == untyped:
		return untyped, true
	}
	if fields, isStruct := structs[typ]; isStruct {
		f, isField := fields[name]
		return f.typ, isField
	}
	if items, isMap := strings.CutPrefix(typ, "map[string]"); isMap {
		return items, true
	}
	return anything, true
}

// typeOfItem returns the type of a list's items.
func typeOfItem(typ string) string {
	if items, isList := strings.CutPrefix(typ, "[]"); isList {
		return items
	}
	return anything
}

// anything is the type of values that may be anything.
const anything = "any"

// Objects of a kind that Serve has added, and the parts of them, have no type in the schema. Only their metadata has.
const (
	untypedObject = "untyped object"
	untyped       = "untyped"
)
