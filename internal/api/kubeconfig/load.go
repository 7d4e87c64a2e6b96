package kubeconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// serviceAccountDir is the directory in which the kubelet puts a pod's token, CA and namespace.
// https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// A file is read again before a request if its content is older than this.
const (
	maxTokenAge = time.Minute // the kubelet replaces a token long before it expires
	maxCertAge  = time.Second
)

// Limits for files.
const (
	fileTimeout   = 5 * time.Second // for reading a file for the first time
	rereadTimeout = time.Second     // for reading a file again, because its previous content can still be used
	maxFileSize   = 16 << 20        // in bytes
)

// Limits for exec programs.
const (
	execTimeout     = time.Minute     // for one run
	minExecInterval = 5 * time.Second // between two runs
	maxExecOutput   = 1 << 20         // in bytes
	slowExecTime    = 2 * time.Second // a program that runs longer is reported in the log
	closeTimeout    = time.Second     // for a program to end after it has been killed
)

// Options say where Load looks for a cluster. Only Names and Getenv are required.
type Options struct {
	// Kubeconfig is a file. If it is "", Load looks elsewhere.
	Kubeconfig string

	// Context is a context of the kubeconfig. If it is "", Load uses the current context, or a service account.
	Context string

	// Master replaces the address of the server. It is sufficient if Load finds nothing else.
	Master string

	// Names are the names of these three options for users, in error messages.
	Names OptionNames

	// ServiceAccount is the directory with a pod's token and CA. If it is "", it is the one that the kubelet uses.
	ServiceAccount string

	// Getenv returns an environment variable, like os.Getenv. Load calls it for KUBECONFIG, HOME, and the variables of
	// a pod's service account. Exec programs and proxies use the environment of the process instead.
	Getenv func(name string) string

	// Log receives warnings: while Load runs, about the configuration; later, about credentials that cannot be renewed.
	// If it is nil, nothing is logged.
	Log *slog.Logger
}

// OptionNames are the names of options for error messages, such as the flag "-context".
type OptionNames struct{ Kubeconfig, Context, Master string }

// Load finds the cluster, in this order: in the kubeconfig of the options, in $KUBECONFIG, in the service account of
// this pod, in ~/.kube/config. It stops reading files when ctx ends. It looks up an exec program, but does not run it:
// Config.Credential does. Its errors name the file and the field. The caller must close the Config.
func Load(ctx context.Context, o Options) (*Config, error) {
	a := &access{
		log:    cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		master: o.Master,
		names:  o.Names,
	}
	if err := a.find(ctx, o); err != nil {
		return nil, err
	}
	if o.Master != "" {
		a.server = o.Master
		a.serverName = "" // it belongs to the replaced address; kubectl --server drops it, too
		a.source = strings.TrimSuffix(a.names.Master+", "+a.source, ", ")
	}
	return a.newConfig(ctx)
}

// find is the first half of Load: it finds the cluster and the user, and reads what the kubeconfig says about them.
func (a *access) find(ctx context.Context, o Options) error {
	if o.Kubeconfig != "" {
		err := a.readKubeconfigs(ctx, []string{o.Kubeconfig}, o.Context)
		return nameOption(a.names.Kubeconfig, err)
	}
	if list := o.Getenv("KUBECONFIG"); list != "" {
		err := a.readKubeconfigs(ctx, filepath.SplitList(list), o.Context)
		return nameOption("KUBECONFIG", err)
	}

	// If a file system does not answer in time, the file may exist. So do not look elsewhere.
	accountErr := a.findServiceAccount(ctx, o)
	if accountErr == nil || errors.Is(accountErr, errNotInTime) {
		return accountErr
	}
	file, homeErr := homeKubeconfig(ctx, o)
	if homeErr == nil {
		return a.readKubeconfigs(ctx, []string{file}, o.Context)
	}
	if errors.Is(homeErr, errNotInTime) {
		return homeErr
	}

	if o.Context != "" {
		return fmt.Errorf("%s %s: there is no kubeconfig that could have this context: give %s, or set KUBECONFIG (%w)",
			a.names.Context, o.Context, a.names.Kubeconfig, homeErr)
	}
	if o.Master != "" {
		return nil
	}
	return fmt.Errorf("no cluster found: give %s or %s, or set KUBECONFIG (service account: %w; home directory: %w)",
		a.names.Kubeconfig, a.names.Master, accountErr, homeErr)
}

// nameOption makes the error for an unreadable file begin with the option that names the file, instead of a system
// call. It returns other errors unchanged.
func nameOption(option string, err error) error {
	var fileErr *os.PathError
	if !errors.As(err, &fileErr) {
		return err
	}
	return fmt.Errorf("%s %s: %w", option, fileErr.Path, fileErr.Err)
}

// findServiceAccount finds the service account of this pod. The error says why there is none.
func (a *access) findServiceAccount(ctx context.Context, o Options) error {
	if o.Context != "" {
		return errors.New("a service account has no contexts")
	}
	host := o.Getenv("KUBERNETES_SERVICE_HOST")
	port := cmp.Or(o.Getenv("KUBERNETES_SERVICE_PORT"), "443")
	if host == "" {
		return errors.New("KUBERNETES_SERVICE_HOST is not set, so this process does not run in a pod")
	}
	dir := cmp.Or(o.ServiceAccount, serviceAccountDir)
	if _, err := within(ctx, fileTimeout, filepath.Join(dir, "token"), os.Stat); err != nil {
		return err
	}
	a.source = "the pod's service account"
	a.isInPod = true
	a.server = "https://" + net.JoinHostPort(host, port)
	if a.isPlainHTTP() {
		a.isCredentialWithheld = true
		return nil
	}
	a.ca = part{field: "certificate", file: filepath.Join(dir, "ca.crt"), maxAge: maxCertAge}
	a.token = part{field: "token", file: filepath.Join(dir, "token"), maxAge: maxTokenAge, check: checkToken}
	return nil
}

// homeKubeconfig returns the name of the file ~/.kube/config. The error says why there is none.
func homeKubeconfig(ctx context.Context, o Options) (file string, err error) {
	home := o.Getenv("HOME")
	if home == "" {
		return "", errors.New("HOME is not set, so there is no ~/.kube/config")
	}
	file = filepath.Join(home, ".kube", "config")
	_, err = within(ctx, fileTimeout, file, os.Stat)
	return file, err
}

// isPlainHTTP reports whether the server's address begins with http://, so that nothing encrypts what is sent there.
// Then no credential is read from a file, obtained from a program, or sent, even if the server is on this machine.
// kubectl and client-go have the same rule.
func (a *access) isPlainHTTP() bool {
	// The master comes first, because Load replaces the server by it only later.
	u, err := url.Parse(cmp.Or(a.master, a.server))
	return err == nil && u.Scheme == "http"
}

// newConfig is the second half of Load: it checks what was found, reads the files of the credential, and looks up the
// exec program.
func (a *access) newConfig(ctx context.Context) (*Config, error) {
	server, err := a.serverURL()
	if err != nil {
		return nil, err
	}
	proxy, err := a.proxyFunc()
	if err != nil {
		return nil, err
	}
	a.logWarnings(server)

	a.alive, a.end = context.WithCancelCause(context.Background())
	a.turn = make(chan struct{}, 1)
	a.current = &Credential{}
	c := &Config{Source: a.source, Server: server, Proxy: proxy, Credential: a.credential, access: a}
	if err := a.prepareCredential(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// prepareCredential reads the files of the credential, looks up the exec program, and prepares what it is told.
func (a *access) prepareCredential(ctx context.Context) error {
	if _, err := a.credential(ctx, nil); err != nil {
		return err
	}
	a.warnAboutReadableFiles(ctx)
	if a.exec == nil {
		return nil
	}
	if err := a.exec.lookUp(ctx); err != nil {
		return fmt.Errorf("%s: %w", a.source, err)
	}
	if cluster := a.exec.cluster; cluster != nil {
		cluster.Server = a.server
		cluster.TLSServerName = a.serverName
		cluster.InsecureSkipTLSVerify = a.insecure
		cluster.ProxyURL = a.proxy
	}
	return nil
}

// serverURL parses the address of the server. https:// is the default.
func (a *access) serverURL() (*url.URL, error) {
	if a.server == "" {
		return nil, fmt.Errorf("%s: the cluster has no server: add one there, or give %s", a.source, a.names.Master)
	}
	if !strings.Contains(a.server, "://") {
		a.server = "https://" + a.server
	}
	u, err := url.Parse(a.server)
	isURL := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
	if !isURL || u.RawQuery != "" || u.User != nil {
		// It may contain a secret, so quote nothing.
		return nil, fmt.Errorf("%s: the server's address must be https://HOST[:PORT][/PATH]", a.source)
	}
	return u, nil
}

// proxyFunc returns a function for Config.Proxy. It uses the proxy of the kubeconfig or, if there is none, the
// environment.
func (a *access) proxyFunc() (func(*http.Request) (*url.URL, error), error) {
	if a.proxy == "" {
		return http.ProxyFromEnvironment, nil
	}
	u, err := url.Parse(a.proxy)
	isValid := err == nil && u.Host != "" && slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme)
	if !isValid {
		return nil, fmt.Errorf("%s: the proxy-url must be http://, https:// or socks5:// and a HOST[:PORT]", a.source)
	}
	return http.ProxyURL(u), nil
}

// logWarnings logs what is allowed, but probably a mistake.
func (a *access) logWarnings(server *url.URL) {
	if a.isCredentialWithheld {
		a.log.Info("no credential is sent, because the server's address begins with http://",
			"server", server.Host, "from", a.source)
	}
	if server.Scheme != "https" {
		return
	}
	if a.insecure {
		a.log.Warn("the server's certificate is not verified (insecure-skip-tls-verify): give a certificate-authority",
			"server", server.Host)
	}
	if !a.token.isGiven() && !a.cert.isGiven() && a.exec == nil {
		a.log.Warn("no credential was found (token, tokenFile, client-certificate or exec): requests are anonymous",
			"in", a.source)
	}
}

// warnAboutReadableFiles logs a warning for each file that contains a secret, and that every user of this machine can
// read.
func (a *access) warnAboutReadableFiles(ctx context.Context) {
	if a.isInPod || runtime.GOOS == "windows" {
		return // users cannot change the mode of the kubelet's files, and Windows has no such mode
	}
	for _, secret := range []*part{&a.key, &a.token} {
		file := cmp.Or(secret.file, secret.kubeconfig)
		if !secret.isGiven() || file == "" {
			continue
		}
		info, err := within(ctx, fileTimeout, file, os.Stat)
		if err == nil && info.Mode().Perm()&0o004 != 0 {
			a.log.Warn("every user of this machine can read a file that holds a secret: run chmod go-rwx on it", "file", file)
		}
	}
}

// OwnNamespace returns the namespace of the pod that this process runs in, or "" if it does not run in a pod. It reads
// a file, for at most 5 seconds or until ctx ends.
func OwnNamespace(ctx context.Context) string {
	text, _ := within(ctx, fileTimeout, serviceAccountDir+"/namespace", readRegular)
	return strings.TrimSpace(string(text))
}
