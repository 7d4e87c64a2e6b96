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
// backoff, which is a wait that doubles with each failure. At each interval, a controller may add keys to look at
// again. No controller works before its caches have complete lists, because half a list would give wrong numbers. With
// -leader-elect, only one replica works: the one that holds the Lease, an object of the API server. Events, about
// labels that were written, new pods and Counts, are posted by internal/api/events, and no reconcile waits for them.
//
// A cache is a Reflector (watch.go) with the Store that it fills (cache.go). This file has the controllers, of which
// the pod-printer is the smallest, and then the program that runs them. Read up to the end of the pod-printer, then
// cache.go, queue.go and watch.go, and then the pod-count controller and what follows it. docs/tour.md follows one pod
// through these files.
//
// What they use is in internal/: see docs/internals.md. control runs the controllers, and its once.go lists what -once,
// -dry-run and -prune change. control/brakes writes to objects, and lists all that can make a write wait. view/observe
// makes log lines, metrics and more of all that happens. watch/ending decides what follows the end of a watch, such as
// 410. watch/position knows the versions, and notices if etcd, the
// database of the API server, was restored from a backup. api/kube sends the requests. api/kubeconfig finds the cluster
// and renews the credential (access.renew in credential.go). api/leader holds the Lease (Election.tryAcquireOrRenew in
// lease.go). api/object shows the way from bytes to an object (Decoder).
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
	"sync/atomic"
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

// registered are all controllers that podcount has. To add one, append it in an init function: see docs/internals.md.
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

// program is the controllers and the caches that they share, and what both stand on.
type program struct {
	observe.Sinks // Log, Metrics and Trace: where all that happens is told

	// The caches. Each one runs if a controller watches it.
	pods   *Reflector[*Pod]
	nodes  *Reflector[*Node]
	counts *Reflector[*Count]

	podsByNode      *CountIndex[*Pod] // empty unless a controller needs whole pods
	podsByNamespace *CountIndex[*Pod] // only for the page, so it is nil without -page

	options  *options.Options
	client   *kube.Client
	recorder *events.Recorder // posts Events
	manager  *control.Manager // runs the controllers and the caches
	out      *logging.Outputs
	life     *process.Lifetime // ends, step by step, when podcount is to stop
	started  time.Time

	server        string                // the URL of the API server; a password in it is hidden
	serverOutage  *logging.ServerOutage // logs that the server does not answer
	serverBackoff *retry.Shared         // ends the waits of all who ask the server when it answers again
	restores      *position.Restores    // tells all caches if one notices that etcd was restored from a backup
	election      *leader.Election      // nil without -leader-elect, and in a dry run

	labels   []*overview.Label  // which the controllers keep right on nodes
	overview *overview.Overview // what -listen and -page show; nil until setUp
}

// Watch makes a controller watch a cache. keysOf returns the keys that a change concerns. It gets each object that is
// there when the controller begins, as a change from itself to itself, and from then on each change. But with -once,
// real changes are left to the next run. Several goroutines call keysOf at once.
func Watch[T object.Object[T]](c *Controller, r *Reflector[T], keysOf func(Delta[T]) []Key) {
	addKeys := func(change Delta[T]) {
		c.AddFound(func() []Key { return keysOf(change) })
	}
	c.Watches(r, func() {
		for _, obj := range r.All() {
			addKeys(Delta[T]{Old: obj, New: obj})
		}
	})
	r.Subscribe(func(change Delta[T]) {
		isChange := !change.isUnchanged()
		if c.NeedsKeys(isChange) {
			addKeys(change)
		}
	})
}

// OwnKey returns the key of the object that has changed. Pass it to Watch if each object has a key of its own.
func OwnKey[T object.Object[T]](change Delta[T]) []Key { return []Key{change.Key()} }

// This is what internal/control does with a controller, without errors and the end. The three loops run at the same
// time:
//
//	wait until this replica leads, and until each cache that the controller watches has a complete list
//	in each of several workers, again and again:
//		key := queue.Get()
//		result, err := Reconcile(ctx, key)
//		queue.Done(key, result, err)
//	for each object that is there, and then for each change:
//		queue.Add(keysOf(change)...)
//	now, and at each interval:
//		queue.Add(Resync()...)
//
// The real loops are short: see Manager.runController, Controller.work and Controller.look.

// ---------------------------------------------------------------------------------------------------------------------
// The pod-printer

// setUpPodPrinter sets up a controller that prints the name of each pod that is there, and of each that changes. It is
// the smallest example of a controller.
func setUpPodPrinter(p *program, c *Controller) {
	p.pods.NeedEveryVersion() // to print also changes of fields that podcount does not read
	Watch(c, p.pods, OwnKey)
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

	nodes      *Reflector[*Node]
	pods       *Reflector[*Pod]
	podsByNode *CountIndex[*Pod]

	totalLabel *countLabel   // -total-label
	labels     []*countLabel // all labels that podcount writes: totalLabel and, if it is set, -node-label

	wrongNodesAddedAt time.Time   // only addWrongNodes uses it, and no two workers have totalKey at once
	hasWarned         atomic.Bool // resync has logged that no node gets the total
}

// countLabel is a label that shows a number of pods on nodes.
type countLabel struct {
	name    string
	subject string                   // what it shows, for Events
	want    func(*Node) brakes.Value // its right value on a node
	shown   *overview.Label          // shows it on the page
}

// isWrong compares the label of a node with the caches.
func (l *countLabel) isWrong(node *Node) bool { return labelOf(node, l.name) != l.want(node) }

// labelOf returns the value of a node's label.
func labelOf(node *Node, label string) brakes.Value {
	text, exists := node.Label(label)
	return brakes.Value{Text: text, Exists: exists}
}

// totalKey stands for all nodes with wrong labels. It is added when the number of all pods changes.
var totalKey = Key{Name: "(total)"} // no node can have this name

func setUpPodCount(p *program, c *Controller) {
	o := p.options
	controller := &podCountController{
		Controller: c,
		options:    o,
		log:        p.Log,
		recorder:   p.recorder,
		nodes:      p.nodes,
		pods:       p.pods,
		podsByNode: p.podsByNode,
	}
	controller.totalLabel = &countLabel{name: o.TotalLabel, subject: "pod count", want: controller.wantTotal}
	controller.labels = []*countLabel{controller.totalLabel}
	p.nodes.NeedLabels(o.TotalLabel)
	p.nodes.NeedLabels(o.TotalNodes.Keys()...)
	if o.NodeLabel != "" {
		own := &countLabel{name: o.NodeLabel, subject: "pod count of this node", want: controller.wantOwn}
		controller.labels = append(controller.labels, own)
		p.nodes.NeedLabels(o.NodeLabel)
		p.pods.NeedWholeObjects() // for spec.nodeName
	}
	for _, label := range controller.labels {
		if o.Prune {
			label.want = func(*Node) brakes.Value { return brakes.Value{} } // No node should have a label.
		}
		isOwn := label != controller.totalLabel
		label.shown = overview.NewLabel(label.name, isOwn, controller.labelOnNodes(label))
		p.labels = append(p.labels, label.shown)
	}
	Watch(c, p.nodes, controller.onNodeChange)
	if !o.Prune {
		Watch(c, p.pods, controller.onPodChange)
	}
	c.Reconcile = controller.reconcile
	c.Resync = controller.resync
	c.IsUrgent = controller.isUrgent
	c.Summary = controller.summary
}

// wantTotal returns the number of all pods, for the nodes that -total-nodes selects.
func (c *podCountController) wantTotal(node *Node) brakes.Value {
	if !c.options.TotalNodes.Matches(node.Label) {
		return brakes.Value{}
	}
	return brakes.Value{Text: strconv.Itoa(c.pods.Len()), Exists: true}
}

// wantOwn returns the number of a node's own pods.
func (c *podCountController) wantOwn(node *Node) brakes.Value {
	return brakes.Value{Text: strconv.Itoa(c.podsByNode.Count(node.Key())), Exists: true}
}

// onNodeChange returns the key of a new node, and plans to add that of a changed one.
func (c *podCountController) onNodeChange(change Delta[*Node]) []Key {
	isNew := change.Old == nil
	isGone := change.New == nil
	switch {
	case isNew:
		return []Key{change.Key()}
	case isGone:
		return nil
	case change.isUnchanged(): // It is there at the start, and resync looks at it.
		return nil
	default:
		// This may be the answer to our own patch. Or another podcount has written the label, and may have counted pods
		// that reach our cache in a moment.
		c.AddAfter(change.Key(), min(c.options.Interval, time.Second))
		return nil
	}
}

// onPodChange returns the keys of the nodes whose numbers a change of a pod concerns, and posts an Event about a new
// pod. Resync takes care of the pods that are there at the start.
func (c *podCountController) onPodChange(change Delta[*Pod]) (keys []Key) {
	isNew := change.Old == nil
	isGone := change.New == nil
	if isNew || isGone {
		keys = append(keys, totalKey)
	}
	if isNew && c.options.PodEvents {
		message := fmt.Sprintf("pod count is %d", c.pods.Len())
		c.recorder.Event(c.pods.Reference(change.New), "Normal", "PodCounted", message)
	}
	if c.options.NodeLabel == "" || change.isUnchanged() {
		return keys
	}
	for _, pod := range []*Pod{change.Old, change.New} {
		if pod != nil && pod.NodeName != "" {
			keys = append(keys, Key{Name: pod.NodeName})
		}
	}
	return keys
}

// resync returns the keys of the nodes with wrong labels. It warns once if no node gets the total.
func (c *podCountController) resync() []Key {
	if err := c.checkTotalNodes(); err != nil && !c.hasWarned.Swap(true) {
		c.log.Warn(err.Error(), "label", c.totalLabel.name)
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
	return slices.ContainsFunc(c.labels, func(label *countLabel) bool { return label.isWrong(node) })
}

// reconcile corrects the labels of one node. For totalKey, it adds the nodes with wrong labels. Brakes.Correct does
// this:
//
//	compare the node with the caches; if nothing is wrong, end
//	if the node was written a moment ago, plan to add its key later, and end
//	wait for the turn of this write
//	compare again, because the caches may have changed; patch what is wrong
func (c *podCountController) reconcile(ctx context.Context, key Key) (Result, error) {
	if key == totalKey {
		return c.addWrongNodes(), nil
	}
	err := c.Brakes.Correct(ctx, key, func() *brakes.Comparison { return c.compare(key) })
	return Result{}, err
}

// addWrongNodes adds all nodes with wrong labels, because the total has changed. It does so at most once a second, or
// once an interval if that is shorter, because it looks at all nodes.
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
		Kind:  "node",
		Noun:  "label",
		UID:   node.UID(),
		Patch: func(ctx context.Context, due []brakes.Field) ([]string, error) { return c.patch(ctx, node, due) },
		Tell:  func(written brakes.Field) { c.tellOfWrite(node, written) },
	}
	for _, label := range c.labels {
		is := labelOf(node, label.name)
		want := label.want(node)
		field := brakes.Field{Name: label.name, From: is, To: want, IsWrong: is != want}
		comparison.Fields = append(comparison.Fields, field)
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
// What the pod-count controller tells people, and which keys are urgent (may be skipped)

// tellOfWrite tells the page that a label of a node was written, and posts an Event about it. In a dry run nothing was
// written, and the recorder only logs the Event. With -prune nothing remains to be explained, so there is no Event.
func (c *podCountController) tellOfWrite(node *Node, written brakes.Field) {
	isWritten := func(label *countLabel) bool { return label.name == written.Name }
	label := c.labels[slices.IndexFunc(c.labels, isWritten)]
	if !c.options.DryRun {
		label.shown.Wrote()
	}
	if !c.options.Prune {
		message := fmt.Sprintf("%s changed from %s to %s", label.subject, written.From, written.To)
		c.recorder.Event(c.nodes.Reference(node), "Normal", "PodCountChanged", message)
	}
}

// labelOnNodes yields all nodes, for the page: whether they should show a label, and whether it is wrong there.
func (c *podCountController) labelOnNodes(label *countLabel) iter.Seq[overview.LabelOnNode] {
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
// behind the own numbers of all nodes: for a thousand nodes, -qps may take a minute.
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
	podsByApp   []*CountIndex[*Pod] // one for each of appLabels

	reports counts.Reports // about each Count, the one that was posted last
}

// appLabels are the labels that can name the app of a pod.
var appLabels = []string{"app", "app.kubernetes.io/name", "run"}

func setUpCount(p *program, c *Controller) {
	controller := &countController{
		Controller:  c,
		interval:    p.options.Interval,
		log:         p.Log,
		recorder:    p.recorder,
		counts:      p.counts,
		countsByApp: IndexBy(p.counts.Store, appOfCount),
		pods:        p.pods,
	}
	p.pods.NeedLabels(appLabels...)
	for i := range appLabels {
		byApp := CountBy(p.pods.Store, func(pod *Pod) Key { return appOfPod(pod, i) })
		controller.podsByApp = append(controller.podsByApp, byApp)
	}
	Watch(c, p.pods, controller.onPodChange)
	Watch(c, p.counts, controller.onCountChange)
	// A Count cools down for less time than a node: people wait for its status, and fewer clients watch it.
	c.Brakes.CoolDown = min(c.Brakes.CoolDown, time.Second)
	c.Reconcile = controller.reconcile
	c.Summary = controller.summary
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
	for _, index := range c.podsByApp {
		n += index.Count(appOfCount(count))
	}
	return n
}

// onPodChange returns the keys of the Counts that a change of a pod concerns: those of the apps that the pod has left
// or joined.
func (c *countController) onPodChange(change Delta[*Pod]) (keys []Key) {
	for i := range appLabels {
		was := appOfPod(change.Old, i)
		is := appOfPod(change.New, i)
		if was == is {
			continue
		}
		// Key{} stands for no app, and an index has no objects for it.
		for _, app := range []Key{was, is} {
			for _, count := range c.countsByApp.Objects(app) {
				keys = append(keys, count.Key())
			}
		}
	}
	return keys
}

// onCountChange returns the key of a Count that has changed. If only its status has changed, the key is added an
// interval later. Without that wait, two podcounts that disagree would overwrite each other's status as fast as they
// can.
func (c *countController) onCountChange(change Delta[*Count]) []Key {
	if change.isUnchanged() {
		// Perhaps the CRD has changed, and its new schema keeps what the old one has dropped. So let Brakes forget that
		// the server has dropped the status, and write it again.
		c.Brakes.Forget(change.Key())
	}
	isStillThere := change.Old != nil && change.New != nil
	if isStillThere && change.New.Status != change.Old.Status && change.New.CountSpec == change.Old.CountSpec {
		c.AddAfter(change.Key(), c.interval)
		return nil
	}
	return []Key{change.Key()}
}

// viewOf returns a Count as the cache has it. A counts.View knows the status that the Count should have (RightStatus),
// the part of it that podcount writes (OwnPart), and what people are told (ReportOf). ok is false if the Count is gone,
// or its CRD.
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
	isRight := func(count *Count) bool { return view.OwnPart(count.Status) == right }
	status := brakes.Field{
		Name:    "status",
		From:    brakes.Value{Text: view.Status.Text(), Exists: true},
		To:      brakes.Value{Text: right.Text(), Exists: right.Count != ""}, // An invalid Count may have no status.
		IsWrong: !isRight(view.Count),
	}
	previous := c.reports.KeepPrevious(view) // stores it before the write, whose answer may be lost
	return &brakes.Comparison{
		Kind:   "count",
		UID:    view.UID(),
		Fields: []brakes.Field{status},
		Patch: func(ctx context.Context, _ []brakes.Field) ([]string, error) {
			droppedFrom := func(answer *Count) []string {
				if isRight(answer) {
					return nil
				}
				return []string{status.Name}
			}
			return c.counts.Patch(ctx, view.Count, view.Subresource(), map[string]any{"status": right}, droppedFrom)
		},
		Finished: func() { c.postReport(view, previous, view.ReportOf(right)) },
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// What the count controller tells people (may be skipped)

// postReport posts Events for what is new in a report. The report is about the pods, not about the write. So there are
// Events also while the server drops the status, and a dry run logs them.
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
		if ok && view.RightStatus(c.countPods(count)) != view.OwnPart(count.Status) {
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

// run is the whole program except for signals and exit codes. It returns nil if podcount was stopped by the end of ctx,
// or has nothing left to do. But with -once, it returns an error if it was stopped before all was done, or if lines of
// the output were lost. It returns an options.UsageError if it was called wrongly. dial replaces the network in tests,
// and is nil otherwise.
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
	lostLines := out.Close(ctx)
	return cmp.Or(err, lostLines)
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
	wasStopped := ctx.Err() != nil // while Load waited for a file
	if err != nil && wasStopped {
		return o.StoppedEarly()
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

// hostname returns the name of this replica. Events have it, and the Lease with a random suffix.
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
	// The functions below use the manager and the overview, which are made later. They are called only while p runs.
	p.serverOutage = logging.NewServerOutage(sinks.Log, kube.IsUnanswered, func() []any { return p.overview.LabelsAge() })
	p.serverBackoff = retry.NewShared(retry.SharedOptions{
		Base:      ending.InitialBackoff,
		Limit:     ending.MaxBackoff,
		OnFailure: p.serverOutage.Failed,
		OnOver: func() {
			p.serverOutage.Worked()
			p.manager.RetryWrites()
		},
	})
	eventOptions := events.Options{
		Send:         client.Send,
		Component:    "podcount",
		Instance:     hostname(),
		ServerOutage: p.serverOutage,
		Log:          p.Log,
		Trace:        sinks.Trace,
	}
	if o.DryRun { // It posts no Events. It logs them instead.
		eventOptions.DryRun = func(about events.Reference, reason, message string) {
			sinks.WouldPost(about.Kind, Key{Namespace: about.Namespace, Name: about.Name}, reason, message)
		}
	}
	p.recorder = events.NewRecorder(eventOptions)
	p.manager = control.New(control.Options{
		Flags:        o,
		Life:         life,
		Recorder:     p.recorder,
		Close:        client.Close,
		Incomplete:   func() []string { return p.overview.Incomplete() },
		ServerOutage: p.serverOutage,
		Sinks:        sinks,
	})
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
	p.podsByNode = CountBy(p.pods.Store, func(pod *Pod) Key { return Key{Name: pod.NodeName} })
	if o.Page != "" {
		p.podsByNamespace = CountBy(p.pods.Store, func(pod *Pod) Key { return Key{Name: pod.Key().Namespace} })
	}
	return p
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

// joinElection makes the controllers wait until this replica leads. The client then refuses writes while it does not
// lead. ownNamespace is the namespace of podcount's pod, or "" outside a cluster.
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
	p.manager.Elect(p.election)
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
	if hasNodeNames {
		o.PodsByNode = p.podsByNode.All("")
	}
	if p.podsByNamespace != nil {
		o.PodsByNamespace = p.podsByNamespace.All("")
	}
	return overview.New(o)
}
