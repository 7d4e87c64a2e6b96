// Package logging writes podcount's log: lines for people on a terminal, logfmt or JSON for everything else. And it
// tells of an outage what a person needs: that it has begun, that it lasts, and that it is over.
//
// It promises that whoever writes a line to an Output never waits for its reader, that lines which are lost are counted
// and reported, and that what fails again and again fills no log.
//
// It knows nothing of Kubernetes, never decides what to do about a failure, and never ends the process.
package logging

import (
	"io"
	"log/slog"
	"os"
	"time"
)

// Style is the form of the lines.
type Style struct {
	form  form
	color bool // of terminal lines
}

type form int

const (
	text     form = iota // logfmt
	jsonText             // a JSON object a line
	terminal             // for people
)

// StyleOf returns the style that a format (auto, text or json) stands for where the log is written to w. With auto
// that is a short line where w is a terminal, and logfmt elsewhere. Colour is used on a terminal alone, and neither
// where NO_COLOR is set (https://no-color.org) nor on a terminal that says it is dumb.
func StyleOf(format string, w io.Writer, getenv func(string) string) Style {
	switch {
	case format == "json":
		return Style{form: jsonText}
	case format == "text" || !isTerminal(w):
		return Style{form: text}
	}
	return Style{form: terminal, color: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

// isTerminal reports whether people may be looking at w. It takes /dev/null for a terminal, where the form of a line
// does not matter.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// NewHandler returns a handler that writes the lines of this level and above to w, each in one Write. It holds a lock
// meanwhile: a w that may block belongs into an Output.
func NewHandler(w io.Writer, style Style, level slog.Level) slog.Handler {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: plainAttr}
	switch style.form {
	case jsonText:
		return slog.NewJSONHandler(w, options)
	case terminal:
		return &terminalHandler{w: w, level: level, color: style.color}
	}
	return slog.NewTextHandler(w, options)
}

// plainAttr shows every level below INFO as DEBUG, not as DEBUG+2 and the like, and a duration as 1.5s also in JSON,
// where it would be a number of nanoseconds.
func plainAttr(_ []string, a slog.Attr) slog.Attr {
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
