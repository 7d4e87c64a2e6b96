package logging

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
)

var someChange = Change{
	Verb:   "wrote",
	Kind:   "node",
	Object: "control-plane",
	Name:   "label",
	Field:  "hopegi/pod-count",
	From:   "30",
	To:     "32",
}

func TestTerminalShowsShortLines(t *testing.T) {
	for _, row := range []struct {
		name string
		log  func(*slog.Logger)
		want string
	}{
		{
			"change",
			func(l *slog.Logger) { l.Info("label written", someChange.Attr()) },
			"wrote  control-plane  hopegi/pod-count 30 → 32",
		},
		{
			"attributes",
			func(l *slog.Logger) { l.Info("listed", "kind", "Pod", "objects", 3) },
			"listed  kind=Pod  objects=3",
		},
		{
			"warning with its error last",
			func(l *slog.Logger) {
				l.Warn("cannot watch", "err", errors.New("no route to host"), "kind", "Pod", "retry", time.Second)
			},
			"WARN  cannot watch  kind=Pod  retry=1s  no route to host",
		},
		{
			"error",
			func(l *slog.Logger) { l.With("controller", "count").Error("it panics") },
			"ERROR  it panics  controller=count",
		},
		{
			"debug",
			func(l *slog.Logger) { l.Debug("looked") },
			"debug  looked",
		},
		{
			"values in quotes",
			func(l *slog.Logger) { l.Info("read", "text", "two words", "empty", "") },
			`read  text="two words"  empty=""`,
		},
		{
			"group",
			func(l *slog.Logger) { l.WithGroup("from").Info("moved", "x", 1) },
			"moved  x=1",
		},
		{
			"stack below the line",
			func(l *slog.Logger) { l.Error("it panics", "stack", "main.go:1\nmain.go:2\n") },
			"ERROR  it panics\n    main.go:1\n    main.go:2",
		},
		{
			"text that would clear the screen or begin a line",
			func(l *slog.Logger) { l.Info("answered", "err", "\x1b[2Jall gone\nwell") },
			"answered  \ufffd[2Jall gone well",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			out := &bytes.Buffer{}
			row.log(slog.New(NewHandler(out, Style{form: terminal}, slog.LevelDebug)))
			stamp, line, _ := strings.Cut(out.String(), "  ")
			if _, err := time.Parse("15:04:05", stamp); err != nil {
				t.Errorf("the line does not begin with a time: %v", err)
			}
			testkit.WantEqual(t, "line after the time", line, row.want+"\n")
		})
	}
}

func TestChangeHasAnAttributeForEachPart(t *testing.T) {
	for _, row := range []struct {
		name  string
		style Style
		want  string
	}{
		{
			"logfmt",
			Style{form: logfmt},
			`level=INFO msg="label written" node=control-plane label=hopegi/pod-count from=30 to=32`,
		},
		{
			"JSON",
			Style{form: jsonLines},
			`"msg":"label written","node":"control-plane","label":"hopegi/pod-count","from":"30","to":"32"`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			out := &bytes.Buffer{}
			slog.New(NewHandler(out, row.style, slog.LevelInfo)).Info("label written", someChange.Attr())
			testkit.WantText(t, out.String(), row.want)
		})
	}
}

func TestColourCanBeSwitchedOff(t *testing.T) {
	warn := func(color bool) string {
		out := &bytes.Buffer{}
		slog.New(NewHandler(out, Style{form: terminal, color: color}, slog.LevelInfo)).Warn("careful")
		return out.String()
	}
	testkit.WantText(t, warn(true), yellow+"WARN"+plain+"  careful")
	if line := warn(false); strings.Contains(line, "\x1b") {
		t.Errorf("the line %q has a colour", line)
	}
}
