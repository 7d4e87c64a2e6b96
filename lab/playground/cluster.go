package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"podcount/lab/fakekube"
)

const (
	// token is the only token that the fake accepts.
	token = "playground"

	// outage is how long the server is away after a SIGUSR1.
	outage = 20 * time.Second

	// pace is how often the cluster's components look for work.
	pace = 250 * time.Millisecond

	// growth is the time from one scaling of web to the next at first. It grows by one part in calming of the cluster's
	// age, because podcount posts an Event about the node for each new value of the label: up to 25, and then one in
	// five minutes. A cluster that is scaled more often would make podcount drop Events.
	growth  = 10 * time.Second
	calming = 6

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

	began time.Time // when the cluster was made

	// When something was last done.
	grown     time.Time // web was scaled
	expired   time.Time // old Events were removed
	compacted time.Time // the history was forgotten

	// measurements is how many presses of buttons are measuring. Until they are done, web is not scaled by itself, and
	// the log of requests stays.
	measurements int

	// mu guards the fields below, and keeps the lines on out in the order of the events.
	mu sync.Mutex

	// disturbances counts the outages so far. Only the newest one may end.
	disturbances int

	// reconnect ends an outage. It is nil unless one is going on.
	reconnect func()

	// backAt is when the newest outage has ended. It is the zero time before the first one has.
	backAt time.Time
}

// newCluster creates the nodes, about 30 pods that run on them, and a Count of an app that is not scaled.
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
		scheduler: &scheduler{client: api, events: events},
		kubelets: &kubelets{
			client:  api,
			events:  events,
			records: map[string]*podRecord{},
		},
		heartbeat:   &heartbeat{client: api, since: now, renewed: now, reported: now},
		controllers: &controllers{client: api, workloads: workloads, web: workloads[0]},
		began:       now,
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
		"metadata":   object{"namespace": "shop", "name": "cart"},
		"spec":       object{"name": "cart", "count": cartReplicas},
	})
	if err != nil {
		return err
	}
	c.kubelets.inHurry = true
	for range 2 { // pods are created, bound, pulled and started
		c.step()
	}
	c.kubelets.inHurry = false
	return nil
}

// step lets each component do the work that is due.
func (c *cluster) step() {
	c.controllers.step()
	c.scheduler.step()
	c.kubelets.step()
	c.heartbeat.step()
}

// live does what is due: it changes the number of pods, deletes expired Events, and compacts the history. Then it does
// one step.
func (c *cluster) live() {
	now := time.Now()
	if now.Sub(c.grown) >= growth+now.Sub(c.began)/calming && c.measurements == 0 {
		c.grown = now
		c.controllers.wander()
	}
	if now.Sub(c.expired) >= eventTTL/60 {
		c.expired = now
		expireEvents(c.client)
	}
	if now.Sub(c.compacted) >= compaction && c.measurements == 0 {
		c.compacted = now
		c.fake.Compact()
		c.fake.ForgetRequests()
	}
	c.step()
}

// takeAway takes the server away for a while. It replaces an outage that is still going on.
func (c *cluster) takeAway(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goAwayLocked()
	mine := c.disturbances
	time.AfterFunc(d, func() { c.endOutage(mine) })
}

// forgetHistory makes the server forget its history. It ends an outage that is still going on. There is a new pod that
// no watch will ever report. Its Deployment wants one pod more, so that it stays.
func (c *cluster) forgetHistory() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goAwayLocked()
	c.controllers.web.replicas++
	c.create("pods", c.controllers.web.pod(object{"name": fmt.Sprintf("web-unseen-%d", c.disturbances)}))
	c.fake.Compact()
	c.comeBackLocked()
}

// forgetHistoryOnly makes the server forget its history, without a change of a pod. A watch that ends here can still
// not resume, because a Lease has a later version than the watch has seen.
func (c *cluster) forgetHistoryOnly() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goAwayLocked()
	c.heartbeat.renew(controlPlaneNode)
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

func (c *cluster) goAwayLocked() {
	if c.reconnect == nil {
		fmt.Fprintln(c.out, "playground: the server is gone")
		c.reconnect = c.fake.CutOff(c.host)
	}
	c.disturbances++
}

func (c *cluster) comeBackLocked() {
	fmt.Fprintln(c.out, "playground: the server is back")
	c.backAt = time.Now()
	c.reconnect()
	c.reconnect = nil
}

// newestOutage reports whether an outage is going on, and when the last one has ended. Any goroutine may call it.
func (c *cluster) newestOutage() (isAway bool, backAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reconnect != nil, c.backAt
}

// end makes sure that no outage ends any more.
func (c *cluster) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbances++
}
