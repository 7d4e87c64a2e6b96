package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"podcount/internal/testkit"
)

// testOutage runs a test in virtual time. The test gets an Outage that logs to log at the level INFO.
func testOutage(t *testing.T, test func(t *testing.T, o *Outage, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		logger := slog.New(NewHandler(log, Style{}, slog.LevelInfo))
		o := NewOutage(logger, "Pod", "watching again", "kind", "Pod")
		defer o.Stop()
		test(t, o, log)
	})
}

// takeLines empties the log, and returns its lines without their times.
func takeLines(log *bytes.Buffer) (lines []string) {
	synctest.Wait() // A timer may be writing a line.
	for line := range strings.Lines(log.String()) {
		_, afterTime, _ := strings.Cut(line, " ")
		lines = append(lines, strings.TrimSpace(afterTime))
	}
	log.Reset()
	return lines
}

// wantLines checks the lines since the last call of wantLines or takeLines. A failure begins with when.
func wantLines(t *testing.T, when string, log *bytes.Buffer, want ...string) {
	t.Helper()
	testkit.WantEqual(t, when, takeLines(log), want)
}
