// Package logging writes podcount's log: short lines for people on a terminal, logfmt or JSON elsewhere.
//
// It makes four promises. Writing to an Output never blocks, even if nobody reads the file. Lines that are dropped are
// counted and reported. Something that fails again and again does not fill the log: see Outage. No line is longer than
// 4 KiB: see NewHandler.
package logging

import (
	"io"
	"log/slog"
	"os"
	"time"
)

// Style is how log lines look.
type Style struct {
	form  form
	color bool // only for the form terminal
}

type form int

const (
	logfmt    form = iota // key=value, for people and programs
	jsonLines             // one JSON object a line, for programs
	terminal              // short, for people
)

// StyleOf returns the style for a format (auto, text or json) and the file that the log is written to. The format auto
// means short lines if the file is a terminal, and logfmt if not. Short lines are coloured unless the environment sets
// NO_COLOR (see https://no-color.org) or TERM=dumb.
func StyleOf(format string, w io.Writer, getenv func(string) string) Style {
	switch {
	case format == "json":
		return Style{form: jsonLines}
	case format == "text" || !IsTerminal(w):
		return Style{form: logfmt}
	}
	return Style{form: terminal, color: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

// IsTerminal reports whether w is a terminal, or another device for characters, but not /dev/null.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// NewHandler returns a handler that writes lines of this level and above to w. It writes each line with one call of
// Write, during which it may hold a lock. If writing to w may block, pass an Output as w.
//
// Each line has at most 4 KiB. Longer values are cut off, with a mark.
func NewHandler(w io.Writer, style Style, level slog.Level) slog.Handler {
	line := &lineBuffer{w: w}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: simplify}
	var next slog.Handler
	switch style.form {
	case logfmt:
		next = slog.NewTextHandler(line, options)
	case jsonLines:
		next = slog.NewJSONHandler(line, options)
	case terminal:
		next = &terminalHandler{w: line, level: level, color: style.color}
	}
	return &limitedHandler{next: next, line: line}
}

// simplify makes two kinds of values easier to read. It shows every level below INFO as DEBUG, instead of DEBUG+2 or
// the like. It shows a duration as 1.5s in JSON too, instead of as a number of nanoseconds.
func simplify(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case slog.Level:
		if v < slog.LevelInfo {
			a.Value = slog.StringValue("DEBUG")
		}
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	}
	return a
}
