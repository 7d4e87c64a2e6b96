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
	apiVersion, command, hint string
	path                      string // of command, looked up once: a folder of $PATH may hang later
	args, env                 []string
	cluster                   *execCluster  // nil: the program does not ask for it
	limit                     time.Duration // of a run

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
	ExpirationTimestamp                         *time.Time
	Token, ClientCertificateData, ClientKeyData string
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

func (e *execPlugin) run(ctx context.Context) (_ execStatus, err error) {
	defer catch(&err)
	told := execInfo{APIVersion: e.apiVersion, Kind: "ExecCredential"}
	told.Spec.Cluster = e.cluster
	info, err := json.Marshal(told)
	if err != nil {
		return execStatus{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.limit, fmt.Errorf("it took longer than %v", e.limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, cmp.Or(e.path, e.command), e.args...) // its stdin is empty
	cmd.Env = append(os.Environ(), e.env...)
	cmd.Env = append(cmd.Env, "KUBERNETES_EXEC_INFO="+string(info))
	cmd.WaitDelay = time.Second // where its children hold its stdout open
	var out capped
	var said beginning
	cmd.Stdout = &out
	cmd.Stderr = &said
	err = cmd.Run()
	refuseIf(ctx.Err() != nil, "exec: %s: %w", e.command, context.Cause(ctx))
	refuseIf(len(out) > execOutput, "exec: %s: it printed more than 1 MB", e.command)
	refuseIf(err != nil && !errors.Is(err, exec.ErrWaitDelay), "exec: %s: %w, saying %q", e.command, err, shortened(said, 300))
	var answer struct {
		APIVersion, Kind string
		Status           execStatus
	}
	err = json.Unmarshal(out, &answer)
	refuseIf(err != nil, "exec: %s: what it printed (%d bytes) is no ExecCredential: %w", e.command, len(out), err)
	refuseIf(answer.Kind != "ExecCredential" || answer.APIVersion != e.apiVersion,
		"exec: %s printed a %q of %q, not an ExecCredential of %s", e.command, answer.Kind, answer.APIVersion, e.apiVersion)
	token, cert, key := answer.Status.Token, answer.Status.ClientCertificateData, answer.Status.ClientKeyData
	refuseIf(token == "" && cert == "" || (cert == "") != (key == ""), "exec: %s gave no token, and no clientCertificateData with clientKeyData", e.command)
	_, err = tls.X509KeyPair([]byte(cert), []byte(key))
	refuseIf(cert != "" && err != nil, "exec: the certificate and key that %s gave: %w", e.command, err)
	return answer.Status, nil
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
