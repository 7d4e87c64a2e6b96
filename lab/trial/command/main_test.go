package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podcount/lab/trial"
)

func TestExitCodes(t *testing.T) {
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-h"}, 0, "./mine --kubeconfig $KUBECONFIG"},
		{[]string{"-list"}, 0, "watch half-open"},
		{[]string{"-no-such-flag"}, 2, "-no-such-flag"},
		{[]string{"-parallel", "0"}, 2, "at least one row must run"},
		{[]string{"./mine", "too"}, 2, `"too" is another one`},
		{[]string{"-only", "nothing", "true"}, 2, `"nothing"`},
		{[]string{"-only", "counts", "-cluster", "/no/such/file", "true"}, 2, "/no/such/file"},
		{[]string{"-only", "calm/counts", "exit 3"}, 1, "on trial: exit 3\n"},
		{[]string{"-only", "calm/counts", "-json", "/no/such/dir/f", "exit 3"}, 2, "/no/such/dir/f"},
		{[]string{"-only", "counts,wacth", "exit 3"}, 2, `"wacth" in its group or name; there are calm/counts, `},
		{[]string{"-only", "two replicas", "exit 3"}, 0, "does not say that it elects"},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			var out bytes.Buffer
			if code := run(t.Context(), row.args, &out, &out); code != row.code {
				t.Errorf("the code is %d, want %d", code, row.code)
			}
			if !strings.Contains(out.String(), row.says) {
				t.Errorf("it does not say %s:\n%s", row.says, &out)
			}
		})
	}
}

func TestListExplainsEachRow(t *testing.T) {
	var out bytes.Buffer
	run(t.Context(), []string{"-list"}, &out, &out)
	for _, row := range trial.Rows() {
		for _, want := range []string{row.Group + "/" + row.Name + "\n", row.Happens, row.Why, row.Report} {
			if want == "" || !strings.Contains(out.String(), want) {
				t.Errorf("%s: the list lacks %q", row.Name, want)
			}
		}
	}
}

func TestReportsAreWritten(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	var out bytes.Buffer
	run(t.Context(), []string{
		"-only", "calm/counts", "-json", file("json"), "-html", file("html"), "-lines", file("lines"), "exit 3",
	}, &out, &out)
	for name, want := range map[string]string{
		"json":  `"Verdict": "exited"`,
		"html":  "0 rows passed, 1 failed",
		"lines": "calm\tcounts\texited\t0.0\t0\t",
	} {
		text, err := os.ReadFile(file(name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: %s lacks %q:\n%s", err, name, want, text)
		}
	}
}
