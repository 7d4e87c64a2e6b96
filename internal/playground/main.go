// Playground is the command behind `make run`. It runs a fake API server with a small cluster that lives, and podcount
// against it. Signals disturb the server.
//
//	playground PODCOUNT-BINARY DIRECTORY [PODCOUNT-FLAGS]
//
// The playground writes a kubeconfig to the directory, for kubectl in another terminal, and removes it at the end. The
// file .playground.lock beside it stays.
//
// SIGUSR1 takes the server away until 20 seconds after the last such signal. SIGUSR2 makes the server forget its
// history, and brings it back. Ctrl-C stops podcount and the server.
//
// The exit code is 0 after a Ctrl-C. It is 1 if the kubeconfig cannot be written, or if podcount cannot be started,
// ends by itself or does not stop. It is 2 if the arguments are wrong.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"podcount/internal/fakekube"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs until a signal arrives or podcount ends, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) < 2 {
		fmt.Fprintln(stderr, "usage: playground PODCOUNT-BINARY DIRECTORY [PODCOUNT-FLAGS]")
		return 2
	}
	program := args[0]
	dir := args[1]
	flags := args[2:]

	c := newCluster(stdout)
	server, err := c.fake.ServeTLS()
	if err != nil {
		fmt.Fprintln(stderr, "playground:", err)
		return 1
	}
	defer func() {
		c.end()
		server.Close()
	}()
	c.host = strings.TrimPrefix(server.URL, "https://")
	dir, err = filepath.Abs(dir)
	if err != nil {
		fmt.Fprintln(stderr, "playground:", err)
		return 1
	}
	file, err := writeOwnKubeconfig(dir, fakekube.Kubeconfig(server.URL, server.CA, "token: "+token))
	if err != nil {
		fmt.Fprintln(stderr, "playground:", err)
		return 1
	}
	defer os.Remove(file)

	// Signals must be caught before the user reads about them, and before there is a process to stop.
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(stops)
	disturbances := make(chan os.Signal, 1)
	signal.Notify(disturbances, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(disturbances)

	podcount := exec.Command(program, append([]string{"-kubeconfig", file}, flags...)...)
	podcount.Stdout = stdout
	podcount.Stderr = stderr
	podcount.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C must reach only us; stop passes it on
	_, err = exec.LookPath("kubectl")
	hasKubectl := err == nil
	fmt.Fprint(stdout, introduction(server.URL, podcount.Args))
	fmt.Fprint(stdout, whatToTry(server.URL, file, hasKubectl))
	fmt.Fprint(stdout, howToDisturb())
	if err := podcount.Start(); err != nil {
		fmt.Fprintln(stderr, "playground:", err)
		return 1
	}
	ended := make(chan error, 1)
	go func() { ended <- podcount.Wait() }()

	life := time.NewTicker(pace)
	defer life.Stop()
	for {
		select {
		case <-life.C:
			c.live()
		case sig := <-disturbances:
			c.disturb(sig)
		case err := <-ended:
			fmt.Fprintln(stderr, "playground: podcount ended:", err)
			return 1
		case <-stops:
			return stop(podcount.Process, ended)
		}
	}
}

// stop asks podcount to stop by a signal, as a kubelet does, and kills it after 20 seconds. It returns the exit code.
// ended gets a value when podcount has ended.
func stop(podcount *os.Process, ended <-chan error) int {
	podcount.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		return 0
	case <-time.After(20 * time.Second):
		podcount.Kill()
		return 1
	}
}

// introduction says which server and which podcount are running.
func introduction(url string, podcount []string) string {
	return "A fake API server with 3 nodes and about 30 pods that come and go runs at " + url + ".\n" +
		"podcount runs against it: " + strings.Join(podcount, " ") + "\n"
}

// whatToTry lists commands that look at the cluster or change it.
func whatToTry(url, kubeconfig string, hasKubectl bool) string {
	lines := []string{
		"In another terminal, try:",
		"export KUBECONFIG=" + kubeconfig,
		"kubectl get nodes -L hopegi/pod-count",
		"kubectl get pods -A -w",
		"kubectl describe node control-plane",
		"kubectl get count web -o yaml",
		"kubectl run mine --image=nginx",
		"kubectl label node worker-1 " + controlPlane + "=",
	}
	if !hasKubectl {
		lines = []string{
			"In another terminal, try:",
			"curl -sk -H 'Authorization: Bearer " + token + "' " + url + "/api/v1/nodes/control-plane",
		}
	}
	return strings.Join(lines, "\n  ") + "\n"
}

// howToDisturb lists the signals that this process understands.
func howToDisturb() string {
	pid := os.Getpid()
	return fmt.Sprintf("  kill -USR1 %d    # the server is gone for 20 s; podcount notices its return within 26 s\n", pid) +
		fmt.Sprintf("  kill -USR2 %d    # it has forgotten its history\n", pid) +
		"Ctrl-C stops both.\n\n"
}
