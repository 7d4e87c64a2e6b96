package testkit

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// contextLines is how many equal lines a diff shows before the first difference, and after the last one.
const contextLines = 3

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

// diff compares two lists of lines. Lines that only want has begin with "- ", lines that only got has begin with "+ ",
// and lines that both have begin with two blanks.
func diff(got, want []string) string {
	before := commonPrefix(got, want)
	after := commonSuffix(got[before:], want[before:])
	got, gotAfter := got[:len(got)-after], got[len(got)-after:]
	want = want[:len(want)-after]

	var b strings.Builder
	for _, line := range got[max(0, before-contextLines):before] {
		b.WriteString("  " + line + "\n")
	}
	writeDifference(&b, got[before:], want[before:])
	for _, line := range gotAfter[:min(contextLines, len(gotAfter))] {
		b.WriteString("  " + line + "\n")
	}
	return b.String()
}

// writeDifference writes the shortest difference of two lists of lines.
func writeDifference(b *strings.Builder, got, want []string) {
	common := commonLengths(got, want)
	for len(got) > 0 || len(want) > 0 {
		i := len(common) - 1 - len(want)
		j := len(common[0]) - 1 - len(got)
		switch {
		case len(got) > 0 && len(want) > 0 && got[0] == want[0]:
			b.WriteString("  " + got[0] + "\n")
			got = got[1:]
			want = want[1:]
		case len(want) > 0 && (len(got) == 0 || common[i+1][j] >= common[i][j+1]):
			b.WriteString("- " + want[0] + "\n")
			want = want[1:]
		default:
			b.WriteString("+ " + got[0] + "\n")
			got = got[1:]
		}
	}
}

// commonLengths returns a table: its element [i][j] is the length of the longest common subsequence of want[i:] and
// got[j:].
func commonLengths(got, want []string) [][]int {
	table := make([][]int, len(want)+1)
	for i := range table {
		table[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			if want[i] == got[j] {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	return table
}

// commonPrefix counts the lines that a and b have in common at their start.
func commonPrefix(a, b []string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// commonSuffix counts the lines that a and b have in common at their end.
func commonSuffix(a, b []string) (n int) {
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
