package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"podcount/internal/fakekube"
)

const (
	controlPlane = "node-role.kubernetes.io/control-plane"

	// token is what the fake lets in.
	token = "playground"

	// outage is how long the server is gone after the last SIGUSR1.
	outage = 20 * time.Second
)

// nodes are those on which pods run. The first is for the control plane.
var nodes = []string{"control-plane", "worker-1", "worker-2"}

// cluster is a small cluster that lives on a fake API server. One goroutine has it; outages end on goroutines of their
// own.
type cluster struct {
	fake *fakekube.Server
	host string    // HOST:PORT, as clients call the server
	out  io.Writer // gets a line when the server goes or comes back
	next int       // number of the next pod

	mu           sync.Mutex // guards disturbances, and keeps the lines in the order of what happens
	disturbances int        // how many there have been; the last one alone may end its outage
}

// newCluster makes the nodes, 30 pods and a Count of these.
func newCluster(out io.Writer) *cluster {
	c := &cluster{fake: fakekube.New(), out: out}
	c.fake.Allow(token)
	c.fake.AddNode(nodes[0], controlPlane)
	for _, worker := range nodes[1:] {
		c.fake.AddNode(worker)
	}
	c.fake.InstallCRD(&fakekube.CRD{HasStatus: true})
	c.fake.AddCount("web", `{"name":"web","count":30}`)
	for range 30 {
		c.addPod()
	}
	return c
}

// addPod makes a pod on any of the nodes.
func (c *cluster) addPod() {
	c.fake.AddPod("default", fmt.Sprintf("web-%d", c.next), nodes[rand.IntN(len(nodes))])
	c.next++
}

// live makes or removes a pod, so that there are about 30.
func (c *cluster) live() {
	pods := c.fake.All("pods")
	if len(pods) > 25+rand.IntN(10) {
		c.fake.Remove("pods", fakekube.KeyOf(pods[rand.IntN(len(pods))]))
		return
	}
	c.addPod()
}

// disturb does what a signal asks for: the server goes away for a while, or has forgotten its history when it is back
// at once. In that case a pod has come of which no watch has told. Either takes the place of an outage that lasts.
func (c *cluster) disturb(sig os.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.out, "playground: the server is gone")
	c.fake.CutOff(c.host, true)
	c.disturbances++
	mine := c.disturbances
	if sig == syscall.SIGUSR1 {
		time.AfterFunc(outage, func() { c.endOutage(mine) })
		return
	}
	c.fake.AddPod("default", fmt.Sprintf("web-unseen-%d", c.next), nodes[0])
	c.next++
	c.fake.Compact()
	c.comeBackLocked()
}

// endOutage brings the server back, unless another disturbance has come since this one.
func (c *cluster) endOutage(disturbance int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if disturbance == c.disturbances {
		c.comeBackLocked()
	}
}

func (c *cluster) comeBackLocked() {
	fmt.Fprintln(c.out, "playground: the server is back")
	c.fake.CutOff(c.host, false)
}

// end leaves the server as it is: no outage ends after it.
func (c *cluster) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbances++
}
