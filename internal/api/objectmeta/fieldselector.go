package objectmeta

import (
	"fmt"
	"slices"
	"strings"
)

// CheckFieldSelector returns an error unless the API server would accept text as a field selector: any of FIELD=VALUE,
// FIELD==VALUE and FIELD!=VALUE, separated by commas. In a value, a backslash escapes a comma, an equals sign or a
// backslash. fields are those that the API server can select by. kind, such as "pods", is for error messages.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
func CheckFieldSelector(text, kind string, fields []string) error {
	for _, term := range splitFieldTerms(text) {
		if term == "" {
			continue // the API server ignores empty terms
		}
		if err := checkFieldTerm(term, kind, fields); err != nil {
			return err
		}
	}
	return nil
}

func checkFieldTerm(term, kind string, fields []string) error {
	field, value, ok := cutFieldTerm(term)
	if !ok {
		return fmt.Errorf("%q needs an operator: use =, == or !=", term)
	}
	if !slices.Contains(fields, field) {
		return fmt.Errorf("field label not supported: %q; %s can be selected by %s", field, kind, strings.Join(fields, ", "))
	}
	unescaped := strings.NewReplacer(`\\`, "", `\,`, "", `\=`, "").Replace(value)
	if strings.ContainsAny(unescaped, `\=`) {
		return fmt.Errorf(`%q: write \= for = and \\ for \ in a value`, term)
	}
	return nil
}

// cutFieldTerm splits a term at its operator. ok is false if it has none.
func cutFieldTerm(term string) (field, value string, ok bool) {
	end := strings.IndexAny(term, "=!")
	if end < 0 {
		return "", "", false
	}
	field = term[:end]
	for _, operator := range []string{"!=", "==", "="} {
		value, ok = strings.CutPrefix(term[end:], operator)
		if ok {
			return field, value, true
		}
	}
	return "", "", false
}

// splitFieldTerms splits at each comma that is not escaped by a backslash.
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
