// Package yaml reads the part of YAML that configuration files are written in: maps and lists in blocks and in
// brackets (JSON is nothing else), plain and quoted scalars of one line or several, literal and folded blocks, and
// comments. It refuses everything else, and whatever two readers might take for different values: better not read than
// misread. https://yaml.org/spec/1.2.2/
package yaml

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxDepth is how many maps and lists may stand in each other.
const maxDepth = 100

// Parse reads a text of one document. It returns a tree of map[string]any, []any, string, json.Number, bool and nil.
// An error begins with the number of the line. It may name a key, but never quotes a value: that may be a secret.
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
	p := newParser(text)
	p.documentStart()
	tree = p.document()
	p.documentEnd()
	return tree, nil
}

// syntaxError says what is wrong in a line. It unwinds the parser's functions as a panic, which Parse recovers.
type syntaxError struct {
	line    int
	message string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%d: %s", e.line, e.message) }

// parser stands at one place of the text. Each function below reads one construct from there on, and leaves the parser
// right after it.
type parser struct {
	lines          []string
	hasNoLastBreak bool // nothing ends the last line: the text ends there
	row            int  // the line in hand; len(lines) at the end of the text
	column         int  // the byte in it that is read next
	depth          int  // of the map or list in hand
}

func newParser(text string) *parser {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	lines := strings.Split(text, "\n")
	last := len(lines) - 1
	hasNoLastBreak := lines[last] != ""
	if !hasNoLastBreak {
		lines = lines[:last]
	}
	p := &parser{lines: lines, hasNoLastBreak: hasNoLastBreak}
	p.checkLine()
	return p
}

// fail refuses the text because of the line in hand.
func (p *parser) fail(format string, args ...any) {
	lastRow := max(len(p.lines)-1, 0)
	p.failIn(min(p.row, lastRow), format, args...)
}

func (p *parser) failIn(row int, format string, args ...any) {
	panic(&syntaxError{line: row + 1, message: fmt.Sprintf(format, args...)})
}

// atEnd reports whether nothing of the text is left.
func (p *parser) atEnd() bool { return p.row >= len(p.lines) }

// line returns the whole line in hand.
func (p *parser) line() string {
	if p.atEnd() {
		return ""
	}
	return p.lines[p.row]
}

// rest returns what is not yet read of the line in hand.
func (p *parser) rest() string { return p.line()[p.column:] }

// peek returns the next byte of the line in hand, and a line break at its end.
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

// checkLine refuses a line that no construct may contain.
func (p *parser) checkLine() {
	line := p.line()
	if !utf8.ValidString(line) || strings.ContainsFunc(line, isForbidden) {
		p.fail("a control character, or no UTF-8")
	}
	if strings.HasSuffix(strings.TrimRight(line, " "), "\t") {
		p.fail("a tab at the end")
	}
}

// isForbidden reports whether a character may not stand in a file: a control character, or what only some readers take
// for the end of a line.
func isForbidden(r rune) bool {
	switch r {
	case '\t':
		return false
	case '\u2028', '\u2029', '\ufeff':
		return true
	}
	isControl := r < ' ' || r >= 0x7f && r < 0xa0
	isNoCharacter := r&0xfffe == 0xfffe
	return isControl || isNoCharacter
}

func (p *parser) skipSpaces() {
	rest := p.rest()
	p.column += len(rest) - len(strings.TrimLeft(rest, " "))
}

// skipBlanks skips spaces and tabs, where they are no indentation.
func (p *parser) skipBlanks() {
	rest := p.rest()
	p.column += len(rest) - len(strings.TrimLeft(rest, " \t"))
}

// atLineEnd reports whether the line in hand has nothing left but a comment. Blanks before that are skipped already.
func (p *parser) atLineEnd() bool {
	c := p.peek()
	return c == '\n' || c == '#'
}

// endLine demands that nothing but a comment follows a value on its line.
func (p *parser) endLine() {
	end := p.column
	p.skipBlanks()
	isGlued := p.column == end && p.peek() == '#'
	if isGlued || !p.atLineEnd() {
		p.fail("something stands after the value")
	}
	p.column = len(p.line())
}

// toContent moves to what comes next, over blanks, comments and line breaks. It reports false at the document's end.
func (p *parser) toContent() bool {
	for p.skipSpaces(); p.atLineEnd() && !p.atEnd(); p.skipSpaces() {
		p.nextLine()
	}
	if p.peek() == '\t' {
		p.fail("a tab in the indentation, or before a value")
	}
	return !p.atEnd() && !p.atMarker("---") && !p.atMarker("...")
}

// atMarker reports whether the line in hand is one that begins or ends a document.
func (p *parser) atMarker(marker string) bool {
	return isMarker(p.line(), marker)
}

func isMarker(line, marker string) bool {
	rest, found := strings.CutPrefix(line, marker)
	return found && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
}

// documentStart reads the line "---", if there is one.
func (p *parser) documentStart() {
	p.toContent()
	if p.atMarker("---") {
		p.column = len("---")
		p.endLine()
		return
	}
	if p.atMarker("...") {
		p.fail("the end of a document that has not begun")
	}
}

func (p *parser) document() any {
	if !p.toContent() {
		return nil
	}
	return p.node(-1)
}

// documentEnd reads the line "...", if there is one, and demands that nothing follows the document.
func (p *parser) documentEnd() {
	hasContent := p.toContent()
	if !hasContent && p.atMarker("...") {
		p.column = len("...")
		p.endLine()
		p.nextLine()
		p.toContent()
	}
	if !p.atEnd() {
		p.fail("this line does not belong here: wrong indentation, or a second document")
	}
}

// enter begins a map or a list, which ends with leave.
func (p *parser) enter() {
	p.depth++
	if p.depth > maxDepth {
		p.fail("more than %d maps and lists in each other", maxDepth)
	}
}

func (p *parser) leave() { p.depth-- }

// node reads a value that is the first in its line, or that follows a dash. It belongs to a map or a list in the
// column parent (-1: to none).
func (p *parser) node(parent int) any {
	if p.atDash() {
		return p.blockList()
	}
	if p.atKey() {
		return p.blockMap()
	}
	return p.scalar(parent)
}

// atDash reports whether an item of a list in a block begins here.
func (p *parser) atDash() bool {
	after, isDash := strings.CutPrefix(p.rest(), "-")
	return isDash && (after == "" || after[0] == ' ')
}

// blockList reads items that have their dashes in the column where the parser stands.
func (p *parser) blockList() []any {
	p.enter()
	defer p.leave()
	items := []any{}
	column := p.column
	for p.toContent() && p.column == column && p.atDash() {
		p.column++
		items = append(items, p.item(column))
	}
	return items
}

// item reads what follows the dash in that column: on the same line or, if nothing does, on the lines below that are
// indented more.
func (p *parser) item(dash int) any {
	p.skipSpaces()
	isBelow := p.atLineEnd()
	hasContent := p.toContent()
	if isBelow && (!hasContent || p.column <= dash) {
		return nil
	}
	if !isBelow && p.atBlockScalar() {
		return p.blockScalar(dash)
	}
	return p.node(dash)
}

// blockMap reads entries that have their keys in the column where the parser stands.
func (p *parser) blockMap() map[string]any {
	p.enter()
	defer p.leave()
	entries := map[string]any{}
	column := p.column
	for p.toContent() && p.column == column {
		row := p.row
		key, isKey := p.tryKey()
		if !isKey {
			p.fail(`expected "key: value", indented like the keys above`)
		}
		p.add(entries, row, key, p.valueOf(column))
	}
	return entries
}

// valueOf reads what follows a key in that column: on the same line or, if nothing does, on the lines below that are
// indented more. A list need not be.
func (p *parser) valueOf(key int) any {
	p.skipSpaces()
	isBelow := p.atLineEnd()
	hasContent := p.toContent()
	if !isBelow && p.atBlockScalar() {
		return p.blockScalar(key)
	}
	if !isBelow {
		return p.scalar(key)
	}
	isOutdentedList := hasContent && p.column == key && p.atDash()
	if isOutdentedList {
		return p.blockList()
	}
	if !hasContent || p.column <= key {
		return nil
	}
	return p.node(key)
}

// add puts an entry into a map. Some tools write a key twice, with the same value; with another one, or with a map or a
// list, readers differ in which counts.
func (p *parser) add(entries map[string]any, row int, key string, value any) {
	former, isThere := entries[key]
	if isThere && (isCollection(former) || isCollection(value) || former != value) {
		p.failIn(row, "the key %q is there twice, with different values: remove one", key)
	}
	entries[key] = value
}

func isCollection(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// atKey reports whether an entry of a map in a block begins here.
func (p *parser) atKey() bool {
	row, column := p.row, p.column
	_, isKey := p.tryKey()
	p.row = row
	p.column = column
	return isKey
}

// tryKey reads a key and its colon. Where there is none, the parser stays where it is.
func (p *parser) tryKey() (key string, isKey bool) {
	row, column := p.row, p.column
	isPlain := false
	var value any
	switch p.peek() {
	case '{', '[':
		return "", false
	case '"', '\'':
		value = p.quoted()
		p.skipSpaces()
	default:
		text := p.plainLine(false)
		p.skipSpaces()
		if p.atKeyColon() {
			isPlain = true
			value = p.plainValue(text)
		}
	}
	if !p.atKeyColon() {
		p.row = row
		p.column = column
		return "", false
	}
	if p.row > row {
		p.fail("a key that began above: it must be on one line")
	}
	p.column++
	return p.keyOf(value, isPlain), true
}

// atKeyColon reports whether the parser stands at a colon that ends a key in a block.
func (p *parser) atKeyColon() bool {
	after, isColon := strings.CutPrefix(p.rest(), ":")
	return isColon && (after == "" || after[0] == ' ')
}

// keyOf returns a value that is used as a key.
func (p *parser) keyOf(value any, isPlain bool) string {
	key, isText := value.(string)
	if !isText || isPlain && key == "<<" {
		p.fail("a key of a kind that is not read here (a merge, a number): quote it")
	}
	return key
}

// scalar reads a value that is neither a map nor a list in a block, up to the end of its last line. A plain one may go
// on over lines that are indented by more than parent.
func (p *parser) scalar(parent int) any {
	var value any
	switch p.peek() {
	case '"', '\'':
		value = p.quoted()
	case '{', '[':
		value = p.flow()
	default:
		value = p.plain(parent)
	}
	p.endLine()
	return value
}

// flow reads a map in braces, or a list in brackets.
func (p *parser) flow() any {
	p.enter()
	defer p.leave()
	isMap := p.peek() == '{'
	p.column++
	if isMap {
		return p.flowMap()
	}
	return p.flowList()
}

func (p *parser) flowList() []any {
	items := []any{}
	for p.toFlowContent(); p.peek() != ']'; p.toFlowContent() {
		items = append(items, p.flowValue())
		p.comma(']')
	}
	p.column++
	return items
}

func (p *parser) flowMap() map[string]any {
	entries := map[string]any{}
	for p.toFlowContent(); p.peek() != '}'; p.toFlowContent() {
		row := p.row
		key := p.flowKey()
		p.toFlowContent()
		p.add(entries, row, key, p.flowValue())
		p.comma('}')
	}
	p.column++
	return entries
}

// comma reads what separates two values, unless the map or list ends here.
func (p *parser) comma(end byte) {
	p.toFlowContent()
	if p.peek() == ',' {
		p.column++
		return
	}
	if p.peek() != end {
		p.fail(`expected "," or "%c" after a value`, end)
	}
}

// toFlowContent moves to what comes next inside of brackets, where tabs are blanks and indentation says nothing.
func (p *parser) toFlowContent() {
	for {
		p.skipBlanks()
		if p.atEnd() || p.atMarker("---") || p.atMarker("...") {
			p.fail("a map or a list that began above has no end")
		}
		if !p.atLineEnd() {
			return
		}
		p.nextLine()
	}
}

func (p *parser) flowValue() any {
	switch p.peek() {
	case '"', '\'':
		return p.quoted()
	case '{', '[':
		return p.flow()
	}
	return p.plainValue(p.plainLine(true))
}

// flowKey reads a key between braces, and its colon. After a quoted one that needs no blank, as in JSON.
func (p *parser) flowKey() string {
	row := p.row
	isQuoted := strings.IndexByte(`"'`, p.peek()) >= 0
	value := p.flowValue()
	p.skipSpaces()
	isKey := p.atKeyColon() || isQuoted && p.peek() == ':'
	if !isKey {
		p.fail(`expected "key: value" between braces`)
	}
	if p.row > row {
		p.fail("a key that began above: it must be on one line")
	}
	p.column++
	return p.keyOf(value, !isQuoted)
}
