package trial

import (
	"fmt"
	"strings"
	"unicode"
)

// maxStory is how many entries of a timeline a story shows: so many that it fits on a screen or two.
const maxStory = 60

// Story tells what happened in a row, as plain text: what happens and why, the verdict, and the beginning and the end
// of the timeline.
func (r Result) Story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: %s\n", r.Group, r.Name, r.Summary())
	fmt.Fprintf(&b, "  %s\n", r.Happens)
	if r.Why != "" {
		fmt.Fprintf(&b, "  %s %s\n", r.Why, r.Report)
	}
	if r.Detail != "" {
		fmt.Fprintf(&b, "  The verdict: %s.\n", r.Detail)
	}
	b.WriteString("  second  who\n")
	for i, e := range r.Timeline {
		hidden := len(r.Timeline) - maxStory
		switch {
		case hidden > 0 && i == maxStory/2:
			b.WriteString("   ...     more of what the program did, which is left out here\n")
		case hidden > 0 && i > maxStory/2 && i < maxStory/2+hidden && e.Who != "trial":
		default:
			fmt.Fprintf(&b, "  %6.2f  %-8s %s%s\n", e.Second, e.Who, e.Text, e.again())
		}
	}
	if output := strings.TrimSpace(r.Output); output != "" {
		b.WriteString("  The end of what it has printed:\n")
		lines := strings.Split(output, "\n")
		for _, line := range lines[max(0, len(lines)-maxOutput):] {
			b.WriteString("  | " + shortened(line) + "\n")
		}
	}
	return b.String()
}

// maxOutput is how many lines of a program's output a story shows.
const maxOutput = 12

// maxLine is how much of a line of output a story shows, in bytes.
const maxLine = 300

// shortened also leaves out what would change the colours of a terminal.
func shortened(line string) string {
	visible := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, line)
	if len(visible) <= maxLine {
		return visible
	}
	return strings.ToValidUTF8(visible[:maxLine], "") + " …"
}

// again says how often an entry is repeated.
func (e Entry) again() string {
	if e.Times < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d times)", e.Times)
}
