package docs_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"podcount/internal/testkit"
)

// messagesOfOthers are messages, or parts of them, that come from Go, from the operating system or from the API server.
var messagesOfOthers = regexp.MustCompile(`^(connection refused|no such host|address already in use|x509: .*|` +
	`certificate signed by unknown authority|[45]\d\d( [A-Z][a-z]+)*|ValidatingAdmissionPolicy 'podcount')$`)

func TestEachMessageInTroubleshootingIsInTheSource(t *testing.T) {
	texts := textsOfProduct(t)
	p := loadPage(t, "docs/operating.md")
	messages := p.messages()
	for _, message := range messages {
		for _, part := range partsOfMessage(message.text) {
			if !strings.Contains(texts, part) && !messagesOfOthers.MatchString(part) {
				t.Errorf("%s: no code has %q, a part of %q", p.at(message.line), part, message.text)
			}
		}
	}
	if len(messages) < 10 {
		t.Errorf("%s: there are %d messages in the tables of Troubleshooting, want 10 or more", p.name, len(messages))
	}
}

// messages returns the inline code in the first column of the tables of Troubleshooting.
func (p page) messages() (messages []span) {
	for _, b := range p.section("Troubleshooting") {
		if b.kind == tableRow {
			cell := block{kind: tableRow, line: b.line, lines: []string{firstCell(b)}}
			messages = append(messages, codeSpans(cell)...)
		}
	}
	return messages
}

// section returns the blocks from a heading of the second level to the next one.
func (p page) section(title string) (blocks []block) {
	isInside := false
	for _, b := range p.blocks {
		if b.kind == heading && strings.HasPrefix(b.lines[0], "## ") {
			isInside = b.text() == title
		}
		if isInside {
			blocks = append(blocks, b)
		}
	}
	return blocks
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

func TestPartsOfMessages(t *testing.T) {
	testkit.WantEqual(t, "the parts", partsOfMessage("listing again … why=… expired"),
		[]string{"listing again", "why=", "expired"})
}

// textsOfProduct returns the constant strings in the program's code, and the files of deploy/ that it prints.
func textsOfProduct(t *testing.T) string {
	t.Helper()
	servesTests := regexp.MustCompile(`_test\.go$|^internal/(behaviours|fakekube|playground|sim|suite|testkit)/|^testdata/`)
	var texts []string
	for _, file := range goFiles(t) {
		if !servesTests.MatchString(file.name) {
			texts = append(texts, stringsIn(file.syntax)...)
		}
	}
	for _, pattern := range []string{"deploy/*.yaml", "deploy/templates/*"} {
		files, err := filepath.Glob(fromHere(pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
	}
	return strings.Join(texts, "\n")
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

// joined returns the value of a string, or of strings that + joins. … stands for what is not constant.
func joined(expression ast.Expr) (text string, isString bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, isLeft := joined(e.X)
		right, isRight := joined(e.Y)
		if e.Op != token.ADD || !isLeft && !isRight {
			return "", false
		}
		if !isLeft {
			left = "…"
		}
		if !isRight {
			right = "…"
		}
		return left + right, true
	}
	return "", false
}
