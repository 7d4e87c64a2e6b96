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
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

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

// Options say where LoadConfig is to look for a cluster.
type Options struct {
	Kubeconfig     string                   // the file; "": look elsewhere
	Context        string                   // of the file; "": its current one. With a name the service account is passed over
	Master         string                   // overrides the server's address, and is enough where nothing else is found
	ServiceAccount string                   // the directory of a pod's token and CA; "": where kubelet puts them
	Getenv         func(name string) string // of KUBECONFIG, HOME and the like
	Log            *slog.Logger             // of what is odd, and of credentials that cannot be renewed; nil: of nothing
}

// Load finds the cluster: the file of the options, $KUBECONFIG, the service account of the pod that we run in, or
// ~/.kube/config, in that order. It reads files, which ends with ctx at the latest, and sends nothing. Errors name the
// file and the field. The caller closes the Config.
func Load(ctx context.Context, o Options) (*Config, error) {
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

// OwnNamespace returns the namespace of the pod that we run in; "" where we run in none.
func OwnNamespace(ctx context.Context) string {
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
