package docs_test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/internal/metrics"
	"podcount/internal/testkit"
)

// command is a command that a page shows, in a block of sh or in inline code.
type command struct {
	words []string
	line  int
}

// commands returns the commands in a page, and the inline code that begins with a flag of one.
func (p page) commands() (commands []command) {
	for _, b := range p.blocks {
		if b.kind == code && b.language == "sh" {
			commands = append(commands, commandsOf(b)...)
		}
		for _, s := range codeSpans(b) {
			for _, words := range divideCommands(s.text) {
				commands = append(commands, command{words, s.line})
			}
		}
	}
	return commands
}

// commandsOf returns the commands in a block of sh.
func commandsOf(b block) (commands []command) {
	whole := ""
	for i, line := range b.lines {
		whole += line
		if strings.HasSuffix(whole, `\`) {
			whole = strings.TrimSuffix(whole, `\`)
			continue
		}
		for _, words := range divideCommands(whole) {
			commands = append(commands, command{words, b.line + 1 + i})
		}
		whole = ""
	}
	return commands
}

var (
	shellComment = regexp.MustCompile(`(^|\s)#.*`)
	divider      = regexp.MustCompile(`\|\||&&|[|;()]`)
	assignment   = regexp.MustCompile(`^[A-Z_]+=`)
)

// divideCommands divides a line of shell into its commands, and these into words. It drops comments and the settings of
// variables before a command. It does not know quotes, which no page has around a divider.
func divideCommands(line string) (commands [][]string) {
	line = shellComment.ReplaceAllString(line, "")
	for _, part := range divider.Split(line, -1) {
		words := strings.Fields(part)
		for len(words) > 0 && assignment.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
	}
	return commands
}

func TestCommandsAreFound(t *testing.T) {
	const text = "```sh\nA=b make build   # c\nbin/podcount -once \\\n  -v 2 | head && ls\n```\nRun `make lint`."
	p := page{blocks: blocksOf(text)}
	testkit.WantEqual(t, "the commands", p.commands(), []command{
		{[]string{"make", "build"}, 2},
		{[]string{"bin/podcount", "-once", "-v", "2"}, 4},
		{[]string{"head"}, 4},
		{[]string{"ls"}, 4},
		{[]string{"make", "lint"}, 6},
	})
}

// flagsOf returns the flags of podcount in a command, with their lines: those of podcount itself, those that make run
// passes on, and those of inline code that begins with a flag.
func (c command) flags() (flags []string) {
	words := c.words
	isPodcount := path.Base(words[0]) == "podcount"
	isPlayground := slices.Equal(words[:min(2, len(words))], []string{"make", "run"})
	if !isPodcount && !isPlayground && !flagPattern.MatchString(words[0]) {
		return nil
	}
	for _, word := range words {
		if found := flagPattern.FindStringSubmatch(strings.TrimPrefix(word, "ARGS='")); found != nil {
			flags = append(flags, found[1])
		}
	}
	return flags
}

// flagPattern matches a flag, perhaps with its value.
var flagPattern = regexp.MustCompile(`^-([a-z][a-z-]*)(=.*)?'?$`)

// notFlags is what pages have in inline code that looks like a flag of podcount: flags of go build and of kubectl, and
// endings of names.
var notFlags = []string{"trimpath", "pods", "lease", "events", "else"}

func TestEachFlagInThePagesExists(t *testing.T) {
	known := append(flagsInHelp(t), notFlags...)
	for _, p := range loadPages(t) {
		for _, c := range p.commands() {
			for _, flag := range c.flags() {
				if !slices.Contains(known, flag) && !p.defines(flag) {
					t.Errorf("%s: podcount has no flag -%s", p.at(c.line), flag)
				}
			}
		}
	}
}

// defines reports whether Go code in the page defines a flag, as an example of a flag of one's own does.
func (p page) defines(flag string) bool {
	return slices.ContainsFunc(p.of(code), func(b block) bool {
		return b.language == "go" && strings.Contains(b.source(), `("`+flag+`"`)
	})
}

// flagsInHelp returns the flags in the help text, which docs/flags.md shows. Another test compares that with -h.
func flagsInHelp(t *testing.T) (flags []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`(?m)^  -([a-z-]+)[ \[]`).FindAllStringSubmatch(helpText(t), -1) {
		flags = append(flags, found[1])
	}
	return flags
}

// helpText returns the help text in docs/flags.md.
func helpText(t *testing.T) string {
	t.Helper()
	for _, b := range loadPage(t, "docs/flags.md").of(code) {
		if b.language == "text" && strings.HasPrefix(b.source(), "podcount counts pods") {
			return b.source()
		}
	}
	t.Fatal("docs/flags.md has no help text")
	return ""
}

// metricPattern matches the name of a metric. If it ends with _, it is the beginning of several names.
var metricPattern = regexp.MustCompile(`\b(podcount|workqueue|leader_election|rest_client)_[a-z_]+`)

func TestEachMetricInThePagesExists(t *testing.T) {
	var known []string
	for _, m := range metrics.All() {
		known = append(known, m.Name)
		if m.Type == metrics.Histogram {
			known = append(known, m.Name+"_bucket", m.Name+"_sum", m.Name+"_count")
		}
	}
	exists := func(name string) bool {
		return slices.ContainsFunc(known, func(k string) bool {
			return k == name || strings.HasSuffix(name, "_") && strings.HasPrefix(k, name)
		})
	}
	for _, p := range loadPages(t) {
		for i, line := range strings.Split(p.text, "\n") {
			for _, name := range metricPattern.FindAllString(line, -1) {
				if !exists(name) {
					t.Errorf("%s: there is no metric %s", p.at(i+1), name)
				}
			}
		}
	}
}

func TestPagesNameTheTargetsOfMake(t *testing.T) {
	makefile, err := os.ReadFile(fromHere("Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, found := range regexp.MustCompile(`(?m)^([a-z0-9]+):`).FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, found[1])
	}
	var named []string
	for _, p := range loadPages(t) {
		for _, c := range p.commands() {
			if c.words[0] != "make" || len(c.words) == 1 {
				continue
			}
			target := c.words[1]
			named = append(named, target)
			if !slices.Contains(targets, target) {
				t.Errorf("%s: make has no target %s", p.at(c.line), target)
			}
		}
	}
	for _, target := range targets {
		if !slices.Contains(named, target) {
			t.Errorf("no page names make %s", target)
		}
	}
}
