package sim

import (
	"fmt"
	"slices"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// lifeSteps are the steps that also happen in a healthy cluster.
var lifeSteps = slices.Concat(rewriteSteps, []step{
	{name: "pod comes or goes", weight: 8, do: (*sim).podComesOrGoes},
	{name: "pod is replaced", weight: 3, do: (*sim).podIsReplaced},
	{name: "pod changes", weight: 3, do: (*sim).podChanges},
	{name: "wave of pods", weight: 1, do: (*sim).waveOfPods},
	{name: "node comes or goes", weight: 2, do: (*sim).nodeComesOrGoes},
	{name: "label is overwritten", weight: 2, do: (*sim).labelIsOverwritten},
	{name: "Count comes, changes or goes", weight: 2, do: (*sim).countComesChangesOrGoes},
	{name: "status is overwritten", weight: 1, do: (*sim).statusIsOverwritten},
	{name: "object at a limit comes or goes", weight: 1, do: (*sim).objectAtLimitComesOrGoes},
})

// podComesOrGoes creates a pod, or removes the one with that name, as when a deployment is scaled.
func (s *sim) podComesOrGoes() string {
	key := s.drawPod()
	if s.fake.Get("pods", key) == nil {
		return s.addPod(key)
	}
	s.fake.Remove("pods", key)
	return "- pod " + key.String()
}

// podIsReplaced removes a pod, and at once creates one with the same name and another uid, perhaps on another node, as
// when a pod of a StatefulSet is evicted.
func (s *sim) podIsReplaced() string {
	key := s.drawPod()
	s.fake.Remove("pods", key)
	return "-" + s.addPod(key) // "-+ pod", because it goes and comes
}

// addPod creates a pod with a label that Counts count. Two of three pods are on a node, and the others are not
// scheduled yet.
func (s *sim) addPod(key key) string {
	label := pick(s.dice, "app", "app", "run")
	labels := fakekube.Object{label: pick(s.dice, "web", "db")}
	node := pick(s.dice, "", s.drawNode(), s.drawNode())
	meta := fakekube.Object{"namespace": key.Namespace, "name": key.Name, "labels": labels}
	s.fake.Put("pods", fakekube.PodOn(meta, node))
	return fmt.Sprintf("+ pod %s on %q %v", key, node, labels)
}

// podChanges gives a pod another label, as when it is taken out of a service. A pod without a node may also get one.
func (s *sim) podChanges() string {
	key := s.drawPod()
	pod := s.fake.Get("pods", key)
	if pod == nil {
		return ""
	}
	pod = fakekube.Clone(pod)
	if nodeOf(pod) == "" && s.flipCoin() {
		pod["spec"].(fakekube.Object)["nodeName"] = s.drawNode()
	}
	labels := fakekube.Object{"app": pick(s.dice, "web", "db", "none")}
	fakekube.MetaOf(pod)["labels"] = labels
	s.fake.Put("pods", pod)
	return fmt.Sprint("~ pod ", key, " ", labels)
}

// waveOfPods creates and removes many pods at once, as when a job begins or ends, or when a node is drained.
func (s *sim) waveOfPods() string {
	n := 10 + s.dice.IntN(90)
	for range n {
		s.podComesOrGoes()
	}
	return fmt.Sprint("a wave of ", n, " pods")
}

// nodeComesOrGoes removes, creates or replaces a node, as when an autoscaler is at work or a machine is reinstalled. A
// new node is a worker or belongs to the control plane.
func (s *sim) nodeComesOrGoes() string {
	name := s.drawNode()
	removed := s.fake.Remove("nodes", key{Name: name})
	if removed != nil && s.flipCoin() {
		return "- node " + name
	}
	s.fake.AddNode(name, pick(s.dice, "role=worker", s.ControlPlaneLabel))
	return "+ node " + name
}

// labelIsOverwritten changes or removes a label that the program writes, or the one that marks the control plane, as a
// writer may do that does not know about the program.
func (s *sim) labelIsOverwritten() string {
	name := s.drawNode()
	if s.fake.Get("nodes", key{Name: name}) == nil {
		return ""
	}
	label := pick(s.dice, s.ControlPlaneLabel, s.TotalLabel, s.OwnPodsLabel)
	value := pick[any](s.dice, nil, "", "7") // nil removes the label
	fixture.SetLabel(s.fake, name, label, value)
	return fmt.Sprint("~ node ", name, " ", label, "=", value)
}

// countComesChangesOrGoes creates, changes or removes a Count, as people do. Some of the Counts are invalid.
func (s *sim) countComesChangesOrGoes() string {
	key := s.drawCount()
	if fixture.InstalledCRD(s.fake) == nil || s.dice.IntN(4) == 0 {
		s.fake.Remove("counts", key)
		return "- count " + key.Name
	}
	spec := pick(s.dice,
		`{"name":"web","count":3}`,
		`{"name":"db","count":2}`,
		`{"name":"web","count":5}`,
		`{"name":"none","count":0}`,
		`{"name":7,"count":"many"}`)
	fixture.AddCount(s.fake, key.Name, spec)
	return "+ count " + key.Name + " " + spec
}

// statusIsOverwritten gives a Count a status that may be wrong, as another writer may do.
func (s *sim) statusIsOverwritten() string {
	key := s.drawCount()
	count := s.fake.Get("counts", key)
	if count == nil {
		return ""
	}
	count = fakekube.Clone(count)
	count["status"] = fakekube.Object{"healthy": true, "count": s.dice.IntN(9)}
	s.fake.Put("counts", count)
	return "~ status of count " + key.Name
}

// key is the namespace and the name of an object.
type key = fakekube.Key

// drawNode draws the name of a node. There are only a few names of nodes, Counts and pods, so the objects often come
// back under the same name.
func (s *sim) drawNode() string { return fmt.Sprint("n", s.dice.IntN(6)) }

func (s *sim) drawCount() key {
	return key{Namespace: "default", Name: fmt.Sprint("c", s.dice.IntN(3))}
}

func (s *sim) drawPod() key {
	namespace := pick(s.dice, "default", "default", "kube-system")
	return key{Namespace: namespace, Name: fmt.Sprint("p", s.dice.IntN(30))}
}

// labelOf returns the value of a label, or "" without one.
func labelOf(o fakekube.Object, name string) string {
	labels, _ := fakekube.MetaOf(o)["labels"].(fakekube.Object)
	return fakekube.TextIn(labels, name)
}

// nodeOf returns the name of a pod's node, or "" if the pod is not scheduled.
func nodeOf(pod fakekube.Object) string {
	spec, _ := pod["spec"].(fakekube.Object)
	return fakekube.TextIn(spec, "nodeName")
}
