//go:build unix

package kubeconfig

import (
	"os/exec"
	"syscall"
)

// family is an exec program with all processes that it starts. A process can leave the family: see setpgid(2).
type family struct{ program *exec.Cmd }

// newFamily returns the family of a program, which must not run yet.
//
// The program gets a session of its own, and so a process group, and no terminal. In a group of our session, a program
// that asks for a password on the terminal would be stopped by it until the time limit. Without a terminal, it fails at
// once, and says why.
func newFamily(program *exec.Cmd) (*family, error) {
	program.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return &family{program}, nil
}

func (f *family) start() error { return f.program.Start() }

// kill ends all processes of the family. It may come right after the program has ended. Its children then still have
// the number of the group or, if there are none, it was free for too short a time to be that of another group.
func (f *family) kill() error {
	syscall.Kill(-f.program.Process.Pid, syscall.SIGKILL)
	return f.program.Process.Kill() // even if it has gone to another group
}

// close forgets the family, whose processes run on.
func (f *family) close() {}
