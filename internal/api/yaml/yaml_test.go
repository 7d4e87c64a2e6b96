package yaml

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// wantTree fails the test unless a text is read as the tree that is written in JSON as want.
func wantTree(t *testing.T, text, want string) {
	t.Helper()
	what := fmt.Sprintf("%q", text)
	tree, err := Parse(text)
	testkit.WantError(t, what, err, "")
	got, err := json.Marshal(tree)
	testkit.WantError(t, what, err, "")
	testkit.WantEqual(t, what, string(got), want)
}

// wantRefused fails the test unless a text is refused with an error that says want.
func wantRefused(t *testing.T, text, want string) {
	t.Helper()
	_, err := Parse(text)
	testkit.WantError(t, fmt.Sprintf("%q", text), err, want)
}

func TestYAMLOfKubeconfigsIsRead(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a: 1\nb: text # comment\nc: 'it''s' \nd: \"x\\ty\\u00e9\\\"\"\n",
			`{"a":1,"b":"text","c":"it's","d":"x\tyé\""}`},
		{"---\n# comment\na:\n  b:\n    c: d\n  e: f\n", `{"a":{"b":{"c":"d"},"e":"f"}}`},
		{"l:\n- a\n- b: 1\n  c: 2\n-\n  d: 3\nm: x\n", `{"l":["a",{"b":1,"c":2},{"d":3}],"m":"x"}`},
		{"l:\n  - - a\n    - b\n  -   c: 1\n      d: 2\n", `{"l":[["a","b"],{"c":1,"d":2}]}`},
		{"a: {b: c, \"d\": [1, 'x, y', {e: f}], g: {}}\nh: []\n", `{"a":{"b":"c","d":[1,"x, y",{"e":"f"}],"g":{}},"h":[]}`},
		{"a: |\n  one\n    two\n\n  three\nb: |-\n  x\nc: z\n", `{"a":"one\n  two\n\nthree\n","b":"x","c":"z"}`},
		{"\ufeffa: b\r\nc: |\r\n  x\r\nd: e\r\n", `{"a":"b","c":"x\n","d":"e"}`},
		{"a:\nb: ~\nc: null\nd: true\ne: False\nf: \"true\"\ng: https://h:1/p#q\n",
			`{"a":null,"b":null,"c":null,"d":true,"e":false,"f":"true","g":"https://h:1/p#q"}`},
		{"a:\n  hint: one\n    two:three\n    four\n  b: c # d\ne: f\n",
			`{"a":{"b":"c","hint":"one two:three four"},"e":"f"}`},
		{"a: |\n\n  x\n   y\nb: |-\n z\n \nc: |+\n  d\n\n# e\n", `{"a":"\nx\n y\n","b":"z","c":"d\n\n"}`},
		{"a: 'one\n\n  two\n\n\n  three\n  '\nb: \"x \n  y\\\n   z\"\n", `{"a":"one\ntwo\n\nthree ","b":"x yz"}`},
		{"{\"a\":[1,-2.5e3,\n\ttrue],\"b\":{\"c\":null , # d\n\"\\u263A\":\"\\/\"}}",
			`{"a":[1,-2.5e3,true],"b":{"c":null,"☺":"/"}}`},
		{"a: |\n  no end", `{"a":"no end"}`},
		{"---\na: >\n  b\n...\n", `{"a":"b\n"}`},
		{"a: b\u00a0\nc\u00a0: d\n", "{\"a\":\"b\u00a0\",\"c\u00a0\":\"d\"}"},
		{"- --flag\n- -1\n- 1.2.3.4\n- 2024-01-01\n", `["--flag",-1,"1.2.3.4","2024-01-01"]`},
		{"\"quoted key\": v\n'k: 2': w\n", `{"k: 2":"w","quoted key":"v"}`},
		{"", `null`},
	} {
		wantTree(t, c.text, c.want)
	}
}

func TestAmbiguousYAMLIsRefusedWithItsLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a: &x 1", `1: a value begins with "&"`},
		{"a: *x", `1: a value begins with "*"`},
		{"a: !!str 1", `1: a value begins with "!"`},
		{"\n\na: >x\n  folded", "3: a block must begin with |,"},
		{"a:\n\tb: c", "2: a tab in the indentation or before a value"},
		{"a: 1\nb: 2\na: 3", `3: duplicate key "a", with different values`},
		{"a: 1\n---\nb: 2", "2: unexpected line"},
		{"a: {b: 1, b: 2}", `1: duplicate key "b", with different values`},
		{"a: {b: c", `1: a "{" or "[" above is not closed`},
		{"a: \"x\ny", "1: the closing quote is missing"},
		{"a: 'x\n---\ny'", "2: unexpected line"},
		{"a: [b,", `1: a "{" or "[" above is not closed`},
		{"{a: b\n---\n}", "2: unexpected line"},
		{"a: b: c", "1: unexpected text after the value"},
		{"a: \"\\q\"", "1: unknown escape \\q"},
		{"a: yes", `1: some programs read "yes" as true or false`},
		{"a:\n  b: 1\n c: 2", "3: unexpected line"},
		{"<<: {a: b}", "1: this key is not supported"},
		{"? a", `1: a value begins with "?"`},
		{"a: 'x' y", "1: unexpected text after the value"},
		{"a: y", `1: some programs read "y" as true or false`},
		{"a: |2\n  x", "1: a block must begin with |,"},
		{"a: |\n \tx", "2: the line is indented by less than the first line of its block, or by a tab"},
		{"a: |\n   \n  x", "3: the line is indented by less than the first line of its block, or by a tab"},
		{"a: b # c\n  d", "2: unexpected line"},
		{"a: b\n\n  c", "3: unexpected line"},
		{"a: b\n  c: d", "2: unexpected text after the value"},
		{"a: 'b'\n  c", "2: unexpected line"},
		{"a: b\n  \tc", "2: a tab in the indentation or before a value"},
		{"a: - b", `1: a value begins with "-"`},
		{": x", "1: a key or a value is missing"},
		{"a: 1\n:\n", "2: a key or a value is missing"},
		{"l:\n-\tkey: v", "2: a value contains a colon or a tab"},
		{"a: b\t# c", "1: a value contains a colon or a tab"},
		{"{a, b: c}", `1: expected "key: value" between braces`},
		{"a: [ , b]", "1: a key or a value is missing"},
		{"a: [b, , c]", "1: a key or a value is missing"},
		{"a: 'x'#y", "1: unexpected text after the value"},
		{`a: "\ud83d\ude00"`, "1: unknown escape \\u"},
		{`a: "\u12"`, "1: unknown escape \\u"},
		{`a: "\x0`, "1: unknown escape \\x"},
		{"a: 0x1f", "1: a number is not written"},
		{"a: 017", "1: a number is not written"},
		{"a: 1_000", "1: a number is not written"},
		{"a: .inf", "1: a number is not written"},
		{"a: +1", "1: a number is not written"},
		{"a: 1e999", "1: a number is not written"},
		{"012: x", "1: a number is not written"},
		{"null: x", "1: this key is not supported"},
		{"true: x", "1: this key is not supported"},
		{"a: ]", `1: a value begins with "]"`},
		{"a: ,", `1: a value begins with ","`},
		{"a: =", `1: a value begins with "="`},
		{"a: 0b-1", "1: a number is not written"},
		{"a: |\u00a0\n  b", "1: a block must begin with |,"},
		{"a: [b?c]", `1: expected "," or "]" after a value`},
		{"?", `1: a value begins with "?"`},
		{"a: b\t", "1: the line ends with a tab"},
		{"-\t", "1: the line ends with a tab"},
		{"a: b\x00", "1: the line contains a control character"},
		{"a: b\rc: d", "1: the line contains a control character"},
		{"a: \u2028b", "1: the line contains a control character"},
		{"a: \xff", "1: the line contains a control character"},
		{"a: b\u0085", "1: the line contains a control character"},
		{"a: \"x\\ \n  y\"", "1: the line ends with a tab, or with a backslash and a space"},
		{"\"a\nb\": c", "2: a key must be on one line"},
		{"...\na: b", "2: unexpected text after the value"},
		{"a: b\n...\nc: d\n", "2: unexpected line"},
		{"a: b\n---\tc: d\n", "2: unexpected line"},
		{"a: >\n  b\n    c\n   d\n  e\n", "the folded block above has a line that is indented more"},
		{"a: >\n  b\n\n  \tc\n", "the folded block above has a line that is indented more"},
		{strings.Repeat("[", 1000), "more than 100"},
		{"a: " + strings.Repeat("{a: ", 101), "more than 100"},
		{strings.Repeat("- ", 101) + "a", "more than 100"},
	} {
		wantRefused(t, c.text, c.want)
	}
}

func TestWrappedTextsAreRead(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a: >\n  b\n  c\n\n  d\n", `{"a":"b c\nd\n"}`},
		{"a: >-\n  b\n\n\n  c\n\n", `{"a":"b\n\nc"}`},
		{"a: >+\n  b\n\n\nc: d\n", `{"a":"b\n\n\n","c":"d"}`},
		{"a: >\n\n  b\n  c", `{"a":"\nb c"}`},
		{"a: >\n\nb: >+\n\n", `{"a":"","b":"\n"}`},
		{"l:\n- >-\n  a\n  b\n- |\n  c\n- d: >\n    e\n    f\n", `{"l":["a b","c\n",{"d":"e f\n"}]}`},
		{"l:\n- a b\n  c\n- d\n", `{"l":["a b c","d"]}`},
		{"l:\n- a\n   - b", `{"l":["a - b"]}`},
		{"- - a\n    b\n  - c\n", `[["a b","c"]]`},
		{"a:\n  b c\n  d\ne: f\n", `{"a":"b c d","e":"f"}`},
	} {
		wantTree(t, c.text, c.want)
	}
}

func TestDuplicateKeyNeedsEqualValues(t *testing.T) {
	wantTree(t, "a: b\nc: 1\na: 'b'\nc: 1\nd:\nd: null\ne: {f: true, f: true}\ng: [h]\ng:\n- h\n",
		`{"a":"b","c":1,"d":null,"e":{"f":true},"g":["h"]}`)
	for _, text := range []string{
		"a: b\na: c\n",
		"a: 1\na: '1'\n",
		"a: [b]\na: [b, c]\n",
		"a:\na: []\n",
		"a: {b: c, b: d}",
	} {
		wantRefused(t, text, ", with different values")
	}
}

func TestEscapesAreRead(t *testing.T) {
	tree, err := Parse(`"\a\b\t\n\v\f\r\ \"\/\\\x41\u263a\U0001F600"`)
	want := "\a\b\t\n\v\f\r \"/\\A☺😀"
	testkit.WantError(t, "the escapes", err, "")
	testkit.WantEqual(t, "the escapes", tree, any(want))
}

// errorsOfParse are all the errors of Parse. None contains more of a value than its first character.
var errorsOfParse = regexp.MustCompile(`^[0-9]+: (` + strings.Join([]string{
	`the line contains a control character, or is not UTF-8`,
	`the line ends with a tab`,
	`the line ends with a tab, or with a backslash and a space`,
	`a tab in the indentation or before a value: use spaces`,
	`a value contains a colon or a tab: quote it`,
	`unexpected text after the value`,
	`unexpected line: its indentation is wrong, or it begins a second document`,
	`more than 100 maps and lists are nested`,
	`expected "key: value", indented like the keys above`,
	`expected "key: value" between braces`,
	`expected "," or "[\]}]" after a value`,
	`a "{" or "\[" above is not closed`,
	`duplicate key "(?:[^"\\]|\\.)*", with different values: remove one`,
	`a key must be on one line, but this one began above`,
	`this key is not supported, because it is a merge key or not a string: quote it`,
	`a key or a value is missing`,
	`a value begins with "[&*!]": quote it; anchors, aliases and tags are not supported`,
	`a value begins with "[|>%@\x60,\]}?:=]": quote it`,
	`a value begins with "-": quote it, or begin a list on a line of its own`,
	`some programs read "(?i:yes|no|on|off|y|n)" as true or false: write that, or quote it`,
	`a number is not written as in JSON: rewrite it, or quote it if it is a string`,
	`the closing quote is missing`,
	`unknown escape \\.`,
	`a block must begin with \|, \|-, \|\+, >, >- or >\+`,
	`the folded block above has a line that is indented more: begin the block with \|`,
	`the line is indented by less than the first line of its block, or by a tab`,
}, "|") + `)$`)

// written returns a tree as JSON, in which characters that a file must not contain are escaped.
func written(t *testing.T, tree any) string {
	t.Helper()
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var plain strings.Builder
	for _, r := range string(text) {
		switch {
		case !isForbidden(r):
			plain.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&plain, `\U%08x`, r)
		default:
			fmt.Fprintf(&plain, `\u%04x`, r)
		}
	}
	return plain.String()
}

// If Parse accepts a text, it reads the same tree from that tree's JSON. It reads JSON like encoding/json. Its errors
// do not quote the text that it refuses.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("../../../testdata/kubeconfigs/*.*")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	for _, text := range []string{
		"a: |\n\n  x\nb: 'c\n\n  d'\n",
		"a: >\n  b\n  c\n\n   d\n- >+\n  e\n",
		"- - a: {b: [c, \"d\"]} # e\n",
		"a: \"\\u263a\\x41\\\n  b\\U0001F600\"\n",
		"a:\n- 1.5e3\n- ~\n- on\n...\n",
		"---\nl:\n- a b\n  c\nm:\n  d\n  e\nm: d e\n...\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tree, err := Parse(text)
		if err != nil {
			if !errorsOfParse.MatchString(err.Error()) {
				t.Fatalf("%q: an unknown error, which may quote a value: %v", text, err)
			}
			return
		}
		again, err := Parse(written(t, tree))
		if err != nil || !reflect.DeepEqual(again, tree) {
			t.Fatalf("%q is read as %s, and that as %v, %v", text, written(t, tree), again, err)
		}
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		var plain any
		if json.Valid([]byte(text)) && dec.Decode(&plain) == nil && !reflect.DeepEqual(plain, tree) {
			t.Fatalf("%q is read as %s, but as JSON it is %v", text, written(t, tree), plain)
		}
	})
}
