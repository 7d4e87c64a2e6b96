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
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// How long what is in hands may go on after a stop, and then the events that wait.
const (
	finishTime = 10 * time.Second
	eventsTime = 5 * time.Second
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
	// Without digits: a port or a time in it makes no other trouble.
	sort, quiet := msg+strings.Join(strings.FieldsFunc(root.Error(), unicode.IsDigit), ""), time.Minute
	if s := statusIn(err); s.Code != 0 {
		sort = fmt.Sprint(msg, s.Code, s.Reason, s.call.verb, s.call.resource)
		if s.Code == http.StatusUnauthorized || s.Code == http.StatusForbidden || s.Code == http.StatusNotFound {
			quiet = 10 * time.Minute
		}
	}
	level := slog.LevelWarn
	l.mu.Lock()
	if said := l.said.get(sort, func() *time.Time { return new(time.Time) }); time.Since(*said) < quiet {
		level = slog.LevelDebug
	} else {
		*said = time.Now()
	}
	l.mu.Unlock()
	l.Log(context.Background(), level, msg, append(args, "err", err)...)
	return level == slog.LevelWarn
}

// options are the flags, checked.
type options struct {
	kubeconfig, context, master           string
	namespace, podSelector, fieldSelector string
	totalLabel, nodeLabel                 string
	podEvents, wire, logFormat            string
	totalNodes                            nodeChoice // -total-nodes
	interval                              time.Duration
	workers, burst, verbosity             int
	qps                                   float64
	version                               bool
}

const controlPlane, oldControlPlane = "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"

// nodeChoice is the nodes that meet one of the selectors.
type nodeChoice []Selector

func (c nodeChoice) Matches(labels map[string]string) bool {
	return slices.ContainsFunc(c, func(s Selector) bool { return s.Matches(labels) })
}

// parseFlags reads the command line. Its errors are usageErrors of one line, or flag.ErrHelp once the help is printed.
func parseFlags(args []string, stdout io.Writer) (*options, error) {
	o := &options{totalNodes: nodeChoice{{{key: controlPlane}}, {{key: oldControlPlane}}}}
	fs := flag.NewFlagSet("podcount", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; else $KUBECONFIG, the pod's service account, ~/.kube/config")
	fs.StringVar(&o.context, "context", "", "`name` of the kubeconfig's context; else its current-context")
	fs.StringVar(&o.master, "master", "", "`URL` of the API server, in place of the kubeconfig's")
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
	fs.IntVar(&o.workers, "workers", 4, "reconcile so many nodes at a time")
	fs.Float64Var(&o.qps, "qps", 20, "label writes a second, over all nodes")
	fs.IntVar(&o.burst, "burst", 40, "label writes at once, before -qps holds")
	fs.IntVar(&o.verbosity, "v", 0, "verbosity: 2 shows each write, 4 each watch event and queue step, 6 each request")
	fs.StringVar(&o.logFormat, "log-format", "text", "`text|json`, to stderr")
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stdout, "podcount counts pods and writes the counts to labels of nodes. Flags:")
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return nil, err
	}
	if err == nil {
		err = o.check(fs.Args())
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("%w (podcount -h lists the flags)", err)}
	}
	return o, nil
}

func (o *options) check(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if ns := o.namespace; ns != "" && (checkDNSName(ns) != nil || strings.Contains(ns, ".") || len(ns) > 63) {
		return fmt.Errorf("-namespace %q is no namespace's name", ns)
	}
	if _, err := parseSelector(o.podSelector); err != nil {
		return fmt.Errorf("-pod-selector: %w", err)
	}
	for term := range strings.SplitSeq(o.fieldSelector, ",") {
		escaped := strings.Contains(o.fieldSelector, `\`) // the server knows better where the terms end
		if path, _, ok := strings.Cut(term, "="); term != "" && !escaped && (!ok || strings.TrimRight(path, "!") == "") {
			return fmt.Errorf("-field-selector: %q is not FIELD=VALUE or FIELD!=VALUE", term)
		}
	}
	for i, key := range []string{o.totalLabel, o.nodeLabel} {
		name := []string{"-total-label", "-node-label"}[i]
		if key == "" && name == "-node-label" {
			continue
		}
		if err := checkLabelKey(key); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, s := range o.totalNodes {
			if slices.Contains(s.Keys(), key) {
				return fmt.Errorf("-total-nodes: %s is the %s, which changes with what it says: nodes would come and go for ever", key, name)
			}
		}
		domain, _, _ := strings.Cut(key, "/")
		for _, theirs := range []string{"kubernetes.io", "k8s.io"} {
			if strings.Contains(key, "/") && strings.HasSuffix("."+domain, "."+theirs) {
				return fmt.Errorf("%s %s: labels under %s are reserved for Kubernetes itself; use a domain of your own", name, key, theirs)
			}
		}
	}
	switch {
	case o.totalLabel == o.nodeLabel:
		return fmt.Errorf("-node-label %s is the -total-label too: they need different keys", o.nodeLabel)
	case o.podEvents != "on" && o.podEvents != "off":
		return fmt.Errorf("-pod-events %q: use on or off", o.podEvents)
	case o.wire != "protobuf" && o.wire != "json":
		return fmt.Errorf("-wire %q: use protobuf or json", o.wire)
	case o.logFormat != "text" && o.logFormat != "json":
		return fmt.Errorf("-log-format %q: use text or json", o.logFormat)
	case o.interval <= 0:
		return fmt.Errorf("-interval %v must be more than 0", o.interval)
	case o.workers < 1 || o.burst < 1 || !(o.qps > 0):
		return errors.New("-workers, -qps and -burst must be more than 0")
	case o.verbosity < 0:
		return fmt.Errorf("-v %d must not be less than 0", o.verbosity)
	}
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
	if errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
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
	recorder := NewRecorder(client.Send, log, cmp.Or(host, "podcount"))
	sending, cutEvents := context.WithCancel(context.WithoutCancel(ctx))
	defer cutEvents()
	recording, stopRecorder := context.WithCancel(context.WithoutCancel(ctx))
	var recorded sync.WaitGroup
	recorded.Go(func() { recorder.Run(sending, recording) })

	c := podCount{options: o, client: client, recorder: recorder, log: log, pace: NewBucket(o.qps, o.burst)}
	err = c.run(ctx)

	stopRecorder()
	defer time.AfterFunc(eventsTime, cutEvents).Stop()
	recorded.Wait()
	log.Info("podcount stopped", "events_dropped", recorder.Dropped())
	return err
}

// podCount is the controller: it keeps the labels of nodes equal to the numbers of pods.
type podCount struct {
	*options
	client   *Client
	recorder *Recorder
	log      *Log
	pods     *Store[*Pod]
	nodes    *Store[*Node]
	nodeKind Kind[*Node]
	queue    *Queue[Key] // of nodes, and theTotal
	pace     *Bucket     // of label writes

	written sync.Map  // when a node, by uid, was last written: a time.Time
	toldAt  time.Time // when theTotal was last passed on: its reconcile's alone
}

// theTotal is the key that is added when the number of all pods has changed. It stands for all nodes that show it, so
// that a pod's coming costs the same with one such node and with thousands.
var theTotal = Key{Name: "(total)"} // no node can be called so

// run works until ctx ends, or until the server says that our very question is wrong.
func (c *podCount) run(ctx context.Context) error {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	podKind := Kind[*Pod]{Name: "Pod", Path: "/api/v1/pods", Protobuf: c.wire == "protobuf", Selector: c.podSelector, Fields: c.fieldSelector,
		MetadataOnly: c.nodeLabel == "", New: func() *Pod { return new(Pod) }}
	if c.namespace != "" {
		podKind.Path = "/api/v1/namespaces/" + c.namespace + "/pods"
	}
	c.nodeKind = Kind[*Node]{Name: "Node", Path: "/api/v1/nodes", Protobuf: c.wire == "protobuf", MetadataOnly: true,
		Keep: []string{c.totalLabel, c.nodeLabel}, New: func() *Node { return new(Node) }}
	for _, s := range c.totalNodes {
		c.nodeKind.Keep = append(c.nodeKind.Keep, s.Keys()...)
	}
	c.pods, c.nodes = NewStore(func(p *Pod) string { return p.NodeName }), NewStore[*Node](nil)
	pods := NewReflector(c.client, podKind, c.pods, c.podChanged, c.log)
	nodes := NewReflector(c.client, c.nodeKind, c.nodes, c.nodeChanged, c.log)
	c.queue = NewQueue[Key](ctx, c.log, 5*time.Millisecond, 30*time.Second)

	var wg sync.WaitGroup
	for _, reflect := range []func(context.Context) error{pods.Run, nodes.Run} {
		wg.Go(func() {
			if err := reflect(ctx); err != nil {
				cancel(usageError{err})
			}
		})
	}
	// Nothing is written before both caches are complete: a label from half a list is a wrong label.
	for _, synced := range []chan struct{}{pods.synced, nodes.synced} {
		select {
		case <-synced:
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		c.log.Info("caches are complete, work begins", "pods", c.pods.Len(), "nodes", c.nodes.Len(), "took", time.Since(start).Round(time.Millisecond))
		c.work(ctx)
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != context.Canceled {
		return cause
	}
	return nil
}

// work runs the workers, and adds each interval the nodes that are not right, until stop ends and what is in hands is
// finished.
func (c *podCount) work(stop context.Context) {
	if len(c.shownOn()) == 0 {
		c.log.Warn("no node gets the total: none matches -total-nodes (a managed cluster hides its control plane; -total-nodes '' means every node)", "label", c.totalLabel)
	}
	finish, cut := context.WithCancel(context.WithoutCancel(stop))
	defer cut()
	var wg sync.WaitGroup
	for range c.workers {
		wg.Go(func() {
			for key, ok := c.queue.Get(); ok; key, ok = c.queue.Get() {
				result, err := c.reconcile(stop, finish, key)
				failures := c.queue.Done(key, result, err)
				if err != nil {
					c.log.Complain("cannot write the label", err, "node", key, "failures", failures)
				}
			}
		})
	}
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	for stop.Err() == nil {
		// The nodes that show the total come first: -qps may keep the rest waiting. What is right already need not queue.
		c.queue.Add(slices.DeleteFunc(append(c.shownOn(), keysOf(c.nodes.All())...), func(k Key) bool {
			_, wrong := c.wrong(k)
			return len(wrong) == 0
		})...)
		select {
		case <-ticker.C:
		case <-stop.Done():
		}
	}
	defer time.AfterFunc(finishTime, cut).Stop()
	wg.Wait()
}

func keysOf(nodes []*Node) []Key {
	keys := make([]Key, len(nodes))
	for i, n := range nodes {
		keys[i] = n.Key()
	}
	return keys
}

// shownOn are the nodes that get the total.
func (c *podCount) shownOn() []Key {
	return keysOf(slices.DeleteFunc(c.nodes.All(), func(n *Node) bool { return !c.totalNodes.Matches(n.Labels) }))
}

// podChanged turns a pod's change into keys, and says it of a new pod.
func (c *podCount) podChanged(d Delta[*Pod]) {
	if d.Old == nil || d.New == nil {
		c.queue.Add(theTotal)
	}
	if c.nodeLabel != "" {
		for _, p := range []*Pod{d.Old, d.New} {
			if p != nil && p.NodeName != "" {
				c.queue.Add(Key{Name: p.NodeName})
			}
		}
	}
	if d.Old == nil && c.podEvents == "on" {
		about := ObjectReference{"v1", "Pod", d.New.Key().Namespace, d.New.Key().Name, d.New.UID()}
		c.recorder.Event(about, "Normal", "PodCounted", fmt.Sprintf("pod count is %d", c.pods.Len()))
	}
}

func (c *podCount) nodeChanged(d Delta[*Node]) {
	if d.New != nil {
		c.queue.Add(d.New.Key())
	} else {
		c.written.Delete(d.Old.UID())
	}
}

// reconcile makes one node's labels right, or passes the total's change on to the nodes that show it. finish, which ends
// later than stop, is for what has begun.
func (c *podCount) reconcile(stop, finish context.Context, key Key) (Result, error) {
	if key == theTotal {
		// Each of the nodes writes once an interval; this only keeps a flood of pods from going through all of them.
		if rest := min(c.interval, time.Second) - time.Since(c.toldAt); rest > 0 {
			return Result{RequeueAfter: rest}, nil
		}
		c.toldAt = time.Now()
		c.queue.Add(c.shownOn()...)
		return Result{}, nil
	}
	node, wrong := c.wrong(key)
	if len(wrong) == 0 {
		return Result{}, nil
	}
	if at, ok := c.written.Load(node.UID()); ok {
		if rest := c.interval - time.Since(at.(time.Time)); rest > 0 {
			return Result{RequeueAfter: rest}, nil
		}
	}
	if c.pace.Wait(stop) != nil {
		return Result{}, nil
	}
	// It may have changed while we waited.
	if node, wrong = c.wrong(key); len(wrong) == 0 {
		return Result{}, nil
	}
	return Result{}, c.write(finish, node, wrong)
}

// labelChange is what one label has and should have: a string, or nil where it is not there.
type labelChange struct {
	key, what string // what: of its event
	has, want any
}

// wrong returns the node, and those of its labels that are not what they should be, by the whole caches as they are now.
func (c *podCount) wrong(key Key) (node *Node, changes []labelChange) {
	if node = c.nodes.Get(key); node == nil {
		return nil, nil
	}
	check := func(key, what string, want any) {
		var has any
		if v, ok := node.Labels[key]; ok {
			has = v
		}
		if has != want {
			changes = append(changes, labelChange{key, what, has, want})
		}
	}
	var total any
	if c.totalNodes.Matches(node.Labels) {
		total = strconv.Itoa(c.pods.Len())
	}
	check(c.totalLabel, "pod count", total)
	if c.nodeLabel != "" {
		check(c.nodeLabel, "pod count of this node", strconv.Itoa(c.pods.Count(key.Name)))
	}
	return node, changes
}

// write patches the labels: without resourceVersion, so that other writers of the node cannot hold us up, but with the
// uid, so that a node that was made anew under its name does not get its predecessor's.
func (c *podCount) write(ctx context.Context, node *Node, changes []labelChange) error {
	labels := map[string]any{}
	for _, ch := range changes {
		labels[ch.key] = ch.want
	}
	patch := map[string]any{"metadata": map[string]any{"uid": node.UID(), "labels": labels}}
	var answer json.RawMessage
	err := c.client.Send(ctx, http.MethodPatch, c.nodeKind.Path+"/"+node.Key().Name, patch, &answer)
	if isStatus(err, http.StatusNotFound, "NotFound") || isStatus(err, http.StatusUnprocessableEntity, "Invalid") && statusIn(err).hasCause("metadata.uid") {
		return nil // gone, or made anew: the watch brings what is there now
	}
	var written *Node
	if err == nil {
		written, err = newDecoder(&c.nodeKind).parse(answer)
	}
	if err != nil {
		return err
	}
	c.nodes.Written(written)
	if now := c.nodes.Get(node.Key()); now != nil && now.UID() == node.UID() { // else nobody would ever delete it
		c.written.Store(node.UID(), time.Now())
	}
	for _, ch := range changes {
		from, to := cmp.Or(ch.has, "none"), cmp.Or(ch.want, "none")
		c.log.Log(ctx, levelWrite, "label written", "node", node.Key(), "label", ch.key, "from", from, "to", to)
		c.recorder.Event(ObjectReference{"v1", "Node", "", node.Key().Name, node.UID()}, "Normal", "PodCountChanged", fmt.Sprintf("%s changed from %s to %s", ch.what, from, to))
	}
	return nil
}

// Selector is a label selector: every requirement must hold. None holds always.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
type Selector []requirement

type requirement struct {
	key    string
	not    bool     // turns the rest round, and holds for a missing key
	values []string // one of these; nil: the key is there,
	above  *int     // and its value a number above this,
	below  *int     // or below this
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

// Keys are the label keys that the selector looks at.
func (s Selector) Keys() (keys []string) {
	for _, r := range s {
		keys = append(keys, r.key)
	}
	return keys
}

// parseSelector reads "k", "!k", "k=v", "k==v", "k!=v", "k in (a,b)", "k notin (a,b)", "k>1" and "k<1", joined by commas.
// The error says what is wrong and with which requirement.
func parseSelector(text string) (s Selector, err error) {
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
			if err != nil {
				return nil, fmt.Errorf("requirement %d %q: %w", len(s)+1, part, err)
			}
			s, start = append(s, r), i+1
		}
	}
	return s, nil
}

func trimBlanks(s string) string { return strings.Trim(s, " \t\r\n") }

func parseRequirement(text string) (r requirement, err error) {
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
	switch op {
	case "":
		word, _, _ := strings.Cut(rest, " ")
		return r, fmt.Errorf("%q is no operator: use =, !=, in (a,b) or notin (a,b)", word)
	case ">", "<":
		n, err := strconv.Atoi(value)
		if err != nil {
			return r, fmt.Errorf("%q is no number", value)
		}
		if r.above = &n; op == "<" {
			r.above, r.below = nil, &n
		}
		return r, nil
	case "in", "notin":
		if len(value) < 2 || value[0] != '(' || value[len(value)-1] != ')' {
			return r, fmt.Errorf("%s needs values in parentheses: %s %s (a,b)", op, r.key, op)
		}
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
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		name = key
	} else if err := checkDNSName(prefix); err != nil {
		return fmt.Errorf("label key %q: prefix %w", key, err)
	}
	if name == "" || checkLabelValue(name) != nil {
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
