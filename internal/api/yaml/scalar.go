package yaml

import (
	"encoding/json"
	"errors"
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

// isWrapped reports whether the plain scalar at the end of the current line continues on the next line. A scalar that
// is the whole document does not.
func (p *parser) isWrapped(parentColumn int) bool {
	isLast := p.row+1 >= len(p.lines)
	if isLast || parentColumn < 0 {
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
	case strings.IndexByte("|>", text[0]) >= 0:
		p.fail("a value begins with %q: quote it, or begin the block on the line of its key", text[:1])
	case strings.IndexByte("%@`,]}?:=", text[0]) >= 0:
		p.fail("a value begins with %q: quote it", text[:1])
	}
	if text == "-" || strings.HasPrefix(text, "- ") {
		p.fail(`a value begins with "-": quote it, or begin a list on a line of its own`)
	}
	isWholeDocument := p.depth == 0
	if isWholeDocument && (isMarker(text, "---") || isMarker(text, "...")) {
		p.fail("a document begins or ends in the middle of a line")
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
	if p.atEnd() || p.atMarker("---") || p.atMarker("...") {
		p.failIn(start, "the closing quote is missing")
	}
	p.skipBlanks()
	if emptyLines == 0 {
		return single
	}
	return strings.Repeat("\n", emptyLines)
}

// escapes are the characters that a backslash and a letter stand for.
// https://yaml.org/spec/1.2.2/#57-escaped-characters
var escapes = map[byte]rune{
	'0':  0,
	'a':  '\a',
	'b':  '\b',
	't':  '\t',
	'\t': '\t',
	'n':  '\n',
	'v':  '\v',
	'f':  '\f',
	'r':  '\r',
	'e':  '\x1b',
	' ':  ' ',
	'"':  '"',
	'/':  '/',
	'\\': '\\',
	'N':  '\u0085', // next line
	'_':  '\u00a0', // no-break space
	'L':  '\u2028', // line separator
	'P':  '\u2029', // paragraph separator
}

// escapeDigits is the number of hexadecimal digits that follow a backslash and a letter.
var escapeDigits = map[byte]int{'x': 2, 'u': 4, 'U': 8}

// escape reads a backslash and the characters that belong to it. There is at least one more in the line.
func (p *parser) escape() rune {
	letter := p.rest()[1]
	digits := p.rest()[2:]
	if char, isKnown := escapes[letter]; isKnown {
		p.column += 2
		return char
	}
	count, isKnown := escapeDigits[letter]
	if !isKnown || len(digits) < count {
		p.failEscape()
	}
	code, err := strconv.ParseUint(digits[:count], 16, 32)
	if err != nil || code > utf8.MaxRune || !utf8.ValidRune(rune(code)) {
		p.failEscape()
	}
	p.column += 2 + count
	return rune(code)
}

func (p *parser) failEscape() {
	char, _ := utf8.DecodeRuneInString(p.rest()[1:])
	p.fail("unknown escape \\%c", char)
}

// atBlockScalar reports whether a literal or folded block begins here.
func (p *parser) atBlockScalar() bool {
	c := p.peek()
	return c == '|' || c == '>'
}

// blockHeader is what the first line of a block says: "|" (literal) or ">" (folded), a digit for the indentation, and
// "-" or "+" for the chomping: how many of the line breaks at the end belong to the text.
type blockHeader struct {
	isFolded    bool
	indentation int // relative to the parent; 0 if the first line with text determines it
	chomping    chomping
}

type chomping byte

const (
	clip  chomping = 0   // at most one line break
	strip chomping = '-' // none
	keep  chomping = '+' // all
)

// blockHeader reads the first line of a block.
func (p *parser) blockHeader() blockHeader {
	header := blockHeader{isFolded: p.peek() == '>'}
	p.column++
	for range 2 { // the digit and the chomping may have either order
		c := p.peek()
		switch {
		case header.chomping == clip && (c == '-' || c == '+'):
			header.chomping = chomping(c)
			p.column++
		case header.indentation == 0 && c >= '1' && c <= '9':
			header.indentation = int(c - '0')
			p.column++
		}
	}
	p.skipSpaces()
	hasBlank := p.line()[p.column-1] == ' '
	isComment := p.peek() == '#' && hasBlank
	if p.peek() != '\n' && !isComment {
		p.fail("a block must begin with | or >, then + or -, and a digit for the indentation, all optional except the first")
	}
	return header
}

// blockScalar reads a literal or folded block. It is the value of a key or a dash in parentColumn.
func (p *parser) blockScalar(parentColumn int) string {
	header := p.blockHeader()
	lines := p.blockLines(parentColumn, header.indentation)
	lineBreaks := len(lines)
	if p.atEnd() && p.lacksFinalBreak && len(lines) > 0 {
		lineBreaks--
	}
	lines = withoutEmptyEnd(lines)
	if len(lines) == 0 {
		return strings.Repeat("\n", header.chomping.keptBreaks(lineBreaks, false))
	}
	breaksAfterText := lineBreaks - (len(lines) - 1)
	end := strings.Repeat("\n", header.chomping.keptBreaks(breaksAfterText, true))
	if header.isFolded {
		return fold(lines) + end
	}
	return strings.Join(lines, "\n") + end
}

// keptBreaks returns how many of the line breaks at the end of a block belong to its text.
func (c chomping) keptBreaks(lineBreaks int, hasText bool) int {
	switch {
	case c == keep:
		return lineBreaks
	case c == clip && hasText:
		return min(lineBreaks, 1)
	default:
		return 0
	}
}

// withoutEmptyEnd returns lines without the empty ones at their end.
func withoutEmptyEnd(lines []string) []string {
	end := len(lines)
	for end > 0 && lines[end-1] == "" {
		end--
	}
	return lines[:end]
}

// blockLines reads the lines of a block, without its header and without their indentation. The header may state the
// indentation, relative to parentColumn. If relative is 0, the first line with text determines it.
func (p *parser) blockLines(parentColumn, relative int) (lines []string) {
	isKnown := relative > 0
	indentation := parentColumn + max(relative, 1)
	for {
		p.nextLine()
		line := p.line()
		text := strings.TrimLeft(line, " ")
		spaces := len(line) - len(text)
		isAfterBlock := text != "" && spaces <= parentColumn
		if p.atEnd() || isAfterBlock {
			return lines
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

// fold joins the lines of a folded block. A line break between two lines of text becomes a space, and n empty lines
// between them become n line breaks. All line breaks remain before the first line of text, and next to a line that
// begins with a blank.
func fold(lines []string) string {
	var text strings.Builder
	empty := 0          // how many empty lines follow the last line of text
	isFirst := true     // there has been no line of text yet
	isIndented := false // the last line of text begins with a blank
	for _, line := range lines {
		if line == "" {
			empty++
			continue
		}
		wasIndented := isIndented
		isIndented = line[0] == ' ' || line[0] == '\t'
		switch {
		case isFirst:
			text.WriteString(strings.Repeat("\n", empty))
		case wasIndented || isIndented:
			text.WriteString(strings.Repeat("\n", empty+1))
		case empty == 0:
			text.WriteByte(' ')
		default:
			text.WriteString(strings.Repeat("\n", empty))
		}
		text.WriteString(line)
		isFirst = false
		empty = 0
	}
	return text.String()
}
