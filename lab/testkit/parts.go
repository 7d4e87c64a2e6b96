package testkit

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// WantParts fails the test if generated parts of a page differ from parts. If isUpdate, it writes them instead. The part
// "rows" that command writes stands between the lines <!-- rows: command --> and <!-- end of rows -->, with an empty
// line before and after it.
func WantParts(t testing.TB, file, command string, isUpdate bool, parts map[string]string) {
	t.Helper()
	text := ReadFile(t, file)
	page := text
	for name, part := range parts {
		begin := fmt.Sprintf("<!-- %s: %s -->\n", name, command)
		end := fmt.Sprintf("<!-- end of %s -->", name)
		before, rest, hasBegin := strings.Cut(page, begin)
		_, after, hasEnd := strings.Cut(rest, end)
		if !hasBegin || !hasEnd {
			t.Fatalf("%s lacks the comments of the part %q", file, name)
		}
		page = before + begin + "\n" + part + "\n" + end + after
	}
	switch {
	case page == text:
	case isUpdate:
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is out of date: run %s", file, command)
	}
}
