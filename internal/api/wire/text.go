package wire

import (
	"bytes"
	"fmt"
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

// markCut returns the beginning of a text, with a mark that says how many bytes the whole text has. It leaves out what
// is not UTF-8, such as a character that is cut in two.
func markCut(beginning []byte, size int) string {
	return fmt.Sprintf("%s… (%d bytes in all)", bytes.ToValidUTF8(beginning, nil), size)
}
