package main

import (
	"fmt"
	"time"

	"podcount/internal/fakekube"
)

// eventTTL is how long the server keeps an Event, as kube-apiserver's --event-ttl says where nobody sets it.
const eventTTL = time.Hour

// stamp is a time as the API writes it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// stampMicro is a time as the API writes it in Leases and in an Event's eventTime.
func stampMicro(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

// recorder posts Events about pods, for one component of the cluster.
type recorder struct {
	*client
	next int // number of the next Event
}

// nameOf is the name of a new Event: the object's, and something that no other Event has.
func (r *recorder) nameOf(about object, now time.Time) string {
	r.next++
	return fmt.Sprintf("%s.%x", fakekube.KeyOf(about).Name, now.UnixNano()+int64(r.next))
}

// reference is how an Event names a pod, and the field of it that the Event is about, if any.
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

// postAsScheduler posts an Event of the scheduler, which writes the newer form: a time in microseconds, and no count.
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

// postAsKubelet posts an Event of the kubelet of the pod's node about the pod's container, and returns it as stored,
// nil where it was refused.
func (r *recorder) postAsKubelet(pod object, kind, reason, message string) object {
	now := time.Now()
	spec, _ := pod["spec"].(object)
	node := fakekube.TextIn(spec, "nodeName")
	event, err := r.create("events", object{
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
	if err != nil {
		return nil
	}
	return event
}

// again says that what an Event tells has happened once more.
func (r *recorder) again(event object) object {
	count, _ := event["count"].(float64)
	changed, err := r.patch("events", event, object{"count": count + 1, "lastTimestamp": stamp(time.Now())})
	if err != nil {
		return event
	}
	return changed
}

// expireEvents removes the Events that are too old.
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
