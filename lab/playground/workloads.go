package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"podcount/lab/fakekube"
)

const (
	// leastWeb and mostWeb limit the number of pods of the Deployment web.
	leastWeb = 6
	mostWeb  = 16
)

// workload is the template for the pods of one owner. The playground's API has no Deployments and so on. The
// owner exists only as a name in the pods' metadata.ownerReferences.
type workload struct {
	namespace string
	name      string // the owner's name, with which the pods' names begin
	uid       string // the owner's uid
	kind      string // the owner's kind: ReplicaSet, StatefulSet, or Node for a static pod
	replicas  int
	labels    object
	spec      object // the pods' spec
}

// controllers create and remove the pods of workloads, as kube-controller-manager does. They also create static pods,
// which in a real cluster the kubelets do. Only one goroutine may use them.
type controllers struct {
	*client
	workloads []*workload
	web       *workload // the workload whose replicas change
}

// step creates the pods that are missing, and removes those that are too many.
func (c *controllers) step() {
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

// wander adds a replica to web or takes one away. What a person has added goes one by one, too.
func (c *controllers) wander() {
	isGrowing := rand.IntN(2) == 0
	if c.web.replicas >= mostWeb || c.web.replicas > leastWeb && !isGrowing {
		c.web.replicas--
	} else {
		c.web.replicas++
	}
}

// scale gives a ReplicaSet as many pods as it should have. A pod that is being deleted does not count.
func (c *controllers) scale(w *workload, own []object) {
	own = slices.DeleteFunc(own, isDying)
	for range w.replicas - len(own) {
		c.make(w, object{"generateName": w.name + "-"})
	}
	rand.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
	pendingFirst := func(a, b object) int { return strings.Compare(phaseOf(a), phaseOf(b)) }
	slices.SortStableFunc(own, pendingFirst)
	for i := range len(own) - w.replicas {
		c.remove("pods", own[i])
	}
}

// fill gives a StatefulSet the pods that it lacks. A pod that is being deleted keeps its name until it is gone.
func (c *controllers) fill(w *workload, own []object) {
	for i := range w.replicas {
		name := fmt.Sprintf("%s-%d", w.name, i)
		isNamed := func(pod object) bool { return fakekube.KeyOf(pod).Name == name }
		if !slices.ContainsFunc(own, isNamed) {
			c.make(w, object{"name": name})
		}
	}
}

// forget removes a workload, whose pods are gone.
func (c *controllers) forget(w *workload) {
	c.workloads = slices.DeleteFunc(c.workloads, func(other *workload) bool { return other == w })
}

// collect deletes the pods whose node is gone.
func (c *controllers) collect(pods []object) {
	nodes := nodesByName(c.client)
	for _, pod := range pods {
		if node := nodeOf(pod); node != "" && nodes[node] == nil {
			c.finish("pods", pod)
		}
	}
}

// make creates a pod of a workload, unless it is a static one whose node is gone. meta has the pod's name or
// generateName.
func (c *controllers) make(w *workload, meta object) {
	if w.kind != "Node" || nodesByName(c.client)[fakekube.TextIn(w.spec, "nodeName")] != nil {
		c.create("pods", w.pod(meta))
	}
}

// pod returns a new pod of the workload.
func (w *workload) pod(meta object) object {
	pod := fakekube.Clone(object{"metadata": meta, "spec": w.spec})
	meta = fakekube.MetaOf(pod)
	meta["namespace"] = w.namespace
	meta["labels"] = w.labels
	owner := object{"apiVersion": "apps/v1", "kind": w.kind, "name": w.name, "uid": w.uid, "controller": true}
	if w.kind == "Node" {
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

// ownerOf returns the uid of a pod's owner, or nil if it has none.
func ownerOf(pod object) any {
	owners, _ := fakekube.MetaOf(pod)["ownerReferences"].([]any)
	if len(owners) == 0 {
		return nil
	}
	owner, _ := owners[0].(object)
	return owner["uid"]
}
