package airgap

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// The variables that make this test binary the first process of the site.
const (
	rootVariable = "PODCOUNT_AIRGAP_ROOT" // the directory that becomes the root
	stepVariable = "PODCOUNT_AIRGAP_STEP" // the script to run
)

// runStep enters the site, runs the script of a step, and returns the exit code. When this process ends, the kernel
// kills all others at the site.
func runStep(root, step string) int {
	err := enter(root)
	if err == nil {
		err = startNetwork(os.Getenv("API_HOST"), os.Getenv("API_PORT"))
	}
	if err == nil {
		err = run("sh", "-eu", steps+"/"+step+".sh")
	}
	var failure *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failure):
		return 1 // The script has said why.
	}
	fmt.Fprintln(os.Stderr, "airgap:", err)
	return 1
}

// enter makes a directory the root of this process, and leaves nothing else in sight.
func enter(root string) error {
	if err := mountAll(root); err != nil {
		return err
	}
	if err := syscall.Chdir(root); err != nil {
		return err
	}
	// The old root is then mounted over the new one, until it is unmounted.
	if err := syscall.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("cannot enter %s: %w", root, err)
	}
	if err := syscall.Unmount(".", syscall.MNT_DETACH); err != nil {
		return err
	}
	if err := syscall.Chdir("/"); err != nil {
		return err
	}
	return run("busybox", "--install", "-s", "/bin")
}

// mount is one file system of the site.
type mount struct {
	source, target, kind string
	flags                uintptr
}

// mountAll mounts what a machine has: the root itself, the kernel's file systems, and the devices that the programs
// use.
func mountAll(root string) error {
	mounts := []mount{
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE},
		{root, root, "", syscall.MS_BIND},
		{"proc", root + "/proc", "proc", 0},
		{"sysfs", root + "/sys", "sysfs", 0},
		{"cgroup2", root + "/sys/fs/cgroup", "cgroup2", 0},
		{"tmpfs", root + "/run", "tmpfs", 0},
		{"tmpfs", root + "/tmp", "tmpfs", 0},
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		device := filepath.Join(root, "dev", name)
		if err := os.WriteFile(device, nil, 0o666); err != nil {
			return err
		}
		mounts = append(mounts, mount{"/dev/" + name, device, "", syscall.MS_BIND})
	}
	for _, m := range mounts {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("cannot mount %s: %w", m.target, err)
		}
	}
	return nil
}

// startNetwork starts the loopback. If there is a cluster, its API server has its usual address there.
func startNetwork(host, port string) error {
	if err := run("ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	if host == "" {
		return nil
	}
	if err := giveAddress(host); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	go forward(listener, func() (net.Conn, error) { return net.Dial("unix", apiSocket) })
	return nil
}

// giveAddress gives the loopback the address or the name of a host.
func giveAddress(host string) error {
	ip := net.ParseIP(host)
	switch {
	case ip == nil:
		return os.WriteFile("/etc/hosts", []byte("127.0.0.1 localhost "+host+"\n"), 0o644)
	case ip.IsLoopback():
		return nil
	case ip.To4() == nil:
		// An IPv6 address is usable only some time later. We can listen there at once.
		if err := os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0); err != nil {
			return err
		}
		return run("ip", "address", "add", host+"/128", "dev", "lo")
	}
	return run("ip", "address", "add", host+"/32", "dev", "lo")
}

// run runs a program of the site.
func run(name string, args ...string) error {
	cmd := exec.Command("/bin/"+name, args...)
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	return cmd.Run()
}
