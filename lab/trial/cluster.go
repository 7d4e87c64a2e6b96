package trial

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// cluster is where a row creates and looks at objects: directly, not through the network of the program.
type cluster interface {
	addPod(name string)
	removePod(name string)
	addNode(name string, isControlPlane bool)
	removeNode(name string)

	// setLabel sets a label of a node as another client does; "" removes it.
	setLabel(node, key, value string)

	// labels returns the label of each node of the trial; "" if it has none.
	labels() map[string]string

	// holder returns who holds the Lease; "" if nobody does.
	holder() string

	// hold lets somebody take the Lease, or renew it.
	hold(identity string)

	// changed returns a channel that is closed with the next change, or nil if that cannot be known.
	changed() <-chan struct{}

	// remove removes what is left of the trial.
	remove()
}

const (
	controlPlane   = "node-role.kubernetes.io/control-plane"
	namespace      = "default" // of the pods of the trial
	leaseNamespace = "kube-system"
	leaseName      = "trial"

	// leaseTime is the form of the times in a Lease.
	leaseTime = "2006-01-02T15:04:05.000000Z"

	// leaseSeconds is how long the Lease of hold lasts.
	leaseSeconds = 15
)

// fakeCluster is a cluster on a fake API server.
type fakeCluster struct {
	fake  *fakekube.Server
	label string
}

func (c fakeCluster) addPod(name string) {
	key, phase := placeOf(name)
	pod := fakekube.PodOn(fakekube.Object{"namespace": key.Namespace, "name": key.Name}, "")
	pod["status"] = fakekube.Object{"phase": phase}
	c.fake.Put("pods", pod)
}

// placeOf returns the key and the phase of a pod. All pods count, so they are not all alike.
func placeOf(name string) (fakekube.Key, string) {
	n, _ := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
	place := []string{namespace, "kube-system"}[n%2]
	phase := []string{"Running", "Succeeded", "Pending"}[n%3]
	return fakekube.Key{Namespace: place, Name: name}, phase
}

func (c fakeCluster) removePod(name string) {
	key, _ := placeOf(name)
	c.fake.Remove("pods", key)
}

func (c fakeCluster) addNode(name string, isControlPlane bool) {
	if isControlPlane {
		c.fake.AddNode(name, controlPlane)
	} else {
		c.fake.AddNode(name)
	}
}

func (c fakeCluster) removeNode(name string) { c.fake.Remove("nodes", fakekube.Key{Name: name}) }

func (c fakeCluster) setLabel(node, key, value string) {
	c.fake.Edit("nodes", fakekube.Key{Name: node}, func(o fakekube.Object) {
		labels := fakekube.MetaOf(o)["labels"].(fakekube.Object) // AddNode sets one
		labels[key] = value
		if value == "" {
			delete(labels, key)
		}
	})
}

func (c fakeCluster) labels() map[string]string {
	labels := map[string]string{}
	for _, node := range c.fake.All("nodes") {
		labels[fakekube.KeyOf(node).Name] = fakekube.TextIn(node, "metadata", "labels", c.label)
	}
	return labels
}

func (c fakeCluster) holder() string {
	lease := c.fake.Get("leases", fakekube.Key{Namespace: leaseNamespace, Name: leaseName})
	return fakekube.TextIn(lease, "spec", "holderIdentity")
}

func (c fakeCluster) hold(identity string) { c.fake.Put("leases", leaseOf(leaseName, identity)) }

// leaseOf returns a Lease, renewed now.
func leaseOf(name, identity string) fakekube.Object {
	now := time.Now().UTC().Format(leaseTime)
	return fakekube.Object{
		"apiVersion": "coordination.k8s.io/v1",
		"kind":       "Lease",
		"metadata":   fakekube.Object{"namespace": leaseNamespace, "name": name},
		"spec": fakekube.Object{
			"holderIdentity":       identity,
			"leaseDurationSeconds": leaseSeconds,
			"acquireTime":          now,
			"renewTime":            now,
		},
	}
}

func (c fakeCluster) changed() <-chan struct{} { return c.fake.NextChange() }

func (c fakeCluster) remove() {}

// counting is the job to count pods.
type counting struct {
	scene *scene

	nodes   []string // control-plane nodes
	created int      // how many pods have been created
	pods    []string // the pods that there are, the oldest first
	truths  map[string]bool
	fought  map[string]bool // what another client has written
}

// initialPods is the number of pods at the beginning of a row.
const initialPods = 3

// setup creates nodes and the first pods.
func (c *counting) setup() {
	s := c.scene
	for _, node := range c.nodes {
		s.cluster.addNode(node, true)
	}
	s.cluster.addNode(s.prefix+"worker", false)
	c.add(initialPods)
}

// truth is what the labels should be.
func (c *counting) truth() string { return strconv.Itoa(len(c.pods)) }

// add adds pods.
func (c *counting) add(n int) {
	for range n {
		c.created++
		name := fmt.Sprintf("%spod-%d", c.scene.prefix, c.created)
		c.scene.cluster.addPod(name)
		c.pods = append(c.pods, name)
		c.know()
	}
}

// remove removes the oldest pods.
func (c *counting) remove(n int) {
	for range n {
		c.scene.cluster.removePod(c.pods[0])
		c.pods = c.pods[1:]
		c.know()
	}
}

// know remembers the number of pods as one that was true while a program could see it.
func (c *counting) know() {
	if len(c.scene.instances) > 0 {
		c.truths[c.truth()] = true
	}
}

// change adds and removes pods. Each change makes the number larger. In the first three, whatever a program misses of
// them, its number is wrong by three at least, so that it is not right either if it counts something else as a pod.
func (c *counting) change(n int) string {
	size := []struct{ added, removed int }{{12, 3}, {30, 6}, {38, 16}}[min(n, 3)-1]
	added := size.added + max(0, n-3)
	removed := size.removed
	c.add(added)
	c.remove(removed)
	return fmt.Sprintf("%d new pods, %d less: %s pods", added, removed, c.truth())
}

// right says which label was wrong when the scene last looked.
func (c *counting) right() error {
	for _, node := range c.nodes {
		if got := c.scene.seen[node]; got != c.truth() {
			return fmt.Errorf("%s has the label %q, and there are %s pods", node, got, c.truth())
		}
	}
	if got := c.scene.seen[c.scene.prefix+"worker"]; got != "" {
		return fmt.Errorf("%sworker has the label %q, and is no control-plane node", c.scene.prefix, got)
	}
	return nil
}

// falseNumber returns a label that is a number which never was true, and that nobody else has written. It returns ""
// if there is none.
func (c *counting) falseNumber() string {
	for node, value := range c.scene.seen {
		if value != "" && !c.truths[value] && !c.fought[value] {
			return fmt.Sprintf("%s got the label %q, which never was the number of pods", node, value)
		}
	}
	return ""
}
