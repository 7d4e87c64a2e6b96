package fakekube

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// protobufText holds the protobuf field numbers, as in the generated.proto of each API group. The name of a type is on
// a line of its own. Its fields follow on indented lines, in the order of their numbers:
//
//	NAME=NUMBER         a field
//	NAME=NUMBER!        a field that is always encoded, as an empty text, a zero and so on if JSON lacks it
//	NAME=NUMBER.NUMBER  a field in a nested message that JSON does not have
//	NAME=NUMBER:TYPE    a field of a type that schema.txt does not describe
//
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
//
//go:embed protobuf.txt
var protobufText string

// protoField is a field of a type in protobuf.
type protoField struct {
	name string // as in JSON
	typ  string // as in the schema, such as "[]Container" or "map[string]string"

	// number is the field's number. If inner is not 0, the field is in a nested message that JSON does not have:
	// number is then the number of that message, and inner the field's number within it.
	number int
	inner  int

	isKept    bool // JSON shows an empty text
	isWritten bool // protobuf contains the field even if it is not set
}

// protoTypes holds the fields of the types that have a protobuf form, by type.
var protoTypes = parseProtoTypes(protobufText)

func parseProtoTypes(text string) map[string][]protoField {
	types := map[string][]protoField{}
	name := ""
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") {
			name = strings.TrimSpace(line)
			types[name] = []protoField{}
			continue
		}
		for word := range strings.FieldsSeq(line) {
			types[name] = append(types[name], parseProtoField(name, word))
		}
	}
	return types
}

// parseProtoField parses a field of a type. It panics if a number is invalid.
func parseProtoField(of, word string) protoField {
	name, rest, _ := strings.Cut(word, "=")
	numbers, typ, hasType := strings.Cut(rest, ":")
	numbers, isWritten := strings.CutSuffix(numbers, "!")
	outer, inner, _ := strings.Cut(numbers, ".")
	f := protoField{name: name, typ: typ, isWritten: isWritten}
	f.number = protoNumber(word, outer)
	if inner != "" {
		f.inner = protoNumber(word, inner)
	}
	if !hasType {
		known := structs[of][name]
		f.typ = known.typ
		f.isKept = known.isKept
	}
	return f
}

func protoNumber(word, digits string) int {
	number, err := strconv.Atoi(digits)
	if err != nil {
		panic(fmt.Sprintf("protobuf.txt: %s: %v", word, err))
	}
	return number
}

// hasProtobuf reports whether the fake supports the kind in protobuf.
func (k kind) hasProtobuf() bool {
	return k.isKnown() && len(protoTypes[k.typ()]) > 0
}

// protoFieldOf finds a field by its numbers.
func protoFieldOf(typ string, number, inner int) (f protoField, isKnown bool) {
	fields := protoTypes[typ]
	i := slices.IndexFunc(fields, func(f protoField) bool { return f.number == number && f.inner == inner })
	if i < 0 {
		return protoField{}, false
	}
	return fields[i], true
}

// isNested reports whether a number stands for a nested message whose fields JSON has one level higher.
func isNested(typ string, number int) bool {
	return slices.ContainsFunc(protoTypes[typ], func(f protoField) bool { return f.number == number && f.inner > 0 })
}
