// Package yaml reads the part of YAML that people and tools use for configuration files: maps and lists, as blocks or
// in brackets as in JSON; plain and quoted scalars of one or more lines; literal and folded blocks; comments.
//
// It refuses everything else, and everything that other programs read in different ways: a file that is refused can be
// corrected, but one that is misread does harm.
//
// The terms, such as block, flow, plain and scalar, are those of the specification: https://yaml.org/spec/1.2.2/
package yaml

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deeply maps and lists may be nested.
const maxDepth = 100

const unexpectedLine = "unexpected line: its indentation is wrong, or it begins a second document"

// Parse reads one document. It returns a tree of map[string]any, []any, string, json.Number, bool and nil. An error
// begins with the number of the line. It may name a key, but never quotes a value, because that may be a secret.
func Parse(text string) (tree any, err error) {
	defer func() {
		switch thrown := recover().(type) {
		case nil:
		case *syntaxError:
			err = thrown
		default:
			panic(thrown)
		}
	}()
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if document, hasDots := strings.CutSuffix(text, "\n...\n"); hasDots {
		text = document + "\n" // The dots end the document, as some tools write it.
	}
	p := &parser{lines: strings.Split(text, "\n")}
	p.checkLine()
	return p.document(), nil
}

// syntaxError says what is wrong in a line. The method fail panics with it, and Parse recovers it and returns it as an
// error, so the recursive functions between them need not return errors. Parse recovers no other panic.
type syntaxError struct {
	line    int
	message string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%d: %s", e.line, e.message) }

// parser reads a text from its beginning to its end. A method that is named after a construct, such as blockMap,
// reads that construct at the parser's position, and moves the position to its end.
type parser struct {
	lines []string // the last one is empty if the text ends with a line break
	position
	depth    int  // how many maps and lists enclose the position
	hasBegun bool // the line "---" may not come any more
}

// position is a place in the text.
type position struct {
	row    int // the index of the line; len(lines) is the end of the text
	column int // the index of the byte in that line
}

// fail refuses the text because of the current line. It does not return.
func (p *parser) fail(format string, args ...any) {
	p.failIn(min(p.row, len(p.lines)-1), format, args...)
}

// failIn refuses the text because of the line in a row. It does not return.
func (p *parser) failIn(row int, format string, args ...any) {
	panic(&syntaxError{line: row + 1, message: fmt.Sprintf(format, args...)})
}

// atEnd reports whether the parser has reached the end of the text.
func (p *parser) atEnd() bool { return p.row >= len(p.lines) }

// line returns the current line, "" at the end of the text.
func (p *parser) line() string {
	if p.atEnd() {
		return ""
	}
	return p.lines[p.row]
}

// rest returns the unread part of the current line.
func (p *parser) rest() string { return p.line()[p.column:] }

// peek returns the next byte of the current line, or a line break at its end.
func (p *parser) peek() byte {
	rest := p.rest()
	if rest == "" {
		return '\n'
	}
	return rest[0]
}

func (p *parser) nextLine() {
	p.row++
	p.column = 0
	p.checkLine()
}

// checkLine refuses the current line if it contains what is forbidden everywhere.
func (p *parser) checkLine() {
	line := p.line()
	if !utf8.ValidString(line) || strings.ContainsFunc(line, isForbidden) {
		p.fail("the line contains a control character, or is not UTF-8")
	}
	if strings.HasSuffix(strings.TrimRight(line, " "), "\t") {
		p.fail("the line ends with a tab")
	}
	if p.hasBegun && mark.MatchString(line) {
		p.fail(unexpectedLine)
	}
}

// isForbidden reports whether a file must not contain a character: a control character, or one that only some programs
// treat as the end of a line.
func isForbidden(r rune) bool {
	switch r {
	case '\t':
		return false
	case '\u2028', '\u2029', '\ufeff':
		return true
	}
	isControl := r < ' ' || r >= 0x7f && r < 0xa0
	isNoncharacter := r&0xfffe == 0xfffe // U+FFFE, U+FFFF, and the same two of each plane
	return isControl || isNoncharacter
}

func (p *parser) skipSpaces() {
	rest := p.rest()
	p.column += len(rest) - len(strings.TrimLeft(rest, " "))
}

// skipBlanks skips spaces and tabs. It must not be called in the indentation, where tabs are forbidden.
func (p *parser) skipBlanks() {
	rest := p.rest()
	p.column += len(rest) - len(strings.TrimLeft(rest, " \t"))
}

// atLineEnd reports whether the current line has ended, or has only a comment left. Call it after skipping blanks.
func (p *parser) atLineEnd() bool {
	c := p.peek()
	return c == '\n' || c == '#'
}

// endLine refuses the line with a complaint if anything except a comment follows what has been read. A comment needs a
// blank before it.
func (p *parser) endLine(complaint string) {
	valueEnd := p.column
	p.skipBlanks()
	hasBlank := p.column > valueEnd
	isComment := p.peek() == '#' && hasBlank
	if p.peek() != '\n' && !isComment {
		p.fail("%s", complaint)
	}
	p.column = len(p.line())
}

// skipToContent skips blanks, comments and line breaks. It reports whether the document has more content.
func (p *parser) skipToContent() bool {
	p.skipSpaces()
	for p.atLineEnd() && !p.atEnd() {
		p.nextLine()
		p.skipSpaces()
	}
	p.refuseTab()
	return !p.atEnd()
}

// refuseTab refuses a tab in the indentation, or between a key or a dash and its value.
func (p *parser) refuseTab() {
	if p.peek() == '\t' {
		p.fail("a tab in the indentation or before a value: use spaces")
	}
}

// mark is a line that begins or ends a document.
var mark = regexp.MustCompile(`^(---|\.\.\.)([ \t]|$)`)

// document reads the whole text. Its first line may be "---".
func (p *parser) document() (value any) {
	p.skipToContent()
	if strings.HasPrefix(p.line(), "---") && mark.MatchString(p.line()) {
		p.column = len("---")
		p.endLine("unexpected text after the value")
	}
	p.hasBegun = true
	if p.skipToContent() {
		value = p.node(-1)
	}
	if p.skipToContent() {
		p.fail(unexpectedLine)
	}
	return value
}

// enter begins a map or a list. Call leave at its end.
func (p *parser) enter() {
	p.depth++
	if p.depth > maxDepth {
		p.fail("more than %d maps and lists are nested", maxDepth)
	}
}

func (p *parser) leave() { p.depth-- }

// node reads a value that is the first in its line, or that follows a dash. parentColumn is the column of the map or
// list that the value belongs to. It is -1 for the value of the document.
func (p *parser) node(parentColumn int) any {
	if p.atDash() {
		return p.blockList()
	}
	start := p.position
	if _, isKey := p.tryKey(inBlock); isKey {
		p.position = start
		return p.blockMap()
	}
	return p.flowNode(parentColumn)
}

// atDash reports whether an item of a block list begins here.
func (p *parser) atDash() bool {
	after, isDash := strings.CutPrefix(p.rest(), "-")
	return isDash && (after == "" || after[0] == ' ')
}

// blockList reads the items whose dashes are in the current column.
func (p *parser) blockList() []any {
	p.enter()
	defer p.leave()
	items := []any{}
	column := p.column
	for {
		hasContent := p.skipToContent()
		if !hasContent || p.column != column || !p.atDash() {
			return items
		}
		p.column++
		items = append(items, p.valueAfter("-", column))
	}
}

// blockMap reads the entries whose keys are in the current column.
func (p *parser) blockMap() map[string]any {
	p.enter()
	defer p.leave()
	entries := map[string]any{}
	column := p.column
	for {
		hasContent := p.skipToContent()
		if !hasContent || p.column != column {
			return entries
		}
		row := p.row
		key, isKey := p.tryKey(inBlock)
		if !isKey {
			p.fail(`expected "key: value", indented like the keys above`)
		}
		p.add(entries, row, key, p.valueAfter(":", column))
	}
}

// valueAfter reads the value after a mark, which is the dash of an item or the colon of a key: what follows the mark in
// its line or, if there is nothing, the following lines that are indented more than the column of the dash or the key.
// A list may begin in the column of its key.
func (p *parser) valueAfter(mark string, column int) any {
	isOfKey := mark == ":"
	p.skipSpaces()
	if !p.atLineEnd() {
		p.refuseTab()
		switch {
		case p.peek() == '|' || p.peek() == '>':
			return p.blockScalar(column)
		case isOfKey: // No block map or list can begin in the line of its key.
			return p.flowNode(column)
		default:
			return p.node(column)
		}
	}
	hasContent := p.skipToContent()
	isListInKeyColumn := hasContent && isOfKey && p.column == column && p.atDash()
	if isListInKeyColumn {
		return p.blockList()
	}
	if !hasContent || p.column <= column {
		return nil
	}
	return p.node(column)
}

// add puts an entry into a map. It accepts a duplicate key if both values are equal, because some tools write such
// files. It refuses other duplicates, because some programs use the first value, and some the last.
func (p *parser) add(entries map[string]any, row int, key string, value any) {
	former, isDuplicate := entries[key]
	if isDuplicate && !reflect.DeepEqual(former, value) {
		p.failIn(row, "duplicate key %q, with different values: remove one", key)
	}
	entries[key] = value
}

// tryKey reads a key and its colon. If there is no key, the position stays where it is.
func (p *parser) tryKey(isInFlow bool) (key string, isKey bool) {
	start := p.position
	switch p.peek() {
	case '{', '[': // only a scalar can be a key
		return "", false
	case '"', '\'':
		key = p.quoted()
		p.skipSpaces()
		isJSON := isInFlow && p.peek() == ':' // without a space after the colon
		isKey = isJSON || p.atKeyColon()
	default:
		text := p.plainLine(isInFlow)
		p.skipSpaces()
		isKey = p.atKeyColon()
		if isKey {
			key = p.plainKey(text)
		}
	}
	if !isKey {
		p.position = start
		return "", false
	}
	if p.row > start.row {
		p.fail("a key must be on one line, but this one began above")
	}
	p.column++
	return key, true
}

// atKeyColon reports whether a colon that ends a key is next: one that a space or a line break follows.
func (p *parser) atKeyColon() bool {
	after, isColon := strings.CutPrefix(p.rest(), ":")
	return isColon && (after == "" || after[0] == ' ')
}

// plainKey returns the key that is written as this text, without quotes.
func (p *parser) plainKey(text string) string {
	key, isString := p.plainValue(text).(string)
	if !isString || key == "<<" {
		p.fail("this key is not supported, because it is a merge key or not a string: quote it")
	}
	return key
}

// flowNode reads a value that is not a block: a plain or quoted scalar, or a map or list in brackets, up to the end of
// its last line. A plain scalar continues on the following lines that are indented by more than parentColumn.
func (p *parser) flowNode(parentColumn int) any {
	var value any
	switch p.peek() {
	case '"', '\'':
		value = p.quoted()
	case '{', '[':
		value = p.flow()
	default:
		value = p.plain(parentColumn)
	}
	p.endLine("unexpected text after the value")
	return value
}

// flow reads a map in braces, or a list in square brackets.
func (p *parser) flow() any {
	p.enter()
	defer p.leave()
	isMap := p.peek() == '{'
	closing := byte(']')
	if isMap {
		closing = '}'
	}
	entries := map[string]any{}
	items := []any{}
	for p.peek() != closing {
		p.column++ // after the opening bracket, or a comma
		p.skipToFlowContent()
		if p.peek() == closing {
			break
		}
		if isMap {
			p.flowEntry(entries)
		} else {
			items = append(items, p.flowValue())
		}
		p.skipToFlowContent()
		if p.peek() != ',' && p.peek() != closing {
			p.fail(`expected "," or "%c" after a value`, closing)
		}
	}
	p.column++
	if isMap {
		return entries
	}
	return items
}

// flowEntry reads a key and its value within braces.
func (p *parser) flowEntry(entries map[string]any) {
	row := p.row
	key, isKey := p.tryKey(inFlow)
	if !isKey {
		p.fail(`expected "key: value" between braces`)
	}
	p.skipToFlowContent()
	p.add(entries, row, key, p.flowValue())
}

// skipToFlowContent skips blanks, comments and line breaks within brackets, where indentation has no meaning and tabs
// are allowed. It refuses a document that ends there.
func (p *parser) skipToFlowContent() {
	for {
		p.skipBlanks()
		if p.atEnd() {
			p.fail(`a "{" or "[" above is not closed`)
		}
		if !p.atLineEnd() {
			return
		}
		p.nextLine()
	}
}

// flowValue reads a value within brackets.
func (p *parser) flowValue() any {
	switch p.peek() {
	case '"', '\'':
		return p.quoted()
	case '{', '[':
		return p.flow()
	}
	return p.plainValue(p.plainLine(inFlow))
}
