package logging

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func TestStyleFollowsTheFormatAndTheTerminal(t *testing.T) {
	tty := openTerminal(t)
	file, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, row := range []struct {
		format string
		w      io.Writer
		env    string
		want   Style
	}{
		{"auto", tty, "", Style{terminal, true}},
		{"auto", tty, "NO_COLOR=1", Style{terminal, false}},
		{"auto", tty, "NO_COLOR=", Style{terminal, true}},
		{"auto", tty, "TERM=dumb", Style{terminal, false}},
		{"text", tty, "", Style{logfmt, false}},
		{"json", tty, "", Style{jsonLines, false}},
		{"auto", file, "", Style{logfmt, false}},
		{"auto", &bytes.Buffer{}, "", Style{logfmt, false}},
		{"json", file, "", Style{jsonLines, false}},
	} {
		t.Run(fmt.Sprintf("%s to %T with %q", row.format, row.w, row.env), func(t *testing.T) {
			name, value, _ := strings.Cut(row.env, "=")
			getenv := func(asked string) string {
				if asked == name {
					return value
				}
				return ""
			}
			testkit.WantEqual(t, "style", StyleOf(row.format, row.w, getenv), row.want)
		})
	}
}

// openTerminal opens a pseudo-terminal.
func openTerminal(t *testing.T) *os.File {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this machine has no pseudo-terminals:", err)
	}
	t.Cleanup(func() { tty.Close() })
	return tty
}
