package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"
)

// Raw is a value of JSON as it is written, of whatever type; null and what is not there are empty.
type Raw string

func (r Raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// Text is a text in memory that is used again for the next one.
type Text []byte

// Read takes a string of JSON; null changes nothing.
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

// RawOf returns the value as it is written.
func RawOf(value []byte) Raw {
	if string(value) == "null" {
		return ""
	}
	return Raw(value)
}

// WantObject returns an error unless the value is an object or null, which has no members.
func WantObject(value []byte, field string) error {
	if value[0] == '{' {
		return nil
	}
	return Unmarshal(value, &struct{}{}, field)
}

// Unmarshal is json.Unmarshal. Its error names the field.
func Unmarshal(value []byte, into any, field string) error {
	err := json.Unmarshal(value, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && field != "" {
		wrong.Struct = "item"
		wrong.Field = field
	}
	return err
}

// Members are the names and values of an object of JSON; of null there are none. The text must be valid, and begin with
// the value: json.RawMessage does. It is not copied.
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

// unquoted is a string of JSON without its quotes and escapes.
func unquoted(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	var plain string
	json.Unmarshal(text, &plain) // is valid
	return []byte(plain)
}

// skipSpace returns where the blanks end that begin at i.
func skipSpace(text []byte, i int) int {
	for text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r' {
		i++
	}
	return i
}

// skipValue returns where the value of JSON ends that begins at i.
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

// skipString returns where the string of JSON ends whose first quote is at i.
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

// eachField walks one JSON object; read must take the value of each field. Where there is nothing at all, it is io.EOF.
func eachField(s *json.Decoder, read func(field string) error) error {
	if t, err := s.Token(); err != nil || t != json.Delim('{') {
		return cmp.Or(err, fmt.Errorf("%v instead of an object", t))
	}
	for {
		t, err := s.Token()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || t == json.Delim('}') {
			return err
		}
		if err := read(t.(string)); err != nil { // the decoder lets nothing but a string stand for a name
			return fmt.Errorf("%s: %w", t, err)
		}
	}
}
