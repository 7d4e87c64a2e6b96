package main

// watch.go owns everything that is spoken to the API server: kubeconfigs and credentials, requests and their errors, lists,
// watches, and the reflector that keeps a store equal to the server. It counts nothing and decides nothing.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"podcount/internal/logging"
	"podcount/internal/wire"
	"podcount/internal/yaml"
)

// Config says where the API server is, and how to be known to it.
type Config struct {
	Source string // where this was found
	Server *url.URL
	Proxy  func(*http.Request) (*url.URL, error)
	// Credential returns what the next request is to use. It may have to wait for that, but no longer than ctx.
	// refused is nil, or the one that has just got a 401: unless another has taken its place meanwhile, all is
	// read again, however old it is. Safe for concurrent use.
	Credential func(ctx context.Context, refused *Credential) (*Credential, error)

	access *access // nil in a Config that LoadConfig has not made
}

// Close ends the program that runs for a credential, if there is one: then no more credentials are made.
func (c *Config) Close() {
	if c.access != nil {
		c.access.close()
	}
}

// Credential is who we are, and whom we trust, at one moment. It is never modified: a new one takes its place.
type Credential struct {
	token string
	tls   *tls.Config // the very same as long as nothing in it has changed
	tried string      // in words, for the error when the server does not know us
}

const (
	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount" // a pod's token and CA

	tokenAge      = time.Minute     // of a file's contents when a request is made; kubelet replaces a token well before it ends
	certAge       = time.Second     // the same
	fileTime      = 5 * time.Second // that a file may take to be read at the start
	fileWait      = time.Second     // the same later, when podcount can go on with what it has read before
	fileSize      = 16 << 20        // bytes
	execTime      = time.Minute     // that an exec program may take
	programIsSlow = 2 * time.Second // after which it is said that it is waited for
	execPause     = 5 * time.Second // between its runs
	closeTime     = time.Second     // that it may take to be gone, once it is killed
	execOutput    = 1 << 20         // bytes that it may print
)

// LoadOptions say where LoadConfig is to look for a cluster.
type LoadOptions struct {
	Kubeconfig     string                   // the file; "": look elsewhere
	Context        string                   // of the file; "": its current one. With a name the service account is passed over
	Master         string                   // overrides the server's address, and is enough where nothing else is found
	ServiceAccount string                   // the directory of a pod's token and CA; "": where kubelet puts them
	Getenv         func(name string) string // of KUBECONFIG, HOME and the like
	Log            *slog.Logger             // of what is odd, and of credentials that cannot be renewed; nil: of nothing
}

// LoadConfig finds the cluster: the file of the options, $KUBECONFIG, the service account of the pod that we run in, or
// ~/.kube/config, in that order. It reads files, which ends with ctx at the latest, and sends nothing. Errors name the
// file and the field. The caller closes the Config.
func LoadConfig(ctx context.Context, o LoadOptions) (*Config, error) {
	a := &access{log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), master: o.Master}
	accountDir := cmp.Or(o.ServiceAccount, serviceAccount)
	if err := a.find(ctx, o.Kubeconfig, o.Context, accountDir, o.Getenv); err != nil {
		return nil, err
	}
	if o.Master != "" { // the name that the old address's certificate has is not this one's; kubectl --server sees it so
		a.server = o.Master
		a.serverName = ""
		a.source = strings.TrimSuffix("-master, "+a.source, ", ")
	}
	return a.config(ctx)
}

// ownNamespace returns the namespace of the pod that we run in; "" where we run in none.
func ownNamespace(ctx context.Context) string {
	text, _ := within(ctx, fileTime, serviceAccount+"/namespace", readRegular)
	return strings.TrimSpace(string(text))
}

// find is the first half of LoadConfig: it reads what there is.
func (a *access) find(
	ctx context.Context, kubeconfig, contextName, accountDir string, getenv func(string) string,
) error {
	if kubeconfig != "" {
		return a.readKubeconfigs(ctx, []string{kubeconfig}, contextName)
	}
	if list := getenv("KUBECONFIG"); list != "" {
		return a.readKubeconfigs(ctx, filepath.SplitList(list), contextName)
	}

	accountErr := errors.New("KUBERNETES_SERVICE_HOST is not set, so this is no pod")
	host := getenv("KUBERNETES_SERVICE_HOST")
	if host != "" && contextName == "" {
		_, accountErr = within(ctx, fileTime, filepath.Join(accountDir, "token"), os.Stat)
	}
	if errors.Is(accountErr, errNotInTime) {
		return accountErr // no answer is not a no
	}
	if accountErr == nil && contextName == "" {
		a.useServiceAccount(accountDir, net.JoinHostPort(host, cmp.Or(getenv("KUBERNETES_SERVICE_PORT"), "443")))
		return nil
	}

	homeErr := errors.New("HOME is not set, so there is no ~/.kube/config")
	if home := getenv("HOME"); home != "" {
		file := filepath.Join(home, ".kube", "config")
		_, homeErr = within(ctx, fileTime, file, os.Stat)
		if homeErr == nil {
			return a.readKubeconfigs(ctx, []string{file}, contextName)
		}
	}
	if errors.Is(homeErr, errNotInTime) {
		return homeErr
	}
	if contextName != "" {
		return fmt.Errorf("-context %s: there is no kubeconfig that could have it: "+
			"give -kubeconfig, or set KUBECONFIG (%w)", contextName, homeErr)
	}
	if a.master == "" {
		return fmt.Errorf("no cluster found: "+
			"give -kubeconfig or -master, or set KUBECONFIG (%w; %w)", accountErr, homeErr)
	}
	return nil
}

// useServiceAccount takes the credential that kubelet puts into a pod, for the API server of that address.
func (a *access) useServiceAccount(dir, address string) {
	a.source = "the pod's service account"
	a.isInPod = true
	a.server = "https://" + address
	if a.isPlainHTTP() {
		a.isWithheld = true
		return
	}
	a.ca = part{field: "certificate", file: filepath.Join(dir, "ca.crt"), age: certAge}
	a.token = part{field: "token", file: filepath.Join(dir, "token"), age: tokenAge, check: checkToken}
}

// isPlainHTTP reports whether nothing encrypts what is sent to the server. Then no credential is sent, nor read, and no
// program runs for one, wherever the server is: kubectl and client-go have the same rule.
func (a *access) isPlainHTTP() bool {
	u, err := url.Parse(cmp.Or(a.master, a.server))
	return err == nil && u.Scheme == "http"
}

// access is one cluster and one user, as found, and the credential that they come to.
type access struct {
	source, server, serverName string
	master                     string // the server's address in place of the one found, unless it is empty
	proxy                      string // in place of the environment's
	insecure                   bool   // the server's certificate is not verified
	isInPod                    bool   // the credential is the one that kubelet puts into a pod
	isWithheld                 bool   // there is a user, whose credential is not used as the address is http://
	exec                       *execPlugin
	log                        *slog.Logger

	alive context.Context // ends with close
	end   context.CancelCauseFunc

	mu      sync.Mutex  // guards what follows, and is never held while anybody waits
	now     *Credential // the newest
	err     error       // why the last renewal has made none
	renewAt time.Time   // when these two are to be renewed
	renewal *renewal    // the one that runs; nil: none does

	// Only the running renewal uses the fields below. Nobody else writes now, so it reads that without mu.
	ca, cert, key, token part     // the last three from exec, if there is one
	made                 [][]byte // CA, certificate and key of now.tls: as long as they are the same, so is that
	who                  string   // of the client certificate in now.tls, in words
	failing              bool     // to read a part, or parts that fit each other: said once, as is its end
}

// renewal reads and makes a credential for all callers that wait for one meanwhile. It belongs to none of them: if
// they give up, it goes on for those that come next. So a program that takes longer than a lease's renewal can wait
// still serves the next renewal.
type renewal struct {
	*task[*Credential]
	isForced bool // it reads everything, however recently that was read
}

// task is a call that may take long. Whoever needs its result waits for it as long as they can.
type task[T any] struct {
	done  chan struct{} // closed once value and err are set
	value T
	err   error
}

// startTask calls f, in a goroutine of its own.
func startTask[T any](f func() (T, error)) *task[T] {
	t := &task[T]{done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.value, t.err = f()
	}()
	return t
}

// wait waits until the task is done; or else it returns why ctx has ended.
func (t *task[T]) wait(ctx context.Context) error {
	if t.isDone() {
		return nil // also where ctx has ended since
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *task[T]) isDone() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// config is the second half of LoadConfig: it checks what was found.
func (a *access) config(ctx context.Context) (_ *Config, err error) {
	defer catch(&err)
	refuseIf(a.server == "", "%s: the cluster has no server: give it one, or -master", a.source)
	if !strings.Contains(a.server, "://") {
		a.server = "https://" + a.server
	}
	u, err := url.Parse(a.server)
	u = cmp.Or(u, &url.URL{})
	refuseIf(err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.User != nil,
		"%s: the server's address (%s://%s) must be https://HOST[:PORT][/PATH]", a.source, u.Scheme, u.Host)
	cfg := &Config{Source: a.source, Server: u, Proxy: http.ProxyFromEnvironment, Credential: a.credential, access: a}
	if a.proxy != "" {
		p, err := url.Parse(a.proxy)
		refuseIf(err != nil || p.Host == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, p.Scheme),
			"%s: the proxy-url must be http://, https:// or socks5:// and a HOST[:PORT]", a.source)
		cfg.Proxy = http.ProxyURL(p)
	}
	if a.isWithheld {
		a.log.Info("no credential is sent, as the server's address begins with http://",
			"server", u.Host, "from", a.source)
	}
	if u.Scheme == "https" && a.insecure {
		a.log.Warn("the server's certificate is not verified (insecure-skip-tls-verify): give a certificate-authority", "server", u.Host)
	}
	if u.Scheme == "https" && !a.token.given() && !a.cert.given() && a.exec == nil {
		a.log.Warn("no credential was found (token, tokenFile, client-certificate or exec): requests are anonymous", "in", a.source)
	}
	a.alive, a.end = context.WithCancelCause(context.Background())
	a.now = &Credential{}
	_, err = a.credential(ctx, nil)
	if err != nil {
		a.close()
		return nil, err
	}
	a.warnOfOpenFiles(ctx)
	if e := a.exec; e != nil {
		e.path, err = within(ctx, fileTime, e.command, exec.LookPath)
		refuseIf(e.command == "", "%s: exec: there is no command in it", a.source)
		refuseIf(e.apiVersion != "client.authentication.k8s.io/v1" && e.apiVersion != "client.authentication.k8s.io/v1beta1",
			"%s: exec: the apiVersion %q is neither v1 nor v1beta1: let the tool that wrote this file write it again",
			a.source, e.apiVersion)
		refuseIf(err != nil, "%s: exec: %q: %w; %s", a.source, e.command, errors.Unwrap(err), cmp.Or(e.hint, "install it, make it executable, or write its path"))
		if e.cluster != nil {
			e.cluster.Server = a.server
			e.cluster.TLSServerName = a.serverName
			e.cluster.InsecureSkipTLSVerify = a.insecure
			e.cluster.ProxyURL = a.proxy
		}
	}
	return cfg, nil
}

// warnOfOpenFiles warns of each file with a secret in it that everyone on this machine can read.
func (a *access) warnOfOpenFiles(ctx context.Context) {
	if a.isInPod || runtime.GOOS == "windows" {
		return // kubelet's files are as they are
	}
	for _, secret := range []part{a.key, a.token} {
		file := cmp.Or(secret.file, secret.kubeconfig)
		if !secret.given() || file == "" {
			continue
		}
		info, err := within(ctx, fileTime, file, os.Stat)
		if err == nil && info.Mode().Perm()&0o004 != 0 {
			a.log.Warn("everyone on this machine can read a file that holds a secret: chmod go-rwx it", "file", file)
		}
	}
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
	if a.exec != nil && a.now.tls != nil { // not for config, but for the first request: if it fails then, that may pass
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
	if token == a.now.token && t == a.now.tls {
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
	if a.now.tls == nil {
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
	if err != nil && !a.failing {
		a.log.Warn("cannot read a credential, going on with what there was", "err", err)
	}
	if err == nil && a.failing {
		a.log.Info("the credential can be read again")
	}
	a.failing = err != nil
}

// tried says in words what a server that answers 401 has not accepted.
func (a *access) tried(token, from string) string {
	if a.isWithheld {
		return "nothing, as no credential is sent to an http:// address"
	}
	var all []string
	if a.who != "" {
		all = append(all, a.who)
	}
	if token != "" {
		all = append(all, "the token of "+from)
	}
	return cmp.Or(strings.Join(all, "; "), "nothing, as "+a.source+" has no credential")
}

// makeTLS makes now.tls again if CA, certificate or key is another. Where they do not fit, it returns the old one, and
// the error.
func (a *access) makeTLS() (t *tls.Config, err error) {
	defer catch(&err)
	made := [][]byte{a.ca.data, a.cert.data, a.key.data}
	if t = a.now.tls; slices.EqualFunc(made, a.made, bytes.Equal) {
		return t, nil
	}
	who := ""
	next := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.serverName, InsecureSkipVerify: a.insecure}
	if len(a.ca.data) > 0 {
		next.RootCAs = x509.NewCertPool()
		refuseIf(!next.RootCAs.AppendCertsFromPEM(a.ca.data), "no certificate in %s", &a.ca)
	}
	if len(a.cert.data) > 0 {
		pair, err := tls.X509KeyPair(a.cert.data, a.key.data)
		refuseIf(err != nil, "%s and %s: %w", &a.cert, &a.key, err)
		if time.Now().After(pair.Leaf.NotAfter) {
			a.log.Warn("the client certificate has expired: renew it", "from", a.cert.String(), "expired", pair.Leaf.NotAfter)
		}
		until := pair.Leaf.NotAfter.Format(time.RFC3339)
		who = fmt.Sprintf("the client certificate of %s, valid until %s", pair.Leaf.Subject, until)
		// Presented whatever CAs the server says that it accepts, as kubectl does.
		next.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	a.made = made
	a.who = who
	return next, nil
}

// part is a piece of a credential: what was given, or what its file held when it was last read.
type part struct {
	field, file string
	data        []byte
	kubeconfig  string        // that data stands in
	age         time.Duration // after which the file is read again
	readAt      time.Time
	from        string             // the file, once something was read of it; or the program
	err         error              // of the last reading
	check       func([]byte) error // of what is in the file; nil: none
	reading     *task[[]byte]      // the one that goes on; nil: none does
	isHanging   bool               // reading was waited for in vain: from now on it is just looked at
}

func (p *part) given() bool    { return p.file != "" || len(p.data) > 0 }
func (p *part) String() string { return strings.TrimSpace(p.field + " " + p.file) }

// dueAt returns when the file is to be looked at again. A reading that hangs is looked at on every call: that costs
// nothing.
func (p *part) dueAt() time.Time {
	if p.isHanging {
		return p.readAt
	}
	return p.readAt.Add(p.age)
}

// startReading starts to read the file if that is due, or now. While one reading hangs, no second one is started.
func (p *part) startReading(now bool) {
	isDue := now || !time.Now().Before(p.dueAt())
	if p.reading != nil && now && p.reading.isDone() {
		p.reading = nil // it was begun too early to be of use now
		p.isHanging = false
	}
	if p.file == "" || p.reading != nil || !isDue {
		return
	}
	file := p.file
	p.reading = startTask(func() ([]byte, error) { return readRegular(file) })
}

// endReading takes what was read. Where nothing can be read, or not until ctx ends, the part stays what it was.
func (p *part) endReading(ctx context.Context) {
	if p.reading == nil {
		return
	}
	if p.isHanging && !p.reading.isDone() {
		return
	}
	p.readAt = time.Now()
	if err := p.reading.wait(ctx); err != nil {
		p.isHanging = true
		p.err = fmt.Errorf("%s: %w", p.file, err)
		return
	}
	data, err := p.reading.value, p.reading.err
	p.reading = nil
	p.isHanging = false
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = fmt.Errorf("%s is empty", p.file)
	}
	if err == nil && p.check != nil && p.check(data) != nil {
		err = fmt.Errorf("%s %w", p.file, p.check(data))
	}
	p.err = err
	if err == nil {
		p.data = data
		p.from = p.file
	}
}

// errNotInTime is the error for a file whose file system does not answer, or for a pipe to which nobody writes. Calls
// that open or read a file take no context: each is made in a goroutine of its own, which may be left to hang.
var errNotInTime = errors.New("it could not be read in time")

// inTime is ctx with a limit, which ends it with errNotInTime.
func inTime(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w (%v)", errNotInTime, limit))
}

// within returns what f returns of the file, unless that takes longer than limit, or ctx ends.
func within[T any](ctx context.Context, limit time.Duration, file string, f func(file string) (T, error)) (T, error) {
	ctx, cancel := inTime(ctx, limit)
	defer cancel()
	look := startTask(func() (T, error) { return f(file) })
	if err := look.wait(ctx); err != nil {
		return *new(T), fmt.Errorf("%s: %w", file, err)
	}
	return look.value, look.err
}

// readKubeconfig reads a file of any kind, as it is read only once. A pipe (-kubeconfig <(command)) may take as long as
// an exec program: what writes to it is a program, too.
func readKubeconfig(ctx context.Context, name string) ([]byte, error) {
	info, err := within(ctx, fileTime, name, os.Stat)
	if err != nil {
		return nil, err
	}
	limit := fileTime
	if !info.Mode().IsRegular() {
		limit = execTime
	}
	return within(ctx, limit, name, readFile)
}

// readRegular reads a file that will be read again. A pipe gives its contents once, and a device may never end.
func readRegular(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	return readFile(name)
}

// readFile reads a file of fileSize at most.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileSize+1))
	if err == nil && len(data) > fileSize {
		err = fmt.Errorf("%s has more than %d MB", name, fileSize>>20)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

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

// kubeconfigs are files that are read together: the clusters, users and contexts of all of them, by their names.
type kubeconfigs struct {
	clusters, users, contexts map[string]node
	current                   string // the name of the current context
}

// of returns the map of one kind, and where an entry of that kind stands in a file: in a list of this name.
func (k *kubeconfigs) of(kind string) (byName map[string]node, list string) {
	switch kind {
	case "cluster":
		return k.clusters, "clusters"
	case "user":
		return k.users, "users"
	}
	return k.contexts, "contexts"
}

// names lists what there is of a kind, for errors.
func (k *kubeconfigs) names(kind string) string {
	byName, _ := k.of(kind)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, fmt.Sprintf("%s %q", kind, name))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// add reads a file. What it names takes the place of what was there by that name.
func (k *kubeconfigs) add(root node) {
	kind, version := root.at("kind"), root.at("apiVersion")
	refuseIf(cmp.Or(kind.text(), "Config") != "Config", "%s is %q, not Config: this is no kubeconfig", kind, kind.value)
	refuseIf(cmp.Or(version.text(), "v1") != "v1", "%s is %q, and must be v1", version, version.value)
	k.current = cmp.Or(root.at("current-context").text(), k.current)
	for _, kind := range []string{"cluster", "user", "context"} {
		byName, list := k.of(kind)
		isHere := map[string]bool{}
		for _, entry := range root.at(list).items() {
			name := entry.at("name").text()
			refuseIf(isHere[name], "%s is that of another %s %q", entry.at("name"), kind, name)
			isHere[name] = true
			byName[name] = entry.at(kind)
		}
	}
}

// mergeKubeconfigs reads files together; where two set the same name, the first counts. Fields that are not known are
// passed over. https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
func (a *access) mergeKubeconfigs(ctx context.Context, files []string) (*kubeconfigs, error) {
	files = slices.DeleteFunc(files, func(file string) bool { return file == "" })
	all := &kubeconfigs{clusters: map[string]node{}, users: map[string]node{}, contexts: map[string]node{}}
	hasRead := false
	for i, file := range slices.Backward(files) {
		text, err := readKubeconfig(ctx, file)
		isEmpty := len(bytes.TrimSpace(text)) == 0
		isAbsent := isEmpty && (err == nil || errors.Is(err, os.ErrNotExist))
		if isAbsent && (i > 0 || hasRead) {
			continue // as kubectl does with one of a list
		}
		if err != nil {
			return nil, err
		}
		if isEmpty && a.master == "" { // else -master will do
			return nil, fmt.Errorf("%s is empty", file)
		}
		tree, err := yaml.Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%w", file, err)
		}
		all.add(node{file: file, value: tree})
		hasRead = true
	}
	return all, nil
}

// readKubeconfigs reads one context of the files together: the one named, or else their current one. As in client-go, a
// name that is not given is "", which may be that of a context, a cluster or a user.
func (a *access) readKubeconfigs(ctx context.Context, files []string, contextName string) (err error) {
	defer catch(&err)
	a.source = strings.Join(files, string(filepath.ListSeparator))
	all, err := a.mergeKubeconfigs(ctx, files)
	if err != nil {
		return err
	}
	contextName = cmp.Or(contextName, all.current)
	context, hasContext := all.contexts[contextName]
	isMasterEnough := a.master != "" && contextName == ""
	if !hasContext && contextName != "" {
		return fmt.Errorf("%s: there is no context %q (there is: %s)", a.source, contextName, all.names("context"))
	}
	if !hasContext && !isMasterEnough {
		return fmt.Errorf("%s: no current-context: name one with -context (there is: %s)", a.source, all.names("context"))
	}
	if hasContext {
		a.source += ", context " + cmp.Or(contextName, `""`)
	}
	clusterName, userName := context.at("cluster").text(), context.at("user").text()
	cluster, hasCluster := all.clusters[clusterName]
	if !hasCluster && hasContext {
		return fmt.Errorf("%s: there is no cluster %q (there is: %s)", a.source, clusterName, all.names("cluster"))
	}
	user, hasUser := all.users[userName]
	if !hasUser && userName != "" {
		return fmt.Errorf("%s: there is no user %q (there is: %s)", a.source, userName, all.names("user"))
	}
	a.readCluster(cluster)
	switch {
	case !hasUser:
	case a.isPlainHTTP():
		a.isWithheld = true
	default:
		a.readUser(user)
		a.readExec(user, cluster)
	}
	return nil
}

func (a *access) readCluster(cluster node) {
	a.server = cluster.at("server").text()
	a.serverName = cluster.at("tls-server-name").text()
	a.proxy = cluster.at("proxy-url").text()
	insecure := cluster.at("insecure-skip-tls-verify")
	a.insecure = insecure.isTrue()
	cluster.refuseBoth("certificate-authority")
	a.ca = cluster.part("certificate-authority")
	refuseIf(a.insecure && a.ca.given(), "%s excludes a certificate-authority: remove one of them", insecure)
	if a.isPlainHTTP() {
		a.ca = part{} // there is nothing to verify
	}
}

func (a *access) readUser(user node) {
	for _, no := range []string{"auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra"} {
		field, given := user.at(no), fmt.Sprint(user.at(no).value)
		refuseIf(!slices.Contains([]string{"<nil>", "", "[]", "map[]"}, given),
			"%s is not supported: use a token, a client-certificate or exec, of an account that is podcount's own", field)
	}
	a.cert = user.part("client-certificate")
	a.key = user.part("client-key")
	refuseIf(a.cert.given() && !a.key.given(), "%s is missing, and goes with the client-certificate", user.at("client-key"))
	if a.cert.given() { // a key alone is passed over
		user.refuseBoth("client-certificate")
		user.refuseBoth("client-key")
	}
	a.token = part{
		field:      "tokenFile",
		file:       user.at("tokenFile").path(),
		data:       bytes.TrimSpace([]byte(user.at("token").text())),
		kubeconfig: user.file,
		age:        tokenAge,
		check:      checkToken,
	}
}

// readExec reads which program gives the user's credential, unless the user has another one: that comes first, as with
// kubectl. It is not called for a server over plain http: that is sent no credential, so no program runs.
func (a *access) readExec(user, cluster node) {
	e := user.at("exec")
	if e.value == nil || a.token.given() || a.cert.given() {
		return
	}
	command := e.at("command").text()
	if strings.ContainsRune(command, filepath.Separator) {
		command = e.at("command").path()
	}
	a.exec = &execPlugin{
		apiVersion: e.at("apiVersion").text(),
		command:    command,
		hint:       shortened([]byte(e.at("installHint").text()), 1000),
		limit:      execTime,
	}
	a.token = part{from: command}
	a.cert = part{field: "what " + command + " gave"}
	a.key = part{} // one without a certificate
	for _, arg := range e.at("args").items() {
		a.exec.args = append(a.exec.args, arg.text())
	}
	for _, v := range e.at("env").items() {
		a.exec.env = append(a.exec.env, v.at("name").text()+"="+v.at("value").text())
	}
	if e.at("provideClusterInfo").isTrue() {
		a.exec.cluster = &execCluster{
			DisableCompression: cluster.at("disable-compression").isTrue(),
			Config:             cluster.extension("client.authentication.k8s.io/exec"),
		}
	}
	mode := e.at("interactiveMode")
	refuseIf(mode.text() == "Always", "%s is Always, but podcount has nobody to ask: use a credential that needs no one", mode)
}

// node is a value in a kubeconfig. It may be a secret, so it prints as its place. Names are exact, not as encoding/json's.
type node struct {
	file, place string
	value       any
}

func (n node) String() string { return n.file + ": " + cmp.Or(n.place, "this") }

// as returns the value, or nothing where there is none. One of another type is thrown.
func as[T any](n node, kind string) T {
	v, ok := n.value.(T)
	refuseIf(!ok && n.value != nil, "%s must be %s", n, kind)
	return v
}

func (n node) text() string {
	return as[string](n, "a text: quote what looks like a number, or like true")
}

func (n node) isTrue() bool {
	return as[bool](n, "true or false, without quotes")
}

func (n node) at(name string) node {
	return node{n.file, strings.Trim(n.place+"."+name, "."), as[map[string]any](n, "a map")[name]}
}

func (n node) items() (items []node) {
	for i, v := range as[[]any](n, "a list") {
		items = append(items, node{n.file, fmt.Sprintf("%s[%d]", n.place, i), v})
	}
	return items
}

// path is relative to the file that it stands in.
func (n node) path() string {
	path := n.text()
	if path != "" && !filepath.IsAbs(path) {
		path, _ = filepath.Abs(filepath.Join(filepath.Dir(n.file), path)) // else a program beside its file were one of $PATH
	}
	return path
}

// extension returns what one of the extensions holds, nil if there is none of that name.
func (n node) extension(name string) any {
	var found *node
	for _, entry := range n.at("extensions").items() {
		isIt := entry.at("name").text() == name
		refuseIf(isIt && found != nil, "%s is that of another extension: remove one of them", entry.at("name"))
		if isIt {
			value := entry.at("extension")
			found = &value
		}
	}
	if found == nil {
		return nil
	}
	return found.value
}

// part reads a file's name from the field of that name, or contents from name-data.
func (n node) part(name string) part {
	data := n.at(name + "-data")
	decoded, err := base64.StdEncoding.DecodeString(data.text())
	refuseIf(err != nil, "%s is not base64", data)
	if len(decoded) > 0 {
		return part{field: name + "-data", data: decoded, kubeconfig: n.file}
	}
	return part{field: name, file: n.at(name).path(), age: certAge}
}

// refuseBoth refuses a part that is given both as a file and as data: kubectl refuses that, too.
func (n node) refuseBoth(name string) {
	file, data := n.at(name), n.at(name+"-data")
	refuseIf(file.text() != "" && data.text() != "", "%s is given twice, also as %s-data: remove one of them", file, name)
}

// thrown is an error on its way through the reader of kubeconfigs, up to the function that catches it.
type thrown struct{ error }

// refuseIf throws, if bad, what is wrong.
func refuseIf(bad bool, format string, args ...any) {
	if bad {
		panic(thrown{fmt.Errorf(format, args...)})
	}
}

// catch is deferred by the function that is to return the error thrown below it.
func catch(err *error) {
	v := recover()
	if t, ok := v.(thrown); ok {
		*err = t.error
	} else if v != nil {
		panic(v)
	}
}

// StatusError is the error that the API server answers, or what an answer without one amounts to: the API's own Status,
// and what it was answered to.
type StatusError struct {
	wire.Status

	call  call   // what was asked
	tried string // with a 401: what was not accepted
}

func (s *StatusError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", s.Code, cmp.Or(s.Reason, http.StatusText(s.Code)))) + ": " + s.Message
	switch {
	case s.Code == http.StatusUnauthorized && s.tried != "":
		text += " (what was not accepted: " + s.tried + "): give one that has not expired, and is of this cluster"
	case s.Code == http.StatusForbidden && strings.Contains(s.Message, `"system:anonymous"`):
		text += " (no credential was sent: give the kubeconfig's user a token, tokenFile, client-certificate or exec)"
	case s.Code == http.StatusForbidden:
		// An update that makes a Lease may lack the right to create it. An admission plugin's refusal is no question of rights.
		for _, verb := range slices.Compact([]string{s.call.verb, strings.Replace(s.call.verb, "update", "create", 1)}) {
			if strings.Contains(s.Message, " cannot "+verb+" ") {
				text += fmt.Sprintf(" (the RBAC rule that allows it: apiGroups [%q], resources [%q], verbs [%q])", s.call.group, s.call.resource, verb)
			}
		}
	}
	return text
}

// retryAfter is how long to wait because the server has asked for it with an error (429, 503), with jitter on top. It
// is 0 where the server did not ask.
func retryAfter(err error) time.Duration {
	seconds := min(max(statusIn(err).Details.RetryAfterSeconds, 0), 3600)
	return withJitter(time.Duration(seconds) * time.Second)
}

// withJitter is the wait that a server has asked for (Retry-After), and by chance up to a fifth more, or up to a second
// more if that is longer: clients refused at the same moment got the same answer. 0, for no wish, stays 0.
func withJitter(asked time.Duration) time.Duration {
	if asked <= 0 {
		return 0
	}
	return asked + rand.N(max(asked/5, time.Second))
}

// statusIn returns the Status that err is or wraps; one with the Code 0 where the server did not answer.
func statusIn(err error) StatusError {
	s := &StatusError{}
	errors.As(err, &s)
	return *s
}

// outagePause is the time between two lines about an outage with this error. It is longer where somebody has to grant
// or install something first.
func outagePause(err error) time.Duration {
	switch statusIn(err).Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return 10 * time.Minute
	}
	return time.Minute
}

// hasCause reports whether one of the causes that the Status details has this reason or is about this field.
func (s StatusError) hasCause(reasonOrField string) bool {
	return slices.ContainsFunc(s.Details.Causes, func(c struct{ Reason, Field string }) bool {
		return c.Reason == reasonOrField || c.Field == reasonOrField
	})
}

// call is a request in the words of RBAC and of error messages.
type call struct{ verb, group, resource, object string }

func (c call) String() string {
	return strings.TrimSpace(c.verb + " " + strings.TrimSuffix(c.resource+"/"+c.object, "/"))
}

// callOf reads a call from a request: /api/v1/… or /apis/GROUP/VERSION/…, then [namespaces/NS/]RESOURCE[/NAME[/SUB]].
func callOf(method, path string, query url.Values) (c call) {
	p := append(strings.Split(strings.Trim(path, "/"), "/"), make([]string, 7)...) // what is not there is ""
	if p[0] == "apis" {
		c.group, p = p[1], p[1:]
	}
	namespace := ""
	if p = p[2:]; p[0] == "" {
		return call{verb: "get", resource: strings.TrimPrefix(path, "/apis/")} // discovery
	} else if p[0] == "namespaces" && p[2] != "" {
		namespace, p = p[1]+"/", p[2:]
	}
	c.resource = strings.TrimSuffix(p[0]+"/"+p[2], "/")
	c.verb = map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
	if p[1] != "" {
		c.object = namespace + p[1]
	} else if method == http.MethodGet {
		c.verb = "list"
	}
	if query.Get("watch") != "" {
		c.verb = "watch"
	}
	return c
}

const (
	requestTimeout = 65 * time.Second  // of all but lists and watches: what the API server itself allows, and a little
	silence        = 150 * time.Second // of a list or a watch, which has a bookmark a minute, two after a server's restart
	answerLimit    = 64 << 20          // bytes of an answer that is held whole
)

var errSilent = fmt.Errorf("nothing was heard for %v", silence)

// Client speaks to one API server, as one user. Safe for concurrent use.
type Client struct {
	cfg     *Config
	options ClientOptions
	permit  permit // to write; nil: always

	mu   sync.Mutex // guards all below
	tls  *tls.Config
	conn *http.Transport // of tls
}

// permit is what a leader has, and may lose at any moment.
type permit interface {
	// mayWrite returns an error unless a write may be sent now.
	mayWrite() error
	// whileLeading returns a context that ends with ctx, and with the permit.
	whileLeading(ctx context.Context) (context.Context, context.CancelFunc)
}

// Dialer opens connections; nil stands for the net package's.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// ClientOptions are what a Client may be told.
type ClientOptions struct {
	Dial         Dialer
	UserAgent    string // of each request
	FieldManager string // in whose name objects are written
	DryRun       bool   // nothing is written: such requests fail, and are not sent
	// Observe hears of each request, once it is answered or has failed. It must not block. nil: nobody hears of them.
	Observe func(ctx context.Context, e Exchange)
}

// Exchange is a request that was sent, and what came of it.
type Exchange struct {
	Method, URI string // URI has no host
	Host        string
	Status      string // 200 OK; or <error>, where there is no answer
	Code        string // the first word of Status
	Start       time.Time
}

// NewClient makes a client for what cfg says. It sends nothing yet.
func NewClient(cfg *Config, o ClientOptions) *Client {
	conn := http.DefaultTransport.(*http.Transport).Clone() // so HTTP/2 is asked for, which with a TLS of one's own is else off
	conn.Proxy = cfg.Proxy
	conn.OnProxyConnectResponse = checkProxyAnswer
	if o.Dial != nil {
		conn.DialContext = o.Dial
	}
	// Pings notice a broken connection well before silence does. A buffer of 1 MB, not of 4, still fills 80 Mbit/s at 100 ms.
	conn.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxReceiveBufferPerStream: 1 << 20}
	// The TLS configuration is nobody's: the first credential brings its own.
	return &Client{cfg: cfg, options: o, conn: conn, tls: &tls.Config{}}
}

// SetPermit has each write ask p whether it may be sent. It must be called before the first request.
func (c *Client) SetPermit(p permit) { c.permit = p }

// proxyRefusal is the error of a proxy that opens no way to the server. Without it, net/http says no more than
// "Forbidden", which looks like the API server's own answer.
type proxyRefusal struct {
	proxy  string
	status string
	code   int
}

func (r *proxyRefusal) Error() string {
	return fmt.Sprintf("the proxy %s refuses the connection: %s", r.proxy, r.status)
}

// checkProxyAnswer is http.Transport's OnProxyConnectResponse.
func checkProxyAnswer(_ context.Context, proxy *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyRefusal{proxy: proxy.Redacted(), status: answer.Status, code: answer.StatusCode}
}

// transport returns the connections for a credential: new ones if its TLS is another. Watches go on on the old ones.
func (c *Client) transport(cred *Credential) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tls != cred.tls {
		c.conn.CloseIdleConnections()
		c.tls, c.conn = cred.tls, c.conn.Clone()
		c.conn.TLSClientConfig = cred.tls.Clone()
	}
	return c.conn
}

// Close closes the connections that are not in use.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.CloseIdleConnections()
}

type request struct {
	method, path string
	query        url.Values
	body         any           // as JSON; a PATCH is a merge patch
	accept       string        // JSON where it is empty
	needsNone    bool          // permit: this may be written without one
	limit        time.Duration // of Send; 0: requestTimeout
}

// needsPermit reports whether a request is sent only while this process may write.
func (c *Client) needsPermit(r request) bool {
	isWrite := r.method != http.MethodGet
	return isWrite && c.permit != nil && !r.needsNone
}

// failed says of an error, unless it is nil, which request it is about.
func (r request) failed(err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", callOf(r.method, r.path, r.query), err)
	}
	return err
}

// do sends one request and returns a 2xx answer, whose body the caller closes; anything else is an error, a *StatusError where
// the server answered. It tries again once, after a 401: the loops above it have their backoffs, and honour retryAfter.
func (c *Client) do(ctx context.Context, r request) (resp *http.Response, err error) {
	cred, err := c.cfg.Credential(ctx, nil)
	if err == nil {
		resp, err = c.send(ctx, r, cred)
	}
	if statusIn(err).Code == http.StatusUnauthorized {
		fresh, renewal := c.cfg.Credential(ctx, cred)
		if renewal != nil {
			err = fmt.Errorf("%w; and then: %w", err, renewal)
		} else if fresh != cred {
			resp, err = c.send(ctx, r, fresh)
		}
	}
	return resp, r.failed(err)
}

// send makes one exchange.
func (c *Client) send(ctx context.Context, r request, cred *Credential) (*http.Response, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, err
		}
	}
	u := *c.cfg.Server
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "/")+r.path, r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.needsPermit(r) {
		if err := c.permit.mayWrite(); err != nil {
			return nil, err
		}
		guardBody(req, body, c.permit)
	}
	req.Header.Set("Accept", cmp.Or(r.accept, wire.JSON))
	req.Header.Set("User-Agent", c.options.UserAgent)
	if body != nil {
		contentType := wire.JSON
		if r.method == http.MethodPatch {
			contentType = "application/merge-patch+json"
		}
		req.Header.Set("Content-Type", contentType)
	}
	if cred.token != "" {
		req.Header.Set("Authorization", "Bearer "+cred.token)
	}
	start := time.Now()
	// Not by an http.Client: that would follow a redirect, which could lead a token elsewhere, and no API server sends one.
	resp, err := c.transport(cred).RoundTrip(req)
	status := cmp.Or(resp, &http.Response{Status: "<error>"}).Status
	code, _, _ := strings.Cut(status, " ")
	if c.options.Observe != nil {
		c.options.Observe(ctx, Exchange{r.method, u.RequestURI(), u.Host, status, code, start})
	}
	if err != nil {
		return nil, c.explain(err)
	} else if resp.StatusCode/100 != 2 {
		refusal := statusOf(resp, callOf(r.method, r.path, r.query))
		refusal.tried = cred.tried
		return nil, refusal
	}
	return resp, nil
}

// guardBody makes a request read its body through a permittedBody.
func guardBody(req *http.Request, body []byte, permit permit) {
	open := func() (io.ReadCloser, error) {
		return io.NopCloser(&permittedBody{bytes.NewReader(body), permit}), nil
	}
	req.Body, _ = open()
	req.GetBody = open // lets the transport send the request again when the connection closed before it had begun
	req.ContentLength = int64(len(body))
}

// permittedBody is the body of a write, which fails without a permit. The transport reads it after the dial, the
// handshake and the headers, right before it sends it: that may be long after the request was made, as the process may
// have been frozen meanwhile. A server acts on no request whose body is cut short.
type permittedBody struct {
	io.Reader
	permit permit
}

func (b *permittedBody) Read(p []byte) (int, error) {
	if err := b.permit.mayWrite(); err != nil {
		return 0, err
	}
	return b.Reader.Read(p)
}

// explain adds to an error of the network, or of TLS, what was tried and what to do.
func (c *Client) explain(err error) error {
	unknown, invalid, op, hint := x509.UnknownAuthorityError{}, x509.CertificateInvalidError{}, &net.OpError{}, ""
	var refusal *proxyRefusal
	switch {
	case errors.As(err, &refusal) && refusal.code == http.StatusProxyAuthRequired:
		hint = "give its user and password in the kubeconfig's proxy-url, or in HTTPS_PROXY: http://USER:PASSWORD@HOST"
	case errors.As(err, &refusal):
		hint = "allow the way to the API server there, or go without: remove the kubeconfig's proxy-url, or set NO_PROXY"
	case errors.As(err, &unknown):
		hint = fmt.Sprintf("give the CA of this cluster as certificate-authority; the server's certificate was issued by %q", unknown.Cert.Issuer)
	case errors.As(err, new(x509.HostnameError)):
		hint = "give one of these names as tls-server-name, or in the server's address"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		hint = "renew the server's certificate, or set the clock of this machine"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		hint = "give the server a certificate for servers, and podcount the CA that issued it, as certificate-authority"
	case errors.As(err, new(tls.RecordHeaderError)):
		hint = "it does not speak TLS: is its address that of an API server, and should it begin with http://?"
	case errors.As(err, &op) && op.Op == "proxyconnect":
		hint = "this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: is it running, and is its address right?"
	case op.Op == "dial" || os.IsTimeout(err):
		hint = "is the API server running, and is this its address?"
	case op.Op == "remote error": // what TLS calls an alert
		hint = "podcount speaks TLS 1.2 and 1.3; if a client certificate is wanted, give one that is known there, and valid"
	default:
		return err
	}
	return fmt.Errorf("%s, from %s: %w (%s)", c.cfg.Server.Redacted(), c.cfg.Source, err, hint)
}

// statusOf makes a Status of an answer that is not 2xx, be it a Status, plain text or some proxy's page, and closes it.
func statusOf(resp *http.Response, what call) *StatusError {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	isProtobuf, _ := wireOf(resp)
	s := &StatusError{Status: wire.ParseStatus(body, isProtobuf), call: what}
	if s.Code == 0 {
		s.Status = wire.Status{Message: strconv.Quote(oneLine(body, 200))}
	}
	s.Code = resp.StatusCode
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // never a date here
	s.Details.RetryAfterSeconds = max(s.Details.RetryAfterSeconds, seconds)
	return s
}

// oneLine returns the beginning of an answer, on one line.
func oneLine(answer []byte, limit int) string {
	line := strings.Join(strings.Fields(string(answer)), " ")
	return line[:min(len(line), limit)]
}

// errDryRun is the last guard of a dry run. What would be written is said by those who know what it means.
var errDryRun = errors.New("not sent, as this is a dry run")

// Send makes one request of a small answer, which it decodes into answer unless that is nil. It takes requestTimeout at most.
func (c *Client) Send(ctx context.Context, r request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.limit, requestTimeout))
	defer cancel()
	if c.needsPermit(r) {
		var release context.CancelFunc
		ctx, release = c.permit.whileLeading(ctx)
		defer release()
	}
	if r.body != nil {
		r.query = url.Values{"fieldManager": {c.options.FieldManager}}
	}
	if c.options.DryRun && r.method != http.MethodGet {
		return r.failed(errDryRun)
	}
	resp, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer io.CopyN(io.Discard, resp.Body, 2<<10) // what little is left, so that the connection can be used again
	if _, err = wireOf(resp); err == nil && answer != nil {
		err = json.NewDecoder(wire.Limited(resp.Body, answerLimit)).Decode(answer)
	}
	return r.failed(err)
}

// accept lists media types, the best first; if metadataOnly, of objects as this kind, though a server may send whole ones.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
func accept(metadataOnly bool, as string, types ...string) string {
	for i, t := range types {
		if metadataOnly {
			types[i] = t + ";as=" + as + ";g=meta.k8s.io;v=v1, " + t
		}
	}
	return strings.Join(types, ", ")
}

// wireOf tells in which form an answer is.
func wireOf(resp *http.Response) (isProtobuf bool, err error) {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if kind = strings.TrimSpace(kind); kind != wire.JSON && kind != wire.Protobuf {
		err = fmt.Errorf("the answer is %q, neither JSON nor protobuf: is this the API server?", kind)
	}
	return kind == wire.Protobuf, err
}

// stream opens a list or a watch. The body ends with errSilent when nothing has arrived for so long.
func (c *Client) stream(ctx context.Context, r request) (*liveBody, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &liveBody{ReadCloser: http.NoBody, ctx: ctx, cancel: cancel, timer: time.AfterFunc(silence, func() { cancel(errSilent) })}
	resp, err := c.do(ctx, r)
	if err == nil {
		b.ReadCloser = resp.Body
		b.isProtobuf, err = wireOf(resp)
		err = r.failed(err)
	}
	if err != nil {
		defer b.Close() // which is a cause, too
		return nil, cmp.Or(r.failed(context.Cause(ctx)), err)
	}
	return b, nil
}

// liveBody is a body that must keep talking. Where our own context has ended, its error says why.
type liveBody struct {
	io.ReadCloser
	isProtobuf bool
	ctx        context.Context
	cancel     context.CancelCauseFunc
	timer      *time.Timer
}

func (b *liveBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(silence)
	}
	if err != nil && err != io.EOF {
		err = cmp.Or(context.Cause(b.ctx), err)
	}
	return n, err
}

func (b *liveBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// The reflector's numbers, as in client-go where not explained here.
const (
	reflectorBackoff = 800 * time.Millisecond
	reflectorLimit   = 30 * time.Second
	healthy          = 2 * time.Minute // without a failure, after which the backoff begins anew
	relistEvery      = time.Hour       // guards against a server that has lost an event
	shortWatch       = time.Second
	pageLimit        = 2000             // objects a page, once whole lists have failed
	listTime         = 10 * time.Minute // how long a list may take
	slowList         = 2 * time.Second
	discoverEvery    = 10 * time.Second // ± 20 %
)

var errRelist = errors.New("time for a full list")

// Reflector keeps a store equal to what the server has: it lists, then watches from the list's resourceVersion, and
// resumes from the last version that it saw. https://kubernetes.io/docs/reference/using-api/api-concepts/
type Reflector[T Object[T]] struct {
	*Store[T]
	client    *Client
	kind      Kind[T]          // may be changed until Run, as may
	handlers  []func(Delta[T]) // who hears every change but the first list's; they must not block for long
	log       *Log
	outage    *logging.Outage          // of lists and watches
	discovery *logging.Outage          // of a resource under /apis/
	synced    context.Context          // done after the first list, by
	listed    func()                   // this
	found     atomic.Pointer[presence] // what discovery says of a resource under /apis/
	once      bool                     // what is not there, and what changes, is no business of ours

	state   sync.Mutex // guards both, which Run alone changes
	version string     // where the next watch starts; "": list first
	heard   time.Time  // when the server last told anything

	// Owned by Run, alone.
	decoder  *decoder[T]
	why      string    // the next list is due, if not to time
	relistAt time.Time // when the list is due in any case
	paged    bool      // whole lists have failed: list in pages
	lost     int       // whole lists that failed in a row
	vain     int       // watches in a row that came to nothing: ended at once, in garbage, or were silent
	expired  int       // whose version was too old
	failures int
	failedAt time.Time
	away     bool // the server was: it may come back with another past
}

// presence is a resource's time on the server: another pointer whenever it has come, or come back, or become another.
type presence struct{ status bool } // there is a subresource of this name

// NewReflector makes a reflector that fills store.
func NewReflector[T Object[T]](client *Client, kind Kind[T], store *Store[T], log *Log) *Reflector[T] {
	r := &Reflector[T]{Store: store, client: client, kind: kind, log: log, why: "start", heard: time.Now()}
	r.synced, r.listed = context.WithCancel(context.Background())
	r.decoder = newDecoder(&r.kind)
	r.outage = log.NewOutage(kind.Name, "watching again", "kind", kind.Name)
	r.discovery = log.NewOutage(kind.Name, "discovery answers again", "kind", kind.Name)
	return r
}

func (r *Reflector[T]) tell(changes ...Delta[T]) {
	for _, d := range changes {
		for _, f := range r.handlers {
			f(d)
		}
	}
}

// Reference names an object to the event recorder.
func (r *Reflector[T]) Reference(obj T) ObjectReference {
	_, version, _ := strings.Cut(r.kind.API[1:], "/")
	return ObjectReference{version, r.kind.Name, obj.meta().Key().Namespace, obj.meta().Key().Name, obj.meta().UID()}
}

// Synced is closed once the first list is complete.
func (r *Reflector[T]) Synced() <-chan struct{} { return r.synced.Done() }

// State is for people, and for gauges. A store is ready if complete; that of a resource that the server does not have is.
func (r *Reflector[T]) State() (kind string, isReady bool, state map[string]any) {
	r.state.Lock()
	version, silent := r.version, time.Since(r.heard).Seconds()
	r.state.Unlock()
	absent := !r.once && strings.HasPrefix(r.kind.API, "/apis/") && r.found.Load() == nil
	if isReady = absent || r.synced.Err() != nil; absent {
		silent = 0 // as it should be
	}
	if absent {
		r.log.Remove("podcount_watch_age_seconds", r.kind.Name)
	} else {
		r.log.Set(silent, "podcount_watch_age_seconds", r.kind.Name)
	}
	if absent || r.synced.Err() == nil { // nobody knows how many there are
		r.log.Remove("podcount_cache_objects", r.kind.Name)
	} else {
		r.log.Set(float64(r.Len()), "podcount_cache_objects", r.kind.Name)
	}
	return r.kind.Name, isReady, map[string]any{"objects": r.Len(), "ready": isReady, "resourceVersion": version, "secondsSinceHeard": silent}
}

// move sets where the next watch starts, as the server has just told; or, by "", says why a list is due.
func (r *Reflector[T]) move(version, why string) {
	r.state.Lock()
	defer r.state.Unlock()
	if r.version, r.why = version, why; version != "" {
		r.heard = time.Now()
	}
}

// errStripped is why an object is not right although the server has accepted what was written.
var errStripped = errors.New("the server accepted the write, but not what it says: " +
	"a mutating webhook, a MutatingAdmissionPolicy or a schema takes that away")

// Patch sends a merge patch of obj, or of its subresource sub, and takes the answer into the store. It returns the object
// as it is now; nil if it is gone, or was made again under its name, as the watch will tell. kept reports whether the
// object in the answer has what was written: if not, the error is errStripped, and the object is returned beside it.
//
// The patch goes without resourceVersion, so that other writers cannot hold us up, but with the uid, so that an object
// that was made again does not get what was meant for the one before it.
func (r *Reflector[T]) Patch(
	ctx context.Context, obj T, sub string, patch map[string]any, kept func(now T) bool,
) (now T, err error) {
	now, err = r.patch(ctx, obj, sub, patch)
	var none T
	switch {
	case err != nil:
		r.log.Count(r.kind.Patches, "failed")
		return none, err
	case now == none:
		r.log.Count(r.kind.Patches, "gone")
		return none, nil
	}
	if !kept(now) {
		r.log.Count(r.kind.Patches, "stripped")
		err = fmt.Errorf("patch %s/%s: %w", r.kind.Resource, now.meta().Key(), errStripped)
	} else {
		r.log.Count(r.kind.Patches, "written")
	}
	r.tell(r.Apply("WRITTEN", now)...)
	return now, err
}

// patch sends the patch, and returns the object of the answer; nil if obj is gone.
func (r *Reflector[T]) patch(ctx context.Context, obj T, sub string, patch map[string]any) (now T, err error) {
	meta := map[string]any{"uid": obj.meta().UID()}
	given, _ := patch["metadata"].(map[string]any)
	maps.Copy(meta, given)
	patch["metadata"] = meta
	key := obj.meta().Key()
	req := request{
		method: http.MethodPatch,
		path:   strings.TrimSuffix(r.kind.path(key.Namespace)+"/"+key.Name+"/"+sub, "/"),
		body:   patch,
		accept: accept(r.kind.MetadataOnly, "PartialObjectMetadata", wire.JSON),
	}
	var answer json.RawMessage
	err = r.client.Send(ctx, req, &answer)
	status := statusIn(err)
	var none T
	isGone := status.Reason == "NotFound"
	isAnother := status.Reason == "Invalid" && status.hasCause("metadata.uid")
	if isGone || isAnother {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	now, err = newDecoder(&r.kind).parse(answer)
	if err != nil {
		return none, err
	}
	if now.meta().UID() != obj.meta().UID() {
		return none, nil // of a subresource's patch, the server does not check it
	}
	return now, nil
}

// Run keeps the store equal to the server until ctx ends. It returns early, with a *StatusError, only when the server says that
// the very first list is a bad request: then a selector is wrong, and no patience will mend it.
func (r *Reflector[T]) Run(ctx context.Context) error {
	defer r.outage.Stop()
	defer r.discovery.Stop()
	if !strings.HasPrefix(r.kind.API, "/apis/") {
		return r.run(ctx)
	}
	// No single 404, of a list or of discovery, says that the resource is gone: one that is new may be answered so for a moment.
	var running sync.WaitGroup
	stop, err := func() {}, error(nil)
	for lacks := 0; ctx.Err() == nil; sleep(ctx, max(retryAfter(err), discoverEvery*4/5+rand.N(discoverEvery*2/5))) {
		here, news := r.found.Load(), (*presence)(nil)
		news, err = r.discover(ctx)
		if news != nil {
			lacks = 0
		} else if err == nil {
			lacks++
		}
		if err == nil {
			r.discovery.Worked("discovery")
		}
		switch {
		case err != nil && ctx.Err() == nil:
			r.discovery.Failed("discovery", "cannot discover", outagePause(err), "err", err)
		case news == nil && here == nil && lacks == 1:
			r.log.Info("waiting for a resource that the server does not have: is its CRD installed?", "resource", r.kind.Resource, "in", r.kind.API)
			if r.once {
				r.listed()
				stop()
				return nil
			}
		case news == nil && here != nil && lacks == 2:
			r.log.Info("the resource is gone: waiting for it to come back", "resource", r.kind.Resource, "in", r.kind.API)
			stop()
			running.Wait()
			r.outage.Forget("watch")
			r.found.Store(nil)
			r.failures = 0
			r.move("", "return")
			r.tell(r.List().Commit()...)
		case news != nil && (here == nil || *news != *here):
			r.log.Info("discovered", "resource", r.kind.Resource, "in", r.kind.API, "status", news.status)
			r.found.Store(news)
			for _, obj := range r.All() { // none, where it has just come
				r.tell(Delta[T]{obj, obj})
			}
			if here == nil {
				var alive context.Context
				alive, stop = context.WithCancel(ctx)
				running.Go(func() { r.run(alive) })
			}
		}
	}
	stop()
	running.Wait()
	return nil
}

// discover asks whether the server has the resource; nil: no. https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
func (r *Reflector[T]) discover(ctx context.Context) (found *presence, err error) {
	var answer struct {
		Kind      string
		Resources []struct{ Name string }
	}
	err = r.client.Send(ctx, request{method: http.MethodGet, path: r.kind.API}, &answer)
	if statusIn(err).Code == http.StatusNotFound {
		return nil, nil // nothing at all of this group and version
	} else if err == nil && answer.Kind != "APIResourceList" {
		err = fmt.Errorf("%s: the answer is of kind %q, not APIResourceList", r.kind.API, answer.Kind)
	}
	has := func(name string) bool { return slices.Contains(answer.Resources, struct{ Name string }{name}) }
	if has(r.kind.Resource) {
		found = &presence{has(r.kind.Resource + "/status")}
	}
	return found, err
}

// run lists and watches until ctx ends, or as Run says.
func (r *Reflector[T]) run(ctx context.Context) error {
	for ctx.Err() == nil {
		var wait time.Duration
		if r.version != "" && time.Now().Before(r.relistAt) {
			wait = r.watch(ctx)
		} else if err := r.list(ctx); err != nil && ctx.Err() == nil {
			if r.synced.Err() == nil && r.found.Load() == nil && statusIn(err).Reason == "BadRequest" {
				return err
			}
			wait = r.afterFailure("cannot list", err)
		}
		sleep(ctx, wait)
	}
	return nil
}

// afterFailure says what failed, and how long to wait.
func (r *Reflector[T]) afterFailure(what string, err error) time.Duration {
	if time.Since(r.failedAt) > healthy {
		r.failures = 0
	}
	r.failures++
	r.failedAt = time.Now()
	wait := max(backoff(r.failures, reflectorBackoff, reflectorLimit), retryAfter(err))
	r.outage.Failed("watch", what, outagePause(err), "err", err)
	return wait
}

// request begins a list or a watch, whose objects come as this type where metadata alone is asked for.
func (r *Reflector[T]) request(as string) request {
	q := url.Values{"labelSelector": {r.kind.Selector}, "fieldSelector": {r.kind.Fields}}
	maps.DeleteFunc(q, func(_ string, values []string) bool { return values[0] == "" })
	types := []string{wire.Protobuf, wire.JSON}
	if !r.kind.Protobuf {
		types = types[1:]
	}
	return request{method: http.MethodGet, path: r.kind.path(r.kind.Namespace), query: q, accept: accept(r.kind.MetadataOnly, as, types...)}
}

// list makes the store equal to one complete list: the most recent state, which an unset resourceVersion asks for.
func (r *Reflector[T]) list(ctx context.Context) error {
	start, listing := time.Now(), r.List()
	meta, err := r.pages(ctx, listing)
	if err != nil {
		if code := statusIn(err).Code; listing.n > 0 || errors.Is(err, errSilent) || code == http.StatusInternalServerError || code == http.StatusGatewayTimeout {
			r.lost++ // too much for this server, or for the way to it? Pages are smaller
			r.paged = r.paged || r.lost >= 2
		}
		// The hourly list can wait; what the watch brings cannot.
		r.relistAt, r.away = time.Now().Add(relistEvery/12+rand.N(relistEvery/12)), r.away || statusIn(err).Code/100 != 4
		return err
	}
	isFirst := r.synced.Err() == nil
	changes := listing.Commit() // of the first list, none
	r.tell(changes...)
	changed := len(changes)
	if isFirst {
		changed = r.Len()
	}
	r.log.Info("listed", "kind", r.kind.Name, "objects", r.Len(), "rv", meta.ResourceVersion, "changes", changed,
		"took", time.Since(start).Round(time.Millisecond))
	r.log.Count("podcount_relists_total", r.kind.Name, cmp.Or(r.why, "hour"))
	r.move(meta.ResourceVersion, "")
	r.lost, r.vain, r.away = 0, 0, false
	r.relistAt = time.Now().Add(relistEvery + rand.N(relistEvery/5) - relistEvery/10)
	r.listed()
	return nil
}

// pages reads a list: whole, in one answer, which is half the work for both sides; or in pages.
func (r *Reflector[T]) pages(ctx context.Context, listing *Listing[T]) (meta wire.ListMeta, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTime, fmt.Errorf("the list has not ended after %v", listTime))
	defer cancel()
	start, slow, req := time.Now(), slowList, r.request("PartialObjectMetadataList")
	if r.paged {
		req.query.Set("limit", strconv.Itoa(pageLimit))
	}
	for range listLimit/pageLimit + 1 {
		body, err := r.client.stream(ctx, req)
		if err != nil {
			return meta, err
		}
		meta, err = r.decoder.list(body, body.isProtobuf, func(obj T, text []byte) (kept bool, err error) {
			if listing.n%256 == 0 && time.Since(start) > slow {
				r.log.Info("still listing", "kind", r.kind.Name, "objects", listing.n, "for", time.Since(start).Round(time.Second))
				slow = 2 * time.Since(start)
			}
			return listing.Add(obj, text)
		})
		body.Close()
		if err != nil || meta.Continue == "" {
			return meta, req.failed(err)
		}
		req.query.Set("continue", meta.Continue)
	}
	return meta, req.failed(fmt.Errorf("the list has not ended after %d pages", listLimit/pageLimit))
}

// watch applies events until the watch ends. Then it decides how long to wait, and, by clearing version, whether to list.
func (r *Reflector[T]) watch(ctx context.Context) (wait time.Duration) {
	due, cancel := context.WithDeadlineCause(ctx, r.relistAt, errRelist)
	defer cancel()
	req := r.request("PartialObjectMetadata")
	maps.Copy(req.query, url.Values{"watch": {"1"}, "resourceVersion": {r.version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(300 + rand.IntN(300))}}) // so that watches do not all end together
	body, err := r.client.stream(due, req)
	opened, from, start := err == nil, r.version, time.Now()
	events := 0 // frames that were understood, bookmarks too
	if opened {
		defer body.Close()
		if r.away && r.rewound(ctx) {
			return 0
		}
		start = time.Now()
		r.log.Log(ctx, levelFlow, "watching", "kind", r.kind.Name, "rv", from)
		// An idle watch says nothing for a while. One that was refused in truth ends at once.
		lives := time.AfterFunc(shortWatch, func() { r.outage.Worked("watch") })
		err = r.decoder.events(body, body.isProtobuf, func(ev WatchEvent[T]) error {
			if ev.Status != nil {
				status := &StatusError{Status: *ev.Status}
				status.Code = cmp.Or(status.Code, http.StatusInternalServerError)
				return req.failed(status)
			}
			events++
			r.log.Count("podcount_watch_events_total", r.kind.Name, ev.Type)
			r.apply(ev)
			if r.version != from {
				r.outage.Worked("watch")
			}
			return nil
		})
		lives.Stop()
	}
	status := statusIn(err)
	code := status.Code
	r.away = r.away || !opened && code/100 != 4
	silent := events == 0 && errors.Is(err, errSilent)
	short := opened && r.version == from && time.Since(start) < shortWatch
	if events > 0 && !short {
		r.vain, r.expired = 0, 0
	}
	enough, why, failed := 0, "", "" // that many watches in vain, one after the other, lead to a list; 0: this one was not
	switch {
	case errors.Is(err, errRelist) || ctx.Err() != nil:
		return 0
	case code == http.StatusGone || status.Reason == "Expired" || status.Reason == "Gone":
		// The version is too old, which is no fault: with a server's restart, history begins anew. A wait, but not an outage's.
		r.expired++
		enough, why, wait = 1, "expired", backoff(r.expired, reflectorBackoff, reflectorLimit)
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity:
		enough, why, failed = 1, "refused", "cannot watch"
	case opened && code != 0 && code != http.StatusTooManyRequests: // an ERROR frame: for this version it may never end
		enough, why, failed = 2, "error", "cannot watch"
	case code != 0 || !opened && !silent:
		failed = "cannot watch"
	case errors.As(err, new(wire.GarbageError)):
		enough, why, failed = 2, "garbage", "watch ended in garbage"
	case silent: // Not even a bookmark. A version from the future, too, is answered so.
		enough, why = 2, "silence"
	case short:
		enough, why, failed = 3, "short", "watch ended at once"
	}
	err = cmp.Or(err, io.EOF)
	if failed != "" {
		wait = r.afterFailure(failed, err)
	} else {
		r.log.Log(ctx, levelFlow, "watch ended", "kind", r.kind.Name, "rv", r.version, "err", err)
	}
	if enough > 0 {
		if r.vain++; r.vain >= enough {
			r.move("", why)
			r.log.Info("listing anew", "kind", r.kind.Name, "after", err)
		}
	}
	return wait
}

// rewound asks for the newest version. It is older than what we have heard of if etcd was restored from a backup: then a
// list is due, and at once, as other changes will come under the same versions. Where that fails, the next watch asks.
func (r *Reflector[T]) rewound(ctx context.Context) bool {
	var page struct{ Metadata wire.ListMeta }
	req := r.request("")
	req.accept, req.limit = accept(true, "PartialObjectMetadataList", wire.JSON), shortWatch // as the watch waits
	req.query.Set("limit", "1")
	if r.client.Send(ctx, req, &page) != nil {
		return false
	}
	if r.away = false; newerVersion(r.version, page.Metadata.ResourceVersion) {
		r.log.Info("versions have gone back", "kind", r.kind.Name, "from", r.version, "to", page.Metadata.ResourceVersion)
		r.move("", "restored")
	}
	return r.version == ""
}

// apply takes one event and moves the resume point. A bookmark moves that only.
func (r *Reflector[T]) apply(ev WatchEvent[T]) {
	m := ev.Object.meta()
	stale := !newerVersion(m.ResourceVersion(), r.version) // it would turn back time
	if r.log.Enabled(context.Background(), slog.LevelDebug) {
		r.log.Debug(strings.TrimSpace(ev.Type+" "+r.kind.Name+" "+m.Key().String()), "rv", m.ResourceVersion(), "stale", stale)
	}
	if stale {
		return
	}
	r.move(m.ResourceVersion(), "")
	if ev.Type != "BOOKMARK" {
		r.tell(r.Apply(ev.Type, ev.Object)...)
	}
}
