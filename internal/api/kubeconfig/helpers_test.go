package kubeconfig

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

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
// Load makes of it. It logs to out.
func loadTokenFile(t *testing.T, dir string, out io.Writer) *Config {
	t.Helper()
	testkit.WriteFiles(t, dir, map[string]string{
		"token":  "one",
		"config": fakekube.Kubeconfig("https://h", nil, "tokenFile: token"),
	})
	return mustLoad(t, dir+"/config", out)
}

// mustLoad loads a kubeconfig that must be valid, until the test ends. It logs to out.
func mustLoad(t *testing.T, file string, out io.Writer) *Config {
	t.Helper()
	cfg, err := Load(t.Context(), Options{Kubeconfig: file, Getenv: noEnv, Log: logTo(out)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cfg.Close)
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

// call is a call that runs in a goroutine. Its results can be read once done is closed.
type call[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func begin[T any](f func() (T, error)) *call[T] {
	c := &call[T]{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.value, c.err = f()
	}()
	return c
}

// beginCredential calls Credential.
func beginCredential(ctx context.Context, cfg *Config, refused *Credential) *call[*Credential] {
	return begin(func() (*Credential, error) { return cfg.Credential(ctx, refused) })
}

// wait fails the test unless the call ends within ten seconds.
func (c *call[T]) wait(t *testing.T, what string) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s takes too long", what)
	}
}

// wantTokenOf fails the test unless a call of Credential returned this token.
func wantTokenOf(t *testing.T, c *call[*Credential], want string) {
	t.Helper()
	c.wait(t, "Credential")
	if c.err != nil {
		t.Errorf("got the error %v, want the token %q", c.err, want)
		return
	}
	testkit.WantEqual(t, "token", c.value.Token, want)
}

// wantErrorText fails the test unless the whole text of an error is want.
func wantErrorText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("got the error %v\nwant %s", err, want)
	}
}
