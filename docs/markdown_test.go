package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// kind is the kind of a block.
type kind string

const (
	heading  kind = "heading"
	prose    kind = "prose" // a paragraph, or an item of a list
	tableRow kind = "table row"
	code     kind = "code" // between fences
	indented kind = "indented code"
)

// block is a part of a page.
type block struct {
	kind     kind
	line     int      // the number of its first line; for code, that of the opening fence
	lines    []string // as they are in the file; for code, without the fences
	language string   // of code
}

// isCode reports whether the block is code, in which nothing is Markdown.
func (b block) isCode() bool { return b.kind == code || b.kind == indented }

// level returns the level of a heading: 1 for the title of the page.
func (b block) level() int { return strings.Index(b.lines[0], " ") }

// text returns the lines without indentation and without the mark of a heading or of an item. Line breaks stay, so that
// a place in the text leads back to its line.
func (b block) text() string {
	var lines []string
	for i, line := range b.lines {
		line = strings.TrimSpace(line)
		if i == 0 && b.kind != tableRow {
			line = markPattern.ReplaceAllString(line, "")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// source returns the lines of code as they are, each with its line break.
func (b block) source() string {
	if len(b.lines) == 0 {
		return ""
	}
	return strings.Join(b.lines, "\n") + "\n"
}

var (
	headingPattern = regexp.MustCompile(`^#{1,6} `)
	itemPattern    = regexp.MustCompile(`^\s*([-*+]|\d+\.) `)
	markPattern    = regexp.MustCompile(`^(#{1,6}|[-*+]|\d+\.)\s+`)
	quotePattern   = regexp.MustCompile(`^> ?(\[!\w+\])?`) // with the mark of a note, if there is one
)

// blockReader divides a page into blocks.
type blockReader struct {
	blocks  []block
	inFence bool
	inList  bool // an indented line belongs to the list above
	isOpen  bool // the next line may continue the last block
}

// blocksOf divides the text of a page into blocks. It understands only the part of Markdown that the pages use.
func blocksOf(text string) []block {
	r := &blockReader{}
	for i, line := range strings.Split(text, "\n") {
		if r.inFence {
			r.readCode(line)
		} else {
			r.readLine(i+1, quotePattern.ReplaceAllString(line, ""))
		}
	}
	return r.blocks
}

// readCode reads a line between fences, or the closing fence.
func (r *blockReader) readCode(line string) {
	if strings.TrimSpace(line) == "```" {
		r.inFence = false
		return
	}
	r.extend(line)
}

// readLine reads a line outside of fences. The order of the cases matters: a mark at the start of a line, such as that
// of an item, ends the block before it, and a line without one continues an open block, however far it is indented.
func (r *blockReader) readLine(number int, line string) {
	text := strings.TrimSpace(line)
	isIndented := strings.HasPrefix(line, "    ")
	switch {
	case text == "":
		r.isOpen = false
	case strings.HasPrefix(text, "```"):
		r.begin(code, number)
		r.last().language = strings.TrimPrefix(text, "```")
		r.inFence = true
		r.isOpen = false
	case headingPattern.MatchString(line):
		r.begin(heading, number, line)
		r.isOpen = false
		r.inList = false
	case strings.HasPrefix(text, "|"):
		r.begin(tableRow, number, line)
		r.isOpen = false
	case itemPattern.MatchString(line) && (r.inList || !isIndented):
		r.begin(prose, number, line)
		r.inList = true
	case r.isOpen:
		r.extend(line)
	case isIndented && !r.inList:
		r.begin(indented, number, line)
	default:
		r.begin(prose, number, line)
		belongsToList := strings.HasPrefix(line, " ")
		if !belongsToList {
			r.inList = false
		}
	}
}

func (r *blockReader) begin(k kind, number int, lines ...string) {
	r.blocks = append(r.blocks, block{kind: k, line: number, lines: lines})
	r.isOpen = true
}

func (r *blockReader) last() *block { return &r.blocks[len(r.blocks)-1] }

// extend adds a line to the last block.
func (r *blockReader) extend(line string) { r.last().lines = append(r.last().lines, line) }

func TestBlocksOfAPage(t *testing.T) {
	rows := []struct {
		name, page string
		want       []block
	}{
		{"a paragraph of two lines", "a\nb", []block{{kind: prose, line: 1, lines: []string{"a", "b"}}}},
		{"two paragraphs", "a\n\nb", []block{
			{kind: prose, line: 1, lines: []string{"a"}},
			{kind: prose, line: 3, lines: []string{"b"}},
		}},
		{"a heading ends at its line", "# a\nb", []block{
			{kind: heading, line: 1, lines: []string{"# a"}},
			{kind: prose, line: 2, lines: []string{"b"}},
		}},
		{"items, the first of two lines", "- a\n  b\n- c", []block{
			{kind: prose, line: 1, lines: []string{"- a", "  b"}},
			{kind: prose, line: 3, lines: []string{"- c"}},
		}},
		{"code in a list", "1. a\n\n   ```sh\n   b\n   ```\n   c", []block{
			{kind: prose, line: 1, lines: []string{"1. a"}},
			{kind: code, line: 3, lines: []string{"   b"}, language: "sh"},
			{kind: prose, line: 6, lines: []string{"   c"}},
		}},
		{"a paragraph far inside a list", "- a\n\n    b", []block{
			{kind: prose, line: 1, lines: []string{"- a"}},
			{kind: prose, line: 3, lines: []string{"    b"}},
		}},
		{"indented code", "a\n\n    b\n    - c", []block{
			{kind: prose, line: 1, lines: []string{"a"}},
			{kind: indented, line: 3, lines: []string{"    b", "    - c"}},
		}},
		{"a table", "| a |\n|---|", []block{
			{kind: tableRow, line: 1, lines: []string{"| a |"}},
			{kind: tableRow, line: 2, lines: []string{"|---|"}},
		}},
		{"a note", "> [!NOTE]\n> a", []block{{kind: prose, line: 2, lines: []string{"a"}}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) { testkit.WantEqual(t, "the blocks", blocksOf(row.page), row.want) })
	}
}

var (
	codeSpanPattern = regexp.MustCompile("``.+?``|`[^`]+`")
	picturePattern  = regexp.MustCompile(`!\[([^\]]*)\]\(([^)]*)\)`)
	linkPattern     = regexp.MustCompile(`\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)]*)\)`)
	htmlTagPattern  = regexp.MustCompile(`</?[a-z][^>]*>`)
	barPattern      = regexp.MustCompile(`(\\\|)|\|`) // a bar, or an escaped one
)

// span is inline code.
type span struct {
	text string
	line int
}

// codeSpans returns the inline code of a block, without the backticks.
func codeSpans(b block) (spans []span) {
	if b.isCode() {
		return nil
	}
	text := b.text()
	for _, at := range codeSpanPattern.FindAllStringIndex(text, -1) {
		inside := strings.ReplaceAll(strings.Trim(text[at[0]:at[1]], "`"), "\n", " ")
		if b.kind == tableRow {
			inside = strings.ReplaceAll(inside, `\|`, "|")
		}
		spans = append(spans, span{strings.TrimSpace(inside), b.line + strings.Count(text[:at[0]], "\n")})
	}
	return spans
}

// withoutLinks removes pictures, the targets of links, and HTML.
func withoutLinks(text string) string {
	text = picturePattern.ReplaceAllString(text, "")
	text = linkPattern.ReplaceAllString(text, "$1")
	return htmlTagPattern.ReplaceAllString(text, "")
}

// cells returns the cells of the row of a table.
func (b block) cells() (cells []string) {
	row := strings.TrimPrefix(b.text(), "|")
	begin := 0
	for _, at := range barPattern.FindAllStringSubmatchIndex(row, -1) {
		isEscaped := at[2] >= 0
		if !isEscaped {
			cells = append(cells, row[begin:at[0]])
			begin = at[1]
		}
	}
	return cells
}

func TestCellsAreDivided(t *testing.T) {
	row := block{kind: tableRow, lines: []string{`| a | b \| c | |`}}
	testkit.WantEqual(t, "the cells", row.cells(), []string{" a ", ` b \| c `, " "})
}
