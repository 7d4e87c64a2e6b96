//go:build unix

package trial

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

const terminateSignal = syscall.SIGTERM

// prepare makes the shell and what it starts one group, so that signals reach all of them.
func prepare(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func (p *command) signal(signal os.Signal) {
	if p.cmd.Process != nil {
		syscall.Kill(-p.cmd.Process.Pid, signal.(syscall.Signal))
	}
}

// lives reports whether a process of the group still runs.
func (p *command) lives() bool { return syscall.Kill(-p.cmd.Process.Pid, 0) == nil }

func (p *command) freeze() { p.signal(syscall.SIGSTOP) }

func (p *command) thaw() { p.signal(syscall.SIGCONT) }

// readPeak returns the most memory that a running process took, in MiB. It returns 0 where the system does not tell.
// The system tells it of an ended process, too, but then it is at least what the trial took when it started that.
func readPeak(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	var kilobytes float64
	fmt.Sscan(after, &kilobytes)
	return kilobytes / 1024
}
