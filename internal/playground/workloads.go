package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"podcount/internal/fakekube"
)

const (
	// backupInterval is how long after one backup the next begins, and backupsKept how many that are over are kept.
	backupInterval = 3 * time.Minute
	backupsKept    = 3

	// There are always as many pods of the Deployment web, and they change by one at a time.
	leastWeb = 6
	mostWeb  = 16
)

// workload is what the pods of one owner are made from. The playground's API has no Deployments, Jobs and the like:
// their owners are only named, in metadata.ownerReferences.
type workload struct {
	namespace string
	name      string // of the owner; the pods' names begin with it
	uid       string // of the owner
	kind      string // of the owner: ReplicaSet, StatefulSet or Job; Node for a static pod, which has the node's name
	replicas  int
	labels    object
	spec      object // of the pods

	isDone bool // a Job whose pod has been made
}

// controllers make and remove the pods of workloads, as kube-controller-manager does, and the kubelets those of static
// pods. One goroutine has them.
type controllers struct {
	*client
	workloads []*workload
	web       *workload // the one whose replicas change
	backedUp  time.Time // when the last backup began
}

// step makes the pods that are missing, and removes those that are too many.
func (c *controllers) step() {
	c.backUp(time.Now())
	pods := c.all("pods")
	byOwner := map[any][]object{}
	for _, pod := range pods {
		byOwner[ownerOf(pod)] = append(byOwner[ownerOf(pod)], pod)
	}
	for _, w := range c.workloads {
		own := byOwner[w.uid]
		switch w.kind {
		case "ReplicaSet":
			c.scale(w, own)
		case "Job":
			if !w.isDone {
				w.isDone = c.make(w, object{"generateName": w.name + "-"})
			}
		case "StatefulSet":
			c.fill(w, own)
		case "Node":
			if len(own) == 0 {
				c.make(w, object{"name": w.name})
			}
		}
	}
	c.collect(pods)
}

// wander changes how many pods of web there are, by one.
func (c *controllers) wander() {
	change := 1
	if rand.IntN(2) == 0 {
		change = -1
	}
	c.web.replicas = min(max(c.web.replicas+change, leastWeb), mostWeb)
}

// scale gives a ReplicaSet as many pods as it should have. One that is going is not counted.
func (c *controllers) scale(w *workload, own []object) {
	own = slices.DeleteFunc(own, func(pod object) bool { return isDying(pod) || hasEnded(pod) })
	for range w.replicas - len(own) {
		c.make(w, object{"generateName": w.name + "-"})
	}
	rand.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
	slices.SortStableFunc(own, func(a, b object) int { return strings.Compare(phaseOf(a), phaseOf(b)) }) // Pending first
	for i := range len(own) - w.replicas {
		c.remove("pods", own[i])
	}
}

// fill gives a StatefulSet the pods that it lacks. One that is going keeps its name until it has gone.
func (c *controllers) fill(w *workload, own []object) {
	for i := range w.replicas {
		name := fmt.Sprintf("%s-%d", w.name, i)
		isNamed := func(pod object) bool { return fakekube.KeyOf(pod).Name == name }
		if !slices.ContainsFunc(own, isNamed) {
			c.make(w, object{"name": name})
		}
	}
}

// backUp starts the Job of the next backup when that is due, and removes the pods of the oldest.
func (c *controllers) backUp(now time.Time) {
	if now.Sub(c.backedUp) < backupInterval {
		return
	}
	c.backedUp = now
	c.workloads = append(c.workloads, backup(now))
	isJob := func(w *workload) bool { return w.kind == "Job" }
	jobs := 0
	for _, w := range c.workloads {
		if isJob(w) {
			jobs++
		}
	}
	if jobs <= backupsKept {
		return
	}
	oldest := slices.IndexFunc(c.workloads, isJob)
	for _, pod := range c.all("pods") {
		if ownerOf(pod) == c.workloads[oldest].uid {
			c.remove("pods", pod)
		}
	}
	c.workloads = slices.Delete(c.workloads, oldest, oldest+1)
}

// collect deletes the pods whose node has gone.
func (c *controllers) collect(pods []object) {
	nodes := nodesByName(c.client)
	for _, pod := range pods {
		if node := nodeOf(pod); node != "" && nodes[node] == nil {
			c.finish("pods", pod)
		}
	}
}

// make makes a pod of a workload, whose name, or what it begins with, meta says. It reports whether it could.
func (c *controllers) make(w *workload, meta object) bool {
	if w.kind == "Node" && nodesByName(c.client)[fakekube.TextIn(w.spec, "nodeName")] == nil {
		return false
	}
	_, err := c.create("pods", w.pod(meta))
	return err == nil
}

// pod is a new pod of the workload.
func (w *workload) pod(meta object) object {
	pod := fakekube.Clone(object{"metadata": meta, "spec": w.spec})
	meta = fakekube.MetaOf(pod)
	meta["namespace"] = w.namespace
	meta["labels"] = w.labels
	owner := object{"apiVersion": "apps/v1", "kind": w.kind, "name": w.name, "uid": w.uid, "controller": true}
	switch w.kind {
	case "Job":
		owner["apiVersion"] = "batch/v1"
	case "Node":
		owner["apiVersion"] = "v1"
		owner["name"] = w.spec["nodeName"]
		meta["annotations"] = object{
			"kubernetes.io/config.mirror": w.uid,
			"kubernetes.io/config.hash":   w.uid,
			"kubernetes.io/config.source": "file",
		}
	}
	meta["ownerReferences"] = []any{owner}
	return pod
}

// ownerOf is the uid of a pod's owner, nil where it has none.
func ownerOf(pod object) any {
	owners, _ := fakekube.MetaOf(pod)["ownerReferences"].([]any)
	if len(owners) == 0 {
		return nil
	}
	owner, _ := owners[0].(object)
	return owner["uid"]
}
