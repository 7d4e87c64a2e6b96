package tour

import (
	"regexp"
	"strings"
)

// block is a part of a text. Its kind is the name of the element that shows it, or a list of such blocks: h4, p, pre,
// ul or ol. Its text may have `code`, **bold** and *italics*.
type block struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

var (
	titlePattern  = regexp.MustCompile(`^\*\*([^*]+)\.\*\* `)
	linkPattern   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	numberPattern = regexp.MustCompile(`^\d+\. `)
)

// blocksOf divides a text into blocks. It understands only the part of Markdown that the tour uses. Pictures and the
// heads of tables are left out, and of links only the text stays.
func blocksOf(text string) (blocks []block) {
	for i, part := range strings.Split(text, "```") {
		if isCode := i%2 == 1; isCode {
			_, code, _ := strings.Cut(part, "\n") // without the language
			blocks = append(blocks, block{"pre", strings.TrimSuffix(code, "\n")})
			continue
		}
		for _, paragraph := range strings.Split(part, "\n\n") {
			paragraph = strings.TrimSpace(paragraph)
			if title := titlePattern.FindStringSubmatch(paragraph); title != nil {
				blocks = append(blocks, block{"h4", title[1]})
				paragraph = strings.TrimPrefix(paragraph, title[0])
			}
			if paragraph != "" && !strings.HasPrefix(paragraph, "![") {
				blocks = append(blocks, blocksIn(linkPattern.ReplaceAllString(paragraph, "$1"))...)
			}
		}
	}
	return blocks
}

// blocksIn divides lines of which none is empty. The rows of a table become items of a list.
func blocksIn(lines string) (blocks []block) {
	for i, line := range strings.Split(lines, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "|---"):
			blocks = nil // What stands above is the head of the table.
		case strings.HasPrefix(line, "|"):
			blocks = append(blocks, block{"ul", strings.Replace(strings.Trim(line, "| "), " | ", ": ", 1)})
		case strings.HasPrefix(line, "- "):
			blocks = append(blocks, block{"ul", line[len("- "):]})
		case numberPattern.MatchString(line):
			blocks = append(blocks, block{"ol", numberPattern.ReplaceAllString(line, "")})
		case i == 0:
			blocks = append(blocks, block{"p", line})
		default: // The line continues the one before.
			blocks[len(blocks)-1].Text += " " + line
		}
	}
	return blocks
}
