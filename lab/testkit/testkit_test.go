package testkit

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// verdict is a testing.TB that keeps the failures that a check reports.
type verdict struct {
	testing.TB
	failures []string
}

func (v *verdict) Helper() {}
func (v *verdict) Errorf(format string, args ...any) {
	v.failures = append(v.failures, fmt.Sprintf(format, args...))
}

func TestChecks(t *testing.T) {
	type point struct{ X, y int }
	numbered := func(from, to int) string {
		var b strings.Builder
		for i := from; i <= to; i++ {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return b.String()
	}
	const heading = "it: - is wanted and missing, + is unwanted:\n"
	for _, row := range []struct {
		name  string
		check func(t testing.TB)
		want  string // the failure
	}{
		{"a text that is missing",
			func(t testing.TB) { WantText(t, "abc", "a", "x") },
			"no \"x\" in:\nabc"},
		{"another number",
			func(t testing.TB) { WantNumber(t, "it", 1, 2) },
			"it: got 1, want 2"},
		{"a number that is too small",
			func(t testing.TB) { WantBetween(t, "it", 0, 1, 2) },
			"it: got 0, want 1 to 2"},
		{"a duration that is too long",
			func(t testing.TB) { WantBetween(t, "it", 3*time.Second, time.Second, 2*time.Second) },
			"it: got 3s, want 1s to 2s"},

		{"an error where none is wanted",
			func(t testing.TB) { WantError(t, "it", io.EOF, "") },
			`it: got the error "EOF", want none`},
		{"another error than the wanted one",
			func(t testing.TB) { WantError(t, "it", io.EOF, "broken") },
			`it: got the error "EOF", want "broken"`},
		{"no error where one is wanted",
			func(t testing.TB) { WantError(t, "it", nil, "broken") },
			`it: got no error, want "broken"`},

		{"short texts",
			func(t testing.TB) { WantEqual(t, "it", "a", "b") },
			`it: got "a", want "b"`},
		{"two differences",
			func(t testing.TB) { WantEqual(t, "it", "1\nb\n3\n4", "a\nb\nc\n4") },
			heading + "- a\n+ 1\n  b\n- c\n+ 3\n  4\n"},
		{"only three equal lines on either side are shown",
			func(t testing.TB) { WantEqual(t, "it", numbered(1, 9), numbered(1, 4)+numbered(6, 9)) },
			heading + "  line 2\n  line 3\n  line 4\n+ line 5\n  line 6\n  line 7\n  line 8\n"},

		{"no list and an empty one",
			func(t testing.TB) { WantEqual(t, "it", nil, []int{}) },
			"it: got []int(nil), want []int{}"},
		{"maps",
			func(t testing.TB) { WantEqual(t, "it", map[string]int{"a": 1, "b": 2}, map[string]int{"b": 3, "a": 1}) },
			heading + "  a: 1\n- b: 3\n+ b: 2\n"},
		{"pointers to structs",
			func(t testing.TB) { WantEqual(t, "it", &point{1, 2}, &point{3, 2}) },
			heading + "- X: 3\n+ X: 1\n  y: 2\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := &verdict{}
			row.check(v)
			got := strings.Join(v.failures, "\n")
			if got != row.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, row.want)
			}
		})
	}
}

func TestPassWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		woke := 0
		go func() {
			<-time.After(time.Minute) // at the very moment when Pass's own timer fires
			woke++
		}()
		Pass(time.Minute)
		WantNumber(t, "goroutines that were woken", woke, 1)
		WantEqual(t, "time that has passed", time.Since(begun), time.Minute)
	})
}

func TestPartsOfAPageAreCheckedAndWritten(t *testing.T) {
	const command = "go test ."
	page := filepath.Join(t.TempDir(), "page.md")
	old := "# Page\n<!-- rows: go test . -->\n\nold\n\n<!-- end of rows -->\nThe end.\n"
	if err := os.WriteFile(page, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{"rows": "new\n"}
	v := &verdict{TB: t}
	WantParts(v, page, command, false, parts)
	WantEqual(t, "the failures", v.failures, []string{page + " is out of date: run go test ."})
	WantEqual(t, "the page that is only checked", ReadFile(t, page), old)
	WantParts(t, page, command, true, parts)
	WantEqual(t, "the page", ReadFile(t, page), strings.Replace(old, "old", "new", 1))
	WantParts(t, page, command, false, parts)
}
