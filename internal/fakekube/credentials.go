package fakekube

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// Kubeconfig is a kubeconfig for a server's URL, with its CA in PEM, and as user the lines of YAML below "user:",
// such as "token: secret"; all but the first are indented by 4 spaces. Its one context, which is current, is "fake".
func Kubeconfig(server string, ca []byte, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: fake
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: me
  user:
    %s
contexts:
- name: fake
  context: {cluster: fake, user: me}
current-context: fake
`, server, base64.StdEncoding.EncodeToString(ca), user)
}

// ExecPluginDir is the environment variable that makes a test's binary the exec plugin. Its value is the plugin's
// directory. RunExecPlugin says how to use it.
const ExecPluginDir = "PODCOUNT_TEST_PLUGIN"

// RunExecPlugin makes the binary of a test an exec plugin, and returns its exit code.
//
// An exec plugin is a program that a kubeconfig names in place of a credential. The client runs it, tells it in the
// environment variable KUBERNETES_EXEC_INFO what it is run for, and takes the credential that it prints, an
// ExecCredential in JSON. Clouds' command lines are such programs.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
//
// For tests, the binary of the test itself is one: there is nothing to build. TestMain of the package must hook it in,
// before anything else:
//
//	func TestMain(m *testing.M) {
//		if dir := os.Getenv(fakekube.ExecPluginDir); dir != "" {
//			os.Exit(fakekube.RunExecPlugin(dir))
//		}
//		os.Exit(m.Run())
//	}
//
// A test then makes a directory for the plugin, writes what it is to print to the file answer there (ExecCredential),
// and gives the client a kubeconfig whose user is ExecUser.
//
// Each run adds a line to dir/runs: the arguments, what came on stdin, and the environment variables REGION and
// KUBERNETES_EXEC_INFO. Then it prints what the file dir/answer says, and succeeds; but
//   - after "exit ", the rest is printed to stderr, and it fails;
//   - for "hang", it prints nothing for an hour, and ignores an interrupt.
//
// Where it cannot write the one file or read the other, it says so on stderr, and fails.
func RunExecPlugin(dir string) (exitCode int) {
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

// recordRun adds a line about this run to the exec plugin's file runs, and returns what its file answer says.
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

// ExecUser is the user of a kubeconfig, as Kubeconfig wants it, whose credential comes from the exec plugin in a
// directory. The plugin gets an argument "a token", with a blank, and REGION=eu. version is that of the API
// client.authentication.k8s.io, such as "v1". more are more fields in YAML's flow style, such as
// ", interactiveMode: Never".
func ExecUser(t TB, dir, version, more string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("exec: {apiVersion: client.authentication.k8s.io/%s, command: %s, args: [get, \"a token\"], "+
		"env: [{name: %s, value: %s}, {name: REGION, value: eu}]%s}", version, self, ExecPluginDir, dir, more)
}

// ExecCredential is what an exec plugin prints: JSON, of a version of client.authentication.k8s.io such as "v1", with
// the credential as its status, such as {"token": "secret"}.
// https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
func ExecCredential(version string, status Object) string {
	text, _ := json.Marshal(Object{
		"kind":       "ExecCredential",
		"apiVersion": "client.authentication.k8s.io/" + version,
		"status":     status,
	})
	return string(text)
}
