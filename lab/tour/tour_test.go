package tour

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"podcount/internal/view/page"
	"podcount/lab/testkit"
)

// shownPage is a step or an exercise as the page gets it.
type shownPage struct {
	Title, Invariant, Say, Name, Address, Question, Why string
	Blocks                                              []block
	Functions                                           []function
	Shows                                               map[string]string
	Buttons, Guesses                                    []string
	Right                                               int
	IsOfPod                                             bool
}

// readContent returns the steps and the exercises of this checkout.
func readContent(t *testing.T) (steps, exercises []shownPage) {
	t.Helper()
	text, err := Content(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	var content struct{ Steps, Exercises []shownPage }
	if err := json.Unmarshal(text, &content); err != nil {
		t.Fatal(err)
	}
	return content.Steps, content.Exercises
}

func TestEachStepHasItsParts(t *testing.T) {
	steps, _ := readContent(t)
	testkit.WantNumber(t, "steps", len(steps), 10)
	for _, s := range steps {
		var titles, marks []string
		for _, b := range s.Blocks {
			if b.Kind == "h4" {
				titles = append(titles, b.Text)
			}
			marks = append(marks, regexp.MustCompile(`\]\(|^\||^- |^!|^#|\*\*\*|`+"```").FindAllString(b.Text, -1)...)
			if b.Text == "" {
				t.Errorf("%s has an empty block", s.Title)
			}
		}
		if !slices.Contains(titles, "What arrives") || !slices.Contains(titles, "What the code does") {
			t.Errorf("%s has the parts %q", s.Title, titles)
		}
		testkit.WantEqual(t, "Markdown left in "+s.Title, marks, nil)
		testkit.WantBetween(t, "bytes of the invariant of "+s.Title, len(s.Invariant), 40, 400)
		testkit.WantBetween(t, "functions of "+s.Title, len(s.Functions), 3, 6)
		testkit.WantBetween(t, "buttons of "+s.Title, len(s.Buttons), 1, 2)
		if isSaid := s.Say != ""; isSaid == s.IsOfPod {
			t.Errorf("%s needs a pod, or says what it needs: only one of the two", s.Title)
		}
		for name, pattern := range s.Shows {
			if _, err := regexp.Compile(pattern); err != nil {
				t.Errorf("%s: %s: %v", s.Title, name, err)
			}
		}
	}
}

func TestEachFunctionIsShownAsItIsInTheCheckout(t *testing.T) {
	steps, exercises := readContent(t)
	for _, one := range slices.Concat(steps, exercises) {
		for _, f := range one.Functions {
			text := testkit.ReadFile(t, "../../"+f.File)
			_, short, isMethod := strings.Cut(f.Name, ".")
			if !isMethod {
				short = f.Name
			}
			line := strings.Split(text, "\n")[f.Line-1]
			begins := strings.HasPrefix(f.Source, "// "+short+" ") || strings.HasPrefix(f.Source, line)
			if !strings.Contains(text, f.Source) || !strings.Contains(line, short) || !begins {
				t.Errorf("%s:%d is %q, and the source of %s is %q", f.File, f.Line, line, f.Name, f.Source)
			}
		}
	}
}

func TestEachExerciseCanBeGuessed(t *testing.T) {
	_, exercises := readContent(t)
	addresses := map[string]bool{}
	for _, e := range exercises {
		isWhole := e.Title != "" && strings.Contains(e.Question, "?") && e.Why != "" && len(e.Functions) > 0
		if !isWhole || len(e.Guesses) < 2 || len(e.Guesses) > 4 || e.Right < 0 || e.Right >= len(e.Guesses) {
			t.Errorf("the exercise %+v lacks something", e)
		}
		if addresses[e.Name] {
			t.Errorf("two exercises are about %s", e.Name)
		}
		addresses[e.Name], addresses[e.Address] = true, true
	}
	for _, name := range []string{"pod-more", "restart", "lost-event"} {
		if !addresses[name] {
			t.Errorf("there is no exercise %s, but there are %q", name, slices.Sorted(maps.Keys(addresses)))
		}
	}
}

func TestSourceWithoutACommentIsFound(t *testing.T) {
	checkout := fstest.MapFS{
		"a/a.go": {Data: []byte("package a\n")},
		"a/b.go": {Data: []byte("package a\n\nimport ()\n\n" +
			"func (c Cache[T]) add() {}\n\n// T is one.\ntype T int\n")},
	}
	got, err := functionsIn(checkout, "Read in `a`: `Cache.add`, `T`.")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the functions", got, []function{
		{"Cache.add", "a/b.go", 5, "func (c Cache[T]) add() {}"},
		{"T", "a/b.go", 8, "// T is one.\ntype T int"},
	})
}

func TestContentSaysWhatIsMissing(t *testing.T) {
	if _, err := Content(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without docs/learn/tour.md: %v", err)
	}
	_, err := Content(fstest.MapFS{"docs/learn/tour.md": {Data: []byte("# A tour\n")}})
	testkit.WantError(t, "a tour without steps", err, "other steps than additions.json")
	_, err = functionsIn(os.DirFS("../.."), "Read in `cache.go`: `Store.apply`, `Store.applied`.")
	testkit.WantError(t, "another name", err, "cache.go does not declare Store.applied")
	_, err = functionsIn(os.DirFS("../.."), "Read in `internal/nothing`: `Store`.")
	testkit.WantError(t, "another package", err, "internal/nothing does not declare Store")
}

func TestMarkdownBecomesBlocks(t *testing.T) {
	rows := []struct {
		name, text string
		want       []block
	}{
		{"a title and a paragraph", "**What arrives.** A `b`\nc.", []block{{"h4", "What arrives"}, {"p", "A `b` c."}}},
		{"lists", "1. a\n   b\n2. c\n\n- d | e", []block{{"ol", "a b"}, {"ol", "c"}, {"ul", "d | e"}}},
		{"a table", "| x | y |\n|---|---|\n| a | b |", []block{{"ul", "a: b"}}},
		{"code", "a:\n\n```text\nb\n\n  c\n```\n\nd", []block{{"p", "a:"}, {"pre", "b\n\n  c"}, {"p", "d"}}},
		{"a picture and a link", "![x\ny](z.svg)\n\na [b\nc](d.md) **e**", []block{{"p", "a b c **e**"}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) { testkit.WantEqual(t, "the blocks", blocksOf(row.text), row.want) })
	}
}

func TestPageHasTheTourAndNothingElseHasChanged(t *testing.T) {
	html := Page()
	testkit.WantText(t, html, "\nstartLive();\n\n// This is the script of the guided tour.", "#tour {")
	testkit.WantNumber(t, "bytes", len(html), len(page.HTML)+len(script)+len(style)+len("<style>\n</style>\n\n"))
	for _, pattern := range []string{"innerHTML", "</", `\sstyle=`, "https?://", "eval"} {
		testkit.WantEqual(t, "found by "+pattern, regexp.MustCompile(pattern).FindString(script+style), "")
	}
}
