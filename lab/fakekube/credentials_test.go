package fakekube

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestExecPluginPrintsAnswerAndLogsRuns(t *testing.T) {
	dir := t.TempDir()
	if user := ExecUser(t, dir, "v1", ", interactiveMode: Never"); !strings.Contains(user, "/v1,") ||
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
		cmd.Env = append(os.Environ(), ExecPluginDir+"="+dir, "REGION=eu", "KUBERNETES_EXEC_INFO=why")
		cmd.Stdin = strings.NewReader("hello")
		out, err := cmd.Output()
		return string(out), err
	}
	want := ExecCredential("v1", Object{"token": "secret"})
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

func TestClientCertificateNeedsTheRightAuthority(t *testing.T) {
	trusted := NewAuthority(t, "ours")
	other := NewAuthority(t, "theirs")
	f := New()
	f.Allow("token")
	f.ClientCA = trusted.Pool()
	for _, c := range []struct {
		ca   *Authority
		want int
	}{{trusted, 200}, {other, 401}} {
		certPEM, keyPEM := c.ca.Issue(t, "me", AsAdmin)
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		r := newRequest("GET", "/api/v1/pods", "")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf}}
		if w := serve(f, r); w.Code != c.want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, c.want)
		}
	}
	received := f.Requests(IsList("pods"))
	if received[0].User != "me" || !strings.HasPrefix(received[0].String(), "GET /api/v1/pods?") {
		t.Errorf("the first request is %s, by %q", received[0], received[0].User)
	}
}
