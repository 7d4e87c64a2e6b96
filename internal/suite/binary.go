package suite

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// Processes shows podcount as a process: signals, exit codes and pipes.
var Processes = Topic{
	{"exit codes are 0, 1 and 2", exitCodes},
	{"a process whose stderr is full ends with its code", fullStderr},
	{"a reader of the output that goes away ends nothing", closedPipe},
}

func exitCodes(t *testing.T, podcount Program) {
	cmd, lines := RunBinary(t, nil, "-nonsense")
	var all []string
	for line := range lines {
		all = append(all, line)
	}
	cmd.Wait()
	if len(all) != 1 || cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("wrong usage: exit code %d, stderr %q", cmd.ProcessState.ExitCode(), all)
	}

	f := fakekube.New()
	f.AddNode("cp", ControlPlane)
	server, ca := f.ServeTLSFor(t)
	file := filepath.Join(t.TempDir(), "config")
	os.WriteFile(file, []byte(fakekube.Kubeconfig(server, ca, "token: t")), 0o600)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		f.SetLabel("cp", TotalLabel, nil)
		cmd, lines := RunBinary(t, nil, "-kubeconfig", file)
		f.Await(t, "the label", func() bool { return f.Label("cp", TotalLabel) == "0" })
		cmd.Process.Signal(sig)
		last := ""
		for line := range lines {
			last = line
		}
		if cmd.Wait(); cmd.ProcessState.ExitCode() != 0 || !strings.Contains(last, "podcount stopped") {
			t.Errorf("%v: exit code %d, last line %q", sig, cmd.ProcessState.ExitCode(), last)
		}
	}

	f.SetLabel("cp", TotalLabel, nil)
	met := make(chan struct{}, 1)
	f.Inject(t, fakekube.Fault{
		On:  fakekube.Requests{If: fakekube.IsWrite},
		Met: func(fakekube.Request) { met <- struct{}{} },
		Do:  fakekube.Stall{},
	})
	cmd, lines = RunBinary(t, nil, "-kubeconfig", file)
	<-met // a write hangs
	start := time.Now()
	cmd.Process.Signal(syscall.SIGTERM)
	again := time.AfterFunc(signalCopyWindow+100*time.Millisecond, func() { cmd.Process.Signal(os.Interrupt) })
	defer again.Stop()
	for range lines {
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || time.Since(start) > 5*time.Second {
		t.Errorf("second signal: exit code %d after %v", cmd.ProcessState.ExitCode(), time.Since(start))
	}
}

// fullStderr: a log collector that hangs must not keep podcount from ending, after whatever mistake or signal.
func fullStderr(t *testing.T, podcount Program) {
	full := fullPipe(t)
	cmd, ended := startOn(t, nil, full, "-nonsense")
	wantExit(t, "wrong usage", cmd, ended, 2)

	f := fakekube.New()
	f.AddNode("cp", ControlPlane)
	server, ca := f.ServeTLSFor(t)
	file := filepath.Join(t.TempDir(), "config")
	testkit.WriteFiles(t, filepath.Dir(file),
		map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: t")})
	for _, verbosity := range []string{"0", "6"} {
		f.SetLabel("cp", TotalLabel, nil)
		cmd, ended = startOn(t, full, full, "-kubeconfig", file, "-v", verbosity, "-leader-elect")
		f.Await(t, "the label", func() bool { return f.Label("cp", TotalLabel) == "0" })
		cmd.Process.Signal(syscall.SIGTERM)
		wantExit(t, "SIGTERM at -v "+verbosity, cmd, ended, 0)
	}

	f.SetLabel("cp", TotalLabel, nil)
	met := make(chan struct{}, 1)
	f.Inject(t, fakekube.Fault{
		On:  fakekube.Requests{If: fakekube.IsWrite},
		Met: func(fakekube.Request) { met <- struct{}{} },
		Do:  fakekube.Stall{},
	})
	cmd, ended = startOn(t, full, full, "-kubeconfig", file)
	<-met // a write hangs
	cmd.Process.Signal(syscall.SIGTERM)
	again := time.AfterFunc(signalCopyWindow+100*time.Millisecond, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer again.Stop()
	wantExit(t, "a second signal", cmd, ended, 1)
}

// closedPipe does what `podcount 2>&1 | head -1` does.
func closedPipe(t *testing.T, podcount Program) {
	f := fakekube.New()
	f.AddNode("cp", ControlPlane)
	server, ca := f.ServeTLSFor(t)
	file := filepath.Join(t.TempDir(), "config")
	testkit.WriteFiles(t, filepath.Dir(file),
		map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: t")})
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd, ended := startOn(t, writer, writer, "-kubeconfig", file, "-v", "6", "-interval", "10ms", "-controllers",
		"*,pod-printer")
	writer.Close()
	reader.Read(make([]byte, 10))
	reader.Close()
	for n := range 3 {
		f.AddPod("default", fmt.Sprint("p", n), "")
		f.Await(t, "the label", func() bool { return f.Label("cp", TotalLabel) == fmt.Sprint(n+1) })
	}
	cmd.Process.Signal(syscall.SIGTERM)
	wantExit(t, "SIGTERM", cmd, ended, 0)
}

// RunBinary starts the test binary as podcount, and returns its lines of stderr.
func RunBinary(t *testing.T, env []string, args ...string) (*exec.Cmd, <-chan string) {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{"PODCOUNT_TEST_MAIN=1"}, env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(stderr); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	return cmd, lines
}

// fullPipe returns the writing end of a full pipe that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		reader.Close()
		writer.Close()
	})
	writer.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = writer.Write(make([]byte, 4096))
	}
	return writer
}

// startOn starts the test binary as podcount, with these outputs. It closes ended when the process has ended.
func startOn(t *testing.T, stdout, stderr *os.File, args ...string) (cmd *exec.Cmd, ended <-chan struct{}) {
	t.Helper()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = []string{"PODCOUNT_TEST_MAIN=1"}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	done := make(chan struct{})
	go func() {
		cmd.Wait()
		close(done)
	}()
	return cmd, done
}

// wantExit fails the test unless the process ends with an exit code within 15 s.
func wantExit(t *testing.T, what string, cmd *exec.Cmd, ended <-chan struct{}, code int) {
	t.Helper()
	select {
	case <-ended:
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s: exit code %d, want %d", what, got, code)
		}
	case <-time.After(15 * time.Second):
		t.Errorf("%s: it has not ended", what)
	}
}
