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
)

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
		{"a: |2\n\n   x\n  y\nb: |1-\n z\n \nc: |+\n  d\n\n# e\n", `{"a":"\n x\ny\n","b":"z","c":"d\n\n"}`},
		{"a: 'one\n\n  two\n\n\n  three\n  '\nb: \"x \n  y\\\n   z\"\n", `{"a":"one\ntwo\n\nthree ","b":"x yz"}`},
		{"{\"a\":[1,-2.5e3,\n\ttrue],\"b\":{\"c\":null , # d\n\"\\u263A\":\"\\/\"}}",
			`{"a":[1,-2.5e3,true],"b":{"c":null,"☺":"/"}}`},
		{"a: |\n  no end", `{"a":"no end"}`},
		{"a: b\u00a0\nc\u00a0: d\n", "{\"a\":\"b\u00a0\",\"c\u00a0\":\"d\"}"},
		{"- --flag\n- -1\n- 1.2.3.4\n- 2024-01-01\n", `["--flag",-1,"1.2.3.4","2024-01-01"]`},
		{"\"quoted key\": v\n'k: 2': w\n", `{"k: 2":"w","quoted key":"v"}`},
		{"", `null`},
	} {
		tree, err := Parse(c.text)
		got, _ := json.Marshal(tree)
		if err != nil || string(got) != c.want {
			t.Errorf("%q: %s, %v; want %s", c.text, got, err, c.want)
		}
	}
}

func TestAmbiguousYAMLIsRefusedWithItsLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a: &x 1", "1: "},
		{"a: *x", "1: "},
		{"a: !!str 1", "1: "},
		{"\n\na: >x\n  folded", "3: "},
		{"a:\n\tb: c", "2: a tab in the indentation"},
		{"a: 1\nb: 2\na: 3", `3: duplicate key "a", with different values`},
		{"a: 1\n---\nb: 2", "2: "},
		{"a: {b: 1, b: 2}", `1: duplicate key "b"`},
		{"a: {b: c", "1: "},
		{"a: \"x\ny", "1: the closing quote is missing"},
		{"a: 'x\n---\ny'", "1: the closing quote is missing"},
		{"a: [b,", "is not closed"},
		{"{a: b\n---\n}", "is not closed"},
		{"a: b: c", "1: "},
		{"a: \"\\q\"", "unknown escape"},
		{"a: yes", "1: "},
		{"a:\n  b: 1\n c: 2", "3: "},
		{"<<: {a: b}", "1: "},
		{"? a", "1: "},
		{"a: 'x' y", "unexpected text after the value"},
		{"a: y", "1: "},
		{"just text\nmore", "2: "},
		{"a: |0\n  x", "1: "},
		{"a: |2\n x", "2: "},
		{"a: |\n \tx", "2: "},
		{"a: |\n   \n  x", "3: "},
		{"a: b # c\n  d", "2: "},
		{"a: b\n\n  c", "3: "},
		{"a: b\n  c: d", "2: "},
		{"a: 'b'\n  c", "2: "},
		{"a: b\n  \tc", "2: "},
		{"a: - b", "1: "},
		{": x", "1: "},
		{"a: 1\n:\n", "2: "},
		{"l:\n-\tkey: v", "2: "},
		{"a: b\t# c", "1: "},
		{"{a, b: c}", "1: "},
		{"a: [ , b]", "1: "},
		{"a: [b, , c]", "1: "},
		{"a: 'x'#y", "1: "},
		{`a: "\ud83d\ude00"`, "1: "},
		{`a: "\u12"`, "unknown escape"},
		{`a: "\x0`, "unknown escape"},
		{"a: 0x1f", "not written as in JSON"},
		{"a: 017", "JSON"},
		{"a: 1_000", "JSON"},
		{"a: .inf", "JSON"},
		{"a: +1", "JSON"},
		{"a: 1e999", "JSON"},
		{"012: x", "1: "},
		{"null: x", "1: "},
		{"true: x", "1: "},
		{"a: ]", "1: "},
		{"a: ,", "1: "},
		{"a: =", "1: "},
		{"a: 0b-1", "JSON"},
		{"a: |\u00a0\n  b", "1: "},
		{"a: [b?c]", "1: "},
		{"?", "1: "},
		{" ---", "1: "},
		{"a: b\t", "tab"},
		{"-\t", "tab"},
		{"a: b\x00", "control"},
		{"a: b\rc: d", "control"},
		{"a: \u2028b", "control"},
		{"a: \xff", "control"},
		{"a: b\u0085", "control"},
		{"a: \"x\\ \n  y\"", "1: the line ends with a tab, or with a backslash and a space"},
		{"\"a\nb\": c", "2: a key must be on one line"},
		{"...\na: b", "1: "},
		{"a: b\n...\nc: d\n", "3: "},
		{strings.Repeat("[", 1000), "more than 100"},
		{"a: " + strings.Repeat("{a: ", 101), "more than 100"},
		{strings.Repeat("- ", 101) + "a", "more than 100"},
	} {
		tree, err := Parse(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v; want %q", c.text, tree, err, c.want)
		}
	}
}

func TestWrappedTextsAreRead(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a: >\n  b\n  c\n\n  d\n", `{"a":"b c\nd\n"}`},
		{"a: >-\n  b\n\n\n  c\n\n", `{"a":"b\n\nc"}`},
		{"a: >+\n  b\n\n\nc: d\n", `{"a":"b\n\n\n","c":"d"}`},
		{"a: >\n  b\n    c\n   d\n  e\n", `{"a":"b\n  c\n d\ne\n"}`},
		{"a: >\n  b\n\n    c\n\n  d\n", `{"a":"b\n\n  c\n\nd\n"}`},
		{"a: >2-\n    b\n  c\n", `{"a":"  b\nc"}`},
		{"a: >\n\n  b\n  c", `{"a":"\nb c"}`},
		{"a: >\n\nb: >+\n\n", `{"a":"","b":"\n"}`},
		{"l:\n- >-\n  a\n  b\n- |\n  c\n- d: >\n    e\n    f\n", `{"l":["a b","c\n",{"d":"e f\n"}]}`},
		{"l:\n- a b\n  c\n- d\n", `{"l":["a b c","d"]}`},
		{"l:\n- a\n   - b", `{"l":["a - b"]}`},
		{"- - a\n    b\n  - c\n", `[["a b","c"]]`},
		{"a:\n  b c\n  d\ne: f\n", `{"a":"b c d","e":"f"}`},
	} {
		tree, err := Parse(c.text)
		got, _ := json.Marshal(tree)
		if err != nil || string(got) != c.want {
			t.Errorf("%q: %s, %v; want %s", c.text, got, err, c.want)
		}
	}
}

func TestDuplicateKeyNeedsEqualScalars(t *testing.T) {
	tree, err := Parse("a: b\nc: 1\na: 'b'\nc: 1\nd:\nd: null\ne: {f: true, f: true}\n")
	got, _ := json.Marshal(tree)
	want := `{"a":"b","c":1,"d":null,"e":{"f":true}}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	for _, text := range []string{
		"a: b\na: c\n",
		"a: 1\na: '1'\n",
		"a: [b]\na: [b]\n",
		"a: {}\na: {}\n",
		"a:\na: []\n",
		"a: {b: c, b: d}",
	} {
		if tree, err := Parse(text); err == nil || !strings.Contains(err.Error(), ", with different values") {
			t.Errorf("%q: %v, %v", text, tree, err)
		}
	}
}

func TestAllEscapesAreRead(t *testing.T) {
	tree, err := Parse(`"\0\a\b\t\n\v\f\r\e\ \"\/\\\N\_\L\P\x41\u263a\U0001F600\` + "\t\"")
	want := "\x00\a\b\t\n\v\f\r\x1b \"/\\\u0085\u00a0\u2028\u2029A☺😀\t"
	if err != nil || tree != want {
		t.Errorf("%q, %v; want %q", tree, err, want)
	}
}

func TestLineOfDotsEndsTheDocument(t *testing.T) {
	for _, text := range []string{"---\na: b\n...\n", "a: b\n...", "a: b\n... # end\n# end\n\n", "a: >\n  b\n...\n"} {
		if tree, err := Parse(text); err != nil || !strings.HasPrefix(tree.(map[string]any)["a"].(string), "b") {
			t.Errorf("%q: %v, %v", text, tree, err)
		}
	}
	for text, want := range map[string]string{
		"a: b\n...\nc: d\n":      "3: unexpected line",
		"a: b\n...\n---\nc: d\n": "3: unexpected line",
		"a: b\n... c\n":          "2: unexpected text after the value",
	} {
		if tree, err := Parse(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, tree, err, want)
		}
	}
}

// errorsOfParse are all the errors of Parse. None contains more of a value than its first character.
var errorsOfParse = regexp.MustCompile(`^[0-9]+: (` + strings.Join([]string{
	`the line contains a control character, or is not UTF-8`,
	`the line ends with a tab`,
	`the line ends with a tab, or with a backslash and a space`,
	`a tab in the indentation or before a value: use spaces`,
	`a value contains a colon or a tab: quote it`,
	`unexpected text after the value`,
	`a document ends before it begins`,
	`a document begins or ends in the middle of a line`,
	`unexpected line: its indentation is wrong, or it begins a second document`,
	`more than 100 maps and lists are nested`,
	`expected "key: value", indented like the keys above`,
	`expected "key: value" between braces`,
	`expected "," or "[\]}]" after a value`,
	`a map or a list that began above is not closed`,
	`duplicate key "(?:[^"\\]|\\.)*", with different values: remove one`,
	`a key must be on one line, but this one began above`,
	`this key is not supported, because it is a merge key or not a string: quote it`,
	`a key or a value is missing`,
	`a value begins with "[&*!]": quote it; anchors, aliases and tags are not supported`,
	`a value begins with "[|>]": quote it, or begin the block on the line of its key`,
	`a value begins with "[%@\x60,\]}?:=]": quote it`,
	`a value begins with "-": quote it, or begin a list on a line of its own`,
	`some programs read "(?i:yes|no|on|off|y|n)" as true or false: write that, or quote it`,
	`a number is not written as in JSON: rewrite it, or quote it if it is a string`,
	`the closing quote is missing`,
	`unknown escape \\.`,
	`a block must begin with \| or >, then \+ or -, and a digit for the indentation, all optional except the first`,
	`the line is indented less than the first line of its block, or with a tab`,
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

// Whatever Parse accepts, it reads the same after the tree has been written as JSON. Parse reads JSON as encoding/json
// does. Its errors do not quote the text that it refuses.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("../../testdata/kubeconfigs/*.*")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	for _, text := range []string{
		"a: |2\n\n  x\nb: 'c\n\n  d'\n",
		"a: >\n  b\n  c\n\n   d\n- >+1\n  e\n",
		"- - a: {b: [c, \"d\"]} # e\n",
		"a: \"\\u263a\\x41\\\n  b\\N\\U0001F600\"\n",
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
