//go:build unix

package kubeconfig

import (
	"os/exec"
	"syscall"
)

// separate makes a program the first of a family: all processes that it starts. A process can leave the family: see
// setpgid(2).
//
// The program gets a session of its own, and so a process group, and no terminal. In a group of our session, a program
// that asks for a password on the terminal would be stopped by it until the time limit. Without a terminal, it fails at
// once, and says why.
func separate(program *exec.Cmd) { program.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// killFamily ends all processes of a program's family. It may come right after the program has ended. Its children then
// still have the number of the group or, if there are none, it was free for too short a time to be that of another
// group.
func killFamily(program *exec.Cmd) error {
	syscall.Kill(-program.Process.Pid, syscall.SIGKILL)
	return program.Process.Kill() // even if it has gone to another group
}
