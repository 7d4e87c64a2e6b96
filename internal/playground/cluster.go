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
	// token is the only token that the fake accepts.
	token = "playground"

	// outage is how long the server is away after the last SIGUSR1.
	outage = 20 * time.Second

	// pace is how often the cluster's components look for work.
	pace = 250 * time.Millisecond

	// growth is how often web is scaled.
	growth = 1500 * time.Millisecond

	// compaction is how often the server forgets its history. Without that, its memory would grow for ever.
	compaction = 30 * time.Minute
)

// cluster is a small cluster that lives on a fake API server. Only one goroutine may use it, except that outages end on
// goroutines of their own.
type cluster struct {
	*client
	fake *fakekube.Server
	host string    // HOST:PORT, as clients call the server
	out  io.Writer // gets a line when the server goes away or comes back

	scheduler   *scheduler
	kubelets    *kubelets
	heartbeat   *heartbeat
	controllers *controllers
	janitor     *janitor

	// When something was last done.
	grown     time.Time // web was scaled
	expired   time.Time // old Events were removed
	compacted time.Time // the history was forgotten

	// mu guards disturbances, and keeps the lines on out in the order of the events.
	mu sync.Mutex

	// disturbances counts the signals so far. Only the newest one may end its outage.
	disturbances int
}

// newCluster creates the nodes, about 30 pods that run on them, and a Count for some of the pods.
func newCluster(out io.Writer) *cluster {
	fake := fakekube.New()
	fake.Allow(token)
	fake.HasKubelets = true
	c := newComponents(&client{server: fake, all: fake.All})
	c.fake = fake
	c.out = out
	if err := c.bootstrap(); err != nil {
		panic(err) // a mistake in this package, as the fake accepts what a real server accepts
	}
	return c
}

// newComponents returns a cluster's components, before any of its objects is created.
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

// bootstrap creates the cluster's first objects, and lets it live until the pods run.
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
	for range 4 { // pods are created, bound, pulled and started; those that crash have crashed twice
		c.step()
	}
	c.kubelets.inHurry = false
	return nil
}

// step lets each component do the work that is due.
func (c *cluster) step() {
	c.janitor.step()
	c.controllers.step()
	c.scheduler.step()
	c.kubelets.step()
	c.heartbeat.step()
}

// live does what is due: it changes the number of pods, deletes expired Events, and compacts the history. Then it does
// one step.
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

// disturb does what a signal asks for. After SIGUSR1 the server goes away for a while. After SIGUSR2 it comes back at
// once, but has forgotten its history, and there is a new pod that no watch will ever report. Its Deployment wants one
// pod more, so that it stays. Either signal replaces an outage that is still going on.
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
	c.controllers.web.replicas++
	c.create("pods", c.controllers.web.pod(object{"name": fmt.Sprintf("web-unseen-%d", c.disturbances)}))
	c.fake.Compact()
	c.comeBackLocked()
}

// endOutage brings the server back, unless there has been another disturbance since.
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

// end makes sure that no outage ends any more.
func (c *cluster) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbances++
}
