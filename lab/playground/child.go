//go:build !js

package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// child is a process of the operating system that runs podcount.
type child struct{ command *exec.Cmd }

// startChild starts a process for a replica.
func (rs *replicas) startChild(r *replica) (*child, error) {
	if err := os.WriteFile(r.kubeconfig, rs.kubeconfig(r.token), 0o600); err != nil {
		return nil, err
	}
	command := exec.Command(rs.program, r.arguments()...)
	command.Stdout = rs.out
	command.Stderr = rs.errOut
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C must reach only us; stop passes it on
	return &child{command}, command.Start()
}

// wait waits until the child has ended. The error is nil if its exit code was 0.
func (c *child) wait() error { return c.command.Wait() }

// terminate asks the child to stop.
func (c *child) terminate() { c.command.Process.Signal(syscall.SIGTERM) }

// kill ends the child at once.
func (c *child) kill() { c.command.Process.Kill() }

// pause stops the child where it is. A busy machine may take some milliseconds to stop all its threads, and until then
// they could write a label, so pause waits for that. If the child ends just then, wait returns an error.
func (c *child) pause() {
	c.command.Process.Signal(syscall.SIGSTOP)
	syscall.Wait4(c.command.Process.Pid, nil, syscall.WUNTRACED, nil)
}

// resume lets a paused child go on.
func (c *child) resume() { c.command.Process.Signal(syscall.SIGCONT) }

// dial connects to an address at which the child listens.
func (c *child) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}
