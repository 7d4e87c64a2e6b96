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

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Processes shows podcount as a process: signals, exit codes and pipes.
var Processes = Topic{
	{"exit codes are 0, 1 and 2", exitCodes},
	{"podcount continues when the reader of its output is gone", closedPipe},
}

// exitCodes shows that wrong usage is 2, a signal is 0, and a second signal that cuts off the work in flight is 1.
func exitCodes(t *testing.T, podcount Program) {
	t.Run("wrong usage", func(t *testing.T) {
		cmd, stderr := RunBinary(t, nil, "-nonsense")
		lines := linesUntilExit(cmd, stderr)
		testkit.WantNumber(t, "the exit code", cmd.ProcessState.ExitCode(), 2)
		testkit.WantNumber(t, "lines on stderr", len(lines), 1)
	})

	f, config := serveOneNode(t)
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			fixture.SetLabel(f, "cp", TotalLabel, nil)
			cmd, stderr := RunBinary(t, nil, "-kubeconfig", config)
			f.Await(t, "the label", func() bool { return fixture.Label(f, "cp", TotalLabel) == "0" })
			cmd.Process.Signal(signal)
			log := strings.Join(linesUntilExit(cmd, stderr), "\n")
			lastLine := log[strings.LastIndex(log, "\n")+1:]
			testkit.WantNumber(t, "the exit code", cmd.ProcessState.ExitCode(), 0)
			testkit.WantText(t, lastLine, "podcount stopped")
		})
	}

	t.Run("a second signal while a write hangs", func(t *testing.T) {
		stalled := stallNextWrite(t, f)
		cmd, stderr := RunBinary(t, nil, "-kubeconfig", config)
		<-stalled
		signalTwice(t, cmd.Process, syscall.SIGTERM, os.Interrupt)
		linesUntilExit(cmd, stderr)
		testkit.WantNumber(t, "the exit code", cmd.ProcessState.ExitCode(), 1)
	})
}

// closedPipe shows what happens in `podcount 2>&1 | head -1`.
func closedPipe(t *testing.T, podcount Program) {
	f, config := serveOneNode(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd, exited := startOn(t, writer, writer,
		"-kubeconfig", config,
		"-v", "6",
		"-interval", "10ms",
		"-controllers", "*,pod-printer",
	)
	writer.Close()
	reader.Read(make([]byte, 10))
	reader.Close()
	for n := range 3 {
		f.AddPod("default", fmt.Sprint("p", n), "")
		f.Await(t, "the label", func() bool { return fixture.Label(f, "cp", TotalLabel) == fmt.Sprint(n+1) })
	}
	cmd.Process.Signal(syscall.SIGTERM)
	wantExit(t, cmd, exited, 0)
}

// serveOneNode serves a fake with the node cp over TLS until the test ends. config is a kubeconfig that leads there.
func serveOneNode(t *testing.T) (f *fakekube.Server, config string) {
	t.Helper()
	f = fakekube.New()
	f.AddNode("cp", ControlPlane)
	server, ca := fixture.Listen(t, f)
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: t")})
	return f, filepath.Join(dir, "config")
}

// stallNextWrite removes the label from cp and leaves the next write without an answer. stalled gets a value when
// that write has arrived.
func stallNextWrite(t *testing.T, f *fakekube.Server) (stalled <-chan struct{}) {
	t.Helper()
	fixture.SetLabel(f, "cp", TotalLabel, nil)
	met := make(chan struct{}, 1)
	f.Inject(t, fakekube.Fault{
		On:  fakekube.Requests{If: fixture.IsWrite},
		Met: func(fakekube.Request) { met <- struct{}{} },
		Do:  fakekube.Stall{},
	})
	return met
}

// signalTwice sends two signals, far enough apart that the second is not taken for a copy of the first. The process may
// be slow to notice the first one, and take the second for its copy all the same. So the second is sent again and
// again.
func signalTwice(t *testing.T, process *os.Process, first, second os.Signal) {
	process.Signal(first)
	again := time.NewTicker(signalCopyWindow + 100*time.Millisecond)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		defer again.Stop()
		for {
			select {
			case <-again.C:
				process.Signal(second)
			case <-over:
				return
			}
		}
	}()
}

// RunBinary starts the test binary as podcount, and returns the lines that it writes to stderr.
func RunBinary(t *testing.T, env []string, args ...string) (*exec.Cmd, <-chan string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(binaryEnvironment(), env...)
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
		defer close(lines)
		scanner := bufio.NewScanner(stderr)
		scanner.Buffer(nil, 64<<20) // A line that did not fit would end the reading, and podcount would drop the rest.
		for scanner.Scan() {
			lines <- scanner.Text()
		}
	}()
	return cmd, lines
}

// binaryEnvironment returns the environment that makes the test binary podcount. It passes on GODEBUG, so that podcount
// has the FIPS 140-3 mode of the tests.
func binaryEnvironment() []string {
	return []string{"PODCOUNT_TEST_MAIN=1", "GODEBUG=" + os.Getenv("GODEBUG")}
}

// linesUntilExit waits until the process has exited, and returns the remaining lines of its stderr.
func linesUntilExit(cmd *exec.Cmd, stderr <-chan string) (lines []string) {
	for line := range stderr {
		lines = append(lines, line)
	}
	cmd.Wait()
	return lines
}

// startOn starts the test binary as podcount, with these outputs. It closes exited when the process has exited.
func startOn(t *testing.T, stdout, stderr *os.File, args ...string) (cmd *exec.Cmd, exited <-chan struct{}) {
	t.Helper()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = binaryEnvironment()
	cmd.Stdout = stdout
	cmd.Stderr = stderr
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

// wantExit fails the test unless the process exits with this code within 15 s.
func wantExit(t *testing.T, cmd *exec.Cmd, exited <-chan struct{}, code int) {
	t.Helper()
	select {
	case <-exited:
		testkit.WantNumber(t, "the exit code", cmd.ProcessState.ExitCode(), code)
	case <-time.After(15 * time.Second):
		t.Error("the process has not exited within 15 s")
	}
}
