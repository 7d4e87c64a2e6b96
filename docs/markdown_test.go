package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"podcount/internal/testkit"
)

// kind is the kind of a block.
type kind string

const (
	heading  kind = "heading"
	prose    kind = "prose" // a paragraph, or an item of a list
	tableRow kind = "table row"
	code     kind = "code" // between fences
	indented kind = "indented code"
	comment  kind = "comment"
)

// block is a part of a page.
type block struct {
	kind     kind
	line     int      // the number of its first line; for code, that of the opening fence
	lines    []string // as they are in the file; for code, without the fences
	language string   // of code
}

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

// blocksOf divides a page into blocks. It understands only the part of Markdown that the pages use.
func blocksOf(page string) []block {
	r := &blockReader{}
	for i, line := range strings.Split(page, "\n") {
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

// readLine reads a line outside of fences.
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
	case strings.HasPrefix(text, "<!--"):
		r.begin(comment, number, line)
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
		r.inList = r.inList && strings.HasPrefix(line, " ")
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
	codeSpan     = regexp.MustCompile("``.+?``|`[^`]+`")
	picture      = regexp.MustCompile(`!\[([^\]]*)\]\(([^)]*)\)`)
	linkPattern  = regexp.MustCompile(`\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)]*)\)`)
	htmlTag      = regexp.MustCompile(`</?[a-z][^>]*>`)
	cellDivision = regexp.MustCompile(`(\\\|)|\|`) // a bar, or an escaped one
)

// span is inline code.
type span struct {
	text string
	line int
}

// codeSpans returns the inline code of a block, without the backticks.
func codeSpans(b block) (spans []span) {
	if b.kind == code || b.kind == indented || b.kind == comment {
		return nil
	}
	text := b.text()
	for _, at := range codeSpan.FindAllStringIndex(text, -1) {
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
	text = picture.ReplaceAllString(text, "")
	text = linkPattern.ReplaceAllString(text, "$1")
	return htmlTag.ReplaceAllString(text, "")
}

// firstCell returns the first cell of the row of a table.
func firstCell(b block) string {
	row := strings.TrimPrefix(b.text(), "|")
	for _, at := range cellDivision.FindAllStringSubmatchIndex(row, -1) {
		isEscaped := at[2] >= 0
		if !isEscaped {
			return row[:at[0]]
		}
	}
	return row
}
