package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"unicode/utf8"
)

// WantObject returns an error unless the value is an object or null, which has no members. The error names the field,
// such as "metadata", for people.
//
// The value must be one that ReadJSON gets or Members yields: a whole value of JSON, whose syntax is right, without
// blanks around it. Otherwise, WantObject may panic.
func WantObject(value []byte, field string) error {
	if value[0] == '{' {
		return nil
	}
	return Unmarshal(value, &struct{}{}, field)
}

// Members yields the names and values of an object, in its order; of null and all else, nothing. A name that is there
// twice comes twice. Nothing is copied: names and values change when the object's memory is used again.
//
// The object must be a value that ReadJSON gets or Members yields, as for WantObject. Otherwise, Members may panic.
func Members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if object[0] != '{' {
			return
		}
		i := skipSpace(object, 1)
		for object[i] != '}' {
			end := skipValue(object, i)
			name := unquoted(object[i:end])
			i = skipSpace(object, end) // to the colon
			i = skipSpace(object, i+1) // to the value
			end = skipValue(object, i)
			if !yield(name, object[i:end]) {
				return
			}
			i = skipSpace(object, end)
			if object[i] == ',' {
				i = skipSpace(object, i+1)
			}
		}
	}
}

// Text is a text in memory that is used again for the next one. The zero Text is empty and ready. Empty it by slicing:
// t = t[:0].
type Text []byte

// Read takes a string; null changes nothing. The text is a copy. With an error, which is Unmarshal's and names the
// field, the text stays as it was.
//
// The value must be one that ReadJSON gets or Members yields, as for WantObject. Otherwise, Read may panic.
func (t *Text) Read(value []byte, field string) error {
	isPlain := value[0] == '"' && bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value)
	if isPlain {
		*t = append((*t)[:0], value[1:len(value)-1]...)
		return nil
	}
	text := string(*t)
	if err := Unmarshal(value, &text, field); err != nil {
		return err
	}
	*t = append((*t)[:0], text...)
	return nil
}

// Raw is a value as it is written, of whatever type. It is empty for null, and for what is not there.
type Raw string

// RawOf returns a copy of the value, which must be one that ReadJSON gets or Members yields.
func RawOf(value []byte) Raw {
	if string(value) == "null" {
		return ""
	}
	return Raw(value)
}

// MarshalJSON returns the value. An empty one cannot be marshalled: leave it out, by omitempty.
func (r Raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// Unmarshal is json.Unmarshal, whose error about a wrong type names the field, such as "metadata.name", instead of a
// field of Go's. Where field is "", the error is json.Unmarshal's.
func Unmarshal(value []byte, into any, field string) error {
	err := json.Unmarshal(value, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && field != "" {
		wrong.Struct = "item" // encoding/json names a type of Go here; people know an item of a list
		wrong.Field = field
	}
	return err
}

// unquoted returns a string without its quotes and escapes.
func unquoted(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	var plain string
	json.Unmarshal(text, &plain) // cannot fail, as the syntax is right
	return []byte(plain)
}

// skipSpace returns where the blanks end that begin at i.
func skipSpace(text []byte, i int) int {
	for text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r' {
		i++
	}
	return i
}

// skipValue returns where the value ends that begins at i.
func skipValue(text []byte, i int) int {
	switch text[i] {
	case '"':
		return skipString(text, i)
	case '{', '[':
		return skipNested(text, i)
	}
	for i < len(text) && strings.IndexByte(",]} \n\t\r", text[i]) < 0 {
		i++
	}
	return i
}

// skipNested returns where the object or array ends that begins at i.
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

// skipString returns where the string ends whose first quote is at i.
func skipString(text []byte, i int) int {
	for {
		i += 1 + bytes.IndexByte(text[i+1:], '"')
		isEscaped := false
		for before := i - 1; text[before] == '\\'; before-- {
			isEscaped = !isEscaped
		}
		if !isEscaped {
			return i + 1
		}
	}
}
