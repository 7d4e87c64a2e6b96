// Podcount is a Kubernetes controller made of nothing but Go's standard library: it counts pods and writes the counts to
// labels of nodes. Data runs one way through its four files:
//
//	API server ─list, watch─▶ watch.go ─changes─▶ cache.go ─keys─▶ queue.go ─key─▶ reconcile (main.go) ─patch, event─▶ API server
//	                                                                 ▲ ticker: every interval, every key that is not as it should be
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
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
	"unicode"
)

var version = "dev" // set by the linker, from git

// Verbosity, as -v N: a line of slog level -N is shown. slog.LevelDebug is 4.
const (
	levelWrite   = slog.Level(-2) // each label that is written
	levelRequest = slog.Level(-6) // each request
)

const (
	finishTime = 10 * time.Second       // how long what is in hands may go on after a stop,
	eventsTime = 5 * time.Second        // and then the events that wait
	startPause = 100 * time.Millisecond // at most, between the starts of two controllers
)

func main() {
	// Nearly all of the heap is the cache, which lives on: let garbage be a quarter of it, not as much again. And there is
	// never work for two processors, so that a second one would only be woken for nothing. (Figures are in the README.)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, "podcount: cut short by a second signal")
		os.Exit(1)
	}()
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr, nil)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "podcount:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.As(err, new(usageError)) {
		os.Exit(2)
	}
	os.Exit(1)
}

// usageError is a mistake in what podcount was told: exit code 2.
type usageError struct{ error }

// Log is a slog.Logger that can also complain.
type Log struct {
	*slog.Logger
	mu   sync.Mutex // guards said
	said lru[string, *time.Time]
}

// Complain warns of an error, but of errors of one sort once a minute at most, or once in ten where somebody has to
// grant or install something first: what fails in a loop, or for every node, is one trouble. It reports whether it did.
func (l *Log) Complain(msg string, err error, args ...any) bool {
	root := err
	for next := err; next != nil; next = errors.Unwrap(next) {
		root = next
	}
	// Without digits: a port or a time in it makes no other trouble. Where nobody answered, nor does who asked, or for what.
	sort, quiet := strings.Join(strings.FieldsFunc(root.Error(), unicode.IsDigit), ""), time.Minute
	if s := statusIn(err); s.Code != 0 {
		sort = fmt.Sprint(msg, s.Code, s.Reason, s.call.verb, s.call.resource)
		if s.Code == http.StatusUnauthorized || s.Code == http.StatusForbidden || s.Code == http.StatusNotFound {
			quiet = 10 * time.Minute
		}
	} else if os.IsTimeout(root) {
		sort = "timeout"
	}
	level := slog.LevelDebug
	l.mu.Lock()
	if said := l.said.get(sort, func() *time.Time { return new(time.Time) }); time.Since(*said) >= quiet {
		level, *said = slog.LevelWarn, time.Now()
	}
	l.mu.Unlock()
	l.Log(context.Background(), level, msg, append(args, "err", err)...)
	return level == slog.LevelWarn
}

// options are the flags, checked.
type options struct {
	kubeconfig, context, master                         string
	namespace, podSelector, fieldSelector               string
	totalLabel, nodeLabel                               string
	podEvents, wire, logFormat, controllers             string
	leaseName, leaseNamespace                           string
	totalNodes                                          nodeChoice
	leaseDuration, renewDeadline, retryPeriod, interval time.Duration
	workers, burst, verbosity                           int
	qps                                                 float64
	leaderElect, version                                bool
}

const controlPlane, oldControlPlane = "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"

// nodeChoice is the nodes that meet one of the selectors.
type nodeChoice []Selector

func (c nodeChoice) Matches(labels map[string]string) bool {
	return slices.ContainsFunc(c, func(s Selector) bool { return s.Matches(labels) })
}

// parseFlags reads the command line. Its errors are usageErrors of one line. It returns nil if all that was wanted is printed.
func parseFlags(args []string, stdout io.Writer) (*options, error) {
	o := &options{totalNodes: nodeChoice{{{key: controlPlane}}, {{key: oldControlPlane}}}}
	fs := flag.NewFlagSet("podcount", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; else $KUBECONFIG, the pod's service account, ~/.kube/config")
	fs.StringVar(&o.context, "context", "", "`name` of the kubeconfig's context; else its current-context")
	fs.StringVar(&o.master, "master", "", "`URL` of the API server, in place of the kubeconfig's")
	fs.StringVar(&o.controllers, "controllers", "*", "`list` of what to do: *, NAME, -NAME, joined by commas; * is all that are on by default; help shows them")
	fs.StringVar(&o.namespace, "namespace", "", "count the pods of this namespace only")
	fs.StringVar(&o.podSelector, "pod-selector", "", "count the pods with these labels only: a label `selector`, as in kubectl -l")
	fs.StringVar(&o.fieldSelector, "field-selector", "", "count the pods with these fields only: a field `selector`, as in kubectl --field-selector")
	fs.StringVar(&o.totalLabel, "total-label", "hopegi/pod-count", "`key` of the label that gets the number of all pods")
	fs.Func("total-nodes", "label `selector` of the nodes that get it: k, !k, k=v, k!=v, k in (a,b), k notin (a,b), k>1, k<1, "+
		"joined by commas; '' is every node (default "+controlPlane+", or "+oldControlPlane+")", func(text string) error {
		s, err := parseSelector(text)
		o.totalNodes = nodeChoice{s}
		return err
	})
	fs.StringVar(&o.nodeLabel, "node-label", "", "`key` of a label that gets, on every node, the number of its own pods; '' is off")
	fs.StringVar(&o.podEvents, "pod-events", "on", "`on|off`: post an event on each new pod when it is counted")
	fs.StringVar(&o.wire, "wire", "protobuf", "`protobuf|json`: the form in which pods and nodes are asked for first; all else is JSON")
	fs.DurationVar(&o.interval, "interval", 10*time.Second, "check every node this often, and write to one at most this often")
	fs.IntVar(&o.workers, "workers", 4, "reconcile so many objects at a time, each controller")
	fs.Float64Var(&o.qps, "qps", 20, "writes of labels (or statuses) a second, each controller")
	fs.IntVar(&o.burst, "burst", 40, "writes at once, before -qps holds")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "work only while leading: of several replicas with the same Lease one does")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "others wait so long, after the last sign of life of a leader, to take its place")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "a leader that cannot renew its lease for so long writes nothing more and exits")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second, "try this often to get or renew the lease")
	fs.StringVar(&o.leaseName, "leader-elect-resource-name", "podcount", "`name` of the Lease")
	fs.StringVar(&o.leaseNamespace, "leader-elect-resource-namespace", "", "`namespace` of the Lease; else the pod's own, else kube-system")
	fs.IntVar(&o.verbosity, "v", 0, "verbosity: 2 shows each write, 4 each watch event and queue step, 6 each request")
	fs.StringVar(&o.logFormat, "log-format", "text", "`text|json`, to stderr")
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stdout, "podcount counts pods and writes the counts to labels of nodes. Flags:")
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return nil, nil
	}
	if o.controllers == "help" {
		for _, c := range controllers {
			fmt.Fprintf(stdout, "%-12s %-4s %s\n", c.Name, map[bool]string{true: "off", false: "on"}[c.Off], c.About)
		}
		return nil, nil
	}
	if err == nil {
		err = o.check(fs.Args())
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("%w (podcount -h lists the flags)", err)}
	}
	return o, nil
}

func (o *options) check(rest []string) (err error) {
	defer catch(&err)
	refuseIf(len(rest) > 0, "unexpected argument %q", strings.Join(rest, " "))
	for flag, ns := range map[string]string{"namespace": o.namespace, "leader-elect-resource-namespace": o.leaseNamespace} {
		refuseIf(ns != "" && (checkDNSName(ns) != nil || strings.Contains(ns, ".") || len(ns) > 63), "-%s %q is no namespace's name", flag, ns)
	}
	var names []string
	for _, c := range controllers {
		names = append(names, c.Name)
	}
	for word := range strings.SplitSeq(o.controllers, ",") {
		known := word == "*" || slices.Contains(names, strings.TrimPrefix(word, "-"))
		refuseIf(!known, "-controllers: there is no %q; there are %s", word, strings.Join(names, ", "))
	}
	refuseIf(!slices.ContainsFunc(controllers, o.isOn), "-controllers %s leaves none to run", o.controllers)
	_, err = parseSelector(o.podSelector)
	refuseIf(err != nil, "-pod-selector: %w", err)
	for term := range strings.SplitSeq(o.fieldSelector, ",") {
		escaped := strings.Contains(o.fieldSelector, `\`) // the server knows better where the terms end
		path, _, ok := strings.Cut(term, "=")
		refuseIf(term != "" && !escaped && (!ok || strings.TrimRight(path, "!") == ""), "-field-selector: %q is not FIELD=VALUE or FIELD!=VALUE", term)
	}
	for name, key := range map[string]string{"-total-label": o.totalLabel, "-node-label": o.nodeLabel} {
		if name == "-node-label" && key == "" {
			continue
		}
		err := checkLabelKey(key)
		refuseIf(err != nil, "%s: %w", name, err)
		refuseIf(slices.ContainsFunc(slices.Concat(o.totalNodes...), func(r requirement) bool { return r.key == key }),
			"-total-nodes: %s is the %s, which changes with what it says: nodes would come and go for ever", key, name)
		for _, theirs := range []string{"kubernetes.io", "k8s.io"} {
			domain, _, ok := strings.Cut(key, "/")
			refuseIf(ok && strings.HasSuffix("."+domain, "."+theirs), "%s %s: labels under %s are reserved for Kubernetes itself; use a domain of your own", name, key, theirs)
		}
	}
	refuseIf(o.totalLabel == o.nodeLabel, "-node-label %s is the -total-label too: they need different keys", o.nodeLabel)
	refuseIf(o.podEvents != "on" && o.podEvents != "off", "-pod-events %q: use on or off", o.podEvents)
	refuseIf(o.wire != "protobuf" && o.wire != "json", "-wire %q: use protobuf or json", o.wire)
	refuseIf(o.logFormat != "text" && o.logFormat != "json", "-log-format %q: use text or json", o.logFormat)
	refuseIf(o.interval <= 0, "-interval %v must be more than 0", o.interval)
	refuseIf(o.workers < 1 || o.burst < 1 || !(o.qps > 0), "-workers, -qps and -burst must be more than 0")
	refuseIf(o.verbosity < 0, "-v %d must not be less than 0", o.verbosity)
	err = checkDNSName(o.leaseName)
	refuseIf(err != nil, "-leader-elect-resource-name: %w", err)
	lease, renew, retry := o.leaseDuration, o.renewDeadline, o.retryPeriod
	refuseIf(lease%time.Second != 0, "-leader-elect-lease-duration %v must be whole seconds: a Lease has no smaller ones", lease)
	refuseIf(lease <= renew || renew <= retry*12/10 || retry <= 0, "-leader-elect-lease-duration %v must be more than -leader-elect-renew-deadline %v, "+
		"that more than 1.2 × -leader-elect-retry-period %v, and that more than 0", lease, renew, retry)
	return nil
}

func newLog(w io.Writer, o *options) *Log {
	ho := &slog.HandlerOptions{Level: slog.Level(-o.verbosity), ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case slog.Level:
			if v < slog.LevelInfo {
				a.Value = slog.StringValue("DEBUG") // not DEBUG+2 and the like
			}
		case time.Duration:
			a.Value = slog.StringValue(v.String()) // in JSON it would be a number of nanoseconds
		}
		return a
	}}
	var h slog.Handler = slog.NewTextHandler(w, ho)
	if o.logFormat == "json" {
		h = slog.NewJSONHandler(w, ho)
	}
	return &Log{Logger: slog.New(h), said: lru[string, *time.Time]{max: 1000}}
}

// run is the whole program but for signals and exit codes. It returns nil when ctx ends, once all is finished and sent.
// dial, for tests, stands for the network; nil is the real one.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer, dial Dialer) error {
	o, err := parseFlags(args, stdout)
	if o == nil {
		return err
	}
	if o.version {
		fmt.Fprintln(stdout, "podcount", version, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
		return nil
	}
	log := newLog(stderr, o)
	cfg, err := LoadConfig(o.kubeconfig, o.context, o.master, serviceAccount, getenv, log)
	if err != nil {
		return usageError{err}
	}
	client := NewClient(cfg, dial, log)
	defer client.Close()
	log.Info("podcount starts", "version", version, "server", cfg.Server.Redacted(), "from", cfg.Source)

	host, _ := os.Hostname()
	host = cmp.Or(host, "podcount")
	stop, end := context.WithCancelCause(ctx)
	defer end(nil)
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	m := newManager(o, client, log)
	m.recorder, m.stdout = NewRecorder(client.Send, log, host), stdout
	m.stop, m.fail, m.work = stop, end, grace(sending, stop, finishTime)

	var elected sync.WaitGroup
	resigned, resign := context.WithCancel(sending)
	if o.leaderElect {
		sleep(stop, rand.N(time.Second)) // replicas that are started together are not to ask together
		e := newElection(o, client, log, host)
		client.mayWrite = e.mayWrite
		elected.Go(func() {
			if err := e.run(stop, resigned, func() { close(m.leading) }); err != nil {
				end(err)
				cut()
			}
		})
	} else {
		close(m.leading)
	}
	var recorded sync.WaitGroup
	recording, stopRecorder := context.WithCancel(sending)
	recorded.Go(func() { m.recorder.Run(grace(sending, recording, eventsTime), recording) })

	m.run()
	stopRecorder()
	recorded.Wait()
	resign()
	elected.Wait()
	log.Info("podcount stopped", "events_dropped", m.recorder.Dropped())
	if err := context.Cause(stop); err != context.Canceled {
		return err
	}
	return nil
}

// grace returns a context that ends with ctx, or so long after stop.
func grace(ctx, stop context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(stop, func() { time.AfterFunc(d, cancel) })
	return ctx
}

// manager runs the controllers that are switched on, over caches that they share, while this replica leads.
type manager struct {
	*options
	recorder *Recorder
	log      *Log
	stdout   io.Writer
	stop     context.Context         // from its end on, nothing is begun,
	fail     context.CancelCauseFunc // which this brings about;
	work     context.Context         // what has begun may go on until this ends
	leading  chan struct{}           // closed: this replica leads

	pods   *Reflector[*Pod]
	nodes  *Reflector[*Node]
	counts *Reflector[*Count]
}

// newManager makes the caches, for as little as can be asked for: who needs more of a kind says so before they run.
func newManager(o *options, client *Client, log *Log) *manager {
	protobuf := o.wire == "protobuf"
	return &manager{options: o, log: log, leading: make(chan struct{}),
		pods: NewReflector(client, Kind[*Pod]{Name: "Pod", API: "/api/v1", Resource: "pods", Namespace: o.namespace, Selector: o.podSelector, Fields: o.fieldSelector,
			Protobuf: protobuf, MetadataOnly: true, New: func() *Pod { return new(Pod) }}, NewStore(func(p *Pod) string { return p.NodeName }), log),
		nodes: NewReflector(client, Kind[*Node]{Name: "Node", API: "/api/v1", Resource: "nodes",
			Protobuf: protobuf, MetadataOnly: true, New: func() *Node { return new(Node) }}, NewStore[*Node](), log),
		counts: NewReflector(client, Kind[*Count]{Name: "Count", API: "/apis/demo.mark8s.io/v1", Resource: "counts", Namespace: o.namespace,
			Lenient: true, New: func() *Count { return new(Count) }}, NewStore((*Count).podName), log),
	}
}

// Controller is one of podcount's jobs: keys come, from changes of what it watches and with time, and for each Reconcile
// makes the world as it should be. Its own queue, workers and retries are the manager's to see to.
type Controller struct {
	Name, About string
	Off         bool // unless -controllers names it

	// Setup is called before anything runs. It sets Reconcile and, with On, what is watched; and it tells the caches'
	// kinds what it needs of their objects.
	Setup func(m *manager, c *Controller)

	// Reconcile has never two calls at a time with the same key. Where it fails it is called again, after a backoff.
	Reconcile func(ctx context.Context, key Key) (Result, error)
	Tick      func() []Key // the keys to begin with, and to look at again each interval; may be nil

	caches   caches
	begin    []func() // of On
	queue    *Queue[Key]
	pace     *Bucket   // of writes
	resting  *sync.Map // objects, by uid, that were written a moment ago
	panicked *sync.Once
}

// rest leaves an object that was written alone for so long; then it is looked at again.
func (c *Controller) rest(m *Meta, d time.Duration) {
	c.resting.Store(m.UID(), true)
	time.AfterFunc(d, func() {
		c.resting.Delete(m.UID())
		c.queue.Add(m.Key())
	})
}

// caches are reflectors, of whatever kinds: the Run of each, by what is closed once its store is complete.
type caches map[chan struct{}]func(context.Context) error

// controllers is all that podcount can do. One more is one more entry.
var controllers = []Controller{
	{Name: "pod-count", About: "writes the numbers of pods to labels of nodes", Setup: setUpPodCount},
	{Name: "count", About: "says in the status of each Count whether as many pods of a name are there as it wants", Setup: setUpCount},
	{Name: "pod-printer", About: "prints the pods that come, change and go", Off: true, Setup: setUpPodPrinter},
}

// isOn reports whether -controllers switches c on: by the first word that names it, else by "*".
func (o *options) isOn(c Controller) bool {
	words := strings.Split(o.controllers, ",")
	if i := slices.IndexFunc(words, func(word string) bool { return strings.TrimPrefix(word, "-") == c.Name }); i >= 0 {
		return words[i] == c.Name
	}
	return slices.Contains(words, "*") && !c.Off
}

// On makes c watch a cache: keys says which keys a change there adds. It is called from several goroutines, at first with
// each object that is there as no change of it.
func On[T Object[T]](c *Controller, r *Reflector[T], keys func(Delta[T]) []Key) {
	c.caches[r.synced] = r.Run
	var begun atomic.Bool
	handle := func(d Delta[T]) {
		defer c.survive(r.log, new(error))
		if begun.Load() {
			c.queue.Add(keys(d)...)
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

// survive, deferred, makes a panic an error: a controller's fault takes nobody else down.
func (c *Controller) survive(log *Log, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p)
		c.panicked.Do(func() {
			log.Error("a controller panics", "controller", c.Name, "err", *err, "stack", string(debug.Stack()))
		})
	}
}

// run runs everything until stop, and what is in hands is finished.
func (m *manager) run() {
	var wg sync.WaitGroup
	shared := caches{} // each runs once, however many watch it
	after := time.Duration(0)
	for _, c := range controllers {
		if m.isOn(c) {
			c.pace, c.resting, c.panicked, c.caches = NewBucket(m.qps, m.burst), new(sync.Map), new(sync.Once), caches{}
			c.Setup(m, &c)
			maps.Copy(shared, c.caches)
			pause := after
			wg.Go(func() { m.control(&c, pause) })
			after += startPause/2 + rand.N(startPause/2)
		}
	}
	for _, run := range shared {
		wg.Go(func() {
			if err := run(m.stop); err != nil {
				m.fail(usageError{err})
			}
		})
	}
	wg.Wait()
}

// control runs one controller once its caches are complete, as a label from half a list is a wrong label, and we lead.
func (m *manager) control(c *Controller, pause time.Duration) {
	for synced := range c.caches {
		await(m, synced)
	}
	if await(m, m.leading); sleep(m.stop, pause) != nil {
		return
	}
	m.log.Info("caches are complete, work begins", "controller", c.Name)
	c.queue = NewQueue[Key](m.stop, m.log.With("controller", c.Name), 5*time.Millisecond, 30*time.Second)
	for _, begin := range c.begin {
		begin()
	}
	var wg sync.WaitGroup
	for range m.workers {
		wg.Go(func() {
			for key, ok := c.queue.Get(); ok; key, ok = c.queue.Get() {
				result, err := m.once(c, key)
				failures := c.queue.Done(key, result, err)
				if err != nil {
					m.log.Complain("cannot reconcile", err, "controller", c.Name, "key", key, "failures", failures)
				}
			}
		})
	}
	tick := func() {
		defer c.survive(m.log, new(error))
		c.queue.Add(c.Tick()...)
	}
	ticker := time.NewTicker(m.interval)
	defer ticker.Stop()
	for c.Tick != nil && m.stop.Err() == nil {
		tick()
		await(m, ticker.C)
	}
	wg.Wait()
}

// await waits for a word from c, or until no new work is to begin.
func await[T any](m *manager, c <-chan T) {
	select {
	case <-c:
	case <-m.stop.Done():
	}
}

func (m *manager) once(c *Controller, key Key) (result Result, err error) {
	defer c.survive(m.log, &err)
	return c.Reconcile(m.work, key)
}

// podCount keeps the labels of nodes equal to the numbers of pods.
type podCount struct {
	*manager
	*Controller
	toldAt time.Time // when theTotal was last passed on: its reconcile's alone
	noNode bool      // it has been warned of: tick's alone
}

// theTotal is the key that is added when the number of all pods has changed. It stands for all nodes that show it, so
// that a pod's coming costs the same with one such node and with thousands.
var theTotal = Key{Name: "(total)"} // no node can be called so

func setUpPodCount(m *manager, c *Controller) {
	p := &podCount{manager: m, Controller: c}
	if m.nodeLabel != "" {
		m.pods.kind.MetadataOnly = false // a pod's node is in its spec
	}
	m.nodes.kind.Keep = append(m.nodes.kind.Keep, m.totalLabel, m.nodeLabel)
	for _, r := range slices.Concat(m.totalNodes...) {
		m.nodes.kind.Keep = append(m.nodes.kind.Keep, r.key)
	}
	On(c, m.pods, p.podChanged)
	On(c, m.nodes, p.nodeChanged)
	c.Reconcile, c.Tick = p.reconcile, p.tick
}

// tick returns the nodes that are not right, those that show the total first: -qps may keep the rest waiting.
func (p *podCount) tick() []Key {
	keys := p.shownOn()
	if len(keys) == 0 && !p.noNode {
		p.noNode = true
		p.log.Warn("no node gets the total: none matches -total-nodes (a managed cluster hides its control plane; -total-nodes '' means every node)", "label", p.totalLabel)
	}
	for _, n := range p.nodes.All() {
		keys = append(keys, n.Key())
	}
	return slices.DeleteFunc(keys, func(k Key) bool {
		_, wrong := p.wrong(k)
		return len(wrong) == 0
	})
}

// shownOn are the nodes that get the total.
func (p *podCount) shownOn() (keys []Key) {
	for _, n := range p.nodes.All() {
		if p.totalNodes.Matches(n.Labels) {
			keys = append(keys, n.Key())
		}
	}
	return keys
}

// podChanged turns a pod's change into keys, and says it of a new pod. What is there at the start is for tick.
func (p *podCount) podChanged(d Delta[*Pod]) (keys []Key) {
	if d.Old == d.New {
		return nil
	}
	if d.Old == nil || d.New == nil {
		keys = append(keys, theTotal)
	}
	for _, pod := range []*Pod{d.Old, d.New} {
		if p.nodeLabel != "" && pod != nil && pod.NodeName != "" {
			keys = append(keys, Key{Name: pod.NodeName})
		}
	}
	if d.Old == nil && p.podEvents == "on" {
		p.recorder.Event(p.pods.Reference(d.New), "Normal", "PodCounted", fmt.Sprintf("pod count is %d", p.pods.Len()))
	}
	return keys
}

func (p *podCount) nodeChanged(d Delta[*Node]) []Key {
	switch {
	case d.Old == nil:
		return []Key{d.Key()}
	case d.New != nil && d.New != d.Old: // by another podcount perhaps, that has heard of a pod of which we are about to hear
		p.queue.AddAfter(d.Key(), min(p.interval, time.Second))
	}
	return nil
}

// reconcile makes one node's labels right, or passes the total's change on to the nodes that show it.
func (p *podCount) reconcile(ctx context.Context, key Key) (Result, error) {
	if key == theTotal {
		// Each of the nodes writes once an interval; this only keeps a flood of pods from going through all of them.
		if rest := min(p.interval, time.Second) - time.Since(p.toldAt); rest > 0 {
			return Result{RequeueAfter: rest}, nil
		}
		p.toldAt = time.Now()
		p.queue.Add(p.shownOn()...)
		return Result{}, nil
	}
	node, wrong := p.wrong(key)
	if len(wrong) == 0 {
		return Result{}, nil
	}
	if _, rests := p.resting.Load(node.UID()); rests || p.pace.Wait(p.stop) != nil {
		return Result{}, nil
	}
	if node, wrong = p.wrong(key); len(wrong) == 0 { // it may have changed while we waited
		return Result{}, nil
	}
	return Result{}, p.write(ctx, node, wrong)
}

// wrong returns the node, and what those of its labels should be that are not so, by the whole caches as they are now:
// texts, or nil where there should be none.
func (p *podCount) wrong(key Key) (node *Node, labels map[string]any) {
	if node = p.nodes.Get(key); node == nil {
		return nil, nil
	}
	labels = map[string]any{p.totalLabel: nil, p.nodeLabel: strconv.Itoa(p.pods.Count(key.Name))}
	if p.totalNodes.Matches(node.Labels) {
		labels[p.totalLabel] = strconv.Itoa(p.pods.Len())
	}
	maps.DeleteFunc(labels, func(label string, want any) bool { return label == "" || node.label(label) == want }) // "": -node-label is off
	return node, labels
}

func (p *podCount) write(ctx context.Context, node *Node, labels map[string]any) error {
	now, err := p.nodes.Patch(ctx, node, "", map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	} else if p.rest(&node.Meta, p.interval); now == nil { // gone, of which we have not heard
		return nil
	}
	what := map[string]string{p.nodeLabel: "pod count of this node", p.totalLabel: "pod count"}
	for label, want := range labels {
		from, to := cmp.Or(node.label(label), "none"), cmp.Or(want, "none")
		p.log.Log(ctx, levelWrite, "label written", "node", node.Key(), "label", label, "from", from, "to", to)
		p.recorder.Event(p.nodes.Reference(node), "Normal", "PodCountChanged", fmt.Sprintf("%s changed from %s to %s", what[label], from, to))
	}
	return nil
}

// countControl keeps the status of Counts right: whether as many pods of a name are there as are wanted.
type countControl struct {
	*manager
	*Controller
	said    sync.Map                 // by uid of a Count: the countStatus that events have told, with the spec in words for its generation
	kept    atomic.Pointer[presence] // of the resource whose schema is known to keep the status,
	dropped atomic.Pointer[presence] // or to drop it
	probe   *Bucket                  // of writes while that is not known
}

// nameLabels are those by which a pod belongs to the name that a Count gives.
var nameLabels = []string{"app", "app.kubernetes.io/name", "run"}

func setUpCount(m *manager, c *Controller) {
	s := &countControl{manager: m, Controller: c, probe: NewBucket(1, 1)}
	m.pods.kind.Keep = append(m.pods.kind.Keep, nameLabels...)
	for i := range nameLabels {
		m.pods.index = append(m.pods.index, func(p *Pod) string { return podName(p, i) })
	}
	m.counts.members = map[string]map[string]*Count{}
	On(c, m.pods, s.podChanged)
	On(c, m.counts, s.countChanged)
	c.Reconcile = s.reconcile
}

// podName is the namespace and name that a pod has by one of nameLabels, if no earlier one gives it the same.
func podName(p *Pod, i int) string {
	if p == nil || p.Labels[nameLabels[i]] == "" || slices.ContainsFunc(nameLabels[:i], func(l string) bool { return p.Labels[l] == p.Labels[nameLabels[i]] }) {
		return ""
	}
	return p.Key().Namespace + "/" + p.Labels[nameLabels[i]]
}

// podName is the same of the pods that the Count is about.
func (c *Count) podName() string { return c.Key().Namespace + "/" + c.Name }

func (s *countControl) podChanged(d Delta[*Pod]) (keys []Key) {
	for i := range nameLabels {
		if was, is := podName(d.Old, i), podName(d.New, i); was != is {
			for _, c := range append(s.counts.By(was), s.counts.By(is)...) {
				keys = append(keys, c.Key())
			}
		}
	}
	return keys
}

func (s *countControl) countChanged(d Delta[*Count]) []Key {
	switch {
	case d.New == nil:
		s.said.Delete(d.Old.UID())
		s.log.Info("a Count is gone", "count", d.Key())
	case d.Old == nil || d.New.Status == d.Old.Status || d.New.countSpec != d.Old.countSpec:
		return []Key{d.Key()}
	default: // as with a node's labels, but that nothing else keeps two from a race
		s.queue.AddAfter(d.Key(), s.interval)
	}
	return nil
}

// countPlan is what is to be done about a Count.
type countPlan struct {
	*Count
	of        *presence
	status    countStatus // as it should be
	write     bool        // it is not
	said, say countStatus // as in countControl
}

// plan has nothing to write and nothing to say where there is no Count.
func (s *countControl) plan(key Key) *countPlan {
	p := &countPlan{Count: s.counts.Get(key), of: s.counts.found.Load()}
	if p.Count == nil || p.of == nil {
		return p
	}
	spec := cmp.Or(p.Invalid, fmt.Sprintf("%d of %s", p.Want, p.Name))
	wasOf := string(p.Status.Healthy) == strconv.FormatBool(string(p.Status.Count) == strconv.Itoa(p.Want)) // the status is of this spec
	if p.status = p.Status; p.Invalid == "" {
		have := s.pods.Count(p.podName())
		p.status.Healthy, p.status.Count = rawJSON(strconv.FormatBool(have == p.Want)), rawJSON(strconv.Itoa(have))
		if p.of.status { // else our own writes make the generation go up, so that it says nothing
			p.status.ObservedGeneration = rawJSON(strconv.FormatInt(p.Generation, 10))
			spec, wasOf = fmt.Sprintf("%s, generation %d", spec, p.Generation), p.status.ObservedGeneration == p.Status.ObservedGeneration
		}
	} else if p.status.Healthy == "true" {
		p.status.Healthy = "false"
	}
	p.say = countStatus{p.status.Healthy, p.status.Count, rawJSON(spec)}
	said, ok := s.said.Load(p.UID())
	if p.said, _ = said.(countStatus); !ok { // what the status says was told before our start
		p.said = countStatus{Healthy: p.Status.Healthy, Count: p.Status.Count}
		if wasOf && p.Invalid == "" {
			p.said.ObservedGeneration = p.say.ObservedGeneration
		}
	}
	p.write = p.of != s.dropped.Load() && p.status != p.Status
	return p
}

func (s *countControl) reconcile(ctx context.Context, key Key) (Result, error) {
	p := s.plan(key)
	if p.write {
		if _, rests := s.resting.Load(p.UID()); rests {
			return Result{}, nil
		} else if p.of != s.kept.Load() && !s.probe.Allow() { // one write will tell, if it does not hang: then the next one
			return Result{RequeueAfter: time.Second / 20}, nil
		} else if s.pace.Wait(s.stop) != nil {
			return Result{}, nil
		}
		p = s.plan(key) // it may have changed while we waited
	}
	if p.write {
		sub, status := "status", p.status
		if !p.of.status { // then it is a part of the object like any other
			sub, status.ObservedGeneration = "", ""
		}
		s.said.LoadOrStore(p.UID(), p.said) // if the answer is lost, the status will not have been told yet
		now, err := s.counts.Patch(ctx, p.Count, sub, map[string]any{"status": status})
		if err != nil {
			return Result{}, err
		} else if now == nil { // gone, or not: then it must not stay wrong
			s.rest(&p.Meta, s.interval)
			return Result{}, nil
		}
		s.rest(&p.Meta, min(s.interval, time.Second))
		s.log.Log(ctx, levelWrite, "status written", "count", key, "healthy", p.status.Healthy, "have", p.status.Count)
		if s.kept.Store(p.of); now.Status.Healthy != p.status.Healthy || now.Status.Count != p.status.Count || p.of.status && now.Status != p.status {
			s.dropped.Store(p.of)
			s.log.Warn("the schema of Counts drops their status, so it is not written any more: see deploy/count-crd.yaml")
		}
	}
	if p.said != p.say {
		s.tell(p)
	}
	return Result{}, nil
}

// tell posts the events, and remembers them while the Count is there.
func (s *countControl) tell(p *countPlan) {
	about, have := s.counts.Reference(p.Count), fmt.Sprintf("want %d pods of %s, have %s", p.Want, p.Name, p.say.Count)
	if p.Invalid == "" && p.said.ObservedGeneration != p.say.ObservedGeneration {
		s.recorder.Event(about, "Normal", "Synced", "Count synced successfully")
	}
	switch {
	case p.Invalid != "":
		s.recorder.Event(about, "Warning", "InvalidCount", p.Invalid)
	case p.say.Healthy == "false":
		s.recorder.Event(about, "Warning", "CountMismatch", have)
	case p.said.Healthy != "true":
		s.recorder.Event(about, "Normal", "CountMatched", have)
	}
	if c := s.counts.Get(p.Key()); c != nil && c.UID() == p.UID() {
		s.said.Store(p.UID(), p.say)
	}
}

// setUpPodPrinter is the smallest controller there is.
func setUpPodPrinter(m *manager, c *Controller) {
	m.pods.versions = true // each change of a pod, of whatever in it
	On(c, m.pods, func(d Delta[*Pod]) []Key { return []Key{d.Key()} })
	c.Reconcile = func(_ context.Context, key Key) (Result, error) {
		line := "Sync/Add/Update for Pod %s\n"
		if m.pods.Get(key) == nil {
			line = "Pod %s does not exist anymore\n"
		}
		_, err := fmt.Fprintf(m.stdout, line, key)
		return Result{}, err
	}
}

// election makes this replica the leader of all that know the same Lease, or not, by the rules of client-go, with which it
// can share one. The times in a Lease are never compared with our clock: what counts is how long ago we saw it change.
// https://kubernetes.io/docs/concepts/architecture/leases/
type election struct {
	*options
	client *Client
	log    *Log
	id     string
	path   string                    // of the Lease
	bare   json.RawMessage           // the metadata of one that is not there yet
	until  atomic.Pointer[time.Time] // we may write until then; nil: we do not lead

	// Owned by run, alone.
	lease   lease     // as last seen
	current bool      // it has come from our own last write, and nothing has failed since
	expires time.Time // when its holder, if it is another and does not change it, may be followed
	asked   bool      // for the lease: it may be ours
}

// lease is https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
type lease struct {
	Metadata json.RawMessage // goes back as it came, resourceVersion and all: of two writers one gets a 409
	Spec     leaseSpec
}

type leaseSpec struct {
	HolderIdentity       string `json:"holderIdentity"`
	LeaseDurationSeconds int    `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          string `json:"acquireTime,omitempty"`
	RenewTime            string `json:"renewTime,omitempty"`
	LeaseTransitions     int    `json:"leaseTransitions"`
}

var errHeld = errors.New("it is held") // by another, who is in election.lease

func newElection(o *options, client *Client, log *Log, host string) *election {
	own, _ := os.ReadFile(serviceAccount + "/namespace")
	namespace := cmp.Or(o.leaseNamespace, strings.TrimSpace(string(own)), "kube-system")
	meta, _ := json.Marshal(map[string]string{"namespace": namespace, "name": o.leaseName})
	return &election{options: o, client: client, log: log, id: fmt.Sprintf("%s_%016x", host, rand.Uint64()),
		path: "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + o.leaseName, bare: meta}
}

// mayWrite is Client.mayWrite.
func (e *election) mayWrite() error {
	if until := e.until.Load(); until == nil || !time.Now().Before(*until) {
		return errors.New("not sent, as this replica does not lead")
	}
	return nil
}

// run campaigns until stop ends; once elected it calls won, and leads until resigned ends, which must come after stop. Then
// it gives the lease back. It returns an error when it has lost it.
func (e *election) run(stop, resigned context.Context, won func()) error {
	defer e.release()
	holder := ""
	for err := e.try(stop, e.id); err != nil; err = e.try(stop, e.id) {
		if now := e.lease.Spec.HolderIdentity; errors.Is(err, errHeld) && now != holder {
			holder = now
			e.log.Info("standing by, as another replica leads", "lease", e.path, "holder", holder)
		} else if !errors.Is(err, errHeld) && stop.Err() == nil {
			e.log.Complain("cannot get the lease", err)
		}
		pause := e.retryPeriod + rand.N(e.retryPeriod*12/10)
		if left := time.Until(e.expires); left > 0 {
			pause = min(pause, left)
		}
		if sleep(stop, pause) != nil {
			return nil
		}
	}
	e.log.Info("elected: this replica leads", "lease", e.path, "identity", e.id)
	won()
	for until := *e.until.Load(); sleep(resigned, min(e.retryPeriod, time.Until(until))) == nil; until = *e.until.Load() {
		ctx, cancel := context.WithDeadline(resigned, until)
		err := e.try(ctx, e.id)
		cancel()
		if err != nil && resigned.Err() == nil {
			e.log.Complain("cannot renew the lease", err)
		}
		if errors.Is(err, errHeld) || err != nil && !time.Now().Before(until) {
			e.asked = false
			return fmt.Errorf("the lease is lost: %w", err)
		}
	}
	return nil
}

// release gives the lease back if it is, or may be, ours, so that the next replica need not wait until it has run out.
func (e *election) release() {
	e.until.Store(nil)
	ctx, cancel := context.WithTimeout(context.Background(), e.renewDeadline/2)
	defer cancel()
	for e.asked && ctx.Err() == nil {
		err := e.try(ctx, "")
		if err == nil || errors.Is(err, errHeld) {
			return
		}
		e.log.Complain("cannot release the lease", err)
		sleep(ctx, e.retryPeriod/4)
	}
}

// try makes one attempt to get or keep the lease for holder, which is us, or nobody, to release it; nil is success. An
// attempt that hangs leaves time for another.
func (e *election) try(ctx context.Context, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, e.renewDeadline/2)
	defer cancel()
	for again := true; ; again = false {
		changed := false
		if !e.current {
			var now lease
			err := e.client.Send(ctx, request{method: http.MethodGet, path: e.path}, &now)
			if statusIn(err).Reason == "NotFound" { // a PUT without resourceVersion makes it: for that, rights to this one name will do
				now = lease{Metadata: e.bare, Spec: leaseSpec{LeaseTransitions: -1}} // as its first holder follows nobody
			} else if err != nil {
				return err
			}
			if changed = now.Spec != e.lease.Spec; changed {
				e.expires = time.Now().Add(time.Duration(now.Spec.LeaseDurationSeconds) * time.Second)
			}
			e.lease = now
		}
		had, now := e.lease.Spec, time.Now()
		ours := had.HolderIdentity == e.id
		if !ours && (holder == "" || had.HolderIdentity != "" && (changed || now.Before(e.expires))) {
			return fmt.Errorf("%w by %q", errHeld, had.HolderIdentity)
		}
		next := leaseSpec{holder, int(e.leaseDuration / time.Second), had.AcquireTime, now.UTC().Format("2006-01-02T15:04:05.000000Z07:00"), had.LeaseTransitions}
		if holder == "" {
			next.LeaseDurationSeconds, next.AcquireTime = 1, next.RenewTime
		} else if !ours {
			next.LeaseTransitions, next.AcquireTime = had.LeaseTransitions+1, next.RenewTime
		}
		e.current, e.asked = false, true
		var got lease
		body := map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": e.lease.Metadata, "spec": next}
		err := e.client.Send(ctx, request{method: http.MethodPut, path: e.path, body: body, election: true}, &got)
		if s := statusIn(err); again && (s.Code == http.StatusConflict || s.Code == http.StatusNotFound || s.hasCause("metadata.resourceVersion")) {
			continue // somebody else has written, made or removed it: look at once
		} else if err != nil {
			return err
		}
		e.lease, e.current = got, true
		if until := now.Add(e.renewDeadline); holder == e.id {
			e.until.Store(&until) // from before the lease was sent
		} else {
			e.log.Info("the lease is released", "lease", e.path)
		}
		return nil
	}
}

// Selector is a label selector: every requirement must hold. None holds always.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
type Selector []requirement

type requirement struct {
	key          string
	not          bool     // turns the rest round, and holds for a missing key
	values       []string // one of these; nil: the key is there,
	above, below *int     // and its value a number above, or below, this
}

// Matches reports whether labels meet the selector, as kubectl's -l would.
func (s Selector) Matches(labels map[string]string) bool {
	return !slices.ContainsFunc(s, func(r requirement) bool {
		v, met := labels[r.key]
		if r.above != nil || r.below != nil {
			n, err := strconv.Atoi(v)
			met = err == nil && (r.above == nil || n > *r.above) && (r.below == nil || n < *r.below)
		}
		return r.not == (met && (r.values == nil || slices.Contains(r.values, v)))
	})
}

// parseSelector reads "k", "!k", "k=v", "k==v", "k!=v", "k in (a,b)", "k notin (a,b)", "k>1" and "k<1", joined by commas.
// The error says what is wrong and with which requirement.
func parseSelector(text string) (s Selector, err error) {
	defer catch(&err)
	if trimBlanks(text) == "" {
		return nil, nil
	}
	inside, start := false, 0
	for i, c := range text + "," {
		if c == '(' || c == ')' {
			inside = c == '(' // there a comma separates values
		} else if c == ',' && !inside || i == len(text) {
			part := trimBlanks(text[start:i])
			r, err := parseRequirement(part)
			refuseIf(err != nil, "requirement %d %q: %w", len(s)+1, part, err)
			s, start = append(s, r), i+1
		}
	}
	return s, nil
}

func trimBlanks(s string) string { return strings.Trim(s, " \t\r\n") }

func parseRequirement(text string) (r requirement, err error) {
	defer catch(&err)
	key, isNot := strings.CutPrefix(text, "!")
	rest := ""
	if end := strings.IndexAny(text, " \t=!(<>"); end > 0 {
		key, rest = text[:end], trimBlanks(text[end:])
	}
	r = requirement{key: trimBlanks(key), not: isNot}
	if err := checkLabelKey(r.key); err != nil || rest == "" {
		return r, err
	}
	operators := []string{"==", "=", "!=", "in", "notin", ">", "<", ""}
	op := operators[slices.IndexFunc(operators, func(op string) bool { return strings.HasPrefix(rest, op) })]
	value := trimBlanks(rest[len(op):])
	refuseIf(op == "", "%q is no operator: use =, !=, in (a,b) or notin (a,b)", strings.SplitN(rest, " ", 2)[0])
	switch op {
	case ">", "<":
		n, err := strconv.Atoi(value)
		refuseIf(err != nil, "%q is no number", value)
		if r.above = &n; op == "<" {
			r.above, r.below = nil, &n
		}
		return r, nil
	case "in", "notin":
		refuseIf(len(value) < 2 || value[0] != '(' || value[len(value)-1] != ')', "%s needs values in parentheses: %s %s (a,b)", op, r.key, op)
		value = value[1 : len(value)-1]
	}
	r.not = op == "!=" || op == "notin"
	for v := range strings.SplitSeq(value, ",") {
		r.values = append(r.values, trimBlanks(v))
		err = cmp.Or(err, checkLabelValue(trimBlanks(v)))
	}
	return r, err
}

// checkLabelKey checks a key's syntax: an optional DNS prefix and "/", then a name of at most 63 characters.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
func checkLabelKey(key string) error {
	prefix, _, found := strings.Cut(key, "/")
	if err := checkDNSName(prefix); found && err != nil {
		return fmt.Errorf("label key %q: prefix %w", key, err)
	}
	if name := key[strings.Index(key, "/")+1:]; name == "" || checkLabelValue(name) != nil {
		return fmt.Errorf("label key %q: the name must be 1 to 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit", key)
	}
	return nil
}

func checkLabelValue(v string) error {
	if v != "" && (len(v) > 63 || !isName(v, lowerCase+"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "-_.")) {
		return fmt.Errorf("label value %q must be at most 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit", v)
	}
	return nil
}

// checkDNSName checks a DNS-1123 subdomain, which also holds for a namespace's name (that has no dots and 63 characters).
func checkDNSName(s string) error {
	for part := range strings.SplitSeq(s, ".") {
		if len(s) > 253 || !isName(part, lowerCase, "-") {
			return fmt.Errorf("%q must be lower-case letters, digits, '-' and '.', and begin and end with a letter or digit, and have at most 253 of them", s)
		}
	}
	return nil
}

const lowerCase = "abcdefghijklmnopqrstuvwxyz0123456789"

// isName reports whether s is made of letters and marks, and begins and ends with a letter.
func isName(s, letters, marks string) bool {
	return s != "" && strings.Trim(s, letters+marks) == "" && strings.Trim(s, marks) == s
}
