// Package events posts Events about objects to the API server. The callers never wait for the server.
//
// An Event is the object at the server; an event is one entry in the queue. To post an event is to create an Event, or
// to raise the count of one.
//
// The Recorder queues events, limits how many are posted, and retries. The Sink makes the requests, and reduces the
// server's errors to the few cases that matter to the Recorder.
//
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"podcount/internal/api/retry"
	"podcount/internal/view/logging"
	"podcount/internal/view/metrics"
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

	// maxRetryAfter is the longest Failure.RetryAfter that the Recorder accepts: 30 seconds and the jitter of
	// kube.RetryAfter. It drops an event for which the server asks for a longer wait, because all other events would
	// have to wait too.
	maxRetryAfter = 36 * time.Second

	// unreachablePause is the time between two log lines while the server cannot be reached.
	unreachablePause = time.Minute
)

// MaxMessage is how many bytes the message of an Event may have. The admission policies of the manifest refuse more. It
// is the limit of events.k8s.io/v1, too.
const MaxMessage = 1024

var (
	errQueueFull   = errors.New("too many events are waiting to be posted")
	errObjectLimit = errors.New("too many events about this object")
)

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

// DryRun shows an event instead of posting it.
type DryRun func(about Reference, reason, message string)

// Options configure a Recorder. All of them are required except DryRun and Trace.
type Options struct {
	Sink         Sink
	Instance     string                // the name of this process, for the field reportingInstance of each Event
	ServerOutage *logging.ServerOutage // logs that the API server is away
	Log          *slog.Logger
	Metrics      *metrics.Registry // counts podcount_events_total
	Trace        *trace.Trace      // gets a step for each event that is posted or dropped
	DryRun       DryRun            // If it is set, it gets each event, and nothing is posted.
}

// Recorder posts Events. When something occurs again, it raises the count of the first Event. It drops and counts the
// events that exceed a limit, and those that the server refuses.
//
// Event, Waiting and Dropped may be called at any time, by any goroutine.
type Recorder struct {
	options Options
	waiting chan event
	dropped atomic.Int64

	// Only Run uses the fields below.
	records         *lru[occurrence, *record]
	newestStamp     int64 // the time in the newest record's name
	totalLimit      *retry.Bucket
	objectLimits    *lru[string, *retry.Bucket] // by uid
	outage          *logging.Outage             // of the server
	refusalLoggedAt time.Time                   // when a refusal was last logged
}

// NewRecorder makes a Recorder. It posts nothing until Run is called.
func NewRecorder(o Options) *Recorder {
	return &Recorder{
		options:      o,
		waiting:      make(chan event, maxWaiting),
		records:      newLRU[occurrence, *record](maxRemembered),
		totalLimit:   retry.NewBucket(totalRate, totalBurst),
		objectLimits: newLRU[string, *retry.Bucket](maxRemembered),
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
		r.drop(ev, errQueueFull)
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

// Dropped returns how many events have been dropped since the start.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

func (r *Recorder) drop(ev event, why error) {
	r.dropped.Add(1)
	r.options.Metrics.Count("podcount_events_total", "dropped")
	r.options.Log.Debug("dropped an event", "object", ev.about.Name, "reason", ev.reason, "err", why)
	r.emit(trace.Dropped, ev, why.Error())
}

// emit emits a step of an event for the trace.
func (r *Recorder) emit(point trace.Point, ev event, text string) {
	r.options.Trace.EmitBuilt(1, func() trace.Step {
		key := ev.about.Name
		if ev.about.Namespace != "" {
			key = ev.about.Namespace + "/" + key
		}
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
	if !r.objectLimits.get(ev.about.UID, newBucket).Allow() {
		r.drop(ev, errObjectLimit)
		return
	}
	start := time.Now()
	for try := 1; ; try++ {
		err := r.post(ctx, ev)
		if err == nil {
			r.outage.Worked("post")
			r.options.Metrics.Count("podcount_events_total", "posted")
			r.emit(trace.Event, ev, ev.message)
			return
		}
		failure := failureIn(err)
		if !mayRetry(failure, try == 1, time.Since(start)) {
			r.drop(ev, err)
			r.logFailure(ctx, ev, failure)
			return
		}
		isOutage := failure.Answer == NoAnswer && ctx.Err() == nil // The end of ctx is no outage.
		if isOutage {
			r.outage.Failed("post", "cannot post an Event", unreachablePause, "err", err)
		}
		backoff := retry.Backoff(try, minBackoff, maxBackoff)
		if retry.Sleep(stop, max(backoff, failure.RetryAfter)) != nil {
			r.drop(ev, err)
			return
		}
	}
}

// mayRetry reports whether an event may be retried after a failure. elapsed is the time since the first try began.
func mayRetry(failure *Failure, isFirstTry bool, elapsed time.Duration) bool {
	if failure.Answer == NoAnswer {
		return elapsed <= retryTimeout
	}
	// The server would refuse the event again, unless it has asked for a wait. One such wait is enough.
	isShortWait := failure.RetryAfter > 0 && failure.RetryAfter <= maxRetryAfter
	return isShortWait && isFirstTry
}

// logFailure logs why an event was dropped, unless that is normal or a refusal was logged a short time ago.
func (r *Recorder) logFailure(ctx context.Context, ev event, failure *Failure) {
	if failure.Answer == NoAnswer {
		r.outage.GiveUp("post") // The outage has its own lines.
		return
	}
	r.outage.Worked("post") // The server has answered.
	isNormal := failure.Answer == NamespaceGone
	isTooSoon := time.Since(r.refusalLoggedAt) < failure.LogPause
	if ctx.Err() != nil || isNormal || isTooSoon {
		return
	}
	r.refusalLoggedAt = time.Now()
	r.options.Log.Warn("the server refused an Event, so it is dropped",
		"object", ev.about.Name, "reason", ev.reason, "err", failure)
}

// post makes one try: it raises the count of the occurrence's Event, or creates the Event if the server has none.
func (r *Recorder) post(ctx context.Context, ev event) error {
	if err := r.totalLimit.Wait(ctx); err != nil {
		return err
	}
	known := r.records.get(ev.occurrence, func() *record { return &record{name: r.newName(ev.about.Name)} })
	if known.count > 0 {
		err := r.raiseCount(ctx, ev, known)
		if err == nil || failureIn(err).Answer != NotFound {
			return err
		}
		// The server has deleted the Event, as it does after an hour by default.
	}
	return r.create(ctx, ev, known)
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

func (r *Recorder) raiseCount(ctx context.Context, ev event, known *record) error {
	fields := map[string]any{
		"count":         known.count + 1,
		"lastTimestamp": timestamp(ev.at),
	}
	err := r.options.Sink.Patch(ctx, namespaceOf(ev.about), known.name, fields)
	if err == nil {
		known.count++
	}
	return err
}

func (r *Recorder) create(ctx context.Context, ev event, known *record) error {
	namespace := namespaceOf(ev.about)
	err := r.options.Sink.Create(ctx, namespace, map[string]any{
		"apiVersion":         "v1",
		"kind":               "Event",
		"metadata":           map[string]any{"name": known.name, "namespace": namespace},
		"involvedObject":     ev.about,
		"type":               ev.kind,
		"reason":             ev.reason,
		"message":            ev.message,
		"count":              1,
		"firstTimestamp":     timestamp(ev.at),
		"lastTimestamp":      timestamp(ev.at),
		"source":             map[string]any{"component": "podcount"},
		"reportingComponent": "podcount",
		"reportingInstance":  r.options.Instance,
	})
	// If the Event exists already, an earlier try has created it, but the server's answer was lost.
	exists := err == nil || failureIn(err).Answer == AlreadyExists
	if !exists {
		return err
	}
	known.count = 1
	return nil
}

// namespaceOf returns the namespace of the Events about an object. For a cluster-scoped object it is default.
func namespaceOf(about Reference) string { return cmp.Or(about.Namespace, "default") }

func timestamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }
