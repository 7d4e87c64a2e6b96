package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Change is a change of one field of an object. Its Attr makes it part of a log line, which on a terminal looks like
// this:
//
//	wrote  control-plane  hopegi/pod-count 30 → 32
//
// In logfmt and JSON, the line has these attributes:
//
//	node=control-plane label=hopegi/pod-count from=30 to=32
type Change struct {
	Verb string // such as "wrote"; shown only on a terminal

	Kind   string // the name of the attribute for Object, such as "node"
	Object string
	Name   string // the name of the attribute for Field, such as "label"
	Field  string

	From string
	To   string
}

// Attr returns the attribute that shows the change in a log line.
func (c Change) Attr() slog.Attr { return slog.Any("", c) }

// LogValue returns the attributes of the change for logfmt and JSON.
func (c Change) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String(c.Kind, c.Object),
		slog.String(c.Name, c.Field),
		slog.String("from", c.From),
		slog.String("to", c.To),
	)
}

// String returns the change of the field, such as "hopegi/pod-count 30 → 32".
func (c Change) String() string { return fmt.Sprintf("%s %s → %s", c.Field, c.From, c.To) }

// terminalHandler writes short lines: the time, the level unless it is INFO, the message, and the attributes.
type terminalHandler struct {
	w     io.Writer
	level slog.Level
	color bool
	attrs []slog.Attr // from WithAttrs, with the names of their groups
	group string      // from WithGroup; a prefix for the names of the attributes that follow
}

// Every terminal supports these colours, and they are readable on black and on white.
const (
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

func (h *terminalHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *terminalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		next.attrs = append(next.attrs, h.inGroup(a))
	}
	return &next
}

func (h *terminalHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.group += name + "."
	return &next
}

// inGroup returns the attribute with the group's prefix before its name.
func (h *terminalHandler) inGroup(a slog.Attr) slog.Attr {
	if a.Key != "" {
		a.Key = h.group + a.Key
	}
	return a
}

// terminalLine holds the attributes of a record, sorted into the parts of a line.
type terminalLine struct {
	change *Change         // replaces the message, if there is one
	attrs  strings.Builder // all attributes without a place of their own
	err    string          // comes last, because it is the longest part
	stack  string          // is printed below the line, indented
}

func (l *terminalLine) add(a slog.Attr) {
	if change, ok := a.Value.Any().(Change); ok {
		l.change = &change
		return
	}
	value := a.Value.Resolve().String()
	switch a.Key {
	case "err":
		l.err = value
	case "stack":
		l.stack = value
	default:
		fmt.Fprintf(&l.attrs, "  %s=%s", a.Key, quoted(value))
	}
}

// Handle writes a record with one call of Write.
func (h *terminalHandler) Handle(_ context.Context, r slog.Record) error {
	var line terminalLine
	for _, a := range h.attrs {
		line.add(a)
	}
	r.Attrs(func(a slog.Attr) bool {
		line.add(h.inGroup(a))
		return true
	})
	_, err := io.WriteString(h.w, h.format(r, &line))
	return err
}

// format returns the text for a record whose attributes are in line.
func (h *terminalHandler) format(r slog.Record, line *terminalLine) string {
	var text strings.Builder
	text.WriteString(h.colored(dim, r.Time.Format("15:04:05")) + "  ")
	text.WriteString(h.levelWord(r.Level))
	if line.change == nil {
		text.WriteString(Printable(r.Message))
	} else {
		text.WriteString(h.formatChange(line.change))
	}
	text.WriteString(line.attrs.String())
	if line.err != "" {
		text.WriteString("  " + Printable(line.err))
	}
	text.WriteByte('\n')
	for row := range strings.SplitSeq(strings.TrimSpace(line.stack), "\n") {
		if row != "" {
			text.WriteString("    " + Printable(row) + "\n")
		}
	}
	return text.String()
}

// formatChange returns the text that replaces the message.
func (h *terminalHandler) formatChange(c *Change) string {
	return h.colored(green, c.Verb) + "  " + Printable(c.Object) + "  " + Printable(c.String())
}

// levelWord returns the word for a level, followed by two spaces. It returns "" for INFO, the usual level.
func (h *terminalHandler) levelWord(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return h.colored(red, "ERROR") + "  "
	case level >= slog.LevelWarn:
		return h.colored(yellow, "WARN") + "  "
	case level < slog.LevelInfo:
		return h.colored(dim, "debug") + "  "
	}
	return ""
}

func (h *terminalHandler) colored(color, text string) string {
	if !h.color {
		return text
	}
	return color + text + plain
}

// quoted puts quotes around a value that is empty or contains blanks or quotes, so that its end is clear.
func quoted(value string) string {
	isUnclear := func(r rune) bool { return r == '"' || unicode.IsSpace(r) }
	if value == "" || strings.ContainsFunc(value, isUnclear) {
		return strconv.Quote(value)
	}
	return Printable(value)
}

// Printable joins the lines of a text, and replaces the characters that could move a terminal's cursor or change its
// colours. Use it for texts from servers and files, which may contain anything.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
