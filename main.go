// Podcount is a Kubernetes controller that needs nothing but Go's standard library. It counts pods, and writes the
// counts to labels of nodes and to the status of Counts, a custom resource. Data flows in a circle through four files:
//
//	API server ──list, watch──▶ watch.go ──objects──▶ cache.go
//	                                                     │ changes
//	                      queue.go ◀──keys── main.go: Watch asks a controller which keys a change concerns
//	                         │ key
//	                      main.go: Reconcile ──patch, through watch.go──▶ API server
//
// A key says which object to look at, not what has changed. Reconcile works out from the caches what that object should
// be, and patches it if it differs; the server's answer goes into the cache. A key whose Reconcile fails is tried again
// after a backoff, which is a wait that doubles with each failure. At each -interval, a controller may add keys to look
// at again. No controller works before its caches have complete lists, because half a list would give wrong numbers.
// With -leader-elect, only one replica works: the one that holds the Lease, an object of the API server. Kubernetes
// Events tell people what podcount has done. They are posted in the background, and no reconcile waits for them.
//
// A cache is a Reflector (watch.go) with the Store that it fills (cache.go). This file has the controllers, of which
// the pod-printer is the smallest, and then the program that runs them. Read up to the end of the pod-printer, then
// cache.go, queue.go and watch.go, and then the pod-count controller and what follows it. docs/learn/tour.md follows
// one pod through these files.
//
// What they use is in internal/, and docs/change/internals.md describes it:
//
//	control         runs the controllers; once.go lists what -once, -dry-run and -prune change
//	control/brakes  writes to objects; lists all that can make a write wait
//	watch/ending    decides what follows the end of a watch, such as 410, and how long to wait after a failed list
//	watch/position  knows the versions; notices that etcd, the server's database, was restored from a backup
//	watch/audit     says when a store is compared with the server
//	api/object      says what is kept of a pod: see pod.go; makes objects of bytes: see Decoder
//	api/kube        sends the requests
//	api/kubeconfig  finds the cluster, and renews the credential: see access.renew in credential.go
//	api/leader      holds the Lease: see Election.renew
//	api/events      posts the Events
//	view/observe    makes log lines, metrics and more of all that happens
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"podcount/deploy"
	"podcount/internal/api/events"
	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/leader"
	"podcount/internal/api/object"
	"podcount/internal/api/retry"
	"podcount/internal/control"
	"podcount/internal/control/brakes"
	"podcount/internal/control/counts"
	"podcount/internal/run/options"
	"podcount/internal/run/overview"
	"podcount/internal/run/process"
	"podcount/internal/view/logging"
	"podcount/internal/view/observe"
	"podcount/internal/view/trace"
	"podcount/internal/watch/ending"
	"podcount/internal/watch/position"
)

// registered are all controllers that podcount has. To add one, append it in an init function, as
// docs/build/controller.md says.
var registered = []Registration{
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

// Registration is a controller that podcount can run.
type Registration struct {
	Name  string
	About string // what it does, for -controllers=help
	Off   bool   // it runs only if -controllers names it

	// Rights are the permissions that the controller needs in a cluster, for -manifest. Built-in controllers have none
	// here: their rights depend on flags, and package deploy knows them.
	Rights []deploy.Right

	// Setup is called before anything runs. It tells the caches which fields the controller needs, calls Watch for each
	// cache, and sets Reconcile and, if needed, the other functions of the controller.
	Setup func(p *program, c *Controller)
}

// These are the types of package control that a controller needs.
type (
	Controller = control.Controller // a registered controller that is on
	Result     = control.Result     // what a reconcile asks for
	Summary    = control.Summary    // numbers of objects, for the last line of a run
)

// program holds the caches, and what caches and controllers share. The manager holds the controllers.
type program struct {
	observe.Sinks // Log, Metrics and Trace: where all that happens is told

	// The caches. Each one runs if a controller watches it.
	pods   *Reflector[*Pod]
	nodes  *Reflector[*Node]
	counts *Reflector[*Count]

	podsPerNode      *NumberIndex[*Pod] // the number of pods on each node; empty unless a controller needs whole pods
	podsPerNamespace *NumberIndex[*Pod] // only for the page, so it is nil without -page

	options  *options.Options
	client   *kube.Client
	recorder *events.Recorder // posts Events
	manager  *control.Manager // runs the controllers and the caches
	out      *logging.Outputs
	life     *process.Lifetime // ends, step by step, when podcount is to stop
	started  time.Time

	server        string                // the URL of the API server; a password in it is hidden
	serverOutage  *logging.ServerOutage // logs that the server does not answer
	serverBackoff *retry.Shared         // wakes all who wait for the server as soon as one of them gets an answer
	restores      *position.Restores    // tells all caches if one notices that etcd was restored from a backup
	election      *leader.Election      // nil without -leader-elect, and in a dry run

	labels   []*overview.Label  // the labels of nodes that controllers maintain, for the page
	overview *overview.Overview // what -listen and -page show; nil until setUp
}

// Watch makes a controller watch a cache. onChange adds the keys that a change concerns, by c.Add or c.AddAfter. From
// the moment when the controller begins, onChange gets each change, and also each object that is there, as a replay:
// see Delta. With -once, it gets only replays, and leaves changes to the next run. Several goroutines call onChange at
// once.
func Watch[T object.Object[T]](c *Controller, r *Reflector[T], onChange func(Delta[T])) {
	handle := func(change Delta[T]) {
		c.Call(func() { onChange(change) }) // Call recovers from panics.
	}
	replayAll := func() {
		for _, obj := range r.All() {
			handle(Delta[T]{Old: obj, New: obj})
		}
	}
	c.AddCache(r, replayAll)
	r.Subscribe(func(change Delta[T]) {
		if !c.HasBegun() {
			return // The store has the change, so replayAll will bring it.
		}
		if c.SkipsChanges() && !change.isReplay() { // A replay may come here after a change of the CRD: see onInstalled.
			return // -once leaves it to the next run.
		}
		handle(change)
	})
}

// WatchOwn makes a controller watch the objects that it is for: a change adds the key of the object that has changed.
func WatchOwn[T object.Object[T]](c *Controller, r *Reflector[T]) {
	Watch(c, r, func(change Delta[T]) { c.Add(change.Key()) })
}

// What internal/control does with a controller, leaving out errors and the shutdown (see Manager.runController,
// Controller.work and Controller.look, which are short):
//
//	wait until this replica leads, and each cache that the controller watches is complete and new enough
//	then start these, which run at the same time:
//		several workers, each again and again:
//			key := queue.Get()
//			result, err := Reconcile(ctx, key)
//			queue.Done(key, result, err)
//		a loop:
//			at first, for each object that is there: onChange(Delta{Old: object, New: object})
//			then, at once and at each -interval: queue.Add(Resync()...)
//		each cache, whenever it changes:
//			onChange(change)

// ---------------------------------------------------------------------------------------------------------------------
// The pod-printer

// setUpPodPrinter sets up a controller that prints the name of each pod that is there, and of each that changes. It is
// the smallest example of a controller.
func setUpPodPrinter(p *program, c *Controller) {
	p.pods.NeedEveryVersion() // to print also changes of fields that podcount does not read
	WatchOwn(c, p.pods)
	c.Reconcile = func(_ context.Context, key Key) (Result, error) {
		if p.pods.Get(key) == nil {
			fmt.Fprintf(p.out.Stdout, "Pod %s does not exist anymore\n", key)
		} else {
			fmt.Fprintf(p.out.Stdout, "Sync/Add/Update for Pod %s\n", key)
		}
		return Result{}, nil
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The pod-count controller

// podCountController keeps the labels of nodes equal to the numbers of pods.
type podCountController struct {
	*Controller
	options  *options.Options
	log      *slog.Logger
	recorder *events.Recorder

	nodes       *Reflector[*Node]
	pods        *Reflector[*Pod]
	podsPerNode *NumberIndex[*Pod]

	totalLabel *numberLabel   // -total-label
	labels     []*numberLabel // all labels that podcount writes: totalLabel and, if it is set, -node-label

	wrongNodesAddedAt time.Time // only addWrongNodes uses it, and no two workers have totalKey at once
	hasWarned         bool      // that no node gets the total; only resync uses it
}

// numberLabel is a label that podcount writes to nodes. Its value is a number of pods.
type numberLabel struct {
	name    string
	subject string                   // what it shows, for Events
	want    func(*Node) brakes.Value // its right value on a node
	onPage  *overview.Label          // shows it on the page
}

// field compares the label of a node with the caches.
func (l *numberLabel) field(node *Node) brakes.Field {
	is := labelOf(node, l.name)
	want := l.want(node)
	return brakes.Field{Name: l.name, From: is, To: want, IsWrong: is != want}
}

func (l *numberLabel) isWrong(node *Node) bool { return l.field(node).IsWrong }

// labelOf returns the value of a node's label.
func labelOf(node *Node, label string) brakes.Value {
	text, exists := node.Label(label)
	return brakes.Value{Text: text, Exists: exists}
}

// totalKey is no node: its reconcile adds the keys of all nodes with wrong labels. It is added when the number of all
// pods changes.
var totalKey = Key{Name: "(total)"} // no node can have this name

func setUpPodCount(p *program, base *Controller) {
	o := p.options
	c := &podCountController{
		Controller:  base,
		options:     o,
		log:         p.Log,
		recorder:    p.recorder,
		nodes:       p.nodes,
		pods:        p.pods,
		podsPerNode: p.podsPerNode,
	}
	wantTotal, wantOwn := c.wantTotal, c.wantOwn
	if o.Prune {
		wantTotal, wantOwn = wantNone, wantNone
	}
	c.totalLabel = &numberLabel{name: o.TotalLabel, subject: "pod count", want: wantTotal}
	c.labels = []*numberLabel{c.totalLabel}
	p.nodes.NeedLabels(o.TotalLabel)
	p.nodes.NeedLabels(o.TotalNodes.Keys()...)
	if o.NodeLabel != "" {
		own := &numberLabel{name: o.NodeLabel, subject: "pod count of this node", want: wantOwn}
		c.labels = append(c.labels, own)
		p.nodes.NeedLabels(o.NodeLabel)
		p.pods.NeedWholeObjects() // for spec.nodeName
	}
	for _, label := range c.labels {
		isOwn := label != c.totalLabel
		label.onPage = overview.NewLabel(label.name, isOwn, c.labelOnNodes(label))
		p.labels = append(p.labels, label.onPage)
	}
	Watch(base, p.nodes, c.onNodeChange)
	if !o.Prune {
		Watch(base, p.pods, c.onPodChange)
	}
	base.Reconcile = c.reconcile
	base.Resync = c.resync
	base.IsUrgent = c.isUrgent
	base.Summary = c.summary
}

// wantNone is for -prune: no node should have a label.
func wantNone(*Node) brakes.Value { return brakes.Value{} }

// wantTotal returns the number of all pods, for the nodes that -total-nodes selects.
func (c *podCountController) wantTotal(node *Node) brakes.Value {
	if !c.options.TotalNodes.Matches(node.Label) {
		return brakes.Value{}
	}
	return brakes.Value{Text: strconv.Itoa(c.pods.Len()), Exists: true}
}

// wantOwn returns the number of a node's own pods.
func (c *podCountController) wantOwn(node *Node) brakes.Value {
	return brakes.Value{Text: strconv.Itoa(c.podsPerNode.Number(node.Key())), Exists: true}
}

// onNodeChange adds a new node at once, and a changed one a moment later.
func (c *podCountController) onNodeChange(change Delta[*Node]) {
	isNew := change.Old == nil
	isGone := change.New == nil
	switch {
	case isNew:
		c.Add(change.Key())
	case isGone: // There is nothing to write.
		return
	case change.isReplay(): // Resync finds the nodes that need work.
		return
	default:
		// This may be the answer to our own patch: then nothing is to be done. Or another podcount has written the
		// label. It may have counted pods that our watch brings in a moment.
		c.AddAfter(change.Key(), min(c.options.Interval, time.Second))
	}
}

// onPodChange adds totalKey if the number of all pods has changed, and the nodes that the pod has left or joined. With
// -pod-events, it posts an Event about a new pod.
func (c *podCountController) onPodChange(change Delta[*Pod]) {
	if change.isReplay() {
		return // Resync finds the nodes that need work.
	}
	isNew := change.Old == nil
	isGone := change.New == nil
	if isNew || isGone {
		c.Add(totalKey)
	}
	if isNew && c.options.PodEvents {
		message := fmt.Sprintf("pod count is %d", c.pods.Len())
		c.recorder.Event(c.pods.Reference(change.New), "Normal", "PodCounted", message)
	}
	was, is := nodeOf(change.Old), nodeOf(change.New)
	if c.options.NodeLabel == "" || was == is {
		return
	}
	for _, node := range []Key{was, is} {
		if node.Name != "" {
			c.Add(node)
		}
	}
}

// nodeOf returns the key of a pod's node. It is Key{} if there is no pod, or if the pod is on no node.
func nodeOf(pod *Pod) Key {
	if pod == nil {
		return Key{}
	}
	return Key{Name: pod.NodeName}
}

// resync returns the keys of the nodes with wrong labels. It warns once if no node gets the total.
func (c *podCountController) resync() []Key {
	if err := c.checkTotalNodes(); err != nil && !c.hasWarned {
		c.log.Warn(err.Error(), "label", c.totalLabel.name)
		c.hasWarned = true
	}
	return c.keysOfWrongNodes()
}

// keysOfWrongNodes returns the keys of the nodes with wrong labels.
func (c *podCountController) keysOfWrongNodes() (keys []Key) {
	for _, node := range c.nodes.All() {
		if c.isAnyWrong(node) {
			keys = append(keys, node.Key())
		}
	}
	return keys
}

// isAnyWrong reports whether a label of a node is wrong.
func (c *podCountController) isAnyWrong(node *Node) bool {
	return slices.ContainsFunc(c.labels, func(label *numberLabel) bool { return label.isWrong(node) })
}

// reconcile corrects the labels of one node. For totalKey, it adds all nodes with wrong labels. Brakes.Correct does
// this:
//
//	compare the node with the caches; if no label is wrong, end
//	leave out the labels that the server has dropped in the last 10 minutes; if no wrong one is left, end
//	if the node was written less than -interval ago, add its key for later, and end
//	wait for the turn of this write, by -qps
//	compare again, because the caches may have changed; patch what is wrong
func (c *podCountController) reconcile(ctx context.Context, key Key) (Result, error) {
	if key == totalKey {
		return c.addWrongNodes(), nil
	}
	err := c.Brakes.Correct(ctx, key, func() *brakes.Comparison { return c.compare(key) })
	return Result{}, err
}

// addWrongNodes adds all nodes with wrong labels, because the total has changed. It does so at most once a second, or
// once an interval if that is shorter, because it has to look at each node.
func (c *podCountController) addWrongNodes() Result {
	wait := min(c.options.Interval, time.Second) - time.Since(c.wrongNodesAddedAt)
	if wait > 0 {
		return Result{RequeueAfter: wait}
	}
	c.wrongNodesAddedAt = time.Now()
	c.Add(c.keysOfWrongNodes()...)
	return Result{}
}

// compare compares the labels of a node with the caches. It returns nil if the node is gone.
func (c *podCountController) compare(key Key) *brakes.Comparison {
	node := c.nodes.Get(key)
	if node == nil {
		return nil
	}
	comparison := &brakes.Comparison{
		Kind:      "node",
		Noun:      "label",
		UID:       node.UID(),
		Patch:     func(ctx context.Context, due []brakes.Field) ([]string, error) { return c.patch(ctx, node, due) },
		OnWritten: func(written brakes.Field) { c.tellOfWrite(node, written) },
	}
	for _, label := range c.labels {
		comparison.Fields = append(comparison.Fields, label.field(node))
	}
	return comparison
}

// patch sends one patch with the labels of a node that are due. It returns those that the server has dropped.
func (c *podCountController) patch(ctx context.Context, node *Node, due []brakes.Field) (dropped []string, err error) {
	labels := map[string]any{}
	for _, field := range due {
		labels[field.Name] = nil // In a merge patch, null removes the label.
		if field.To.Exists {
			labels[field.Name] = field.To.Text
		}
	}
	droppedFrom := func(answer *Node) (names []string) {
		for _, field := range due {
			if labelOf(answer, field.Name) != field.To {
				names = append(names, field.Name)
			}
		}
		return names
	}
	patch := map[string]any{"metadata": map[string]any{"labels": labels}}
	return c.nodes.Patch(ctx, node, "", patch, droppedFrom)
}

// ---------------------------------------------------------------------------------------------------------------------
// The pod-count controller: Events, the page, the last line of a run, and urgent keys (may be skipped)

// tellOfWrite tells the page that a label of a node was written, and posts an Event about it. In a dry run nothing was
// written, and the recorder only logs the Event. With -prune nothing remains to be explained, so there is no Event.
func (c *podCountController) tellOfWrite(node *Node, written brakes.Field) {
	for _, label := range c.labels {
		if label.name != written.Name {
			continue
		}
		if !c.options.DryRun {
			label.onPage.Wrote()
		}
		if !c.options.Prune {
			message := fmt.Sprintf("%s changed from %s to %s", label.subject, written.From, written.To)
			c.recorder.Event(c.nodes.Reference(node), "Normal", "PodCountChanged", message)
		}
	}
}

// labelOnNodes yields all nodes, for the page: whether they should show a label, and whether it is wrong there.
func (c *podCountController) labelOnNodes(label *numberLabel) iter.Seq[overview.LabelOnNode] {
	return func(yield func(overview.LabelOnNode) bool) {
		for _, node := range c.nodes.All() {
			on := overview.LabelOnNode{
				Node:    node.Key().Name,
				Shows:   label.want(node).Exists,
				IsWrong: label.isWrong(node),
			}
			if !yield(on) {
				return
			}
		}
	}
}

// summary returns how many nodes there are, and how many have a wrong label.
func (c *podCountController) summary() Summary {
	return Summary{
		Noun:  "node",
		All:   c.nodes.Len(),
		Wrong: len(c.keysOfWrongNodes()),
		Unmet: c.checkTotalNodes(),
	}
}

var errNoNode = errors.New("no node gets the total, because no node matches -total-nodes " +
	"(managed clusters hide their control plane; use -total-nodes '' for every node)")

// checkTotalNodes returns errNoNode if no node should get the total, except with -prune.
func (c *podCountController) checkTotalNodes() error {
	isForTotal := func(node *Node) bool { return c.totalLabel.want(node).Exists }
	hasNode := slices.ContainsFunc(c.nodes.All(), isForTotal)
	if hasNode || c.options.Prune {
		return nil
	}
	return errNoNode
}

// isUrgent reports whether a key is totalKey, or that of a node with a wrong total. Otherwise the total would wait
// until each node has its own number: with the default -qps, a thousand writes take almost a minute.
func (c *podCountController) isUrgent(key Key) bool {
	if key == totalKey {
		return true
	}
	node := c.nodes.Get(key)
	return node != nil && c.totalLabel.isWrong(node)
}

// ---------------------------------------------------------------------------------------------------------------------
// The count controller

// countController keeps the status of each Count right: how many pods of an app there are, and whether the Count wants
// as many.
type countController struct {
	*Controller
	interval time.Duration
	log      *slog.Logger
	recorder *events.Recorder

	counts      *Reflector[*Count]
	countsByApp *ObjectIndex[*Count] // by the app whose pods they count
	pods        *Reflector[*Pod]
	podsPerApp  []*NumberIndex[*Pod] // the number of pods of each app: an index for each of appLabels

	reports counts.Reports // the last one about each Count
}

// appLabels are the labels that can name the app of a pod.
var appLabels = []string{"app", "app.kubernetes.io/name", "run"}

func setUpCount(p *program, base *Controller) {
	c := &countController{
		Controller:  base,
		interval:    p.options.Interval,
		log:         p.Log,
		recorder:    p.recorder,
		counts:      p.counts,
		countsByApp: IndexBy(p.counts.store, appOfCount),
		pods:        p.pods,
	}
	p.pods.NeedLabels(appLabels...)
	for i := range appLabels {
		perApp := NumberBy(p.pods.store, func(pod *Pod) Key { return appOfPod(pod, i) })
		c.podsPerApp = append(c.podsPerApp, perApp)
	}
	Watch(base, p.pods, c.onPodChange)
	Watch(base, p.counts, c.onCountChange)
	// A Count cools down for less time than a node: people wait for its status, and fewer clients watch it.
	base.Brakes.CoolDown = min(base.Brakes.CoolDown, time.Second)
	base.Reconcile = c.reconcile
	base.Summary = c.summary
}

// appOfPod returns the namespace of a pod and the app that appLabels[i] names. It returns Key{} in three cases: the pod
// is nil, it does not have the label, or an earlier label names the same app. So a pod with app=web and run=web counts
// once.
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
	for _, index := range c.podsPerApp {
		n += index.Number(appOfCount(count))
	}
	return n
}

// onPodChange adds the Counts that a change of a pod concerns: those of the apps that the pod has left or joined.
func (c *countController) onPodChange(change Delta[*Pod]) {
	for i := range appLabels {
		was := appOfPod(change.Old, i)
		is := appOfPod(change.New, i)
		if was == is {
			continue
		}
		// Key{} stands for no app, and an index has no objects for it.
		for _, app := range []Key{was, is} {
			for _, count := range c.countsByApp.Objects(app) {
				c.Add(count.Key())
			}
		}
	}
}

// onCountChange adds a Count that has changed. If its status has changed, but not its spec, it is added an interval
// later. Without that wait, two podcounts that disagree would overwrite each other's status every second.
func (c *countController) onCountChange(change Delta[*Count]) {
	if change.isReplay() {
		// All Counts are replayed when their CRD was installed again, or has got a status subresource. Its schema may
		// now keep what it dropped before, so end the pause of the status. After any other replay, that does no harm.
		c.Brakes.Forget(change.Key())
	}
	isStillThere := change.Old != nil && change.New != nil
	if isStillThere && change.New.Status != change.Old.Status && change.New.CountSpec == change.Old.CountSpec {
		c.AddAfter(change.Key(), c.interval)
	} else {
		c.Add(change.Key())
	}
}

// viewOf returns a Count as the cache has it. A counts.View has the status that podcount would write (RightStatus), to
// be compared with OwnPart of the current status, and what people are told (ReportOf). ok is false if the Count is
// gone, or its CRD.
func (c *countController) viewOf(key Key) (view counts.View, ok bool) {
	count := c.counts.Get(key)
	installed := c.counts.Installed()
	if count == nil || installed == nil {
		return counts.View{}, false
	}
	return counts.View{Count: count, HasSubresource: installed.HasStatus}, true
}

// reconcile corrects the status of one Count, and posts Events about what has changed.
func (c *countController) reconcile(ctx context.Context, key Key) (Result, error) {
	err := c.Brakes.Correct(ctx, key, func() *brakes.Comparison {
		view, ok := c.viewOf(key)
		if ok {
			return c.compare(view)
		}
		if wasKnown := c.reports.Forget(key); wasKnown {
			c.log.Info("a Count is gone", "count", key)
		}
		return nil
	})
	return Result{}, err
}

// compare compares the status of a Count with the right one.
func (c *countController) compare(view counts.View) *brakes.Comparison {
	right := view.RightStatus(c.countPods(view.Count))
	status := brakes.Field{
		Name:    "status",
		From:    brakes.Value{Text: view.Status.Text(), Exists: true},
		To:      brakes.Value{Text: right.Text(), Exists: right.Count != ""}, // "" if the spec was never valid
		IsWrong: view.OwnPart(view.Status) != right,
	}
	// Keep the previous report before the write. If the answer is lost, the next try finds the status right, and only
	// the previous report shows that Events are still to be posted.
	previous := c.reports.KeepPrevious(view)
	return &brakes.Comparison{
		Kind:   "count",
		UID:    view.UID(),
		Fields: []brakes.Field{status},
		Patch: func(ctx context.Context, _ []brakes.Field) ([]string, error) {
			droppedFrom := func(answer *Count) []string {
				if view.OwnPart(answer.Status) == right {
					return nil
				}
				return []string{status.Name}
			}
			return c.counts.Patch(ctx, view.Count, view.Subresource(), map[string]any{"status": right}, droppedFrom)
		},
		OnFinished: func() { c.postReport(view, previous, view.ReportOf(right)) },
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// What the count controller tells people (may be skipped)

// postReport posts Events for what is new in a report. They tell the number of pods, whether or not the status could be
// written. So they are posted even if the server drops the status, and a dry run logs them.
func (c *countController) postReport(view counts.View, previous, report counts.Report) {
	c.reports.Posted(view, report)
	for _, event := range report.EventsAfter(previous) {
		c.recorder.Event(c.counts.Reference(view.Count), event.Type, event.Reason, event.Message)
	}
}

// summary returns how many Counts there are, and how many have a wrong status. It is empty while there is no CRD.
func (c *countController) summary() (summary Summary) {
	if c.counts.Installed() == nil {
		return Summary{}
	}
	summary.Noun = "count"
	for _, count := range c.counts.All() {
		summary.All++
		view, ok := c.viewOf(count.Key())
		if ok && view.RightStatus(c.countPods(view.Count)) != view.OwnPart(view.Status) {
			summary.Wrong++
		}
	}
	return summary
}

// ---------------------------------------------------------------------------------------------------------------------
// The program

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

// run is the whole program except for signals and exit codes. When ctx ends, run stops and returns nil. But with -once,
// it returns an error if ctx ends before all is done, or if lines of the output were lost. It returns an
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
	lost := out.Close(ctx) // an error if -once has lost lines of its output
	return cmp.Or(err, lost)
}

// connectAndRun finds the cluster, and runs the controllers until ctx ends, something fails, or -once is done.
func connectAndRun(
	ctx context.Context, o *options.Options, getenv func(string) string, out *logging.Outputs, dial kube.Dialer,
) error {
	sinks := observe.NewSinks(out.Log, trace.FromContext(ctx))
	cfg, err := kubeconfig.Load(ctx, kubeconfig.Options{
		Kubeconfig: o.Kubeconfig,
		Context:    o.Context,
		Master:     o.Master,
		Names:      kubeconfig.OptionNames{Kubeconfig: "-kubeconfig", Context: "-context", Master: "-master"},
		Getenv:     getenv,
		Log:        sinks.Log,
	})
	wasStopped := ctx.Err() != nil // while Load waited for a slow file
	if err != nil && wasStopped {
		return o.ErrStoppedEarly()
	}
	if err != nil {
		return options.UsageError{Err: err}
	}
	defer cfg.Close()
	client := newClient(o, cfg, dial, sinks)
	sinks.Starts(process.Version, cfg.Server.Redacted(), cfg.Source, process.FIPSMode())

	life := process.NewLifetime(ctx, control.DrainTimeout)
	defer life.End()
	p := newProgram(o, client, life, out, sinks)
	p.server = cfg.Server.Redacted()
	if o.LeaderElect && !o.DryRun {
		p.joinElection(kubeconfig.OwnNamespace(ctx))
	}
	p.setUp()
	defer p.overview.Close()
	if err := p.overview.Serve(); err != nil {
		client.Close()
		return err
	}
	return p.manager.Run()
}

// parseFlags reads the flags: see options.Parse.
func parseFlags(args []string, stdout io.Writer) (*options.Options, error) {
	var known options.Program
	for _, r := range registered {
		known.Controllers = append(known.Controllers, options.Controller{
			Name:   r.Name,
			About:  r.About,
			Off:    r.Off,
			Rights: r.Rights,
		})
	}
	return options.Parse(args, stdout, known)
}

// newClient makes the client that all parts of podcount share.
func newClient(o *options.Options, cfg *kubeconfig.Config, dial kube.Dialer, sinks observe.Sinks) *kube.Client {
	return kube.NewClient(cfg, kube.Options{
		Dial:         dial,
		UserAgent:    "podcount/" + process.Version + " (" + runtime.GOOS + "/" + runtime.GOARCH + ")",
		FieldManager: "podcount",
		DryRun:       o.DryRun,
		Observe:      sinks.Requested,
	})
}

// hostname returns the name of this replica, for Events. In the Lease, it has a random suffix.
func hostname() string {
	name, _ := os.Hostname()
	return cmp.Or(name, "podcount")
}

// ---------------------------------------------------------------------------------------------------------------------
// The caches and controllers of the program

// newProgram makes a program whose caches request as little as possible. The Setup of a controller widens them.
func newProgram(
	o *options.Options, client *kube.Client, life *process.Lifetime, out *logging.Outputs, sinks observe.Sinks,
) *program {
	p := &program{
		options:  o,
		client:   client,
		Sinks:    sinks,
		out:      out,
		life:     life,
		started:  time.Now(),
		restores: &position.Restores{},
	}
	// labelsAge, OnOver and Incomplete use the overview and the manager, which are made later. Nobody calls them before
	// manager.Run.
	labelsAge := func() []any { return p.overview.LabelsAge() }
	p.serverOutage = logging.NewServerOutage(sinks.Log, kube.IsUnanswered, labelsAge)
	p.serverBackoff = retry.NewShared(retry.SharedOptions{
		Base:      ending.InitialBackoff,
		Limit:     ending.MaxBackoff,
		OnFailure: p.serverOutage.Failed,
		OnOver: func() {
			p.serverOutage.Worked()
			p.manager.RetryWrites()
		},
	})
	p.recorder = p.newRecorder()
	p.manager = control.New(control.Options{
		Flags:        o,
		Life:         life,
		Recorder:     p.recorder,
		Close:        client.Close,
		Incomplete:   func() []string { return p.overview.Incomplete() },
		ServerOutage: p.serverOutage,
		Sinks:        sinks,
	})
	p.makeCaches()
	return p
}

// newRecorder makes the recorder of Events. In a dry run, it posts none, and logs them instead.
func (p *program) newRecorder() *events.Recorder {
	o := events.Options{
		Send:         p.client.Send,
		Component:    "podcount",
		Instance:     hostname(),
		ServerOutage: p.serverOutage,
		Log:          p.Log,
		Trace:        p.Trace,
	}
	if p.options.DryRun {
		o.DryRun = func(about events.Reference, reason, message string) {
			p.WouldPost(about.Kind, Key{Namespace: about.Namespace, Name: about.Name}, reason, message)
		}
	}
	return events.NewRecorder(o)
}

// makeCaches makes the caches, and the indexes that several parts share.
func (p *program) makeCaches() {
	o := p.options
	wantsProtobuf := o.Wire == "protobuf"
	podKind := object.PodKind()
	podKind.Namespace = o.Namespace
	podKind.LabelSelector = o.PodSelector
	podKind.FieldSelector = o.FieldSelector
	podKind.Protobuf = wantsProtobuf
	p.pods = NewCache(p, podKind)
	nodeKind := object.NodeKind()
	nodeKind.Protobuf = wantsProtobuf
	p.nodes = NewCache(p, nodeKind)
	countKind := object.CountKind()
	countKind.Namespace = o.Namespace
	p.counts = NewCache(p, countKind)
	p.podsPerNode = NumberBy(p.pods.store, nodeOf)
	if o.Page != "" {
		p.podsPerNamespace = NumberBy(p.pods.store, func(pod *Pod) Key { return Key{Name: pod.Key().Namespace} })
	}
}

// NewCache makes a cache of a kind: a Reflector with its Store. The program runs the cache if a controller watches
// it.
func NewCache[T object.Object[T]](p *program, kind object.Kind[T]) *Reflector[T] {
	return NewReflector(ReflectorOptions[T]{
		Sinks:         p.Sinks,
		Client:        p.client,
		Kind:          kind,
		Store:         NewStore[T](),
		ServerBackoff: p.serverBackoff,
		ServerOutage:  p.serverOutage,
		Restores:      p.restores,
		Once:          p.options.Once,
	})
}

// joinElection lets this replica take part in the election. The controllers will wait until it leads, and the client
// refuses writes while it does not. ownNamespace is the namespace of podcount's pod, or "" outside a cluster.
func (p *program) joinElection(ownNamespace string) {
	o := p.options
	p.election = leader.New(p.client, leader.Options{
		Namespace:      cmp.Or(o.LeaseNamespace, ownNamespace, "kube-system"),
		Name:           o.LeaseName,
		Host:           hostname(),
		LeaseDuration:  o.LeaseDuration,
		RenewDeadline:  o.RenewDeadline,
		RetryPeriod:    o.RetryPeriod,
		ReleaseTimeout: control.ReleaseTimeout,
		OnLost:         p.manager.Lose,
		ServerBackoff:  p.serverBackoff,
		ServerOutage:   p.serverOutage,
		Log:            p.Log,
	})
	p.client.SetPermit(p.election)
	p.manager.UseElection(p.election)
}

// setUp sets up the controllers that are on, and then what shows them.
func (p *program) setUp() {
	for _, r := range registered {
		if p.options.IsOn(r.Name) {
			r.Setup(p, p.newController(r.Name))
		}
	}
	p.overview = p.newOverview()
}

// newController makes a controller that is ready for its Setup.
func (p *program) newController(name string) *Controller {
	return p.manager.Add(name, NewQueue(p.life.Stop, QueueOptions{
		Name:         name,
		Backoff:      5 * time.Millisecond,
		BackoffLimit: 30 * time.Second,
		IsUnanswered: kube.IsUnanswered,
		Sinks:        p.Sinks,
	}))
}

// ---------------------------------------------------------------------------------------------------------------------
// What -listen and -page show

// newOverview makes what -listen and -page show.
func (p *program) newOverview() *overview.Overview {
	o := overview.Options{
		Sinks:         p.Sinks,
		Flags:         p.options,
		Life:          p.life,
		Out:           p.out,
		Started:       p.started,
		Host:          hostname(),
		Server:        p.server,
		Pods:          p.pods,
		Nodes:         p.nodes,
		Labels:        p.labels,
		ServerOutage:  p.serverOutage,
		ServerBackoff: p.serverBackoff,
		Recorder:      p.recorder,
		Election:      p.election,
		Leading:       p.manager.Leading(),
		Controllers:   p.manager.Controllers(),
	}
	hasNodeNames := !p.pods.kind.MetadataOnly // Metadata have no spec.nodeName.
	// The keys of nodes and of namespaces have no namespace, hence "".
	if hasNodeNames {
		o.PodsPerNode = p.podsPerNode.All("")
	}
	if p.podsPerNamespace != nil {
		o.PodsPerNamespace = p.podsPerNamespace.All("")
	}
	return overview.New(o)
}
