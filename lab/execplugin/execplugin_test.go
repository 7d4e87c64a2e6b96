package execplugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(Dir); dir != "" {
		os.Exit(Run(dir))
	}
	os.Exit(m.Run())
}

func TestExecPluginPrintsAnswerAndLogsRuns(t *testing.T) {
	dir := t.TempDir()
	if user := User(t, dir, "v1", ", interactiveMode: Never"); !strings.Contains(user, "/v1,") ||
		!strings.Contains(user, "value: "+dir) || !strings.HasSuffix(user, ", interactiveMode: Never}") {
		t.Errorf("the user is %s", user)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(answer string) (stdout string, err error) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "answer"), []byte(answer), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "get", "a token")
		cmd.Env = append(os.Environ(), Dir+"="+dir, "REGION=eu", "KUBERNETES_EXEC_INFO=why")
		cmd.Stdin = strings.NewReader("hello")
		out, err := cmd.Output()
		return string(out), err
	}
	want := Credential("v1", map[string]any{"token": "secret"})
	if got, err := run(want); err != nil || got != want {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if got, err := run("exit no luck"); err == nil || got != "" {
		t.Errorf("it should have failed: %q", got)
	}
	runs, err := os.ReadFile(filepath.Join(dir, "runs"))
	line := `["get" "a token"] stdin="hello" REGION=eu why` + "\n"
	if err != nil || string(runs) != line+line {
		t.Errorf("it was run as %q, %v", runs, err)
	}
}
