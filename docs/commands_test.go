package docs_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// command is a command that a page shows, in a block of code or in inline code.
type command struct {
	words []string
	line  int
}

// commands returns the commands in a page, and the inline code that begins with a flag of one.
func (p page) commands() (commands []command) {
	for _, b := range p.blocks {
		if b.kind == code {
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

// commandsOf returns the commands in a block of sh, or those that a systemd unit in another block starts.
func commandsOf(b block) (commands []command) {
	whole := ""
	for i, line := range b.lines {
		if b.language != "sh" && !strings.Contains(line, execStart) {
			continue
		}
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

// execStart stands before the command in a systemd unit.
const execStart = "ExecStart="

var (
	shellCommentPattern = regexp.MustCompile(`(^|\s)#.*`)
	dividerPattern      = regexp.MustCompile(`\|\||&&|[|;()]`)
	wordPattern         = regexp.MustCompile(`('[^']*'|"[^"]*"|\S)+`)
	prefixPattern       = regexp.MustCompile(`^([A-Z_]+=.*|sudo)$`)
)

// divideCommands divides a line of shell into its commands, and these into words. It drops comments, and sudo or the
// settings of variables before a command. It does not see quotes around a divider, which no page has.
func divideCommands(line string) (commands [][]string) {
	line = shellCommentPattern.ReplaceAllString(line, "")
	for _, part := range dividerPattern.Split(line, -1) {
		words := wordPattern.FindAllString(strings.ReplaceAll(part, execStart, ""), -1)
		for len(words) > 0 && prefixPattern.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
	}
	return commands
}

func TestCommandsAreFound(t *testing.T) {
	const text = "```sh\nA=b make build   # c\nsudo bin/podcount -once \\\n  -v 2 | head && ls\n```\n" +
		"Run `make run ARGS='-v 4'`.\n```text\n[Service]\nExecStart=/bin/podcount -v 1\n```\n"
	p := page{blocks: blocksOf(text)}
	testkit.WantEqual(t, "the commands", p.commands(), []command{
		{[]string{"make", "build"}, 2},
		{[]string{"bin/podcount", "-once", "-v", "2"}, 4},
		{[]string{"head"}, 4},
		{[]string{"ls"}, 4},
		{[]string{"make", "run", "ARGS='-v 4'"}, 6},
		{[]string{"/bin/podcount", "-v", "1"}, 9},
	})
}

// flagPattern matches a flag, perhaps with its value.
var flagPattern = regexp.MustCompile(`^--?([a-z][a-z-]*)(=.*)?$`)

// isFlag reports whether the command is no command, but inline code that begins with a flag.
func (c command) isFlag() bool { return flagPattern.MatchString(c.words[0]) }

// flags returns the flags of podcount in a command.
func (c command) flags() (flags []string) {
	for _, word := range c.argsOfPodcount() {
		if found := flagPattern.FindStringSubmatch(word); found != nil {
			flags = append(flags, found[1])
		}
	}
	return flags
}

// argsOfPodcount returns the arguments of podcount itself, those that make run passes on, or the inline code that
// begins with a flag.
func (c command) argsOfPodcount() []string {
	switch {
	case c.isFlag():
		return c.words
	case path.Base(c.words[0]) == "podcount":
		return c.words[1:]
	case c.words[0] != "make":
		return nil
	}
	for _, word := range c.words {
		if args, isARGS := strings.CutPrefix(word, "ARGS="); isARGS {
			return strings.Fields(strings.Trim(args, `'"`))
		}
	}
	return nil
}

func TestFlagsAreFound(t *testing.T) {
	rows := []struct {
		line string
		want []string
	}{
		{"podcount -once --v=2 x", []string{"once", "v"}},
		{"-once", []string{"once"}},
		{`make run ARGS="-v 4 -once"`, []string{"v", "once"}},
		{"kubectl get lease podcount -o yaml", nil},
	}
	for _, row := range rows {
		testkit.WantEqual(t, "the flags of "+row.line, command{words: divideCommands(row.line)[0]}.flags(), row.want)
	}
}

// notFlags is inline code that looks like a flag of podcount: flags of go build and of kubectl, and endings of names.
var notFlags = []string{"duration", "pods", "lease", "events", "metadata", "else"}

func TestEachFlagInThePagesExists(t *testing.T) {
	known := flagsInHelp(t)
	for _, p := range loadPages(t) {
		for _, c := range p.commands() {
			for _, flag := range c.flags() {
				isOther := c.isFlag() && slices.Contains(notFlags, flag)
				if !isOther && !slices.Contains(known, flag) && !p.defines(flag) {
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

// flagsInHelp returns the flags in the help text, which docs/run/flags.md shows. Another test compares that with -h.
func flagsInHelp(t *testing.T) (flags []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`(?m)^  -([a-z-]+)[ \[]`).FindAllStringSubmatch(helpText(t), -1) {
		flags = append(flags, found[1])
	}
	return flags
}

// helpText returns the help text in docs/run/flags.md.
func helpText(t *testing.T) string {
	t.Helper()
	for _, b := range loadPage(t, "docs/run/flags.md").of(code) {
		if b.language == "text" && strings.HasPrefix(b.source(), "podcount counts pods") {
			return b.source()
		}
	}
	t.Fatal("docs/run/flags.md has no help text")
	return ""
}
