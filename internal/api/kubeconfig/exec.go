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

// execInfo is the program's input, in the environment variable KUBERNETES_EXEC_INFO.
type execInfo struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Spec       execSpec `json:"spec"`
}

type execSpec struct {
	Cluster     *execCluster `json:"cluster,omitempty"`
	Interactive bool         `json:"interactive"`
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

// newest returns the newest result of the program. It runs the program first if there is no result yet, if the result
// has expired, or if the server has refused it. Two runs are at least minExecInterval apart. If a run fails, newest
// returns both the error and the previous result, which may still be good.
func (e *execPlugin) newest(ctx context.Context, wasRefused bool) (*execStatus, error) {
	due, expires := e.rerunAt()
	isDue := expires && !time.Now().Before(due)
	mayRunAgain := time.Since(e.ranAt) >= minExecInterval
	mustReplace := wasRefused && mayRunAgain
	if isDue || mustReplace {
		result, err := e.run(ctx)
		if err == nil {
			e.result = result
		}
		e.err = err
		e.ranAt = time.Now()
	}
	return &e.result, e.err
}

// rerunAt returns when to run the program next. expires is false if its result never expires.
func (e *execPlugin) rerunAt() (due time.Time, expires bool) {
	pauseEnd := e.ranAt.Add(minExecInterval)
	expiration := e.result.ExpirationTimestamp
	switch {
	case e.ranAt.IsZero(): // The program has not run yet, so it is due already.
		return e.ranAt, true
	case e.err != nil: // The last run failed, so try again soon.
		return pauseEnd, true
	case expiration == nil:
		return time.Time{}, false
	case expiration.Before(pauseEnd):
		return pauseEnd, true
	default:
		return *expiration, true
	}
}

// check returns an error if the kubeconfig does not say enough to run the program.
func (e *execPlugin) check() error {
	if e.command == "" {
		return errors.New("exec: the command is missing")
	}
	switch e.apiVersion {
	case "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1":
		return nil
	}
	return fmt.Errorf("exec: the apiVersion %q must be client.authentication.k8s.io/v1 or v1beta1: "+
		"write the kubeconfig again with a newer version of the tool that wrote it", e.apiVersion)
}

// lookUp finds the program in $PATH.
func (e *execPlugin) lookUp(ctx context.Context) error {
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
	family, err := newFamily(cmd)
	if err != nil {
		return execStatus{}, fmt.Errorf("exec: %s: %w", e.command, err)
	}
	defer family.close()
	cmd.Cancel = family.kill
	result, err := e.ask(ctx, family)
	if err != nil && cmd.Process != nil {
		family.kill()
	}
	return result, err
}

// ask runs the program, and returns what it prints.
func (e *execPlugin) ask(ctx context.Context, family *family) (execStatus, error) {
	printed, err := e.output(ctx, family)
	if err != nil {
		return execStatus{}, err
	}
	return e.parse(printed)
}

// output runs the program, and returns its standard output.
func (e *execPlugin) output(ctx context.Context, family *family) ([]byte, error) {
	info, err := json.Marshal(execInfo{
		APIVersion: e.apiVersion,
		Kind:       "ExecCredential",
		Spec:       execSpec{Cluster: e.cluster},
	})
	if err != nil {
		return nil, err
	}
	var stdout capped
	var stderr beginning
	cmd := family.program
	cmd.Env = append(os.Environ(), e.env...)
	cmd.Env = append(cmd.Env, "KUBERNETES_EXEC_INFO="+string(info))
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second // the program's children may keep its standard output open
	if err = family.start(); err == nil {
		err = cmd.Wait()
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("exec: %s: %w", e.command, context.Cause(ctx))
	}
	if len(stdout) > maxExecOutput {
		return nil, fmt.Errorf("exec: %s: it printed more than 1 MB", e.command)
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, fmt.Errorf("exec: %s: %w; it printed %q", e.command, err, shortened(stderr, 300))
	}
	return stdout, nil
}

// parse parses what the program printed, which must be an ExecCredential.
func (e *execPlugin) parse(printed []byte) (execStatus, error) {
	var answer struct {
		APIVersion string
		Kind       string
		Status     execStatus
	}
	if err := json.Unmarshal(printed, &answer); err != nil {
		return execStatus{}, fmt.Errorf("exec: %s: the %d bytes that it printed are not an ExecCredential: %s",
			e.command, len(printed), shortened([]byte(err.Error()), 300))
	}
	if answer.Kind != "ExecCredential" || answer.APIVersion != e.apiVersion {
		return execStatus{}, fmt.Errorf("exec: %s printed a %.100q of %.100q, not an ExecCredential of %s",
			e.command, answer.Kind, answer.APIVersion, e.apiVersion)
	}
	got := answer.Status
	hasCert := got.ClientCertificateData != ""
	hasKey := got.ClientKeyData != ""
	hasNothing := got.Token == "" && !hasCert
	if hasNothing || hasCert != hasKey {
		return execStatus{}, fmt.Errorf("exec: %s must give a token, or both clientCertificateData and clientKeyData",
			e.command)
	}
	if err := checkToken([]byte(got.Token)); err != nil {
		return execStatus{}, fmt.Errorf("exec: %s printed a token that %w", e.command, err)
	}
	if !hasCert {
		return got, nil
	}
	_, err := tls.X509KeyPair([]byte(got.ClientCertificateData), []byte(got.ClientKeyData))
	if err != nil {
		return execStatus{}, fmt.Errorf("exec: %s printed a certificate and a key that cannot be used: %w",
			e.command, err)
	}
	return got, nil
}

// capped collects the output of a program. More than maxExecOutput bytes are an error, which ends the program.
type capped []byte

func (c *capped) Write(p []byte) (int, error) {
	*c = append(*c, p...)
	if len(*c) > maxExecOutput {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// beginning keeps the first bytes that a program prints to its standard error, and drops the rest.
type beginning []byte

func (b *beginning) Write(p []byte) (int, error) {
	const limit = 4096
	*b = append(*b, p[:min(len(p), limit-len(*b))]...)
	return len(p), nil
}

// shortened returns the first bytes of a text, on one line.
func shortened(text []byte, limit int) string {
	line := strings.Join(strings.Fields(string(text)), " ")
	return line[:min(len(line), limit)]
}
