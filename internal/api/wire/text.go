package wire

import (
	"fmt"
	"unicode/utf8"
)

// Shorten returns a text, or the beginning of one that has more bytes than the limit, with a mark that says how many it
// has. Every text of a server that becomes part of an error, or that is kept, should pass through it. The beginning is
// a copy, so that the rest needs no memory.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return markCut([]byte(text[:limit]), len(text))
}

// markCut returns the beginning of a text, with a mark that says how many bytes the whole text has. A character that is
// cut in two is left out.
func markCut(beginning []byte, size int) string {
	end := len(beginning)
	for i := 1; i <= min(end, utf8.UTFMax); i++ {
		if last := beginning[end-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				beginning = beginning[:end-i]
			}
			break
		}
	}
	return fmt.Sprintf("%s… (%d bytes in all)", beginning, size)
}
