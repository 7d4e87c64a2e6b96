package testkit

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"podcount/lab/diff"
)

// linesOf renders a value, one line for each of its parts.
func linesOf(v reflect.Value) (lines []string) {
	switch v.Kind() {
	case reflect.String:
		return strings.Split(v.String(), "\n")
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			lines = append(lines, fmt.Sprintf("%+v", v.Index(i)))
		}
		return lines
	case reflect.Map:
		for _, key := range v.MapKeys() {
			lines = append(lines, fmt.Sprintf("%+v: %+v", key, v.MapIndex(key)))
		}
		slices.Sort(lines)
		return lines
	case reflect.Struct:
		for i := range v.NumField() {
			lines = append(lines, fmt.Sprintf("%s: %+v", v.Type().Field(i).Name, v.Field(i)))
		}
		return lines
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return linesOf(v.Elem())
		}
	}
	return []string{fmt.Sprintf("%+v", v)}
}

// difference compares two lists of lines. Lines that only want has begin with "- ", lines that only got has begin with
// "+ ", and lines that both have begin with two blanks.
func difference(got, want []string) string {
	var b strings.Builder
	for _, l := range diff.Between(want, got) {
		b.WriteString(string(l.Sign) + " " + l.Text + "\n")
	}
	return b.String()
}
