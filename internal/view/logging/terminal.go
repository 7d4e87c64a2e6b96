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
	attrs []slog.Attr // from WithAttrs
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
	next.attrs = slices.Concat(h.attrs, attrs)
	return &next
}

// WithGroup leaves the names of attributes as they are: a short line shows no groups.
func (h *terminalHandler) WithGroup(string) slog.Handler { return h }

// Handle writes a record with one call of Write. A change replaces the message. The error comes last, because it is the
// longest part, and the stack stands below the line.
func (h *terminalHandler) Handle(_ context.Context, r slog.Record) error {
	message := Printable(r.Message)
	var attrs, last, stack string
	add := func(a slog.Attr) bool {
		if c, isChange := a.Value.Any().(Change); isChange {
			message = h.colored(green, c.Verb) + "  " + Printable(c.Object) + "  " + Printable(c.String())
			return true
		}
		value := a.Value.Resolve().String()
		switch a.Key {
		case "err":
			last = "  " + Printable(value)
		case "stack":
			for row := range strings.SplitSeq(strings.TrimSpace(value), "\n") {
				stack += "\n    " + Printable(row)
			}
		default:
			attrs += "  " + a.Key + "=" + quoted(value)
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	stamp := h.colored(dim, r.Time.Format("15:04:05"))
	_, err := fmt.Fprintf(h.w, "%s  %s%s%s%s%s\n", stamp, h.levelWord(r.Level), message, attrs, last, stack)
	return err
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
