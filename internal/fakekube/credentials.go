package fakekube

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RunExecPlugin is an exec program, for tests: it notes in dir that it ran, and how, and prints what dir/answer says.
func RunExecPlugin(dir string) int {
	stdin, _ := io.ReadAll(os.Stdin)
	run := fmt.Sprintf("%q stdin=%q REGION=%s %s\n", os.Args[1:], stdin, os.Getenv("REGION"), os.Getenv("KUBERNETES_EXEC_INFO"))
	runs, _ := os.OpenFile(filepath.Join(dir, "runs"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	runs.WriteString(run)
	runs.Close()
	answer, _ := os.ReadFile(filepath.Join(dir, "answer"))
	if trouble, ok := strings.CutPrefix(string(answer), "exit "); ok {
		fmt.Fprintln(os.Stderr, trouble)
		return 1
	} else if string(answer) == "hang" {
		signal.Ignore(os.Interrupt)
		<-time.After(time.Hour)
	}
	os.Stdout.Write(answer)
	return 0
}

// ExecUser is the kubeconfig's user for plugin in dir, with more fields.
func ExecUser(t *testing.T, dir, version, more string) string {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("exec: {apiVersion: client.authentication.k8s.io/%s, command: %s, args: [get, \"a token\"], env: [{name: PODCOUNT_TEST_PLUGIN, value: %s}, {name: REGION, value: eu}]%s}", version, self, dir, more)
}

func ExecCredential(version string, status Object) string {
	text, _ := json.Marshal(Object{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/" + version, "status": status})
	return string(text)
}
