// Playground is what `make run` shows: a fake API server with a small cluster that lives, podcount running against it,
// and signals that disturb both. It is a command of its own, which no other package imports.
//
//	playground PODCOUNT-BINARY DIRECTORY [PODCOUNT-FLAGS]
//
// The directory gets a kubeconfig, for kubectl in another terminal. SIGUSR1 takes the server away for 20 seconds;
// SIGUSR2 has it forget its history. Ctrl-C stops both.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"podcount/internal/fakekube"
)

const controlPlane = "node-role.kubernetes.io/control-plane"

func main() { os.Exit(playground(os.Args[1:])) }

// playground runs until a signal or podcount's end, and returns the exit code.
func playground(args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: playground PODCOUNT-BINARY DIRECTORY [PODCOUNT-FLAGS]")
		return 2
	}
	f := fakekube.New()
	f.Allow("playground")
	f.AddNode("control-plane", controlPlane)
	f.AddNode("worker-1")
	f.AddNode("worker-2")
	f.InstallCRD(&fakekube.CRD{HasStatus: true})
	f.AddCount("web", `{"name":"web","count":30}`)
	nodes := []string{"control-plane", "worker-1", "worker-2"}
	for i := range 30 {
		f.AddPod("default", fmt.Sprintf("web-%d", i), nodes[rand.IntN(len(nodes))])
	}
	srv, ca := f.ServeTLS()
	dir, _ := filepath.Abs(args[1])
	file, err := writeOwnKubeconfig(dir, fakekube.Kubeconfig(srv.URL, ca, "token: playground"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		return 1
	}
	defer os.Remove(file)

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	cmd := exec.Command(args[0], append([]string{"-kubeconfig", file}, args[2:]...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C comes to us alone, and we pass it on
	fmt.Printf("A fake API server with 3 nodes and about 30 pods that come and go runs at %s.\npodcount runs against it: %s\n", srv.URL, strings.Join(cmd.Args, " "))
	if _, err := exec.LookPath("kubectl"); err == nil {
		fmt.Printf("In another terminal, try:\n  export KUBECONFIG=%s\n  kubectl get nodes -L hopegi/pod-count\n  kubectl get pods -A -w\n  kubectl describe node control-plane\n  kubectl get count web -o yaml\n  kubectl run mine --image=nginx\n  kubectl label node worker-1 %s=\n", file, controlPlane)
	} else {
		fmt.Printf("In another terminal, try:\n  curl -sk -H 'Authorization: Bearer playground' %s/api/v1/nodes/control-plane\n", srv.URL)
	}
	host := strings.TrimPrefix(srv.URL, "https://")
	faults := make(chan os.Signal, 1)
	signal.Notify(faults, syscall.SIGUSR1, syscall.SIGUSR2)
	fmt.Printf("  kill -USR1 %[1]d    # the server is gone, for 20 s\n  kill -USR2 %[1]d    # it has forgotten its history\nCtrl-C stops both.\n\n", os.Getpid())
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		return 1
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	life := time.NewTicker(1500 * time.Millisecond)
	for next := 30; ; next++ {
		select {
		case <-life.C:
			if pods := f.All("pods"); len(pods) > 25+rand.IntN(10) {
				f.Remove("pods", fakekube.KeyOf(pods[rand.IntN(len(pods))]))
			} else {
				f.AddPod("default", fmt.Sprintf("web-%d", next), nodes[rand.IntN(len(nodes))])
			}
			continue
		case fault := <-faults:
			fmt.Println("playground: the server is gone")
			f.CutOff(host, true)
			back := func() {
				fmt.Println("playground: the server is back")
				f.CutOff(host, false)
			}
			if fault == syscall.SIGUSR1 {
				time.AfterFunc(20*time.Second, back)
				continue
			}
			f.AddPod("default", fmt.Sprintf("web-unseen-%d", next), nodes[0])
			f.Compact()
			back()
			continue
		case err := <-exited:
			fmt.Fprintln(os.Stderr, "playground: podcount ended:", err)
			return 1
		case <-signals:
		}
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
			return 0
		case <-time.After(20 * time.Second):
			cmd.Process.Kill()
			return 1
		}
	}
}
