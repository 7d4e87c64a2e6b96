package suite

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kube"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Access shows how podcount reaches the API server, and what it reports if it cannot.
var Access = Topic{
	{"podcount works over TLS, with a token or a certificate", overTLS},
	{"-master works with kubectl proxy", kubectlProxy},
	{"a redirect is not followed", redirect},
	{"an access error is logged with what to do next", accessErrors},
	{"an error names the unreachable proxy of HTTPS_PROXY", unreachableProxy},
	{"NO_PROXY exempts servers from the proxy", noProxy},
	{"a signal stops podcount while it waits for a file", stopAtFile},
}

func overTLS(t *testing.T, podcount Program) {
	clients := fakekube.NewAuthority("clients")
	certificate, key := clients.Issue("me", fixture.AsAdmin)
	encode := base64.StdEncoding.EncodeToString
	f := fakekube.New()
	f.Allow("good")
	f.ClientCA = clients.Pool()
	f.AddNode("cp", ControlPlane)
	fixture.AddPods(f, 3000) // enough for a compressed answer
	server, ca := fixture.Listen(t, f)
	for _, row := range []struct{ name, user string }{
		{"token", "token: good"},
		{"certificate", "client-certificate-data: " + encode(certificate) + "\n    client-key-data: " + encode(key)},
	} {
		t.Run(row.name, func(t *testing.T) {
			fixture.SetLabel(f, "cp", TotalLabel, nil)
			dir := t.TempDir()
			writeText(t, dir, "config", fakekube.Kubeconfig(server, ca, row.user))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			log := &testkit.Buffer{}
			go func() {
				args := []string{"-kubeconfig", filepath.Join(dir, "config")}
				ended <- podcount(ctx, args, NoEnv, io.Discard, log, nil)
			}()
			f.Await(t, "the right label", func() bool { return fixture.Label(f, "cp", TotalLabel) == "3000" })
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("podcount ended with %v\n%s", err, log)
			}
		})
	}
	for _, r := range fixture.Requests(f, func(r fakekube.Request) bool { return !r.HTTP2 }) {
		t.Errorf("request not sent over HTTP/2: %s", r)
	}
}

// kubectlProxy runs podcount with the kubeconfig of another cluster. podcount must not send the credential in it to the
// proxy, which would use it instead of its own.
func kubectlProxy(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Allow("of-this-cluster")
		dir := t.TempDir()
		writeText(t, dir, "config", fakekube.Kubeconfig("https://another", nil, "token: of-another"))
		n := fixture.Network(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				r.Header.Set("Authorization", "Bearer of-this-cluster")
			}
			f.ServeHTTP(w, r)
		}))
		p := podcount.startIn(t, n, dir, "-master", "http://127.0.0.1:8001", "-once")
		testkit.WantError(t, "-once", p.Finish(), "")
		WantLabel(t, f, "cp", TotalLabel, "0")
	})
}

func redirect(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Script(t, `list pods: reply 307 header Location http://127.0.0.1:1/elsewhere body moved`)
		p := podcount.Start(t, f)
		synctest.Wait()
		testkit.WantText(t, p.Log.String(), "list pods: 307 Temporary Redirect")
		elsewhere := fixture.Requests(f, func(r fakekube.Request) bool { return r.Path == "/elsewhere" })
		testkit.WantNumber(t, "requests elsewhere", len(elsewhere), 0)
	})
}

// accessCase is a reason why podcount cannot reach the API server or may not use it.
type accessCase struct {
	name string

	// What is wrong with the flags or the kubeconfig.
	args    string // added to the flags
	oldText string // replaced in the kubeconfig by newText
	newText string

	// What is wrong with the network or the server.
	dial   kube.Dialer         // if set, opens the connections
	issuer *fakekube.Authority // if set, issues the server's certificate instead of the kubeconfig's CA
	change func(f *fakekube.Server)

	wantErrors []string // CONFIG stands for the path of the kubeconfig
}

// accessCases returns common mistakes and outages. Each error says what podcount tried, and what to do next.
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
			name:       "no server",
			dial:       refuseDial("127.0.0.1:1"),
			wantErrors: []string{server + "dial tcp 127.0.0.1:1: " + isItRunning},
		},
		{
			name: "no server at -master",
			args: "-master https://10.0.0.1",
			dial: refuseDial("10.0.0.1:443"),
			wantErrors: []string{
				": https://10.0.0.1, from -master, CONFIG, context fake: dial tcp 10.0.0.1:443: " + isItRunning,
			},
		},
		{
			name:    "no such host",
			oldText: "https://127.0.0.1:1",
			newText: "https://nowhere",
			dial:    unknownHostDial("nowhere"),
			wantErrors: []string{": https://nowhere, from CONFIG, context fake: dial tcp: lookup nowhere: no such host " +
				"(is the API server running, and is this its address?)"},
		},
		{
			name:       "no answer",
			args:       "-leader-elect",
			dial:       neverDial,
			wantErrors: []string{server + "context deadline exceeded (is the API server running, and is this its address?)"},
		},
		{
			name:       "wrong CA",
			issuer:     fakekube.NewAuthority("another CA"),
			wantErrors: []string{unknownAuthority, giveCA + `"CN=another CA")`},
		},
		{
			name:       "self-signed certificate",
			issuer:     &fakekube.Authority{},
			wantErrors: []string{unknownAuthority, giveCA + `"CN=server")`},
		},
		{
			name:   "expired token",
			change: func(f *fakekube.Server) { f.Allow("fresh") },
			wantErrors: []string{": 401 Unauthorized: Unauthorized (what was not accepted: the token of CONFIG, " +
				"context fake): give one that has not expired, and is of this cluster"},
		},
		{
			name: "missing right",
			change: func(f *fakekube.Server) {
				f.AddUser("s3cret", "system:serviceaccount:kube-system:podcount", "system:masters")
				f.Forbid("list nodes")
			},
			wantErrors: []string{
				`list nodes: 403 Forbidden: nodes is forbidden: User "system:serviceaccount:kube-system:podcount" ` +
					`cannot list resource "nodes" in API group "" at the cluster scope`,
				`(the RBAC rule that allows it: apiGroups [""], resources ["nodes"], verbs ["list"])`,
			},
		},
		{
			name:   "missing right to write",
			change: func(f *fakekube.Server) { f.Forbid("patch nodes") },
			wantErrors: []string{
				"patch nodes/cp: 403 Forbidden: ",
				`(the RBAC rule that allows it: apiGroups [""], resources ["nodes"], verbs ["patch"])`,
			},
		},
		{
			name:       "wrong context",
			args:       "-context other",
			wantErrors: []string{`podcount: CONFIG: there is no context "other" (there is: context "fake")`},
		},
		{
			name:       "wrong current-context",
			oldText:    "current-context: fake",
			newText:    "current-context: other",
			wantErrors: []string{`podcount: CONFIG: there is no context "other" (there is: context "fake")`},
		},
		{
			name:       "unreachable proxy",
			oldText:    "    server:",
			newText:    "    proxy-url: http://10.0.0.9:3128\n    server:",
			dial:       refuseDial("10.0.0.9:3128"),
			wantErrors: []string{server + proxyRefused},
		},
		{
			name:    "unreachable SOCKS proxy",
			oldText: "    server:",
			newText: "    proxy-url: socks5://10.0.0.9:1080\n    server:",
			dial:    refuseDial("10.0.0.9:1080"),
			wantErrors: []string{
				"proxyconnect tcp: dial tcp 10.0.0.9:1080: connect: connection refused (this is the proxy of",
			},
		},
	}
}

func accessErrors(t *testing.T, podcount Program) {
	ca := fakekube.NewAuthority("the CA")
	for _, row := range accessCases(t) {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				if row.change != nil {
					row.change(f)
				}
				pair := pairFrom(t, cmp.Or(row.issuer, ca))
				n := fixture.Network(t, f, func() *tls.Certificate { return pair })
				dir := t.TempDir()
				text := fakekube.Kubeconfig("https://127.0.0.1:1", ca.PEM(), "token: s3cret")
				writeText(t, dir, "config", strings.Replace(text, row.oldText, row.newText, 1))
				config := filepath.Join(dir, "config")
				args := append([]string{"-kubeconfig", config, "-log-format", "json"}, strings.Fields(row.args)...)
				p := podcount.StartWith(t, n, Wiring{Dial: row.dial}, args...)
				testkit.Pass(10 * time.Second)
				got := errorsIn(t, p.Log.String())
				if err := p.Stop(); err != nil {
					got += "podcount: " + err.Error() + "\n"
				}
				for _, want := range row.wantErrors {
					testkit.WantText(t, got, strings.ReplaceAll(want, "CONFIG", config))
				}
				wantTimes(t, p, "s3cret", 0)
			})
		})
	}
}

// errorsIn returns the errors in a JSON log, one per line.
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

// firstFailure runs podcount as a process until it logs a line with "cannot", and returns that line. It returns "" if
// podcount logs none before it ends.
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

// noProxy uses the server address 0.0.0.0, because requests to 127.0.0.1 never go through a proxy.
func noProxy(t *testing.T, _ Program) {
	for _, row := range []struct{ name, noProxy, want string }{
		{"no server is exempt", "", "CONNECT 0.0.0.0:1"},
		{"the server is exempt", "0.0.0.0", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			requests := make(chan string, 100) // to the proxy
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests <- r.Method + " " + r.Host
				w.WriteHeader(http.StatusForbidden)
			}))
			defer proxy.Close()
			env := []string{"HTTPS_PROXY=" + proxy.URL, "NO_PROXY=" + row.noProxy}
			if firstFailure(t, env, "-master", "https://0.0.0.0:1") == "" {
				t.Error("podcount has logged no failure")
			}
			got := ""
			if len(requests) > 0 {
				got = <-requests
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
	for _, row := range []struct {
		signal os.Signal
		args   []string
		code   int
		lines  []string
	}{
		{os.Interrupt, nil, 0, nil},
		{syscall.SIGTERM, nil, 0, nil},
		{syscall.SIGTERM, []string{"-once"}, 1, []string{"podcount: -once: stopped before all was done"}},
	} {
		t.Run(fmt.Sprint(row.signal, " ", row.args), func(t *testing.T) {
			cmd, output := RunBinary(t, nil, append(row.args, "-kubeconfig", pipe)...)
			writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when podcount has opened the pipe to read
			if err != nil {
				t.Fatal(err)
			}
			defer writer.Close()
			stopped := time.Now()
			cmd.Process.Signal(row.signal)
			var lines []string
			for line := range output {
				lines = append(lines, line)
			}
			cmd.Wait()
			testkit.WantEqual(t, "the lines", lines, row.lines)
			testkit.WantNumber(t, "the exit code", cmd.ProcessState.ExitCode(), row.code)
			testkit.WantBetween(t, "time to stop", time.Since(stopped), 0, 3*time.Second)
		})
	}
}
