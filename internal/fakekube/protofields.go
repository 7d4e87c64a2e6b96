package fakekube

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// protobufText has the numbers of the fields in protobuf, as the generated.proto of each API group has them: the name
// of a type on a line of its own, then NAME=NUMBER for each of its fields, in the order of the numbers.
//
// NAME=NUMBER! is a field that is always written, as an empty text, a zero and so on where JSON has nothing.
// NAME=NUMBER.NUMBER is a field that in protobuf, though not in JSON, stands in a message within the message. Where the
// schema does not have the type, as in NAME=NUMBER:TYPE, the type of the field is here, too. The types are named as
// there. https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
//
//go:embed protobuf.txt
var protobufText string

// protoField is a field of a type as protobuf has it.
type protoField struct {
	name string // as in JSON
	typ  string // as in the schema, such as "[]Container" and "map[string]string"

	// number is that of the field in the message of its type. Where inner is not 0, the field stands in a message within
	// that one: then number is that of the message, and inner that of the field in it.
	number int
	inner  int

	isKept    bool // JSON has the field also where it is an empty text
	isWritten bool // protobuf has the field also where it is not set
}

// protoTypes are the types that have a form in protobuf, by name.
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

// parseProtoField reads a field of a type. It panics where the numbers are none.
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

// hasProtobuf reports whether the fake can read and write a kind in protobuf.
func (k kind) hasProtobuf() bool {
	return !k.isCustom() && len(protoTypes[k.kind]) > 0
}

// protoFieldOf finds the field that has these numbers.
func protoFieldOf(typ string, number, inner int) (f protoField, isKnown bool) {
	fields := protoTypes[typ]
	i := slices.IndexFunc(fields, func(f protoField) bool { return f.number == number && f.inner == inner })
	if i < 0 {
		return protoField{}, false
	}
	return fields[i], true
}

// isNested reports whether a number of a type is that of a message whose fields JSON has one level higher.
func isNested(typ string, number int) bool {
	return slices.ContainsFunc(protoTypes[typ], func(f protoField) bool { return f.number == number && f.inner > 0 })
}
