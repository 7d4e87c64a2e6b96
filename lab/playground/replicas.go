package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"podcount/lab/fakekube"
)

// patience is how long a process of podcount may take to stop. Then it is killed.
const patience = 20 * time.Second

// replicas are the processes of podcount: one, or two that elect a leader.
type replicas struct {
	program    string
	kubeconfig func(token string) []byte
	out        io.Writer // gets the standard output of the processes
	errOut     io.Writer // gets their standard error

	// leads reports whether the replica with this token holds the Lease.
	leads func(token string) bool

	// ended gets a process that has ended by itself.
	ended chan ending

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

// ending is the end of a replica's process.
type ending struct {
	of  *replica
	err error // nil if the exit code was 0
}

// process is a running podcount. A child is a process of the operating system or, in a browser, a worker.
type process struct {
	child  *child
	ended  chan struct{} // closed when the process has ended
	mayEnd bool          // the playground has asked for its end, or has paused it
}

func newReplicas(
	program string, kubeconfig func(token string) []byte, leads func(token string) bool, out, errOut io.Writer,
) *replicas {
	return &replicas{
		program:    program,
		kubeconfig: kubeconfig,
		out:        out,
		errOut:     errOut,
		leads:      leads,
		ended:      make(chan ending, 2), // There are two replicas at most.
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

// start starts the process of a replica, unless it has one.
func (rs *replicas) start(r *replica) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.process != nil {
		return nil
	}
	child, err := rs.startChild(r)
	if err != nil {
		return err
	}
	r.process = &process{child: child, ended: make(chan struct{})}
	go rs.await(r, r.process)
	return nil
}

// await waits until a process ends, and reports it if nobody has expected that.
func (rs *replicas) await(r *replica, p *process) {
	err := p.child.wait()
	rs.mu.Lock()
	wasExpected := p.mayEnd
	if r.process == p {
		r.process = nil
	}
	rs.mu.Unlock()
	close(p.ended)
	if !wasExpected {
		rs.ended <- ending{r, err}
	}
}

// expectEnd says whether the end of a replica's process is to be expected from now on, and returns the process. It is
// nil if the replica has none.
func (rs *replicas) expectEnd(r *replica, mayEnd bool) *process {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.process != nil {
		r.process.mayEnd = mayEnd
	}
	return r.process
}

// stop asks a replica to stop by a signal, as a kubelet does, and kills it if it does not. It returns an error if the
// replica had to be killed.
func (rs *replicas) stop(r *replica) error {
	p := rs.expectEnd(r, true)
	if p == nil {
		return nil
	}
	p.child.terminate()
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		p.child.kill()
		<-p.ended
		return fmt.Errorf("%s did not stop within %v, and was killed", r.name, patience)
	}
}

// kill ends the process of a replica at once.
func (rs *replicas) kill(r *replica) {
	if p := rs.expectEnd(r, true); p != nil {
		p.child.kill()
		<-p.ended
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

// freeAddress returns a HOST:PORT of 127.0.0.1 on which nobody listens. As the port of a fake's network, it remains
// free while a replica is away.
func freeAddress() string {
	network := fakekube.NewTCPNetwork("127.0.0.1:0", &http.Server{})
	defer network.Close()
	return network.Addr()
}

// hasPage reports whether a replica's page accepts connections.
func (rs *replicas) hasPage(r *replica) bool {
	conn, err := rs.dialPage(context.Background(), r)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// dialPage connects to the page of a replica. One that is paused does not answer.
func (rs *replicas) dialPage(ctx context.Context, r *replica) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	rs.mu.Lock()
	p := r.process
	rs.mu.Unlock()
	if p == nil {
		return nil, fmt.Errorf("%s does not run", r.name)
	}
	return p.child.dial(ctx, "tcp", r.pageAddress)
}

// secondKubeconfig returns the name of the second replica's kubeconfig.
func secondKubeconfig(first string) string {
	return strings.TrimSuffix(first, ".kubeconfig") + ".second-replica"
}
