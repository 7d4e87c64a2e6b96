package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// styles are all styles of the log.
var styles = map[string]Style{
	"logfmt":     {form: logfmt},
	"JSON":       {form: jsonLines},
	"a terminal": {form: terminal, color: true},
}

// stringer is a value that is neither a text nor an error.
type stringer struct{ text string }

func (s stringer) String() string { return s.text }

func TestNoLineIsLongerThanItsLimit(t *testing.T) {
	chars := []string{"x", "<", `"`, `\`, "\x00", "\n", "é", "\xff", "\uFFFD", "\u0085", "\U0010ffff", "🙂"}
	for _, char := range chars {
		long := strings.Repeat(char, 20_000)
		change := someChange
		change.Object, change.Field, change.From, change.To = long, long, long, long
		for name, log := range map[string]func(*slog.Logger){
			"the message":  func(l *slog.Logger) { l.Error(long) },
			"an error":     func(l *slog.Logger) { l.Error("it failed", "err", errors.New(long)) },
			"a text":       func(l *slog.Logger) { l.Error("it failed", "key", long, "objects", 7) },
			"a stack":      func(l *slog.Logger) { l.Error("it failed", "stack", long) },
			"another type": func(l *slog.Logger) { l.Error("it failed", "a", stringer{long}, "b", []string{long, ""}) },
			"a change":     func(l *slog.Logger) { l.Error("written", change.Attr()) },
			"a group":      func(l *slog.Logger) { l.Error("it failed", slog.Group("g", "a", long, "b", long)) },
			"all lines":    func(l *slog.Logger) { l.With("a", long).WithGroup("g").With("b", long).Error(long, "c", long) },
			"many values": func(l *slog.Logger) {
				l.Error(long, "a", long, "b", long, "c", long, "d", long, "e", long, "f", long, "g", long, "h", long)
			},
		} {
			for style, s := range styles {
				var out bytes.Buffer
				log(slog.New(NewHandler(&out, s, slog.LevelInfo)))
				what := fmt.Sprintf("the line in %s, with %s of %q", style, name, char)
				testkit.WantBetween(t, what, out.Len(), 40, lineLimit)
				if s.form == jsonLines && !json.Valid(out.Bytes()) {
					t.Errorf("%s is not valid: %s", what, out.String())
				}
			}
		}
	}
}

func TestOnlyLongValuesOfLongLinesAreCut(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(NewHandler(&out, Style{}, slog.LevelInfo))
	fits := strings.Repeat("x", 3000)
	log.Info("it failed", "key", "a", "err", fits)
	testkit.WantText(t, out.String(), `msg="it failed" key=a err=`+fits+"\n")
	out.Reset()
	log.Info("it failed", "key", "a", "err", fits+fits, "objects", 7)
	want := `msg="it failed" key=a err="` + fits[:longestValue] + `… (6000 bytes in all)" objects=7` + "\n"
	testkit.WantText(t, out.String(), want)
}
