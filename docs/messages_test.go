package docs_test

import (
	"go/ast"
	"go/token"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"podcount/lab/testkit"
)

// gosMessage is a part of a message that comes from Go.
const gosMessage = "certificate signed by unknown authority"

func TestEachMessageInLogLinesIsInTheSource(t *testing.T) {
	texts := textsOfProduct(t)
	p := loadPage(t, "docs/run/operating.md")
	messages := p.messages()
	for _, message := range messages {
		if !isMessage(texts, message.text) {
			t.Errorf("%s: no code has %q", p.at(message.line), message.text)
		}
	}
	testkit.WantBetween(t, "messages in Log lines of "+p.name, len(messages), 50, 1000)
}

// isMessage reports whether one of the texts has all parts of a message, in their order and as whole words.
func isMessage(texts []string, message string) bool {
	var patterns []string
	for _, part := range partsOfMessage(message) {
		if !isHTTPStatus(part) && part != gosMessage {
			patterns = append(patterns, wholeWords(part))
		}
	}
	return slices.ContainsFunc(texts, regexp.MustCompile(strings.Join(patterns, "(?s:.*)")).MatchString)
}

// wholeWords returns a pattern that matches a part of a message where it does not begin or end within a word.
func wholeWords(part string) string {
	pattern := regexp.QuoteMeta(part)
	first, _ := utf8.DecodeRuneInString(part)
	last, _ := utf8.DecodeLastRuneInString(part)
	if isWordRune(first) {
		pattern = `\b` + pattern
	}
	if isWordRune(last) {
		pattern += `\b`
	}
	return pattern
}

// isHTTPStatus reports whether a text is the code of an error of HTTP, perhaps with its name.
func isHTTPStatus(text string) bool {
	code, name, hasName := strings.Cut(text, " ")
	number, err := strconv.Atoi(code)
	return err == nil && number >= 400 && http.StatusText(number) != "" && (!hasName || name == http.StatusText(number))
}

func TestMessagesAreFound(t *testing.T) {
	texts := []string{"cannot list %s: %w (again)", "expired", "listing again"}
	rows := []struct {
		message string
		want    bool
	}{
		{"cannot list …", true},
		{"cannot list … (again)", true},
		{"403 Forbidden … (again)", true},
		{"401 Forbidden … (again)", false},
		{"… (again) cannot list", false},
		{"cannot li…", false},
		{"cannot list … expired", false},
	}
	for _, row := range rows {
		testkit.WantEqual(t, "it is found: "+row.message, isMessage(texts, row.message), row.want)
	}
}

func TestEachMessageInLogLinesHasItsLevel(t *testing.T) {
	levels := levelsOfMessages(t)
	p := loadPage(t, "docs/run/operating.md")
	compared := 0
	for _, head := range p.messageHeads() {
		want := levelIn(head.text())
		for _, message := range codeSpans(head) {
			found := levels[message.text]
			if found == nil {
				continue
			}
			compared++
			if !slices.Contains(found, want) {
				t.Errorf("%s: %q is logged as %q, not as %s", p.at(message.line), message.text, found, want)
			}
		}
	}
	testkit.WantBetween(t, "messages with a level", compared, 10, 1000)
}

// levelIn returns the level that the head of an item gives to its messages.
func levelIn(head string) string {
	for _, level := range []string{"INFO", "ERROR"} {
		if strings.Contains(head, "("+level+")") {
			return level
		}
	}
	return "WARN"
}

// levelsOfMessages returns, for each message that the program logs directly, the levels.
func levelsOfMessages(t *testing.T) map[string][]string {
	t.Helper()
	levels := map[string][]string{}
	for _, file := range productFiles(t) {
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			call, isCall := node.(*ast.CallExpr)
			if !isCall || len(call.Args) == 0 {
				return true
			}
			method, isMethod := call.Fun.(*ast.SelectorExpr)
			text, isString := joined(call.Args[0])
			if isMethod && isString && slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, method.Sel.Name) {
				levels[text] = append(levels[text], strings.ToUpper(method.Sel.Name))
			}
			return true
		})
	}
	return levels
}

// messages returns the messages in the items of "Log lines".
func (p page) messages() (messages []span) {
	for _, head := range p.messageHeads() {
		messages = append(messages, codeSpans(head)...)
	}
	return messages
}

// messageHeadPattern matches the head of an item: the messages, up to the first colon outside of them.
var messageHeadPattern = regexp.MustCompile("^- (`[^`]+`|[^`:])+")

// messageHeads returns the heads of the items of "Log lines".
func (p page) messageHeads() (heads []block) {
	for _, b := range p.section("Log lines") {
		if itemPattern.MatchString(b.lines[0]) {
			head := messageHeadPattern.FindString(strings.Join(b.lines, "\n"))
			heads = append(heads, block{kind: prose, line: b.line, lines: strings.Split(head, "\n")})
		}
	}
	return heads
}

func TestHeadsOfMessagesAreFound(t *testing.T) {
	const text = "# Log lines\n`no`: item\n- `a: …`,\n  `b` (INFO): look up `err`: now\n- `c` alone\n# End\n- `d`: x"
	want := []span{{"a: …", 3}, {"b", 4}, {"c", 5}}
	testkit.WantEqual(t, "the messages", page{blocks: blocksOf(text)}.messages(), want)
}

// partsOfMessage returns the constant parts of a message, between which … stands for what differs from case to case. A
// part without a letter or digit does not count.
func partsOfMessage(message string) (parts []string) {
	for part := range strings.SplitSeq(message, "…") {
		part = strings.Trim(part, " ")
		if strings.ContainsFunc(part, isWordRune) {
			parts = append(parts, part)
		}
	}
	return parts
}

// productFiles returns the source files of the program, without those that serve tests.
func productFiles(t *testing.T) []goFile {
	t.Helper()
	servesTests := regexp.MustCompile(`_test\.go$|^lab/|^testdata/`)
	return slices.DeleteFunc(goFiles(t), func(file goFile) bool { return servesTests.MatchString(file.name) })
}

// textsOfProduct returns the constant strings in the program's code, and the files of deploy/ that it prints.
func textsOfProduct(t *testing.T) (texts []string) {
	t.Helper()
	for _, file := range productFiles(t) {
		texts = append(texts, stringsIn(file.syntax)...)
	}
	for _, pattern := range []string{"deploy/*.yaml", "deploy/templates/*"} {
		files, err := filepath.Glob(fromHere(pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			texts = append(texts, testkit.ReadFile(t, file))
		}
	}
	return texts
}

// stringsIn returns the strings in a file. Those that + joins are one string.
func stringsIn(file *ast.File) (texts []string) {
	ast.Inspect(file, func(node ast.Node) bool {
		expression, isExpression := node.(ast.Expr)
		if !isExpression {
			return true
		}
		text, isString := joined(expression)
		if isString {
			texts = append(texts, text)
		}
		return !isString
	})
	return texts
}

// joined returns the value of a string, or of strings that + joins. … stands for what is not a literal.
func joined(expression ast.Expr) (text string, isString bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		before, hasBefore := joined(e.X)
		after, hasAfter := joined(e.Y)
		if !hasBefore {
			before = "…"
		}
		if !hasAfter {
			after = "…"
		}
		return before + after, hasBefore || hasAfter
	}
	return "", false
}
