package kubeconfig

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Config says where the API server is, and how to authenticate there. It is made by Load. A test can make its own,
// which needs only Server and Credential. A Config must not be modified.
type Config struct {
	Source string   // where the configuration was found, for people
	Server *url.URL // https or http; it has a path if the API is not at the root

	// Proxy returns the proxy for a request, or nil if there is none, like http.Transport.Proxy. A nil Proxy is for a
	// server that needs no proxy.
	Proxy func(*http.Request) (*url.URL, error)

	// Credential returns the credential for the next request. It may wait for a file or a program until ctx ends.
	// refused is nil, except after a 401: then it is the credential that the server has refused. If the current one
	// has the same token and client certificate, all files are read again. The exec program runs again, too, unless it
	// has run in the last 5 s. Credential is safe for concurrent use.
	Credential func(ctx context.Context, refused *Credential) (*Credential, error)

	access *access // nil unless Load has made the Config
}

// Close ends the running renewal, and its exec program. After that, Credential runs no program, and may fail. Close may
// be called at any time. It takes at most a second.
func (c *Config) Close() {
	a := c.access
	if a == nil {
		return
	}
	a.end(errors.New("the kubeconfig was closed, because this process is ending"))
	// A killed program ends at once, unless its file system hangs.
	select {
	case a.turn <- struct{}{}:
		<-a.turn
	case <-time.After(closeTimeout):
	}
}

// Credential identifies this process to the API server. It is immutable: a renewal makes another one.
type Credential struct {
	Token string // a bearer token, or ""

	// TLS has the client certificate, and the CA of the server. It must not be modified. A credential has the same
	// pointer as the one before it if the certificate, its key and the CA have not changed.
	TLS *tls.Config

	// Tried describes the credential without its secrets, for the error if the server answers 401.
	Tried string

	certificate string // the client certificate of TLS, in PEM; "" if there is none
}

// HasIdentityOf reports whether another credential has the same token and the same client certificate. Only these tell
// the server who sends a request. So if it refuses one of the two credentials, it refuses the other one, too, even if
// their CAs differ.
func (c *Credential) HasIdentityOf(other *Credential) bool {
	return c.Token == other.Token && c.certificate == other.certificate
}

// access is a cluster and a user. It makes the credentials.
type access struct {
	// Found by Load, and constant after that.
	source               string // where this was found, for people
	server               string // the server's address
	serverName           string // the name that the server's certificate must have; "" for the one in the address
	proxy                string // the proxy's address; "" for the proxies of the environment
	insecure             bool   // the server's certificate is not verified
	isInPod              bool   // the credential is a pod's service account
	isCredentialWithheld bool   // there is a user, but no credential is sent, because the server's address is http://
	exec                 *execPlugin

	// Passed by the caller of Load.
	master string // replaces the server's address, unless it is ""
	names  OptionNames
	log    *slog.Logger

	// alive ends when end is called. It is a field because a renewal may outlive the call that started it.
	alive context.Context
	end   context.CancelCauseFunc

	// turn holds a value while a renewal runs, so that only one does. Only that renewal uses the fields below. It is
	// not a mutex, because Close waits for the turn only for some time.
	turn            chan struct{}
	current         *Credential // never nil, but empty until Load has read the files
	ca              part
	cert            part // this, key and token come from the exec program, if there is one
	key             part
	token           part
	tlsParts        tlsParts // what current.TLS was made from
	certDescription string   // of the client certificate in current.TLS
	problem         error    // the first reason why this renewal had to keep something old
	isFailing       bool     // a warning was logged because the last renewal had a problem
}

// tlsParts are the contents of a CA, a client certificate and its key. Each is in PEM, or "" if there is none.
type tlsParts struct{ ca, cert, key string }

// isLoading reports whether Load has not read the credential's files yet. Only a renewal may call it.
func (a *access) isLoading() bool { return a.current.TLS == nil }

// credential implements Config.Credential. No timer renews a credential: each request asks for it, and then what is due
// is renewed. The renewal has a goroutine of its own, and continues if the caller gives up: if an exec program takes
// longer than a caller can wait, the next caller gets its result.
func (a *access) credential(ctx context.Context, refused *Credential) (*Credential, error) {
	return await(ctx, func() (*Credential, error) { return a.renew(refused) }, a.source+": waiting for a credential")
}

// renew waits for its turn. Then it reads the parts that are due, or all if the server has refused the current
// credential, and makes the result the current credential. If a part that was read before cannot be read again, its old
// content stays: see assemble. If there is no usable credential, renew returns the error, and leaves the current one as
// it is.
func (a *access) renew(refused *Credential) (*Credential, error) {
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	isRefused := refused != nil && a.current.HasIdentityOf(refused)
	cred, err := a.assemble(isRefused)
	if err != nil {
		return nil, err
	}
	a.current = cred
	return cred, nil
}

func (a *access) parts() []*part { return []*part{&a.ca, &a.cert, &a.key, &a.token} }

// assemble reads the parts that are due, or all if the server has refused the current credential, and returns a
// credential made of all parts. If nothing has changed, that is the current credential. If a part cannot be renewed,
// but has been read before, assemble uses the earlier content, and logs a warning when that begins.
func (a *access) assemble(isRefused bool) (*Credential, error) {
	a.problem = nil
	a.readParts(isRefused) // before the program runs, because the program may get the CA
	if err := a.renewFromProgram(isRefused); err != nil {
		return nil, err
	}
	for _, p := range a.parts() {
		if p.err != nil && len(p.data) == 0 {
			return nil, fmt.Errorf("%s: %s: %w", a.source, p.field, p.err)
		}
		a.problem = cmp.Or(a.problem, p.err)
	}
	token := string(bytes.TrimSpace(a.token.data))
	tokenSource := cmp.Or(a.token.from, a.source)
	if err := checkToken(a.token.data); err != nil {
		return nil, fmt.Errorf("%s: the token of %s %w", a.source, tokenSource, err)
	}
	config, err := a.renewTLS()
	if err != nil {
		return nil, err
	}
	a.logProblem()
	if token == a.current.Token && config == a.current.TLS {
		return a.current, nil
	}
	return &Credential{
		Token:       token,
		TLS:         config,
		Tried:       a.describe(token, tokenSource),
		certificate: a.tlsParts.cert,
	}, nil
}

// renewFromProgram takes token, certificate and key from the exec program, if there is one. It fails if the program
// fails, and the credential of an earlier run is missing or has expired. It does not run the program for Load: a
// program that fails then may succeed when the first request is sent.
func (a *access) renewFromProgram(isRefused bool) error {
	if a.exec == nil || a.isLoading() {
		return nil
	}
	got, err := a.runProgram(isRefused)
	if err != nil && !got.isGood() {
		return fmt.Errorf("%s: %w", a.source, err)
	}
	a.problem = cmp.Or(a.problem, err)
	a.token.data = []byte(got.Token)
	a.cert.data = []byte(got.ClientCertificateData)
	a.key.data = []byte(got.ClientKeyData)
	return nil
}

// checkToken returns an error if a token cannot be sent in a header.
func checkToken(token []byte) error {
	isOdd := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	if bytes.ContainsFunc(bytes.TrimSpace(token), isOdd) {
		return errors.New("has more than one line, or contains a space or a control character")
	}
	return nil
}

// readParts reads the files that are due, or all if isRefused. It reads them at the same time, so that it takes no
// longer than one file may take.
func (a *access) readParts(isRefused bool) {
	limit := rereadTimeout
	if a.isLoading() {
		limit = fileTimeout
	}
	var readings sync.WaitGroup
	for _, p := range a.parts() {
		readings.Go(func() { p.read(a.alive, limit, isRefused) })
	}
	readings.Wait()
}

// runProgram returns the newest result of the exec program. If that takes long, it logs that it is waiting.
func (a *access) runProgram(isRefused bool) (*execStatus, error) {
	if a.exec.cluster != nil {
		a.exec.cluster.CertificateAuthorityData = a.ca.data
	}
	slow := time.AfterFunc(slowExecTime, func() {
		a.log.Info("still waiting for a credential", "program", a.exec.command, "limit", a.exec.timeout)
	})
	defer slow.Stop()
	return a.exec.newest(a.alive, isRefused)
}

// logProblem logs when renewals begin to fail, and when they succeed again. It logs nothing about a renewal that Close
// has ended.
func (a *access) logProblem() {
	if a.alive.Err() != nil {
		return
	}
	if a.problem != nil && !a.isFailing {
		a.log.Warn("cannot renew the credential, so the previous one stays in use", "err", a.problem)
	}
	if a.problem == nil && a.isFailing {
		a.log.Info("the credential can be renewed again")
	}
	a.isFailing = a.problem != nil
}

// describe describes a credential without its secrets, for the error if the server answers 401.
func (a *access) describe(token, tokenSource string) string {
	if a.isCredentialWithheld {
		return "nothing, because the server's address begins with http://"
	}
	var tried []string
	if a.certDescription != "" {
		tried = append(tried, a.certDescription)
	}
	if token != "" {
		tried = append(tried, "the token of "+tokenSource)
	}
	return cmp.Or(strings.Join(tried, "; "), "nothing, because "+a.source+" has no credential")
}

// renewTLS returns a TLS configuration for the CA, the certificate and the key: the current one if they are the same.
// If they cannot be used, for example because only one of two files has been replaced yet, the current configuration
// and all that is known about it stay. Without a current configuration, renewTLS returns an error.
func (a *access) renewTLS() (*tls.Config, error) {
	parts := tlsParts{string(a.ca.data), string(a.cert.data), string(a.key.data)}
	if parts == a.tlsParts && !a.isLoading() {
		return a.current.TLS, nil
	}
	next, err := a.newTLS()
	if err != nil && a.isLoading() {
		return nil, fmt.Errorf("%s: %w", a.source, err)
	}
	if err != nil {
		a.problem = cmp.Or(a.problem, err)
		return a.current.TLS, nil
	}
	a.tlsParts = parts
	return next, nil
}

// newTLS makes a TLS configuration from the CA, the certificate and the key, and describes the certificate.
func (a *access) newTLS() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         a.serverName,
		InsecureSkipVerify: a.insecure,
	}
	if len(a.ca.data) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(a.ca.data) {
			return nil, fmt.Errorf("there is no certificate in %s", &a.ca)
		}
	}
	if len(a.cert.data) == 0 {
		a.certDescription = ""
		return config, nil
	}
	pair, err := tls.X509KeyPair(a.cert.data, a.key.data)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", &a.cert, &a.key, err)
	}
	// Like kubectl, present the certificate even if the server does not list its CA.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	expires := pair.Leaf.NotAfter
	if time.Now().After(expires) {
		a.log.Warn("the client certificate has expired: renew it", "from", a.cert.String(), "expired", expires)
	}
	a.certDescription = fmt.Sprintf("the client certificate of %s, valid until %s",
		pair.Leaf.Subject, expires.Format(time.RFC3339))
	return config, nil
}
