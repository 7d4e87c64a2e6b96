package yaml

import (
	"cmp"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// plain reads a scalar without quotes in a block. It continues on the following lines that are indented by more than
// parentColumn, because tools wrap long texts like that. Each line break stands for a space.
func (p *parser) plain(parentColumn int) any {
	parts := []string{p.plainLine(inBlock)}
	for p.peek() == '\n' && p.isWrapped(parentColumn) {
		p.nextLine()
		p.skipSpaces()
		parts = append(parts, p.plainLine(inBlock))
	}
	return p.plainValue(strings.Join(parts, " "))
}

// isWrapped reports whether the plain scalar at the end of the current line continues on the next line.
func (p *parser) isWrapped(parentColumn int) bool {
	if p.row+1 >= len(p.lines) {
		return false
	}
	line := p.lines[p.row+1]
	text := strings.TrimLeft(line, " ")
	indentation := len(line) - len(text)
	isText := text != "" && text[0] != '#' && text[0] != '\t'
	return isText && indentation > parentColumn
}

// inBlock and inFlow are values of the parameter isInFlow. YAML calls the inside of brackets and braces a flow.
const (
	inBlock = false
	inFlow  = true
)

// plainLine reads the part of a plain scalar that is in the current line. It ends before a comment, before the colon of
// a key and, in a flow, before a character that has a meaning there.
func (p *parser) plainLine(isInFlow bool) string {
	rest := p.rest()
	end := plainEnd(rest, isInFlow)
	text := strings.TrimRight(rest[:end], " \t")
	p.column += len(text)
	if end == len(rest) {
		p.column = len(p.line()) // skip the blanks at the end of the line, too
	}
	return text
}

// plainEnd returns where a plain scalar ends in the rest of a line.
func plainEnd(rest string, isInFlow bool) int {
	for i, c := range []byte(rest) {
		isBeforeBlank := i+1 == len(rest) || rest[i+1] == ' '
		isAfterBlank := i > 0 && rest[i-1] == ' '
		isColon := c == ':' && isBeforeBlank
		isComment := c == '#' && isAfterBlank
		isFlowCharacter := isInFlow && strings.IndexByte(",[]{}?", c) >= 0
		if isColon || isComment || isFlowCharacter {
			return i
		}
	}
	return len(rest)
}

// plainValue returns the value of a plain scalar: a string, a number, a boolean or nil.
func (p *parser) plainValue(text string) any {
	p.checkPlain(text)
	switch text {
	case "~", "null", "Null", "NULL":
		return nil
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	if slices.Contains([]string{"yes", "no", "on", "off", "y", "n"}, strings.ToLower(text)) {
		p.fail("some programs read %q as true or false: write that, or quote it", text)
	}
	if strings.IndexByte("0123456789+-.", text[0]) >= 0 && p.isNumber(text) {
		return json.Number(text)
	}
	return text
}

// checkPlain refuses a plain scalar that must be quoted.
func (p *parser) checkPlain(text string) {
	if text == "" {
		p.fail("a key or a value is missing")
	}
	switch {
	case strings.IndexByte("&*!", text[0]) >= 0:
		p.fail("a value begins with %q: quote it; anchors, aliases and tags are not supported", text[:1])
	case strings.IndexByte("|>%@`,]}?:=", text[0]) >= 0:
		p.fail("a value begins with %q: quote it", text[:1])
	}
	if text == "-" || strings.HasPrefix(text, "- ") {
		p.fail(`a value begins with "-": quote it, or begin a list on a line of its own`)
	}
	if strings.HasSuffix(text, ":") || strings.Contains(text, "\t") {
		p.fail("a value contains a colon or a tab: quote it")
	}
}

// isNumber reports whether a plain scalar is a number, by the rules of kubectl. It refuses numbers that JSON does not
// have, because programs differ in how they read them.
func (p *parser) isNumber(text string) bool {
	digits := strings.NewReplacer("_", "", "0b+", "0b", "0b-", "0b").Replace(text)
	_, intErr := strconv.ParseInt(digits, 0, 64)
	_, floatErr := strconv.ParseFloat(strings.TrimLeft(digits, "+-."), 64) // accepts .inf and .nan
	if json.Valid([]byte(text)) && floatErr == nil {
		return true
	}
	isText := errors.Is(intErr, strconv.ErrSyntax) && errors.Is(floatErr, strconv.ErrSyntax)
	if !isText {
		p.fail("a number is not written as in JSON: rewrite it, or quote it if it is a string")
	}
	return false
}

// quoted reads a scalar in single or double quotes. If it has several lines, they are folded: blanks around a line
// break are dropped. A single line break becomes a space. Of several line breaks in a row, the first is dropped.
func (p *parser) quoted() string {
	var text strings.Builder
	start := p.row
	quote := p.peek()
	p.column++
	for {
		rest := p.rest()
		c := p.peek()
		isEscape := c == '\\' && quote == '"'
		switch {
		case strings.TrimLeft(rest, " ") == "": // the line has ended
			text.WriteString(p.foldQuoted(start, " "))
		case isEscape && rest == `\`: // the line break is escaped, and does not become a space
			text.WriteString(p.foldQuoted(start, ""))
		case isEscape && strings.TrimLeft(rest[1:], " ") == "":
			p.fail("the line ends with a tab, or with a backslash and a space")
		case isEscape:
			text.WriteRune(p.escape())
		case c != quote:
			text.WriteByte(c)
			p.column++
		case quote == '\'' && strings.HasPrefix(rest, "''"): // two single quotes stand for one
			text.WriteByte(c)
			p.column += len("''")
		default: // the closing quote
			p.column++
			return text.String()
		}
	}
}

// foldQuoted moves from the end of a line to the next text of a quoted scalar, which began in the row start. It returns
// the meaning of the line breaks between: single if there is only one, or else one line break for each empty line.
func (p *parser) foldQuoted(start int, single string) string {
	emptyLines := 0
	p.nextLine()
	for strings.TrimLeft(p.rest(), " ") == "" && !p.atEnd() {
		emptyLines++
		p.nextLine()
	}
	if p.atEnd() {
		p.failIn(start, "the closing quote is missing")
	}
	p.skipBlanks()
	if emptyLines == 0 {
		return single
	}
	return strings.Repeat("\n", emptyLines)
}

// escape reads a backslash and the characters that belong to it. There is at least one more in the line. It knows the
// escapes of Go, except octal numbers, and two more: a slash, as in JSON, and a space, as tools write it where they
// wrap.
func (p *parser) escape() rune {
	rest := p.rest()
	if rest[1] == '/' || rest[1] == ' ' {
		p.column += 2
		return rune(rest[1])
	}
	char, _, after, err := strconv.UnquoteChar(rest, '"')
	isOctal := rest[1] >= '0' && rest[1] <= '7' // which YAML does not have
	if err != nil || isOctal {
		letter, _ := utf8.DecodeRuneInString(rest[1:])
		p.fail("unknown escape \\%c", letter)
	}
	p.column += len(rest) - len(after)
	return char
}

// blockScalar reads a literal block, which begins with "|", or a folded one, which begins with ">". It is the value of
// a key or a dash in parentColumn. Of the line breaks at its end, one belongs to the text. After a "-", none does, and
// after a "+", all do.
func (p *parser) blockScalar(parentColumn int) string {
	isFolded := p.peek() == '>'
	p.column++
	chomping := p.peek()
	if chomping == '-' || chomping == '+' {
		p.column++
	}
	p.endLine("a block must begin with |, |-, |+, >, >- or >+")
	text := p.blockText(parentColumn)
	content := strings.TrimRight(text, "\n")
	end := text[len(content):]
	switch {
	case chomping == '+':
	case chomping == '-' || content == "":
		end = ""
	default:
		end = end[:min(1, len(end))]
	}
	if isFolded {
		content = p.fold(content)
	}
	return content + end
}

// blockText reads the lines of a block, after its first one and without their indentation, which is that of the first
// line with text.
func (p *parser) blockText(parentColumn int) string {
	var lines []string
	indentation := parentColumn + 1
	isKnown := false // the indentation
	for {
		p.nextLine()
		line := p.line()
		text := strings.TrimLeft(line, " ")
		spaces := len(line) - len(text)
		isAfterBlock := text != "" && spaces <= parentColumn
		if p.atEnd() {
			return strings.Join(lines, "\n")
		}
		if isAfterBlock {
			return strings.Join(append(lines, ""), "\n")
		}
		if !isKnown {
			// This is the first line with text, or an empty line above it. An empty line must not be indented more
			// than the text, and a tab must not indent the text: both raise the indentation, and the text fails below.
			beforeText := len(line) - len(strings.TrimLeft(line, " \t"))
			indentation = max(indentation, beforeText)
			isKnown = text != ""
		}
		if text != "" && spaces < indentation {
			p.fail("the line is indented by less than the first line of its block, or by a tab")
		}
		lines = append(lines, line[min(indentation, spaces):])
	}
}

// lineBreaks are some line breaks within a text.
var lineBreaks = regexp.MustCompile(`\n+`)

// fold joins the lines of a folded block. A line break between two lines becomes a space, and n empty lines between
// them become n line breaks. Those before the first line remain. It refuses lines that are indented more than the
// others, which YAML does not join.
func (p *parser) fold(text string) string {
	if strings.HasPrefix(text, " ") || strings.Contains(text, "\n ") || strings.Contains(text, "\n\t") {
		p.failIn(p.row-1, "the folded block above has a line that is indented more: begin the block with |")
	}
	begin := len(text) - len(strings.TrimLeft(text, "\n"))
	return text[:begin] + lineBreaks.ReplaceAllStringFunc(text[begin:], func(breaks string) string {
		return cmp.Or(breaks[1:], " ")
	})
}
