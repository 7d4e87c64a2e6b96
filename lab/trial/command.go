package trial

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Command is a program that a shell starts with a line such as "./mine --kubeconfig $KUBECONFIG". It gets the
// environment of the trial, and there KUBECONFIG, TRIAL_SERVER, which is the server's URL, TRIAL_LABEL,
// TRIAL_NODE_LABEL, TRIAL_IDENTITY and, if it may elect a leader, TRIAL_LEASE. Cluster explains them. It can only be
// tried in real time.
func Command(line string) Program { return Program{command: line, UsesKubeconfig: true} }

// command is a process of the system.
type command struct {
	cmd     *exec.Cmd
	printed *tail
	ended   chan struct{}
	isAsked atomic.Bool // to stop
	taken   float64     // the most memory, in MiB, when it was asked to end
	err     error       // valid when ended is closed
}

func startCommand(line string, c Cluster) process {
	p := &command{printed: &tail{}, ended: make(chan struct{})}
	p.cmd = exec.Command("sh", "-c", line)
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), isLease),
		"KUBECONFIG="+c.Kubeconfig, "TRIAL_SERVER="+c.URL,
		"TRIAL_LABEL="+c.Label, "TRIAL_NODE_LABEL="+c.NodeLabel, "TRIAL_IDENTITY="+c.Identity)
	if c.Lease != "" {
		p.cmd.Env = append(p.cmd.Env, "TRIAL_LEASE="+c.Lease)
	}
	p.cmd.Stdout = p.printed
	p.cmd.Stderr = p.printed
	p.cmd.WaitDelay = time.Second // A child that has left the group may keep the output open for ever.
	prepare(p.cmd)
	if err := p.cmd.Start(); err != nil {
		p.err = err
		close(p.ended)
		return p
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
		// The shell may end before the program does.
		for p.lives() {
			<-time.After(20 * time.Millisecond)
		}
	}()
	return p
}

// isLease reports whether a variable of the trial's own environment would tell a program to elect.
func isLease(variable string) bool { return strings.HasPrefix(variable, "TRIAL_LEASE=") }

func (p *command) terminate() {
	p.measure()
	p.isAsked.Store(true)
	p.signal(terminateSignal)
}

func (p *command) kill() {
	p.measure()
	p.isAsked.Store(true)
	p.signal(os.Kill)
}

func (p *command) measure() {
	if p.cmd.Process != nil {
		p.taken = max(p.taken, readPeak(p.cmd.Process.Pid))
	}
}

func (p *command) peak() float64 { return p.taken }

func (p *command) done() <-chan struct{} { return p.ended }

func (p *command) ending() string {
	switch {
	case p.isAsked.Load():
		return ""
	case p.err != nil:
		return p.err.Error() // such as "exit status 1"
	}
	return "exit status 0"
}

func (p *command) code() int {
	if p.cmd.ProcessState == nil {
		return 1 // It could not be started.
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *command) output() string { return p.printed.String() }

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if surplus := len(t.text) - tailSize; surplus > 0 {
		t.text = append([]byte{}, t.text[surplus:]...)
	}
	return len(p), nil
}

// String returns the text that is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.ToValidUTF8(t.text, []byte("?")))
}
