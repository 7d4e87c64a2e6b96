// Package events posts Events about objects to the API server. recorder.go decides what is posted, and when: it keeps
// the Events that wait, limits their rate, and tries again. sink.go speaks to the server, and says in the Recorder's words
// what the server has answered.
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

// Reference says which object an event is about.
type Reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// event is what happened to an object, and when.
type event struct {
	about                     Reference
	kind, reason, message, at string
}

// posted is the Event of something, by its name, and how often that has happened.
type posted struct {
	name  string
	count int // 0: the server does not have it
}

const (
	eventQueue     = 1000 // events that may wait; more are dropped
	eventObjects   = 4096 // objects, and events, that the recorder remembers
	eventBurst     = 25   // events at once about one object, and one more every five minutes
	eventRetryWait = 10 * time.Second
	eventPause     = time.Minute // between two lines about a server that is not reached
)

// Recorder posts Events without ever making anyone wait for it: what does not fit its queue, or comes too often, is
// dropped and counted. An event that says the same again raises the count of the first.
type Recorder struct {
	sink      Sink
	log       *slog.Logger
	metrics   *metrics.Registry
	outage    *logging.Outage // of events that are tried again
	dryRun    DryRun          // is called, and nothing is posted; nil: Events are posted
	instance  string          // reportingInstance: this process
	queue     chan event
	pace      *ratelimit.Bucket // over all objects
	dropped   atomic.Int64
	refusedAt time.Time                       // when a refusal was last said; from here on all is Run's alone
	stamp     int64                           // the newest Event's, in nanoseconds: no two are the same
	sent      *lru[event, *posted]            // by what happened, whenever
	objects   *lru[string, *ratelimit.Bucket] // by uid
}

// Options are what a recorder is made with. All of them but DryRun are needed.
type Options struct {
	Sink     Sink
	Instance string // which process this is, as the Events say
	Log      *slog.Logger
	Metrics  *metrics.Registry // podcount_events_total
	DryRun   DryRun            // if set, is called with each event, and nothing is posted
}

// DryRun takes an event that a Recorder would have posted.
type DryRun func(about Reference, reason, message string)

// NewRecorder makes a recorder that posts 10 events a second at most. Run must run for that.
func NewRecorder(o Options) *Recorder {
	return &Recorder{
		sink:     o.Sink,
		log:      o.Log,
		metrics:  o.Metrics,
		outage:   logging.NewOutage(o.Log, "Events", "answered again"),
		dryRun:   o.DryRun,
		instance: o.Instance,
		queue:    make(chan event, eventQueue),
		pace:     ratelimit.NewBucket(10, 50),
		sent:     newLRU[event, *posted](eventObjects),
		objects:  newLRU[string, *ratelimit.Bucket](eventObjects),
	}
}

// Event records that something happened to an object, now. kind is Normal or Warning. It never blocks.
func (r *Recorder) Event(about Reference, kind, reason, message string) {
	ev := event{about, kind, reason, message, time.Now().UTC().Format(time.RFC3339)}
	if r.dryRun != nil {
		r.dryRun(about, reason, message)
		return
	}
	select {
	case r.queue <- ev:
	default:
		r.drop(ev, errors.New("too many events wait"))
	}
}

// Waiting returns how many events wait to be posted.
func (r *Recorder) Waiting() int { return len(r.queue) }

// Dropped returns how many events have been dropped since the start.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

func (r *Recorder) drop(ev event, why error) {
	r.dropped.Add(1)
	r.metrics.Count("podcount_events_total", "dropped")
	r.log.Debug("event dropped", "object", ev.about.Name, "reason", ev.reason, "err", why)
}

// Run sends until stop has ended and nothing waits any more. ctx, which must end after it, cuts that short.
func (r *Recorder) Run(ctx, stop context.Context) {
	defer r.outage.Stop()
	for stop.Err() == nil || len(r.queue) > 0 {
		select {
		case ev := <-r.queue:
			r.post(ctx, stop, ev)
		case <-stop.Done():
		}
	}
}

// post sends one event, trying again while the server cannot be reached, or once more where it asks for a moment's
// patience: what it has refused stays refused, and other events wait for this one to be done. After stop there is one
// try for each.
func (r *Recorder) post(ctx, stop context.Context, ev event) {
	bucket := r.objects.get(ev.about.UID, func() *ratelimit.Bucket { return ratelimit.NewBucket(1.0/300, eventBurst) })
	if !bucket.Allow() {
		r.drop(ev, errors.New("too many events about this object"))
		return
	}
	start := time.Now()
	for try := 1; ; try++ {
		err := r.once(ctx, ev)
		if err == nil {
			r.outage.Worked("post")
			r.metrics.Count("podcount_events_total", "posted")
			return
		}
		failure := errorIn(err)
		wait := failure.RetryAfter
		isUnreachable := failure.Answer == NoAnswer && time.Since(start) <= 2*time.Minute
		isPutOff := wait > 0 && wait <= 3*eventRetryWait && try == 1
		if !isUnreachable && !isPutOff {
			r.refuse(ctx, ev, err)
			return
		}
		if isUnreachable && ctx.Err() == nil {
			r.outage.Failed("post", "cannot post an event", eventPause, "err", err)
		}
		if retry.Sleep(stop, max(wait, retry.Backoff(try, time.Second, eventRetryWait))) != nil {
			r.drop(ev, err)
			return
		}
	}
}

// refuse drops an event that is not tried again, and says why. That its namespace is going, or gone, is everyday life.
func (r *Recorder) refuse(ctx context.Context, ev event, err error) {
	r.drop(ev, err)
	failure := errorIn(err)
	if failure.Answer == NoAnswer {
		r.outage.GiveUp("post") // it is told of already
		return
	}
	r.outage.Worked("post") // the server answers
	isEverydayLife := failure.Answer == Unwanted
	if ctx.Err() != nil || isEverydayLife || time.Since(r.refusedAt) < failure.Pause {
		return
	}
	r.refusedAt = time.Now()
	r.log.Warn("cannot post an event", "object", ev.about.Name, "reason", ev.reason, "err", err)
}

// once raises the count of the Event of this, or posts it where the server has none.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
func (r *Recorder) once(ctx context.Context, ev event) error {
	if err := r.pace.Wait(ctx); err != nil {
		return err
	}
	what := ev
	what.at = ""
	r.stamp = max(time.Now().UnixNano(), r.stamp+1)
	suffix := fmt.Sprintf(".%x", r.stamp)
	name := strings.TrimRight(ev.about.Name[:min(len(ev.about.Name), 253-len(suffix))], "-.") + suffix
	sent := r.sent.get(what, func() *posted { return &posted{name: name} })
	namespace := cmp.Or(ev.about.Namespace, "default") // the place of events about cluster-scoped objects
	if sent.count > 0 {
		again := map[string]any{"count": sent.count + 1, "lastTimestamp": ev.at}
		err := r.sink.Amend(ctx, namespace, sent.name, again)
		if err == nil {
			sent.count++
		}
		if errorIn(err).Answer != Gone {
			return err
		}
	}
	err := r.sink.Post(ctx, namespace, map[string]any{
		"apiVersion":         "v1",
		"kind":               "Event",
		"metadata":           map[string]any{"name": sent.name, "namespace": namespace},
		"involvedObject":     ev.about,
		"type":               ev.kind,
		"reason":             ev.reason,
		"message":            ev.message,
		"count":              1,
		"firstTimestamp":     ev.at,
		"lastTimestamp":      ev.at,
		"source":             map[string]any{"component": "podcount"},
		"reportingComponent": "podcount",
		"reportingInstance":  r.instance,
	})
	isThere := err == nil || errorIn(err).Answer == Exists // as an earlier try had arrived after all
	if !isThere {
		return err
	}
	sent.count = 1
	return nil
}
