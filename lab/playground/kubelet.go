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
	pullTime   = 1200 * time.Millisecond // to pull an image that the node does not have
	stopTime   = 800 * time.Millisecond  // from the signal to the end of a container
	backOff    = 10 * time.Second        // before the second restart of a container; it doubles with each
	maxBackOff = 5 * time.Minute
)

// stage is how far a pod has come on its node.
type stage int

const (
	isNew      stage = iota // it has a node, and no status yet
	isPulling               // it is Pending while its container is created
	isRunning               // it is Running and Ready
	isBackOff               // it is Running, but its container has ended and will be restarted
	isFinished              // it has Succeeded or Failed
	isStopping              // it was deleted, and its container was asked to stop
)

// podRecord is what a kubelet remembers about a pod.
type podRecord struct {
	stage    stage
	due      time.Time // when the next stage begins; the zero time means never
	ip       string
	started  time.Time // when the container was last started
	restarts int
	last     object // the state with which the container last ended; nil if it has not ended yet
	backOffs object // the Event that counts the back-offs; nil before the first one
}

// kubelets are the kubelets of the cluster's nodes. They run nothing. They only write what kubelets write when a
// container is pulled, started, restarted or killed, or when it ends. All containers of a pod do what the first one
// does.
type kubelets struct {
	*client
	events  *recorder
	records map[string]*podRecord      // by the pod's uid
	images  map[string]map[string]bool // the images that have been pulled, by node
	ips     int                        // how many IPs pods have got

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
	case w.stage == isNew && hasEnded(pod):
		w.stage = isFinished
	case w.stage == isNew:
		k.pull(pod, node, w, now)
	case w.stage == isPulling && isDue:
		k.postPulled(pod)
		k.start(pod, node, w, now)
	case w.stage == isRunning && isDue:
		k.end(pod, node, w, now)
	case w.stage == isBackOff && isDue:
		w.restarts++
		k.postPresent(pod)
		k.start(pod, node, w, now)
	}
}

// pull pulls the image of a new pod, or starts its container at once if the node has the image.
func (k *kubelets) pull(pod, node object, w *podRecord, now time.Time) {
	image := containerOf(pod).image
	if k.images[nodeOf(pod)] == nil {
		k.images[nodeOf(pod)] = map[string]bool{}
	}
	if k.images[nodeOf(pod)][image] {
		k.write(pod, node, w, now, waitingFor("ContainerCreating", ""))
		k.postPresent(pod)
		k.start(pod, node, w, now)
		return
	}
	w.stage = isPulling
	w.due = now.Add(pullTime)
	if k.inHurry {
		w.due = now
	}
	k.write(pod, node, w, now, waitingFor("ContainerCreating", ""))
	k.events.postAsKubelet(pod, "Normal", "Pulling", fmt.Sprintf("Pulling image %q", image))
}

// postPulled notes that a pod's node now has its image, and posts the Event.
func (k *kubelets) postPulled(pod object) {
	const format = "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes."
	image := containerOf(pod).image
	k.images[nodeOf(pod)][image] = true
	message := fmt.Sprintf(format, image, pullTime, pullTime, imageSize(image))
	k.events.postAsKubelet(pod, "Normal", "Pulled", message)
}

// postPresent posts the Event that the node already has a pod's image.
func (k *kubelets) postPresent(pod object) {
	const format = "Container image %q already present on machine and can be accessed by the pod"
	k.events.postAsKubelet(pod, "Normal", "Pulled", fmt.Sprintf(format, containerOf(pod).image))
}

// start starts a pod's container.
func (k *kubelets) start(pod, node object, w *podRecord, now time.Time) {
	w.stage = isRunning
	w.started = now
	w.due = time.Time{}
	if runs, ends := containerOf(pod).lifetime(); ends {
		w.due = now.Add(runs)
	}
	k.events.postAsKubelet(pod, "Normal", "Created", "Container created")
	k.events.postAsKubelet(pod, "Normal", "Started", "Container started")
	k.write(pod, node, w, now, object{"running": object{"startedAt": stamp(now)}})
}

// end handles a container that has ended by itself. Either the pod is finished, or the container will be restarted.
func (k *kubelets) end(pod, node object, w *podRecord, now time.Time) {
	c := containerOf(pod)
	w.due = time.Time{}
	ended := terminated(c.exitCode(), w.started, now)
	if c.restartPolicy == "Never" || c.restartPolicy == "OnFailure" && c.exitCode() == 0 {
		w.stage = isFinished
		k.write(pod, node, w, now, ended)
		return
	}
	w.last = ended
	w.stage = isBackOff
	if w.restarts == 0 {
		w.due = now // the first restart comes without a back-off
		k.write(pod, node, w, now, ended)
		return
	}
	wait := min(backOff<<min(w.restarts-1, 8), maxBackOff)
	w.due = now.Add(wait)
	message := fmt.Sprintf("restarting failed container %s in pod %s_%s(%s)",
		c.name, fakekube.KeyOf(pod).Name, fakekube.KeyOf(pod).Namespace, uidOf(pod))
	k.write(pod, node, w, now, waitingFor("CrashLoopBackOff", fmt.Sprintf("back-off %s %s", wait, message)))
	if w.backOffs != nil {
		w.backOffs = k.events.again(w.backOffs)
		return
	}
	w.backOffs = k.events.postAsKubelet(pod, "Warning", "BackOff", "Back-off "+message)
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
