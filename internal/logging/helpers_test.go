package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"podcount/internal/testkit"
)

// newOutage makes an Outage that logs to log, at the level INFO.
func newOutage(log *bytes.Buffer) *Outage {
	logger := slog.New(NewHandler(log, Style{}, slog.LevelInfo))
	return NewOutage(logger, "Pod", "watching again", "kind", "Pod")
}

// takeLines returns the lines in a log without their times, and empties it.
func takeLines(log *bytes.Buffer) (lines []string) {
	synctest.Wait() // A timer may be writing a line.
	for line := range strings.Lines(log.String()) {
		_, afterTime, _ := strings.Cut(line, " ")
		lines = append(lines, strings.TrimSpace(afterTime))
	}
	log.Reset()
	return lines
}

// wantLines checks the lines that were logged since the last call.
func wantLines(t *testing.T, when string, log *bytes.Buffer, want ...string) {
	t.Helper()
	testkit.WantEqual(t, when, takeLines(log), want)
}
