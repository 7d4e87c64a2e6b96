package labels

import (
	"fmt"
	"slices"
	"strings"
)

// CheckFieldSelector checks a selector of objects by these fields: FIELD=VALUE, FIELD==VALUE and FIELD!=VALUE, joined by
// commas. A backslash before a comma, an equals sign or another backslash makes that a part of the value. fields are
// those by which the API server selects objects of the kind, which errors name as kind.
func CheckFieldSelector(text, kind string, fields []string) error {
	for _, term := range splitFieldTerms(text) {
		if term == "" {
			continue // The API server takes this for nothing.
		}
		end := strings.IndexAny(term, "=!")
		if end < 0 || term[end] == '!' && !strings.HasPrefix(term[end:], "!=") {
			return fmt.Errorf("%q needs an operator: use =, == or !=", term)
		}
		field := term[:end]
		if !slices.Contains(fields, field) {
			return fmt.Errorf("field label not supported: %q: %s have %s", field, kind, strings.Join(fields, ", "))
		}
		value := strings.TrimPrefix(term[end:], "!")
		value = strings.TrimPrefix(value, "=")
		if term[end] == '=' {
			value = strings.TrimPrefix(value, "=")
		}
		bare := strings.NewReplacer(`\\`, "", `\,`, "", `\=`, "").Replace(value)
		if strings.ContainsAny(bare, `\=`) {
			return fmt.Errorf(`%q: write \= for = and \\ for \ in a value`, term)
		}
	}
	return nil
}

// splitFieldTerms splits at each comma but those after a backslash.
func splitFieldTerms(text string) (terms []string) {
	start := 0
	isEscaped := false
	for i, c := range text {
		if c == ',' && !isEscaped {
			terms = append(terms, text[start:i])
			start = i + 1
		}
		isEscaped = c == '\\' && !isEscaped
	}
	return append(terms, text[start:])
}
