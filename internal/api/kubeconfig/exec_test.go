package kubeconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/execplugin"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// pluginIn returns an exec program that prints the file dir/answer. It is the test binary itself.
func pluginIn(dir string) *execPlugin {
	self, _ := os.Executable()
	return &execPlugin{
		apiVersion: "client.authentication.k8s.io/v1",
		command:    self,
		path:       self,
		env:        []string{"PODCOUNT_TEST_PLUGIN=" + dir},
		timeout:    time.Minute,
	}
}

// credentialV1 returns an ExecCredential of v1 with this status.
func credentialV1(status fakekube.Object) string { return execplugin.Credential("v1", status) }

func TestBadExecAnswersAreErrors(t *testing.T) {
	if testkit.IsRaced() {
		t.Skip("starts dozens of processes, each half a second under the race detector, and one after the other")
	}
	dir := t.TempDir()
	const noPair = "must give a token, or both clientCertificateData and clientKeyData"
	for answer, want := range map[string]string{
		"":                "the 0 bytes that it printed are not an ExecCredential",
		"s3cret":          "invalid character",
		"exit  why\n not": `exit status 1; it printed "why not"`,
		"hang":            "it took longer than 200ms",
		execplugin.Credential("v1beta1", fakekube.Object{"token": "s3cret"}): `printed a "ExecCredential" ` +
			`of "client.authentication.k8s.io/v1beta1", not an ExecCredential of client.authentication.k8s.io/v1`,
		`{"kind":"Pod","status":{"token":"s3cret"}}`:   `printed a "Pod"`,
		`{"kind":"` + strings.Repeat("x", 5000) + `"}`: `printed a "` + strings.Repeat("x", 100) + `" of`,
		credentialV1(fakekube.Object{}):                noPair,
		credentialV1(fakekube.Object{"token": 1}):      "cannot unmarshal number",
		credentialV1(fakekube.Object{"expirationTimestamp": strings.Repeat("7", 5000)}): "it printed are not an " +
			`ExecCredential: parsing time "777`,
		credentialV1(fakekube.Object{"token": "s3cret\nx"}): "printed a token that has more than one line",

		credentialV1(fakekube.Object{"token": "s3cret\x01"}): "printed a token that has more than one line",

		credentialV1(fakekube.Object{"clientCertificateData": "s3cret"}):  noPair,
		credentialV1(fakekube.Object{"token": "x", "clientKeyData": "y"}): noPair,
		credentialV1(fakekube.Object{"clientCertificateData": "s3cret", "clientKeyData": "s3cret"}): "printed " +
			"a certificate and a key that cannot be used: tls: failed to find any PEM data",
		strings.Repeat("s3cret ", 1<<18): "it printed more than 1 MB",
	} {
		testkit.WriteFiles(t, dir, map[string]string{"answer": answer})
		e := pluginIn(dir)
		if answer == "hang" {
			e.timeout = 200 * time.Millisecond
		}
		_, err := e.run(t.Context())
		testkit.WantError(t, fmt.Sprintf("%.100q", answer), err, want)
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%.100q: the error has %d bytes", answer, len(err.Error()))
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.100q: the error contains the secret: %v", answer, err)
		}
	}
}

// A program may leave an agent running, which inherits its stdout and stderr.
func TestExecProgramMayLeaveAChildRunning(t *testing.T) {
	dir := t.TempDir()
	question, reply := dir+"/question", dir+"/reply"
	if err := errors.Join(syscall.Mkfifo(question, 0o600), syscall.Mkfifo(reply, 0o600)); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFiles(t, dir, map[string]string{
		"answer": credentialV1(fakekube.Object{"token": "good"}),
		"agent":  "#!/bin/sh\n{ cat " + question + " >" + reply + "; :; } &\ncat " + dir + "/answer\n",
	})
	os.Chmod(dir+"/agent", 0o700)
	agent := dir + "/agent"
	e := &execPlugin{
		apiVersion: "client.authentication.k8s.io/v1",
		command:    agent,
		path:       agent,
		timeout:    time.Minute,
	}
	got, err := e.run(t.Context())
	testkit.WantError(t, "run", err, "")
	testkit.WantEqual(t, "token", got.Token, "good")

	// The agent answers and ends. One that has been killed may still be there for a moment, but does not answer.
	asked := begin(func() ([]byte, error) {
		go os.WriteFile(question, []byte("ping"), 0)
		return os.ReadFile(reply)
	})
	asked.wait(t, "an answer of the agent")
	testkit.WantEqual(t, "the agent's answer", string(asked.value), "ping")
}

// familyProgram writes an exec program to a directory, and a kubeconfig that names it. The program starts a child, and
// the child another one, which hangs. Then it does what the shell command says. All three hold a pipe.
func familyProgram(t *testing.T, then string) (dir string, pipe *call[string]) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	program := "#!/bin/sh\nexec 3>" + dir + "/pipe\nsh -c 'sleep 60 & wait' &\necho begun >&3\n" + then + "\n"
	testkit.WriteFiles(t, dir, map[string]string{
		"config":  fakekube.Kubeconfig("https://h", nil, programUser),
		"program": program,
	})
	os.Chmod(dir+"/program", 0o700)
	pipe = begin(func() (string, error) {
		text, err := os.ReadFile(dir + "/pipe")
		return string(text), err
	})
	return dir, pipe
}

// wantFamilyDead fails the test unless no process holds the pipe any more.
func wantFamilyDead(t *testing.T, pipe *call[string]) {
	t.Helper()
	pipe.wait(t, "the end of the program's children")
	testkit.WantEqual(t, "what the program wrote to the pipe", pipe.value, "begun\n")
}

func TestRunWithoutACredentialLeavesNoProcess(t *testing.T) {
	rows := []struct {
		name, then, want string
		timeout          time.Duration
	}{
		// On a busy machine, it takes a while until the children run.
		{"at the time limit", "wait", "it took longer than 2s", 2 * time.Second},
		{"after a failure", "exit 1", "exit status 1", time.Minute},
		{"after an answer that is none", "echo no answer", "are not an ExecCredential", time.Minute},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir, pipe := familyProgram(t, row.then)
			e := &execPlugin{command: dir + "/program", path: dir + "/program", timeout: row.timeout}
			_, err := e.run(t.Context())
			testkit.WantError(t, "run", err, row.want)
			wantFamilyDead(t, pipe)
		})
	}
}

func TestCloseEndsTheChildrenOfTheExecProgram(t *testing.T) {
	dir, pipe := familyProgram(t, "echo begun >$0.begun; wait")
	if err := syscall.Mkfifo(dir+"/program.begun", 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := mustLoad(t, dir+"/config", io.Discard)
	waiting := beginCredential(t.Context(), cfg, nil)
	os.ReadFile(dir + "/program.begun")
	cfg.Close()
	wantFamilyDead(t, pipe)
	waiting.wait(t, "Credential after Close")
	testkit.WantError(t, "the caller that waited", waiting.err, "the kubeconfig was closed")
}

// A program that asks for a password would be stopped by our terminal until the time limit. It has none, so it fails.
func TestExecProgramHasNoTerminal(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"program": "#!/bin/sh\nexec cat /proc/$$/stat >" + dir + "/stat\n"})
	os.Chmod(dir+"/program", 0o700)
	e := &execPlugin{command: dir + "/program", path: dir + "/program", timeout: time.Minute}
	e.run(t.Context())
	text, _ := os.ReadFile(dir + "/stat")
	fields := strings.Fields(string(text)) // see proc_pid_stat(5)
	if len(fields) < 6 {
		t.Fatalf("the program printed %q", text)
	}
	testkit.WantEqual(t, "its session", fields[5], fields[0])
}

// programUser is a user whose exec program is in the directory of the kubeconfig.
const programUser = "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./program}"

// slowProgram makes a Config whose exec program runs until the test ends it. The program is running when the test
// has read the pipe started. It prints what the test writes to the pipe carryOn.
func slowProgram(t *testing.T) (cfg *Config, started, carryOn, runs string) {
	t.Helper()
	dir := t.TempDir()
	started, carryOn, runs = dir+"/started", dir+"/carry-on", dir+"/runs"
	for _, pipe := range []string{started, carryOn} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WriteFiles(t, dir, map[string]string{
		"config":  fakekube.Kubeconfig("https://h", nil, programUser),
		"program": fmt.Sprintf("#!/bin/sh\necho run >>%s\necho $$ >%s\nexec cat %s\n", runs, started, carryOn),
	})
	os.Chmod(dir+"/program", 0o700)
	cfg = mustLoad(t, dir+"/config", io.Discard)
	return cfg, started, carryOn, runs
}

// errGone is the cause when a caller stops waiting.
var errGone = errors.New("the caller is gone")

func TestEachCallerWaitsForTheExecProgramAsLongAsItCan(t *testing.T) {
	cfg, started, carryOn, runs := slowProgram(t)
	patient := beginCredential(t.Context(), cfg, nil)
	os.ReadFile(started)
	for range 2 {
		gone, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errGone)
		defer cancel()
		hurried := beginCredential(gone, cfg, nil)
		hurried.wait(t, "a caller that can wait 20 ms")
		testkit.WantError(t, "a caller that could not wait", hurried.err, "waiting for a credential")
		if !errors.Is(hurried.err, errGone) {
			t.Errorf("a caller that could not wait: got the error %v, want one that wraps %v", hurried.err, errGone)
		}
	}
	os.WriteFile(carryOn, []byte(credentialV1(fakekube.Object{"token": "good"})), 0)
	wantTokenOf(t, patient, "good")
	wantToken(t, cfg, "good")
	text, _ := os.ReadFile(runs)
	testkit.WantNumber(t, "runs", strings.Count(string(text), "\n"), 1)
}

// A server may refuse a good credential for a moment, and the program may fail at that moment.
func TestGoodExecCredentialSurvivesAFailedRun(t *testing.T) {
	dir := t.TempDir()
	log := &testkit.Buffer{}
	testkit.WriteFiles(t, dir, map[string]string{
		"config":  fakekube.Kubeconfig("https://h", nil, programUser),
		"program": "#!/bin/sh\nhead -c 2000000 /dev/zero >&2\nexec cat " + dir + "/answer\n", // more than beginning keeps
	})
	os.Chmod(dir+"/program", 0o700)
	synctest.Test(t, func(t *testing.T) {
		expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		status := fakekube.Object{"token": "good", "expirationTimestamp": expires}
		testkit.WriteFiles(t, dir, map[string]string{"answer": credentialV1(status)})
		cfg := mustLoad(t, dir+"/config", log)
		good := mustCredential(t, cfg)
		testkit.WantEqual(t, "token", good.Token, "good")
		os.Remove(dir + "/answer")
		testkit.Pass(time.Minute)
		for _, refused := range []*Credential{good, nil, good} {
			if got, err := cfg.Credential(t.Context(), refused); got != good || err != nil {
				t.Errorf("got the credential %p and the error %v, want the good credential, %p", got, err, good)
			}
		}
		testkit.WantNumber(t, "warnings", strings.Count(log.String(), "so the previous one stays in use"), 1)
		testkit.Pass(time.Hour)
		if got, err := cfg.Credential(t.Context(), nil); err == nil {
			t.Errorf("after its expiration: got %v, want an error", got)
		}
	})
}

func TestAbandonedExecProgramServesTheNextCaller(t *testing.T) {
	cfg, started, carryOn, runs := slowProgram(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := cfg.Credential(gone, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that has gone: got the error %v, want %v", err, context.Canceled)
	}
	os.ReadFile(started)
	os.WriteFile(carryOn, []byte(credentialV1(fakekube.Object{"token": "good"})), 0)
	wantToken(t, cfg, "good")
	text, _ := os.ReadFile(runs)
	testkit.WantNumber(t, "runs", strings.Count(string(text), "\n"), 1)
}

func TestCloseEndsTheExecProgram(t *testing.T) {
	cfg, started, carryOn, runs := slowProgram(t)
	waiting := beginCredential(t.Context(), cfg, nil)
	text, _ := os.ReadFile(started)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	cfg.Close()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		os.WriteFile(carryOn, nil, 0) // ends it
		t.Fatalf("the program, %d, is still there: %v", pid, err)
	}
	waiting.wait(t, "Credential after Close")
	testkit.WantError(t, "the caller that waited", waiting.err, "the kubeconfig was closed")
	_, err := cfg.Credential(t.Context(), nil)
	testkit.WantError(t, "Credential after Close", err, "the kubeconfig was closed")
	text, _ = os.ReadFile(runs)
	testkit.WantNumber(t, "runs", strings.Count(string(text), "\n"), 1)
}

func TestExecProgramRunsAtMostEveryFiveSeconds(t *testing.T) {
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"answer": "exit out of order"})
	synctest.Test(t, func(t *testing.T) {
		e := pluginIn(dir)
		for range 3 {
			for range 10 {
				_, err := e.newest(t.Context(), true)
				testkit.WantError(t, "newest", err, "out of order")
			}
			testkit.Pass(minExecInterval)
		}
	})
	runs, _ := os.ReadFile(dir + "/runs")
	testkit.WantNumber(t, "runs for 30 callers in 15 s", strings.Count(string(runs), "\n"), 3)
}

func TestRelativeExecCommandIsNotLookedUpInPath(t *testing.T) {
	dir := t.TempDir()
	user := "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin}"
	testkit.WriteFiles(t, dir, map[string]string{
		"here/plugin": "#!/bin/sh\n",
		"path/plugin": "#!/bin/sh\n",
		"here/config": fakekube.Kubeconfig("https://h", nil, user),
	})
	os.Chmod(dir+"/here/plugin", 0o700)
	os.Chmod(dir+"/path/plugin", 0o700)
	t.Setenv("PATH", dir+"/path")
	t.Chdir(dir + "/here")
	a := &access{log: slog.New(slog.DiscardHandler)}
	if err := a.readKubeconfigs(t.Context(), []string{"config"}, ""); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(a.exec.command, "/here/plugin") || !filepath.IsAbs(a.exec.command) {
		t.Errorf("the program is %s, want the absolute path of here/plugin", a.exec.command)
	}
}

// clustersPassed returns the cluster that an exec program got in each of its runs. It is nil for a run without one.
func clustersPassed(t *testing.T, dir, version string) (clusters []fakekube.Object) {
	t.Helper()
	for line := range strings.Lines(testkit.ReadFile(t, filepath.Join(dir, "runs"))) {
		var info struct {
			APIVersion, Kind string
			Spec             struct {
				Cluster     fakekube.Object
				Interactive *bool
			}
		}
		err := json.Unmarshal([]byte(line[strings.Index(line, "{"):]), &info)
		isRight := info.Kind == "ExecCredential" && info.APIVersion == "client.authentication.k8s.io/"+version
		if err != nil || !isRight || info.Spec.Interactive == nil || *info.Spec.Interactive {
			t.Errorf("the program got %s (%v), want an ExecCredential of %s that is not interactive", line, err, version)
		}
		clusters = append(clusters, info.Spec.Cluster)
	}
	return clusters
}

func TestExecProgramGetsTheClusterIfItAsks(t *testing.T) {
	const cluster = `proxy-url: "http://proxy:3128", tls-server-name: api, disable-compression: true, extensions: [
    {name: else, extension: 1}, {name: client.authentication.k8s.io/exec, extension: {audience: us, list: [1, 2.5]}}]`
	ca := fakekube.NewAuthority("the CA").PEM()
	data, _ := json.Marshal(ca) // as base64
	for name, c := range map[string]struct {
		cluster, ask, version, master, want string
	}{
		"all fields": {
			cluster, ", provideClusterInfo: true", "v1", "",
			`{"server":"https://h:6443/k8s","tls-server-name":"api","certificate-authority-data":CA,` +
				`"proxy-url":"http://proxy:3128","disable-compression":true,"config":{"audience":"us","list":[1,2.5]}}`,
		},
		"the address of -master without the name of the old one": {
			cluster, ", provideClusterInfo: true", "v1beta1", "https://m",
			`{"server":"https://m","certificate-authority-data":CA,"proxy-url":"http://proxy:3128",` +
				`"disable-compression":true,"config":{"audience":"us","list":[1,2.5]}}`,
		},
		"only the required fields": {
			"", ", provideClusterInfo: true", "v1", "",
			`{"server":"https://h:6443/k8s","certificate-authority-data":CA,"config":null}`,
		},
		"no cluster if it declines": {cluster, ", provideClusterInfo: false", "v1", "", "null"},
		"no cluster by default":     {cluster, "", "v1beta1", "", "null"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config := fakekube.Kubeconfig("https://h:6443/k8s", nil, execplugin.User(t, dir, c.version, c.ask))
			config = strings.Replace(config, "    server: https://h:6443/k8s\n    certificate-authority-data: \n",
				"    {server: https://h:6443/k8s, certificate-authority: ca.crt, "+c.cluster+"}\n", 1)
			answer := execplugin.Credential(c.version, fakekube.Object{"token": "t"})
			testkit.WriteFiles(t, dir, map[string]string{"answer": answer})
			files := map[string]string{"config": config, "ca.crt": string(ca)}
			cfg, err := load(t, files, Options{Kubeconfig: "config", Master: c.master}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer cfg.Close()
			wantToken(t, cfg, "t")
			passed := clustersPassed(t, dir, c.version)
			testkit.WantNumber(t, "runs", len(passed), 1)
			var want fakekube.Object
			if err := json.Unmarshal([]byte(strings.Replace(c.want, "CA", string(data), 1)), &want); err != nil {
				t.Fatal(err)
			}
			testkit.WantEqual(t, "cluster", passed[0], want)
		})
	}
}

func TestExecProgramGetsTheNewestCA(t *testing.T) {
	dir := t.TempDir()
	first := fakekube.NewAuthority("the first CA").PEM()
	second := fakekube.NewAuthority("the second CA").PEM()
	synctest.Test(t, func(t *testing.T) {
		config := fakekube.Kubeconfig("https://h", nil, execplugin.User(t, dir, "v1", ", provideClusterInfo: true"))
		config = strings.Replace(config, "certificate-authority-data: ", "certificate-authority: ca.crt", 1)
		expires := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		testkit.WriteFiles(t, dir, map[string]string{
			"config": config,
			"ca.crt": string(first),
			"answer": credentialV1(fakekube.Object{"token": "t", "expirationTimestamp": expires}),
		})
		cfg, err := load(t, nil, Options{Kubeconfig: filepath.Join(dir, "config")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer cfg.Close()
		for _, ca := range [][]byte{first, second} {
			testkit.WriteFiles(t, dir, map[string]string{"ca.crt": string(ca)})
			mustCredential(t, cfg)
			testkit.Pass(2 * time.Minute)
			data, _ := json.Marshal(ca)
			passed := clustersPassed(t, dir, "v1")
			got, _ := json.Marshal(passed[len(passed)-1]["certificate-authority-data"])
			testkit.WantEqual(t, "CA", string(got), string(data))
		}
		testkit.WantNumber(t, "runs", len(clustersPassed(t, dir, "v1")), 2)
	})
}
