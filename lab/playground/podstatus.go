package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// write writes a pod's status. state is the state of all its containers.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodStatus
func (k *kubelets) write(pod, node object, w *podRecord, now time.Time, state object) {
	spec, _ := pod["spec"].(object)
	containers, _ := spec["containers"].([]any)
	var statuses []any
	for _, one := range containers {
		container, _ := one.(object)
		statuses = append(statuses, containerStatus(container, w, state))
	}
	status := object{
		"phase":             phaseIn(w.stage),
		"hostIP":            addressOf(node),
		"hostIPs":           []any{object{"ip": addressOf(node)}},
		"startTime":         startTimeOf(pod, now),
		"containerStatuses": statuses,
		"conditions":        conditionsIn(pod, w.stage),
	}
	if w.stage != isPulling {
		status["podIP"] = w.ip
		status["podIPs"] = []any{object{"ip": w.ip}}
	}
	k.patchStatus("pods", pod, status)
}

// phaseIn returns the phase of a pod at a stage.
func phaseIn(s stage) string {
	if s == isPulling {
		return "Pending"
	}
	return "Running"
}

// conditionsIn returns the conditions that a kubelet writes for a pod at a stage.
func conditionsIn(pod object, s stage) []any {
	const reason = "ContainersNotReady"
	message := "containers with unready status: [" + containerOf(pod).name + "]"
	return []any{
		condition(pod, "PodReadyToStartContainers", s == isRunning, "", ""),
		condition(pod, "Initialized", true, "", ""),
		condition(pod, "Ready", s == isRunning, reason, message),
		condition(pod, "ContainersReady", s == isRunning, reason, message),
		condition(pod, "PodScheduled", true, "", ""),
	}
}

// condition returns a condition of a pod. The reason and the message are left out if it holds. Its transition time
// stays the same as long as its status does.
func condition(pod object, kind string, holds bool, reason, message string) object {
	c := object{"type": kind, "status": "True", "lastProbeTime": nil, "lastTransitionTime": stamp(time.Now())}
	if !holds {
		c["status"] = "False"
	}
	if !holds && reason != "" {
		c["reason"] = reason
	}
	if !holds && message != "" {
		c["message"] = message
	}
	status, _ := pod["status"].(object)
	olds, _ := status["conditions"].([]any)
	for _, one := range olds {
		old, _ := one.(object)
		if old["type"] == c["type"] && old["status"] == c["status"] && old["lastTransitionTime"] != nil {
			c["lastTransitionTime"] = old["lastTransitionTime"]
		}
	}
	return c
}

// containerStatus returns the status that a kubelet writes for a container.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#ContainerStatus
func containerStatus(container object, w *podRecord, state object) object {
	image := fakekube.TextIn(container, "image")
	status := object{
		"name":         container["name"],
		"image":        image,
		"imageID":      "",
		"ready":        w.stage == isRunning,
		"started":      w.stage == isRunning,
		"restartCount": 0,
		"state":        state,
		"lastState":    object{},
	}
	if w.stage != isPulling {
		status["imageID"] = image + "@sha256:" + digest(image)
		status["containerID"] = "containerd://" + digest(w.ip, image, w.started.String())
	}
	return status
}

// startTimeOf returns the time at which the kubelet first saw a pod.
func startTimeOf(pod object, now time.Time) any {
	status, _ := pod["status"].(object)
	if status["startTime"] != nil {
		return status["startTime"]
	}
	return stamp(now)
}

// digest returns the SHA-256 of some texts in hexadecimal digits.
func digest(texts ...string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(texts, "\n"))))
}
