//go:build !unix

package kubeconfig

import "os/exec"

// separate does nothing on Windows, where a program with its children is no group that can be killed. In a browser, no
// program can be started.
func separate(*exec.Cmd) {}

// killFamily ends a program, but not what it has started.
func killFamily(program *exec.Cmd) error { return program.Process.Kill() }
