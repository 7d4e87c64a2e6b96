package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// These durations are how long things take on the playground's nodes.
const (
	pullTime = 1200 * time.Millisecond // to pull an image
	stopTime = 800 * time.Millisecond  // from the signal to the end of a container
)

// stage is how far a pod has come on its node.
type stage int

const (
	isNew      stage = iota // it has a node, and no status yet
	isPulling               // it is Pending while its container is created
	isRunning               // it is Running and Ready
	isStopping              // it was deleted, and its container was asked to stop
)

// podRecord is what a kubelet remembers about a pod.
type podRecord struct {
	stage   stage
	due     time.Time // when the next stage begins; the zero time means never
	ip      string
	started time.Time // when the container was started
}

// kubelets are the kubelets of the cluster's nodes. They run nothing. They only write what kubelets write when a
// container is pulled, started or stopped. Each container runs until its pod is deleted, whatever its command is.
type kubelets struct {
	*client
	events  *recorder
	records map[string]*podRecord // by the pod's uid
	ips     int                   // how many IPs pods have got

	// inHurry makes pulls take no time, so that the cluster's first pods run at once.
	inHurry bool
}

// step brings each pod on a node to the stage that is due.
func (k *kubelets) step() {
	hasPod := map[string]bool{} // by uid
	nodesThere := nodesByName(k.client)
	for _, pod := range k.all("pods") {
		node := nodesThere[nodeOf(pod)]
		if node == nil || !slices.Contains(nodes, nodeOf(pod)) {
			continue // that node has no kubelet
		}
		hasPod[uidOf(pod)] = true
		w := k.records[uidOf(pod)]
		if w == nil {
			w = &podRecord{ip: k.ipFor(pod, node)}
			k.records[uidOf(pod)] = w
		}
		k.advance(pod, node, w)
	}
	for uid := range k.records {
		if !hasPod[uid] {
			delete(k.records, uid)
		}
	}
}

// advance does the work that is due for a pod.
func (k *kubelets) advance(pod, node object, w *podRecord) {
	now := time.Now()
	isDue := !w.due.IsZero() && !now.Before(w.due)
	switch {
	case isDying(pod) && w.stage != isStopping:
		k.stop(pod, w, now)
	case w.stage == isStopping && isDue:
		k.finish("pods", pod)
	case w.stage == isNew:
		k.pull(pod, node, w, now)
	case w.stage == isPulling && isDue:
		k.start(pod, node, w, now)
	}
}

// pull begins to pull the image of a new pod.
func (k *kubelets) pull(pod, node object, w *podRecord, now time.Time) {
	w.stage = isPulling
	w.due = now.Add(pullTime)
	if k.inHurry {
		w.due = now
	}
	k.write(pod, node, w, now, object{"waiting": object{"reason": "ContainerCreating"}})
	k.events.postAsKubelet(pod, "Normal", "Pulling", fmt.Sprintf("Pulling image %q", containerOf(pod).image))
}

// start starts a pod's container, whose image has been pulled.
func (k *kubelets) start(pod, node object, w *podRecord, now time.Time) {
	w.stage = isRunning
	w.started = now
	w.due = time.Time{}
	const format = "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes."
	image := containerOf(pod).image
	pulled := fmt.Sprintf(format, image, pullTime, pullTime, imageSize(image))
	k.events.postAsKubelet(pod, "Normal", "Pulled", pulled)
	k.events.postAsKubelet(pod, "Normal", "Created", "Container created")
	k.events.postAsKubelet(pod, "Normal", "Started", "Container started")
	k.write(pod, node, w, now, object{"running": object{"startedAt": stamp(now)}})
}

// stop stops the container of a pod that has been deleted.
func (k *kubelets) stop(pod object, w *podRecord, now time.Time) {
	wasRunning := w.stage == isRunning
	w.stage = isStopping
	w.due = now
	if wasRunning {
		w.due = now.Add(stopTime)
		k.events.postAsKubelet(pod, "Normal", "Killing", "Stopping container "+containerOf(pod).name)
	}
}

// ipFor returns the IP of a new pod: the node's own, or one from the node's range. It returns "" if that has none left.
func (k *kubelets) ipFor(pod, node object) string {
	spec, _ := pod["spec"].(object)
	if spec["hostNetwork"] == true {
		return addressOf(node)
	}
	of, _ := node["spec"].(object)
	prefix, _, _ := strings.Cut(fakekube.TextIn(of, "podCIDR"), ".0/24")
	taken := map[string]bool{}
	for _, w := range k.records {
		taken[w.ip] = true
	}
	for range podAddresses {
		k.ips++
		ip := fmt.Sprintf("%s.%d", prefix, k.ips%podAddresses+2)
		if !taken[ip] {
			return ip
		}
	}
	return ""
}

// podAddresses is how many addresses a node has for its pods.
const podAddresses = 250
