// Podcount is a Kubernetes controller that needs nothing but Go's standard library. It counts pods, and writes the
// counts to labels of nodes and to the status of Counts, a custom resource. Data flows in a circle through four files:
//
//	API server ──list, watch──▶ watch.go ──objects──▶ cache.go
//	                                                     │ changes
//	                      queue.go ◀──keys── main.go: Watch asks a controller which keys a change concerns
//	                         │ key
//	                      main.go: Reconcile ──patch, through watch.go──▶ API server
//
// A key says which object to look at, not what has changed. Reconcile compares that object with the caches, and patches
// it if it is wrong; the server's answer goes into the cache. A key whose Reconcile fails is tried again after a
// backoff. At each interval, a controller may add keys to look at again. No controller works before its caches have
// complete lists, because half a list would give wrong numbers. With -leader-elect, only the replica that leads works.
// Events, about what was written and about new pods, are posted by internal/api/events, and no reconcile waits for
// them.
//
// A cache is a Reflector with its Store. docs/tour.md follows one pod through these files, and docs/internals.md
// describes the packages in internal/ that they use: internal/api/kube sends the requests, and internal/api/kubeconfig
// finds the cluster and the credential.
//
// The calls are main → run → connectAndRun → manager.run → runControllers, which starts two chains:
//
//	startCaches → Reflector.Run → publish → the function given to Watch → Queue.Add
//	            → makeUsable → Reflector.Confirm, after an election
//	startControllers → runController → begin → the function given to Watch → Queue.Add, for what exists already
//	                                 → runWorker → Reconcile
//	                                 → Resync → Queue.Add, at each interval
//
// Before that, connectAndRun calls manager.setUp → Setup → Watch.
//
// This file contains, in this order:
//   - the list of controllers, and main and run, which start podcount;
//   - Controller and Watch, which every controller is made with;
//   - the controllers: the pod-printer, which is the smallest one, podCountController and countController;
//   - the manager, which runs the controllers while this replica leads, and shuts them down;
//   - what the manager does for -once, for -listen and for -page.
package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"podcount/deploy"
	"podcount/internal/api/events"
	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/leader"
	"podcount/internal/api/retry"
	"podcount/internal/api/wire"
	"podcount/internal/run/options"
	"podcount/internal/run/process"
	"podcount/internal/view/listen"
	"podcount/internal/view/logging"
	"podcount/internal/view/metrics"
	"podcount/internal/view/page"
	"podcount/internal/view/trace"
)

// controllers are all jobs that podcount can do. To add one, append it in an init function: see docs/internals.md.
var controllers = []Controller{
	{
		Name:  "pod-count",
		About: "writes the numbers of pods to labels of nodes",
		Setup: setUpPodCount,
	},
	{
		Name:  "count",
		About: "reports in the status of each Count whether there are as many pods as it wants",
		Setup: setUpCount,
	},
	{
		Name:  "pod-printer",
		About: "prints the pods that are added, changed or removed",
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

// run is the whole program except for signals and exit codes. It returns nil if podcount was stopped by the end of ctx,
// or has nothing left to do. But with -once, it returns an error if it was stopped before all was done. It returns an
// options.UsageError if it was called wrongly. dial replaces the network in tests, and is nil otherwise.
func run(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer, dial kube.Dialer,
) error {
	o, err := parseFlags(args, stdout)
	if errors.Is(err, options.ErrPrinted) {
		return nil // The flags only asked for output, such as the help.
	}
	if err != nil {
		return err
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

// connectAndRun finds the cluster, and runs the controllers until ctx ends or something fails.
func connectAndRun(
	ctx context.Context, o *options.Options, getenv func(string) string, out *logging.Outputs, dial kube.Dialer,
) error {
	tel := newTelemetry(out, trace.FromContext(ctx))
	cfg, err := kubeconfig.Load(ctx, kubeconfig.Options{
		Kubeconfig: o.Kubeconfig,
		Context:    o.Context,
		Master:     o.Master,
		Names:      kubeconfig.OptionNames{Kubeconfig: "-kubeconfig", Context: "-context", Master: "-master"},
		Getenv:     getenv,
		Log:        tel.log,
	})
	wasStopped := err != nil && ctx.Err() != nil // while Load waited for a file
	if wasStopped && o.Once {
		return stoppedEarly(o)
	}
	if wasStopped {
		return nil
	}
	if err != nil {
		return options.UsageError{Err: err}
	}
	defer cfg.Close()
	client := newClient(o, cfg, dial, tel)
	logStart(tel.log, cfg)

	life := process.NewLifetime(ctx, drainTimeout)
	defer life.End()
	m := newManager(o, client, life, tel)
	m.server = cfg.Server.Redacted()
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
	if o.Page != "" {
		server, err := m.servePage()
		if err != nil {
			return err
		}
		defer server.Close()
	}
	return m.run()
}

// logStart logs the first line, which has the FIPS 140-3 mode unless that is off.
func logStart(log *slog.Logger, cfg *kubeconfig.Config) {
	facts := []any{"version", process.Version, "server", cfg.Server.Redacted(), "from", cfg.Source}
	if mode := process.FIPSMode(); mode != "off" {
		facts = append(facts, "fips", mode)
	}
	log.Info("podcount starts", facts...)
}

// telemetry is where all parts of podcount report what they do.
type telemetry struct {
	out     *logging.Outputs
	log     *slog.Logger // writes to out, and to the trace
	metrics *metrics.Registry
	trace   *trace.Trace
}

func newTelemetry(out *logging.Outputs, t *trace.Trace) telemetry {
	return telemetry{
		out:     out,
		log:     slog.New(trace.NewHandler(out.Log.Handler(), t)),
		metrics: metrics.NewRegistry(),
		trace:   t,
	}
}

// stoppedEarly is the error of -once if podcount is stopped before all was done.
func stoppedEarly(o *options.Options) error {
	return fmt.Errorf("%s: stopped before all was done", o.OnceFlag())
}

// parseFlags reads the flags: see options.Parse.
func parseFlags(args []string, stdout io.Writer) (*options.Options, error) {
	program := options.Program{PodFields: podFields}
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

// levelRequest is the level at which requests are logged. The flag -v N logs the slog level -N and above, so this is
// -v 6. slog.LevelDebug is -v 4, and levelFlow is -v 2.
const levelRequest = slog.Level(-6)

// newClient makes the client that all parts of podcount share. It counts and logs each request.
func newClient(o *options.Options, cfg *kubeconfig.Config, dial kube.Dialer, tel telemetry) *kube.Client {
	return kube.NewClient(cfg, kube.Options{
		Dial:         dial,
		UserAgent:    "podcount/" + process.Version + " (" + runtime.GOOS + "/" + runtime.GOARCH + ")",
		FieldManager: "podcount",
		DryRun:       o.DryRun,
		Observe: func(ctx context.Context, e kube.Exchange) {
			tel.metrics.Count("rest_client_requests_total", e.Code, e.Method, e.Host)
			tel.metrics.Observe(e.Start, "rest_client_request_duration_seconds", e.Method, e.Host)
			took := time.Since(e.Start).Round(time.Microsecond)
			tel.log.Log(ctx, levelRequest, e.Method+" "+e.URI, "status", e.Status, "took", took)
			tel.trace.EmitFor(2, trace.Step{ // in the name of kube's Client.exchange, two calls up
				Point: trace.Request,
				Type:  e.Method,
				Text:  e.URI,
				Code:  e.Status,
				Error: e.Error,
				Took:  took,
			})
		},
	})
}

// newRecorder makes the recorder of Events. A dry run posts no Events. It logs them at -v 2 instead.
func newRecorder(
	o *options.Options, client *kube.Client, outage *logging.ServerOutage, tel telemetry,
) *events.Recorder {
	eventOptions := events.Options{
		Sink:     events.NewSink(client),
		Instance: hostname(),

		ServerOutage: outage,
		Log:          tel.log,
		Metrics:      tel.metrics,
		Trace:        tel.trace,
	}
	if o.DryRun {
		eventOptions.DryRun = func(about events.Reference, reason, message string) {
			kind := strings.ToLower(about.Kind)
			object := Key{about.Namespace, about.Name}
			tel.log.Log(context.Background(), levelFlow,
				fmt.Sprintf("would post an Event on %s %s: %s: %s", kind, object, reason, message))
		}
	}
	return events.NewRecorder(eventOptions)
}

// hostname returns the name of this replica in Events and in the Lease.
func hostname() string {
	name, _ := os.Hostname()
	return cmp.Or(name, "podcount")
}

// ---------------------------------------------------------------------------------------------------------------------
// What all controllers have in common

// Controller is one of podcount's jobs. Its keys stand for objects that may be wrong: changes of the objects that it
// watches add keys to its queue, and so does Resync. Workers take keys from the queue, and call Reconcile with them.
// The manager runs the queue, the workers and the retries.
type Controller struct {
	Name  string
	About string // what the controller does, for -controllers=help
	Off   bool   // the controller runs only if -controllers names it

	// Rights are the permissions that the controller needs in a cluster, for -manifest. Built-in controllers have none
	// here: their rights depend on flags, and package deploy knows them.
	Rights []deploy.Right

	// Setup is called before anything runs. It tells the caches which fields the controller needs, calls Watch for each
	// of them, and sets Reconcile and, if needed, the other functions below.
	Setup func(m *manager, c *Controller)

	// Reconcile makes one object what it should be. Several workers may call it at once, but never with the same key.
	// If it fails, it is called again after a backoff. ctx ends when the shutdown can wait no longer.
	Reconcile func(ctx context.Context, key Key) (Result, error)

	// Resync returns the keys to reconcile at the start, and again at each interval.
	Resync func() []Key

	// IsUrgent reports whether a key goes before those that are not urgent: see maxUrgentInARow. The queue calls it, so
	// it must be quick, and must not call the queue.
	IsUrgent func(Key) bool

	// Totals returns the numbers for the last line of -once and -dry-run.
	Totals func() Totals

	// Labels returns what the controller keeps right on nodes, for the top of the page.
	Labels func() []page.Label

	// prepare sets the fields below.

	life   *process.Lifetime
	trace  *trace.Trace
	isOnce bool                // -once is set: each object is written at most once
	begun  chan struct{}       // closed when work begins
	tally  *process.Tally[Key] // counts keys if isOnce

	queue       *Queue[Key]
	pace        *retry.Bucket      // limits writes
	coolingDown *sync.Map          // when objects will have cooled down, by their uids: see coolDown
	outage      *logging.Outage    // the reconciles that fail, by key
	looking     *process.Stopwatch // runs while Resync does, and when the controller begins to watch
	panics      *logging.Panics

	// Watch adds to the fields below.

	watched      map[anyReflector]struct{}
	beginWatches []func()     // called when the controller begins
	backlogs     []func() int // each returns the number of objects whose changes could not be turned into keys
}

// Totals are the numbers of objects that a controller writes to.
type Totals struct {
	Noun  string // the name of one object, as in "node"; "" if the resource is not installed
	All   int
	Wrong int   // how many objects are not what they should be
	Unmet error // what the flags ask for, and no object allows; -once fails with it
}

// Watch makes a controller watch a cache. keysOf returns the keys that a change concerns. Several goroutines call it at
// once, with every object that is there when the controller begins and, from that moment on, with every change. With
// -once, changes of objects are left to the next run. If keysOf panics, it is called again later with the same change.
func Watch[T Object[T]](c *Controller, r *Reflector[T], keysOf func(Delta[T]) []Key) {
	s := &subscription[T]{controller: c, cache: r, keysOf: keysOf}
	s.failed = retry.NewBacklog(c.life.Stop, retry.BacklogOptions[Key, Delta[T]]{
		Handle: s.addKeys,
		OnFull: s.logLoss,
	})
	c.watched[r] = struct{}{}
	c.beginWatches = append(c.beginWatches, s.begin)
	c.backlogs = append(c.backlogs, s.failed.Len)
	r.Subscribe(s.handleChange)
}

// OwnKey returns the key of the object that has changed. Pass it to Watch if each object has a key of its own.
func OwnKey[T Object[T]](change Delta[T]) []Key { return []Key{change.Key()} }

// subscription passes the changes of a cache to a controller.
type subscription[T Object[T]] struct {
	controller *Controller
	cache      *Reflector[T]
	keysOf     func(Delta[T]) []Key
	hasBegun   atomic.Bool
	failed     *retry.Backlog[Key, Delta[T]] // changes for which keysOf has panicked
}

// begin adds the keys of every object that is there. From now on, handleChange handles changes.
func (s *subscription[T]) begin() {
	s.hasBegun.Store(true)
	for _, obj := range s.cache.All() {
		s.addKeysOrRetry(Delta[T]{Old: obj, New: obj})
	}
}

// handleChange adds the keys of a change of the cache. -once leaves changes of objects to the next run.
func (s *subscription[T]) handleChange(change Delta[T]) {
	isForNextRun := s.controller.isOnce && !change.isUnchanged()
	if s.hasBegun.Load() && !isForNextRun {
		s.addKeysOrRetry(change)
	}
}

// addKeysOrRetry adds the keys that a change concerns. If keysOf panics, the backlog tries again.
func (s *subscription[T]) addKeysOrRetry(change Delta[T]) {
	err := s.addKeys(change)
	if err != nil {
		s.failed.Add(change.Key(), change)
	}
}

// addKeys adds the keys that a change concerns to the queue. It returns an error if keysOf panics.
func (s *subscription[T]) addKeys(change Delta[T]) (err error) {
	defer s.controller.recoverPanic(&err)
	s.controller.add(s.keysOf(change)...)
	return nil
}

func (s *subscription[T]) logLoss(key Key) {
	s.cache.log.Error("a controller panics so often that changes are lost",
		"controller", s.controller.Name, "object", key)
}

// backlogged returns the number of objects with changes for which keysOf has panicked.
func (c *Controller) backlogged() (n int) {
	for _, length := range c.backlogs {
		n += length()
	}
	return n
}

// recoverPanic turns a panic into an error, because a bug in one controller must not stop the others. Defer it.
func (c *Controller) recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = panicError{p}
		c.panics.Report(*err)
	}
}

// panicError is the error that a panic becomes.
type panicError struct{ value any }

func (e panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// callReconcile calls Reconcile, and turns a panic into an error.
func (c *Controller) callReconcile(ctx context.Context, key Key) (result Result, err error) {
	defer c.recoverPanic(&err)
	return c.Reconcile(ctx, key)
}

// callResync adds the keys that Resync returns. It turns a panic into an error.
func (c *Controller) callResync() (err error) {
	defer c.recoverPanic(&err)
	c.looking.Start()
	defer c.looking.Stop()
	if c.Resync != nil {
		c.add(c.Resync()...)
	}
	return nil
}

// callIsUrgent calls IsUrgent. If that panics, the key is not urgent.
func (c *Controller) callIsUrgent(key Key) (isUrgent bool) {
	if c.IsUrgent == nil {
		return false
	}
	defer c.recoverPanic(new(error))
	return c.IsUrgent(key)
}

// callTotals calls Totals. If it panics, there are no totals.
func (c *Controller) callTotals() (totals Totals) {
	if c.Totals == nil {
		return Totals{}
	}
	defer c.recoverPanic(new(error))
	return c.Totals()
}

// callLabels calls Labels. If it panics, there are no labels.
func (c *Controller) callLabels() (labels []page.Label) {
	if c.Labels == nil {
		return nil
	}
	defer c.recoverPanic(new(error))
	return c.Labels()
}

// beginTally begins the tally with the number of objects. Only -once counts them, because only its tally is used.
func (c *Controller) beginTally() {
	objects := 0
	if c.isOnce {
		objects = c.callTotals().All
	}
	c.tally.Begin(objects)
}

// add adds keys to the queue.
func (c *Controller) add(keys ...Key) {
	if c.isOnce {
		c.tally.AddTodo(keys...)
	}
	c.queue.Add(keys...)
}

// recordWrite records that a write of an object has succeeded, and that the server has kept what was written.
func (c *Controller) recordWrite(key Key) {
	c.outage.Worked(key.String())
	if c.isOnce {
		c.tally.MarkWritten(key)
	}
}

// waitForTurn waits until -qps allows a write of an object. It returns false if the object cools down after a write
// (coolDown adds its key again, except with -once), or if podcount stops.
func (c *Controller) waitForTurn(meta *Meta) bool {
	cooledAt, isCoolingDown := c.coolingDown.Load(meta.UID())
	if isCoolingDown {
		wait := time.Until(cooledAt.(time.Time))
		c.trace.Emit(trace.Step{Point: trace.Rests, Controller: c.Name, Key: meta.Key().String(), Wait: wait})
		return false
	}
	return c.pace.Wait(c.life.Stop) == nil
}

// coolDown makes the controller leave an object alone for d after a write, and then reconcile the object again. With
// -once, it leaves the object alone for good, because later changes are for the next run.
func (c *Controller) coolDown(meta *Meta, d time.Duration) {
	c.coolingDown.Store(meta.UID(), time.Now().Add(d))
	if c.isOnce {
		return
	}
	time.AfterFunc(d, func() {
		c.coolingDown.Delete(meta.UID())
		c.queue.Add(meta.Key())
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The pod-printer

// setUpPodPrinter sets up a controller that prints each pod that changes. It is the smallest example of a controller.
func setUpPodPrinter(m *manager, c *Controller) {
	m.pods.NeedEveryVersion() // to print also changes of fields that podcount does not read
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

// ---------------------------------------------------------------------------------------------------------------------
// The pod-count controller

// strippedPause is how long podcount does not retry a stripped write: the server accepts the patch, but drops what it
// writes, as a webhook or a schema may do. Such a write costs the server, and all clients that watch the object, as
// much as one that works.
const strippedPause = 10 * time.Minute

// podCountController keeps the labels of nodes equal to the numbers of pods.
type podCountController struct {
	*Controller
	options  *options.Options
	log      *slog.Logger
	recorder *events.Recorder

	nodes      *Reflector[*Node]
	pods       *Reflector[*Pod]
	podsByNode *CountIndex[*Pod, string]

	strippedPauses retry.Pauses[labelOnNode] // of the labels that the server has dropped
	dryRunChanges  sync.Map                  // by key of a node: the changes that a dry run has logged last

	wrongNodesAddedAt time.Time   // only addWrongNodes uses it, and no two workers have totalKey at once
	hasWarned         atomic.Bool // resync has logged that no node gets the total

	total, own page.LabelHistory // of TotalLabel and NodeLabel
}

// totalKey stands for all nodes that show the number of all pods. It is added when that number changes.
var totalKey = Key{Name: "(total)"} // no node can have this name

func setUpPodCount(m *manager, c *Controller) {
	p := newPodCountController(m, c)
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
	c.Labels = p.labels
}

func newPodCountController(m *manager, c *Controller) *podCountController {
	return &podCountController{
		Controller: c,
		options:    m.options,
		log:        m.log,
		recorder:   m.recorder,
		nodes:      m.nodes,
		pods:       m.pods,
		podsByNode: m.podsByNode,
	}
}

// nodeKeys returns the key of a new node. The key of a changed node is added up to a second later: another podcount may
// have written the label, and may have counted pods that have not reached our cache yet. Resync takes care of the nodes
// that are there at the start.
func (p *podCountController) nodeKeys(change Delta[*Node]) []Key {
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
// Resync takes care of the pods that are there at the start.
func (p *podCountController) podKeys(change Delta[*Pod]) (keys []Key) {
	isNew := change.Old == nil
	isGone := change.New == nil
	if isNew || isGone {
		keys = append(keys, totalKey)
	}
	if isNew && p.options.PodEvents {
		p.postNewPod(change.New)
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

func (p *podCountController) postNewPod(pod *Pod) {
	message := fmt.Sprintf("pod count is %d", p.pods.Len())
	p.recorder.Event(p.pods.Reference(pod), "Normal", "PodCounted", message)
}

// resync returns the nodes with wrong labels. Those with a wrong total come first, because -qps may make the others
// wait.
func (p *podCountController) resync() []Key {
	var wrongTotals, others []Key
	for _, node := range p.nodes.All() {
		fixes := p.findFixes(node)
		_, isTotalWrong := fixes[p.options.TotalLabel]
		switch {
		case isTotalWrong:
			wrongTotals = append(wrongTotals, node.Key())
		case len(fixes) > 0:
			others = append(others, node.Key())
		}
	}
	if err := p.checkTotalNodes(); err != nil && !p.hasWarned.Swap(true) {
		p.log.Warn(err.Error(), "label", p.options.TotalLabel)
	}
	return append(wrongTotals, others...)
}

var errNoNode = errors.New("no node gets the total, because no node matches -total-nodes " +
	"(managed clusters hide their control plane; use -total-nodes '' for every node)")

// checkTotalNodes returns errNoNode if no node should get the total.
func (p *podCountController) checkTotalNodes() error {
	isForTotal := func(node *Node) bool { return p.options.TotalNodes.Matches(node.Label) }
	if p.options.Prune || slices.ContainsFunc(p.nodes.All(), isForTotal) {
		return nil
	}
	return errNoNode
}

// isUrgent reports whether a key is totalKey, or that of a node with a wrong total. Such keys go first, because -qps
// may make a thousand nodes wait a minute for the numbers of their own pods.
func (p *podCountController) isUrgent(key Key) bool {
	if key == totalKey {
		return true
	}
	node := p.nodes.Get(key)
	if node == nil {
		return false
	}
	_, isWrong := p.findFixes(node)[p.options.TotalLabel]
	return isWrong
}

func (p *podCountController) totals() Totals {
	totals := Totals{Noun: "node", Unmet: p.checkTotalNodes()}
	for _, node := range p.nodes.All() {
		totals.All++
		if len(p.findFixes(node)) > 0 {
			totals.Wrong++
		}
	}
	return totals
}

// reconcile corrects the labels of one node. For totalKey, it adds the nodes with wrong labels.
func (p *podCountController) reconcile(ctx context.Context, key Key) (Result, error) {
	if key == totalKey {
		return p.addWrongNodes(), nil
	}
	node := p.nodes.Get(key)
	if node == nil {
		p.forget(key)
		return Result{}, nil
	}
	fixes := p.findFixes(node)
	p.endPauses(node, fixes)
	if len(fixes) == 0 {
		p.dryRunChanges.Delete(key)
		return Result{}, nil
	}
	if len(p.withoutPaused(node, fixes)) == 0 {
		return Result{}, nil // The method pause has added the key for the end of the pause.
	}
	if !p.waitForTurn(&node.Meta) {
		return Result{}, nil
	}
	return Result{}, p.correct(ctx, key)
}

// correct writes the labels of a node that are still wrong. It compares them with the caches again, because these may
// have changed while reconcile waited.
func (p *podCountController) correct(ctx context.Context, key Key) error {
	node := p.nodes.Get(key)
	if node == nil {
		return nil
	}
	fixes := p.withoutPaused(node, p.findFixes(node))
	if len(fixes) == 0 {
		return nil
	}
	if p.options.DryRun {
		p.logDryRun(node, fixes)
		return nil
	}
	return p.write(ctx, node, fixes)
}

// addWrongNodes adds all nodes with wrong labels, because the total has changed. It does so at most once a second, or
// once an interval if that is shorter, because it looks at all nodes.
func (p *podCountController) addWrongNodes() Result {
	wait := min(p.options.Interval, time.Second) - time.Since(p.wrongNodesAddedAt)
	if wait > 0 {
		return Result{RequeueAfter: wait}
	}
	p.wrongNodesAddedAt = time.Now()
	p.add(p.resync()...)
	return Result{}
}

// labelValue is the value of a label, or its absence.
type labelValue struct {
	text   string
	exists bool
}

// labelOf returns the value of a node's label.
func labelOf(node *Node, label string) labelValue {
	text, exists := node.Label(label)
	return labelValue{text, exists}
}

// String returns the value for log lines and Events.
func (v labelValue) String() string {
	if !v.exists {
		return "none"
	}
	return v.text
}

// MarshalJSON returns null if the label does not exist. In a merge patch, that removes the label.
func (v labelValue) MarshalJSON() ([]byte, error) {
	if !v.exists {
		return []byte("null"), nil
	}
	return json.Marshal(v.text)
}

// labelFixes are the labels of a node that are wrong, with their right values.
type labelFixes map[string]labelValue

// findFixes compares the labels of a node with the caches.
func (p *podCountController) findFixes(node *Node) labelFixes {
	var total, own labelValue // The zero value means that the label should not exist.
	if !p.options.Prune && p.options.TotalNodes.Matches(node.Label) {
		total = labelValue{strconv.Itoa(p.pods.Len()), true}
	}
	if !p.options.Prune {
		own = labelValue{strconv.Itoa(p.podsByNode.Count(node.Key().Name)), true}
	}
	fixes := labelFixes{}
	if labelOf(node, p.options.TotalLabel) != total {
		fixes[p.options.TotalLabel] = total
	}
	if p.options.NodeLabel != "" && labelOf(node, p.options.NodeLabel) != own {
		fixes[p.options.NodeLabel] = own
	}
	return fixes
}

// withoutPaused returns the fixes without those of labels that are paused.
func (p *podCountController) withoutPaused(node *Node, fixes labelFixes) labelFixes {
	due := maps.Clone(fixes)
	maps.DeleteFunc(due, func(label string, _ labelValue) bool {
		return p.strippedPauses.Left(labelOnNode{node.Key(), node.UID(), label}) > 0
	})
	return due
}

// forget drops all that is known about a node that is gone.
func (p *podCountController) forget(key Key) {
	p.strippedPauses.EndAll(func(label labelOnNode) bool { return label.node == key })
	p.dryRunChanges.Delete(key)
}

// endPauses ends the pauses of the labels that are no longer wrong. An absent label does not end its pause, even if it
// should be absent: the server may still drop the label when podcount writes it again.
func (p *podCountController) endPauses(node *Node, fixes labelFixes) {
	for _, label := range []string{p.options.TotalLabel, p.options.NodeLabel} { // No node has the label "".
		_, isWrong := fixes[label]
		isKept := !isWrong && labelOf(node, label).exists
		if isKept {
			p.endPause(labelOnNode{node.Key(), node.UID(), label})
		}
	}
}

// write sends one patch with the right labels of a node. Unless that fails, the node cools down after it.
func (p *podCountController) write(ctx context.Context, node *Node, fixes labelFixes) error {
	patch := map[string]any{"metadata": map[string]any{"labels": fixes}}
	isKept := func(now *Node) bool { return hasLabels(now, fixes) }
	now, err := p.nodes.Patch(ctx, node, "", patch, isKept)
	if errors.Is(err, errGone) {
		p.coolDown(&node.Meta, p.options.Interval) // After that it is reconciled again, in case the server was wrong.
		return nil
	}
	isStripped := errors.Is(err, errStripped)
	if err != nil && !isStripped {
		return err
	}
	p.recordLabels(node, now, fixes, err)
	if isStripped && p.isOnce {
		return err // There will be no further try after a pause.
	}
	p.coolDown(&node.Meta, p.options.Interval)
	if !isStripped {
		p.recordWrite(node.Key())
	}
	return nil
}

// recordLabels logs each label that was written, and posts an Event about it. If err is errStripped, the server may
// have kept some labels and dropped others: recordLabels pauses those that it has dropped, unless -once is set. now is
// the node in the server's answer.
func (p *podCountController) recordLabels(node, now *Node, fixes labelFixes, err error) {
	for _, change := range labelChanges(node, fixes) {
		label := labelOnNode{node.Key(), node.UID(), change.Field}
		isKept := labelOf(now, label.label) == fixes[label.label]
		if !isKept && p.isOnce {
			continue // The run fails with err.
		}
		if !isKept {
			p.pause(label, err)
			continue
		}
		p.endPause(label)
		p.historyOf(label.label).Wrote()
		p.log.Info("label written", change.Attr())
		p.postChange(node, change)
	}
}

// hasLabels reports whether a node has the labels that a patch has written.
func hasLabels(node *Node, written labelFixes) bool {
	for label, want := range written {
		if labelOf(node, label) != want {
			return false
		}
	}
	return true
}

// labelOnNode identifies a label of a node.
type labelOnNode struct {
	node  Key
	uid   string // of the node, because another node may get its name later
	label string
}

// pause pauses the writes of a label that the server has dropped. It logs the first such label, and then no other until
// all pauses have ended.
func (p *podCountController) pause(label labelOnNode, err error) {
	isFirst := p.strippedPauses.Begin(label, strippedPause)
	if isFirst {
		p.log.Warn("the server drops labels that podcount writes, so they are retried rarely",
			"first", label.node, "label", label.label, "pause", strippedPause, "err", err)
	}
	p.queue.AddAfter(label.node, strippedPause)
}

// endPause ends the pause of a label, because the node has it. It logs the end of the last pause.
func (p *podCountController) endPause(label labelOnNode) {
	wasLast := p.strippedPauses.End(label)
	if wasLast {
		p.log.Info("the server no longer drops the labels that podcount writes", "last", label.node, "label", label.label)
	}
}

// logDryRun logs what a dry run would write to a node, except for what it has logged already. Like a write, it makes
// the node cool down.
func (p *podCountController) logDryRun(node *Node, fixes labelFixes) {
	p.coolDown(&node.Meta, p.options.Interval)
	previous, _ := p.dryRunChanges.Load(node.Key())
	logged, _ := previous.([]logging.Change)
	changes := labelChanges(node, fixes)
	p.dryRunChanges.Store(node.Key(), changes)
	for _, change := range changes {
		if slices.Contains(logged, change) {
			continue
		}
		p.log.Info(fmt.Sprintf("would write node %s: %s", node.Key(), change))
		p.postChange(node, change)
	}
}

// labelChanges describes what a write of these labels changes, sorted by label.
func labelChanges(node *Node, labels labelFixes) (changes []logging.Change) {
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		verb := "wrote"
		if !labels[label].exists {
			verb = "removed"
		}
		changes = append(changes, logging.Change{
			Verb:   verb,
			Kind:   "node",
			Object: node.Key().String(),
			Name:   "label",
			Field:  label,
			From:   labelOf(node, label).String(),
			To:     labels[label].String(),
		})
	}
	return changes
}

// postChange posts an Event about a label of a node that has changed.
func (p *podCountController) postChange(node *Node, change logging.Change) {
	if p.options.Prune {
		return
	}
	subject := "pod count"
	if change.Field == p.options.NodeLabel {
		subject = "pod count of this node"
	}
	message := fmt.Sprintf("%s changed from %s to %s", subject, change.From, change.To)
	p.recorder.Event(p.nodes.Reference(node), "Normal", "PodCountChanged", message)
}

// labels describes the labels, for the page. The manager calls it once a second.
func (p *podCountController) labels() []page.Label {
	total := page.Label{Name: p.options.TotalLabel, Nodes: []string{}, Wrong: []string{}}
	own := page.Label{Name: p.options.NodeLabel, IsOwn: true, Nodes: []string{}, Wrong: []string{}}
	for _, node := range p.nodes.All() {
		name := node.Key().Name
		fixes := p.findFixes(node)
		_, isTotalWrong := fixes[total.Name]
		_, isOwnWrong := fixes[own.Name]
		total.AddNode(name, !p.options.Prune && p.options.TotalNodes.Matches(node.Label), isTotalWrong)
		own.AddNode(name, !p.options.Prune, isOwnWrong)
	}
	isKnown := process.IsClosed(p.nodes.Synced()) && (p.options.Prune || process.IsClosed(p.pods.Synced()))
	if isKnown && !p.options.Prune {
		total.Value = strconv.Itoa(p.pods.Len())
	}
	lostAt := earliest(p.nodes.LostAt(), p.pods.LostAt())
	for _, label := range []*page.Label{&total, &own} {
		label.IsKnown = isKnown
		p.historyOf(label.Name).Describe(label)
		if lostAt != nil && time.Since(*lostAt) > lossGrace {
			label.SecondsOld = page.SecondsSince(*lostAt)
		}
	}
	if p.options.NodeLabel == "" {
		return []page.Label{total}
	}
	return []page.Label{total, own}
}

// lossGrace is how long no watch may be open until the page says so. A watch that ends is followed by the next one at
// once.
const lossGrace = 5 * time.Second

// earliest returns the first of the times that are not nil.
func earliest(times ...*time.Time) (first *time.Time) {
	for _, at := range times {
		if at != nil && (first == nil || at.Before(*first)) {
			first = at
		}
	}
	return first
}

// historyOf returns the history of a label that podcount writes.
func (p *podCountController) historyOf(label string) *page.LabelHistory {
	if label == p.options.TotalLabel {
		return &p.total
	}
	return &p.own
}

// ---------------------------------------------------------------------------------------------------------------------
// The count controller

// countController keeps the status of each Count right: how many pods of a name there are, and whether the Count wants
// as many.
type countController struct {
	*Controller
	options  *options.Options
	log      *slog.Logger
	recorder *events.Recorder

	counts      *Reflector[*Count]
	countsByApp *ObjectIndex[*Count, Key] // by the app whose pods they count
	pods        *Reflector[*Pod]
	podsByApp   []*NamespaceCountIndex[*Pod] // one for each of appLabels

	strippedPauses retry.GroupPauses[Key, *Installation] // of the statuses that the server has dropped
	// reports has the countReport of each Count by its key: the one that was posted last, or else the one that was made
	// from the status that was found first.
	reports sync.Map

	dryRunTexts sync.Map // by key of a Count: what a dry run has logged last
}

// appLabels are the labels that can name the app of a pod.
var appLabels = []string{"app", "app.kubernetes.io/name", "run"}

func setUpCount(m *manager, c *Controller) {
	control := newCountController(m, c)
	m.pods.NeedLabels(appLabels...)
	Watch(c, m.pods, control.podKeys)
	Watch(c, m.counts, control.countKeys)
	c.Reconcile = control.reconcile
	c.Totals = control.totals
}

func newCountController(m *manager, c *Controller) *countController {
	control := &countController{
		Controller:  c,
		options:     m.options,
		log:         m.log,
		recorder:    m.recorder,
		counts:      m.counts,
		countsByApp: IndexBy(m.counts.Store, appOfCount),
		pods:        m.pods,
	}
	for i := range appLabels {
		appOf := func(pod *Pod) string { return appOfPod(pod, i).Name }
		control.podsByApp = append(control.podsByApp, CountInNamespacesBy(m.pods.Store, appOf))
	}
	return control
}

// appOfPod returns the namespace of a pod and the app that one of appLabels names. It returns Key{} if the pod is nil
// or does not have the label. It also does so if an earlier label names the same app: no pod may count twice.
func appOfPod(pod *Pod, i int) Key {
	if pod == nil {
		return Key{}
	}
	app, _ := pod.Label(appLabels[i])
	if app == "" {
		return Key{}
	}
	for _, earlier := range appLabels[:i] {
		if other, _ := pod.Label(earlier); other == app {
			return Key{}
		}
	}
	return Key{Namespace: pod.Key().Namespace, Name: app}
}

// appOfCount returns the namespace of a Count and the app whose pods it counts.
func appOfCount(count *Count) Key { return Key{Namespace: count.Key().Namespace, Name: count.App} }

// countPods returns the number of pods that a Count counts.
func (c *countController) countPods(count *Count) (n int) {
	for _, index := range c.podsByApp {
		n += index.Count(appOfCount(count))
	}
	return n
}

// podKeys returns the keys of the Counts that a change of a pod concerns: those of the apps that the pod has left or
// joined.
func (c *countController) podKeys(change Delta[*Pod]) (keys []Key) {
	for i := range appLabels {
		was := appOfPod(change.Old, i)
		is := appOfPod(change.New, i)
		if was == is {
			continue
		}
		for _, app := range []Key{was, is} {
			for _, count := range c.countsByApp.Objects(app) {
				keys = append(keys, count.Key())
			}
		}
	}
	return keys
}

// countKeys returns the key of a Count that has changed. If only its status has changed, the key is added an interval
// later. Otherwise two podcounts that disagree would overwrite each other's status as fast as they can.
func (c *countController) countKeys(change Delta[*Count]) []Key {
	isChange := change.Old != nil && change.New != nil
	if isChange && change.New.Status != change.Old.Status && change.New.countSpec == change.Old.countSpec {
		c.queue.AddAfter(change.Key(), c.options.Interval)
		return nil
	}
	return []Key{change.Key()}
}

func (c *countController) totals() Totals {
	isInstalled := c.counts.Installed() != nil
	if !isInstalled {
		return Totals{}
	}
	totals := Totals{Noun: "count"}
	for _, count := range c.counts.All() {
		totals.All++
		if c.plan(count.Key()).isWrong {
			totals.Wrong++
		}
	}
	return totals
}

// countPlan is a Count with the status that it should have.
type countPlan struct {
	count     *Count // nil if the Count is gone
	installed *Installation
	status    countStatus   // the right status
	isWrong   bool          // the Count exists, and has another status
	pause     time.Duration // The server has dropped the status, so it must not be written for this long.
}

// plan compares the status of a Count with the caches. There is nothing to plan if the Count or its resource is gone.
func (c *countController) plan(key Key) countPlan {
	count := c.counts.Get(key)
	installed := c.counts.Installed()
	if count == nil || installed == nil {
		return countPlan{}
	}
	status := c.rightStatus(count)
	return countPlan{
		count:     count,
		installed: installed,
		status:    comparableStatus(installed, status),
		isWrong:   comparableStatus(installed, status) != comparableStatus(installed, count.Status),
		pause:     c.strippedPauses.Left(key, installed),
	}
}

// rightStatus returns the status that a Count should have. If the spec of a Count is invalid, its status stays as it
// is, except that it is not healthy.
func (c *countController) rightStatus(count *Count) countStatus {
	if count.Invalid != "" {
		status := count.Status
		if status.Healthy == "true" {
			status.Healthy = "false"
		}
		return status
	}
	pods := c.countPods(count)
	return countStatus{
		Healthy:            wire.Raw(strconv.FormatBool(pods == count.Want)),
		Count:              wire.Raw(strconv.Itoa(pods)),
		ObservedGeneration: wire.Raw(strconv.FormatInt(count.Generation, 10)),
	}
}

// comparableStatus returns the part of a status that podcount writes. Without a status subresource, each write raises
// the generation, so observedGeneration would never be right. It is left out then.
func comparableStatus(installed *Installation, status countStatus) countStatus {
	if !installed.HasStatus {
		status.ObservedGeneration = ""
	}
	return status
}

// reconcile corrects the status of one Count, and posts Events about what has changed.
func (c *countController) reconcile(ctx context.Context, key Key) (Result, error) {
	plan := c.plan(key)
	if plan.isWrong && plan.pause == 0 {
		if !c.waitForTurn(&plan.count.Meta) {
			return Result{}, nil
		}
		plan = c.plan(key) // Plan again, because the caches may have changed during the wait.
	}
	if plan.count == nil {
		c.forget(key)
		return Result{}, nil
	}
	// Store the previous report before the write. If the answer to the write is lost, the next try finds the new status
	// in the cache. Without the stored report, it would take that status for the previous one, and post nothing.
	previous := c.previousReport(plan)
	c.reports.Store(key, previous)
	err := c.correct(ctx, plan)
	if errors.Is(err, errGone) {
		return Result{}, nil // The watch will remove the Count.
	}
	if err != nil {
		return Result{}, err
	}
	// The report is about the pods, not about the write, so it is also posted in a dry run and during a pause.
	c.postReport(plan, previous)
	return Result{}, nil
}

// forget drops all that is known about a Count that is gone.
func (c *countController) forget(key Key) {
	c.dryRunTexts.Delete(key)
	c.strippedPauses.End(key)
	_, isKnown := c.reports.LoadAndDelete(key)
	if isKnown {
		c.log.Info("a Count is gone", "count", key)
	}
}

// correct writes the right status of a Count, unless the Count has it already. A dry run only logs the status, and a
// status that the server has dropped waits until its pause is over. correct returns errGone if the server does not have
// the Count.
func (c *countController) correct(ctx context.Context, plan countPlan) error {
	key := plan.count.Key()
	if !plan.isWrong {
		c.dryRunTexts.Delete(key)
		c.endPause(plan.count, plan.installed)
		return nil
	}
	if c.options.DryRun {
		c.logDryRun(plan)
		return nil
	}
	if plan.pause > 0 {
		c.queue.AddAfter(key, plan.pause)
		return nil
	}
	return c.write(ctx, plan)
}

// write sends one patch with the right status of a Count. After that, the Count cools down. write returns errGone if
// the server does not have the Count.
func (c *countController) write(ctx context.Context, plan countPlan) error {
	count := plan.count
	subresource := "" // the status is an ordinary field of the object
	if plan.installed.HasStatus {
		subresource = "status"
	}
	patch := map[string]any{"status": plan.status}
	isKept := func(now *Count) bool { return comparableStatus(plan.installed, now.Status) == plan.status }
	now, err := c.counts.Patch(ctx, count, subresource, patch, isKept)
	if errors.Is(err, errGone) {
		c.coolDown(&count.Meta, c.options.Interval) // After that it is reconciled again, in case the server was wrong.
		return err
	}
	isStripped := errors.Is(err, errStripped)
	if err != nil && !isStripped {
		return err
	}
	if isStripped && c.isOnce {
		return err // There will be no further try after a pause.
	}
	// A Count cools down for less time than a node: people wait for its status, and fewer clients watch it.
	c.coolDown(&count.Meta, min(c.options.Interval, time.Second))
	if isStripped {
		c.pause(count.Key(), plan.installed, err)
		return nil
	}
	c.endPause(now, plan.installed)
	c.recordWrite(count.Key())
	c.log.Info("status written", statusChange(count, plan.status).Attr())
	return nil
}

// logDryRun logs what a dry run would write to a Count, unless it has just logged the same.
func (c *countController) logDryRun(plan countPlan) {
	key := plan.count.Key()
	text := statusChange(plan.count, plan.status).String()
	previous, _ := c.dryRunTexts.Swap(key, text)
	if previous != text {
		c.log.Info(fmt.Sprintf("would write count %s: %s", key, text))
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

// statusText returns a status for log lines, as in "2 healthy".
func statusText(status countStatus) string {
	switch {
	case status.Count == "":
		return "none"
	case status.Healthy == "true":
		return string(status.Count) + " healthy"
	}
	return string(status.Count) + " unhealthy"
}

// pause pauses the writes of a status that the server has dropped. If its installation is not known to keep statuses,
// all Counts are paused, because then their schema is probably the cause. pause logs the first such status, and then no
// other until all pauses have ended.
func (c *countController) pause(key Key, installed *Installation, err error) {
	isFirst := c.strippedPauses.Refused(key, installed, strippedPause)
	if isFirst {
		c.log.Warn("the server drops statuses that podcount writes, so they are retried rarely; "+
			"does the schema match deploy/count-crd.yaml?",
			"first", key, "pause", strippedPause, "err", err)
	}
	c.queue.AddAfter(key, strippedPause)
}

// endPause ends the pause of a Count whose status is right. It logs the end of the last pause.
func (c *countController) endPause(count *Count, installed *Installation) {
	// A status on the server shows that this installation keeps statuses.
	hasStatus := count.Status.Count != ""
	if hasStatus {
		c.strippedPauses.Accepted(installed)
	}
	key := count.Key()
	wasLast := c.strippedPauses.End(key)
	if wasLast {
		c.log.Info("the server no longer drops the statuses that podcount writes", "last", key)
	}
}

// countReport is what Events say about a Count. The same report is not posted twice in a row.
type countReport struct {
	uid        string    // of the Count, because another Count may get its name later
	generation wire.Raw  // the status's observedGeneration, or "" if it has none
	spec       countSpec // the zero value if it is not known
	reason     string
	message    string
}

// reportOf returns what Events say about a Count with this status. A status that is not healthy, or missing, makes a
// mismatch.
func reportOf(count *Count, status countStatus) countReport {
	report := countReport{
		uid:        count.UID(),
		generation: status.ObservedGeneration,
		spec:       count.countSpec,
		reason:     "CountMismatch",
		message:    fmt.Sprintf("want %d pods of %s, have %s", count.Want, count.App, status.Count),
	}
	if status.Healthy == "true" {
		report.reason = "CountMatched"
	}
	if count.Invalid != "" {
		report.reason = "InvalidCount"
		report.message = count.Invalid
	}
	return report
}

// previousReport returns the report about a Count that was posted last. If this process has posted none, the report is
// made from the present status, which an earlier process may have written.
func (c *countController) previousReport(plan countPlan) countReport {
	count := plan.count
	value, _ := c.reports.Load(count.Key())
	known, isKnown := value.(countReport)
	if isKnown && known.uid == count.UID() {
		return known
	}
	status := comparableStatus(plan.installed, count.Status)
	previous := reportOf(count, status)
	if !isStatusOfSpec(status, count) {
		previous.spec = countSpec{}
	}
	return previous
}

// isStatusOfSpec reports whether a status was computed for the present spec of a Count. Without observedGeneration, it
// checks whether healthy agrees with the status's count and the spec's.
func isStatusOfSpec(status countStatus, count *Count) bool {
	if count.Invalid != "" {
		return false // rightStatus keeps the status of an earlier spec.
	}
	if status.ObservedGeneration != "" {
		return string(status.ObservedGeneration) == strconv.FormatInt(count.Generation, 10)
	}
	hasWanted := string(status.Count) == strconv.Itoa(count.Want)
	return string(status.Healthy) == strconv.FormatBool(hasWanted)
}

// postReport posts Synced for a new spec, a warning for each mismatch or invalid spec, and CountMatched for a match
// that follows something else. It posts nothing if the report is the same as the previous one.
func (c *countController) postReport(plan countPlan, previous countReport) {
	count := plan.count
	report := reportOf(count, plan.status)
	if report == previous {
		return
	}
	c.reports.Store(count.Key(), report)
	about := c.counts.Reference(count)
	isNewSpec := report.spec != previous.spec || report.generation != previous.generation
	if isNewSpec && count.Invalid == "" {
		c.recorder.Event(about, "Normal", "Synced", "Count synced successfully")
	}
	switch {
	case report.reason != "CountMatched":
		c.recorder.Event(about, "Warning", report.reason, report.message)
	case previous.reason != "CountMatched":
		c.recorder.Event(about, "Normal", report.reason, report.message)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The manager

// manager runs the active controllers over shared caches while this replica leads.
type manager struct {
	options  *options.Options
	client   *kube.Client
	log      *slog.Logger
	metrics  *metrics.Registry
	trace    *trace.Trace
	out      *logging.Outputs
	recorder *events.Recorder
	life     *process.Lifetime
	started  time.Time

	server        string                // the URL of the API server; a password in it is hidden
	serverBackoff *retry.Shared         // connects the backoffs of all who ask it, while it does not answer
	restores      *Restores             // connects the caches, so that a restore that one notices is known to all
	serverOutage  *logging.ServerOutage // logs that it does not answer
	writesAgain   *retry.Bucket         // limits retryWrites

	// The caches. Each one runs if an active controller watches it.
	pods   *Reflector[*Pod]
	nodes  *Reflector[*Node]
	counts *Reflector[*Count]

	podsByNode      *CountIndex[*Pod, string] // empty unless a controller needs whole pods
	podsByNamespace *CountIndex[*Pod, string] // only for the page, so it is nil without -page

	election  *leader.Election // nil without -leader-elect
	leading   chan struct{}    // closed once this replica leads
	electedAt time.Time        // when leading was closed

	hasLostLease atomic.Bool // this replica led, and has lost the Lease

	// setUp sets these fields.
	active  []*Controller                  // the controllers that -controllers switches on
	watched map[anyReflector]struct{}      // the caches that they watch
	usable  map[anyReflector]chan struct{} // for each of these caches, closed by makeUsable

	running    process.Group // all controllers, workers and watches
	summarized sync.Once     // guards summarize
	cutShort   error         // set if -once was stopped before it was done
}

// anyReflector is a Reflector of any kind.
type anyReflector interface {
	Run(context.Context) error
	Synced() <-chan struct{}
	Confirm(ctx context.Context, since time.Time) error
	Kind() string
	State() ReflectorState
	SetGauges()
	LostAt() *time.Time
	Stuck(limit time.Duration) string
}

// newManager makes a manager whose caches request as little as possible. Setup of a controller widens them.
func newManager(o *options.Options, client *kube.Client, life *process.Lifetime, tel telemetry) *manager {
	m := &manager{
		options: o,
		client:  client,
		log:     tel.log,
		metrics: tel.metrics,
		trace:   tel.trace,
		out:     tel.out,
		life:    life,
		started: time.Now(),
		leading: make(chan struct{}),
		watched: map[anyReflector]struct{}{},
	}
	m.writesAgain = retry.NewBucket(1/maxBackoff.Seconds(), 1)
	m.serverOutage = logging.NewServerOutage(tel.log, kube.IsUnanswered, m.describeAge)
	m.restores = &Restores{}
	m.serverBackoff = retry.NewShared(retry.SharedOptions{
		Base:      initialBackoff,
		Limit:     maxBackoff,
		OnFailure: m.serverOutage.Failed,
		OnOver: func() {
			m.serverOutage.Worked()
			m.retryWrites()
		},
	})
	m.recorder = newRecorder(o, client, m.serverOutage, tel)
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
	m.podsByNode = CountBy(m.pods.Store, func(pod *Pod) string { return pod.NodeName })
	if o.Page != "" {
		m.podsByNamespace = CountBy(m.pods.Store, func(pod *Pod) string { return pod.Key().Namespace })
	}
	m.setCountersToZero()
	return m
}

// NewCache makes a cache of a kind: a Reflector with its Store. The manager runs the cache if a controller calls Watch
// with it.
func NewCache[T Object[T]](m *manager, kind Kind[T]) *Reflector[T] {
	return NewReflector(ReflectorOptions[T]{
		Client:  m.client,
		Kind:    kind,
		Store:   NewStore[T](),
		Log:     m.log,
		Metrics: m.metrics,
		Trace:   m.trace,
		Once:    m.options.Once,

		ServerBackoff: m.serverBackoff,
		ServerOutage:  m.serverOutage,
		Restores:      m.restores,
	})
}

// setCountersToZero creates the counters that alerts watch. Prometheus would see no increase in a counter whose first
// value is 1.
func (m *manager) setCountersToZero() {
	for _, result := range []string{"failed", "stripped"} {
		m.metrics.Set(0, "podcount_label_patches_total", result)
		m.metrics.Set(0, "podcount_status_patches_total", result)
	}
	m.metrics.Set(0, "podcount_events_total", "dropped")
}

// joinElection makes the controllers wait until this replica leads. The client then refuses writes while it does not
// lead. ownNamespace is the namespace of podcount's pod, or "" outside a cluster.
func (m *manager) joinElection(ownNamespace string) {
	o := m.options
	m.election = leader.New(m.client, leader.Options{
		Namespace:      cmp.Or(o.LeaseNamespace, ownNamespace, "kube-system"),
		Name:           o.LeaseName,
		Host:           hostname(),
		LeaseDuration:  o.LeaseDuration,
		RenewDeadline:  o.RenewDeadline,
		RetryPeriod:    o.RetryPeriod,
		ReleaseTimeout: releaseTimeout,
		ServerBackoff:  m.serverBackoff,
		ServerOutage:   m.serverOutage,
		Log:            m.log,
		OnLost: func(err error) {
			m.life.StopWith(err)
			m.life.CutRequests(err)
			m.hasLostLease.Store(true)
			m.emitLease("lost")
		},
	})
	m.client.SetPermit(m.election)
}

// setUp sets up the controllers that are on.
func (m *manager) setUp() {
	for _, c := range controllers {
		if !m.options.IsOn(c.Name) {
			continue
		}
		m.prepare(&c) // c is a copy, so that each manager has its own
		c.Setup(m, &c)
		maps.Copy(m.watched, c.watched)
		m.active = append(m.active, &c)
	}
	m.usable = map[anyReflector]chan struct{}{}
	for cache := range m.watched {
		m.usable[cache] = make(chan struct{})
	}
}

// prepare gives a controller its queue, and everything else that its Setup may use.
func (m *manager) prepare(c *Controller) {
	c.isOnce = m.options.Once
	c.begun = make(chan struct{})
	c.looking = new(process.Stopwatch)
	c.watched = map[anyReflector]struct{}{}
	c.panics = logging.NewPanics(m.log, "a controller", "controller", c.Name)
	c.outage = logging.NewOutage(m.log, c.Name, "writing again", "controller", c.Name).MutedBy(m.serverOutage)
	c.coolingDown = new(sync.Map)
	c.tally = process.NewTally[Key]()
	c.life = m.life
	c.trace = m.trace
	c.queue = NewQueue(m.life.Stop, QueueOptions[Key]{
		Name:         c.Name,
		Backoff:      5 * time.Millisecond,
		MaxBackoff:   30 * time.Second,
		IsUnanswered: kube.IsUnanswered,
		IsUrgent:     c.callIsUrgent,
		Log:          m.log,
		Metrics:      m.metrics,
		Trace:        m.trace,
	})
	c.pace = retry.NewBucket(m.options.QPS, m.options.Burst)
	if m.options.DryRun {
		c.pace = retry.NewUnlimitedBucket() // nothing is sent
	}
}

// retryWrites makes the controllers retry what they could not write while the API server was away. It answers again. If
// it comes and goes, writes wait for their own backoffs.
func (m *manager) retryWrites() {
	if !m.writesAgain.Allow() {
		return
	}
	for _, c := range m.active {
		c.queue.RetryNow()
	}
}

// describeAge says in the log of an outage how old the numbers in the labels are: podcount has not heard of the pods or
// the nodes since then. It says nothing if podcount hears of both, or writes no labels.
func (m *manager) describeAge() []any {
	_, watchesNodes := m.watched[m.nodes]
	lostAt := earliest(m.pods.LostAt(), m.nodes.LostAt())
	if !watchesNodes || lostAt == nil || m.options.DryRun {
		return nil
	}
	return []any{"labels_age", time.Since(*lostAt).Round(time.Second)}
}

// The limits of the steps of a shutdown. docs/operating.md shows the same numbers.
const (
	drainTimeout   = 10 * time.Second // for writes in flight
	eventsTimeout  = 5 * time.Second  // for Events that wait
	releaseTimeout = 4 * time.Second  // for the release of the Lease

	hangTimeout = time.Second // how long after its limit a step is abandoned
)

// run runs everything until podcount stops, and then shuts it down. It returns the error that made podcount stop. The
// error is nil if podcount was asked to stop, unless that came too early for -once, or if -once is done.
func (m *manager) run() error {
	life := m.life
	if m.election != nil {
		// Replicas that start together should not all send their requests at once.
		retry.Sleep(life.Stop, rand.N(time.Second))
	}
	resigned, resign := context.WithCancel(life.Requests)
	campaignEnded := process.Go(func() { m.campaign(resigned) })

	// Events are recorded until recording ends. Those that still wait are posted until posting ends.
	recording, stopRecording := context.WithCancel(life.Requests)
	posting := process.WithGrace(life.Requests, recording, eventsTimeout)
	recorderEnded := process.Go(func() { m.recorder.Run(posting, recording) })

	m.runControllers()

	// From here on, nothing causes Events. The recorder posts those that wait.
	stopRecording()
	m.awaitEnd("the Events that wait", recorderEnded, posting)

	// Release the Lease after the last write, because another replica may write from then on. If the Lease was lost,
	// Requests has ended already, and nothing is released.
	resign()
	releasing, cancel := context.WithTimeout(life.Requests, releaseTimeout)
	defer cancel()
	m.awaitEnd("the release of the lease", campaignEnded, releasing)

	life.CutRequests(nil)
	m.awaitEnd("connections", process.Go(m.client.Close), life.Requests)

	m.log.Info("podcount stopped", "events_dropped", m.recorder.Dropped())
	return cmp.Or(life.Err(), m.cutShort)
}

// campaign runs the election until resigned ends. Without an election, this replica leads at once.
func (m *manager) campaign(resigned context.Context) {
	lead := func() {
		m.electedAt = time.Now()
		close(m.leading)
	}
	if m.election == nil {
		lead()
		return
	}
	m.election.Run(m.life.Stop, resigned, func() {
		m.emitLease("acquired")
		lead()
	})
	hasLed := process.IsClosed(m.leading)
	if hasLed && !m.hasLostLease.Load() {
		m.emitLease("released")
	}
}

// emitLease emits a step about the election for the trace.
func (m *manager) emitLease(what string) {
	_, identity := m.election.Lease()
	m.trace.EmitFor(1, trace.Step{Point: trace.Lease, Type: what, Key: m.election.Name(), Text: identity})
}

// awaitEnd waits for a step of the shutdown, which should end before limit does. If it still runs hangTimeout after
// that, awaitEnd logs which goroutines hang, and gives up.
func (m *manager) awaitEnd(step string, ended <-chan struct{}, limit context.Context) {
	select {
	case <-ended:
		return
	case <-limit.Done():
	}
	select {
	case <-ended:
	case <-time.After(hangTimeout):
		m.log.Warn("something hangs: podcount stops without waiting for it",
			"what", step, "running", m.running.Running())
	}
}

// runControllers runs the controllers and their caches until podcount stops, or until -once is done. It returns when
// everything in flight is finished.
func (m *manager) runControllers() {
	controllersEnded := m.startControllers()
	m.startCaches()
	if m.options.Once {
		stopTimers := m.startOnceTimers()
		defer stopTimers()
	}

	select {
	case <-controllersEnded: // Before Stop ends, this happens only with -once.
		m.endOnce("")
	case <-m.life.Stop.Done():
		m.summarize()
		if m.options.Once && !m.isAllDone() {
			m.cutShort = stoppedEarly(m.options)
		}
	}
	m.life.StopWith(nil)
	m.awaitEnd("a controller, or a watch", process.Go(m.running.Wait), m.life.Work)
	for _, c := range m.active {
		c.outage.Stop()
	}
	m.serverOutage.Stop()
}

// maxStartPause is the longest pause between the starts of two controllers. The shortest is half of it. Without pauses,
// all of them would send their first writes at the same time.
const maxStartPause = 100 * time.Millisecond

// startControllers starts the controllers one after the other. The channel is closed when all of them have ended.
func (m *manager) startControllers() (ended <-chan struct{}) {
	var all sync.WaitGroup
	var nextStart time.Duration // from now
	for _, c := range m.active {
		pause := nextStart
		nextStart += maxStartPause/2 + rand.N(maxStartPause/2)
		all.Add(1)
		m.running.Go("controller "+c.Name, func() {
			defer all.Done()
			m.runController(c, pause)
		})
	}
	return process.Go(all.Wait)
}

// startCaches starts the caches that the controllers watch.
func (m *manager) startCaches() {
	for cache := range m.watched {
		m.running.Go("watch of "+cache.Kind(), func() {
			m.awaitFirstTry()
			if err := cache.Run(m.life.Stop); err != nil {
				m.life.StopWith(m.whyCacheEnded(err))
			}
		})
		m.running.Go("confirmation of "+cache.Kind(), func() { m.makeUsable(cache) })
	}
}

// whyCacheEnded returns the error of podcount if that of a cache ends it: a wrong selector is one of the flags, but a
// server that cannot be reached is not.
func (m *manager) whyCacheEnded(err error) error {
	if kube.IsHopeless(err) {
		return fmt.Errorf("%s: %w", m.options.OnceFlag(), err)
	}
	return options.UsageError{Err: err}
}

// maxFirstTry is how long the caches wait for the first try to acquire the Lease.
const maxFirstTry = 3 * time.Second

// awaitFirstTry waits for the end of the first try to acquire the Lease. If this replica leads from then on, its first
// lists are requested after its election, and Reflector.Confirm needs no other request.
func (m *manager) awaitFirstTry() {
	if m.election == nil {
		return
	}
	select {
	case <-m.election.Tried():
	case <-time.After(maxFirstTry):
	case <-m.life.Stop.Done():
	}
}

// runController runs one controller until podcount stops, or until -once is done. It waits until this replica leads,
// and until the controller's caches are usable.
func (m *manager) runController(c *Controller, pause time.Duration) {
	m.await(m.leading)
	for cache := range c.watched {
		m.await(m.usable[cache])
	}
	if retry.Sleep(m.life.Stop, pause) != nil {
		return
	}
	m.log.Info("caches are complete: work begins", "controller", c.Name)
	close(c.begun)
	c.beginTally()
	c.looking.Start()
	for _, begin := range c.beginWatches {
		begin()
	}
	c.looking.Stop()
	for range m.options.Workers {
		m.running.Go("worker of "+c.Name, func() { m.runWorker(c) })
	}
	if m.options.Once {
		m.resyncOnce(c)
		c.tally.MarkComplete()
		m.awaitDone(c)
		return
	}
	m.resyncUntilStop(c)
}

// makeUsable waits until a cache is usable, and then lets the controllers work from it. The cache must be complete,
// because half a list would make wrong labels. With an election, it must also be confirmed: it may be older than what
// another leader has written. Reflector.Confirm asks the server.
func (m *manager) makeUsable(cache anyReflector) {
	m.await(cache.Synced())
	m.await(m.leading)
	if m.life.Stop.Err() != nil {
		return
	}
	if m.election != nil && cache.Confirm(m.life.Stop, m.electedAt) != nil {
		return // podcount stops
	}
	close(m.usable[cache])
}

// await waits until a channel is closed, or until podcount stops.
func (m *manager) await(closed <-chan struct{}) {
	select {
	case <-closed:
	case <-m.life.Stop.Done():
	}
}

// resyncUntilStop adds the keys that Resync returns, now and at each interval.
func (m *manager) resyncUntilStop(c *Controller) {
	ticker := time.NewTicker(m.options.Interval)
	defer ticker.Stop()
	for {
		c.callResync() // after a panic, the next resync adds the keys
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
		m.recordReconcile(c, key, err)
		result.RetryAfter = max(result.RetryAfter, kube.RetryAfter(err))
		c.queue.Done(key, result, err)
	}
}

// recordReconcile logs a failed reconcile, and counts a successful one for -once.
func (m *manager) recordReconcile(c *Controller, key Key, err error) {
	if err != nil {
		c.outage.Failed(key.String(), "cannot reconcile", kube.PauseBetweenComplaints(err), "key", key, "err", err)
		return
	}
	if m.life.Stop.Err() != nil {
		return // the reconcile may have given up because of the shutdown
	}
	c.outage.Forget(key.String())
	if c.isOnce {
		c.tally.MarkDone(key)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// What the manager does for -once, for -listen and for -page

// The limits of -once, beside -once-timeout.
const (
	onceListTimeout = 2 * time.Minute // for the first lists
	onceReminder    = 10 * time.Second
	onceKeysTimeout = time.Minute // for changes whose keys are unknown because the controller panicked
	onceTries       = 10          // for each key
)

// startOnceTimers starts the timers that end -once if it takes too long.
func (m *manager) startOnceTimers() (stop func()) {
	timeout := m.options.OnceTimeout
	listTimeout := min(onceListTimeout, timeout)
	lists := time.AfterFunc(listTimeout, func() { m.failUnlessSynced(listTimeout) })
	all := time.AfterFunc(timeout, func() { m.endOnce(" after " + timeout.String()) })
	reminding, stopReminding := context.WithCancel(m.life.Stop)
	go m.remindOfLists(reminding, listTimeout)
	return func() {
		lists.Stop()
		all.Stop()
		stopReminding()
	}
}

// remindOfLists logs every onceReminder which lists -once waits for, and how long it will. The log names the reasons
// less often.
func (m *manager) remindOfLists(ctx context.Context, listTimeout time.Duration) {
	givesUpAt := time.Now().Add(listTimeout)
	for retry.Sleep(ctx, onceReminder) == nil {
		kinds := m.incompleteCaches()
		if len(kinds) == 0 {
			return
		}
		m.log.Info("there is no complete list yet", "of", strings.Join(kinds, ", "),
			"gives_up_in", time.Until(givesUpAt).Round(time.Second))
	}
}

// failUnlessSynced makes -once fail if a cache is not complete yet.
func (m *manager) failUnlessSynced(after time.Duration) {
	kinds := m.incompleteCaches()
	if len(kinds) == 0 {
		return
	}
	m.life.StopWith(fmt.Errorf("%s: after %v there is no complete list of %s",
		m.options.OnceFlag(), after, strings.Join(kinds, ", ")))
}

// resyncOnce does the only resync of -once. If the controller panics, it tries again for a while.
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
	m.life.StopWith(fmt.Errorf("%s: %s cannot find out which objects need work: %w", m.options.OnceFlag(), c.Name, err))
}

// awaitDone waits until each key has succeeded, or has failed onceTries times.
func (m *manager) awaitDone(c *Controller) {
	const pollInterval = 20 * time.Millisecond
	start := time.Now()
	for retry.Sleep(m.life.Stop, pollInterval) == nil {
		// Read the backlog before the queue. A change moves from the backlog to the queue, so it is seen in one of
		// them.
		mayGetKeys := c.backlogged() > 0 && time.Since(start) < onceKeysTimeout
		if c.queue.CountPending(onceTries) == 0 && !mayGetKeys {
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

// endOnce logs the outcome of -once. If objects are still wrong, it ends -once with an error that names them. It ends
// -once with another error if a controller cannot do what the flags ask for.
func (m *manager) endOnce(after string) {
	m.summarize()
	var left []string
	for _, c := range m.active {
		if names := c.describeLeft(); names != "" {
			left = append(left, names)
		}
	}
	if len(left) > 0 {
		m.life.StopWith(fmt.Errorf("%s: %s%s: the log says why", m.options.OnceFlag(), strings.Join(left, "; "), after))
	}
	if len(m.incompleteCaches()) > 0 {
		return // It is not known yet what cannot be done.
	}
	for _, c := range m.active {
		if unmet := c.callTotals().Unmet; unmet != nil {
			m.life.StopWith(fmt.Errorf("%s: %w", m.options.OnceFlag(), unmet))
		}
	}
}

// describeLeft names the objects that -once could not correct. It returns "" if there are none.
func (c *Controller) describeLeft() string {
	const maxNames = 10
	keys := c.queue.Pending()
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
	return fmt.Sprintf("%s could not correct %s (%s)",
		c.Name, process.Plural(left, "object"), strings.Join(names, ", "))
}

// summarize logs the outcome of -once, -prune or -dry-run, with a line for each controller. Only its first call logs.
func (m *manager) summarize() {
	if !m.options.Once && !m.options.DryRun {
		return
	}
	m.summarized.Do(func() {
		for _, c := range m.active {
			m.summarizeController(c)
		}
	})
}

func (m *manager) summarizeController(c *Controller) {
	if !c.tally.HasBegun() {
		return
	}
	totals := c.callTotals()
	if totals.Noun == "" {
		return
	}
	outcome := c.tally.Summary(totals.Noun, c.outage.Failing())
	if m.options.DryRun {
		right := totals.All - totals.Wrong
		outcome = fmt.Sprintf("%s: %d would be written, %d right, %d failed",
			process.Plural(totals.All, totals.Noun), totals.Wrong, right, c.outage.Failing())
	}
	m.log.Info(fmt.Sprintf("%s, in %.1f s", outcome, time.Since(m.started).Seconds()))
}

// serve starts the server of -listen. The caller must close it.
func (m *manager) serve() (*listen.Server, error) {
	server, err := m.startServer("-listen", m.options.Listen, m.pages())
	if err != nil {
		return nil, err
	}
	m.log.Info("listening", "on", server.Addr())
	return server, nil
}

// servePage starts the server of -page. The caller must close it.
func (m *manager) servePage() (*listen.Server, error) {
	p := page.New(page.Options{
		State:     m.state,
		Sample:    m.newSampler(),
		Trace:     m.trace,
		Flags:     m.pageFlags(),
		Version:   process.Version,
		Started:   m.started,
		TokenFile: m.options.PageTokenFile,
		Log:       m.log,
	})
	server, err := m.startServer("-page", m.options.Page, p.Handler())
	if err != nil {
		return nil, err
	}
	go p.Run(m.life.Stop)
	if address := server.Addr().String(); address != m.options.Page { // Otherwise the flag names it.
		m.log.Info("the page is served", "on", address)
	}
	return server, nil
}

// startServer starts an HTTP server. If it fails later, podcount stops. flag is the flag that asks for it. The caller
// must close the server.
func (m *manager) startServer(flag, address string, handler http.Handler) (*listen.Server, error) {
	server, err := listen.Listen(m.life.Stop, address, handler, m.log)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	go func() {
		if err := server.Serve(); err != nil {
			m.life.StopWith(fmt.Errorf("%s %s: %w", flag, address, err))
		}
	}()
	return server, nil
}

// pages returns the handler of -listen.
func (m *manager) pages() http.Handler {
	return listen.Pages(listen.Content{
		Stuck:      m.stuck,
		Incomplete: m.incompleteCaches,
		Metrics: func() string {
			m.setGauges()
			return m.metrics.Text()
		},
	})
}

// stuck describes what hangs: controllers with their workers, queues and resyncs, and caches whose changes no
// controller takes. Requests cannot hang: each has a time limit.
func (m *manager) stuck() (stuck []string) {
	limit := m.options.StuckAfter()
	for _, cache := range m.sortedCaches() {
		if problem := cache.Stuck(limit); problem != "" {
			stuck = append(stuck, cache.Kind()+": "+problem)
		}
	}
	for _, c := range m.active {
		if took := c.looking.Elapsed(); took > limit {
			stuck = append(stuck, fmt.Sprintf("%s: has looked for work for %v", c.Name, took.Round(time.Second)))
		}
		problem := ""
		answered := process.Go(func() { problem = c.queue.Stuck(limit) })
		select {
		case <-answered:
		case <-time.After(hangTimeout):
			stuck = append(stuck, c.Name+": its queue does not answer")
			continue
		}
		if problem != "" {
			stuck = append(stuck, c.Name+": "+problem)
		}
	}
	return stuck
}

// incompleteCaches returns the kinds whose caches have no complete list yet.
func (m *manager) incompleteCaches() (kinds []string) {
	for _, cache := range m.sortedCaches() {
		state := cache.State()
		switch {
		case state.IsReady:
		case state.IsUnknown:
			kinds = append(kinds, cache.Kind()+" (it is not known whether the cluster has it)")
		default:
			kinds = append(kinds, cache.Kind())
		}
	}
	return kinds
}

// state returns the present state, for the page.
func (m *manager) state() page.State {
	s := page.State{
		Version:    process.Version,
		Host:       hostname(),
		Server:     m.server,
		Started:    m.started,
		UpSeconds:  time.Since(m.started).Seconds(),
		Mode:       m.mode(),
		Waiting:    append([]string{}, m.incompleteCaches()...), // JSON should have [], not null
		Stuck:      append([]string{}, m.stuck()...),
		Labels:     m.labelsState(),
		Silence:    m.silence(),
		Lease:      m.leaseState(),
		Writes:     m.writesState(),
		Namespaces: page.MostCrowded(m.podsByNamespace.All()),
		Events: page.Events{
			Posted:  m.sum("podcount_events_total", "posted"),
			Dropped: int(m.recorder.Dropped()),
			Waiting: m.recorder.Waiting(),
		},
	}
	if m.pods.readsWholeObjects() {
		s.Nodes = page.MostCrowded(m.podsByNode.All())
	}
	for _, cache := range m.sortedCaches() {
		s.Kinds = append(s.Kinds, m.kindState(cache))
	}
	for _, c := range m.active {
		s.Controllers = append(s.Controllers, m.controllerState(c))
	}
	return s
}

// sortedCaches returns the caches in the order of what people want to know: pods, nodes, Counts, and then other kinds.
func (m *manager) sortedCaches() []anyReflector {
	others := maps.Clone(m.watched)
	var sorted []anyReflector
	for _, cache := range []anyReflector{m.pods, m.nodes, m.counts} {
		if _, isWatched := others[cache]; isWatched {
			sorted = append(sorted, cache)
			delete(others, cache)
		}
	}
	byKind := func(a, b anyReflector) int { return strings.Compare(a.Kind(), b.Kind()) }
	return slices.AppendSeq(sorted, slices.Values(slices.SortedFunc(maps.Keys(others), byKind)))
}

// labelsState returns what the labels show, for the page.
func (m *manager) labelsState() []page.Label {
	labels := []page.Label{}
	for _, c := range m.active {
		labels = append(labels, c.callLabels()...)
	}
	return labels
}

// silence describes that the API server does not answer, for the page. It is nil if it has answered anything since that
// began.
func (m *manager) silence() *page.Silence {
	problem, isAway := m.serverOutage.Problem()
	if !isAway {
		return nil
	}
	var since *time.Time // of what podcount knows; nil before the first lists
	for cache := range m.watched {
		state := cache.State()
		lostAt := cache.LostAt()
		if state.IsReady && !state.IsAbsent && lostAt == nil {
			lostAt = &state.LastHeard // The watch is open, but must be half-open.
		}
		since = earliest(since, lostAt)
	}
	if since == nil {
		since = &m.started
	}
	cause := cmp.Or(errors.Unwrap(problem.Err), problem.Err) // without the request, which differs from try to try
	return &page.Silence{
		Seconds:         time.Since(*since).Seconds(),
		SecondsUntilTry: max(0, time.Until(m.serverBackoff.NextTry()).Seconds()),
		Error:           cause.Error(),
		Advice:          kube.Advice(problem.Err),
	}
}

// mode names the flag that makes podcount do something else than usual. If there are several, a dry run is the most
// important one, because it writes nothing.
func (m *manager) mode() string {
	switch {
	case m.options.DryRun:
		return "dry run"
	case m.options.Prune:
		return "prune"
	case m.options.Once:
		return "once"
	}
	return ""
}

// kindState returns the state of a cache, for the page.
func (m *manager) kindState(cache anyReflector) page.Kind {
	state := cache.State()
	kind := page.Kind{
		Name:            cache.Kind(),
		IsReady:         state.IsReady,
		IsAbsent:        state.IsAbsent,
		IsUnknown:       state.IsUnknown,
		Objects:         state.Objects,
		ResourceVersion: state.ResourceVersion,
		Relists:         m.countsOf("podcount_relists_total", cache.Kind()),
		Audits:          m.countsOf("podcount_audits_total", cache.Kind()),
		Drift:           m.sum("podcount_cache_drift_total", cache.Kind()),

		SecondsSinceHeard: page.SecondsSince(state.LastHeard),
	}
	if last := state.LastWatch; last != nil {
		text := fmt.Sprintf("%s (%v)", last.Meaning, last.Err)
		kind.LastWatch = &page.WatchEnd{At: last.At, Outcome: last.Outcome, Text: text}
	}
	isCurrent := state.IsReady && cache.LostAt() == nil
	problem := state.Problem
	isOver := problem != nil && isCurrent && kube.IsUnanswered(problem.Err) // A watch is open again.
	if problem != nil && !isOver {
		kind.Problem = problem.Text
		kind.ProblemAdvice = kube.Advice(problem.Err)
	}
	return kind
}

// controllerState returns the state of a controller, for the page.
func (m *manager) controllerState(c *Controller) page.Controller {
	queue := c.queue.State()
	state := page.Controller{
		Name:         c.Name,
		HasBegun:     process.IsClosed(c.begun),
		Waits:        m.whatDelays(c),
		Ready:        queue.Ready,
		Waiting:      queue.Waiting,
		Working:      []page.Work{},
		Failing:      []page.FailingKey{},
		FailingCount: queue.FailingCount,
	}
	for key, took := range queue.Working {
		state.Working = append(state.Working, page.Work{Key: key, Seconds: took.Seconds()})
	}
	sort.Slice(state.Working, func(i, j int) bool { return state.Working[i].Key < state.Working[j].Key })
	for _, failing := range queue.Failing {
		state.Failing = append(state.Failing, page.FailingKey{
			Key:      failing.Key,
			Since:    failing.Since,
			Failures: failing.Failures,
			Error:    failing.Err.Error(),
			Advice:   adviceFor(failing.Err),
			RetryAt:  failing.RetryAt,
		})
	}
	return state
}

// whatDelays says what a controller waits for before it begins. It returns "" if the controller has begun.
func (m *manager) whatDelays(c *Controller) string {
	if process.IsClosed(c.begun) {
		return ""
	}
	var incomplete []string
	for cache := range c.watched {
		state := cache.State()
		if state.IsAbsent {
			return cache.Kind() + " to be installed"
		}
		if state.IsUnknown {
			return "an answer to whether the cluster has " + cache.Kind()
		}
		if !state.IsReady {
			incomplete = append(incomplete, cache.Kind())
		}
	}
	if len(incomplete) > 0 {
		slices.Sort(incomplete)
		return "the first complete list of " + strings.Join(incomplete, " and ")
	}
	if !process.IsClosed(m.leading) {
		return "its turn to lead"
	}
	return "the confirmation of its caches"
}

// adviceFor says what a person can do about the error of a reconcile.
func adviceFor(err error) string {
	if errors.As(err, new(panicError)) {
		return "This is a bug in the controller. The log has the stack."
	}
	if errors.Is(err, errStripped) {
		return "Find out what removes the value: a webhook, a MutatingAdmissionPolicy or the schema of the CRD."
	}
	return kube.Advice(err)
}

// leaseState returns the state of the election, for the page. It is nil without an election.
func (m *manager) leaseState() *page.Lease {
	if m.election == nil {
		return nil
	}
	_, identity := m.election.Lease()
	holder, isKnown := m.election.Holder()
	problem, _ := m.election.Problem()
	return &page.Lease{
		Name:     m.election.Name(),
		Identity: identity,
		IsOurs:   m.election.MayWrite() == nil,
		Holder:   holder,
		IsKnown:  isKnown,
		Problem:  problem.Text,
		Advice:   kube.Advice(problem.Err),
	}
}

// patchMetrics are the metrics that count patches by their results.
var patchMetrics = []string{"podcount_label_patches_total", "podcount_status_patches_total"}

func (m *manager) writesState() (writes page.Writes) {
	for _, metric := range patchMetrics {
		writes.Written += m.sum(metric, "written")
		writes.Failed += m.sum(metric, "failed")
		writes.Stripped += m.sum(metric, "stripped")
		writes.Gone += m.sum(metric, "gone")
	}
	return writes
}

// sum adds up the series of a metric whose first labels have these values.
func (m *manager) sum(metric string, labels ...string) (sum int) {
	for _, value := range m.metrics.Values(metric) {
		if slices.Equal(value.Labels[:len(labels)], labels) {
			sum += int(value.Number)
		}
	}
	return sum
}

// countsOf returns the numbers of a metric with the labels kind and another one, by the other one.
func (m *manager) countsOf(metric, kind string) map[string]int {
	counts := map[string]int{}
	for _, value := range m.metrics.Values(metric) {
		if value.Labels[0] == kind {
			counts[value.Labels[1]] = int(value.Number)
		}
	}
	return counts
}

// newSampler returns a function that returns what has happened since its last call, for the lines of the page.
func (m *manager) newSampler() func() page.Sample {
	var lastEvents, lastWrites int
	return func() page.Sample {
		m.labelsState() // notices since when they are right
		sample := page.Sample{Pods: -1}
		if process.IsClosed(m.pods.Synced()) {
			sample.Pods = m.pods.Len()
		}
		events := m.sum("podcount_watch_events_total")
		writes := m.writesState().Written
		sample.Events = events - lastEvents
		sample.Writes = writes - lastWrites
		lastEvents = events
		lastWrites = writes
		return sample
	}
}

// pageFlags returns the flags that matter while podcount runs, for /flagz.
func (m *manager) pageFlags() (flags []page.Flag) {
	for _, f := range m.options.Flags {
		flags = append(flags, page.Flag(f))
	}
	return flags
}

// setGauges sets the metrics that are computed only when somebody reads them. It removes those whose value is not known
// yet, because a 0 would look like a count.
func (m *manager) setGauges() {
	for cache := range m.watched {
		cache.SetGauges()
	}
	if process.IsClosed(m.pods.Synced()) {
		m.metrics.Set(float64(m.pods.Len()), "podcount_pods")
	} else {
		m.metrics.Remove("podcount_pods")
	}
	for _, c := range m.active {
		m.setQueueGauges(c)
	}
	if m.election != nil {
		m.setLeaderGauge()
	}
	m.metrics.Set(float64(m.out.Stderr.Lost()), "podcount_lines_dropped_total", "stderr")
	m.metrics.Set(float64(m.out.Stdout.Lost()), "podcount_lines_dropped_total", "stdout")
	m.metrics.Set(1, "podcount_build_info", process.Version, runtime.Version())
	metrics.SetProcess(m.metrics, m.started)
}

// setQueueGauges sets the gauges of a controller's queue, or removes them if the controller cannot work yet.
func (m *manager) setQueueGauges(c *Controller) {
	c.queue.SetGauges()
	if !process.IsClosed(c.begun) {
		m.metrics.Remove("workqueue_depth", c.Name)
		m.metrics.Remove("workqueue_unfinished_work_seconds", c.Name)
		m.metrics.Remove("workqueue_longest_running_processor_seconds", c.Name)
	}
}

func (m *manager) setLeaderGauge() {
	gauge := 0.0
	if m.election.MayWrite() == nil {
		gauge = 1
	}
	m.metrics.Set(gauge, "leader_election_master_status", m.options.LeaseName)
}
