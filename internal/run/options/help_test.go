package options

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"podcount/lab/testkit"
)

func TestHelpIsTheSameInItsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	_, help, _ := strings.Cut(string(page), "`podcount -h` prints this:\n\n```text\n")
	help, _, _ = strings.Cut(help, "```\n")
	testkit.WantEqual(t, "the help in docs/flags.md", help, printed(t, "-h"))
}

func TestHelpIsAtMost100ColumnsWide(t *testing.T) {
	for line := range strings.Lines(printed(t, "-h")) {
		n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
		if n > helpColumns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	help := printed(t, "-h")
	n := 0
	newCommandLine(testProgram).flags.VisitAll(func(f *flag.Flag) {
		n++
		if !regexp.MustCompile(`(?m)^  -` + f.Name + `[ \[]`).MatchString(help) {
			t.Errorf("the help lacks -%s", f.Name)
		}
	})
	if n < 30 {
		t.Errorf("there are %d flags", n)
	}
}

func TestHelpShowsDefaults(t *testing.T) {
	help := strings.Join(strings.Fields(printed(t, "-h")), " ")
	rows := []struct{ name, want string }{
		{"wire", "protobuf"},
		{"controllers", "*"},
		{"total-label", "hopegi/pod-count"},
		{"pod-events", "on"},
		{"interval", "10s"},
		{"qps", "20"},
		{"burst", "40"},
		{"workers", "4"},
		{"once-timeout", "10m"},
		{"leader-elect-lease-duration", "15s"},
		{"leader-elect-renew-deadline", "10s"},
		{"leader-elect-retry-period", "2s"},
		{"leader-elect-resource-name", "podcount"},
		{"v", "0"},
		{"log-format", "auto"},
		{"image", "podcount:latest"},
		{"manifest-namespace", "kube-system"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, about, _ := strings.Cut(help, " -"+row.name+" ")
			_, about, _ = strings.Cut(about, "(default ")
			got, _, _ := strings.Cut(about, ")")
			testkit.WantEqual(t, "the default in the help", got, row.want)
		})
	}
}

func TestWrapBreaksBetweenWords(t *testing.T) {
	rows := []struct {
		name, text string
		want       []string
	}{
		{"fits", "a bc", []string{"a bc"}},
		{"is too long", "a bc def", []string{"a bc", "def"}},
		{"has a word that is too long", "a bcdefg h", []string{"a", "bcdefg", "h"}},
		{"counts characters, not bytes", "×× ×", []string{"×× ×"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			testkit.WantEqual(t, "lines", wrap(row.text, 4), row.want)
		})
	}
}
