package kubeconfig

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"podcount/lab/execplugin"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(execplugin.Dir); dir != "" {
		os.Exit(execplugin.Run(dir))
	}
	os.Exit(testkit.RunTests(m))
}

// noEnv is an empty environment.
func noEnv(string) string { return "" }

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// loadTokenFile writes a kubeconfig to dir/config whose tokenFile is dir/token, with the token "one", and returns what
// Load makes of it.
func loadTokenFile(t *testing.T, dir string) *Config {
	t.Helper()
	testkit.WriteFiles(t, dir, map[string]string{
		"token":  "one",
		"config": fakekube.Kubeconfig("https://h", nil, "tokenFile: token"),
	})
	cfg, err := Load(t.Context(), Options{Kubeconfig: dir + "/config", Getenv: noEnv})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// mustCredential returns the credential that cfg has now.
func mustCredential(t *testing.T, cfg *Config) *Credential {
	t.Helper()
	cred, err := cfg.Credential(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cred
}

// wantToken fails the test unless the token of the credential that cfg has now is want.
func wantToken(t *testing.T, cfg *Config, want string) {
	t.Helper()
	testkit.WantEqual(t, "token", mustCredential(t, cfg).Token, want)
}

// wantTokenOf fails the test unless a call of Credential returned this token.
func wantTokenOf(t *testing.T, call *task[*Credential], want string) {
	t.Helper()
	if call.wait(t.Context()) != nil || call.err != nil {
		t.Errorf("got the error %v, want the token %q", call.err, want)
		return
	}
	testkit.WantEqual(t, "token", call.value.Token, want)
}

// wantErrorText fails the test unless the whole text of an error is want.
func wantErrorText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("got the error %v\nwant %s", err, want)
	}
}
