package main

import (
	"fmt"
	"slices"
	"strings"

	"podcount/lab/fakekube"
)

// scheduler assigns each new pod to the worker with the fewest pods that is not cordoned. It considers nothing else.
type scheduler struct {
	*client
	events *recorder
}

// step binds the pods that have no node yet.
func (s *scheduler) step() {
	nodes := s.all("nodes")
	load := map[string]int{}
	var waiting []object
	for _, pod := range s.all("pods") {
		node := nodeOf(pod)
		load[node]++
		if node == "" && !isDying(pod) {
			waiting = append(waiting, pod)
		}
	}
	slices.SortFunc(waiting, byAge)
	slices.SortFunc(nodes, byName)
	for _, pod := range waiting {
		node := choose(nodes, load)
		if node == "" || s.bind(pod, node) != nil {
			continue // the next step tries again
		}
		load[node]++
		s.events.postAsScheduler(pod, "Normal", "Scheduled", "Binding",
			fmt.Sprintf("Successfully assigned %s to %s", fakekube.KeyOf(pod), node))
	}
}

// choose returns the worker with the fewest pods that is not cordoned, or "".
func choose(nodes []object, load map[string]int) (node string) {
	for _, candidate := range nodes {
		name := fakekube.KeyOf(candidate).Name
		spec, _ := candidate["spec"].(object)
		takesPods := name != controlPlaneNode && spec["unschedulable"] != true
		if takesPods && (node == "" || load[name] < load[node]) {
			node = name
		}
	}
	return node
}

// nodeOf returns the name of a pod's node, or "" if it has none yet.
func nodeOf(pod object) string {
	spec, _ := pod["spec"].(object)
	return fakekube.TextIn(spec, "nodeName")
}

// phaseOf returns a pod's status.phase.
func phaseOf(pod object) string {
	status, _ := pod["status"].(object)
	return fakekube.TextIn(status, "phase")
}

func byName(a, b object) int {
	return strings.Compare(fakekube.KeyOf(a).String(), fakekube.KeyOf(b).String())
}

// byAge puts the older object first.
func byAge(a, b object) int {
	created := func(o object) string { return fakekube.TextIn(fakekube.MetaOf(o), "creationTimestamp") }
	if older := strings.Compare(created(a), created(b)); older != 0 {
		return older
	}
	return byName(a, b)
}
