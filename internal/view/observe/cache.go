package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"podcount/internal/api/object"
	"podcount/internal/view/logging"
	"podcount/internal/view/metrics"
	"podcount/internal/view/trace"
)

// LevelFlow is the log level of frequent, normal events, such as the end of one watch and the start of the next. The
// flag -v 2 shows it.
const LevelFlow = slog.Level(-2)

// slowList is how long a list takes before its progress is logged.
const slowList = 2 * time.Second

// maxDriftExamples is the number of objects that the warning about an audit names.
const maxDriftExamples = 5

// Object is an object of the server, or nil if there is none.
type Object interface {
	NamespacedName() string
	ResourceVersion() string
}

// Change is an object before and after a change. Old is nil if it was added, and New is nil if it was removed.
type Change struct{ Old, New Object }

// ChangeOf returns the change of an object from old to now.
func ChangeOf[T object.Object[T]](old, now T) (change Change) {
	var none T
	if old != none {
		change.Old = old.ObjectMeta()
	}
	if now != none {
		change.New = now.ObjectMeta()
	}
	return change
}

// CacheOptions configure a CacheReport. All fields except PatchMetric are required.
type CacheOptions struct {
	Sinks
	Kind, API, Resource string // such as Pod, /api/v1, pods
	PatchMetric         string // counts patches; "" means that they are not counted
	ServerOutage        *logging.ServerOutage

	// Pause returns how long to wait before the log tells of an outage with this error again.
	Pause func(error) time.Duration
}

// CacheReport takes what happens to the cache of one kind. Its methods may be called by any goroutine.
type CacheReport struct {
	CacheOptions
	Counts CacheCounts // what has happened to the cache since the start

	watching     *logging.Outage // of lists and watches
	discovery    *logging.Outage // of questions whether the resource is installed
	confirmation *logging.Outage // of a new leader's questions
	lastWatch    atomic.Pointer[WatchRecord]
}

// NewCacheReport returns the report of one cache.
func NewCacheReport(o CacheOptions) *CacheReport {
	newOutage := func(again string) *logging.Outage {
		return logging.NewOutage(o.Log, o.Kind, again, "kind", o.Kind).MutedBy(o.ServerOutage)
	}
	return &CacheReport{
		CacheOptions: o,
		watching:     newOutage("watching again"),
		discovery:    newOutage("discovery answers again"),
		confirmation: newOutage("the cache is confirmed"),
	}
}

// Begin creates the counters that alerts watch. Prometheus would see no increase in a counter whose first value is 1.
func (c *CacheReport) Begin() {
	c.Metrics.Set(0, "podcount_cache_drift_total", c.Kind)
	if c.PatchMetric != "" {
		c.Metrics.Set(0, c.PatchMetric, "failed")
		c.Metrics.Set(0, c.PatchMetric, "stripped")
	}
}

// End ends the reminders of outages.
func (c *CacheReport) End() {
	for _, outage := range c.outages() {
		outage.Stop()
	}
}

func (c *CacheReport) outages() []*logging.Outage {
	return []*logging.Outage{c.discovery, c.watching, c.confirmation}
}

// Problem returns what fails at present: discovery, or else lists and watches, or the confirmation of a new leader. It
// is nil if all of that works.
func (c *CacheReport) Problem() *logging.Problem {
	for _, outage := range c.outages() {
		if problem, isFailing := outage.Problem(); isFailing {
			return &problem
		}
	}
	return nil
}

func (c *CacheReport) fail(outage *logging.Outage, part, problem string, err error) {
	outage.Failed(part, problem, c.Pause(err), err)
}

func (c *CacheReport) emit(step trace.Step) {
	step.Kind = c.Kind
	c.Trace.Emit(step)
}

// emitAbout emits a step about an object.
func (c *CacheReport) emitAbout(obj Object, step trace.Step) {
	c.Trace.EmitBuilt(func() trace.Step {
		step.Kind, step.Key, step.Version = c.Kind, obj.NamespacedName(), obj.ResourceVersion()
		return step
	})
}

// Listed says that the cache is equal to a complete list, which changed some objects.
func (c *CacheReport) Listed(version, reason string, objects, changes int, took time.Duration) {
	c.Log.Info("listed", "kind", c.Kind, "objects", objects, "rv", version, "changes", changes,
		"took", took.Round(time.Millisecond))
	c.emit(trace.Step{Point: trace.Listed, Version: version, Count: objects, Took: took})
	c.Metrics.Count("podcount_relists_total", c.Kind, reason)
	c.Counts.Relists.Count(reason)
}

// ListFailed says that a list has failed.
func (c *CacheReport) ListFailed(err error) { c.fail(c.watching, "watch", "cannot list", err) }

// BeginReading says that a list begins. It returns a function that logs the progress of a slow list, in intervals that
// double. Call it for each object that is read, with their number so far. It checks the time only for every 256th one,
// because reading the clock takes time too.
func (c *CacheReport) BeginReading() (reached func(objects int)) {
	start := time.Now()
	nextLog := slowList // since start
	return func(objects int) {
		if objects%256 != 0 {
			return
		}
		if elapsed := time.Since(start); elapsed > nextLog {
			c.Log.Info("still listing", "kind", c.Kind, "objects", objects, "for", elapsed.Round(time.Second))
			nextLog = 2 * elapsed
		}
	}
}

// Watching says that a watch is open.
func (c *CacheReport) Watching(version string) {
	c.Log.Log(context.Background(), LevelFlow, "watching", "kind", c.Kind, "rv", version)
	c.emit(trace.Step{Point: trace.Watching, Version: version})
}

// Frame is one frame of a watch.
type Frame struct {
	Type       string
	Object     Object // nil if the type is ERROR
	Error      string // the message of an ERROR
	Head       []byte // the first bytes, if somebody wants to see them
	Size       int64
	IsProtobuf bool
}

// FrameOf returns the frame of an event.
func FrameOf[T object.Object[T]](event object.WatchEvent[T], isProtobuf bool) Frame {
	frame := Frame{Type: event.Type, Head: event.Head, Size: event.Size, IsProtobuf: isProtobuf}
	if event.Status != nil {
		frame.Error = event.Status.Message
	} else {
		frame.Object = event.Object.ObjectMeta()
	}
	return frame
}

// Frame says that a frame has arrived.
func (c *CacheReport) Frame(f Frame) {
	c.Trace.EmitBuilt(func() trace.Step {
		step := trace.Step{Point: trace.Frame, Kind: c.Kind, Type: f.Type, Text: f.Error}
		if f.Object != nil {
			step.Key, step.Version = f.Object.NamespacedName(), f.Object.ResourceVersion()
		}
		step.Size, step.IsProtobuf = int(f.Size), f.IsProtobuf
		return step.WithFrame(f.Head)
	})
	if f.Object != nil {
		c.Metrics.Count("podcount_watch_events_total", c.Kind, f.Type)
		c.Counts.WatchEvents.Count(f.Type)
	}
}

// Received says that a watch has brought an event. Its version should be newer than that of the watch.
func (c *CacheReport) Received(eventType string, obj Object, isNewer bool) {
	if c.Log.Enabled(context.Background(), slog.LevelDebug) {
		message := strings.TrimSpace(eventType + " " + c.Kind + " " + obj.NamespacedName())
		c.Log.Debug(message, "rv", obj.ResourceVersion(), "stale", !isNewer)
	}
}

// Unchanged says that an event has changed nothing.
func (c *CacheReport) Unchanged(obj Object) { c.Changed(Change{Old: obj, New: obj}) }

// Changed says that an object in the cache has changed. If Old is New, it is only handed on again.
func (c *CacheReport) Changed(change Change) {
	step := trace.Step{Point: trace.Change, Type: "changed"}
	switch {
	case change.New == nil:
		c.emit(trace.Step{Point: trace.Change, Type: "removed", Key: change.Old.NamespacedName()})
		return
	case change.Old == nil:
		step.Type = "added"
	case change.Old == change.New:
		step.Type = "unchanged"
	}
	c.emitAbout(change.New, step)
}

// WatchWorks says that a watch has stayed open for a while.
func (c *CacheReport) WatchWorks() { c.watching.Worked("watch") }

// LastWatch returns how the last watch has ended. It is nil before that.
func (c *CacheReport) LastWatch() *WatchRecord { return c.lastWatch.Load() }

// WatchEnded says how a watch has ended, and whether a list follows.
func (c *CacheReport) WatchEnded(r WatchRecord) {
	c.lastWatch.Store(&r)
	c.emit(trace.Step{Point: trace.Ended, Type: r.Outcome, Text: r.Err.Error(), Took: r.Took})
	if r.Problem != "" {
		c.fail(c.watching, "watch", r.Problem, r.Err)
	} else {
		c.Log.Log(context.Background(), LevelFlow, "watch ended", "kind", c.Kind, "rv", r.Version, "err", r.Err)
	}
	if r.IsListDue {
		c.Log.Info("listing again", "kind", c.Kind, "why", r.Err)
	}
}

// AuditEnded says how an audit has ended: clean, with drift, failed, or skipped because a list of another version took
// its place. What else there is to say is said elsewhere.
func (c *CacheReport) AuditEnded(result string) {
	c.Metrics.Count("podcount_audits_total", c.Kind, result)
	c.Counts.Audits.Count(result)
}

// CannotAudit says why a list without a version replaces an audit at this version.
func (c *CacheReport) CannotAudit(version string, why error) {
	c.Log.Info("cannot audit: listing without a version", "kind", c.Kind, "rv", version, "why", why)
	c.AuditEnded("skipped")
}

// Audited says what an audit has found: the objects that differed from the server at this version.
func (c *CacheReport) Audited(version string, objects int, drift []Change, took time.Duration) {
	c.Log.Info("audited", "kind", c.Kind, "objects", objects, "rv", version, "drift", len(drift),
		"took", took.Round(time.Millisecond))
	c.emit(trace.Step{Point: trace.Audited, Version: version, Count: len(drift), Took: took})
	if len(drift) == 0 {
		c.AuditEnded("clean")
		return
	}
	c.AuditEnded("drift")
	var examples []string
	for _, difference := range drift {
		c.Metrics.Count("podcount_cache_drift_total", c.Kind)
		c.Counts.Drift.Count("")
		examples = append(examples, describe(difference))
	}
	slices.Sort(examples)
	examples = examples[:min(len(examples), maxDriftExamples)]
	c.Log.Warn("the cache differed from the API server, and was corrected: "+
		"the API server lost watch events, or etcd was restored from a backup",
		"kind", c.Kind, "rv", version, "objects", len(drift), "examples", strings.Join(examples, "; "))
}

// describe returns an object's name, with its version in the cache and at the server.
func describe(difference Change) string {
	name, cached, actual := "", "none", "none"
	if difference.Old != nil {
		name, cached = difference.Old.NamespacedName(), difference.Old.ResourceVersion()
	}
	if difference.New != nil {
		name, actual = difference.New.NamespacedName(), difference.New.ResourceVersion()
	}
	return fmt.Sprintf("%s (cached %s, actual %s)", name, cached, actual)
}

// WentBack says that the server's newest version is older than one that was known.
func (c *CacheReport) WentBack(from, to string) {
	c.Log.Info("versions have gone back: etcd was probably restored from a backup, or the server named a false version",
		"kind", c.Kind, "from", from, "to", to)
}

// CannotConfirm says that a question of a new leader has failed.
func (c *CacheReport) CannotConfirm(err error) {
	c.fail(c.confirmation, "confirm", "cannot confirm the cache", err)
}

// Unconfirmed says why a new leader still waits.
func (c *CacheReport) Unconfirmed(why string) {
	c.Log.Info("this replica leads, and waits until its cache is confirmed", "kind", c.Kind, "why", why)
}

// Confirmed says that a new leader waits no longer.
func (c *CacheReport) Confirmed() { c.confirmation.Worked("confirm") }

// DiscoveryFailed says that the server has not told whether the resource is installed.
func (c *CacheReport) DiscoveryFailed(err error) {
	c.fail(c.discovery, "discovery", "cannot find out whether the resource is installed", err)
}

// DiscoveryWorked says that it has told.
func (c *CacheReport) DiscoveryWorked() { c.discovery.Worked("discovery") }

// Installed says that the resource is installed, or that its description has changed.
func (c *CacheReport) Installed(hasStatus bool) {
	c.Log.Info("the resource is installed",
		"resource", c.Resource, "in", c.API, "status_subresource", hasStatus)
}

// Missing says that the server does not have the resource.
func (c *CacheReport) Missing() {
	c.Log.Info("the server does not have this resource: is its CRD installed?",
		"resource", c.Resource, "in", c.API)
}

// Removed says that the resource was removed, so that nothing is watched any more.
func (c *CacheReport) Removed() {
	c.Log.Info("the resource was removed: waiting for it to be installed again",
		"resource", c.Resource, "in", c.API)
	c.watching.Forget("watch")
}

// Patching says that a patch of an object is about to be sent.
func (c *CacheReport) Patching(obj Object, body json.RawMessage) {
	c.emitAbout(obj, trace.Step{Point: trace.Patch, Bytes: body})
}

// Patched says how a patch has ended: it was written or stripped, the object is gone, or it has failed. err is nil if
// it was written.
func (c *CacheReport) Patched(result string, obj Object, err error) {
	if c.PatchMetric != "" {
		c.Metrics.Count(c.PatchMetric, result)
	}
	c.Counts.Patches.Count(result)
	step := trace.Step{Point: trace.Patched, Type: result}
	if err != nil {
		step.Text = err.Error()
	}
	c.emitAbout(obj, step)
}

// SetGauges updates the gauges of a kind. It removes a gauge whose value is unknown, because 0 would be wrong.
func (s CacheState) SetGauges(m *metrics.Registry, kind string) {
	if s.LastHeard.IsZero() {
		m.Remove("podcount_watch_age_seconds", kind)
	} else {
		m.Set(time.Since(s.LastHeard).Seconds(), "podcount_watch_age_seconds", kind)
	}
	switch {
	case s.IsAbsent:
		m.Remove("podcount_cache_synced", kind)
		m.Remove("podcount_cache_objects", kind)
	case !s.IsSynced:
		m.Set(0, "podcount_cache_synced", kind)
		m.Remove("podcount_cache_objects", kind)
	default:
		m.Set(1, "podcount_cache_synced", kind)
		m.Set(float64(s.Objects), "podcount_cache_objects", kind)
	}
}
