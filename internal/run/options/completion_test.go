package options

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func TestWordsPrintWhatTheirFlagsPrint(t *testing.T) {
	testkit.WantEqual(t, "help", printed(t, "help"), printed(t, "-h"))
	testkit.WantEqual(t, "version", printed(t, "version"), printed(t, "-version"))
	testkit.WantEqual(t, "help after a flag", printed(t, "-once -v=2\nhelp"), printed(t, "-h"))
}

func TestWrongWordsAreUsageErrors(t *testing.T) {
	rows := []struct{ line, want string }{
		{"halp", `unexpected argument "halp": without a hyphen, there are help, version and completion`},
		{"help\nme", `unexpected argument "help me"`},
		{"help\n-once", `unexpected argument "help -once"`},
		{"-dry-run\nfalse", `unexpected argument "false"`},
		{"completion", "completion needs the name of a shell: bash, zsh or fish"},
		{"completion\ntcsh", "completion needs the name of a shell: bash, zsh or fish"},
		{"completion\nbash\nzsh", "completion needs the name of a shell: bash, zsh or fish"},
	}
	for _, row := range rows {
		t.Run(row.line, func(t *testing.T) { wantUsageError(t, row.line, row.want) })
	}
}

func TestEveryFlagIsCompleted(t *testing.T) {
	c := newCommandLine(testProgram)
	var completed []string
	for _, f := range c.completions() {
		completed = append(completed, f.flag)
	}
	want := []string{"-h"}
	c.flags.VisitAll(func(f *flag.Flag) { want = append(want, "-"+f.Name) })
	slices.Sort(completed)
	slices.Sort(want)
	testkit.WantEqual(t, "the flags", completed, want)
}

// completionRow is a command line, and what a shell offers for its last word. FILES is the name of a file. If the line
// ends with a blank, its last word is empty.
type completionRow struct{ line, want string }

var completionRows = []completionRow{
	{"podcount -wi", "-wire"},
	{"podcount -wire ", "json protobuf"},
	{"podcount -wire=", "json protobuf"},
	{"podcount -log-format=j", "json"},
	{"podcount -pod-events o", "off on"},
	{"podcount -controllers ", "count help pod-count pod-printer"},
	{"podcount -once -pr", "-prune"},
	{"podcount -v 4 -pr", "-prune"},
	{"podcount -manifest -image-", "-image-pull-secrets"},
	{"podcount -manifest=pol", "policy"},
	{"podcount -qps ", ""},
	{"podcount -qps=", ""},
	{"podcount -kubeconfig ", "FILES"},
	{"podcount -page-token-file=", "FILES"},
	{"podcount vers", "version"},
	{"podcount completion ", "bash fish zsh"},
}

// savedScript returns the name of a file with the script of a shell. It skips the test if the shell is not installed.
func savedScript(t *testing.T, shell string) string {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(printed(t, "completion\n"+shell)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// outputOf runs a command in a folder with the one file FILES, and returns the words that it prints, sorted.
func outputOf(t *testing.T, command string, args ...string) string {
	t.Helper()
	run := exec.Command(command, args...)
	run.Dir = t.TempDir()
	run.Env = append(os.Environ(), "HOME="+run.Dir)
	if err := os.WriteFile(filepath.Join(run.Dir, "FILES"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", run, err, output)
	}
	return strings.Join(slices.Sorted(strings.FieldsSeq(string(output))), " ")
}

func TestBashCompletes(t *testing.T) {
	script := savedScript(t, "bash")
	// compopt works only while readline completes.
	const call = `. "$0"; compopt() { [ "$*" = "-o default" ] && echo FILES; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _podcount; echo "${COMPREPLY[@]}"`
	// Readline replaces the last word by what is offered only if both begin alike.
	rows := append(slices.Clone(completionRows), completionRow{"podcount -once --wi", "--wire"})
	for _, row := range rows {
		t.Run(row.line, func(t *testing.T) {
			words := strings.Split(strings.ReplaceAll(row.line, "=", " = "), " ")
			if strings.HasSuffix(row.line, "=") {
				words = words[:len(words)-1] // The last word is then the equals sign.
			}
			testkit.WantEqual(t, "bash offers", outputOf(t, "bash", append([]string{"-c", call, script}, words...)...), row.want)
		})
	}
}

func TestFishCompletes(t *testing.T) {
	script := savedScript(t, "fish")
	const call = "source $argv[1]; complete -C $argv[2] | string replace -r '\t.*' '' | string replace -r '^-.*=' ''; true"
	for _, row := range completionRows {
		t.Run(row.line, func(t *testing.T) {
			testkit.WantEqual(t, "fish offers", outputOf(t, "fish", "-c", call, script, row.line), row.want)
		})
	}
}

// Zsh completes only in a terminal. Here, a function stands for its own, and must get one argument for each flag, and
// two for the words.
func TestZshIsGivenEveryFlag(t *testing.T) {
	script := savedScript(t, "zsh")
	const call = `compdef() { [[ "$*" = "_podcount podcount" ]] && _podcount }; _arguments() { echo $# }; . $1`
	testkit.WantEqual(t, "arguments of _arguments",
		outputOf(t, "zsh", "-f", "-c", call, "zsh", script), fmt.Sprint(len(newCommandLine(testProgram).completions())+2))
}
