package replay

import (
	"fmt"
	"slices"
	"strings"
)

// Insert returns HTML into which texts are inserted. Of each pair, the second is inserted before the first one, where
// that occurs for the first time.
func Insert(html string, pairs ...string) (string, error) {
	for pair := range slices.Chunk(pairs, 2) {
		place, text := pair[0], pair[1]
		before, rest, hasPlace := strings.Cut(html, place)
		if !hasPlace {
			return "", fmt.Errorf("the page has no place %q", place)
		}
		html = before + text + place + rest
	}
	return html, nil
}
