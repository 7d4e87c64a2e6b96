package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// EachMember calls read with the name and the value of each member of an object, in the order of the text, even if a
// name occurs twice. It returns the first error of read. null counts as an object without members. For any other value,
// the error names the field, such as "metadata".
//
// The value must come from ReadJSON or EachMember: a complete, valid JSON value without space around it. EachMember may
// panic on anything else. It copies nothing: copy what must outlast the object's memory.
func EachMember(value []byte, field string, read func(name, value []byte) error) error {
	if value[0] != '{' {
		return unmarshal(value, &struct{}{}, field)
	}
	i := skipSpace(value, 1)
	for value[i] != '}' {
		nameEnd := skipString(value, i)
		name := unquoted(value[i:nameEnd])
		colon := skipSpace(value, nameEnd)
		start := skipSpace(value, colon+1)
		end := skipValue(value, start)
		if err := read(name, value[start:end]); err != nil {
			return err
		}
		i = skipSpace(value, end)
		if value[i] == ',' {
			i = skipSpace(value, i+1)
		}
	}
	return nil
}

// At returns the value that the names lead to, as in At(object, "spec", "count"). It returns nil if there is none. If a
// name occurs twice, the last one counts. value must come from ReadJSON or EachMember.
func At(value []byte, names ...string) []byte {
	for _, wanted := range names {
		if value == nil {
			return nil
		}
		var found []byte
		EachMember(value, "", func(name, member []byte) error {
			if string(name) == wanted {
				found = member
			}
			return nil
		})
		value = found
	}
	return value
}

// Text is a string whose memory is reused for the next one. The zero Text is empty and ready to use. To empty a Text
// and keep its memory, slice it: t = t[:0].
type Text []byte

// Read copies a JSON string into the text. It ignores null. For any other value, or a string of more than 64 KiB, it
// returns an error that names the field, and leaves the text unchanged.
//
// The value must come from ReadJSON or EachMember.
func (t *Text) Read(value []byte, field string) error {
	if value[0] == '"' && len(value) > textLimit {
		return fmt.Errorf("%s: a string of %d bytes is too long, the limit is %d", field, len(value), textLimit)
	}
	isPlain := value[0] == '"' && bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value)
	if isPlain { // most strings are, and this allocates nothing
		*t = append((*t)[:0], value[1:len(value)-1]...)
		return nil
	}
	text := string(*t)
	if err := unmarshal(value, &text, field); err != nil {
		return err
	}
	*t = append((*t)[:0], text...)
	return nil
}

// Raw is a JSON value of any type, exactly as it was written. It is empty if the value is null or missing.
type Raw string

// RawOf returns a copy of a value from ReadJSON or EachMember.
func RawOf(value []byte) Raw {
	if string(value) == "null" {
		return ""
	}
	return Raw(value)
}

// MarshalJSON returns the value. An empty Raw cannot be marshalled, so fields of this type need the option omitempty.
func (r Raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// unmarshal is json.Unmarshal, except that its error about a wrong type names the given field, such as "metadata.name",
// and not a Go type that users do not know. If field is "", the error stays as it is.
func unmarshal(value []byte, into any, field string) error {
	err := json.Unmarshal(value, into)
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	wrong.Value = Shorten(wrong.Value, quoteLimit) // It has all digits of a number.
	if field != "" {
		wrong.Struct = "item"
		wrong.Field = field
	}
	return err
}

// unquoted returns the content of a JSON string.
func unquoted(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	var plain string
	json.Unmarshal(text, &plain) // cannot fail: the syntax has been checked
	return []byte(plain)
}

// skipSpace returns the index of the first byte from i on that is not white space.
func skipSpace(text []byte, i int) int {
	for text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r' {
		i++
	}
	return i
}

// skipValue returns the end of the value that begins at i.
func skipValue(text []byte, i int) int {
	switch text[i] {
	case '"':
		return skipString(text, i)
	case '{', '[':
		return skipNested(text, i)
	}
	// A number, true, false or null ends before a separator.
	for i < len(text) && strings.IndexByte(",]} \n\t\r", text[i]) < 0 {
		i++
	}
	return i
}

// skipNested returns the end of the object or array that begins at i.
func skipNested(text []byte, i int) int {
	for depth := 0; ; i++ {
		switch text[i] {
		case '"':
			i = skipString(text, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
	}
}

// skipString returns the end of the string whose opening quote is at i.
func skipString(text []byte, i int) int {
	for {
		i += 1 + bytes.IndexByte(text[i+1:], '"')
		if !isEscaped(text, i) {
			return i + 1
		}
	}
}

// isEscaped reports whether an odd number of backslashes precedes the byte at i.
func isEscaped(text []byte, i int) bool {
	backslashes := 0
	for text[i-1-backslashes] == '\\' {
		backslashes++
	}
	return backslashes%2 == 1
}
