package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"podcount/lab/fakekube"
)

// patience is how long a process of podcount may take to stop. Then it is killed.
const patience = 20 * time.Second

// replicas are the processes of podcount: one, or two that elect a leader.
type replicas struct {
	program string
	out     io.Writer // gets the standard output of the processes
	errOut  io.Writer // gets their standard error

	// leads reports whether the replica with this token holds the Lease.
	leads func(token string) bool

	// ended gets the error of a process that has ended by itself: nil if its exit code was 0.
	ended chan error

	mu  sync.Mutex // guards all, and the process of each replica
	all []*replica // the first one was there from the start
}

// replica is a podcount that can be stopped and started again.
type replica struct {
	name        string // such as "the second replica"
	token       string // with which it talks to the server
	kubeconfig  string // its file
	pageAddress string // the HOST:PORT of its page
	flags       flags

	process *process // nil while it does not run
}

// process is a running podcount.
type process struct {
	command    *exec.Cmd
	ended      chan struct{} // closed when the process has ended
	isStopping bool          // the playground has asked it to stop
}

func newReplicas(program string, leads func(token string) bool, out, errOut io.Writer) *replicas {
	return &replicas{
		program: program,
		out:     out,
		errOut:  errOut,
		leads:   leads,
		ended:   make(chan error, 1),
	}
}

// newReplica makes a replica, which does not run yet.
func newReplica(name, token, kubeconfig string, flags flags) *replica {
	return &replica{name: name, token: token, kubeconfig: kubeconfig, pageAddress: freeAddress(), flags: flags}
}

// add starts another replica.
func (rs *replicas) add(r *replica) error {
	if err := rs.start(r); err != nil {
		return err
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.all = append(rs.all, r)
	return nil
}

// arguments returns the arguments of a replica's process. The user's flags are last.
func (r *replica) arguments() []string {
	return append([]string{"-kubeconfig", r.kubeconfig, "-page", r.pageAddress}, r.flags...)
}

// start starts the process of a replica that does not run.
func (rs *replicas) start(r *replica) error {
	command := exec.Command(rs.program, r.arguments()...)
	command.Stdout = rs.out
	command.Stderr = rs.errOut
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C must reach only us; stop passes it on
	if err := command.Start(); err != nil {
		return err
	}
	p := &process{command: command, ended: make(chan struct{})}
	rs.mu.Lock()
	r.process = p
	rs.mu.Unlock()
	go rs.await(r, p)
	return nil
}

// await waits until a process ends, and reports it if nobody has asked for that.
func (rs *replicas) await(r *replica, p *process) {
	err := p.command.Wait()
	rs.mu.Lock()
	wasAsked := p.isStopping
	if r.process == p {
		r.process = nil
	}
	rs.mu.Unlock()
	close(p.ended)
	if wasAsked {
		return
	}
	select {
	case rs.ended <- err:
	default: // the playground is ending already because of another one
	}
}

// stop asks a replica to stop by a signal, as a kubelet does, and kills it if it does not. It returns an error if the
// replica had to be killed.
func (rs *replicas) stop(r *replica) error {
	rs.mu.Lock()
	p := r.process
	if p != nil {
		p.isStopping = true
	}
	rs.mu.Unlock()
	if p == nil {
		return nil
	}
	p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		p.command.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not stop within %v, and was killed", r.name, patience)
	}
}

// stopAll stops all replicas at once. It returns an error if one of them had to be killed.
func (rs *replicas) stopAll() error {
	all := rs.list()
	errs := make([]error, len(all))
	var work sync.WaitGroup
	for i, r := range all {
		work.Go(func() { errs[i] = rs.stop(r) })
	}
	work.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// list returns the replicas.
func (rs *replicas) list() []*replica {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return append([]*replica(nil), rs.all...)
}

// isRunning reports whether a replica has a process.
func (rs *replicas) isRunning(r *replica) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return r.process != nil
}

// shown returns the replica whose page is shown: the leader, or else one that runs. It returns nil if none runs.
func (rs *replicas) shown() *replica {
	var found *replica
	for _, r := range rs.list() {
		if !rs.isRunning(r) {
			continue
		}
		if rs.leads(r.token) {
			return r
		}
		if found == nil {
			found = r
		}
	}
	return found
}

// freeAddress returns a HOST:PORT of 127.0.0.1 on which nobody listens. As the port of a fake's network, it remains free
// while a replica is away.
func freeAddress() string {
	network := fakekube.NewTCPNetwork("127.0.0.1:0", &http.Server{})
	defer network.Close()
	return network.Addr()
}

// hasPage reports whether a replica's page accepts connections.
func (r *replica) hasPage() bool {
	conn, err := net.DialTimeout("tcp", r.pageAddress, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// secondKubeconfig returns the name of the second replica's kubeconfig.
func secondKubeconfig(first string) string {
	return strings.TrimSuffix(first, ".kubeconfig") + ".second-replica"
}

// writeSecondKubeconfig copies the first replica's kubeconfig, with another token.
func writeSecondKubeconfig(first string) (file string, err error) {
	text, err := os.ReadFile(first)
	if err != nil {
		return "", err
	}
	file = secondKubeconfig(first)
	changed := strings.Replace(string(text), strconv.Quote(token), strconv.Quote(secondToken), 1)
	return file, os.WriteFile(file, []byte(changed), 0o600)
}
