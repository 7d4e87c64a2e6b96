package sim

import (
	"fmt"
	"strings"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// objectAtLimit is an object of unusual size or form that Kubernetes allows.
type objectAtLimit struct {
	name     string // in the story
	resource string
	key      key

	// change makes an ordinary object with this key unusual.
	change func(fakekube.Object)

	// isBig is whether the object is so big that it must soon go again. While it is there, each list costs real time.
	isBig bool
}

// The longest names that Kubernetes allows.
var (
	longestLabel = strings.Repeat("x", 63) // also the longest namespace, and the longest value of a label
	longestName  = strings.Repeat(longestLabel+".", 3) + strings.Repeat("y", 61)
)

// oddText has what is hard to encode: characters of two to four bytes, a line separator, quotes and control characters.
const oddText = "é漢🙂\u2028\"\\<&>\n\t\u0001"

// objectsAtLimits returns objects at the limits of Kubernetes: of names, labels, annotations and size. It also returns
// odd ones, such as a node without labels, and those that are being deleted for hours.
func (s *sim) objectsAtLimits() []objectAtLimit {
	inDefault := func(name string) key { return key{Namespace: "default", Name: name} }
	return []objectAtLimit{
		{
			name: "a pod with the longest names", resource: "pods", key: key{Namespace: longestLabel, Name: longestName},
			change: func(o fakekube.Object) { o["spec"].(fakekube.Object)["nodeName"] = longestName },
		},
		{name: "a pod with the longest labels", resource: "pods", key: inDefault("labels"), change: addLongestLabels},
		{name: "a pod that is deleted for hours", resource: "pods", key: inDefault("deleted"), change: markDeleted},
		{name: "a pod without labels", resource: "pods", key: inDefault("generated-x7x2z"), change: removeLabels},
		{name: "a node with the longest name", resource: "nodes", key: key{Name: longestName}, change: addLongestLabels},
		{name: "a node without labels", resource: "nodes", key: key{Name: "bare"}, change: removeLabels},
		{name: "a node that is deleted for hours", resource: "nodes", key: key{Name: "deleted"}, change: markDeleted},
		{name: "a Count with the longest name", resource: "counts", key: inDefault(longestName), change: addLongestLabels},
		{name: "a Count that is deleted for hours", resource: "counts", key: inDefault("deleted"), change: markDeleted},
		{name: "a big pod", resource: "pods", key: inDefault("big"), change: s.makeBig, isBig: true},
		{name: "a big node", resource: "nodes", key: key{Name: "big"}, change: addHugeAnnotations, isBig: true},
		{name: "a big Count", resource: "counts", key: inDefault("big"), change: addHugeAnnotations, isBig: true},
	}
}

// longestStay is how long a big object stays at most.
const longestStay = 5 * time.Second

// objectAtLimitComesOrGoes creates or removes an object at a limit of Kubernetes.
func (s *sim) objectAtLimitComesOrGoes() string {
	atLimit := pick(s.dice, s.objectsAtLimits()...)
	stay := s.drawDuration(span{time.Second, longestStay})
	node := s.drawNode()
	if atLimit.resource == "counts" && fixture.InstalledCRD(s.fake) == nil {
		return ""
	}
	if s.fake.Get(atLimit.resource, atLimit.key) != nil {
		s.fake.Remove(atLimit.resource, atLimit.key)
		return "- " + atLimit.name
	}
	o := s.ordinary(atLimit.resource, atLimit.key, node)
	atLimit.change(o)
	s.fake.Put(atLimit.resource, o)
	if atLimit.isBig {
		s.later(stay, func() { s.fake.Remove(atLimit.resource, atLimit.key) })
	}
	return "+ " + atLimit.name
}

// ordinary returns an object with nothing unusual about it but perhaps its key. A pod is on this node.
func (s *sim) ordinary(resource string, k key, node string) fakekube.Object {
	meta := fakekube.Object{"name": k.Name, "labels": fakekube.Object{"app": "web"}}
	switch resource {
	case "pods":
		meta["namespace"] = k.Namespace
		return fakekube.PodOn(meta, node)
	case "nodes":
		meta["labels"] = fakekube.Object{s.ControlPlaneLabel: ""}
		return fakekube.Object{"metadata": meta, "spec": fakekube.Object{}, "status": fakekube.Object{}}
	default:
		meta["namespace"] = k.Namespace
		return fakekube.Object{"metadata": meta, "spec": fakekube.Object{"name": longestLabel, "count": 1.0}}
	}
}

// addLongestLabels gives an object labels with the longest keys and values, and very many of them.
func addLongestLabels(o fakekube.Object) {
	labels := fakekube.MetaOf(o)["labels"].(fakekube.Object)
	labels["run"] = longestLabel
	for i := range 20 {
		labels[fmt.Sprintf("%s/%03d%s", longestName, i, longestLabel[3:])] = longestLabel
	}
}

// addHugeAnnotations gives an object the 256 KiB of annotations that Kubernetes allows.
func addHugeAnnotations(o fakekube.Object) {
	const most = 256 << 10 // bytes of all keys and values
	const name = "example.com/odd"
	text := strings.Repeat(oddText, (most-len(name))/len(oddText))
	fakekube.MetaOf(o)["annotations"] = fakekube.Object{name: text}
}

// makeBig gives a pod very much of something.
func (s *sim) makeBig(pod fakekube.Object) {
	pick(s.dice, addHugeAnnotations, addManyManagers, addManyContainers)(pod)
}

func addManyManagers(o fakekube.Object) {
	fakekube.MetaOf(o)["managedFields"] = managedFields(1000)
}

// addManyContainers makes a pod almost as big as etcd allows, which is 1.5 MiB.
func addManyContainers(o fakekube.Object) {
	argument := strings.Repeat("a", 2800)
	var containers []any
	for i := range 500 {
		containers = append(containers, fakekube.Object{
			"name": fmt.Sprint("c", i), "image": "nginx", "args": []any{argument},
		})
	}
	o["spec"].(fakekube.Object)["containers"] = containers
}

// markDeleted makes an object look as if somebody had deleted it long ago, and a finalizer kept it.
func markDeleted(o fakekube.Object) {
	meta := fakekube.MetaOf(o)
	meta["deletionTimestamp"] = time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	meta["deletionGracePeriodSeconds"] = 0.0
	meta["finalizers"] = []any{"example.com/never"}
}

// removeLabels leaves an object without any labels.
func removeLabels(o fakekube.Object) {
	delete(fakekube.MetaOf(o), "labels")
	fakekube.MetaOf(o)["generateName"] = "generated-"
}
