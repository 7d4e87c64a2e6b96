package suite

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Access shows how podcount reaches the API server, and what it reports if it cannot.
var Access = Topic{
	{"podcount works over TLS, with a token or a certificate", overTLS},
	{"-master works with kubectl proxy", kubectlProxy},
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
