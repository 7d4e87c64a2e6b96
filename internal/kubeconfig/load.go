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

// serviceAccount is where kubelet puts a pod's token, CA and namespace.
// https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// How old a file's contents may be when a request is made.
const (
	tokenAge = time.Minute // kubelet replaces a token well before it ends
	certAge  = time.Second
)

// Limits of what is read from files.
const (
	fileTime = 5 * time.Second // that a file may take to be read at the start
	fileWait = time.Second     // the same later, when podcount can go on with what it has read before
	fileSize = 16 << 20        // bytes
)

// Limits of exec programs.
const (
	execTime      = time.Minute     // that one may take
	execPause     = 5 * time.Second // between its runs
	execOutput    = 1 << 20         // bytes that it may print
	programIsSlow = 2 * time.Second // after which it is said that it is waited for
	closeTime     = time.Second     // that it may take to be gone, once it is killed
)

// Options say where Load is to look for a cluster. All but Getenv may be left out.
type Options struct {
	Kubeconfig string // the file; "": look elsewhere

	// Context is the context of the kubeconfig; "" is its current one. With a name, the service account is passed over.
	Context string

	// Master overrides the server's address, and is enough where nothing else is found.
	Master string

	// ServiceAccount is the directory of a pod's token and CA; "": where kubelet puts them.
	ServiceAccount string

	// Getenv returns a variable of the environment, as os.Getenv does: KUBECONFIG, HOME and those of a pod's service
	// account. It is called only while Load runs. Exec programs and proxies have the process's own environment.
	Getenv func(name string) string

	// Log hears of what is odd, and of credentials that cannot be renewed, also after Load. nil: nothing does.
	Log *slog.Logger
}

// Load finds the cluster: the file of the options, $KUBECONFIG, the service account of the pod that we run in, or
// ~/.kube/config, in that order. It reads files, which ends with ctx at the latest, and sends nothing; an exec program
// is looked up, and runs when a credential is asked for. Errors name the file and the field. The caller closes the
// Config.
func Load(ctx context.Context, o Options) (*Config, error) {
	a := &access{log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), master: o.Master}
	accountDir := cmp.Or(o.ServiceAccount, serviceAccount)
	if err := a.find(ctx, o.Kubeconfig, o.Context, accountDir, o.Getenv); err != nil {
		return nil, err
	}
	if o.Master != "" {
		a.server = o.Master
		a.serverName = "" // that of the old address's certificate; kubectl --server sees it so, too
		a.source = strings.TrimSuffix("-master, "+a.source, ", ")
	}
	return a.config(ctx)
}

// OwnNamespace returns the namespace of the pod that we run in; "" where we run in none. It reads a file, which ends
// with ctx at the latest, and takes 5 seconds at most.
func OwnNamespace(ctx context.Context) string {
	text, _ := within(ctx, fileTime, serviceAccount+"/namespace", readRegular)
	return strings.TrimSpace(string(text))
}

// find is the first half of Load: it reads what there is.
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

// config is the second half of Load: it checks what was found, reads the files of the credential, and looks up the exec
// program.
func (a *access) config(ctx context.Context) (*Config, error) {
	server, err := a.serverURL()
	if err != nil {
		return nil, err
	}
	proxy, err := a.proxyFunc()
	if err != nil {
		return nil, err
	}
	a.sayWhatIsOdd(server)

	a.alive, a.end = context.WithCancelCause(context.Background())
	a.now = &Credential{}
	if _, err := a.credential(ctx, nil); err != nil {
		a.close()
		return nil, err
	}
	a.warnOfOpenFiles(ctx)
	if a.exec != nil {
		err := a.exec.check()
		if err == nil {
			err = a.exec.lookUp(ctx)
		}
		if err != nil {
			a.close()
			return nil, fmt.Errorf("%s: %w", a.source, err)
		}
		a.tellCluster()
	}
	return &Config{Source: a.source, Server: server, Proxy: proxy, Credential: a.credential, access: a}, nil
}

// serverURL reads the server's address, which may come without https://.
func (a *access) serverURL() (*url.URL, error) {
	if a.server == "" {
		return nil, fmt.Errorf("%s: the cluster has no server: give it one, or -master", a.source)
	}
	if !strings.Contains(a.server, "://") {
		a.server = "https://" + a.server
	}
	refusal := func(scheme, host string) error { // the rest of an address may be a secret
		return fmt.Errorf("%s: the server's address (%s://%s) must be https://HOST[:PORT][/PATH]", a.source, scheme, host)
	}
	u, err := url.Parse(a.server)
	if err != nil {
		return nil, refusal("", "")
	}
	isHTTP := u.Scheme == "https" || u.Scheme == "http"
	hasMore := u.RawQuery != "" || u.User != nil
	if !isHTTP || u.Host == "" || hasMore {
		return nil, refusal(u.Scheme, u.Host)
	}
	return u, nil
}

// proxyFunc returns the proxy of the kubeconfig, or else those of the environment.
func (a *access) proxyFunc() (func(*http.Request) (*url.URL, error), error) {
	if a.proxy == "" {
		return http.ProxyFromEnvironment, nil
	}
	u, err := url.Parse(a.proxy)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
		return nil, fmt.Errorf("%s: the proxy-url must be http://, https:// or socks5:// and a HOST[:PORT]", a.source)
	}
	return http.ProxyURL(u), nil
}

// sayWhatIsOdd tells of what is allowed, but seldom meant.
func (a *access) sayWhatIsOdd(server *url.URL) {
	if a.isWithheld {
		a.log.Info("no credential is sent, as the server's address begins with http://",
			"server", server.Host, "from", a.source)
	}
	if server.Scheme != "https" {
		return
	}
	if a.insecure {
		a.log.Warn("the server's certificate is not verified (insecure-skip-tls-verify): give a certificate-authority",
			"server", server.Host)
	}
	if !a.token.given() && !a.cert.given() && a.exec == nil {
		a.log.Warn("no credential was found (token, tokenFile, client-certificate or exec): requests are anonymous",
			"in", a.source)
	}
}

// tellCluster completes what the exec program is told of the cluster, if it asks.
func (a *access) tellCluster() {
	cluster := a.exec.cluster
	if cluster == nil {
		return
	}
	cluster.Server = a.server
	cluster.TLSServerName = a.serverName
	cluster.InsecureSkipTLSVerify = a.insecure
	cluster.ProxyURL = a.proxy
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
