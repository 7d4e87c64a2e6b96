// Package execplugin turns a test binary into the exec plugin of a kubeconfig.
//
// An exec plugin is a program that a kubeconfig names instead of a credential. The client runs it with its request in
// the environment variable KUBERNETES_EXEC_INFO, and reads the credential from its output, an ExecCredential in JSON.
// The command-line tools of clouds work that way.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
//
// A test can use its own binary as the plugin, so there is nothing to build. TestMain must call Run first:
//
//	func TestMain(m *testing.M) {
//		if dir := os.Getenv(execplugin.Dir); dir != "" {
//			os.Exit(execplugin.Run(dir))
//		}
//		os.Exit(m.Run())
//	}
//
// A test then creates a directory for the plugin, writes the output of Credential to the file answer there, and gives
// the client a kubeconfig with User as its user.
package execplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Dir is the environment variable that turns a test binary into the exec plugin. Its value is the plugin's directory.
const Dir = "PODCOUNT_TEST_PLUGIN"

// Run makes the test binary act as an exec plugin, and returns its exit code.
//
// Each run appends a line to dir/runs: the arguments, the standard input, and the environment variables REGION and
// KUBERNETES_EXEC_INFO. Then it prints the contents of dir/answer and succeeds, with two exceptions:
// - "exit TEXT" prints TEXT to stderr and fails;
// - "hang" prints nothing for an hour and ignores interrupts.
//
// If it cannot access one of the files, it prints the error to stderr and fails.
func Run(dir string) (exitCode int) {
	answer, err := recordRun(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	problem, fails := strings.CutPrefix(string(answer), "exit ")
	if fails {
		fmt.Fprintln(os.Stderr, problem)
		return 1
	}
	if string(answer) == "hang" {
		signal.Ignore(os.Interrupt)
		<-time.After(time.Hour)
	}
	os.Stdout.Write(answer)
	return 0
}

// recordRun appends a line about this run to the file runs, and returns the contents of the file answer.
func recordRun(dir string) (answer []byte, err error) {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	runs, err := os.OpenFile(filepath.Join(dir, "runs"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(runs, "%q stdin=%q REGION=%s %s\n",
		os.Args[1:], stdin, os.Getenv("REGION"), os.Getenv("KUBERNETES_EXEC_INFO"))
	if err := errors.Join(err, runs.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "answer"))
}

// User returns the user for fakekube.Kubeconfig whose credential comes from the exec plugin in a directory. The plugin
// runs with an argument "a token", which contains a space, and with REGION=eu. version is that of the API
// client.authentication.k8s.io, such as "v1". more adds fields in YAML's flow style, such as ", interactiveMode:
// Never".
func User(t testing.TB, dir, version, more string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("exec: {apiVersion: client.authentication.k8s.io/%s, command: %s, args: [get, \"a token\"], "+
		"env: [{name: %s, value: %s}, {name: REGION, value: eu}]%s}", version, self, Dir, dir, more)
}

// Credential returns the output of an exec plugin in JSON. version is that of client.authentication.k8s.io, such as
// "v1"; status is the credential, such as {"token": "secret"}.
// https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
func Credential(version string, status map[string]any) string {
	text, _ := json.Marshal(map[string]any{
		"kind":       "ExecCredential",
		"apiVersion": "client.authentication.k8s.io/" + version,
		"status":     status,
	})
	return string(text)
}
