package sim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// kubeconfig says where the server is, and which files have its CA and a credential. The names of the files are
// relative to the directory of the kubeconfig. Except for the server, any of them may be "".
type kubeconfig struct {
	server string // the URL
	ca     string // the certificates of one or more CAs

	// The credential: a token, or a client certificate and its key.
	token       string
	certificate string
	key         string

	// printed is a file with an ExecCredential, and replaces the three files above. It must have an absolute name,
	// because the program that prints it runs in another directory.
	printed string
}

// write writes the kubeconfig to a file, which only its owner can read. It ends the test if it cannot.
func (k kubeconfig) write(t testing.TB, file string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(k.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// String returns the text of the kubeconfig.
func (k kubeconfig) String() string {
	user := fields("tokenFile", k.token, "client-certificate", k.certificate, "client-key", k.key)
	if k.printed != "" {
		const program = "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, " +
			"command: cat, args: [%q]}"
		user = fmt.Sprintf(program, k.printed)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: simulated
  cluster: {%s}
users:
- name: program
  user: {%s}
contexts:
- name: only
  context: {cluster: simulated, user: program}
current-context: only
`,
		fields("server", k.server, "certificate-authority", k.ca),
		user)
}

// fields returns the fields of a YAML object. namesAndValues has names and values in turn. Fields without a value are
// left out.
func fields(namesAndValues ...string) string {
	var texts []string
	for pair := range slices.Chunk(namesAndValues, 2) {
		name := pair[0]
		value := pair[1]
		if value != "" {
			texts = append(texts, fmt.Sprintf("%s: %q", name, value))
		}
	}
	return strings.Join(texts, ", ")
}
