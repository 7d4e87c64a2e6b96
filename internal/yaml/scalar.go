package yaml

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// plain reads a scalar without quotes in a block. It goes on over the lines below that are indented by more than
// parent, as tools wrap long texts; each line break is a blank.
func (p *parser) plain(parent int) any {
	parts := []string{p.plainLine(false)}
	for p.peek() == '\n' && p.isWrapped(parent) {
		p.nextLine()
		p.skipSpaces()
		parts = append(parts, p.plainLine(false))
	}
	return p.plainValue(strings.Join(parts, " "))
}

// isWrapped reports whether the next line goes on with the plain scalar that the line in hand ends with. A document
// that is nothing but a scalar has one line.
func (p *parser) isWrapped(parent int) bool {
	isLast := p.row+1 >= len(p.lines)
	if isLast || parent < 0 {
		return false
	}
	line := p.lines[p.row+1]
	text := strings.TrimLeft(line, " ")
	indentation := len(line) - len(text)
	isText := text != "" && text[0] != '#' && text[0] != '\t'
	return isText && indentation > parent
}

// plainLine reads a plain scalar's part of the line in hand: up to what begins a comment, to the colon of a key, or in
// a flow to one of its marks.
func (p *parser) plainLine(inFlow bool) string {
	rest := p.rest()
	end := len(rest)
	for i := range len(rest) {
		isLastOrBlank := i+1 == len(rest) || rest[i+1] == ' '
		isColon := rest[i] == ':' && isLastOrBlank
		isComment := rest[i] == '#' && i > 0 && rest[i-1] == ' '
		isMark := inFlow && strings.IndexByte(",[]{}?", rest[i]) >= 0
		if isColon || isComment || isMark {
			end = i
			break
		}
	}
	text := strings.TrimRight(rest[:end], " \t")
	p.column += len(text)
	if end == len(rest) {
		p.column = len(p.line())
	}
	return text
}

// plainValue returns what a scalar without quotes stands for: a text, a number, true, false or nothing.
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
		p.fail("%q may mean true or false: write that, or quote it", text)
	}
	if strings.IndexByte("0123456789+-.", text[0]) >= 0 && p.isNumber(text) {
		return json.Number(text)
	}
	return text
}

// checkPlain refuses what may not stand without quotes.
func (p *parser) checkPlain(text string) {
	if text == "" {
		p.fail("a key or a value is missing")
	}
	switch {
	case strings.IndexByte("&*!", text[0]) >= 0:
		p.fail("a value that begins with %q: quote it, or write out what it stands for (an anchor, an alias, a tag)",
			text[:1])
	case strings.IndexByte("|>", text[0]) >= 0:
		p.fail("a value that begins with %q: quote it, or begin the block on the line of its key", text[:1])
	case strings.IndexByte("%@`,]}?:=", text[0]) >= 0:
		p.fail("a value that begins with %q: quote it", text[:1])
	}
	if text == "-" || strings.HasPrefix(text, "- ") {
		p.fail(`a value that begins with "-": quote it, or begin a list on a line of its own`)
	}
	isWholeDocument := p.depth == 0
	if isWholeDocument && (isMarker(text, "---") || isMarker(text, "...")) {
		p.fail("a document that begins or ends inside of a line")
	}
	if strings.HasSuffix(text, ":") || strings.Contains(text, "\t") {
		p.fail("a colon or a tab in a value: quote it")
	}
}

// isNumber reports whether a text is a number, as kubectl sees it. It refuses those that JSON cannot write.
func (p *parser) isNumber(text string) bool {
	digits := strings.NewReplacer("_", "", "0b+", "0b", "0b-", "0b").Replace(text)
	_, intErr := strconv.ParseInt(digits, 0, 64)
	_, floatErr := strconv.ParseFloat(strings.TrimLeft(digits, "+-."), 64) // of .inf and .nan, too
	if json.Valid([]byte(text)) && floatErr == nil {
		return true
	}
	isText := errors.Is(intErr, strconv.ErrSyntax) && errors.Is(floatErr, strconv.ErrSyntax)
	if !isText {
		p.fail("a number that is not written like one in JSON: quote it")
	}
	return false
}

// quoted reads a scalar in single or double quotes. Over a line's end, it is folded: blanks around the end are dropped,
// one line break is a blank, and of several the first is dropped.
func (p *parser) quoted() string {
	var text strings.Builder
	quote := p.peek()
	start := p.row
	p.column++
	for {
		rest := p.rest()
		c := p.peek()
		isEscape := c == '\\' && quote == '"'
		switch {
		case strings.TrimLeft(rest, " ") == "":
			text.WriteString(p.foldQuoted(start, " "))
		case isEscape && rest == `\`: // an escaped line break is no blank
			text.WriteString(p.foldQuoted(start, ""))
		case isEscape && strings.TrimLeft(rest[1:], " ") == "":
			p.fail("a tab, or a backslash and a blank, at the end")
		case isEscape:
			text.WriteRune(p.escape())
		case c != quote:
			text.WriteByte(c)
			p.column++
		case quote == '\'' && strings.HasPrefix(rest, "''"):
			text.WriteByte(c)
			p.column += len("''")
		default:
			p.column++
			return text.String()
		}
	}
}

// foldQuoted moves from a line's end to the next text of a quoted scalar that began in the row start. It returns what
// the scalar has in place of that: single, or a line break for each empty line between.
func (p *parser) foldQuoted(start int, single string) string {
	breaks := 0
	for p.nextLine(); strings.TrimLeft(p.rest(), " ") == "" && !p.atEnd(); p.nextLine() {
		breaks++
	}
	if p.atEnd() || p.atMarker("---") || p.atMarker("...") {
		p.failIn(start, "no closing quote")
	}
	p.column = len(p.line()) - len(strings.TrimLeft(p.line(), " \t"))
	if breaks == 0 {
		return single
	}
	return strings.Repeat("\n", breaks)
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

// escapeDigits are how many hexadecimal digits follow a backslash and this letter.
var escapeDigits = map[byte]int{'x': 2, 'u': 4, 'U': 8}

// escape reads a backslash, and what follows it on the same line.
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

// atBlockScalar reports whether a literal or a folded block begins here.
func (p *parser) atBlockScalar() bool {
	c := p.peek()
	return c == '|' || c == '>'
}

// blockHeader is the first line of a block: "|" (literal) or ">" (folded), with a digit for the indentation and "-" or
// "+" for the line breaks at the end.
type blockHeader struct {
	isFolded    bool
	indentation int  // relative to what the block belongs to; 0: the first line with text says it
	chomping    byte // '-': no line break at the end; '+': all there are; 0: one
}

func (p *parser) blockHeader() blockHeader {
	header := blockHeader{isFolded: p.peek() == '>'}
	p.column++
	for range 2 {
		c := p.peek()
		switch {
		case header.chomping == 0 && (c == '-' || c == '+'):
			header.chomping = c
			p.column++
		case header.indentation == 0 && c >= '1' && c <= '9':
			header.indentation = int(c - '0')
			p.column++
		}
	}
	p.skipSpaces()
	isGlued := p.peek() == '#' && p.line()[p.column-1] != ' '
	if isGlued || !p.atLineEnd() {
		p.fail("of blocks only those are read that begin with | or >, then + or -, and a digit for the indentation")
	}
	return header
}

// blockScalar reads a literal or a folded block, which belongs to a key or to a dash in the column parent.
func (p *parser) blockScalar(parent int) string {
	header := p.blockHeader()
	lines := p.blockLines(parent, header.indentation)
	breaks := len(lines)
	if p.atEnd() && p.hasNoLastBreak && len(lines) > 0 {
		breaks--
	}
	text := lines
	for len(text) > 0 && text[len(text)-1] == "" {
		text = text[:len(text)-1]
	}
	if len(text) > 0 {
		breaks -= len(text) - 1 // those after the last line of text
	}

	var all string
	if header.isFolded {
		all = fold(text)
	} else {
		all = strings.Join(text, "\n")
	}
	switch {
	case header.chomping == '-':
		breaks = 0
	case header.chomping == 0 && len(text) == 0:
		breaks = 0
	case header.chomping == 0:
		breaks = min(breaks, 1)
	}
	return all + strings.Repeat("\n", breaks)
}

// blockLines reads the lines below a block's header, without their indentation. Empty ones have no text.
func (p *parser) blockLines(parent, relative int) (lines []string) {
	isKnown := relative > 0
	indentation := parent + max(relative, 1)
	for p.nextLine(); !p.atEnd(); p.nextLine() {
		line := p.line()
		text := strings.TrimLeft(line, " ")
		blanks := len(line) - len(text)
		if text != "" && blanks <= parent {
			break
		}
		if !isKnown { // an empty line above the first text must not be longer than that is indented, nor a tab indent it
			beforeText := len(line) - len(strings.TrimLeft(line, " \t"))
			indentation = max(indentation, beforeText)
			isKnown = text != ""
		}
		if text != "" && blanks < indentation {
			p.fail("indented less than the block's first line, or by a tab")
		}
		lines = append(lines, line[min(indentation, blanks):])
	}
	return lines
}

// fold joins a folded block's lines. A break between two lines of text is a blank, and n empty lines between them are n
// breaks. Next to a line that begins with a blank all breaks stay, as do those before the first line.
func fold(lines []string) string {
	var text strings.Builder
	empty := 0          // lines since the last one with text
	isFirst := true     // there is no line of text yet
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
