// Package events posts Events about objects to the API server. The callers never wait for the server.
//
// An Event is the object at the server; an event is one entry in the queue. To post an event is to create an Event, or
// to raise the count of one.
//
// The Recorder queues events, limits how many are posted, and retries.
//
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/retry"
	"podcount/internal/view/logging"
	"podcount/internal/view/trace"
)

const (
	maxWaiting    = 1000 // how many events may wait to be posted
	maxRemembered = 4096 // how many objects the Recorder remembers, and also how many Events

	// Each object has a limit, which is the one in client-go. Another limit is for all objects together.
	objectRate  = 1.0 / 300 // events a second
	objectBurst = 25
	totalRate   = 10 // events a second
	totalBurst  = 50

	// While the server cannot be reached, an event is retried for up to retryTimeout.
	minBackoff   = time.Second
	maxBackoff   = 10 * time.Second
	retryTimeout = 2 * time.Minute

	// unreachablePause is the time between two log lines while the server cannot be reached.
	unreachablePause = time.Minute
)

// MaxMessage is how many bytes the message of an Event may have. The admission policies of the manifest refuse more. It
// is the limit of events.k8s.io/v1, too.
const MaxMessage = 1024

// Reference names the object that an event is about.
type Reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// occurrence is what happened to an object. If the same occurrence is recorded again, the count of its Event is raised.
type occurrence struct {
	about   Reference
	kind    string // Normal or Warning
	reason  string // one word in CamelCase
	message string
}

// event is one time that something occurred.
type event struct {
	occurrence
	at time.Time
}

// record is what the Recorder knows about the Event at the server that counts an occurrence.
type record struct {
	name  string
	count int // 0 if the server does not have the Event
}

// Options configure a Recorder. All of them are required except DryRun and Trace.
type Options struct {
	// Send sends a request to the API server, as kube.Client.Send does.
	Send func(ctx context.Context, r kube.Request, read func(answer io.Reader) error) error

	Component    string                // the name of this program, for the field reportingComponent of each Event
	Instance     string                // the name of this process, for the field reportingInstance
	ServerOutage *logging.ServerOutage // logs that the API server is away
	Log          *slog.Logger
	Trace        *trace.Trace // gets a step for each event that is posted or dropped

	// DryRun gets each event if it is set, and nothing is posted.
	DryRun func(about Reference, reason, message string)
}

// Recorder posts Events. When something occurs again, it raises the count of the first Event. It drops and counts the
// events that exceed a limit, and those that the server refuses.
//
// Event, Waiting, Posted and Dropped may be called at any time, by any goroutine.
type Recorder struct {
	options Options
	waiting chan event
	posted  atomic.Int64
	dropped atomic.Int64

	// Only Run uses the fields below.
	records         map[occurrence]*record
	newestStamp     int64 // the time in the newest record's name
	totalLimit      *retry.Bucket
	objectLimits    map[string]*retry.Bucket // by uid
	outage          *logging.Outage          // of the server
	refusalLoggedAt time.Time                // when a refusal was last logged
}

// NewRecorder makes a Recorder. It posts nothing until Run is called.
func NewRecorder(o Options) *Recorder {
	return &Recorder{
		options:      o,
		waiting:      make(chan event, maxWaiting),
		records:      map[occurrence]*record{},
		totalLimit:   retry.NewBucket(totalRate, totalBurst),
		objectLimits: map[string]*retry.Bucket{},
		outage:       logging.NewOutage(o.Log, "Events", "posting works again").MutedBy(o.ServerOutage),
	}
}

// Event queues an event about an object, with the present time. kind is Normal or Warning. It never blocks: if the
// queue is full, the event is dropped. A message with more than MaxMessage bytes is cut.
func (r *Recorder) Event(about Reference, kind, reason, message string) {
	message = shorten(message)
	if r.options.DryRun != nil {
		r.options.DryRun(about, reason, message)
		return
	}
	ev := event{occurrence{about, kind, reason, message}, time.Now()}
	select {
	case r.waiting <- ev:
	default:
		r.drop(ev, errors.New("too many events are waiting to be posted"))
	}
}

// shorten returns the message in valid UTF-8. If it has more than MaxMessage bytes, an ellipsis replaces its end.
func shorten(message string) string {
	const ellipsis = "…"
	message = strings.ToValidUTF8(message, "\uFFFD")
	if len(message) <= MaxMessage {
		return message
	}
	beginning := message[:MaxMessage-len(ellipsis)]
	return strings.ToValidUTF8(beginning, "") + ellipsis // The cut may have split a character.
}

// Waiting returns how many events wait to be posted.
func (r *Recorder) Waiting() int { return len(r.waiting) }

// Posted returns how many events have been posted since the start.
func (r *Recorder) Posted() int64 { return r.posted.Load() }

// Dropped returns how many events have been dropped since the start.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

func (r *Recorder) drop(ev event, why error) {
	r.dropped.Add(1)
	r.options.Log.Debug("dropped an event", "object", ev.about.Name, "reason", ev.reason, "err", why)
	r.emit(trace.Dropped, ev, why.Error())
}

// emit emits a step of an event for the trace.
func (r *Recorder) emit(point trace.Point, ev event, text string) {
	r.options.Trace.EmitBuilt(func() trace.Step {
		key := strings.TrimPrefix(ev.about.Namespace+"/"+ev.about.Name, "/")
		return trace.Step{Point: point, Kind: ev.about.Kind, Key: key, Type: ev.reason, Text: text}
	})
}

// Run posts events until stop has ended. After that, it tries once to post each event that still waits. ctx ends the
// requests, so it must not end before stop.
func (r *Recorder) Run(ctx, stop context.Context) {
	defer r.outage.Stop()
	for stop.Err() == nil || len(r.waiting) > 0 {
		select {
		case ev := <-r.waiting:
			r.deliver(ctx, stop, ev)
		case <-stop.Done():
		}
	}
}

// deliver posts an event, or drops it. Once stop has ended, it does not retry.
func (r *Recorder) deliver(ctx, stop context.Context, ev event) {
	newBucket := func() *retry.Bucket { return retry.NewBucket(objectRate, objectBurst) }
	if !remember(r.objectLimits, ev.about.UID, newBucket).Allow() {
		r.drop(ev, errors.New("too many events about this object"))
		return
	}
	start := time.Now()
	for try := 1; ; try++ {
		err := r.post(ctx, ev)
		if err == nil {
			r.outage.Worked("post")
			r.posted.Add(1)
			r.emit(trace.Event, ev, ev.message)
			return
		}
		if isRefusal(err) || time.Since(start) > retryTimeout {
			r.drop(ev, err)
			r.logFailure(ctx, ev, err)
			return
		}
		if ctx.Err() == nil { // The end of ctx is no outage.
			r.outage.Failed("post", "cannot post an Event", unreachablePause, err)
		}
		if retry.Sleep(stop, retry.Backoff(try, minBackoff, maxBackoff)) != nil {
			r.drop(ev, err)
			return
		}
	}
}

// isRefusal reports whether the server has answered with this error. A refusal is final, even with the code 500 or 503.
// Otherwise the server was not reached, it is unknown what it did, or it was not even asked, because a wait was cut
// short.
func isRefusal(err error) bool { return kube.StatusOf(err).Code != 0 }

// logFailure logs why an event was dropped, unless that is normal or a refusal was logged a short time ago.
func (r *Recorder) logFailure(ctx context.Context, ev event, err error) {
	if !isRefusal(err) {
		r.outage.GiveUp("post") // The outage has its own lines.
		return
	}
	r.outage.Worked("post") // The server has answered.
	status := kube.StatusOf(err)
	isNamespaceGone := status.Code == http.StatusNotFound || status.HasCause("NamespaceTerminating")
	isTooSoon := time.Since(r.refusalLoggedAt) < kube.PauseBetweenComplaints(err)
	if ctx.Err() != nil || isNamespaceGone || isTooSoon {
		return
	}
	r.refusalLoggedAt = time.Now()
	r.options.Log.Warn("the server refused an Event, so it is dropped",
		"object", ev.about.Name, "reason", ev.reason, "err", err)
}

// post makes one try: it raises the count of the occurrence's Event, or creates the Event if the server has none.
func (r *Recorder) post(ctx context.Context, ev event) error {
	if err := r.totalLimit.Wait(ctx); err != nil {
		return err
	}
	known := remember(r.records, ev.occurrence, func() *record { return &record{name: r.newName(ev.about.Name)} })
	if known.count > 0 {
		err := r.send(ctx, http.MethodPatch, ev, known.name, map[string]any{
			"count":         known.count + 1,
			"lastTimestamp": timestamp(ev.at),
		})
		if err == nil {
			known.count++
		}
		if kube.StatusOf(err).Reason != "NotFound" {
			return err
		}
		// The server has deleted the Event, as it does after an hour by default.
	}
	return r.create(ctx, ev, known)
}

// remember returns the value of a key. It adds a missing key with a new value. If the map is full, a random key makes
// room.
func remember[K comparable, V any](known map[K]V, key K, newValue func() V) V {
	if value, isKnown := known[key]; isKnown {
		return value
	}
	if len(known) >= maxRemembered {
		for random := range known {
			delete(known, random)
			break
		}
	}
	known[key] = newValue()
	return known[key]
}

// newName returns the object's name and the time in nanoseconds, which no other Event has as its name. The object's
// name is cut if it is too long. Two names differ even if the clock stands still or is set back.
func (r *Recorder) newName(object string) string {
	const maxNameLength = 253
	r.newestStamp = max(time.Now().UnixNano(), r.newestStamp+1)
	suffix := fmt.Sprintf(".%x", r.newestStamp)
	object = object[:min(len(object), maxNameLength-len(suffix))]
	return strings.TrimRight(object, "-.") + suffix
}

func (r *Recorder) create(ctx context.Context, ev event, known *record) error {
	err := r.send(ctx, http.MethodPost, ev, "", map[string]any{
		"apiVersion":         "v1",
		"kind":               "Event",
		"metadata":           map[string]any{"name": known.name, "namespace": namespaceOf(ev.about)},
		"involvedObject":     ev.about,
		"type":               ev.kind,
		"reason":             ev.reason,
		"message":            ev.message,
		"count":              1,
		"firstTimestamp":     timestamp(ev.at),
		"lastTimestamp":      timestamp(ev.at),
		"source":             map[string]any{"component": r.options.Component},
		"reportingComponent": r.options.Component,
		"reportingInstance":  r.options.Instance,
	})
	// If the Event exists already, an earlier try has created it, but the server's answer was lost.
	exists := err == nil || kube.StatusOf(err).Reason == "AlreadyExists"
	if !exists {
		return err
	}
	known.count = 1
	return nil
}

// send sends a request about the Event with this name, or creates one if name is "".
func (r *Recorder) send(ctx context.Context, method string, ev event, name string, body any) error {
	return r.options.Send(ctx, kube.Request{
		Method:    method,
		API:       "/api/v1",
		Namespace: namespaceOf(ev.about),
		Resource:  "events",
		Name:      name,
		Body:      body,
	}, nil)
}

// namespaceOf returns the namespace of the Events about an object. For a cluster-scoped object it is default.
func namespaceOf(about Reference) string { return cmp.Or(about.Namespace, "default") }

func timestamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }
