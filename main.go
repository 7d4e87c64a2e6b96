// Podcount is a Kubernetes controller made of nothing but Go's standard library: it counts pods and writes the counts
// to labels of nodes. Data runs one way through its four files:
//
//	API server ─list, watch─▶ watch.go ─changes─▶ cache.go ─keys─▶ queue.go ─key─▶ reconcile (main.go) ─patch, event─▶ API server
//	                                                                 ▲ ticker: every interval, every key that is not as it should be
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"podcount/internal/events"
	"podcount/internal/kube"
	"podcount/internal/kubeconfig"
	"podcount/internal/leader"
	"podcount/internal/listen"
	"podcount/internal/logging"
	"podcount/internal/metrics"
	"podcount/internal/options"
	"podcount/internal/ratelimit"
	"podcount/internal/retry"
	"podcount/internal/wire"
)

var version = "dev" // set by the linker, from git

// levelRequest is the level of each request. With -v N, lines of the slog level -N are shown: slog.LevelDebug is -v 4,
// and levelFlow is -v 2.
const levelRequest = slog.Level(-6)

// What an end may take, step by step. If you change one, change README.md.
const (
	drainTimeout   = 10 * time.Second       // the writes that are under way
	eventsTimeout  = 5 * time.Second        // then, the Events that wait
	releaseTimeout = 4 * time.Second        // then, the release of the lease
	flushTimeout   = time.Second            // then, the last lines, of stdout and of stderr
	lastWordTime   = 200 * time.Millisecond // then, the error on stderr
	hangTimeout    = time.Second            // by which a step may exceed its limit; then podcount ends without it
	endTimeout     = 26 * time.Second       // all of it, from the first signal on, whatever hangs
)

const (
	startPause   = 100 * time.Millisecond // at most, between the starts of two controllers
	onceListTime = 2 * time.Minute        // with -once: how long the caches may take
	onceKeysTime = time.Minute            // with -once: how long changes are tried whose keys nobody could say
	onceTries    = 10                     // with -once: how often a key is tried
)

func main() {
	// The heap is a cache, which lives on: let garbage be a quarter of it. And there is never work for two processors:
	// see README.md.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// By default a write to stdout or stderr whose reader has gone away (`| head`) ends the process. With this the
	// write fails instead, and that ends nothing. To ignore the signal would do the same, but exec programs would
	// inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go obeySignals(signals, cancel, func(why string) {
		lastWord(why)
		os.Exit(1)
	})
	// net/http says some oddities by way of package log, while it holds locks that every request needs.
	stray := logging.NewOutput(os.Stderr, logging.OutputLimit, func(int) []byte { return nil })
	stdlog.SetOutput(stray)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr, nil)
	if err == nil {
		return
	}
	lastWord(logging.Printable(strings.ReplaceAll(err.Error(), "\n", "; ")))
	if errors.As(err, new(options.UsageError)) {
		os.Exit(2)
	}
	os.Exit(1)
}

// signalCopyWindow is how long after a signal a second one counts as a copy of it: GNU timeout sends one to its child,
// and another to the group that the child is in.
const signalCopyWindow = time.Second

// obeySignals stops the program on the first signal. It exits on the second one, or when the stop takes too long.
func obeySignals(signals <-chan os.Signal, stop func(), exit func(why string)) {
	<-signals
	first := time.Now()
	late := time.AfterFunc(endTimeout, func() { exit("something hangs: it has not ended in " + endTimeout.String()) })
	defer late.Stop()
	stop()
	for range signals {
		if time.Since(first) >= signalCopyWindow {
			exit("cut short by a second signal")
			return
		}
	}
}

// lastWord writes a line to stderr, but waits only lastWordTime for it: stderr may be a full pipe, and the process must
// end.
func lastWord(text string) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		fmt.Fprintln(os.Stderr, "podcount:", text)
	}()
	select {
	case <-written:
	case <-time.After(lastWordTime):
	}
}

// Log is what podcount tells of itself: lines and numbers. Safe for concurrent use.
type Log struct {
	*slog.Logger
	*metrics.Registry
}

// newLog makes a log that writes to w, which must not block: see logging.Output.
func newLog(w io.Writer, o *options.Options) *Log {
	return &Log{Logger: slog.New(newLogHandler(w, o)), Registry: metrics.NewRegistry()}
}

func newLogHandler(w io.Writer, o *options.Options) slog.Handler {
	return logging.NewHandler(w, o.LogStyle, slog.Level(-o.Verbosity))
}

// newLogOutput makes the Output of the log itself, which reports there what it had to drop.
func newLogOutput(stderr io.Writer, o *options.Options) *logging.Output {
	return logging.NewOutput(stderr, outputLimit(o), func(missing int) []byte {
		var line bytes.Buffer
		log := slog.New(newLogHandler(&line, o))
		log.Warn("log lines were dropped, as stderr was not read, or failed", "lines", missing)
		return line.Bytes()
	})
}

// newPrintOutput makes the Output for what controllers print. What it had to drop is reported in the log.
func newPrintOutput(stdout io.Writer, o *options.Options, log *Log) *logging.Output {
	return logging.NewOutput(stdout, outputLimit(o), func(missing int) []byte {
		log.Warn("printed lines were dropped, as stdout was not read, or failed", "lines", missing)
		return nil
	})
}

// What -once prints is its product, and it ends: so more of it may wait, and for longer.
const (
	onceOutputLimit = 16 << 20    // bytes
	oncePatience    = time.Minute // at the end, for a reader that reads nothing
)

func outputLimit(o *options.Options) int {
	if o.Once {
		return onceOutputLimit
	}
	return logging.OutputLimit
}

// flush waits for the last lines, and returns an error if -once has lost lines that somebody asked it for.
func flush(ctx context.Context, o *options.Options, printed, logged *logging.Output) error {
	ctx, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	if !o.Once {
		stopWaiting()
	}
	printed.Close(ctx, oncePatience, flushTimeout) // first, as what it has lost is said in the log
	logged.Close(ctx, oncePatience, flushTimeout)
	lost := printed.Lost()
	if o.DryRun {
		lost += logged.Lost()
	}
	if o.Once && lost > 0 {
		return fmt.Errorf("-once: %d lines of its output were lost, as nobody read them", lost)
	}
	return nil
}

// run is the whole program but for signals and exit codes. It returns nil when ctx ends, once all is finished and sent.
// dial, for tests, stands for the network; nil is the real one.
func run(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer, dial kube.Dialer,
) error {
	o, err := parseFlags(args, stdout)
	if o == nil {
		return err
	}
	o.LogStyle = logging.StyleOf(o.LogFormat, stderr, getenv)
	logged := newLogOutput(stderr, o)
	log := newLog(logged, o)
	printed := newPrintOutput(stdout, o, log)
	err = runWith(ctx, o, getenv, log, logged, printed, dial)
	lost := flush(ctx, o, printed, logged)
	return cmp.Or(err, lost)
}

// runWith is run, once there are flags and a log.
func runWith(
	ctx context.Context, o *options.Options, getenv func(string) string,
	log *Log, logged, printed *logging.Output, dial kube.Dialer,
) error {
	cfg, err := kubeconfig.Load(ctx, kubeconfig.Options{
		Kubeconfig: o.Kubeconfig,
		Context:    o.Context,
		Master:     o.Master,
		Getenv:     getenv,
		Log:        log.Logger,
	})
	if err != nil && ctx.Err() != nil {
		return nil // asked to stop while it waited for a file
	}
	if err != nil {
		return options.UsageError{Err: err}
	}
	defer cfg.Close()
	client := newClient(o, cfg, dial, log)
	log.Info("podcount starts", "version", version, "server", cfg.Server.Redacted(), "from", cfg.Source)

	host, _ := os.Hostname()
	host = cmp.Or(host, "podcount")
	// Once stop has ended nothing new begins. Once sending has ended every request is cut.
	stop, end := context.WithCancelCause(ctx)
	defer end(nil)
	sending, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)

	m := newManager(o, client, log)
	m.logged, m.printed = logged, printed
	m.recorder = newRecorder(o, client, log, host)
	m.stop, m.fail, m.work = stop, end, grace(sending, stop, drainTimeout)
	if o.LeaderElect && !o.DryRun {
		m.election = leader.New(client, electionOptions(o, kubeconfig.OwnNamespace(ctx), host, log, func(err error) {
			end(err)
			cut(err)
		}))
		client.SetPermit(m.election)
	}
	m.setUp()
	if o.Listen != "" {
		server, err := m.serve()
		if err != nil {
			return err
		}
		defer server.Close()
	}

	if m.election != nil {
		retry.Sleep(stop, rand.N(time.Second)) // replicas that are started together should not ask together
	}
	resigned, resign := context.WithCancel(sending)
	elected := inBackground(func() { m.campaign(resigned) })
	recording, stopRecorder := context.WithCancel(sending)
	posting := grace(sending, recording, eventsTimeout)
	recorded := inBackground(func() { m.recorder.Run(posting, recording) })

	m.run()
	stopRecorder()
	m.awaitEnd("the Events that wait", recorded, posting)
	// The lease is given back last: until then no other replica writes. A lost one is not: then sending has ended.
	resign()
	releasing, cancel := context.WithTimeout(sending, releaseTimeout)
	defer cancel()
	m.awaitEnd("the release of the lease", elected, releasing)
	cut(nil)
	m.awaitEnd("connections", inBackground(client.Close), sending)
	log.Info("podcount stopped", "events_dropped", m.recorder.Dropped())
	if err := context.Cause(stop); err != context.Canceled {
		return err
	}
	return m.cutShort
}

// electionOptions returns the options of the election. own is the namespace that we run in; "" where we run in none.
func electionOptions(o *options.Options, own, host string, log *Log, onLost func(error)) leader.Options {
	return leader.Options{
		Namespace:     cmp.Or(o.LeaseNamespace, own, "kube-system"),
		Name:          o.LeaseName,
		Host:          host,
		LeaseDuration: o.LeaseDuration,
		RenewDeadline: o.RenewDeadline,
		RetryPeriod:   o.RetryPeriod,
		ReleaseLimit:  releaseTimeout,
		OnLost:        onLost,
		Log:           log.Logger,
	}
}

// newClient makes the client that all share. Each request is counted, and is a line at -v 6.
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

// newRecorder makes the recorder of Events. In a dry run it says them, at -v 2, as one goes with each label.
func newRecorder(o *options.Options, client *kube.Client, log *Log, host string) *events.Recorder {
	recorder := events.Options{
		Sink:     events.NewSink(client),
		Instance: host,
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

// campaign runs the election. Without one, this replica leads at once.
func (m *manager) campaign(resigned context.Context) {
	if m.election == nil {
		close(m.leading)
		return
	}
	m.election.Run(m.stop, resigned, func() { close(m.leading) })
}

// inBackground runs f in a goroutine of its own. The channel is closed when f has returned.
func inBackground(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// awaitEnd waits until something has ended. It should end with ctx; a bug in it must not keep the process, so podcount
// goes on without it hangTimeout later.
func (m *manager) awaitEnd(what string, ended <-chan struct{}, ctx context.Context) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	select {
	case <-ended:
	case <-time.After(hangTimeout):
		m.log.Warn("something hangs: podcount ends without it", "what", what, "running", m.running.names())
	}
}

// activities are the goroutines of a manager, by name: so that one that hangs can be named. Safe for concurrent use.
type activities struct {
	all     sync.WaitGroup
	mu      sync.Mutex // guards running
	running map[string]int
}

// begin runs f in a goroutine of its own.
func (a *activities) begin(name string, f func()) {
	a.count(name, 1)
	a.all.Go(func() {
		defer a.count(name, -1)
		f()
	})
}

func (a *activities) count(name string, by int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil {
		a.running = map[string]int{}
	}
	a.running[name] += by
	if a.running[name] == 0 {
		delete(a.running, name)
	}
}

// names returns what is running, in order.
func (a *activities) names() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(a.running)), ", ")
}

// grace returns a context that ends with ctx, or so long after stop.
func grace(ctx, stop context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(stop, func() { time.AfterFunc(d, cancel) })
	return ctx
}

// manager runs the controllers that are switched on, over caches that they share, while this replica leads.
type manager struct {
	options  *options.Options
	recorder *events.Recorder
	election *leader.Election // nil: none is asked for
	log      *Log
	logged   *logging.Output         // stderr
	printed  *logging.Output         // stdout
	stop     context.Context         // ended: shutdown has begun, and nothing new is
	fail     context.CancelCauseFunc // ends stop with an error
	work     context.Context         // ended: in-flight work must end
	leading  chan struct{}           // closed: this replica leads
	running  activities
	summary  sync.Once // summarize
	cutShort error     // a -once was stopped; by run
	started  time.Time
	caches   map[cache]bool // those that a controller watches, and
	active   []*Controller  // those that are on, by setUp
	pods     *Reflector[*Pod]
	nodes    *Reflector[*Node]
	counts   *Reflector[*Count]
}

// newManager makes the caches, for as little as can be asked for: whoever needs more of a kind says so before they run.
func newManager(o *options.Options, client *kube.Client, log *Log) *manager {
	m := &manager{
		options: o,
		log:     log,
		leading: make(chan struct{}),
		started: time.Now(),
		caches:  map[cache]bool{},
	}
	isProtobuf := o.Wire == "protobuf"
	pods := Kind[*Pod]{
		Name:         "Pod",
		API:          "/api/v1",
		Resource:     "pods",
		Namespace:    o.Namespace,
		Selector:     o.PodSelector,
		Fields:       o.FieldSelector,
		Protobuf:     isProtobuf,
		MetadataOnly: true,
		New:          func() *Pod { return new(Pod) },
	}
	nodes := Kind[*Node]{
		Name:         "Node",
		API:          "/api/v1",
		Resource:     "nodes",
		Patches:      "podcount_label_patches_total",
		Protobuf:     isProtobuf,
		MetadataOnly: true,
		New:          func() *Node { return new(Node) },
	}
	counts := Kind[*Count]{
		Name:      "Count",
		API:       "/apis/demo.mark8s.io/v1",
		Resource:  "counts",
		Namespace: o.Namespace,
		Patches:   "podcount_status_patches_total",
		Lenient:   true,
		New:       func() *Count { return new(Count) },
	}
	m.pods = newReflector(o, client, log, pods, NewStore(func(p *Pod) string { return p.NodeName }))
	m.nodes = newReflector(o, client, log, nodes, NewStore[*Node]())
	m.counts = newReflector(o, client, log, counts, NewStore((*Count).podName))
	// What an alert looks for begins at 0: Prometheus sees no increase in a counter whose first value is 1.
	for _, result := range []string{"failed", "stripped"} {
		log.Set(0, "podcount_label_patches_total", result)
		log.Set(0, "podcount_status_patches_total", result)
	}
	log.Set(0, "podcount_events_total", "dropped")
	return m
}

// newReflector makes a reflector by the flags.
func newReflector[T Object[T]](o *options.Options, client *kube.Client, log *Log, kind Kind[T], store *Store[T]) *Reflector[T] {
	return NewReflector(ReflectorOptions[T]{
		Client:  client,
		Kind:    kind,
		Store:   store,
		Log:     log.Logger,
		Metrics: log.Registry,
		Once:    o.Once,
	})
}

// Controller is one of podcount's jobs: keys come, from changes of what it watches and with time, and for each
// Reconcile makes the world as it should be. Its own queue, workers and retries are the manager's to see to.
type Controller struct {
	Name, About string
	Off         bool // unless -controllers names it
	// Setup is called before anything runs: it sets what is below and, with On, what is watched, and tells the caches'
	// kinds its needs.
	Setup func(m *manager, c *Controller)
	// Reconcile has never two calls at a time with the same key. Where it fails it is called again, after a backoff.
	Reconcile func(ctx context.Context, key Key) (Result, error)
	// Urgent says which keys go before all others that wait for a worker. Setup sets it; nil: none do. The queue calls
	// it, so it must be quick, and must not call the queue.
	Urgent func(Key) bool
	// Count is for the last line of -once and -dry-run; nil: there is none. It returns what the controller writes to
	// ("" where there can be none), how many there are, and how many of them are not right now.
	Count func() (what string, all, wrong int)
	Tick  func() []Key // the keys to begin with, and to look at again each interval; none, unless Setup sets it

	caches  map[cache]bool
	begin   []func() // of On
	queue   *Queue[Key]
	outage  *logging.Outage // of reconciles, by key
	once    bool            // each object is written once at most
	tally   *tally
	pace    *ratelimit.Bucket // of writes
	resting *sync.Map         // objects, by uid, that were written a moment ago
	panics  *panics
	pending *atomic.Int64 // objects with a change of which no keys are known yet: see On
}

// tally is what a -once has done. Otherwise nothing is counted, as there is no end to count up to.
type tally struct {
	hasBegun  atomic.Bool
	hasTicked atomic.Bool  // all keys are added
	objects   atomic.Int64 // how many there were at the beginning
	todo      keySet       // the keys that were added
	done      keySet       // of these, the ones that were reconciled
	written   keySet
}

// add adds keys to the queue.
func (c *Controller) add(keys ...Key) {
	if c.once {
		for _, key := range keys {
			c.tally.todo.add(key)
		}
	}
	c.queue.Add(keys...)
}

// noteWritten notes that a write has succeeded, and that the server has kept it.
func (c *Controller) noteWritten(key Key) {
	c.outage.Worked(key.String())
	if c.once {
		c.tally.written.add(key)
		c.tally.done.add(key)
	}
}

// rest leaves an object that was written alone for so long; then it is looked at again. With -once it rests for good:
// what changes meanwhile is for the next run.
func (c *Controller) rest(m *Meta, d time.Duration) {
	c.resting.Store(m.UID(), true)
	if c.once {
		return
	}
	time.AfterFunc(d, func() {
		c.resting.Delete(m.UID())
		c.queue.Add(m.Key())
	})
}

// keySet is a set of keys. Safe for concurrent use.
type keySet struct {
	mu   sync.Mutex // guards keys
	keys map[Key]bool
}

func (s *keySet) add(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[Key]bool{}
	}
	s.keys[key] = true
}

func (s *keySet) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}

// cache is a Reflector of whatever kind.
type cache interface {
	Run(context.Context) error
	Synced() <-chan struct{}
	State() (kind string, isReady bool, state map[string]any)
}

// controllers is all that podcount can do. One more is one more entry.
var controllers = []Controller{
	{Name: "pod-count", About: "writes the numbers of pods to labels of nodes", Setup: setUpPodCount},
	{Name: "count", About: "says in the status of each Count whether as many pods of a name are there as it wants", Setup: setUpCount},
	{Name: "pod-printer", About: "prints the pods that come, change and go", Off: true, Setup: setUpPodPrinter},
}

// parseFlags reads the command line: see options.Parse.
func parseFlags(args []string, stdout io.Writer) (*options.Options, error) {
	program := options.Program{Version: version, PodFields: podFields}
	for _, c := range controllers {
		program.Controllers = append(program.Controllers, options.Controller{Name: c.Name, About: c.About, Off: c.Off})
	}
	return options.Parse(args, stdout, program)
}

// On makes c watch a cache: keys says which keys a change there adds. It is called from several goroutines, at first
// with each object that is there as no change of it. Where it panics it is called again later, with the same change.
func On[T Object[T]](c *Controller, r *Reflector[T], keys func(Delta[T]) []Key) {
	c.caches[r] = true
	var begun atomic.Bool
	add := func(d Delta[T]) (err error) {
		defer c.survive(r.log, &err)
		c.add(keys(d)...)
		return nil
	}
	pending := &pendingChanges[T]{
		read:    add,
		stop:    c.queue.ctx,
		log:     r.log,
		left:    c.pending,
		waiting: map[Key]*pendingObject[T]{},
	}
	handle := func(d Delta[T]) {
		if !begun.Load() || r.once && d.Old != d.New {
			return
		}
		if err := add(d); err != nil {
			pending.keep(d)
		}
	}
	r.handlers = append(r.handlers, handle)
	c.begin = append(c.begin, func() {
		begun.Store(true)
		for _, obj := range r.All() {
			handle(Delta[T]{obj, obj})
		}
	})
}

const (
	pendingLimit     = 10000       // objects whose changes wait to be read again
	pendingPerObject = 8           // changes of one object that wait
	pendingPause     = time.Second // after the first failure, doubled up to
	pendingMaxPause  = time.Minute // this
)

// pendingChanges are changes of which a controller could not say the keys, as its function panicked. Each object's are
// tried again after a backoff of its own, until each of them has been read. That they are old does no harm: keys only
// say where to look.
type pendingChanges[T Object[T]] struct {
	read func(Delta[T]) error
	stop context.Context
	log  *slog.Logger
	left *atomic.Int64 // Controller.pending
	full sync.Once     // that changes are lost, is said

	mu      sync.Mutex // guards all below
	waiting map[Key]*pendingObject[T]
}

// pendingObject is the changes of one object, the oldest first.
type pendingObject[T Object[T]] struct {
	changes  []Delta[T]
	failures int
}

// keep has a change read again later. What is kept is limited: of one object the newest changes and the first one are,
// and of objects so many.
func (u *pendingChanges[T]) keep(d Delta[T]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := d.Key()
	object := u.waiting[key]
	if object == nil && len(u.waiting) >= pendingLimit {
		u.full.Do(func() {
			u.log.Error("a controller panics so often that changes are lost", "object", key, "others_wait", pendingLimit)
		})
		return
	}
	if object == nil {
		object = &pendingObject[T]{}
		u.waiting[key] = object
		u.left.Add(1)
		u.tryLaterLocked(key, object)
	}
	object.add(d)
}

// add adds changes. Of more than pendingPerObject it keeps the first one and the newest.
func (o *pendingObject[T]) add(changes ...Delta[T]) {
	o.changes = append(o.changes, changes...)
	if surplus := len(o.changes) - pendingPerObject; surplus > 0 {
		o.changes = slices.Delete(o.changes, 1, 1+surplus)
	}
}

func (u *pendingChanges[T]) tryLaterLocked(key Key, object *pendingObject[T]) {
	object.failures++
	time.AfterFunc(retry.Backoff(object.failures, pendingPause, pendingMaxPause), func() { u.try(key, object) })
}

// try reads the changes of one object again, and keeps those that still cannot be read.
func (u *pendingChanges[T]) try(key Key, object *pendingObject[T]) {
	if u.stop.Err() != nil {
		return
	}
	u.mu.Lock()
	changes := object.changes
	object.changes = nil
	u.mu.Unlock()
	changes = slices.DeleteFunc(changes, func(d Delta[T]) bool { return u.read(d) == nil })

	u.mu.Lock()
	defer u.mu.Unlock()
	newer := object.changes
	object.changes = changes
	object.add(newer...)
	if len(object.changes) == 0 {
		delete(u.waiting, key)
		u.left.Add(-1)
		return
	}
	u.tryLaterLocked(key, object)
}

// panics says that a controller panics: the first time with its stack, and from then on once a minute at most.
type panics struct {
	mu      sync.Mutex // guards all below
	isKnown bool       // the first has been said
	isQuiet bool       // less than a minute ago one was said
	unsaid  int        // panics since
	last    error      // the newest of them
}

const panicPause = time.Minute

// note is called while the panic is under way: so the stack is that of its place.
func (p *panics) note(log *slog.Logger, controller string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isKnown {
		p.isKnown = true
		log.Error("a controller panics", "controller", controller, "err", err, "stack", string(debug.Stack()))
		p.restLocked(log, controller)
		return
	}
	p.unsaid++
	p.last = err
	if !p.isQuiet {
		p.sayMoreLocked(log, controller)
	}
}

func (p *panics) sayMoreLocked(log *slog.Logger, controller string) {
	log.Error("a controller panics again", "controller", controller, "err", p.last, "times", p.unsaid)
	p.unsaid = 0
	p.restLocked(log, controller)
}

// restLocked says nothing for a minute, and then what there was meanwhile.
func (p *panics) restLocked(log *slog.Logger, controller string) {
	p.isQuiet = true
	time.AfterFunc(panicPause, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.isQuiet = false
		if p.unsaid > 0 {
			p.sayMoreLocked(log, controller)
		}
	})
}

// survive, deferred, makes a panic an error: a controller's fault takes nobody else down.
func (c *Controller) survive(log *slog.Logger, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p)
		c.panics.note(log, c.Name, *err)
	}
}

// setUp makes ready the controllers that are on.
func (m *manager) setUp() {
	for _, c := range controllers {
		if m.options.IsOn(c.Name) {
			c.pace = ratelimit.NewBucket(m.options.QPS, m.options.Burst)
			c.resting = new(sync.Map)
			c.panics = new(panics)
			c.pending = new(atomic.Int64)
			c.caches = map[cache]bool{}
			c.Tick = func() []Key { return nil }
			isUrgent := func(key Key) bool { return c.isUrgent(m.log.Logger, key) }
			c.queue = NewQueue(m.stop, QueueOptions[Key]{
				Name:       c.Name,
				Backoff:    5 * time.Millisecond,
				MaxBackoff: 30 * time.Second,
				IsUrgent:   isUrgent,
				Log:        m.log.Logger,
				Metrics:    m.log.Registry,
			})
			c.outage = logging.NewOutage(m.log.Logger, c.Name, "writing again", "controller", c.Name)
			c.once = m.options.Once
			c.tally = new(tally)
			if m.options.DryRun {
				c.pace = ratelimit.Unlimited() // nothing is sent
			}
			c.Setup(m, &c)
			maps.Copy(m.caches, c.caches)
			m.active = append(m.active, &c)
		}
	}
}

// isUrgent is Urgent, where there is one.
func (c *Controller) isUrgent(log *slog.Logger, key Key) (isUrgent bool) {
	if c.Urgent == nil {
		return false
	}
	defer c.survive(log, new(error))
	return c.Urgent(key)
}

// run runs everything until stop, and what is in hands is finished.
func (m *manager) run() {
	var controlling sync.WaitGroup
	for i, c := range m.active {
		pause := time.Duration(i) * (startPause/2 + rand.N(startPause/2))
		controlling.Add(1)
		m.running.begin("controller "+c.Name, func() {
			defer controlling.Done()
			m.control(c, pause)
		})
	}
	for cache := range m.caches { // each runs once, however many watch it
		kind, _, _ := cache.State()
		m.running.begin("watch of "+kind, func() {
			if err := cache.Run(m.stop); err != nil {
				m.fail(options.UsageError{Err: err})
			}
		})
	}
	if m.options.Once {
		defer time.AfterFunc(min(onceListTime, m.options.OnceTimeout), m.failUnlessComplete).Stop()
		defer time.AfterFunc(m.options.OnceTimeout, func() { m.endOnce(" after " + m.options.OnceTimeout.String()) }).Stop()
	}
	select {
	case <-inBackground(controlling.Wait): // with -once, when all is done
		m.endOnce("")
	case <-m.stop.Done():
		m.summary.Do(m.summarize)
		if m.options.Once && !m.isAllDone() {
			m.cutShort = fmt.Errorf("%s: stopped before all was done", m.onceFlag())
		}
	}
	m.fail(nil)
	m.awaitEnd("a controller, or a watch", inBackground(m.running.all.Wait), m.work)
	for _, c := range m.active {
		c.outage.Stop()
	}
}

// isAllDone reports whether a -once has nothing left to do.
func (m *manager) isAllDone() bool {
	for _, c := range m.active {
		isDone := c.tally.todo.size() == c.tally.done.size() && c.pending.Load() == 0
		if !c.tally.hasTicked.Load() || !isDone {
			return false
		}
	}
	return true
}

// failUnlessComplete ends a -once that still lacks a complete list.
func (m *manager) failUnlessComplete() {
	_, waits := m.state()
	if len(waits) > 0 {
		after := min(onceListTime, m.options.OnceTimeout)
		m.fail(fmt.Errorf("%s: after %v there is no complete list of %s",
			m.onceFlag(), after, strings.Join(waits, ", ")))
	}
}

// onceFlag is the flag that asks for an end.
func (m *manager) onceFlag() string {
	if m.options.Prune {
		return "-prune"
	}
	return "-once"
}

// endOnce ends a -once, with an error that names the objects that are not right yet.
func (m *manager) endOnce(after string) {
	m.summary.Do(m.summarize)
	var left []string
	for _, c := range m.active {
		if names := c.left(); names != "" {
			left = append(left, names)
		}
	}
	if len(left) > 0 {
		m.fail(fmt.Errorf("%s: %s%s: the log says why", m.onceFlag(), strings.Join(left, "; "), after))
	}
}

// left names what a controller has not made right, for people; "" where there is nothing.
func (c *Controller) left() string {
	const few = 10
	keys := c.queue.Left()
	pending := int(c.pending.Load())
	if len(keys)+pending == 0 {
		return ""
	}
	var names []string
	for _, key := range keys[:min(few, len(keys))] {
		names = append(names, key.String())
	}
	if more := len(keys) - len(names) + pending; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%s could not make %s right (%s)",
		c.Name, counted(len(keys)+pending, "object"), strings.Join(names, ", "))
}

// counted is a number of things: 1 node, 2 nodes.
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// summarize says in a line for each controller what came of a -once, a -prune or a -dry-run.
func (m *manager) summarize() {
	if !m.options.Once && !m.options.DryRun {
		return
	}
	for _, c := range m.active {
		if !c.tally.hasBegun.Load() {
			continue
		}
		if what, all, wrong := m.count(c); what != "" {
			m.log.Info(fmt.Sprintf("%s, in %.1f s", m.outcome(c, what, all, wrong), time.Since(m.started).Seconds()))
		}
	}
}

// count asks a controller for its numbers, if it has any.
func (m *manager) count(c *Controller) (what string, all, wrong int) {
	if c.Count == nil {
		return "", 0, 0
	}
	defer c.survive(m.log.Logger, new(error))
	return c.Count()
}

// outcome is the numbers of summarize. Those of a -once are about the objects with which it began.
func (m *manager) outcome(c *Controller, what string, all, wrong int) string {
	if m.options.DryRun {
		return fmt.Sprintf("%s: %d would be written, %d right, 0 failed", counted(all, what), wrong, all-wrong)
	}
	objects := int(c.tally.objects.Load())
	written := c.tally.written.size()
	failed := c.outage.Failing()
	notDone := max(0, c.tally.todo.size()-c.tally.done.size()-failed)
	right := max(0, objects-written-failed-notDone)
	text := fmt.Sprintf("%s: %d written, %d right, %d failed", counted(objects, what), written, right, failed)
	if notDone > 0 {
		text += fmt.Sprintf(", %d not done", notDone)
	}
	return text
}

// control runs one controller once its caches are complete (half a list makes a wrong label) and we lead; with -once,
// until all is done.
func (m *manager) control(c *Controller, pause time.Duration) {
	for cache := range c.caches {
		await(m, cache.Synced())
	}
	if await(m, m.leading); retry.Sleep(m.stop, pause) != nil {
		return
	}
	m.log.Info("caches are complete, work begins", "controller", c.Name)
	if m.options.Once {
		_, all, _ := m.count(c)
		c.tally.objects.Store(int64(all))
	}
	c.tally.hasBegun.Store(true)
	for _, begin := range c.begin {
		begin()
	}
	for range m.options.Workers {
		m.running.begin("worker of "+c.Name, func() { m.runWorker(c) })
	}
	if m.options.Once {
		m.tickOnce(c)
		c.tally.hasTicked.Store(true)
		m.awaitDone(c)
		return
	}
	m.tick(c)
	ticker := time.NewTicker(m.options.Interval)
	defer ticker.Stop()
	for m.stop.Err() == nil {
		await(m, ticker.C)
		m.tick(c)
	}
}

// runWorker reconciles keys until the queue ends.
func (m *manager) runWorker(c *Controller) {
	for key, ok := c.queue.Get(); ok; key, ok = c.queue.Get() {
		result, err := m.try(c, key)
		if err != nil {
			c.outage.Failed(key.String(), "cannot reconcile", kube.PauseBetweenComplaints(err), "key", key, "err", err)
		} else if m.stop.Err() == nil { // else it may not have been tried
			c.outage.Forget(key.String())
			if c.once {
				c.tally.done.add(key)
			}
		}
		result.RetryAfter = max(result.RetryAfter, kube.RetryAfter(err))
		c.queue.Done(key, result, err)
	}
}

// tick adds the keys that the controller names. The next tick makes good for one that panics.
func (m *manager) tick(c *Controller) (err error) {
	defer c.survive(m.log.Logger, &err)
	c.add(c.Tick()...)
	return nil
}

// tickOnce is the one tick of a -once, which is tried again for a while.
func (m *manager) tickOnce(c *Controller) {
	const tries = 5
	err := m.tick(c)
	for try := 1; err != nil && try < tries; try++ {
		if retry.Sleep(m.stop, retry.Backoff(try, pendingPause, pendingMaxPause)) != nil {
			return
		}
		err = m.tick(c)
	}
	if err != nil {
		m.fail(fmt.Errorf("%s: %s cannot say what is to be done: %w", m.onceFlag(), c.Name, err))
	}
}

// awaitDone waits until a -once has done what it can: what is left has failed too often.
func (m *manager) awaitDone(c *Controller) {
	start := time.Now()
	for retry.Sleep(m.stop, time.Second/50) == nil {
		// Asked first: what is pending no more is in the queue.
		keysMayCome := c.pending.Load() > 0 && time.Since(start) < onceKeysTime
		if c.queue.LeftToTry(onceTries) == 0 && !keysMayCome {
			return
		}
	}
}

// state returns what /debug/state says, and which caches are not complete. To gather it sets the gauges of the caches
// and queues.
func (m *manager) state() (s map[string]any, waits []string) {
	caches := map[string]any{}
	for cache := range m.caches {
		kind, isReady, state := cache.State()
		caches[kind] = state
		if !isReady {
			waits = append(waits, kind)
		}
	}
	slices.Sort(waits)
	queues := map[string]any{}
	for _, c := range m.active {
		queues[c.Name] = c.queue.State()
	}
	s = map[string]any{
		"version":     version,
		"upSeconds":   time.Since(m.started).Seconds(),
		"caches":      caches,
		"controllers": queues,
		"events":      map[string]any{"waiting": m.recorder.Waiting(), "dropped": m.recorder.Dropped()},
	}
	if m.election != nil {
		leads := m.election.MayWrite() == nil
		path, identity := m.election.Lease()
		s["lease"] = map[string]any{"path": path, "identity": identity, "isOurs": leads}
	}
	return s, waits
}

// gather sets the gauges that are not kept up to date as things happen. Those of what is gone, or not there yet, it
// removes: a 0 would say that nothing is there, where nobody knows.
func (m *manager) gather() {
	m.state()
	if hasEnded(m.pods.Synced()) {
		m.log.Set(float64(m.pods.Len()), "podcount_pods")
	} else {
		m.log.Remove("podcount_pods")
	}
	for _, c := range m.active {
		if !m.hasBegun(c) {
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
	m.log.Set(float64(m.logged.Lost()), "podcount_lines_dropped_total", "stderr")
	m.log.Set(float64(m.printed.Lost()), "podcount_lines_dropped_total", "stdout")
	m.log.Set(1, "podcount_build_info", version, runtime.Version())
	metrics.SetProcess(m.log.Registry, m.started)
}

// hasBegun reports whether control has started c's workers, or is about to.
func (m *manager) hasBegun(c *Controller) bool {
	for cache := range c.caches {
		if !hasEnded(cache.Synced()) {
			return false
		}
	}
	return hasEnded(m.leading)
}

// hasEnded reports whether a channel, to which nothing is sent, is closed.
func hasEnded(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// stuck says which controllers have not moved for so long that they hang; nothing where all is well.
func (m *manager) stuck() (what []string) {
	for _, c := range m.active {
		hang := ""
		asked := inBackground(func() { hang = c.queue.Stuck(m.options.StuckAfter()) })
		select {
		case <-asked:
		case <-time.After(hangTimeout):
			what = append(what, c.Name+": its queue does not answer")
			continue
		}
		if hang != "" {
			what = append(what, c.Name+": "+hang)
		}
	}
	return what
}

// index is what -listen answers for /.
const index = `podcount serves here:

/livez        200 while the workers work, else 503 and which do not; /healthz is the same
/readyz       200 once all caches are complete, else 503 and which are not
/metrics      numbers, for Prometheus
/debug/state  the caches, the queues and the lease, in JSON, for people
`

// handler answers kubelet's probes, Prometheus, and people.
func (m *manager) handler() http.Handler {
	mux := http.NewServeMux()
	live := func(w http.ResponseWriter, _ *http.Request) {
		answerProbe(w, "does not move: ", m.stuck())
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, index)
	})
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /healthz", live)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		_, waits := m.state()
		answerProbe(w, "there is no complete list yet of: ", waits)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		m.gather()
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		io.WriteString(w, m.log.Text())
	})
	mux.HandleFunc("GET /debug/state", func(w http.ResponseWriter, _ *http.Request) {
		state, _ := m.state()
		text, _ := json.MarshalIndent(state, "", "  ")
		w.Header().Set("Content-Type", "application/json")
		w.Write(append(text, '\n'))
	})
	return mux
}

// serve answers on -listen. The caller closes the server.
func (m *manager) serve() (*listen.Server, error) {
	server, err := listen.Listen(m.stop, m.options.Listen, m.handler(), m.log.Logger)
	if err != nil {
		return nil, fmt.Errorf("-listen %s: %w", m.options.Listen, err)
	}
	m.log.Info("listening", "on", server.Addr())
	go func() {
		if err := server.Serve(); err != nil {
			m.fail(fmt.Errorf("-listen %s: %w", m.options.Listen, err))
		}
	}()
	return server, nil
}

// answerProbe answers ok, or 503 with the problems.
func answerProbe(w http.ResponseWriter, heading string, problems []string) {
	if len(problems) > 0 {
		http.Error(w, heading+strings.Join(problems, ", "), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// await waits for a word from c, or until no new work is to begin.
func await[T any](m *manager, c <-chan T) {
	select {
	case <-c:
	case <-m.stop.Done():
	}
}

func (m *manager) try(c *Controller, key Key) (result Result, err error) {
	defer c.survive(m.log.Logger, &err)
	return c.Reconcile(m.work, key)
}

// podCount keeps the labels of nodes equal to the numbers of pods.
type podCount struct {
	*manager
	*Controller
	toldAt   time.Time   // when theTotal was last passed on: its reconcile's alone
	warned   atomic.Bool // that no node gets the total
	stripped stripped[nodeLabel]
	foretold sync.Map // of a dry run: by node, what was last said that would be written
}

// theTotal is the key that is added when the number of all pods has changed: it stands for all nodes that show it.
var theTotal = Key{Name: "(total)"} // no node can be called so

func setUpPodCount(m *manager, c *Controller) {
	p := &podCount{manager: m, Controller: c}
	m.pods.kind.MetadataOnly = m.pods.kind.MetadataOnly && m.options.NodeLabel == "" // a pod's node is in its spec
	m.nodes.kind.Keep = append(m.nodes.kind.Keep, m.options.TotalLabel, m.options.NodeLabel)
	m.nodes.kind.Keep = append(m.nodes.kind.Keep, m.options.TotalNodes.Keys()...)
	On(c, m.nodes, p.nodeChanged)
	if !m.options.Prune {
		On(c, m.pods, p.podChanged)
	}
	c.Reconcile = p.reconcile
	c.Tick = p.tick
	c.Count = p.count
	c.Urgent = p.concernsTotal
}

// concernsTotal reports whether a key is the total's, or that of a node whose label with the total is wrong. It goes
// first, because -qps may make a thousand labels with nodes' own numbers take a minute.
func (p *podCount) concernsTotal(key Key) bool {
	if key == theTotal {
		return true
	}
	_, wrong := p.wrong(key)
	_, isWrong := wrong[p.options.TotalLabel]
	return isWrong
}

// tick returns the nodes that are not right, those that lack the total first: -qps may keep the rest waiting.
func (p *podCount) tick() []Key {
	var lack, others []Key
	isShown := p.options.Prune
	for _, n := range p.nodes.All() {
		isShown = isShown || p.options.TotalNodes.Matches(n.Label)
		if _, wrong := p.wrong(n.Key()); wrong[p.options.TotalLabel] != nil {
			lack = append(lack, n.Key())
		} else if len(wrong) > 0 {
			others = append(others, n.Key())
		}
	}
	if !isShown && !p.warned.Swap(true) {
		p.log.Warn("no node gets the total: none matches -total-nodes "+
			"(a managed cluster hides its control plane; -total-nodes '' means every node)", "label", p.options.TotalLabel)
	}
	return append(lack, others...)
}

// count returns how many nodes there are, and how many have a label that is not right.
func (p *podCount) count() (what string, all, wrong int) {
	nodes := p.nodes.All()
	for _, n := range nodes {
		if _, labels := p.wrong(n.Key()); len(labels) > 0 {
			wrong++
		}
	}
	return "node", len(nodes), wrong
}

// podChanged turns a pod's change into keys, and says it of a new pod. What is there at the start is for tick.
func (p *podCount) podChanged(d Delta[*Pod]) (keys []Key) {
	if d.Old == nil || d.New == nil {
		keys = append(keys, theTotal)
	}
	for _, pod := range []*Pod{d.Old, d.New} {
		if p.options.NodeLabel != "" && d.Old != d.New && pod != nil && pod.NodeName != "" {
			keys = append(keys, Key{Name: pod.NodeName})
		}
	}
	if d.Old == nil && p.options.PodEvents {
		p.recorder.Event(p.pods.Reference(d.New), "Normal", "PodCounted", fmt.Sprintf("pod count is %d", p.pods.Len()))
	}
	return keys
}

func (p *podCount) nodeChanged(d Delta[*Node]) []Key {
	if d.Old == nil {
		return []Key{d.Key()}
	} else if d.New != nil && d.New != d.Old {
		// By another podcount perhaps, that has heard of a pod of which we are about to hear.
		p.queue.AddAfter(d.Key(), min(p.options.Interval, time.Second))
	}
	return nil
}

// reconcile makes one node's labels right, or passes the total's change on to the nodes that show it.
func (p *podCount) reconcile(ctx context.Context, key Key) (Result, error) {
	if key == theTotal {
		return p.passTotalOn(), nil
	}
	node, wrong := p.due(key)
	if len(wrong) == 0 {
		return Result{}, nil
	}
	if _, rests := p.resting.Load(node.UID()); rests {
		return Result{}, nil
	}
	if p.pace.Wait(p.stop) != nil {
		return Result{}, nil // the next process makes it right
	}
	node, wrong = p.due(key) // again, as it may have changed while we waited
	if len(wrong) == 0 {
		return Result{}, nil
	}
	if p.options.DryRun {
		p.foretell(node, wrong)
		return Result{}, nil
	}
	return Result{}, p.write(ctx, node, wrong)
}

// passTotalOn adds the nodes that show the total. A flood of pods is not to go through all nodes for each of them.
func (p *podCount) passTotalOn() Result {
	rest := min(p.options.Interval, time.Second) - time.Since(p.toldAt)
	if rest > 0 {
		return Result{RequeueAfter: rest}
	}
	p.toldAt = time.Now()
	p.queue.Add(p.tick()...)
	return Result{}
}

// due returns the node and what is to be written to it: its wrong labels, but for those that the server has dropped not
// long ago.
func (p *podCount) due(key Key) (node *Node, labels map[string]any) {
	node, labels = p.wrong(key)
	if node == nil {
		p.stripped.forgetAll(func(which nodeLabel) bool { return which.node == key })
		p.foretold.Delete(key)
		return nil, nil
	}
	for _, label := range []string{p.options.TotalLabel, p.options.NodeLabel} {
		if _, isWrong := labels[label]; !isWrong && node.label(label) != nil {
			p.noteKept(nodeLabel{key, node.UID(), label})
		}
	}
	maps.DeleteFunc(labels, func(label string, _ any) bool {
		return p.stripped.restLeft(nodeLabel{key, node.UID(), label}) > 0
	})
	if p.options.DryRun && len(labels) == 0 {
		p.foretold.Delete(key)
	}
	return node, labels
}

// write makes the labels of a node right, by one patch. Afterwards the node rests.
func (p *podCount) write(ctx context.Context, node *Node, wrong map[string]any) error {
	patch := map[string]any{"metadata": map[string]any{"labels": wrong}}
	now, err := p.nodes.Patch(ctx, node, "", patch, func(now *Node) bool { return hasLabels(now, wrong) })
	if err != nil && (p.once || !errors.Is(err, errStripped)) {
		return err // -once has no time to try rarely
	}
	p.rest(&node.Meta, p.options.Interval)
	if now == nil {
		return nil // it is gone, which the watch has not told yet
	}
	for _, c := range p.changes(node, wrong) {
		if now.label(c.Field) != wrong[c.Field] {
			p.noteStripped(nodeLabel{node.Key(), node.UID(), c.Field}, err)
			continue
		}
		p.noteKept(nodeLabel{node.Key(), node.UID(), c.Field})
		p.log.Info("label written", c.Attr())
		if !p.options.Prune {
			p.recorder.Event(p.nodes.Reference(node), "Normal", "PodCountChanged", p.news(c))
		}
	}
	if err == nil {
		p.noteWritten(node.Key())
	}
	return nil
}

// nodeLabel is a label of a node.
type nodeLabel struct {
	node  Key
	uid   string // of the node: one that has its name later is another
	label string
}

// noteStripped has a label rest that the server has dropped, and says so once while that is so anywhere.
func (p *podCount) noteStripped(which nodeLabel, err error) {
	if isFirst := p.stripped.note(which); isFirst {
		p.log.Warn("labels do not stay: they are tried rarely", "first", which.node, "label", which.label,
			"pause", strippedRest, "err", err)
	}
	p.queue.AddAfter(which.node, strippedRest)
}

// noteKept notes that a label is there and right. If it is the last of those that did not stay, that is said.
func (p *podCount) noteKept(which nodeLabel) {
	if isLast := p.stripped.forget(which); isLast {
		p.log.Info("labels stay again", "last", which.node, "label", which.label)
	}
}

// strippedRest is how long what the server drops is left alone: a write costs it as much as one that works, and goes to
// everyone that watches.
const strippedRest = 10 * time.Minute

// stripped is what the server has accepted and dropped, so that it is tried again rarely. Safe for concurrent use.
type stripped[K comparable] struct {
	mu    sync.Mutex // guards until
	until map[K]time.Time
}

// note has something rest from now on, and reports whether it is the first that does not stay.
func (s *stripped[K]) note(what K) (isFirst bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What is not written any more, as nobody wants it, is not tried again, and so never found to stay.
	maps.DeleteFunc(s.until, func(_ K, until time.Time) bool { return time.Since(until) > 2*strippedRest })
	isFirst = len(s.until) == 0
	if s.until == nil {
		s.until = map[K]time.Time{}
	}
	s.until[what] = time.Now().Add(strippedRest)
	return isFirst
}

// restLeft returns how long something is not to be written yet; 0 or less: it may be.
func (s *stripped[K]) restLeft(what K) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, isKnown := s.until[what]
	if !isKnown {
		return 0
	}
	return time.Until(until)
}

// forgetAll forgets what is gone.
func (s *stripped[K]) forgetAll(isGone func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.until, func(what K, _ time.Time) bool { return isGone(what) })
}

// forget notes that something stays, or is gone. It reports whether it was the last that did not stay.
func (s *stripped[K]) forget(what K) (isLast bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, isKnown := s.until[what]; !isKnown {
		return false
	}
	delete(s.until, what)
	return len(s.until) == 0
}

// hasLabels reports whether a node has the labels as they were written.
func hasLabels(node *Node, written map[string]any) bool {
	for label, want := range written {
		if node.label(label) != want {
			return false
		}
	}
	return true
}

// foretell says what a dry run would write to a node, unless it has said that already.
func (p *podCount) foretell(node *Node, wrong map[string]any) {
	p.rest(&node.Meta, p.options.Interval)
	changes := p.changes(node, wrong)
	said, _ := p.foretold.Swap(node.Key(), fmt.Sprint(changes))
	if said == fmt.Sprint(changes) {
		return
	}
	for _, c := range changes {
		p.log.Info(fmt.Sprintf("would write node %s: %s", node.Key(), c))
		if !p.options.Prune {
			p.recorder.Event(p.nodes.Reference(node), "Normal", "PodCountChanged", p.news(c))
		}
	}
}

// changes are what a write of these labels changes, in the order of their names.
func (p *podCount) changes(node *Node, labels map[string]any) (changes []logging.Change) {
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
			From:   textOf(node.label(label)),
			To:     textOf(labels[label]),
		})
	}
	return changes
}

// textOf is a label as lines and Events show it.
func textOf(label any) string {
	if label == nil {
		return "none"
	}
	return fmt.Sprint(label)
}

// news is what an Event says of a change.
func (p *podCount) news(c logging.Change) string {
	what := "pod count"
	if c.Field == p.options.NodeLabel {
		what = "pod count of this node"
	}
	return fmt.Sprintf("%s changed from %s to %s", what, c.From, c.To)
}

// wrong returns the node and, by the whole caches as they are now, what its wrong labels should be: texts, or nil for
// none.
func (p *podCount) wrong(key Key) (node *Node, labels map[string]any) {
	if node = p.nodes.Get(key); node == nil {
		return nil, nil
	}
	labels = map[string]any{p.options.TotalLabel: nil, p.options.NodeLabel: nil}
	if !p.options.Prune && p.options.TotalNodes.Matches(node.Label) {
		labels[p.options.TotalLabel] = strconv.Itoa(p.pods.Len())
	}
	if !p.options.Prune {
		labels[p.options.NodeLabel] = strconv.Itoa(p.pods.Count(key.Name))
	}
	maps.DeleteFunc(labels, func(label string, want any) bool {
		isOff := label == "" // no -node-label is given
		return isOff || node.label(label) == want
	})
	return node, labels
}

// countControl keeps the status of Counts right: whether as many pods of a name are there as are wanted.
type countControl struct {
	*manager
	*Controller
	said     sync.Map                 // by key of a Count: the countNews that events have told
	foretold sync.Map                 // of a dry run: by key, what was last said that would be written
	stripped stripped[Key]            // the Counts whose status the server has dropped
	stays    atomic.Pointer[presence] // the resource whose schema keeps a status, as far as we know
	lastLost atomic.Pointer[Key]      // the Count whose status was dropped last; nil: one has stayed since
	pause    atomic.Pointer[statusPause]
}

// statusPause is when statuses are written again, of a resource of which none has stayed so far: its schema drops them.
type statusPause struct {
	of    *presence
	until time.Time
}

// nameLabels are those by which a pod belongs to the name that a Count gives.
var nameLabels = []string{"app", "app.kubernetes.io/name", "run"}

func setUpCount(m *manager, c *Controller) {
	s := &countControl{manager: m, Controller: c}
	m.pods.kind.Keep = append(m.pods.kind.Keep, nameLabels...)
	for i := range nameLabels {
		m.pods.indexIn = append(m.pods.indexIn, func(p *Pod) string { return podName(p, i) })
	}
	m.counts.members = map[string]map[string]*Count{}
	On(c, m.pods, s.podChanged)
	On(c, m.counts, s.countChanged)
	c.Reconcile = s.reconcile
	c.Count = s.count
}

// count returns how many Counts there are, and how many have a status that is not right.
func (s *countControl) count() (what string, all, wrong int) {
	if s.counts.found.Load() == nil {
		return "", 0, 0 // the CRD is not there
	}
	counts := s.counts.All()
	for _, c := range counts {
		if _, _, _, write := s.plan(c.Key()); write {
			wrong++
		}
	}
	return "count", len(counts), wrong
}

// podName is the name that a pod has by one of nameLabels, if no earlier one gives it the same.
func podName(p *Pod, i int) string {
	if p == nil {
		return ""
	}
	name, _ := p.Label(nameLabels[i])
	for _, earlier := range nameLabels[:i] {
		if other, _ := p.Label(earlier); other == name {
			return ""
		}
	}
	return name
}

// podName is the namespace and name of the pods that a Count is about.
func (c *Count) podName() string { return c.Key().Namespace + "/" + c.Name }

func (s *countControl) podChanged(d Delta[*Pod]) (keys []Key) {
	for i := range nameLabels {
		was, is := podName(d.Old, i), podName(d.New, i)
		if was == is {
			continue
		}
		for _, name := range []string{was, is} {
			if name == "" {
				continue
			}
			for _, c := range s.counts.By(d.Key().Namespace + "/" + name) {
				keys = append(keys, c.Key())
			}
		}
	}
	return keys
}

func (s *countControl) countChanged(d Delta[*Count]) []Key {
	if d.Old != nil && d.New != nil && d.New.Status != d.Old.Status && d.New.countSpec == d.Old.countSpec {
		s.queue.AddAfter(d.Key(), s.options.Interval) // as with a node's labels, but that nothing else keeps two from a race
		return nil
	}
	return []Key{d.Key()}
}

// ours is what podcount writes of a status. Without a subresource our own writes make the generation go up: it says
// nothing.
func (p *presence) ours(status countStatus) countStatus {
	if !p.status {
		status.ObservedGeneration = ""
	}
	return status
}

type countNews struct{ uid, spec, reason, message string } // what events tell of a Count, when it changes

// news is what there is to tell of a Count with that status. If that shows that it is of an older spec, so does its
// spec.
func (c *Count) news(status countStatus) countNews {
	spec := string(status.ObservedGeneration)
	if spec == "" {
		spec = fmt.Sprint(c.countSpec, string(status.Healthy) == fmt.Sprint(string(status.Count) == fmt.Sprint(c.Want)))
	}
	reason := "CountMismatch"
	if status.Healthy == "true" {
		reason = "CountMatched"
	}
	return countNews{c.UID(), spec, reason, fmt.Sprintf("want %d pods of %s, have %s", c.Want, c.Name, status.Count)}
}

// plan returns a Count, nil if it is gone, with what its status should be, and whether that is to be written.
func (s *countControl) plan(key Key) (c *Count, of *presence, status countStatus, write bool) {
	c, of = s.counts.Get(key), s.counts.found.Load()
	if c == nil || of == nil {
		return nil, nil, status, false
	}
	if status = of.ours(c.Status); c.Invalid == "" {
		have := s.pods.CountIn(c.Key().Namespace, c.Name)
		status = of.ours(countStatus{
			Healthy:            wire.Raw(fmt.Sprint(have == c.Want)),
			Count:              wire.Raw(fmt.Sprint(have)),
			ObservedGeneration: wire.Raw(fmt.Sprint(c.Generation)),
		})
	} else if status.Healthy == "true" {
		status.Healthy = "false"
	}
	return c, of, status, status != of.ours(c.Status)
}

func (s *countControl) reconcile(ctx context.Context, key Key) (Result, error) {
	c, of, status, write := s.plan(key)
	if write {
		if _, rests := s.resting.Load(c.UID()); rests || s.pace.Wait(s.stop) != nil {
			return Result{}, nil
		}
		c, of, status, write = s.plan(key) // it may have changed while we waited
	}
	if !write {
		s.foretold.Delete(key)
		s.noteRight(c, key, of)
	}
	known, _ := s.said.Load(key)
	said, isKnown := known.(countNews)
	if c == nil {
		if s.said.Delete(key); isKnown {
			s.log.Info("a Count is gone", "count", key)
		}
		return Result{}, nil
	} else if said.uid != c.UID() { // new to us: what the status says was told before our start
		said = c.news(of.ours(c.Status))
		s.said.Store(key, said)
	}
	if write && s.isDue(c, of, status) {
		isGone, err := s.write(ctx, c, of, status)
		if err != nil || isGone {
			return Result{}, err
		}
	}
	say := c.news(status)
	if c.Invalid != "" {
		say = countNews{c.UID(), "", "InvalidCount", c.Invalid}
	}
	if say == said {
		return Result{}, nil
	}
	about := s.counts.Reference(c)
	if c.Invalid == "" && say.spec != said.spec {
		s.recorder.Event(about, "Normal", "Synced", "Count synced successfully")
	}
	if say.reason != "CountMatched" {
		s.recorder.Event(about, "Warning", say.reason, say.message)
	} else if said.reason != "CountMatched" {
		s.recorder.Event(about, "Normal", say.reason, say.message)
	}
	s.said.Store(key, say)
	return Result{}, nil
}

// isDue reports whether a wrong status is written now. A dry run says it instead; and what the server has dropped not
// long ago rests.
func (s *countControl) isDue(c *Count, of *presence, status countStatus) bool {
	if s.options.DryRun {
		s.foretell(c, status)
		return false
	}
	wait := s.restLeft(c.Key(), of)
	if wait > 0 {
		s.queue.AddAfter(c.Key(), wait)
	}
	return wait <= 0
}

// write makes the status of a Count right, by one patch. Afterwards the Count rests. isGone reports that the server
// does not have it.
func (s *countControl) write(ctx context.Context, c *Count, of *presence, status countStatus) (isGone bool, err error) {
	subresource := "" // without one, the status is a part of the object like any other
	if of.status {
		subresource = "status"
	}
	patch := map[string]any{"status": status}
	isKept := func(now *Count) bool { return of.ours(now.Status) == status }
	now, err := s.counts.Patch(ctx, c, subresource, patch, isKept)
	isStripped := errors.Is(err, errStripped)
	if err != nil && (!isStripped || s.once) {
		return false, err
	}
	if now == nil { // or it is there after all: then it must not stay wrong
		s.rest(&c.Meta, s.options.Interval)
		return true, nil
	}
	s.rest(&c.Meta, min(s.options.Interval, time.Second))
	if isStripped {
		s.noteStripped(c.Key(), of, err)
		return false, nil
	}
	s.noteRight(now, c.Key(), of)
	s.noteWritten(c.Key())
	s.log.Info("status written", statusChange(c, status).Attr())
	return false, nil
}

// foretell says what a dry run would write to a Count, unless it has said that already.
func (s *countControl) foretell(c *Count, status countStatus) {
	change := statusChange(c, status).String()
	said, _ := s.foretold.Swap(c.Key(), change)
	if said != change {
		s.log.Info(fmt.Sprintf("would write count %s: %s", c.Key(), change))
	}
}

// noteStripped has the status of a Count rest that the server has dropped, and says so once while that is so anywhere.
// Where no status has stayed so far, all of them rest: then it is the schema that drops them.
func (s *countControl) noteStripped(key Key, of *presence, err error) {
	if isFirst := s.stripped.note(key); isFirst {
		s.log.Warn("statuses do not stay: they are tried rarely; is the schema that of deploy/count-crd.yaml?", "first", key,
			"pause", strippedRest, "err", err)
	}
	if last := s.lastLost.Swap(&key); last != nil && *last != key {
		s.stays.Store(nil) // two one after the other: the schema may have become another
	}
	if s.stays.Load() != of {
		s.pause.Store(&statusPause{of, time.Now().Add(strippedRest)})
	}
	s.queue.AddAfter(key, strippedRest)
}

// noteRight notes that a Count has the status that it should have, or, without one, that it is gone.
func (s *countControl) noteRight(c *Count, key Key, of *presence) {
	if c != nil && c.Status.Count != "" {
		s.stays.Store(of)
		s.lastLost.Store(nil)
	}
	if isLast := s.stripped.forget(key); isLast && c != nil {
		s.log.Info("statuses stay again", "last", key)
	}
}

// restLeft returns how long a status is not to be written yet.
func (s *countControl) restLeft(key Key, of *presence) time.Duration {
	left := s.stripped.restLeft(key)
	if pause := s.pause.Load(); pause != nil && pause.of == of && s.stays.Load() != of {
		left = max(left, time.Until(pause.until))
	}
	return left
}

// statusChange is what a write of a Count's status changes, for people: how many pods there are, and whether that is
// right.
func statusChange(c *Count, status countStatus) logging.Change {
	return logging.Change{
		Verb:   "wrote",
		Kind:   "count",
		Object: c.Key().String(),
		Name:   "field",
		Field:  "status",
		From:   c.Status.short(),
		To:     status.short(),
	}
}

// short is the status for people: `2 healthy`.
func (s countStatus) short() string {
	switch {
	case s.Count == "":
		return "none"
	case s.Healthy == "true":
		return string(s.Count) + " healthy"
	}
	return string(s.Count) + " unhealthy"
}

func setUpPodPrinter(m *manager, c *Controller) {
	m.pods.versions = true // each change of a pod, of whatever in it
	On(c, m.pods, func(d Delta[*Pod]) []Key { return []Key{d.Key()} })
	c.Reconcile = func(_ context.Context, key Key) (Result, error) {
		if m.pods.Get(key) == nil {
			fmt.Fprintf(m.printed, "Pod %s does not exist anymore\n", key)
		} else {
			fmt.Fprintf(m.printed, "Sync/Add/Update for Pod %s\n", key)
		}
		return Result{}, nil
	}
}
