// Package diff compares texts line by line.
package diff

import (
	"fmt"
	"slices"
	"strings"
)

// Line is a line of one of two texts, or of both.
type Line struct {
	Sign byte // ' ' if both texts have it, '-' if only the old one has, '+' if only the new one has
	Text string
}

// context is how many equal lines are shown before what differs, and after it.
const context = 3

// compare returns the lines of both texts, in which as many as possible are common. Where lines are replaced, the old
// ones come first. It takes time and memory in proportion to the product of both lengths.
func compare(old, new []string) (lines []Line) {
	common := commonLengths(old, new)
	i, j := 0, 0
	for i < len(old) || j < len(new) {
		switch {
		case i < len(old) && j < len(new) && old[i] == new[j]:
			lines = append(lines, Line{' ', old[i]})
			i++
			j++
		case j == len(new) || (i < len(old) && common[i+1][j] >= common[i][j+1]):
			lines = append(lines, Line{'-', old[i]})
			i++
		default:
			lines = append(lines, Line{'+', new[j]})
			j++
		}
	}
	return lines
}

// commonLengths returns a table: its element [i][j] is how many lines old[i:] and new[j:] have in common at most.
func commonLengths(old, new []string) [][]int {
	table := make([][]int, len(old)+1)
	for i := range table {
		table[i] = make([]int, len(new)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(new) - 1; j >= 0; j-- {
			if old[i] == new[j] {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	return table
}

// Between returns the lines from the first that differs to the last, and a few around them. The texts must differ. What
// is equal before and after these lines costs little.
func Between(old, new []string) []Line {
	before := commonPrefix(old, new)
	after := commonSuffix(old[before:], new[before:])
	first, rest := max(0, before-context), max(0, after-context)
	return compare(old[first:len(old)-rest], new[first:len(new)-rest])
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

// Unified returns what differs between two texts, in the form of diff -u without its head, or "" if nothing does. Each
// line of the texts ends with a line feed.
func Unified(old, new string) string {
	lines := compare(slices.Collect(strings.Lines(old)), slices.Collect(strings.Lines(new)))
	var b strings.Builder
	for begin := 0; begin < len(lines); {
		if lines[begin].Sign == ' ' {
			begin++
			continue
		}
		// A hunk goes on while the next difference is so near that what both show around themselves meets.
		end := begin
		for next := begin; next < len(lines) && next <= end+2*context+1; next++ {
			if lines[next].Sign != ' ' {
				end = next
			}
		}
		first, last := max(0, begin-context), min(len(lines), end+1+context)
		writeHunk(&b, lines, first, last)
		begin = last
	}
	return b.String()
}

// writeHunk writes lines with the numbers that they have in both texts.
func writeHunk(b *strings.Builder, lines []Line, first, last int) {
	oldBefore, newBefore := lengths(lines[:first])
	oldCount, newCount := lengths(lines[first:last])
	// A text that is empty has no first line: diff -u says 0.
	oldFirst, newFirst := min(oldBefore+1, oldBefore+oldCount), min(newBefore+1, newBefore+newCount)
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", oldFirst, oldCount, newFirst, newCount)
	for _, l := range lines[first:last] {
		b.WriteString(string(l.Sign) + l.Text)
	}
}

// lengths returns how many of the lines stand in the old text, and how many in the new one.
func lengths(lines []Line) (old, new int) {
	for _, l := range lines {
		if l.Sign != '+' {
			old++
		}
		if l.Sign != '-' {
			new++
		}
	}
	return old, new
}
