package options

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// docs/run/flags.md shows the help of the built-in flags. A test compares the two.
const helpBeginning = `podcount counts pods, and writes the counts to labels of nodes and to the status of
Counts, a custom resource.

  laptop    podcount -dry-run -once                show what podcount would write to the cluster of
                                                   kubectl's current context, and write nothing
  cluster   podcount -leader-elect -listen :8080   in each of several replicas (see -manifest)
  CronJob   podcount -once                         list, write, exit (see -manifest)
`

const helpEnd = `
podcount help is -h, podcount version is -version, and podcount completion bash, zsh or fish prints
a script that completes flags in that shell.

Exit codes: 0 stopped on request, or -once is done; 1 failed, or -once was stopped early;
2 wrong flags or kubeconfig.
`

// helpColumns is the width of the help.
const helpColumns = 100

// helpSection is a group of flags in the help.
type helpSection struct {
	title string
	flags []helpFlag
}

// helpFlag is one flag in the help.
type helpFlag struct {
	usage string // the flag with its argument, as in "-qps N"
	about string
}

// help returns what -h prints.
func (c *commandLine) help() string {
	var out strings.Builder
	out.WriteString(helpBeginning)
	for _, section := range c.sections {
		out.WriteString("\n" + section.title + "\n")
		section.writeFlags(&out)
	}
	out.WriteString(helpEnd)
	return out.String()
}

// writeFlags writes two columns: the flags, and what they are about.
func (s helpSection) writeFlags(out *strings.Builder) {
	width := 0
	for _, f := range s.flags {
		width = max(width, len(f.usage))
	}
	for _, f := range s.flags {
		usage := f.usage
		for _, line := range wrap(f.about, helpColumns-width-len("     ")) {
			fmt.Fprintf(out, "  %-*s   %s\n", width, usage, line)
			usage = "" // only the first line shows the flag
		}
	}
}

// wrap breaks a text into lines of at most width characters, between two words.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line+" "+word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}
