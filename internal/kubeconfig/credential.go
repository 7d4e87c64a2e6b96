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
	"slices"
	"strings"
	"sync"
	"time"
)

// Config says where the API server is, and how to be known to it. Load makes one. A Config that is made by hand needs a
// Server and a Credential.
type Config struct {
	Source string   // where this was found, in words
	Server *url.URL // its scheme is https or http; with a path where the API is not at the root; not to be modified

	// Proxy returns the proxy for a request, or nil where there is none, as http.Transport.Proxy does. nil: there never
	// is one.
	Proxy func(*http.Request) (*url.URL, error)

	// Credential returns what the next request is to use. It may have to wait for that, but no longer than ctx.
	// refused is nil, or the one that has just got a 401: unless another has taken its place meanwhile, all is
	// read again, however old it is. Safe for concurrent use.
	Credential func(ctx context.Context, refused *Credential) (*Credential, error)

	access *access // nil in a Config that Load has not made
}

// Close ends the program that runs for a credential, if there is one: then no more credentials are made. It may be
// called at any time, and takes a second at most.
func (c *Config) Close() {
	if c.access != nil {
		c.access.close()
	}
}

// Credential is who we are, and whom we trust, at one moment. It is never modified: a new one takes its place.
type Credential struct {
	Token string      // a bearer token; "" for none
	TLS   *tls.Config // for https; the very same as long as nothing in it has changed; not to be modified
	Tried string      // in words, for the error when the server does not know us; without any secret
}

// access is one cluster and one user, as found, and the credential that they come to.
type access struct {
	source     string // where this was found, in words
	server     string // its address
	serverName string // in its certificate; "": that of the address
	master     string // the server's address in place of the one found, unless it is empty
	proxy      string // in place of the environment's
	insecure   bool   // the server's certificate is not verified
	isInPod    bool   // the credential is the one that kubelet puts into a pod
	isWithheld bool   // there is a user, whose credential is not used as the address is http://
	exec       *execPlugin
	log        *slog.Logger

	alive context.Context // ends with close
	end   context.CancelCauseFunc

	mu      sync.Mutex  // guards what follows, and is never held while anybody waits
	now     *Credential // the newest
	err     error       // why the last renewal has made none
	renewAt time.Time   // when these two are to be renewed
	renewal *renewal    // the one that runs; nil: none does

	// Only the running renewal uses the fields below. Nobody else writes now, so it reads that without mu.
	ca        part
	cert      part // from exec, if there is one, as are the next two
	key       part
	token     part
	made      [][]byte // CA, certificate and key of now.TLS: as long as they are the same, so is that
	certOwner string   // of the client certificate in now.TLS, in words; "" where there is none
	isFailing bool     // the parts cannot be read, or do not fit each other: said once, as is its end
}

// renewal reads and makes a credential for all callers that wait for one meanwhile. It belongs to none of them: if
// they give up, it goes on for those that come next. So a program that takes longer than a lease's renewal can wait
// still serves the next renewal.
type renewal struct {
	*task[*Credential]
	isForced bool // it reads everything, however recently that was read
}

// close ends the renewal that runs, and with it its program. Later ones fail.
func (a *access) close() {
	a.end(errors.New("podcount ends"))
	a.mu.Lock()
	last := a.renewal
	a.mu.Unlock()
	if last == nil {
		return
	}
	// A killed program is gone at once, unless its file system hangs.
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	last.wait(ctx)
}

// credential is Config.Credential.
func (a *access) credential(ctx context.Context, refused *Credential) (*Credential, error) {
	for {
		a.mu.Lock()
		isRefused := refused == a.now
		if !isRefused && time.Now().Before(a.renewAt) {
			defer a.mu.Unlock()
			return a.now, a.err
		}
		if a.renewal == nil {
			a.renewal = &renewal{isForced: isRefused}
			a.renewal.task = startTask(func() (*Credential, error) { return a.renew(isRefused) })
		}
		current := a.renewal
		a.mu.Unlock()
		if err := current.wait(ctx); err != nil {
			return nil, fmt.Errorf("%s: waiting for a credential: %w", a.source, err)
		}
		if !isRefused || current.isForced {
			return current.value, current.err
		}
		// Somebody else's renewal may not have read what was refused: look again.
	}
}

// renew renews the parts that are due (all of them if isForced), and stores the credential that they make in now.
func (a *access) renew(isForced bool) (*Credential, error) {
	cred, err := a.assemble(isForced)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.now = cred
	}
	a.err = err
	a.renewAt = a.nextDue()
	a.renewal = nil
	return cred, err
}

// nextDue returns when the first of the parts is to be renewed.
func (a *access) nextDue() time.Time {
	next := time.Now().Add(24 * time.Hour) // where nothing is ever due, to look does no harm
	for _, p := range a.parts() {
		if due := p.dueAt(); p.file != "" && due.Before(next) {
			next = due
		}
	}
	if a.exec == nil {
		return next
	}
	if due, ends := a.exec.dueAt(); ends && due.Before(next) {
		next = due
	}
	return next
}

func (a *access) parts() []*part { return []*part{&a.ca, &a.cert, &a.key, &a.token} }

// assemble renews the parts that are due, and returns the credential that they come to: now itself if nothing differs.
func (a *access) assemble(isForced bool) (*Credential, error) {
	a.readParts(isForced) // before the program runs, which may ask for the CA
	var problem error
	// The program does not run for Load, but for the first request: if it fails then, that may pass.
	if a.exec != nil && a.now.TLS != nil {
		got, err := a.runProgram(isForced)
		if err != nil && !got.isGood() {
			return nil, fmt.Errorf("%s: %w", a.source, err)
		}
		problem = err
		a.token.data = []byte(got.Token)
		a.cert.data = []byte(got.ClientCertificateData)
		a.key.data = []byte(got.ClientKeyData)
	}
	for _, p := range a.parts() {
		if p.err != nil && len(p.data) == 0 {
			return nil, fmt.Errorf("%s: %s: %w", a.source, p.field, p.err)
		}
		problem = cmp.Or(problem, p.err)
	}
	token := string(bytes.TrimSpace(a.token.data))
	from := cmp.Or(a.token.from, a.source)
	if err := checkToken(a.token.data); err != nil {
		return nil, fmt.Errorf("%s: the token of %s %w", a.source, from, err)
	}
	t, err := a.makeTLS()
	if t == nil {
		return nil, fmt.Errorf("%s: %w", a.source, err)
	}
	a.sayProblem(cmp.Or(problem, err))
	if token == a.now.Token && t == a.now.TLS {
		return a.now, nil
	}
	return &Credential{token, t, a.tried(token, from)}, nil
}

// checkToken refuses what cannot stand in a header.
func checkToken(token []byte) error {
	if len(bytes.Fields(token)) > 1 {
		return errors.New("has more than one line, or a blank in it")
	}
	return nil
}

// readParts reads the files that are due, or all. Together they take no longer than one may.
func (a *access) readParts(isForced bool) {
	limit := fileWait
	if a.now.TLS == nil {
		limit = fileTime
	}
	ctx, cancel := inTime(a.alive, limit)
	defer cancel()
	for _, p := range a.parts() {
		p.startReading(isForced)
	}
	for _, p := range a.parts() {
		p.endReading(ctx)
	}
}

// runProgram returns what exec gives, and says so if that takes long.
func (a *access) runProgram(isForced bool) (*execStatus, error) {
	if a.exec.cluster != nil {
		a.exec.cluster.CertificateAuthorityData = a.ca.data
	}
	slow := time.AfterFunc(programIsSlow, func() {
		a.log.Info("still waiting for a credential", "program", a.exec.command, "limit", a.exec.limit)
	})
	defer slow.Stop()
	return a.exec.newest(a.alive, isForced)
}

// sayProblem says once that parts cannot be renewed, and once that they can be again.
func (a *access) sayProblem(err error) {
	if err != nil && !a.isFailing {
		a.log.Warn("cannot read a credential, going on with what there was", "err", err)
	}
	if err == nil && a.isFailing {
		a.log.Info("the credential can be read again")
	}
	a.isFailing = err != nil
}

// tried says in words what a server that answers 401 has not accepted.
func (a *access) tried(token, from string) string {
	if a.isWithheld {
		return "nothing, as no credential is sent to an http:// address"
	}
	var all []string
	if a.certOwner != "" {
		all = append(all, a.certOwner)
	}
	if token != "" {
		all = append(all, "the token of "+from)
	}
	return cmp.Or(strings.Join(all, "; "), "nothing, as "+a.source+" has no credential")
}

// makeTLS makes now.TLS again if CA, certificate or key is another. Where they do not fit, it returns the old one, and
// the error.
func (a *access) makeTLS() (*tls.Config, error) {
	made := [][]byte{a.ca.data, a.cert.data, a.key.data}
	old := a.now.TLS
	if slices.EqualFunc(made, a.made, bytes.Equal) {
		return old, nil
	}
	next := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.serverName, InsecureSkipVerify: a.insecure}
	if len(a.ca.data) > 0 {
		next.RootCAs = x509.NewCertPool()
		if !next.RootCAs.AppendCertsFromPEM(a.ca.data) {
			return old, fmt.Errorf("no certificate in %s", &a.ca)
		}
	}
	certOwner := ""
	if len(a.cert.data) > 0 {
		pair, err := tls.X509KeyPair(a.cert.data, a.key.data)
		if err != nil {
			return old, fmt.Errorf("%s and %s: %w", &a.cert, &a.key, err)
		}
		certOwner = a.describe(pair)
		// Presented whatever CAs the server says that it accepts, as kubectl does.
		next.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	a.made = made
	a.certOwner = certOwner
	return next, nil
}

// describe says in words whose a client certificate is, and warns if it has expired.
func (a *access) describe(pair tls.Certificate) string {
	if time.Now().After(pair.Leaf.NotAfter) {
		a.log.Warn("the client certificate has expired: renew it",
			"from", a.cert.String(), "expired", pair.Leaf.NotAfter)
	}
	until := pair.Leaf.NotAfter.Format(time.RFC3339)
	return fmt.Sprintf("the client certificate of %s, valid until %s", pair.Leaf.Subject, until)
}
