package course

import (
	"fmt"
	"slices"
	"strings"
)

// around is how many equal lines a diff shows around what differs.
const around = 3

// diff returns what differs between two texts, in the form of diff -u without its head, or "" if nothing does.
func diff(old, new string) string {
	lines := compare(slices.Collect(strings.Lines(old)), slices.Collect(strings.Lines(new)))
	var b strings.Builder
	for begin := 0; begin < len(lines); {
		if lines[begin].sign == ' ' {
			begin++
			continue
		}
		// A hunk goes on while the next difference is so near that what both show around themselves meets.
		end := begin
		for i := begin; i < len(lines) && i <= end+2*around; i++ {
			if lines[i].sign != ' ' {
				end = i
			}
		}
		first := max(0, begin-around)
		last := min(len(lines), end+1+around)
		writeHunk(&b, lines, first, last)
		begin = last
	}
	return b.String()
}

// line is a line of a diff.
type line struct {
	sign byte // ' ' if both texts have it, '-' if only the old one has, '+' if only the new one has
	text string
}

// writeHunk writes lines with the numbers that they have in both texts.
func writeHunk(b *strings.Builder, lines []line, first, last int) {
	oldFirst, newFirst, oldCount, newCount := 1, 1, 0, 0
	for i, l := range lines[:last] {
		inOld, inNew := l.sign != '+', l.sign != '-'
		switch {
		case i < first:
			oldFirst += number(inOld)
			newFirst += number(inNew)
		default:
			oldCount += number(inOld)
			newCount += number(inNew)
		}
	}
	if oldCount == 0 {
		oldFirst = 0 // That is how diff -u says that the old text is empty.
	}
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", oldFirst, oldCount, newFirst, newCount)
	for _, l := range lines[first:last] {
		b.WriteByte(l.sign)
		b.WriteString(l.text)
	}
}

func number(isOne bool) int {
	if isOne {
		return 1
	}
	return 0
}

// compare returns the lines of both texts, in which as many as possible are common.
func compare(old, new []string) (lines []line) {
	// common[i][j] is how many lines old[i:] and new[j:] have in common at most.
	common := make([][]int, len(old)+1)
	for i := range common {
		common[i] = make([]int, len(new)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(new) - 1; j >= 0; j-- {
			if old[i] == new[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(old) && j < len(new) {
		switch {
		case old[i] == new[j]:
			lines = append(lines, line{' ', old[i]})
			i++
			j++
		case common[i+1][j] >= common[i][j+1]:
			lines = append(lines, line{'-', old[i]})
			i++
		default:
			lines = append(lines, line{'+', new[j]})
			j++
		}
	}
	for ; i < len(old); i++ {
		lines = append(lines, line{'-', old[i]})
	}
	for ; j < len(new); j++ {
		lines = append(lines, line{'+', new[j]})
	}
	return lines
}
