// Package events posts Events about objects to the API server, and never makes anyone wait for it.
//
// It has two parts. recorder.go decides what is posted, and when: the Recorder keeps the Events that wait, limits how
// many are posted, and retries. sink.go speaks to the server: it makes the requests, and turns the server's refusals
// into the few answers that the Recorder distinguishes.
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

	"podcount/internal/logging"
	"podcount/internal/metrics"
	"podcount/internal/ratelimit"
	"podcount/internal/retry"
)

const (
	maxWaiting    = 1000 // how many events may wait to be posted
	maxRemembered = 4096 // how many objects, and how many Events, the Recorder remembers

	// The limits of client-go: per object, and in addition for all objects together.
	objectRate  = 1.0 / 300 // events a second
	objectBurst = 25
	totalRate   = 10 // events a second
	totalBurst  = 50

	// An event is tried again while the server cannot be reached, but no longer than retryTime.
	minBackoff = time.Second
	maxBackoff = 10 * time.Second
	retryTime  = 2 * time.Minute

	// maxRetryAfter is the longest time that the server may ask to wait before a second try. All other events wait
	// meanwhile.
	maxRetryAfter = 30 * time.Second

	// unreachablePause is the time between two log lines while the server cannot be reached.
	unreachablePause = time.Minute
)

var (
	errTooManyWait   = errors.New("too many events wait")
	errTooManyObject = errors.New("too many events about this object")
)

// Reference names the object that an event is about.
type Reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// occurrence is something that happens to an object. It may happen several times.
type occurrence struct {
	about   Reference
	kind    string // Normal or Warning
	reason  string // one word in CamelCase
	message string
}

// event is an occurrence at a time.
type event struct {
	occurrence
	at time.Time
}

// record is the Event at the server that counts how often something occurred.
type record struct {
	name  string
	count int // 0 if the server does not have the Event
}

// DryRun takes an event that would have been posted.
type DryRun func(about Reference, reason, message string)

// Options describe a Recorder. All of them are required except DryRun.
type Options struct {
	Sink     Sink
	Instance string // names this process in each Event
	Log      *slog.Logger
	Metrics  *metrics.Registry // gets podcount_events_total
	DryRun   DryRun            // If set, it gets each event, and nothing is posted.
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
	outage      *logging.Outage // of the server
	refusalAt   time.Time       // when a refusal was last logged
	total       *ratelimit.Bucket
	perObject   *lru[string, *ratelimit.Bucket] // by uid
	records     *lru[occurrence, *record]
	newestStamp int64 // in the newest record's name
}

// NewRecorder makes a Recorder. It posts nothing until Run is called.
func NewRecorder(o Options) *Recorder {
	return &Recorder{
		options:   o,
		waiting:   make(chan event, maxWaiting),
		outage:    logging.NewOutage(o.Log, "Events", "posted again"),
		total:     ratelimit.NewBucket(totalRate, totalBurst),
		perObject: newLRU[string, *ratelimit.Bucket](maxRemembered),
		records:   newLRU[occurrence, *record](maxRemembered),
	}
}

// Event records that something happens to an object now. kind is Normal or Warning. It never blocks.
func (r *Recorder) Event(about Reference, kind, reason, message string) {
	if r.options.DryRun != nil {
		r.options.DryRun(about, reason, message)
		return
	}
	ev := event{occurrence{about, kind, reason, message}, time.Now()}
	select {
	case r.waiting <- ev:
	default:
		r.drop(ev, errTooManyWait)
	}
}

// Waiting returns how many events wait to be posted.
func (r *Recorder) Waiting() int { return len(r.waiting) }

// Dropped returns how many events have been dropped since the start.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

func (r *Recorder) drop(ev event, why error) {
	r.dropped.Add(1)
	r.options.Metrics.Count("podcount_events_total", "dropped")
	r.options.Log.Debug("dropped an event", "object", ev.about.Name, "reason", ev.reason, "err", why)
}

// Run posts events until stop has ended. Those that still wait then get one try each. ctx must not end before stop: it
// cuts off the requests, so that Run returns soon.
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

// deliver posts an event, and retries if that may help. Once stop has ended, it does not retry.
func (r *Recorder) deliver(ctx, stop context.Context, ev event) {
	newBucket := func() *ratelimit.Bucket { return ratelimit.NewBucket(objectRate, objectBurst) }
	if !r.perObject.get(ev.about.UID, newBucket).Allow() {
		r.drop(ev, errTooManyObject)
		return
	}
	start := time.Now()
	for try := 1; ; try++ {
		err := r.post(ctx, ev)
		if err == nil {
			r.outage.Worked("post")
			r.options.Metrics.Count("podcount_events_total", "posted")
			return
		}
		failure := failureIn(err)
		if !mayRetry(failure, try, time.Since(start)) {
			r.drop(ev, err)
			r.logFailure(ctx, ev, failure)
			return
		}
		if failure.Answer == NoAnswer && ctx.Err() == nil {
			r.outage.Failed("post", "cannot post an event", unreachablePause, "err", err)
		}
		backoff := retry.Backoff(try, minBackoff, maxBackoff)
		if retry.Sleep(stop, max(backoff, failure.RetryAfter)) != nil {
			r.drop(ev, err)
			return
		}
	}
}

// mayRetry reports whether an event is tried again, after so many tries in this time.
func mayRetry(failure *Failure, tries int, took time.Duration) bool {
	if failure.Answer == NoAnswer {
		return took <= retryTime
	}
	// What the server has refused stays refused, unless it has asked for a short wait.
	isShortWait := failure.RetryAfter > 0 && failure.RetryAfter <= maxRetryAfter
	return isShortWait && tries == 1
}

// logFailure logs why an event is not tried again, unless the log has enough lines about that.
func (r *Recorder) logFailure(ctx context.Context, ev event, failure *Failure) {
	if failure.Answer == NoAnswer {
		r.outage.GiveUp("post") // The outage has its own lines.
		return
	}
	r.outage.Worked("post") // The server has answered.
	isNormal := failure.Answer == NamespaceGone
	isTooSoon := time.Since(r.refusalAt) < failure.Pause
	if ctx.Err() != nil || isNormal || isTooSoon {
		return
	}
	r.refusalAt = time.Now()
	r.options.Log.Warn("cannot post an event", "object", ev.about.Name, "reason", ev.reason, "err", failure)
}

// post makes one try: it raises the count of the occurrence's Event, or creates the Event if the server has none.
func (r *Recorder) post(ctx context.Context, ev event) error {
	if err := r.total.Wait(ctx); err != nil {
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

// newName returns a name that no other Event has: that of the object, cut if it is too long, and the time in
// nanoseconds. Two names differ even if the clock stands still or is set back.
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
	err := r.options.Sink.Amend(ctx, namespaceOf(ev.about), known.name, fields)
	if err == nil {
		known.count++
	}
	return err
}

func (r *Recorder) create(ctx context.Context, ev event, known *record) error {
	namespace := namespaceOf(ev.about)
	err := r.options.Sink.Post(ctx, namespace, map[string]any{
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
	// If the Event exists, an earlier try has reached the server, but its answer has not reached us.
	isThere := err == nil || failureIn(err).Answer == AlreadyExists
	if !isThere {
		return err
	}
	known.count = 1
	return nil
}

// namespaceOf returns the namespace of the Events about an object. Those about cluster-scoped objects are in default.
func namespaceOf(about Reference) string { return cmp.Or(about.Namespace, "default") }

func timestamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }
