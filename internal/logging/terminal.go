package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"unicode"
)

// Change is a field of an object that has become another: one attribute of a line, as Attr returns it. On a terminal
// the line is `wrote  control-plane  hopegi/pod-count 30 → 32`; elsewhere it has an attribute for each part.
type Change struct {
	Verb   string // what was done to the object, in the words of a terminal's line
	Kind   string // of the object, as the name of its attribute: node
	Object string
	Name   string // of the attribute for Field: label
	Field  string
	From   string
	To     string
}

// Attr returns the change as an attribute for a line.
func (c Change) Attr() slog.Attr { return slog.Any("", c) }

// LogValue gives logfmt and JSON an attribute for each part.
func (c Change) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String(c.Kind, c.Object),
		slog.String(c.Name, c.Field),
		slog.String("from", c.From),
		slog.String("to", c.To),
	)
}

// String is what changes, and how: `hopegi/pod-count 30 → 32`.
func (c Change) String() string { return fmt.Sprintf("%s %s → %s", c.Field, c.From, c.To) }

// terminalHandler writes lines for people: the time, a word for a level that is not INFO, the message, its attributes.
type terminalHandler struct {
	w     io.Writer
	level slog.Level
	color bool
	attrs []slog.Attr // of WithAttrs
	group string      // of WithGroup: what the names of attributes begin with
}

// The colours are those that every terminal has, chosen so that they can be read on black and on white.
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
	next.attrs = h.attrs[:len(h.attrs):len(h.attrs)]
	for _, a := range attrs {
		next.attrs = append(next.attrs, h.named(a))
	}
	return &next
}

func (h *terminalHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.group += name + "."
	return &next
}

func (h *terminalHandler) named(a slog.Attr) slog.Attr {
	if a.Key != "" {
		a.Key = h.group + a.Key
	}
	return a
}

// Handle writes one line. An error comes last, as it is the longest part. A stack follows below, a line for each of its
// own.
func (h *terminalHandler) Handle(_ context.Context, r slog.Record) error {
	var change *Change
	var last, stack string
	var rest strings.Builder
	add := func(a slog.Attr) bool {
		if c, ok := a.Value.Any().(Change); ok {
			change = &c
			return true
		}
		value := a.Value.Resolve().String()
		switch a.Key {
		case "err":
			last = value
			return true
		case "stack":
			stack = value
			return true
		}
		fmt.Fprintf(&rest, "  %s=%s", a.Key, quoted(value))
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(func(a slog.Attr) bool { return add(h.named(a)) })

	var line strings.Builder
	line.WriteString(h.colored(dim, r.Time.Format("15:04:05")) + "  ")
	line.WriteString(h.levelWord(r.Level))
	if change != nil {
		line.WriteString(h.colored(green, change.Verb) + "  " + Printable(change.Object) + "  " + Printable(change.String()))
	} else {
		line.WriteString(Printable(r.Message))
	}
	line.WriteString(rest.String())
	if last != "" {
		line.WriteString("  " + Printable(last))
	}
	line.WriteByte('\n')
	for row := range strings.SplitSeq(strings.TrimSpace(stack), "\n") {
		if row != "" {
			line.WriteString("    " + Printable(row) + "\n")
		}
	}
	_, err := io.WriteString(h.w, line.String())
	return err
}

// levelWord is what a line begins with after its time. INFO goes without saying.
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

// quoted puts quotes around a value that has blanks or quotes in it, so that one sees where it ends.
func quoted(value string) string {
	if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r == '"' || unicode.IsSpace(r) }) {
		return strconv.Quote(value)
	}
	return Printable(value)
}

// Printable replaces what could move the cursor of a terminal or change its colours: servers and files say what they
// like. The result is one line.
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
