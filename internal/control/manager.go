package control

import (
	"cmp"
	"context"
	"sync"
	"time"

	"podcount/internal/api/events"
	"podcount/internal/api/kube"
	"podcount/internal/api/leader"
	"podcount/internal/api/retry"
	"podcount/internal/control/brakes"
	"podcount/internal/run/options"
	"podcount/internal/run/process"
	"podcount/internal/view/logging"
	"podcount/internal/view/observe"
)

// Manager runs the caches that controllers watch, runs the controllers while this replica leads, and shuts all down.
type Manager struct {
	options     Options
	election    *leader.Election // nil if all replicas work
	writesAgain *retry.Bucket    // limits RetryWrites to once in 30 s
	started     time.Time

	controllers []*Controller
	usable      map[Cache]chan struct{} // for each cache that they watch, closed by makeUsable

	leading   chan struct{} // closed once this replica leads
	electedAt time.Time     // when leading was closed

	running    process.Group // all controllers, workers, watches and confirmations
	summarized sync.Once     // guards summarize
}

// Options configure a Manager. All of them are required.
type Options struct {
	Flags        *options.Options
	Life         *process.Lifetime
	Recorder     *events.Recorder
	Close        func()                // closes the idle connections to the API server
	Incomplete   func() []string       // names the caches that have no complete list yet
	ServerOutage *logging.ServerOutage // logs that the API server is away
	Sinks        observe.Sinks
}

// Cache is what a Manager needs of a cache.
type Cache interface {
	Kind() string
	Run(context.Context) error
	Synced() <-chan struct{}
	Confirm(ctx context.Context, since time.Time) error
}

// New makes a Manager without controllers.
func New(o Options) *Manager {
	return &Manager{
		options:     o,
		writesAgain: retry.NewBucket(1.0/30, 1),
		started:     time.Now(),
		usable:      map[Cache]chan struct{}{},
		leading:     make(chan struct{}),
	}
}

// Add adds a controller with a queue of its own. Its Setup must complete it before Run.
func (m *Manager) Add(name string, queue Queue) *Controller {
	o := m.options
	c := &Controller{
		Name:     name,
		queue:    queue,
		observer: observe.NewControllerReport(o.Sinks, name, o.ServerOutage),
		stop:     o.Life.Stop,
		begun:    make(chan struct{}),
		caches:   map[Cache]struct{}{},
	}
	if o.Flags.Once {
		c.tally = newTally()
	}
	c.unknown.Store(&errNotLooked)
	queue.Prefer(c.isUrgent)
	c.Brakes = brakes.New(brakes.Options{
		Stop:     o.Life.Stop,
		Once:     o.Flags.Once,
		DryRun:   o.Flags.DryRun,
		QPS:      o.Flags.QPS,
		Burst:    o.Flags.Burst,
		Interval: o.Flags.Interval,
		AddAfter: queue.AddAfter,
		Wrote:    c.recordWrite,
		Observer: c.observer,
	})
	m.controllers = append(m.controllers, c)
	return c
}

// Controllers returns the controllers that were added.
func (m *Manager) Controllers() []*Controller { return m.controllers }

// UseElection makes the controllers wait until this replica leads. The election must call Lose if the Lease is lost.
// Before Run, the client must have the election as its permit.
func (m *Manager) UseElection(election *leader.Election) { m.election = election }

// Lose stops everything at once, because another replica may lead. It makes err the error of the process, and cuts off
// its requests.
func (m *Manager) Lose(err error) {
	m.options.Life.StopWith(err)
	m.options.Life.CutRequests(err)
	m.tellOfLease("lost")
}

// tellOfLease tells that this replica has begun or ended to lead.
func (m *Manager) tellOfLease(what string) {
	identity := m.election.Identity()
	m.options.Sinks.Lease(what, m.election.Name(), identity)
}

// Leading returns a channel that is closed once this replica leads.
func (m *Manager) Leading() <-chan struct{} { return m.leading }

// RetryWrites must be called when the API server answers again. It makes the controllers retry what they could not
// write while it was away, but not more often than every 30 s: if the server comes and goes, keys wait for their own
// backoffs.
func (m *Manager) RetryWrites() {
	if !m.writesAgain.Allow() {
		return
	}
	for _, c := range m.controllers {
		c.queue.RetryNow()
	}
}

// The limits of the steps of a shutdown. docs/run/failures.md shows the same numbers.
const (
	// DrainTimeout is for writes in flight. The Lifetime must have it.
	DrainTimeout = 10 * time.Second

	// ReleaseTimeout is for the release of the Lease. The Election must have it.
	ReleaseTimeout = 4 * time.Second

	eventsTimeout = 5 * time.Second // for Events that wait

	// HangTimeout is how long after its limit a step is abandoned.
	HangTimeout = time.Second
)

// Run runs everything until podcount stops, and then shuts it down. It returns the error that made podcount stop, or
// nil after a stop on request. With -once, it returns nil if all is done, and an error if a stop came too early.
func (m *Manager) Run() error {
	life := m.options.Life
	if m.election != nil {
		// Replicas that start together should not all send their requests at once.
		retry.Sleep(life.Stop, retry.Between(0, time.Second))
	}
	resigned, resign := context.WithCancel(life.Requests)
	campaignEnded := process.Go(func() { m.campaign(resigned) })

	// Events are recorded until recording ends. Those that still wait are posted until posting ends.
	recorder := m.options.Recorder
	recording, stopRecording := context.WithCancel(life.Requests)
	posting := process.WithGrace(life.Requests, recording, eventsTimeout)
	recorderEnded := process.Go(func() { recorder.Run(posting, recording) })

	cutShort := m.runControllers()

	// From here on, nothing causes Events. The recorder posts those that wait.
	stopRecording()
	m.awaitEnd("the Events that wait", recorderEnded, posting)

	// Release the Lease after the last write, because another replica may write from then on. If the Lease was lost,
	// Requests has ended already, and nothing is released.
	resign()
	releasing, cancel := context.WithTimeout(life.Requests, ReleaseTimeout)
	defer cancel()
	m.awaitEnd("the release of the lease", campaignEnded, releasing)

	life.CutRequests(nil)
	m.awaitEnd("connections", process.Go(m.options.Close), life.Requests)

	m.options.Sinks.Log.Info("podcount stopped", "events_dropped", recorder.Dropped())
	return cmp.Or(life.Err(), cutShort)
}

// campaign runs the election until resigned ends. Without an election, this replica leads at once.
func (m *Manager) campaign(resigned context.Context) {
	lead := func() {
		m.electedAt = time.Now()
		close(m.leading)
	}
	if m.election == nil {
		lead()
		return
	}
	m.election.Run(m.options.Life.Stop, resigned, func() {
		m.tellOfLease("acquired")
		lead()
	})
	if process.IsClosed(m.leading) && !m.election.IsLost() {
		m.tellOfLease("released")
	}
}

// awaitEnd waits for a step of the shutdown, which should end before limit does. If it still runs HangTimeout after
// that, awaitEnd logs which goroutines hang, and gives up.
func (m *Manager) awaitEnd(step string, ended <-chan struct{}, limit context.Context) {
	select {
	case <-ended:
		return
	case <-limit.Done():
	}
	select {
	case <-ended:
	case <-time.After(HangTimeout):
		m.options.Sinks.Log.Warn("something hangs: podcount stops without waiting for it",
			"what", step, "running", m.running.Running())
	}
}

// runControllers runs the controllers and their caches until podcount stops, or until -once is done. It returns when
// everything in flight is finished, or was given up. The error is that of a run of -once that was stopped too early.
func (m *Manager) runControllers() (cutShort error) {
	life := m.options.Life
	for _, c := range m.controllers {
		for cache := range c.caches {
			m.usable[cache] = make(chan struct{})
		}
	}
	var controllers sync.WaitGroup
	for _, c := range m.controllers {
		controllers.Add(1)
		m.running.Go("controller "+c.Name, func() {
			defer controllers.Done()
			m.runController(c)
		})
	}
	controllersEnded := process.Go(controllers.Wait)
	m.startCaches()
	if m.options.Flags.Once {
		m.startOnceTimers()
	}
	select {
	case <-controllersEnded: // Before Stop ends, this happens only with -once.
		m.endOnce("")
	case <-life.Stop.Done():
		m.summarize()
		cutShort = m.errUnlessAllDone()
	}
	life.StopWith(nil)
	m.awaitEnd("a controller, or a watch", process.Go(m.running.Wait), life.Work)
	for _, c := range m.controllers {
		c.observer.Stop()
	}
	m.options.ServerOutage.Stop()
	return cutShort
}

// startCaches starts the caches that the controllers watch.
func (m *Manager) startCaches() {
	life := m.options.Life
	for cache := range m.usable {
		m.running.Go("watch of "+cache.Kind(), func() {
			m.awaitFirstTry()
			err := cache.Run(life.Stop)
			switch {
			case kube.IsHopeless(err): // With -once, it does not try for ever.
				m.failOnce(err)
			case err != nil: // A wrong selector is one of the flags.
				life.StopWith(options.UsageError{Err: err})
			}
		})
		m.running.Go("confirmation of "+cache.Kind(), func() { m.makeUsable(cache) })
	}
}

// awaitFirstTry waits for the end of the first try to acquire the Lease, but not for long. If this replica leads from
// then on, its first lists are requested after its election, and Cache.Confirm needs no other request.
func (m *Manager) awaitFirstTry() {
	const maxFirstTry = 3 * time.Second
	if m.election == nil {
		return
	}
	select {
	case <-m.election.Tried():
	case <-time.After(maxFirstTry):
	case <-m.options.Life.Stop.Done():
	}
}

// runController runs one controller until podcount stops, or until -once is done. It waits until this replica leads,
// and until the controller's caches are usable.
func (m *Manager) runController(c *Controller) {
	m.await(m.leading)
	for cache := range c.caches {
		m.await(m.usable[cache])
	}
	if c.stop.Err() != nil {
		return
	}
	c.observer.Begins()
	if c.tally != nil {
		c.tally.objects = c.summary().All
	}
	close(c.begun)
	for range m.options.Flags.Workers {
		m.running.Go("worker of "+c.Name, func() { c.work(m.options.Life.Work) })
	}
	c.look()
	if m.options.Flags.Once {
		c.awaitDone()
		return
	}
	ticker := time.NewTicker(m.options.Flags.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.look()
		case <-c.stop.Done():
			return
		}
	}
}

// makeUsable waits until a cache is usable, and then lets the controllers work from it. The cache must be complete,
// because half a list would make wrong labels. With an election, it must also be confirmed: it may be older than what
// another leader has written. Cache.Confirm asks the server.
func (m *Manager) makeUsable(cache Cache) {
	stop := m.options.Life.Stop
	m.await(cache.Synced())
	m.await(m.leading)
	if stop.Err() != nil {
		return
	}
	if m.election != nil && cache.Confirm(stop, m.electedAt) != nil {
		return // podcount stops
	}
	close(m.usable[cache])
}

// await waits until a channel is closed, or until podcount stops.
func (m *Manager) await(closed <-chan struct{}) {
	select {
	case <-closed:
	case <-m.options.Life.Stop.Done():
	}
}
