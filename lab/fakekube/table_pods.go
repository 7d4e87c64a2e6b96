package fakekube

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

var podPrinter = printer{
	columns: []column{
		nameColumn,
		{Name: "Ready", Type: "string",
			Description: "The aggregate readiness state of this pod for accepting traffic."},
		{Name: "Status", Type: "string", Description: "The aggregate status of the containers in this pod."},
		{Name: "Restarts", Type: "string", Description: "The number of times the containers in this pod have been " +
			"restarted and when the last container in this pod has restarted."},
		ageColumn,
		{Name: "IP", Type: "string", Priority: 1, Description: "podIP address allocated to the pod. Routable at " +
			"least within the cluster. Empty if not yet allocated."},
		{Name: "Node", Type: "string", Priority: 1, Description: "NodeName indicates in which node this pod is " +
			"scheduled. If empty, this pod is a candidate for scheduling by the scheduler defined in schedulerName. " +
			"Once this field is set, the kubelet for this node becomes responsible for the lifecycle of this pod. " +
			"This field should not be used to express a desire for the pod to be scheduled on a specific node. " +
			"https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename"},
		{Name: "Nominated Node", Type: "string", Priority: 1, Description: "nominatedNodeName is set only when this " +
			"pod preempts other pods on the node, but it cannot be scheduled right away as preemption victims " +
			"receive their graceful termination periods. This field does not guarantee that the pod will be " +
			"scheduled on this node. Scheduler may decide to place the pod elsewhere if other nodes become available " +
			"sooner. Scheduler may also decide to give the resources on this node to a higher priority pod that is " +
			"created after preemption. As a result, this field may be different than PodSpec.nodeName when the pod " +
			"is scheduled."},
		{Name: "Readiness Gates", Type: "string", Priority: 1, Description: "If specified, all readiness gates will " +
			"be evaluated for pod readiness. A pod is ready when all its containers are ready AND all conditions " +
			"specified in the readiness gates have status equal to \"True\" More info: " +
			"https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates"},
	},
	cells: func(o Object, now time.Time) []any {
		spec := objectIn(o, "spec")
		status := objectIn(o, "status")
		s := summarizePod(o)
		return []any{
			nameCell(o),
			fmt.Sprintf("%d/%d", s.ready, len(objectsIn(spec["containers"]))),
			s.status,
			s.restarts.cell(now),
			ageCell(o, now),
			cmp.Or(podIP(status), "<none>"),
			cmp.Or(TextIn(spec, "nodeName"), "<none>"),
			cmp.Or(TextIn(status, "nominatedNodeName"), "<none>"),
			"<none>",
		}
	},
	conditions: func(o Object) []Object {
		switch TextIn(objectIn(o, "status"), "phase") {
		case "Succeeded":
			return []Object{completedCondition("Succeeded", "The pod has completed successfully.")}
		case "Failed":
			return []Object{completedCondition("Failed", "The pod failed.")}
		}
		return nil
	},
}

// completedCondition is the row condition of a pod that will not run again.
func completedCondition(reason, message string) Object {
	return Object{"type": "Completed", "status": "True", "reason": reason, "message": message}
}

// podSummary summarizes the containers of a pod.
type podSummary struct {
	ready    int
	status   string
	restarts restarts
}

// restarts counts the restarts of containers.
type restarts struct {
	count int
	last  string // when a container last ended, in RFC 3339; "" if unknown
}

// add adds the restarts in a container's status.
func (r *restarts) add(container Object) {
	r.count += numberIn(container, "restartCount")
	ended := TextIn(objectIn(container, "lastState", "terminated"), "finishedAt")
	r.last = max(r.last, ended) // times in UTC sort like their texts
}

// cell returns the table cell of the restarts.
func (r restarts) cell(now time.Time) string {
	if r.count == 0 || r.last == "" {
		return strconv.Itoa(r.count)
	}
	return fmt.Sprintf("%d (%s ago)", r.count, elapsed(r.last, now))
}

// summarizePod summarizes a pod. Its status is the phase, unless a container's state is more specific. Unlike the
// server, it leaves out init containers.
func summarizePod(o Object) podSummary {
	status := objectIn(o, "status")
	phase := TextIn(status, "phase")
	s := podSummary{status: cmp.Or(TextIn(status, "reason"), phase)}
	s.addContainers(status)
	isDying := MetaOf(o)["deletionTimestamp"] != nil
	isOver := phase == "Succeeded" || phase == "Failed"
	switch {
	case isDying && TextIn(status, "reason") == "NodeLost":
		s.status = "Unknown"
	case isDying && !isOver:
		s.status = "Terminating"
	}
	return s
}

// addContainers adds the containers. The first one with a specific state determines the status.
func (s *podSummary) addContainers(status Object) {
	hasRunning := false
	for _, c := range slices.Backward(objectsIn(status["containerStatuses"])) {
		s.restarts.add(c)
		terminated := objectIn(c, "state", "terminated")
		waitsFor := TextIn(objectIn(c, "state", "waiting"), "reason")
		isRunning := objectIn(c, "state", "running") != nil
		switch {
		case waitsFor != "":
			s.status = waitsFor
		case terminated != nil:
			s.status = terminationReason(terminated)
		case isRunning && c["ready"] == true:
			hasRunning = true
			s.ready++
		}
	}
	if s.status != "Completed" || !hasRunning {
		return
	}
	s.status = "NotReady"
	if conditionOf(status, "Ready") == "True" {
		s.status = "Running"
	}
}

// terminationReason says how a container terminated.
func terminationReason(terminated Object) string {
	return cmp.Or(TextIn(terminated, "reason"), fmt.Sprint("ExitCode:", numberIn(terminated, "exitCode")))
}

// podIP returns the first address of a pod.
func podIP(status Object) string {
	for _, ip := range objectsIn(status["podIPs"]) {
		return TextIn(ip, "ip")
	}
	return TextIn(status, "podIP")
}
