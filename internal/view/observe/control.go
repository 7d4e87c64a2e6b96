package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"podcount/internal/view/logging"
	"podcount/internal/view/trace"
)

// ControllerReport is told what a controller does.
type ControllerReport struct {
	Sinks
	name   string
	outage *logging.Outage // the reconciles that fail, by key

	mu       sync.Mutex // guards the fields below
	panicked time.Time  // when a panic was last logged; zero before the first one
	panics   int        // how many there were since then
}

// NewControllerReport makes the report of a controller. server logs that the API server is away.
func NewControllerReport(to Sinks, name string, server *logging.ServerOutage) *ControllerReport {
	return &ControllerReport{
		Sinks:  to,
		name:   name,
		outage: logging.NewOutage(to.Log, name, "writing again", "controller", name).MutedBy(server),
	}
}

// Begins tells that the controller may work.
func (c *ControllerReport) Begins() {
	c.Log.Info("caches are complete: work begins", "controller", c.name)
}

// Panicked tells of a panic: of the first one with its stack, and then at most once a minute, with their number. Call
// it in the deferred function that recovers, because only there the stack shows where the panic began.
func (c *ControllerReport) Panicked(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.panics++
	switch {
	case c.panicked.IsZero():
		c.Log.Error("a controller panics", "controller", c.name, "err", err, "stack", string(debug.Stack()))
	case time.Since(c.panicked) >= time.Minute:
		c.Log.Error("a controller panics again", "controller", c.name, "err", err, "times", c.panics)
	default:
		return
	}
	c.panicked = time.Now()
	c.panics = 0
}

// Failed tells that a key could not be reconciled. pause is the time until the log says so again.
func (c *ControllerReport) Failed(key fmt.Stringer, pause time.Duration, err error) {
	c.outage.Failed(key.String(), "cannot reconcile", pause, err, "key", key)
}

// NeedsNothing tells that a reconcile of a key has succeeded.
func (c *ControllerReport) NeedsNothing(key fmt.Stringer) { c.outage.Forget(key.String()) }

// Wrote tells that everything that was wrong with an object is written.
func (c *ControllerReport) Wrote(key fmt.Stringer) { c.outage.Worked(key.String()) }

// Failing returns how many keys fail.
func (c *ControllerReport) Failing() int { return c.outage.Failing() }

// Stop tells that the controller has ended, so nothing is said any more of what still fails.
func (c *ControllerReport) Stop() { c.outage.Stop() }

// Rests tells that a worker leaves an object alone for a while.
func (c *ControllerReport) Rests(key fmt.Stringer, wait time.Duration) {
	c.Trace.EmitBuilt(func() trace.Step {
		return trace.Step{Point: trace.Rests, Controller: c.name, Key: key.String(), Wait: wait}
	})
}

// fieldMessages are what the log says of the writes of a field.
type fieldMessages struct{ written, dropped, keptAgain string }

// messagesByKind are the messages about what podcount itself writes: labels of nodes, and statuses of Counts.
var messagesByKind = map[string]fieldMessages{
	"node": {
		"label written",
		"the server drops labels that podcount writes, so they are retried rarely",
		"the server no longer drops the labels that podcount writes",
	},
	"count": {
		"status written",
		"the server drops statuses that podcount writes, so they are retried rarely; " +
			"does the schema match deploy/count-crd.yaml?",
		"the server no longer drops the statuses that podcount writes",
	},
}

// otherMessages are those about the fields that a controller of your own writes.
var otherMessages = fieldMessages{
	"field written",
	"the server drops fields that podcount writes, so they are retried rarely",
	"the server no longer drops the fields that podcount writes",
}

func messagesOf(change logging.Change) fieldMessages {
	return cmp.Or(messagesByKind[change.Kind], otherMessages)
}

// Written tells that a field was written, and that the server has kept it.
func (c *ControllerReport) Written(change logging.Change) {
	c.Log.Info(messagesOf(change).written, change.Attr())
}

// WouldWrite tells what a dry run does not write.
func (c *ControllerReport) WouldWrite(change logging.Change) {
	c.Log.Info(fmt.Sprintf("would write %s %s: %s", change.Kind, change.Object, change))
}

// Dropped tells of the first field that the server has dropped from a write.
func (c *ControllerReport) Dropped(first logging.Change, pause time.Duration, err error) {
	c.Log.Warn(messagesOf(first).dropped, "first", first.Object, first.Name, first.Field, "pause", pause, "err", err)
}

// KeptAgain tells that no field is dropped any more.
func (c *ControllerReport) KeptAgain(last logging.Change) {
	c.Log.Info(messagesOf(last).keptAgain, "last", last.Object, last.Name, last.Field)
}

// Lease tells that this replica has begun or ended to lead: what is acquired, lost or released.
func (s Sinks) Lease(what, lease, identity string) {
	s.Trace.Emit(trace.Step{Point: trace.Lease, Type: what, Key: lease, Text: identity})
}

// Starts tells which podcount works on which API server, and the FIPS 140-3 mode unless that is off.
func (s Sinks) Starts(version, server, source, fipsMode string) {
	facts := []any{"version", version, "server", server, "from", source}
	if fipsMode != "off" {
		facts = append(facts, "fips", fipsMode)
	}
	s.Log.Info("podcount starts", facts...)
}

// Exchange is a request that was sent, and its outcome. A request that is sent again after a 401 makes two exchanges.
type Exchange struct {
	Method string
	URI    string // path and query
	Host   string // the server's host, with the port if its address has one
	Status string // of the answer, such as "200 OK"; "<error>" if there was none; "<invalid>" if HTTP has no such code
	Error  string // why there was no answer; "" if there was one
	Start  time.Time
}

// Requested tells of a request. The log shows it at -v 6.
func (s Sinks) Requested(ctx context.Context, e Exchange) {
	const level = slog.Level(-6)
	code, _, _ := strings.Cut(e.Status, " ")
	s.Metrics.Count("rest_client_requests_total", code, e.Method, e.Host)
	s.Metrics.Observe(e.Start, "rest_client_request_duration_seconds", e.Method, e.Host)
	took := time.Since(e.Start).Round(time.Microsecond)
	s.Log.Log(ctx, level, e.Method+" "+e.URI, "status", e.Status, "took", took)
	s.Trace.Emit(trace.Step{
		Point: trace.Request,
		Type:  e.Method,
		Text:  e.URI,
		Code:  e.Status,
		Error: e.Error,
		Took:  took,
	})
}

// WouldPost tells what Event a dry run does not post. The log shows it at -v 2.
func (s Sinks) WouldPost(kind string, about fmt.Stringer, reason, message string) {
	s.Log.Log(context.Background(), LevelFlow,
		fmt.Sprintf("would post an Event on %s %s: %s: %s", strings.ToLower(kind), about, reason, message))
}
