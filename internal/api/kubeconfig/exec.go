package kubeconfig

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// execPlugin is a program that prints a credential.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
type execPlugin struct {
	// What the kubeconfig says.
	apiVersion string // the version of both execInfo and the program's answer
	command    string
	args       []string
	env        []string     // additional environment variables, each as NAME=VALUE
	cluster    *execCluster // for the program; nil if the kubeconfig does not ask for it
	hint       string       // how to install the program

	// path is the path of the command. It is looked up only once, because a directory in $PATH may hang later.
	path string

	timeout time.Duration // for one run

	// The last run. Only the running renewal uses these fields.
	result execStatus // of the last run that succeeded
	err    error      // of the last run
	ranAt  time.Time  // the end of the last run
}

// execCluster is the cluster for which the program provides a credential.
type execCluster struct {
	Server                   string `json:"server"`
	TLSServerName            string `json:"tls-server-name,omitempty"`
	InsecureSkipTLSVerify    bool   `json:"insecure-skip-tls-verify,omitempty"`
	CertificateAuthorityData []byte `json:"certificate-authority-data,omitempty"`
	ProxyURL                 string `json:"proxy-url,omitempty"`
	DisableCompression       bool   `json:"disable-compression,omitempty"`
	Config                   any    `json:"config"` // an extension of the kubeconfig, which only the program understands
}

// execStatus is the program's result. https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
type execStatus struct {
	ExpirationTimestamp   *time.Time // nil if it is not known
	Token                 string
	ClientCertificateData string // PEM
	ClientKeyData         string // PEM
}

// isGood reports whether there is a credential that has not expired.
func (s *execStatus) isGood() bool {
	expires := s.ExpirationTimestamp
	isGiven := s.Token != "" || s.ClientCertificateData != ""
	return isGiven && (expires == nil || time.Now().Before(*expires))
}

// newest returns the newest result of the program. It runs the program first if there is no result yet, if the last run
// has failed, if the result has expired, or if the server has refused it. Two runs are at least minExecInterval apart.
// If a run fails, newest returns both the error and the previous result, which may still be good.
func (e *execPlugin) newest(ctx context.Context, wasRefused bool) (*execStatus, error) {
	isDue := !e.result.isGood() || e.err != nil || wasRefused
	if isDue && time.Since(e.ranAt) >= minExecInterval {
		result, err := e.run(ctx)
		if err == nil {
			e.result = result
		}
		e.err = err
		e.ranAt = time.Now()
	}
	return &e.result, e.err
}

// lookUp finds the program in $PATH. It fails if the kubeconfig does not say enough to run it.
func (e *execPlugin) lookUp(ctx context.Context) error {
	if e.command == "" {
		return errors.New("exec: the command is missing")
	}
	version, isOfGroup := strings.CutPrefix(e.apiVersion, "client.authentication.k8s.io/")
	if !isOfGroup || version != "v1" && version != "v1beta1" {
		return fmt.Errorf("exec: the apiVersion %q must be client.authentication.k8s.io/v1 or v1beta1: "+
			"write the kubeconfig again with a newer version of the tool that wrote it", e.apiVersion)
	}
	path, err := within(ctx, fileTimeout, e.command, exec.LookPath)
	if err != nil {
		hint := cmp.Or(e.hint, "install it, make it executable, or give its path")
		why := errors.Unwrap(err) // without the name of the command, which precedes it here
		return fmt.Errorf("exec: %q: %w; %s", e.command, why, hint)
	}
	e.path = path
	return nil
}

// run runs the program once. No error quotes its standard output, which may contain a secret.
//
// After a run without a credential, it kills the processes that the program has started: the next run would leave one
// more. After a run with a credential, they run on: they may be an agent for the next run.
func (e *execPlugin) run(ctx context.Context) (execStatus, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.timeout, fmt.Errorf("it took longer than %v", e.timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, e.path, e.args...) // its standard input is empty
	separate(cmd)
	cmd.Cancel = func() error { return killFamily(cmd) }
	result, err := e.ask(ctx, cmd)
	if err != nil && cmd.Process != nil {
		killFamily(cmd)
	}
	if err != nil {
		return execStatus{}, fmt.Errorf("exec: %s: %w", e.command, err)
	}
	return result, nil
}

// ask starts the program, and returns the credential that it prints.
func (e *execPlugin) ask(ctx context.Context, cmd *exec.Cmd) (execStatus, error) {
	info, err := json.Marshal(map[string]any{ // an ExecCredential, as the program's input
		"apiVersion": e.apiVersion,
		"kind":       "ExecCredential",
		"spec": struct {
			Cluster     *execCluster `json:"cluster,omitempty"`
			Interactive bool         `json:"interactive"`
		}{Cluster: e.cluster},
	})
	if err != nil {
		return execStatus{}, err
	}
	stdout := beginning{limit: maxExecOutput + 1}
	stderr := beginning{limit: 4096}
	cmd.Env = append(os.Environ(), e.env...)
	cmd.Env = append(cmd.Env, "KUBERNETES_EXEC_INFO="+string(info))
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second // the program's children may keep its standard output open
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return execStatus{}, context.Cause(ctx)
	case len(stdout.text) > maxExecOutput:
		return execStatus{}, errors.New("it printed more than 1 MB")
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return execStatus{}, fmt.Errorf("%w; it printed %q", err, shortened(stderr.text, 300))
	}
	return e.parse(stdout.text)
}

// parse parses what the program printed, which must be an ExecCredential.
func (e *execPlugin) parse(printed []byte) (execStatus, error) {
	var answer struct {
		APIVersion string
		Kind       string
		Status     execStatus
	}
	if err := json.Unmarshal(printed, &answer); err != nil {
		return execStatus{}, fmt.Errorf("the %d bytes that it printed are not an ExecCredential: %s",
			len(printed), shortened([]byte(err.Error()), 300))
	}
	if answer.Kind != "ExecCredential" || answer.APIVersion != e.apiVersion {
		return execStatus{}, fmt.Errorf("it printed a %.100q of %.100q, not an ExecCredential of %s",
			answer.Kind, answer.APIVersion, e.apiVersion)
	}
	got := answer.Status
	hasCert := got.ClientCertificateData != ""
	hasKey := got.ClientKeyData != ""
	hasNothing := got.Token == "" && !hasCert
	if hasNothing || hasCert != hasKey {
		return execStatus{}, errors.New("it must give a token, or both clientCertificateData and clientKeyData")
	}
	if err := checkToken([]byte(got.Token)); err != nil {
		return execStatus{}, fmt.Errorf("it printed a token that %w", err)
	}
	if !hasCert {
		return got, nil
	}
	if _, err := tls.X509KeyPair([]byte(got.ClientCertificateData), []byte(got.ClientKeyData)); err != nil {
		return execStatus{}, fmt.Errorf("it printed a certificate and a key that cannot be used: %w", err)
	}
	return got, nil
}

// beginning keeps the first bytes that a program prints, and drops the rest.
type beginning struct {
	text  []byte
	limit int
}

func (b *beginning) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), b.limit-len(b.text))]...)
	return len(p), nil
}

// shortened returns the first bytes of a text, on one line.
func shortened(text []byte, limit int) string {
	line := strings.Join(strings.Fields(string(text)), " ")
	return line[:min(len(line), limit)]
}
