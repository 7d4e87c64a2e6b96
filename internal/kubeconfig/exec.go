package kubeconfig

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// execPlugin is a program that prints a credential.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
type execPlugin struct {
	apiVersion string // of what it is told and prints
	command    string
	path       string // of command, looked up once: a folder of $PATH may hang later
	hint       string // the kubeconfig's, where the program is not installed
	args       []string
	env        []string      // more of it, each as NAME=VALUE
	cluster    *execCluster  // nil: the program does not ask for it
	limit      time.Duration // of a run

	// Only the running renewal uses these.
	got   execStatus // of the last run that succeeded
	err   error      // of the last run
	ranAt time.Time  // the last run's end
}

// execInfo is what the program is told, in $KUBERNETES_EXEC_INFO.
type execInfo struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Spec       execSpec `json:"spec"`
}

type execSpec struct {
	Cluster     *execCluster `json:"cluster,omitempty"`
	Interactive bool         `json:"interactive"`
}

// execCluster is the cluster that a credential is for.
type execCluster struct {
	Server                   string `json:"server"`
	TLSServerName            string `json:"tls-server-name,omitempty"`
	InsecureSkipTLSVerify    bool   `json:"insecure-skip-tls-verify,omitempty"`
	CertificateAuthorityData []byte `json:"certificate-authority-data,omitempty"`
	ProxyURL                 string `json:"proxy-url,omitempty"`
	DisableCompression       bool   `json:"disable-compression,omitempty"`
	Config                   any    `json:"config"` // the kubeconfig's, for the program
}

// execStatus is what the program gives. https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
type execStatus struct {
	ExpirationTimestamp                         *time.Time // nil: no end is known
	Token, ClientCertificateData, ClientKeyData string     // the last two in PEM
}

// isGood reports whether there is a credential that has not expired.
func (s *execStatus) isGood() bool {
	expires := s.ExpirationTimestamp
	isGiven := s.Token != "" || s.ClientCertificateData != ""
	return isGiven && (expires == nil || time.Now().Before(*expires))
}

// newest returns what the program gave last. It runs the program first if that has expired or was refused, but at
// most once per execPause. With an error it still returns what it had before, which may be good.
func (e *execPlugin) newest(ctx context.Context, wasRefused bool) (*execStatus, error) {
	due, ends := e.dueAt()
	isDue := ends && !time.Now().Before(due)
	if isDue || wasRefused && time.Since(e.ranAt) >= execPause {
		got, err := e.run(ctx)
		if err == nil {
			e.got = got
		}
		e.err = err
		e.ranAt = time.Now()
	}
	return &e.got, e.err
}

// dueAt returns when the program is to run next, if what it gave does end.
func (e *execPlugin) dueAt() (due time.Time, ends bool) {
	pauseEnds := e.ranAt.Add(execPause)
	expires := e.got.ExpirationTimestamp
	switch {
	case e.ranAt.IsZero():
		return e.ranAt, true
	case e.err != nil:
		return pauseEnds, true
	case expires == nil:
		return time.Time{}, false
	case expires.Before(pauseEnds):
		return pauseEnds, true
	}
	return *expires, true
}

// check returns an error unless the kubeconfig says what is needed to run the program.
func (e *execPlugin) check() error {
	if e.command == "" {
		return errors.New("exec: there is no command in it")
	}
	switch e.apiVersion {
	case "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1":
		return nil
	}
	return fmt.Errorf("exec: the apiVersion %q is neither v1 nor v1beta1: "+
		"let the tool that wrote this file write it again", e.apiVersion)
}

// lookUp finds the program.
func (e *execPlugin) lookUp(ctx context.Context) error {
	path, err := within(ctx, fileTime, e.command, exec.LookPath)
	if err != nil {
		hint := cmp.Or(e.hint, "install it, make it executable, or write its path")
		return fmt.Errorf("exec: %q: %w; %s", e.command, errors.Unwrap(err), hint)
	}
	e.path = path
	return nil
}

// run runs the program once. No error says what it printed on stdout.
func (e *execPlugin) run(ctx context.Context) (execStatus, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.limit, fmt.Errorf("it took longer than %v", e.limit))
	defer cancel()
	printed, err := e.output(ctx)
	if err != nil {
		return execStatus{}, err
	}
	return e.read(printed)
}

// output runs the program, and returns what it printed.
func (e *execPlugin) output(ctx context.Context) ([]byte, error) {
	told := execInfo{APIVersion: e.apiVersion, Kind: "ExecCredential"}
	told.Spec.Cluster = e.cluster
	info, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, cmp.Or(e.path, e.command), e.args...) // its stdin is empty
	cmd.Env = append(os.Environ(), e.env...)
	cmd.Env = append(cmd.Env, "KUBERNETES_EXEC_INFO="+string(info))
	cmd.WaitDelay = time.Second // where its children hold its stdout open
	var out capped
	var said beginning
	cmd.Stdout = &out
	cmd.Stderr = &said
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("exec: %s: %w", e.command, context.Cause(ctx))
	}
	if len(out) > execOutput {
		return nil, fmt.Errorf("exec: %s: it printed more than 1 MB", e.command)
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, fmt.Errorf("exec: %s: %w, saying %q", e.command, err, shortened(said, 300))
	}
	return out, nil
}

// read reads what the program printed, an ExecCredential.
func (e *execPlugin) read(printed []byte) (execStatus, error) {
	var answer struct {
		APIVersion, Kind string
		Status           execStatus
	}
	if err := json.Unmarshal(printed, &answer); err != nil {
		return execStatus{}, fmt.Errorf("exec: %s: what it printed (%d bytes) is no ExecCredential: %w",
			e.command, len(printed), err)
	}
	if answer.Kind != "ExecCredential" || answer.APIVersion != e.apiVersion {
		return execStatus{}, fmt.Errorf("exec: %s printed a %q of %q, not an ExecCredential of %s",
			e.command, answer.Kind, answer.APIVersion, e.apiVersion)
	}
	got := answer.Status
	hasCert := got.ClientCertificateData != ""
	hasKey := got.ClientKeyData != ""
	if got.Token == "" && !hasCert || hasCert != hasKey {
		return execStatus{}, fmt.Errorf("exec: %s gave no token, and no clientCertificateData with clientKeyData",
			e.command)
	}
	if !hasCert {
		return got, nil
	}
	_, err := tls.X509KeyPair([]byte(got.ClientCertificateData), []byte(got.ClientKeyData))
	if err != nil {
		return execStatus{}, fmt.Errorf("exec: the certificate and key that %s gave: %w", e.command, err)
	}
	return got, nil
}

// capped is what a program prints; one that prints more than execOutput is cut off.
type capped []byte

func (c *capped) Write(p []byte) (int, error) {
	if *c = append(*c, p...); len(*c) > execOutput {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// beginning is the beginning of what a program says on stderr; the rest is dropped.
type beginning []byte

func (b *beginning) Write(p []byte) (int, error) {
	const limit = 4096
	*b = append(*b, p[:min(len(p), limit-len(*b))]...)
	return len(p), nil
}

// shortened returns the beginning of a text, on one line.
func shortened(text []byte, limit int) string {
	line := strings.Join(strings.Fields(string(text)), " ")
	return line[:min(len(line), limit)]
}
