package kubeconfig

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
)

// https://learn.microsoft.com/windows/win32/procthread/job-objects
var (
	kernel32                 = syscall.NewLazyDLL("kernel32.dll")
	createJobObject          = kernel32.NewProc("CreateJobObjectW")
	assignProcessToJobObject = kernel32.NewProc("AssignProcessToJobObject")
	terminateJobObject       = kernel32.NewProc("TerminateJobObject")
)

// family is an exec program with all processes that it starts.
type family struct {
	program *exec.Cmd
	job     syscall.Handle
}

// newFamily returns the family of a program, which must not run yet.
func newFamily(program *exec.Cmd) (*family, error) {
	job, _, err := createJobObject.Call(0, 0)
	if job == 0 {
		return nil, fmt.Errorf("CreateJobObject: %w", err)
	}
	return &family{program, syscall.Handle(job)}, nil
}

// start starts the program. What the program starts in the moment before it is in the job is not of the family.
func (f *family) start() error {
	if err := f.program.Start(); err != nil {
		return err
	}
	if err := f.enterJob(); err != nil {
		return errors.Join(err, f.program.Process.Kill(), f.program.Wait())
	}
	return nil
}

// enterJob puts the program into the job. Its children will be there, too.
func (f *family) enterJob() error {
	const access = 0x0001 | 0x0100 | syscall.SYNCHRONIZE // PROCESS_TERMINATE | PROCESS_SET_QUOTA | SYNCHRONIZE
	process, err := syscall.OpenProcess(access, false, uint32(f.program.Process.Pid))
	if err != nil {
		return fmt.Errorf("OpenProcess: %w", err)
	}
	defer syscall.CloseHandle(process)
	done, _, err := assignProcessToJobObject.Call(uintptr(f.job), uintptr(process))
	if done == 0 && !hasEnded(process) {
		return fmt.Errorf("AssignProcessToJobObject: %w", err)
	}
	return nil
}

// hasEnded reports whether a process has ended. Such a process cannot enter a job, and need not.
func hasEnded(process syscall.Handle) bool {
	event, err := syscall.WaitForSingleObject(process, 0)
	return err == nil && event == syscall.WAIT_OBJECT_0
}

// kill ends all processes of the family.
func (f *family) kill() error {
	const exitCode = 1
	terminateJobObject.Call(uintptr(f.job), exitCode)
	return f.program.Process.Kill() // even if it is not in the job yet
}

// close forgets the family, whose processes run on.
func (f *family) close() { syscall.CloseHandle(f.job) }
