package docs_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"podcount/lab/testkit"
)

const (
	widestLine      = 120 // columns
	longSentence    = 25  // words; one sentence in ten may have more
	longestSentence = 40  // words
	repeatedWords   = 8   // words; a sentence with as many must not stand in two places
)

// linkTargetPattern is the part of a link that a reader of the page does not see.
var linkTargetPattern = regexp.MustCompile(`\]\([^)]*\)`)

func TestLinesOfProseAreNarrow(t *testing.T) {
	for _, p := range loadPages(t) {
		for _, b := range p.blocks {
			if b.kind != prose && b.kind != heading {
				continue
			}
			for i, line := range b.lines {
				visible := linkTargetPattern.ReplaceAllString(picturePattern.ReplaceAllString(line, ""), "]")
				if n := utf8.RuneCountInString(visible); n > widestLine {
					t.Errorf("%s: the line has %d columns, want %d", p.at(b.line+i), n, widestLine)
				}
			}
		}
	}
}

// sentence is a sentence of a page, or a heading.
type sentence struct {
	text    string // without links and line breaks
	line    int    // where it begins
	inTable bool
}

// words counts the words. Inline code is one word.
func (s sentence) words() (n int) {
	for _, word := range strings.Fields(codeSpanPattern.ReplaceAllString(s.text, "code")) {
		if strings.ContainsFunc(word, isWordRune) {
			n++
		}
	}
	return n
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// blankInCode stands for a blank within inline code, so that inline code is never divided.
const blankInCode = "\x00"

// sentencesOf divides a paragraph, the item of a list or a cell into sentences. Its end ends a sentence, too.
func sentencesOf(b block) (sentences []sentence) {
	text := codeSpanPattern.ReplaceAllStringFunc(withoutLinks(b.text()), func(found string) string {
		return strings.NewReplacer(" ", blankInCode, "\n", blankInCode).Replace(found)
	})
	var words []string
	begin := b.line
	end := func() {
		if len(words) > 0 {
			whole := strings.ReplaceAll(strings.Join(words, " "), blankInCode, " ")
			sentences = append(sentences, sentence{whole, begin, b.kind == tableRow})
		}
		words = nil
	}
	for i, line := range strings.Split(text, "\n") {
		for _, word := range strings.Fields(line) {
			if len(words) == 0 {
				begin = b.line + i
			}
			words = append(words, word)
			if endsSentence(word) {
				end()
			}
		}
	}
	end()
	return sentences
}

// abbreviations end with a full stop, but do not end a sentence.
var abbreviations = []string{"e.g.", "i.e.", "etc.", "vs.", "cf.", "approx."}

// endsSentence reports whether a word is the last of its sentence.
func endsSentence(word string) bool {
	bare := strings.TrimRight(word, `)]"'*_”’`)
	isAbbreviation := slices.Contains(abbreviations, strings.TrimLeft(bare, `([*_"'“‘`))
	return !isAbbreviation && sentenceEndPattern.MatchString(bare)
}

// sentenceEndPattern matches the end of a sentence. Several dots are an ellipsis, which ends none.
var sentenceEndPattern = regexp.MustCompile(`(^|[^.])[.?!]$`)

func TestSentencesAreDivided(t *testing.T) {
	rows := []struct {
		text string
		want []string
	}{
		{"One. Two? Three!", []string{"One.", "Two?", "Three!"}},
		{"One is\nhere. Two", []string{"One is here.", "Two"}},
		{"Go 1.25, e.g. on amd64. podcount (i.e. this).", []string{"Go 1.25, e.g. on amd64.", "podcount (i.e. this)."}},
		{"Run `a. b`. **Bold.** (In brackets.) End", []string{"Run `a. b`.", "**Bold.**", "(In brackets.)", "End"}},
		{"See [the page. It](a.md#b). `-v` is", []string{"See the page.", "It.", "`-v` is"}},
		{"- An item: it waits … and ends", []string{"An item: it waits … and ends"}},
	}
	for _, row := range rows {
		t.Run(row.text, func(t *testing.T) {
			var got []string
			for _, s := range sentencesOf(blocksOf(row.text)[0]) {
				got = append(got, s.text)
			}
			testkit.WantEqual(t, "the sentences", got, row.want)
		})
	}
}

func TestWordsAreCounted(t *testing.T) {
	rows := []struct {
		text string
		want int
	}{
		{"One two three.", 3},
		{"Run `podcount -once -dry-run` – or two.", 4},
		{"A read-only file → 12 ms", 5},
	}
	for _, row := range rows {
		testkit.WantNumber(t, "words of "+row.text, sentence{text: row.text}.words(), row.want)
	}
}

// sentences returns the sentences in the prose and in the tables of a page.
func (p page) sentences() (sentences []sentence) {
	for _, b := range p.blocks {
		switch b.kind {
		case prose:
			sentences = append(sentences, sentencesOf(b)...)
		case tableRow:
			for _, cell := range b.cells() {
				part := block{kind: tableRow, line: b.line, lines: []string{cell}}
				sentences = append(sentences, sentencesOf(part)...)
			}
		}
	}
	return sentences
}

func TestSentencesAreShort(t *testing.T) {
	for _, p := range loadPages(t) {
		t.Run(p.name, func(t *testing.T) {
			sentences := p.sentences()
			var long []string
			for _, s := range sentences {
				n := s.words()
				found := fmt.Sprintf("%s: %d words: %s", p.at(s.line), n, s.text)
				if n > longestSentence {
					t.Errorf("%s\nNo sentence may have more than %d words.", found, longestSentence)
				}
				if n > longSentence {
					long = append(long, found)
				}
			}
			if limit := len(sentences) / 10; len(long) > limit {
				t.Errorf("%d of %d sentences have more than %d words, but only %d may:\n%s",
					len(long), len(sentences), longSentence, limit, strings.Join(long, "\n"))
			}
		})
	}
}

func TestNoSentenceStandsInTwoPlaces(t *testing.T) {
	places := map[string]string{}
	for _, p := range loadPages(t) {
		for _, s := range p.sentences() {
			isPhrase := s.inTable && !endsSentence(s.text) // tables may repeat these, such as the same fix
			if s.words() < repeatedWords || isPhrase {
				continue
			}
			key := normalized(s.text)
			if first, isKnown := places[key]; isKnown {
				t.Errorf("%s: this stands in %s, too: %s", p.at(s.line), first, s.text)
				continue
			}
			places[key] = p.at(s.line)
		}
	}
}

// normalized returns the words of a sentence in lower case, without punctuation.
func normalized(text string) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !isWordRune(r) })
	return strings.Join(words, " ")
}
