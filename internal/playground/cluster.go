package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"podcount/internal/fakekube"
)

const (
	// token is what the fake lets in.
	token = "playground"

	// outage is how long the server is gone after the last SIGUSR1.
	outage = 20 * time.Second

	// pace is how often the cluster's components look for something to do, and growth how often web is scaled.
	pace   = 250 * time.Millisecond
	growth = 1500 * time.Millisecond

	// compaction is how often the server forgets its history, so that its memory does not grow for ever.
	compaction = 30 * time.Minute
)

// cluster is a small cluster that lives on a fake API server. One goroutine has it; outages end on goroutines of their
// own.
type cluster struct {
	*client
	fake *fakekube.Server
	host string    // HOST:PORT, as clients call the server
	out  io.Writer // gets a line when the server goes or comes back

	scheduler   *scheduler
	kubelets    *kubelets
	heartbeat   *heartbeat
	controllers *controllers
	janitor     *janitor
	grown       time.Time // when web was scaled last
	expired     time.Time // when old Events were looked for last
	compacted   time.Time // when the history was forgotten last

	mu           sync.Mutex // guards disturbances, and keeps the lines in the order of what happens
	disturbances int        // how many there have been; the last one alone may end its outage
}

// newCluster makes the nodes, about 30 pods that run on them, and a Count of some of these.
func newCluster(out io.Writer) *cluster {
	fake := fakekube.New()
	fake.Allow(token)
	fake.HasKubelets = true
	c := newComponents(&client{server: fake, all: fake.All})
	c.fake = fake
	c.out = out
	if err := c.bootstrap(); err != nil {
		panic(err) // the fake takes what a real server takes
	}
	return c
}

// newComponents are the components of a cluster that is not there yet.
func newComponents(api *client) *cluster {
	now := time.Now()
	events := &recorder{client: api}
	workloads := catalogue()
	return &cluster{
		client:    api,
		scheduler: &scheduler{client: api, events: events, complaints: map[string]string{}},
		kubelets: &kubelets{
			client:  api,
			events:  events,
			records: map[string]*podRecord{},
			images:  map[string]map[string]bool{},
		},
		heartbeat:   &heartbeat{client: api, since: now, renewed: now, reported: now},
		controllers: &controllers{client: api, workloads: workloads, web: workloads[0]},
		janitor:     &janitor{api},
		grown:       now,
		expired:     now,
		compacted:   now,
	}
}

// bootstrap makes what the cluster has at first, and lets it live until the pods run.
func (c *cluster) bootstrap() error {
	for _, name := range namespaces {
		if err := c.createAnyway("namespaces", object{"metadata": object{"name": name}}); err != nil {
			return err
		}
	}
	for i, name := range nodes {
		if err := register(c.client, name, i); err != nil {
			return err
		}
	}
	if err := c.createAnyway("customresourcedefinitions", countDefinition()); err != nil {
		return err
	}
	_, err := c.create("counts", object{
		"apiVersion": "demo.mark8s.io/v1",
		"kind":       "Count",
		"metadata":   object{"namespace": "default", "name": "web"},
		"spec":       object{"name": "web", "count": c.controllers.web.replicas},
	})
	if err != nil {
		return err
	}
	c.kubelets.inHurry = true
	for range 4 { // made, bound, pulled, running; what crashes has crashed twice
		c.step()
	}
	c.kubelets.inHurry = false
	return nil
}

// step lets each component do what is due.
func (c *cluster) step() {
	c.janitor.step()
	c.controllers.step()
	c.scheduler.step()
	c.kubelets.step()
	c.heartbeat.step()
}

// live is a moment of the cluster's life: a step, in which now and then a pod comes or goes.
func (c *cluster) live() {
	now := time.Now()
	if now.Sub(c.grown) >= growth {
		c.grown = now
		c.controllers.wander()
	}
	if now.Sub(c.expired) >= eventTTL/60 {
		c.expired = now
		expireEvents(c.client)
	}
	if now.Sub(c.compacted) >= compaction {
		c.compacted = now
		c.fake.Compact()
		c.fake.ForgetRequests()
	}
	c.step()
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
	c.create("pods", c.controllers.web.pod(object{"name": fmt.Sprintf("web-unseen-%d", c.disturbances)}))
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
