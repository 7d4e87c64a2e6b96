package suite

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/testkit"
)

// Access shows how podcount reaches the API server, and what it reports if it cannot.
var Access = Topic{
	{"podcount works over TLS, by a token or a certificate", overTLS},
	{"-master leads through kubectl proxy", kubectlProxy},
	{"a redirect is not followed", redirect},
	{"a wrong access is logged with the next step", wrongAccess},
	{"an unreachable proxy of the environment is named", unreachableProxy},
	{"NO_PROXY excepts servers from the proxy", environmentProxy},
	{"a signal ends a start that waits for a file", stopAtFile},
}

func overTLS(t *testing.T, podcount Program) {
	clients := fakekube.NewAuthority(t, "clients")
	certificate, key := clients.Issue(t, "me", fakekube.AsAdmin)
	inYAML := base64.StdEncoding.EncodeToString
	f := fakekube.New()
	f.Allow("good")
	f.ClientCA = clients.Pool()
	f.AddNode("cp", ControlPlane)
	f.AddPods(3000) // enough for gzip
	server, ca := f.ServeTLSFor(t)
	for _, row := range []struct{ name, user string }{
		{"token", "token: good"},
		{"certificate", "client-certificate-data: " + inYAML(certificate) + "\n    client-key-data: " + inYAML(key)},
	} {
		t.Run(row.name, func(t *testing.T) {
			f.SetLabel("cp", TotalLabel, nil)
			dir := t.TempDir()
			writeText(t, dir, "config", fakekube.Kubeconfig(server, ca, row.user))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			log := &testkit.Buffer{}
			go func() {
				args := []string{"-kubeconfig", filepath.Join(dir, "config")}
				ended <- podcount(ctx, args, NoEnv, io.Discard, log, nil)
			}()
			f.Await(t, "the right label", func() bool { return f.Label("cp", TotalLabel) == "3000" })
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("podcount ended with %v\n%s", err, log)
			}
		})
	}
	for _, r := range f.Requests(func(r fakekube.Request) bool { return !r.HTTP2 }) {
		t.Errorf("this request was not sent over HTTP/2: %s", r)
	}
}

// The kubeconfig is that of another cluster. Its credential must not be sent to the proxy, which prefers it to its own.
func kubectlProxy(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Allow("of-this-cluster")
		dir := t.TempDir()
		writeText(t, dir, "config", fakekube.Kubeconfig("https://another", nil, "token: of-another"))
		n := fakekube.ServeHandlerIn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				r.Header.Set("Authorization", "Bearer of-this-cluster")
			}
			f.ServeHTTP(w, r)
		}))
		p := podcount.startIn(t, n, dir, "-master", "http://127.0.0.1:8001", "-once")
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
		WantLabel(t, f, "cp", TotalLabel, "0")
	})
}

func redirect(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Script(t, `list pods: reply 307 header Location http://127.0.0.1:1/elsewhere body moved`)
		p := podcount.Start(t, f)
		synctest.Wait()
		testkit.WantText(t, p.Log.String(), "list pods: 307 Temporary Redirect")
		elsewhere := f.Requests(func(r fakekube.Request) bool { return r.Path == "/elsewhere" })
		testkit.WantNumber(t, "requests elsewhere", len(elsewhere), 0)
	})
}

// failDial returns a dialer that fails like the system's does for this address.
func failDial(address string, err error) kube.Dialer {
	failure := &net.OpError{Op: "dial", Net: "tcp", Err: err}
	if ip, err := netip.ParseAddrPort(address); err == nil {
		failure.Addr = net.TCPAddrFromAddrPort(ip)
	}
	return func(context.Context, string, string) (net.Conn, error) { return nil, failure }
}

// refuseDial returns a dialer that fails as if no server listened at this address.
func refuseDial(address string) kube.Dialer {
	return failDial(address, os.NewSyscallError("connect", syscall.ECONNREFUSED))
}

// neverDial waits until ctx ends.
func neverDial(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// accessCase is one way in which the access to the API server may be wrong.
type accessCase struct {
	name   string
	args   string              // more flags
	from   string              // this text of the kubeconfig is replaced
	to     string              // by this one
	dial   kube.Dialer         // if set, in place of the network
	issuer *fakekube.Authority // if set, issues the server's certificate in place of the CA of the kubeconfig
	set    func(f *fakekube.Server)
	want   []string // texts of an error; CONFIG stands for the kubeconfig's path
}

// accessCases are what people get wrong. Each error says what was tried, and the next step.
func accessCases(t *testing.T) []accessCase {
	const server = ": https://127.0.0.1:1, from CONFIG, context fake: "
	const isItRunning = "connect: connection refused (is the API server running, and is this its address?)"
	const unknownAuthority = server +
		"tls: failed to verify certificate: x509: certificate signed by unknown authority"
	const giveCA = `(give the CA of this cluster as certificate-authority; the server's certificate was issued by `
	const proxyRefused = "proxyconnect tcp: dial tcp 10.0.0.9:3128: connect: connection refused (this is the proxy " +
		"of the kubeconfig's proxy-url, or else of HTTPS_PROXY: is it running, and is its address right?)"
	return []accessCase{
		{
			name: "no server",
			dial: refuseDial("127.0.0.1:1"),
			want: []string{server + "dial tcp 127.0.0.1:1: " + isItRunning},
		},
		{
			name: "no server, by -master",
			args: "-master https://10.0.0.1",
			dial: refuseDial("10.0.0.1:443"),
			want: []string{
				": https://10.0.0.1, from -master, CONFIG, context fake: dial tcp 10.0.0.1:443: " + isItRunning,
			},
		},
		{
			name: "no such host",
			from: "https://127.0.0.1:1",
			to:   "https://nowhere",
			dial: failDial("", &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}),
			want: []string{": https://nowhere, from CONFIG, context fake: dial tcp: lookup nowhere: no such host " +
				"(is the API server running, and is this its address?)"},
		},
		{
			name: "no answer",
			args: "-leader-elect",
			dial: neverDial,
			want: []string{server + "context deadline exceeded (is the API server running, and is this its address?)"},
		},
		{
			name:   "wrong CA",
			issuer: fakekube.NewAuthority(t, "another CA"),
			want:   []string{unknownAuthority, giveCA + `"CN=another CA")`},
		},
		{
			name:   "self-signed certificate",
			issuer: &fakekube.Authority{},
			want:   []string{unknownAuthority, giveCA + `"CN=server")`},
		},
		{
			name: "expired token",
			set:  func(f *fakekube.Server) { f.Allow("fresh") },
			want: []string{": 401 Unauthorized: Unauthorized (what was not accepted: the token of CONFIG, " +
				"context fake): give one that has not expired, and is of this cluster"},
		},
		{
			name: "missing right",
			set: func(f *fakekube.Server) {
				f.AddUser("s3cret", "system:serviceaccount:kube-system:podcount", "system:masters")
				f.Forbid("list nodes", true)
			},
			want: []string{
				`list nodes: 403 Forbidden: nodes is forbidden: User "system:serviceaccount:kube-system:podcount" ` +
					`cannot list resource "nodes" in API group "" at the cluster scope`,
				`(the RBAC rule that allows it: apiGroups [""], resources ["nodes"], verbs ["list"])`,
			},
		},
		{
			name: "missing right to write",
			set:  func(f *fakekube.Server) { f.Forbid("patch nodes", true) },
			want: []string{
				"patch nodes/cp: 403 Forbidden: ",
				`(the RBAC rule that allows it: apiGroups [""], resources ["nodes"], verbs ["patch"])`,
			},
		},
		{
			name: "wrong context",
			args: "-context other",
			want: []string{`podcount: CONFIG: there is no context "other" (there is: context "fake")`},
		},
		{
			name: "wrong current-context",
			from: "current-context: fake",
			to:   "current-context: other",
			want: []string{`podcount: CONFIG: there is no context "other" (there is: context "fake")`},
		},
		{
			name: "unreachable proxy",
			from: "    server:",
			to:   "    proxy-url: http://10.0.0.9:3128\n    server:",
			dial: refuseDial("10.0.0.9:3128"),
			want: []string{server + proxyRefused},
		},
		{
			name: "unreachable SOCKS proxy",
			from: "    server:",
			to:   "    proxy-url: socks5://10.0.0.9:1080\n    server:",
			dial: refuseDial("10.0.0.9:1080"),
			want: []string{
				"proxyconnect tcp: dial tcp 10.0.0.9:1080: connect: connection refused (this is the proxy of",
			},
		},
	}
}

func wrongAccess(t *testing.T, podcount Program) {
	ca := fakekube.NewAuthority(t, "the CA")
	for _, c := range accessCases(t) {
		t.Run(c.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				if c.set != nil {
					c.set(f)
				}
				pair := pairFrom(t, cmp.Or(c.issuer, ca))
				config := filepath.Join(t.TempDir(), "config")
				text := fakekube.Kubeconfig("https://127.0.0.1:1", ca.PEM(), "token: s3cret")
				writeText(t, filepath.Dir(config), "config", strings.Replace(text, c.from, c.to, 1))
				n := f.ServeIn(t, func() *tls.Certificate { return pair })
				args := append([]string{"-kubeconfig", config, "-log-format", "json"}, strings.Fields(c.args)...)
				p := podcount.StartWith(t, n, Wiring{Dial: c.dial}, args...)
				testkit.Pass(10 * time.Second)
				errors := errorsIn(t, p.Log.String())
				if err := p.Stop(); err != nil {
					errors += "podcount: " + err.Error() + "\n"
				}
				for _, want := range c.want {
					testkit.WantText(t, errors, strings.ReplaceAll(want, "CONFIG", config))
				}
				wantTimes(t, p, "s3cret", 0)
			})
		})
	}
}

// errorsIn returns the errors of a log in JSON, a line each.
func errorsIn(t *testing.T, log string) string {
	t.Helper()
	errors := ""
	for line := range strings.Lines(log) {
		var fields fakekube.Object
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		errors += fakekube.TextIn(fields, "err") + "\n"
	}
	return errors
}

// firstFailure runs podcount as a process until its first line with "cannot", and returns that line. It returns "" if
// podcount ends without one.
func firstFailure(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd, lines := RunBinary(t, env, args...)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for line := range lines {
		if strings.Contains(line, "cannot") {
			return line
		}
	}
	return ""
}

func unreachableProxy(t *testing.T, _ Program) {
	env := []string{"HTTPS_PROXY=http://127.0.0.1:1"}
	testkit.WantText(t, firstFailure(t, env, "-master", "https://0.0.0.0:1"),
		"https://0.0.0.0:1, from -master: proxyconnect tcp: dial tcp 127.0.0.1:1: connect: connection refused "+
			"(this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: is it running")
}

// The address of the server is not 127.0.0.1, because requests to that never go through a proxy.
func environmentProxy(t *testing.T, _ Program) {
	for _, row := range []struct{ name, except, want string }{
		{"without exceptions", "", "CONNECT 0.0.0.0:1"},
		{"with this exception", "0.0.0.0", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			asked := make(chan string, 100)
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked <- r.Method + " " + r.Host
				w.WriteHeader(http.StatusForbidden)
			}))
			defer proxy.Close()
			env := []string{"HTTPS_PROXY=" + proxy.URL, "NO_PROXY=" + row.except}
			if firstFailure(t, env, "-master", "https://0.0.0.0:1") == "" {
				t.Error("podcount has logged no failure")
			}
			got := ""
			if len(asked) > 0 {
				got = <-asked
			}
			testkit.WantEqual(t, "the first request to the proxy", got, row.want)
		})
	}
}

func stopAtFile(t *testing.T, _ Program) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd, lines := RunBinary(t, nil, "-kubeconfig", pipe)
			writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when podcount has opened it to read
			if err != nil {
				t.Fatal(err)
			}
			defer writer.Close()
			start := time.Now()
			cmd.Process.Signal(signal)
			for line := range lines {
				t.Errorf("podcount has logged %s", line)
			}
			cmd.Wait()
			testkit.WantNumber(t, "the exit code", cmd.ProcessState.ExitCode(), 0)
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("podcount stopped after %v, want at most 3s", took)
			}
		})
	}
}
