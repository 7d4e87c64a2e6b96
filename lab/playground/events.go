package main

import (
	"fmt"
	"time"

	"podcount/lab/fakekube"
)

// eventTTL is how long the server keeps an Event. It is the default of kube-apiserver's --event-ttl.
const eventTTL = time.Hour

// stamp formats a time as the API does.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// stampMicro formats a time as the API does in Leases and in an Event's eventTime.
func stampMicro(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

// recorder posts Events about pods, for one component of the cluster.
type recorder struct {
	*client
	next int // how many Events have been posted
}

// nameOf returns the name of a new Event: the object's name with a unique suffix.
func (r *recorder) nameOf(about object, now time.Time) string {
	r.next++
	return fmt.Sprintf("%s.%x", fakekube.KeyOf(about).Name, now.UnixNano()+int64(r.next))
}

// reference returns an Event's reference to a pod, or to one of its fields unless field is "".
func reference(pod object, field string) object {
	meta := fakekube.MetaOf(pod)
	ref := object{
		"kind":            "Pod",
		"apiVersion":      "v1",
		"namespace":       meta["namespace"],
		"name":            meta["name"],
		"uid":             meta["uid"],
		"resourceVersion": meta["resourceVersion"],
	}
	if field != "" {
		ref["fieldPath"] = field
	}
	return ref
}

// postAsScheduler posts an Event of the scheduler. It has the newer form, with a time in microseconds and no count.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
func (r *recorder) postAsScheduler(pod object, kind, reason, action, message string) {
	now := time.Now()
	r.create("events", object{
		"metadata":           object{"namespace": fakekube.KeyOf(pod).Namespace, "name": r.nameOf(pod, now)},
		"involvedObject":     reference(pod, ""),
		"type":               kind,
		"reason":             reason,
		"action":             action,
		"message":            message,
		"eventTime":          stampMicro(now),
		"firstTimestamp":     nil,
		"lastTimestamp":      nil,
		"reportingComponent": "default-scheduler",
		"reportingInstance":  "default-scheduler-" + controlPlaneNode,
		"source":             object{},
	})
}

// postAsKubelet posts an Event about a pod's container, from the kubelet of the pod's node.
func (r *recorder) postAsKubelet(pod object, kind, reason, message string) {
	now := time.Now()
	spec, _ := pod["spec"].(object)
	node := fakekube.TextIn(spec, "nodeName")
	r.create("events", object{
		"metadata":           object{"namespace": fakekube.KeyOf(pod).Namespace, "name": r.nameOf(pod, now)},
		"involvedObject":     reference(pod, "spec.containers{"+containerOf(pod).name+"}"),
		"type":               kind,
		"reason":             reason,
		"message":            message,
		"count":              1,
		"firstTimestamp":     stamp(now),
		"lastTimestamp":      stamp(now),
		"reportingComponent": "kubelet",
		"reportingInstance":  node,
		"source":             object{"component": "kubelet", "host": node},
	})
}

// expireEvents deletes the Events that are too old.
func expireEvents(c *client) {
	for _, event := range c.all("events") {
		last := fakekube.TextIn(event, "lastTimestamp")
		if last == "" {
			last = fakekube.TextIn(fakekube.MetaOf(event), "creationTimestamp")
		}
		at, err := time.Parse(time.RFC3339, last)
		if err == nil && time.Since(at) > eventTTL {
			c.finish("events", event)
		}
	}
}
