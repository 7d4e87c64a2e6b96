package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"podcount/lab/fakekube"
)

// scheduler assigns each new pod to the node with the fewest pods among those that accept it. It considers whether a
// node is ready and schedulable, taints, and spec.nodeSelector, but neither resources nor affinity.
type scheduler struct {
	*client
	events     *recorder
	complaints map[string]string // why no node accepts a pod, as in its newest Event, by the pod's uid
}

// step binds the pods that have no node yet.
func (s *scheduler) step() {
	nodes := s.all("nodes")
	load := map[string]int{}
	var waiting []object
	isWaiting := map[string]bool{} // by uid
	for _, pod := range s.all("pods") {
		node := nodeOf(pod)
		load[node]++
		if node == "" && !isDying(pod) && !hasEnded(pod) {
			waiting = append(waiting, pod)
			isWaiting[uidOf(pod)] = true
		}
	}
	maps.DeleteFunc(s.complaints, func(uid, _ string) bool { return !isWaiting[uid] })
	slices.SortFunc(waiting, byAge)
	slices.SortFunc(nodes, byName)
	for _, pod := range waiting {
		node, reasons := choose(pod, nodes, load)
		if node == "" {
			s.complain(pod, len(nodes), reasons)
			continue
		}
		if s.bind(pod, node) != nil {
			continue // the pod is gone, or the next step tries again
		}
		load[node]++
		s.events.postAsScheduler(pod, "Normal", "Scheduled", "Binding",
			fmt.Sprintf("Successfully assigned %s to %s", fakekube.KeyOf(pod), node))
	}
}

// choose returns the node with the fewest pods among those that accept a pod, or "". reasons says how many nodes refuse
// it for each reason.
func choose(pod object, nodes []object, load map[string]int) (node string, reasons map[string]int) {
	reasons = map[string]int{}
	for _, candidate := range nodes {
		name := fakekube.KeyOf(candidate).Name
		if reason := whyNot(pod, candidate); reason != "" {
			reasons[reason]++
			continue
		}
		if node == "" || load[name] < load[node] {
			node = name
		}
	}
	return node, reasons
}

// whyNot returns the reason, in the scheduler's words, for which a node does not accept a pod, or "" if it does.
func whyNot(pod, node object) string {
	nodeSpec, _ := node["spec"].(object)
	podSpec, _ := pod["spec"].(object)
	if nodeSpec["unschedulable"] == true {
		return "node(s) were unschedulable"
	}
	if !isReady(node) {
		return "node(s) had untolerated taint(s)" // node.kubernetes.io/not-ready
	}
	taints, _ := nodeSpec["taints"].([]any)
	for _, one := range taints {
		taint, _ := one.(object)
		if taint["effect"] != "PreferNoSchedule" && !tolerates(podSpec, taint) {
			return "node(s) had untolerated taint(s)"
		}
	}
	labels, _ := fakekube.MetaOf(node)["labels"].(object)
	selector, _ := podSpec["nodeSelector"].(object)
	for key, value := range selector {
		if labels[key] != value {
			return "node(s) didn't match Pod's node affinity/selector"
		}
	}
	return ""
}

// tolerates reports whether a pod tolerates a taint.
// https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
func tolerates(podSpec, taint object) bool {
	tolerations, _ := podSpec["tolerations"].([]any)
	return slices.ContainsFunc(tolerations, func(one any) bool {
		toleration, _ := one.(object)
		key := fakekube.TextIn(toleration, "key")
		effect := fakekube.TextIn(toleration, "effect")
		isForAny := toleration["operator"] == "Exists"
		sameKey := key == taint["key"] || key == "" && isForAny
		sameValue := isForAny || fakekube.TextIn(toleration, "value") == fakekube.TextIn(taint, "value")
		return sameKey && sameValue && (effect == "" || effect == taint["effect"])
	})
}

// complain reports by an Event and a condition why no node accepts a pod, unless it has already reported the same.
func (s *scheduler) complain(pod object, nodes int, reasons map[string]int) {
	var parts []string
	for reason, n := range reasons {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	message := fmt.Sprintf("0/%d nodes are available: %s. no new claims to deallocate, preemption: 0/%d nodes are "+
		"available: %d Preemption is not helpful for scheduling.", nodes, strings.Join(parts, ", "), nodes, nodes)
	if nodes == 0 {
		message = "no nodes available to schedule pods"
	}
	if s.complaints[uidOf(pod)] == message {
		return
	}
	s.complaints[uidOf(pod)] = message
	unschedulable := condition(pod, "PodScheduled", false, "Unschedulable", message)
	s.patchStatus("pods", pod, object{"conditions": []any{unschedulable}})
	s.events.postAsScheduler(pod, "Warning", "FailedScheduling", "Scheduling", message)
}

// nodeOf returns the name of a pod's node, or "" if it has none yet.
func nodeOf(pod object) string {
	spec, _ := pod["spec"].(object)
	return fakekube.TextIn(spec, "nodeName")
}

// isReady reports whether the condition Ready of a node holds.
func isReady(node object) bool {
	status, _ := node["status"].(object)
	conditions, _ := status["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(one any) bool {
		condition, _ := one.(object)
		return condition["type"] == "Ready" && condition["status"] == "True"
	})
}

// phaseOf returns a pod's status.phase.
func phaseOf(pod object) string {
	status, _ := pod["status"].(object)
	return fakekube.TextIn(status, "phase")
}

// hasEnded reports whether a pod has run to its end, after which no kubelet starts it again.
func hasEnded(pod object) bool {
	phase := phaseOf(pod)
	return phase == "Succeeded" || phase == "Failed"
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
