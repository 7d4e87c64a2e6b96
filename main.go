// Podcount is a Kubernetes controller made of nothing but Go's standard library. It counts pods and writes the counts
// to labels of nodes. Data runs one way through its four files:
//
//	API server ──list, watch──▶ watch.go ──changes──▶ cache.go ──keys──▶ queue.go
//	                                                                        │ key
//	API server ◀──────────────────patch, Event────────────────────── reconcile (main.go)
//
// A ticker adds, at each interval, the key of every object that is not as it should be.
//
// This file is the top of the program. It has, in this order:
//   - the list of controllers;
//   - main, which obeys signals and sets the exit code, and run, which is the program apart from that;
//   - the manager, which runs controllers over shared caches while this replica leads, and what -once adds to that;
//   - what -listen serves;
//   - Controller and Watch, which controllers are made with;
//   - the controllers: podCount, countControl and the pod-printer.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"podcount/deploy"
	"podcount/internal/background"
	"podcount/internal/backlog"
	"podcount/internal/events"
	"podcount/internal/kube"
	"podcount/internal/kubeconfig"
	"podcount/internal/leader"
	"podcount/internal/listen"
	"podcount/internal/logging"
	"podcount/internal/metrics"
	"podcount/internal/options"
	"podcount/internal/process"
	"podcount/internal/ratelimit"
	"podcount/internal/retry"
	"podcount/internal/tally"
	"podcount/internal/wire"
)

var version = "dev" // the linker sets it from git

// controllers is all that podcount can do. To add a controller, append it in an init function: see README.md.
var controllers = []Controller{
	{
		Name:  "pod-count",
		About: "writes the numbers of pods to labels of nodes",
		Setup: setUpPodCount,
	},
	{
		Name:  "count",
		About: "says in the status of each Count whether as many pods of a name are there as it wants",
		Setup: setUpCount,
	},
	{
		Name:  "pod-printer",
		About: "prints the pods that come, change and go",
		Off:   true,
		Setup: setUpPodPrinter,
	},
}

func main() {
	process.Prepare()
	err := run(process.StopOnSignal(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr, nil)
	isUsageError := errors.As(err, new(options.UsageError))
	switch {
	case isUsageError:
		process.Exit(2, err.Error())
	case err != nil:
		process.Exit(1, err.Error())
	}
}

// run is the whole program except for signals and exit codes. It returns nil once ctx has ended and everything is
// finished and sent. Wrong usage is an options.UsageError. dial replaces the network in tests; nil means the real one.
func run(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer, dial kube.Dialer,
) error {
	o, err := parseFlags(args, stdout)
	if o == nil {
		return err // or nil, if the flags only asked to print something
	}
	out := logging.NewOutputs(stdout, stderr, logging.OutputsOptions{
		Style:  logging.StyleOf(o.LogFormat, stderr, getenv),
		Level:  slog.Level(-o.Verbosity),
		Once:   o.Once,
		DryRun: o.DryRun,
	})
	err = connectAndRun(ctx, o, getenv, out, dial)
	lost := out.Close(ctx)
	return cmp.Or(err, lost)
}

// connectAndRun connects to the cluster, and runs the controllers until ctx ends or something fails.
func connectAndRun(
	ctx context.Context, o *options.Options, getenv func(string) string, out *logging.Outputs, dial kube.Dialer,
) error {
	cfg, err := kubeconfig.Load(ctx, kubeconfig.Options{
		Kubeconfig: o.Kubeconfig,
		Context:    o.Context,
		Master:     o.Master,
		Names:      kubeconfig.OptionNames{Kubeconfig: "-kubeconfig", Context: "-context", Master: "-master"},
		Getenv:     getenv,
		Log:        out.Log,
	})
	if err != nil && ctx.Err() != nil {
		return nil // stopped while it waited for a file
	}
	if err != nil {
		return options.UsageError{Err: err}
	}
	defer cfg.Close()
	log := &Log{Logger: out.Log, Registry: metrics.NewRegistry()}
	client := newClient(o, cfg, dial, log)
	log.Info("podcount starts", "version", version, "server", cfg.Server.Redacted(), "from", cfg.Source)

	life := process.NewLifetime(ctx, drainTimeout)
	defer life.End()
	m := newManager(o, client, life, log, out)
	if o.LeaderElect && !o.DryRun {
		m.joinElection(kubeconfig.OwnNamespace(ctx))
	}
	m.setUp()
	if o.Listen != "" {
		server, err := m.serve()
		if err != nil {
			return err
		}
		defer server.Close()
	}
	return m.run()
}

func parseFlags(args []string, stdout io.Writer) (*options.Options, error) {
	program := options.Program{Version: version, PodFields: podFields}
	for _, c := range controllers {
		program.Controllers = append(program.Controllers, options.Controller{
			Name:   c.Name,
			About:  c.About,
			Off:    c.Off,
			Rights: c.Rights,
		})
	}
	return options.Parse(args, stdout, program)
}

// Log is where podcount writes lines and numbers about itself. Safe for concurrent use.
type Log struct {
	*slog.Logger
	*metrics.Registry
}

// levelRequest is the log level of requests. The flag -v N shows the slog level -N: slog.LevelDebug is -v 4, and
// levelFlow is -v 2.
const levelRequest = slog.Level(-6)

// newClient makes the client that everything shares. It counts each request, and logs it at -v 6.
func newClient(o *options.Options, cfg *kubeconfig.Config, dial kube.Dialer, log *Log) *kube.Client {
	return kube.NewClient(cfg, kube.Options{
		Dial:         dial,
		UserAgent:    "podcount/" + version + " (" + runtime.GOOS + "/" + runtime.GOARCH + ")",
		FieldManager: "podcount",
		DryRun:       o.DryRun,
		Observe: func(ctx context.Context, e kube.Exchange) {
			log.Count("rest_client_requests_total", e.Code, e.Method, e.Host)
			log.Observe(e.Start, "rest_client_request_duration_seconds", e.Method, e.Host)
			took := time.Since(e.Start).Round(time.Microsecond)
			log.Log(ctx, levelRequest, e.Method+" "+e.URI, "status", e.Status, "took", took)
		},
	})
}

// newRecorder makes the recorder of Events. A dry run posts none, and logs them at -v 2 instead.
func newRecorder(o *options.Options, client *kube.Client, log *Log) *events.Recorder {
	recorder := events.Options{
		Sink:     events.NewSink(client),
		Instance: hostname(),
		Log:      log.Logger,
		Metrics:  log.Registry,
	}
	if o.DryRun {
		recorder.DryRun = func(about events.Reference, reason, message string) {
			object := Key{about.Namespace, about.Name}
			kind := strings.ToLower(about.Kind)
			log.Log(context.Background(), levelFlow,
				fmt.Sprintf("would post an Event on %s %s: %s: %s", kind, object, reason, message))
		}
	}
	return events.NewRecorder(recorder)
}

// hostname names this replica, in Events and in the Lease.
func hostname() string {
	name, _ := os.Hostname()
	return cmp.Or(name, "podcount")
}

// manager runs the controllers that are on, over caches that they share, while this replica leads.
type manager struct {
	options  *options.Options
	client   *kube.Client
	log      *Log
	out      *logging.Outputs
	recorder *events.Recorder
	life     *process.Lifetime
	started  time.Time

	// The caches. Each runs if an active controller watches it.
	pods   *Reflector[*Pod]
	nodes  *Reflector[*Node]
	counts *Reflector[*Count]

	election *leader.Election // nil without -leader-elect
	leading  chan struct{}    // closed once this replica leads

	// setUp sets the next two.
	active  []*Controller          // the controllers that are on
	watched map[reflector]struct{} // the caches that they watch

	running       background.Group
	summarizeOnce sync.Once
	cutShort      error // -once was stopped before it was done
}

// reflector is a Reflector of any kind.
type reflector interface {
	Run(context.Context) error
	Synced() <-chan struct{}
	Kind() string
	State() ReflectorState
	SetGauges()
}

// newManager makes a manager with caches that ask for as little as possible. In Setup, controllers say what else they
// need.
func newManager(
	o *options.Options, client *kube.Client, life *process.Lifetime, log *Log, out *logging.Outputs,
) *manager {
	m := &manager{
		options:  o,
		client:   client,
		log:      log,
		out:      out,
		recorder: newRecorder(o, client, log),
		life:     life,
		started:  time.Now(),
		leading:  make(chan struct{}),
		watched:  map[reflector]struct{}{},
	}
	wantsProtobuf := o.Wire == "protobuf"
	pods := newPodKind()
	pods.Namespace = o.Namespace
	pods.LabelSelector = o.PodSelector
	pods.FieldSelector = o.FieldSelector
	pods.Protobuf = wantsProtobuf
	nodes := newNodeKind()
	nodes.Protobuf = wantsProtobuf
	counts := newCountKind()
	counts.Namespace = o.Namespace
	m.pods = NewCache(m, pods)
	m.nodes = NewCache(m, nodes)
	m.counts = NewCache(m, counts)
	m.setCountersToZero()
	return m
}

// NewCache makes a cache of a kind. The manager runs it if a controller watches it with Watch.
func NewCache[T Object[T]](m *manager, kind Kind[T]) *Reflector[T] {
	return NewReflector(ReflectorOptions[T]{
		Client:  m.client,
		Kind:    kind,
		Store:   NewStore[T](),
		Log:     m.log.Logger,
		Metrics: m.log.Registry,
		Once:    m.options.Once,
	})
}

// setCountersToZero creates the counters that alerts watch. Prometheus sees no increase in a counter whose first value
// is 1.
func (m *manager) setCountersToZero() {
	for _, result := range []string{"failed", "stripped"} {
		m.log.Set(0, "podcount_label_patches_total", result)
		m.log.Set(0, "podcount_status_patches_total", result)
	}
	m.log.Set(0, "podcount_events_total", "dropped")
}

// joinElection makes the manager wait until this replica is elected, and makes the client send writes only while it
// leads. ownNamespace is the namespace that podcount runs in, or "".
func (m *manager) joinElection(ownNamespace string) {
	o := m.options
	m.election = leader.New(m.client, leader.Options{
		Namespace:     cmp.Or(o.LeaseNamespace, ownNamespace, "kube-system"),
		Name:          o.LeaseName,
		Host:          hostname(),
		LeaseDuration: o.LeaseDuration,
		RenewDeadline: o.RenewDeadline,
		RetryPeriod:   o.RetryPeriod,
		ReleaseLimit:  releaseTimeout,
		Log:           m.log.Logger,
		OnLost: func(err error) {
			m.life.Fail(err)
			m.life.CutRequests(err)
		},
	})
	m.client.SetPermit(m.election)
}

// setUp makes the controllers that are on ready to run.
func (m *manager) setUp() {
	for _, c := range controllers {
		if !m.options.IsOn(c.Name) {
			continue
		}
		m.prepare(&c)
		c.Setup(m, &c)
		maps.Copy(m.watched, c.watched)
		m.active = append(m.active, &c)
	}
}

// prepare gives a controller its queue, and all else that Setup may use.
func (m *manager) prepare(c *Controller) {
	c.isOnce = m.options.Once
	c.watched = map[reflector]struct{}{}
	c.panics = logging.NewPanics(m.log.Logger, "a controller", "controller", c.Name)
	c.outage = logging.NewOutage(m.log.Logger, c.Name, "writing again", "controller", c.Name)
	c.resting = new(sync.Map)
	c.tally = tally.New[Key]()
	c.stop = m.life.Stop
	c.queue = NewQueue(m.life.Stop, QueueOptions[Key]{
		Name:       c.Name,
		Backoff:    5 * time.Millisecond,
		MaxBackoff: 30 * time.Second,
		IsUrgent:   c.callIsUrgent,
		Log:        m.log.Logger,
		Metrics:    m.log.Registry,
	})
	c.pace = ratelimit.NewBucket(m.options.QPS, m.options.Burst)
	if m.options.DryRun {
		c.pace = ratelimit.Unlimited() // nothing is sent
	}
}

// How long the steps of a shutdown may take. README.md shows the same numbers.
const (
	drainTimeout   = 10 * time.Second // 1. for writes in flight
	eventsTimeout  = 5 * time.Second  // 2. for Events that wait
	releaseTimeout = 4 * time.Second  // 3. to release the Lease

	hangTimeout = time.Second // a step that exceeds its limit by this much is abandoned
)

// run runs everything until podcount stops, and then shuts it down. It returns why podcount stopped; nil means that it
// was asked to, or that -once is done.
func (m *manager) run() error {
	life := m.life
	if m.election != nil {
		retry.Sleep(life.Stop, rand.N(time.Second)) // replicas that start together should not all ask at once
	}
	resigned, resign := context.WithCancel(life.Requests)
	campaign := background.Go(func() { m.campaign(resigned) })
	recording, stopRecording := context.WithCancel(life.Requests)
	posting := process.WithGrace(life.Requests, recording, eventsTimeout)
	recorder := background.Go(func() { m.recorder.Run(posting, recording) })

	// The shutdown has four steps:
	// 1. The controllers finish what they have begun.
	m.runControllers()
	// 2. From now on nothing causes Events. The recorder posts those that wait.
	stopRecording()
	m.awaitEnd("the Events that wait", recorder, posting)
	// 3. The Lease is released after the last write, because another replica may write from then on. If the Lease was
	// lost, requests has ended already, and nothing is released.
	resign()
	releasing, cancel := context.WithTimeout(life.Requests, releaseTimeout)
	defer cancel()
	m.awaitEnd("the release of the lease", campaign, releasing)
	// 4. The connections are closed.
	life.CutRequests(nil)
	m.awaitEnd("connections", background.Go(m.client.Close), life.Requests)

	m.log.Info("podcount stopped", "events_dropped", m.recorder.Dropped())
	return cmp.Or(life.Err(), m.cutShort)
}

// campaign runs the election. Without one, this replica leads at once.
func (m *manager) campaign(resigned context.Context) {
	win := func() { close(m.leading) }
	if m.election == nil {
		win()
		return
	}
	m.election.Run(m.life.Stop, resigned, win)
}

// awaitEnd waits until a step of the shutdown has ended, which it should do when limit ends at the latest. If a bug
// keeps it from ending, podcount continues without it after hangTimeout.
func (m *manager) awaitEnd(what string, ended <-chan struct{}, limit context.Context) {
	select {
	case <-ended:
		return
	case <-limit.Done():
	}
	select {
	case <-ended:
	case <-time.After(hangTimeout):
		m.log.Warn("something hangs: podcount ends without it", "what", what, "running", m.running.Running())
	}
}

// maxStartPause is the longest pause between the starts of two controllers, so that they do not burst into work
// together.
const maxStartPause = 100 * time.Millisecond

// runControllers runs the controllers and their caches until podcount stops, or until -once is done. It returns when
// everything in flight is finished.
func (m *manager) runControllers() {
	var controllersRun sync.WaitGroup
	for i, c := range m.active {
		pause := time.Duration(i) * (maxStartPause/2 + rand.N(maxStartPause/2))
		controllersRun.Add(1)
		m.running.Go("controller "+c.Name, func() {
			defer controllersRun.Done()
			m.runController(c, pause)
		})
	}
	for cache := range m.watched {
		m.running.Go("watch of "+cache.Kind(), func() {
			if err := cache.Run(m.life.Stop); err != nil {
				m.life.Fail(options.UsageError{Err: err})
			}
		})
	}
	if m.options.Once {
		stopTimers := m.startOnceTimers()
		defer stopTimers()
	}

	select {
	case <-background.Go(controllersRun.Wait): // only with -once do controllers return before stop
		m.endOnce("")
	case <-m.life.Stop.Done():
		m.summarizeOnce.Do(m.summarize)
		if m.options.Once && !m.isAllDone() {
			m.cutShort = fmt.Errorf("%s: stopped before all was done", m.onceFlag())
		}
	}
	m.life.Fail(nil)
	m.awaitEnd("a controller, or a watch", background.Go(m.running.Wait), m.life.Work)
	for _, c := range m.active {
		c.outage.Stop()
	}
}

// runController runs one controller. It begins when the controller's caches are complete, because half a list would
// make wrong labels, and when this replica leads. It returns when podcount stops, or when -once is done.
func (m *manager) runController(c *Controller, pause time.Duration) {
	for cache := range c.watched {
		m.await(cache.Synced())
	}
	m.await(m.leading)
	if retry.Sleep(m.life.Stop, pause) != nil {
		return
	}
	m.log.Info("caches are complete, work begins", "controller", c.Name)
	objects := 0
	if c.isOnce {
		objects = c.callTotals().All
	}
	c.tally.Begin(objects)
	for _, begin := range c.beginWatches {
		begin()
	}
	for range m.options.Workers {
		m.running.Go("worker of "+c.Name, func() { m.runWorker(c) })
	}
	if m.options.Once {
		m.resyncOnce(c)
		c.tally.Complete()
		m.awaitDone(c)
		return
	}
	m.resyncUntilStop(c)
}

// resyncUntilStop adds, now and at each interval, the keys that the controller wants to look at again.
func (m *manager) resyncUntilStop(c *Controller) {
	ticker := time.NewTicker(m.options.Interval)
	defer ticker.Stop()
	for {
		c.callResync() // if it panics, the next one makes up for it
		select {
		case <-ticker.C:
		case <-m.life.Stop.Done():
			return
		}
	}
}

// runWorker reconciles keys until the queue ends.
func (m *manager) runWorker(c *Controller) {
	for {
		key, ok := c.queue.Get()
		if !ok {
			return
		}
		result, err := c.callReconcile(m.life.Work, key)
		m.noteReconciled(c, key, err)
		result.RetryAfter = max(result.RetryAfter, kube.RetryAfter(err))
		c.queue.Done(key, result, err)
	}
}

// noteReconciled logs a reconcile that failed, and counts one that worked for -once.
func (m *manager) noteReconciled(c *Controller, key Key, err error) {
	if err != nil {
		c.outage.Failed(key.String(), "cannot reconcile", kube.PauseBetweenComplaints(err), "key", key, "err", err)
		return
	}
	if m.life.Stop.Err() != nil {
		return // the reconcile may have given up because of the shutdown
	}
	c.outage.Forget(key.String())
	if c.isOnce {
		c.tally.Done(key)
	}
}

// await waits until a channel is closed, or until podcount stops.
func (m *manager) await(closed <-chan struct{}) {
	select {
	case <-closed:
	case <-m.life.Stop.Done():
	}
}

const (
	onceListTimeout = 2 * time.Minute // for the first lists of -once
	onceKeysTimeout = time.Minute     // for changes whose keys a controller could not name because it panicked
	onceTries       = 10              // after which -once gives a key up
)

// startOnceTimers makes -once fail if it takes too long.
func (m *manager) startOnceTimers() (stop func()) {
	timeout := m.options.OnceTimeout
	listTimeout := min(onceListTimeout, timeout)
	lists := time.AfterFunc(listTimeout, func() { m.failUnlessSynced(listTimeout) })
	all := time.AfterFunc(timeout, func() { m.endOnce(" after " + timeout.String()) })
	return func() {
		lists.Stop()
		all.Stop()
	}
}

// failUnlessSynced ends -once if a cache is still not complete.
func (m *manager) failUnlessSynced(after time.Duration) {
	kinds := m.incompleteCaches()
	if len(kinds) == 0 {
		return
	}
	m.life.Fail(fmt.Errorf("%s: after %v there is no complete list of %s",
		m.onceFlag(), after, strings.Join(kinds, ", ")))
}

// onceFlag returns the flag that made podcount run once.
func (m *manager) onceFlag() string {
	if m.options.Prune {
		return "-prune"
	}
	return "-once"
}

// resyncOnce is the only resync of -once. So it tries again for a while if the controller panics.
func (m *manager) resyncOnce(c *Controller) {
	const maxTries = 5
	var err error
	for try := 1; try <= maxTries; try++ {
		err = c.callResync()
		if err == nil {
			return
		}
		isLast := try == maxTries
		if !isLast && retry.Sleep(m.life.Stop, retry.Backoff(try, time.Second, time.Minute)) != nil {
			return
		}
	}
	m.life.Fail(fmt.Errorf("%s: %s cannot name the objects that need work: %w", m.onceFlag(), c.Name, err))
}

// awaitDone waits until the keys of a -once are done, except for those that have failed too often.
func (m *manager) awaitDone(c *Controller) {
	const pollInterval = 20 * time.Millisecond
	start := time.Now()
	for retry.Sleep(m.life.Stop, pollInterval) == nil {
		// The backlog is asked first: a change that has left it by now has its keys in the queue.
		mayGetKeys := c.backlogged() > 0 && time.Since(start) < onceKeysTimeout
		if c.queue.LeftToTry(onceTries) == 0 && !mayGetKeys {
			return
		}
	}
}

// isAllDone reports whether -once has nothing left to do.
func (m *manager) isAllDone() bool {
	for _, c := range m.active {
		if !c.tally.IsAllDone() || c.backlogged() > 0 {
			return false
		}
	}
	return true
}

// endOnce ends -once. It fails if objects are not right yet, and names them.
func (m *manager) endOnce(after string) {
	m.summarizeOnce.Do(m.summarize)
	var left []string
	for _, c := range m.active {
		if names := c.describeLeft(); names != "" {
			left = append(left, names)
		}
	}
	if len(left) > 0 {
		m.life.Fail(fmt.Errorf("%s: %s%s: the log says why", m.onceFlag(), strings.Join(left, "; "), after))
	}
}

// describeLeft names the objects that -once has not made right, or returns "" if there are none.
func (c *Controller) describeLeft() string {
	const maxNames = 10
	keys := c.queue.Left()
	left := len(keys) + c.backlogged()
	if left == 0 {
		return ""
	}
	var names []string
	for _, key := range keys[:min(maxNames, len(keys))] {
		names = append(names, key.String())
	}
	if more := left - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%s could not make %s right (%s)",
		c.Name, tally.Plural(left, "object"), strings.Join(names, ", "))
}

// summarize logs a line for each controller with the outcome of -once, -prune or -dry-run.
func (m *manager) summarize() {
	if !m.options.Once && !m.options.DryRun {
		return
	}
	for _, c := range m.active {
		if !c.tally.HasBegun() {
			continue
		}
		totals := c.callTotals()
		if totals.Noun == "" {
			continue
		}
		outcome := c.tally.Summary(totals.Noun, c.outage.Failing())
		if m.options.DryRun {
			right := totals.All - totals.Wrong
			outcome = fmt.Sprintf("%s: %d would be written, %d right, 0 failed",
				tally.Plural(totals.All, totals.Noun), totals.Wrong, right)
		}
		m.log.Info(fmt.Sprintf("%s, in %.1f s", outcome, time.Since(m.started).Seconds()))
	}
}

// incompleteCaches returns the kinds whose first list is not complete, sorted.
func (m *manager) incompleteCaches() (kinds []string) {
	for cache := range m.watched {
		if !cache.State().IsReady {
			kinds = append(kinds, cache.Kind())
		}
	}
	slices.Sort(kinds)
	return kinds
}

// managerState is what /debug/state shows.
type managerState struct {
	Caches      map[string]ReflectorState `json:"caches"`      // by kind
	Controllers map[string]QueueState     `json:"controllers"` // the queues, by name
	Events      eventsState               `json:"events"`
	Lease       *leaseState               `json:"lease,omitempty"`
	UpSeconds   float64                   `json:"upSeconds"`
	Version     string                    `json:"version"`
}

type eventsState struct {
	Dropped int64 `json:"dropped"`
	Waiting int   `json:"waiting"`
}

type leaseState struct {
	Identity string `json:"identity"` // of this replica
	IsOurs   bool   `json:"isOurs"`
	Path     string `json:"path"`
}

func (m *manager) state() managerState {
	s := managerState{
		Caches:      map[string]ReflectorState{},
		Controllers: map[string]QueueState{},
		Events:      eventsState{Dropped: m.recorder.Dropped(), Waiting: m.recorder.Waiting()},
		UpSeconds:   time.Since(m.started).Seconds(),
		Version:     version,
	}
	for cache := range m.watched {
		s.Caches[cache.Kind()] = cache.State()
	}
	for _, c := range m.active {
		s.Controllers[c.Name] = c.queue.State()
	}
	if m.election != nil {
		path, identity := m.election.Lease()
		s.Lease = &leaseState{Identity: identity, IsOurs: m.election.MayWrite() == nil, Path: path}
	}
	return s
}

// setGauges sets the metrics that are not updated as things happen. It removes those whose value nobody knows yet,
// because a 0 would claim that there is nothing.
func (m *manager) setGauges() {
	for cache := range m.watched {
		cache.SetGauges()
	}
	if background.HasEnded(m.pods.Synced()) {
		m.log.Set(float64(m.pods.Len()), "podcount_pods")
	} else {
		m.log.Remove("podcount_pods")
	}
	for _, c := range m.active {
		c.queue.State() // sets the queue's gauges
		if !m.mayWork(c) {
			m.log.Remove("workqueue_depth", c.Name)
			m.log.Remove("workqueue_unfinished_work_seconds", c.Name)
			m.log.Remove("workqueue_longest_running_processor_seconds", c.Name)
		}
	}
	if m.election != nil {
		status := 0.0
		if m.election.MayWrite() == nil {
			status = 1
		}
		m.log.Set(status, "leader_election_master_status", m.options.LeaseName)
	}
	m.log.Set(float64(m.out.Stderr.Lost()), "podcount_lines_dropped_total", "stderr")
	m.log.Set(float64(m.out.Stdout.Lost()), "podcount_lines_dropped_total", "stdout")
	m.log.Set(1, "podcount_build_info", version, runtime.Version())
	metrics.SetProcess(m.log.Registry, m.started)
}

// mayWork reports whether a controller has begun to work, or is about to.
func (m *manager) mayWork(c *Controller) bool {
	for cache := range c.watched {
		if !background.HasEnded(cache.Synced()) {
			return false
		}
	}
	return background.HasEnded(m.leading)
}

// stuckControllers names the controllers that have not moved for so long that they must hang, and says what hangs.
func (m *manager) stuckControllers() (stuck []string) {
	limit := m.options.StuckAfter()
	for _, c := range m.active {
		what := ""
		asked := background.Go(func() { what = c.queue.Stuck(limit) })
		select {
		case <-asked:
		case <-time.After(hangTimeout):
			stuck = append(stuck, c.Name+": its queue does not answer")
			continue
		}
		if what != "" {
			stuck = append(stuck, c.Name+": "+what)
		}
	}
	return stuck
}

// pages answer the kubelet's probes, Prometheus and people.
func (m *manager) pages() http.Handler {
	return listen.Pages(listen.Content{
		Stuck:      m.stuckControllers,
		Incomplete: m.incompleteCaches,
		State:      func() any { return m.state() },
		Metrics: func() string {
			m.setGauges()
			return m.log.Text()
		},
	})
}

// serve answers on -listen in the background. The caller closes the server.
func (m *manager) serve() (*listen.Server, error) {
	address := m.options.Listen
	server, err := listen.Listen(m.life.Stop, address, m.pages(), m.log.Logger)
	if err != nil {
		return nil, fmt.Errorf("-listen %s: %w", address, err)
	}
	m.log.Info("listening", "on", server.Addr())
	go func() {
		if err := server.Serve(); err != nil {
			m.life.Fail(fmt.Errorf("-listen %s: %w", address, err))
		}
	}()
	return server, nil
}

// Controller is one of podcount's jobs. Changes of what it watches, and time, give it keys; for each key, Reconcile
// makes the world as it should be. The manager sees to its queue, its workers and its retries.
type Controller struct {
	Name  string
	About string // what it does, for -controllers=help
	Off   bool   // it runs only if -controllers names it

	// Rights are what the controller may do in a cluster, for -manifest. The rights of the built-in controllers depend
	// on the flags, so package deploy knows them.
	Rights []deploy.Right

	// Setup is called before anything runs. It says what the controller needs from the caches, watches them with Watch,
	// and sets Reconcile and, if it wants them, the other functions below.
	Setup func(m *manager, c *Controller)

	// Reconcile is never called twice at the same time with the same key. If it fails, it is called again after a
	// backoff. ctx ends when podcount must.
	Reconcile func(ctx context.Context, key Key) (Result, error)

	// Resync returns the keys to begin with, and to look at again at each interval.
	Resync func() []Key

	// IsUrgent reports whether a key goes before all others that wait for a worker. The queue calls it, so it must be
	// quick, and must not call the queue.
	IsUrgent func(Key) bool

	// Totals returns the numbers for the last line of -once and -dry-run.
	Totals func() Totals

	// The manager's prepare sets the fields below.

	stop   context.Context   // ends when podcount stops
	isOnce bool              // each object is written at most once
	tally  *tally.Tally[Key] // counts keys only if isOnce, because otherwise there is no end to count up to

	queue   *Queue[Key]
	pace    *ratelimit.Bucket // of writes
	resting *sync.Map         // the uids of objects that were written a moment ago
	outage  *logging.Outage   // reconciles that fail, by key
	panics  *logging.Panics

	// Watch fills the fields below.

	watched      map[reflector]struct{}
	beginWatches []func()     // called when the controller begins
	backlogs     []func() int // each returns how many objects have changes that could not be handled
}

// Totals are what a controller has to do with the objects that it writes to.
type Totals struct {
	Noun  string // what the objects are, as in "node"; "" if there can be none
	All   int
	Wrong int // how many are not as they should be
}

// Watch makes a controller watch a cache. keysOf returns the keys that a change concerns. It is called by several
// goroutines at once: first with every object that is there when the controller begins, and then with every change. If
// it panics, it is called again later with the same change.
func Watch[T Object[T]](c *Controller, r *Reflector[T], keysOf func(Delta[T]) []Key) {
	c.watched[r] = struct{}{}
	addKeys := func(change Delta[T]) (err error) {
		defer c.recoverPanic(&err)
		c.add(keysOf(change)...)
		return nil
	}
	failed := backlog.New(backlog.Options[Key, Delta[T]]{
		Handle: addKeys,
		Stop:   c.stop,
		OnFull: func(key Key) {
			r.log.Error("a controller panics so often that changes are lost", "controller", c.Name, "object", key)
		},
	})
	c.backlogs = append(c.backlogs, failed.Len)
	handle := func(change Delta[T]) {
		if addKeys(change) != nil {
			failed.Add(change.Key(), change)
		}
	}

	var hasBegun atomic.Bool
	r.Subscribe(func(change Delta[T]) {
		isLeftForTheNextRun := c.isOnce && change.Old != change.New
		if hasBegun.Load() && !isLeftForTheNextRun {
			handle(change)
		}
	})
	c.beginWatches = append(c.beginWatches, func() {
		hasBegun.Store(true)
		for _, obj := range r.All() {
			handle(Delta[T]{Old: obj, New: obj})
		}
	})
}

// OwnKey returns the key of the object that has changed. Give it to Watch if each object has a key of its own.
func OwnKey[T Object[T]](change Delta[T]) []Key { return []Key{change.Key()} }

// backlogged returns how many objects have changes whose keys are still unknown, because keysOf panicked.
func (c *Controller) backlogged() (n int) {
	for _, length := range c.backlogs {
		n += length()
	}
	return n
}

// recoverPanic, when deferred, turns a panic into an error: a bug in one controller must not take the others down.
func (c *Controller) recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p)
		c.panics.Report(*err)
	}
}

// callReconcile, and the three methods after it, call the controller's own functions, and survive their panics.
func (c *Controller) callReconcile(ctx context.Context, key Key) (result Result, err error) {
	defer c.recoverPanic(&err)
	return c.Reconcile(ctx, key)
}

// callResync adds the keys that Resync returns.
func (c *Controller) callResync() (err error) {
	defer c.recoverPanic(&err)
	if c.Resync != nil {
		c.add(c.Resync()...)
	}
	return nil
}

func (c *Controller) callIsUrgent(key Key) (isUrgent bool) {
	if c.IsUrgent == nil {
		return false
	}
	defer c.recoverPanic(new(error))
	return c.IsUrgent(key)
}

func (c *Controller) callTotals() (totals Totals) {
	if c.Totals == nil {
		return Totals{}
	}
	defer c.recoverPanic(new(error))
	return c.Totals()
}

// add adds keys to the queue.
func (c *Controller) add(keys ...Key) {
	if c.isOnce {
		c.tally.Todo(keys...)
	}
	c.queue.Add(keys...)
}

// noteWritten takes note that a write has succeeded, and that the server has kept what was written.
func (c *Controller) noteWritten(key Key) {
	c.outage.Worked(key.String())
	if c.isOnce {
		c.tally.Written(key)
	}
}

// rest makes the controller leave an object alone for a while after a write. Then it looks at the object again. With
// -once the object rests for good, because later changes are for the next run.
func (c *Controller) rest(m *Meta, d time.Duration) {
	c.resting.Store(m.UID(), true)
	if c.isOnce {
		return
	}
	time.AfterFunc(d, func() {
		c.resting.Delete(m.UID())
		c.queue.Add(m.Key())
	})
}

func (c *Controller) isResting(m *Meta) bool {
	_, isResting := c.resting.Load(m.UID())
	return isResting
}

// strippedRest is how long a write is not tried again after the server has dropped what it writes. Such a write costs
// the server as much as one that works, and everybody who watches the object gets to see it.
const strippedRest = 10 * time.Minute

// podCount keeps the labels of nodes equal to the numbers of pods.
type podCount struct {
	*Controller
	options  *options.Options
	log      *Log
	recorder *events.Recorder

	nodes      *Reflector[*Node]
	pods       *Reflector[*Pod]
	podsByNode *CountIndex[*Pod, string]

	stripped retry.Pauses[nodeLabel] // the labels that the server has dropped
	foretold sync.Map               // by node, what a dry run logged last

	totalPassedOnAt time.Time   // only the reconcile of theTotal uses it
	hasWarned       atomic.Bool // that no node gets the total
}

// theTotal is the key that is added when the number of all pods changes. It stands for all nodes that show that number.
var theTotal = Key{Name: "(total)"} // no node can have this name

func newPodCount(m *manager, c *Controller) *podCount {
	return &podCount{
		Controller: c,
		options:    m.options,
		log:        m.log,
		recorder:   m.recorder,
		nodes:      m.nodes,
		pods:       m.pods,
		podsByNode: CountBy(m.pods.Store, func(pod *Pod) string { return pod.NodeName }),
	}
}

func setUpPodCount(m *manager, c *Controller) {
	p := newPodCount(m, c)
	m.nodes.NeedLabels(m.options.TotalLabel, m.options.NodeLabel)
	m.nodes.NeedLabels(m.options.TotalNodes.Keys()...)
	if m.options.NodeLabel != "" {
		m.pods.NeedWholeObjects() // for spec.nodeName
	}
	Watch(c, m.nodes, p.nodeKeys)
	if !m.options.Prune {
		Watch(c, m.pods, p.podKeys)
	}
	c.Reconcile = p.reconcile
	c.Resync = p.resync
	c.IsUrgent = p.isUrgent
	c.Totals = p.totals
}

// nodeKeys returns the key of a node that has come. When a node changes, its key is added a moment later: if another
// podcount has written the label, it may know of a pod that we are about to hear of, too.
func (p *podCount) nodeKeys(change Delta[*Node]) []Key {
	isNew := change.Old == nil
	hasChanged := change.Old != nil && change.New != nil && change.Old != change.New
	if isNew {
		return []Key{change.Key()}
	}
	if hasChanged {
		p.queue.AddAfter(change.Key(), min(p.options.Interval, time.Second))
	}
	return nil
}

// podKeys returns the keys of the nodes whose numbers a change of a pod concerns, and posts an Event about a new pod.
// The pods that are there at the start are left to resync.
func (p *podCount) podKeys(change Delta[*Pod]) (keys []Key) {
	isNew := change.Old == nil
	isGone := change.New == nil
	if isNew || isGone {
		keys = append(keys, theTotal)
	}
	if isNew && p.options.PodEvents {
		message := fmt.Sprintf("pod count is %d", p.pods.Len())
		p.recorder.Event(p.pods.Reference(change.New), "Normal", "PodCounted", message)
	}
	hasChanged := change.Old != change.New
	if p.options.NodeLabel == "" || !hasChanged {
		return keys
	}
	for _, pod := range []*Pod{change.Old, change.New} {
		if pod != nil && pod.NodeName != "" {
			keys = append(keys, Key{Name: pod.NodeName})
		}
	}
	return keys
}

// resync returns the nodes that are not right. Those that lack the total come first, because -qps may make the others
// wait.
func (p *podCount) resync() []Key {
	var lackTotal, others []Key
	someNodeGetsTotal := false
	for _, node := range p.nodes.All() {
		if p.options.TotalNodes.Matches(node.Label) {
			someNodeGetsTotal = true
		}
		wrong := p.wrongLabels(node)
		switch {
		case wrong[p.options.TotalLabel] != nil:
			lackTotal = append(lackTotal, node.Key())
		case len(wrong) > 0:
			others = append(others, node.Key())
		}
	}
	if !someNodeGetsTotal && !p.options.Prune {
		p.warnOfNoNode()
	}
	return append(lackTotal, others...)
}

func (p *podCount) warnOfNoNode() {
	isFirst := !p.hasWarned.Swap(true)
	if isFirst {
		p.log.Warn("no node gets the total: none matches -total-nodes "+
			"(a managed cluster hides its control plane; -total-nodes '' means every node)",
			"label", p.options.TotalLabel)
	}
}

// isUrgent reports whether a key is theTotal, or that of a node whose label with the total is wrong. Such keys go
// first, because -qps may make a thousand nodes wait a minute for the numbers of their own pods.
func (p *podCount) isUrgent(key Key) bool {
	if key == theTotal {
		return true
	}
	node := p.nodes.Get(key)
	if node == nil {
		return false
	}
	_, isWrong := p.wrongLabels(node)[p.options.TotalLabel]
	return isWrong
}

func (p *podCount) totals() Totals {
	totals := Totals{Noun: "node"}
	for _, node := range p.nodes.All() {
		totals.All++
		if len(p.wrongLabels(node)) > 0 {
			totals.Wrong++
		}
	}
	return totals
}

// reconcile makes the labels of one node right, or passes a change of the total on to the nodes that show it.
func (p *podCount) reconcile(ctx context.Context, key Key) (Result, error) {
	if key == theTotal {
		return p.passTotalOn(), nil
	}
	node, wrong := p.labelsToWrite(key)
	if len(wrong) == 0 || p.isResting(&node.Meta) {
		return Result{}, nil
	}
	if p.pace.Wait(p.stop) != nil {
		return Result{}, nil // podcount stops, and leaves this to the next process
	}
	node, wrong = p.labelsToWrite(key) // look again, because things may have changed during the wait
	if len(wrong) == 0 {
		return Result{}, nil
	}
	if p.options.DryRun {
		p.foretell(node, wrong)
		return Result{}, nil
	}
	return Result{}, p.write(ctx, node, wrong)
}

// passTotalOn adds the nodes that show the total, at most once a second: a flood of pods must not make it look at all
// nodes for each pod.
func (p *podCount) passTotalOn() Result {
	wait := min(p.options.Interval, time.Second) - time.Since(p.totalPassedOnAt)
	if wait > 0 {
		return Result{RequeueAfter: wait}
	}
	p.totalPassedOnAt = time.Now()
	p.queue.Add(p.resync()...)
	return Result{}
}

// labelPatch is the labels of a node that are wrong. The values are what they should be: a string, or nil for a label
// that should not be there.
type labelPatch map[string]any

// wrongLabels compares the labels of a node with the caches as they are now.
func (p *podCount) wrongLabels(node *Node) labelPatch {
	wrong := labelPatch{}
	check := func(label string, want any) {
		if labelOf(node, label) != want {
			wrong[label] = want
		}
	}
	var total, own any // nil: the node should not have the label
	if !p.options.Prune && p.options.TotalNodes.Matches(node.Label) {
		total = strconv.Itoa(p.pods.Len())
	}
	if !p.options.Prune {
		own = strconv.Itoa(p.podsByNode.Count(node.Key().Name))
	}
	check(p.options.TotalLabel, total)
	if p.options.NodeLabel != "" {
		check(p.options.NodeLabel, own)
	}
	return wrong
}

// labelOf returns the value of a label as a string, or nil if the node does not have it.
func labelOf(node *Node, label string) any {
	value, ok := node.Label(label)
	if !ok {
		return nil
	}
	return value
}

// labelsToWrite returns a node, or nil if it is gone, and its wrong labels except for those that rest because the
// server has dropped them.
func (p *podCount) labelsToWrite(key Key) (*Node, labelPatch) {
	node := p.nodes.Get(key)
	if node == nil {
		p.stripped.EndAll(func(rests nodeLabel) bool { return rests.node == key })
		p.foretold.Delete(key)
		return nil, nil
	}
	wrong := p.wrongLabels(node)
	for _, label := range []string{p.options.TotalLabel, p.options.NodeLabel} {
		_, isWrong := wrong[label]
		isRight := !isWrong && labelOf(node, label) != nil
		if isRight {
			p.noteKept(nodeLabel{key, node.UID(), label})
		}
	}
	maps.DeleteFunc(wrong, func(label string, _ any) bool {
		return p.stripped.Left(nodeLabel{key, node.UID(), label}) > 0
	})
	if p.options.DryRun && len(wrong) == 0 {
		p.foretold.Delete(key)
	}
	return node, wrong
}

// write sends one patch with the right labels of a node. Then the node rests.
func (p *podCount) write(ctx context.Context, node *Node, wrong labelPatch) error {
	patch := map[string]any{"metadata": map[string]any{"labels": wrong}}
	isKept := func(now *Node) bool { return hasLabels(now, wrong) }
	now, err := p.nodes.Patch(ctx, node, "", patch, isKept)
	isStripped := errors.Is(err, errStripped)
	if err != nil && (!isStripped || p.isOnce) { // -once has no time to try rarely
		return err
	}
	p.rest(&node.Meta, p.options.Interval)
	if now == nil {
		return nil // the node is gone, and the watch will say so
	}
	for _, change := range labelChanges(node, wrong) {
		which := nodeLabel{node.Key(), node.UID(), change.Field}
		if labelOf(now, change.Field) != wrong[change.Field] {
			p.noteStripped(which, err)
			continue
		}
		p.noteKept(which)
		p.log.Info("label written", change.Attr())
		p.postChange(node, change)
	}
	if !isStripped {
		p.noteWritten(node.Key())
	}
	return nil
}

// hasLabels reports whether a node has the labels as a patch wrote them.
func hasLabels(node *Node, written labelPatch) bool {
	for label, want := range written {
		if labelOf(node, label) != want {
			return false
		}
	}
	return true
}

// nodeLabel is a label of a node.
type nodeLabel struct {
	node  Key
	uid   string // of the node, because another node may get its name later
	label string
}

// noteStripped makes a label rest that the server has dropped. It logs that once, until no label is dropped any more.
func (p *podCount) noteStripped(which nodeLabel, err error) {
	isFirst := p.stripped.Begin(which, strippedRest)
	if isFirst {
		p.log.Warn("labels do not stay: they are tried rarely", "first", which.node, "label", which.label,
			"pause", strippedRest, "err", err)
	}
	p.queue.AddAfter(which.node, strippedRest)
}

// noteKept takes note that a label is there and right. It logs that if it was the last one that the server had dropped.
func (p *podCount) noteKept(which nodeLabel) {
	wasLast := p.stripped.End(which)
	if wasLast {
		p.log.Info("labels stay again", "last", which.node, "label", which.label)
	}
}

// foretell logs what a dry run would write to a node, unless it has just logged the same.
func (p *podCount) foretell(node *Node, wrong labelPatch) {
	p.rest(&node.Meta, p.options.Interval)
	changes := labelChanges(node, wrong)
	text := fmt.Sprint(changes)
	previous, _ := p.foretold.Swap(node.Key(), text)
	if previous == text {
		return
	}
	for _, change := range changes {
		p.log.Info(fmt.Sprintf("would write node %s: %s", node.Key(), change))
		p.postChange(node, change)
	}
}

// labelChanges returns what a write of these labels changes, sorted by label.
func labelChanges(node *Node, labels labelPatch) (changes []logging.Change) {
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		verb := "wrote"
		if labels[label] == nil {
			verb = "removed"
		}
		changes = append(changes, logging.Change{
			Verb:   verb,
			Kind:   "node",
			Object: node.Key().String(),
			Name:   "label",
			Field:  label,
			From:   labelText(labelOf(node, label)),
			To:     labelText(labels[label]),
		})
	}
	return changes
}

// labelText returns the value of a label as log lines and Events show it.
func labelText(value any) string {
	if value == nil {
		return "none"
	}
	return fmt.Sprint(value)
}

// postChange posts an Event about a label of a node that has changed.
func (p *podCount) postChange(node *Node, change logging.Change) {
	if p.options.Prune {
		return
	}
	what := "pod count"
	if change.Field == p.options.NodeLabel {
		what = "pod count of this node"
	}
	message := fmt.Sprintf("%s changed from %s to %s", what, change.From, change.To)
	p.recorder.Event(p.nodes.Reference(node), "Normal", "PodCountChanged", message)
}

// countControl keeps the status of each Count equal to how many pods of its name there are.
type countControl struct {
	*Controller
	options  *options.Options
	log      *Log
	recorder *events.Recorder

	counts       *Reflector[*Count]
	countsByName *ObjectIndex[*Count, Key] // by namespace and name of the pods that they are about
	pods         *Reflector[*Pod]
	podsByName   []*CountIndex[*Pod, Key] // one for each of nameLabels

	reported sync.Map // by key, the countReport that Events have last made of a Count
	foretold sync.Map // by key, what a dry run logged last

	stripped     retry.Pauses[Key]             // the Counts whose status the server has dropped
	lastStripped atomic.Pointer[Key]          // the last of them; nil since a status was kept
	keeper       atomic.Pointer[Installation] // the installation that has kept a status, as far as we know
	pause        atomic.Pointer[statusPause]
}

// statusPause is how long no status is written, because an installation has not kept any so far: its schema drops them.
type statusPause struct {
	of    *Installation
	until time.Time
}

// nameLabels are the labels that give a pod the name which a Count looks for.
var nameLabels = []string{"app", "app.kubernetes.io/name", "run"}

func setUpCount(m *manager, c *Controller) {
	s := &countControl{
		Controller: c,
		options:    m.options,
		log:        m.log,
		recorder:   m.recorder,
		counts:     m.counts,
		pods:       m.pods,
	}
	m.pods.NeedLabels(nameLabels...)
	for i := range nameLabels {
		nameOf := func(pod *Pod) Key { return podName(pod, i) }
		s.podsByName = append(s.podsByName, CountBy(m.pods.Store, nameOf))
	}
	s.countsByName = IndexBy(m.counts.Store, nameOfCount)
	Watch(c, m.pods, s.podKeys)
	Watch(c, m.counts, s.countKeys)
	c.Reconcile = s.reconcile
	c.Totals = s.totals
}

// podName returns the name that a pod has by one of nameLabels, in its namespace. It returns Key{} if the pod is nil,
// or does not have the label, or has the same name by an earlier label: a pod must not count twice.
func podName(pod *Pod, i int) Key {
	if pod == nil {
		return Key{}
	}
	name, _ := pod.Label(nameLabels[i])
	if name == "" {
		return Key{}
	}
	for _, earlier := range nameLabels[:i] {
		if other, _ := pod.Label(earlier); other == name {
			return Key{}
		}
	}
	return Key{Namespace: pod.Key().Namespace, Name: name}
}

// nameOfCount returns the name of the pods that a Count is about.
func nameOfCount(count *Count) Key { return Key{Namespace: count.Key().Namespace, Name: count.Name} }

// countPods returns the number of pods that a Count is about.
func (s *countControl) countPods(count *Count) (n int) {
	for _, index := range s.podsByName {
		n += index.Count(nameOfCount(count))
	}
	return n
}

// podKeys returns the Counts that a change of a pod concerns: those of the names that it has lost or got.
func (s *countControl) podKeys(change Delta[*Pod]) (keys []Key) {
	for i := range nameLabels {
		was := podName(change.Old, i)
		is := podName(change.New, i)
		if was == is {
			continue
		}
		for _, name := range []Key{was, is} {
			for _, count := range s.countsByName.Objects(name) {
				keys = append(keys, count.Key())
			}
		}
	}
	return keys
}

// countKeys returns the key of a Count that has changed. If only its status has changed, the key is added an interval
// later: nothing else would keep two podcounts from writing against each other as fast as they can.
func (s *countControl) countKeys(change Delta[*Count]) []Key {
	isChange := change.Old != nil && change.New != nil
	if isChange && change.New.Status != change.Old.Status && change.New.countSpec == change.Old.countSpec {
		s.queue.AddAfter(change.Key(), s.options.Interval)
		return nil
	}
	return []Key{change.Key()}
}

func (s *countControl) totals() Totals {
	isInstalled := s.counts.Installed() != nil
	if !isInstalled {
		return Totals{}
	}
	totals := Totals{Noun: "count"}
	for _, count := range s.counts.All() {
		totals.All++
		if s.plan(count.Key()).isWrong {
			totals.Wrong++
		}
	}
	return totals
}

// countPlan says what a Count should be like, by the caches as they are now.
type countPlan struct {
	count     *Count // nil if the Count is gone
	installed *Installation
	status    countStatus // as it should be
	isWrong   bool        // the Count has another status
}

// plan compares the status of a Count with the caches.
func (s *countControl) plan(key Key) countPlan {
	count := s.counts.Get(key)
	installed := s.counts.Installed()
	if count == nil || installed == nil {
		return countPlan{}
	}
	status := s.rightStatus(count)
	return countPlan{
		count:     count,
		installed: installed,
		status:    comparableStatus(installed, status),
		isWrong:   comparableStatus(installed, status) != comparableStatus(installed, count.Status),
	}
}

// rightStatus returns the status that a Count should have. A Count whose spec is invalid keeps its status, but is not
// healthy.
func (s *countControl) rightStatus(count *Count) countStatus {
	if count.Invalid != "" {
		status := count.Status
		if status.Healthy == "true" {
			status.Healthy = "false"
		}
		return status
	}
	pods := s.countPods(count)
	return countStatus{
		Healthy:            wire.Raw(strconv.FormatBool(pods == count.Want)),
		Count:              wire.Raw(strconv.Itoa(pods)),
		ObservedGeneration: wire.Raw(strconv.FormatInt(count.Generation, 10)),
	}
}

// comparableStatus returns the part of a status that podcount writes. Without a status subresource, podcount's own
// writes raise the generation. Then observedGeneration would never be right, and is left out.
func comparableStatus(installed *Installation, status countStatus) countStatus {
	if !installed.HasStatus {
		status.ObservedGeneration = ""
	}
	return status
}

// reconcile makes the status of one Count right, and reports in Events what has changed.
func (s *countControl) reconcile(ctx context.Context, key Key) (Result, error) {
	plan := s.plan(key)
	if plan.isWrong {
		if s.isResting(&plan.count.Meta) || s.pace.Wait(s.stop) != nil {
			return Result{}, nil
		}
		plan = s.plan(key) // look again, because things may have changed during the wait
	}
	if plan.count == nil {
		s.forget(key)
		return Result{}, nil
	}
	previous := s.previousReport(plan)
	if !plan.isWrong {
		s.foretold.Delete(key)
		s.noteRight(plan.count, plan.installed)
	}
	if plan.isWrong && s.mayWrite(plan) {
		isGone, err := s.write(ctx, plan)
		if err != nil || isGone {
			return Result{}, err
		}
	}
	s.report(plan, previous)
	return Result{}, nil
}

// forget drops everything that is known of a Count that is gone.
func (s *countControl) forget(key Key) {
	s.foretold.Delete(key)
	s.stripped.End(key)
	_, isKnown := s.reported.LoadAndDelete(key)
	if isKnown {
		s.log.Info("a Count is gone", "count", key)
	}
}

// mayWrite reports whether a wrong status is written now. A dry run logs the write instead, and a status that the
// server has dropped rests.
func (s *countControl) mayWrite(plan countPlan) bool {
	if s.options.DryRun {
		s.foretell(plan)
		return false
	}
	key := plan.count.Key()
	wait := s.restLeft(key, plan.installed)
	if wait > 0 {
		s.queue.AddAfter(key, wait)
		return false
	}
	return true
}

// write sends one patch with the right status of a Count. Then the Count rests. isGone reports that the server does not
// have the Count.
func (s *countControl) write(ctx context.Context, plan countPlan) (isGone bool, err error) {
	count := plan.count
	subresource := "" // then the status is a part of the object like any other
	if plan.installed.HasStatus {
		subresource = "status"
	}
	patch := map[string]any{"status": plan.status}
	isKept := func(now *Count) bool { return comparableStatus(plan.installed, now.Status) == plan.status }
	now, err := s.counts.Patch(ctx, count, subresource, patch, isKept)
	isStripped := errors.Is(err, errStripped)
	if err != nil && (!isStripped || s.isOnce) { // -once has no time to try rarely
		return false, err
	}
	if now == nil {
		s.rest(&count.Meta, s.options.Interval) // afterwards it is looked at again, in case the server was wrong
		return true, nil
	}
	s.rest(&count.Meta, min(s.options.Interval, time.Second))
	if isStripped {
		s.noteStripped(count.Key(), plan.installed, err)
		return false, nil
	}
	s.noteRight(now, plan.installed)
	s.noteWritten(count.Key())
	s.log.Info("status written", statusChange(count, plan.status).Attr())
	return false, nil
}

// foretell logs what a dry run would write to a Count, unless it has just logged the same.
func (s *countControl) foretell(plan countPlan) {
	key := plan.count.Key()
	text := statusChange(plan.count, plan.status).String()
	previous, _ := s.foretold.Swap(key, text)
	if previous != text {
		s.log.Info(fmt.Sprintf("would write count %s: %s", key, text))
	}
}

// statusChange describes a write of a Count's status.
func statusChange(count *Count, status countStatus) logging.Change {
	return logging.Change{
		Verb:   "wrote",
		Kind:   "count",
		Object: count.Key().String(),
		Name:   "field",
		Field:  "status",
		From:   statusText(count.Status),
		To:     statusText(status),
	}
}

// statusText returns a status as log lines show it, as in "2 healthy".
func statusText(status countStatus) string {
	switch {
	case status.Count == "":
		return "none"
	case status.Healthy == "true":
		return string(status.Count) + " healthy"
	}
	return string(status.Count) + " unhealthy"
}

// noteStripped makes the status of a Count rest because the server has dropped it. It logs that once, until a status is
// kept. If the installation has never kept a status, then all Counts rest, because their schema is to blame.
func (s *countControl) noteStripped(key Key, installed *Installation, err error) {
	isFirst := s.stripped.Begin(key, strippedRest)
	if isFirst {
		s.log.Warn("statuses do not stay: they are tried rarely; is the schema that of deploy/count-crd.yaml?",
			"first", key, "pause", strippedRest, "err", err)
	}
	previous := s.lastStripped.Swap(&key)
	twoInARow := previous != nil && *previous != key
	if twoInARow {
		s.keeper.Store(nil) // perhaps the schema has changed
	}
	if s.keeper.Load() != installed {
		s.pause.Store(&statusPause{installed, time.Now().Add(strippedRest)})
	}
	s.queue.AddAfter(key, strippedRest)
}

// noteRight takes note that a Count has the right status. It logs that if it was the last one whose status the server
// had dropped.
func (s *countControl) noteRight(count *Count, installed *Installation) {
	hasStatus := count.Status.Count != ""
	if hasStatus {
		s.keeper.Store(installed)
		s.lastStripped.Store(nil)
	}
	key := count.Key()
	wasLast := s.stripped.End(key)
	if wasLast {
		s.log.Info("statuses stay again", "last", key)
	}
}

// restLeft returns for how long the status of a Count must not be written yet, because the server has dropped it.
func (s *countControl) restLeft(key Key, installed *Installation) time.Duration {
	left := s.stripped.Left(key)
	pause := s.pause.Load()
	isPaused := pause != nil && pause.of == installed && s.keeper.Load() != installed
	if isPaused {
		left = max(left, time.Until(pause.until))
	}
	return left
}

// countReport is what Events tell of a Count. The same report is not made twice.
type countReport struct {
	uid     string // of the Count, because another Count may get its name later
	spec    specID
	reason  string
	message string
}

// specID identifies the spec that a status belongs to. Usually observedGeneration does. Without it, the spec identifies
// itself; and isConsistent tells apart a status that belongs to another spec than the one that is there now.
type specID struct {
	observedGeneration wire.Raw
	spec               countSpec
	isConsistent       bool // healthy is what count and the spec make it
}

func specIDOf(count *Count, status countStatus) specID {
	if status.ObservedGeneration != "" {
		return specID{observedGeneration: status.ObservedGeneration}
	}
	hasAsMany := string(status.Count) == strconv.Itoa(count.Want)
	return specID{
		spec:         count.countSpec,
		isConsistent: string(status.Healthy) == strconv.FormatBool(hasAsMany),
	}
}

// reportOf returns what Events tell of a Count with this status.
func reportOf(count *Count, status countStatus) countReport {
	reason := "CountMismatch"
	if status.Healthy == "true" {
		reason = "CountMatched"
	}
	return countReport{
		uid:     count.UID(),
		spec:    specIDOf(count, status),
		reason:  reason,
		message: fmt.Sprintf("want %d pods of %s, have %s", count.Want, count.Name, status.Count),
	}
}

// previousReport returns what Events have told of a Count so far. About a Count that is new to this process it takes
// the present status as told, because an earlier process wrote that.
func (s *countControl) previousReport(plan countPlan) countReport {
	key := plan.count.Key()
	value, _ := s.reported.Load(key)
	previous, isKnown := value.(countReport)
	if isKnown && previous.uid == plan.count.UID() {
		return previous
	}
	previous = reportOf(plan.count, comparableStatus(plan.installed, plan.count.Status))
	s.reported.Store(key, previous)
	return previous
}

// report posts Events about a Count, if there is something new to tell.
func (s *countControl) report(plan countPlan, previous countReport) {
	count := plan.count
	news := reportOf(count, plan.status)
	if count.Invalid != "" {
		news = countReport{uid: count.UID(), reason: "InvalidCount", message: count.Invalid}
	}
	if news == previous {
		return
	}
	about := s.counts.Reference(count)
	isNewSpec := count.Invalid == "" && news.spec != previous.spec
	if isNewSpec {
		s.recorder.Event(about, "Normal", "Synced", "Count synced successfully")
	}
	matches := news.reason == "CountMatched"
	matchedBefore := previous.reason == "CountMatched"
	switch {
	case !matches:
		s.recorder.Event(about, "Warning", news.reason, news.message)
	case !matchedBefore:
		s.recorder.Event(about, "Normal", news.reason, news.message)
	}
	s.reported.Store(count.Key(), news)
}

func setUpPodPrinter(m *manager, c *Controller) {
	m.pods.NeedEveryVersion() // so that each change of a pod is printed, whatever it is in
	Watch(c, m.pods, OwnKey)
	c.Reconcile = func(_ context.Context, key Key) (Result, error) {
		if m.pods.Get(key) == nil {
			fmt.Fprintf(m.out.Stdout, "Pod %s does not exist anymore\n", key)
		} else {
			fmt.Fprintf(m.out.Stdout, "Sync/Add/Update for Pod %s\n", key)
		}
		return Result{}, nil
	}
}
