// Package trace tells listeners what podcount does with each object, step by step, while it does it.
//
// The program emits a Step at each of its Points: a frame has arrived, the cache has changed, a worker has taken a key.
// While nobody listens, a point costs one atomic load. Emit never waits for anything but the listeners, which must not
// wait either. Listeners cost the program little: a step has a limited size, it is not built unless one of them has
// room for it, and they mask the frames themselves.
package trace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Point is a place in the program's flow at which it emits steps.
type Point string

// The points, in the order in which a change passes them.
const (
	Request  Point = "request"  // an answer, or the lack of one, has ended an exchange with the server
	Listed   Point = "listed"   // a complete list is in the cache
	Watching Point = "watching" // a watch is open
	Frame    Point = "frame"    // a frame of a watch has arrived
	Ended    Point = "ended"    // a watch has ended, but not because podcount itself has ended it
	Audited  Point = "audited"  // an audit has compared the cache with the server
	Change   Point = "change"   // an object in the cache was added, changed or removed
	Added    Point = "added"    // a key was added to a queue
	Taken    Point = "taken"    // a worker has taken a key
	Rests    Point = "rests"    // a worker leaves an object alone, because it was written a moment ago
	Done     Point = "done"     // a worker has given back a key: its reconcile succeeded
	Retried  Point = "retried"  // a worker has given back a key: its reconcile failed, and a backoff began
	Patch    Point = "patch"    // a patch is about to be sent
	Patched  Point = "patched"  // the server has answered a patch
	Event    Point = "event"    // an Event was posted
	Dropped  Point = "dropped"  // an Event was dropped
	Lease    Point = "lease"    // this replica has begun or ended to lead
	LogLine  Point = "log"      // a line of the log
)

// Step is one thing that the program has done. Fields that do not apply are empty.
type Step struct {
	Number uint64    `json:"n"`     // counts the steps that were emitted while somebody listened
	At     time.Time `json:"at"`    // when it was done
	Point  Point     `json:"point"` // where in the flow
	Where  string    `json:"where"` // the function that emitted the step, with its file and line

	Kind       string `json:"kind,omitempty"`       // of the object, such as Pod
	Key        string `json:"key,omitempty"`        // NAMESPACE/NAME, or NAME
	Controller string `json:"controller,omitempty"` // whose queue it is

	// Type says what happened, in the point's own words: ADDED for a frame, added for a change, PATCH for a request.
	Type string `json:"type,omitempty"`

	Version string        `json:"rv,omitempty"`    // the resourceVersion
	Text    string        `json:"text,omitempty"`  // for people: a path, an error, a line of the log
	Code    string        `json:"code,omitempty"`  // the HTTP status of an answer
	Error   string        `json:"error,omitempty"` // why a request has no answer
	Wait    time.Duration `json:"wait,omitempty"`  // how long the key waits, in nanoseconds
	Took    time.Duration `json:"took,omitempty"`  // how long the step took, in nanoseconds
	Count   int           `json:"count,omitempty"` // of objects, ready keys or failures, as the point says

	// Bytes are the first bytes of a patch or, after Masked, of a masked frame: at most ByteLimit. Size is the number of
	// all bytes.
	Bytes      []byte `json:"bytes,omitempty"`
	Size       int    `json:"size,omitempty"`
	IsProtobuf bool   `json:"protobuf,omitempty"` // else the bytes are JSON

	// frame has the first bytes of a frame as it has arrived. It is a pointer so that no %v shows them.
	frame *[]byte
}

const (
	// ByteLimit is how many bytes of a message a step shows, and of a text.
	ByteLimit = 4 << 10
	// frameLimit is how many bytes of a frame a step has. It is more, because what is masked in JSON is short.
	frameLimit = 2 * ByteLimit
)

// WithFrame returns the step of a frame, with a copy of the first bytes of head. Only Masked and MarshalJSON read them.
// Type, Size and IsProtobuf must be set: they say how to mask the frame.
func (s Step) WithFrame(head []byte) Step {
	head = bytes.Clone(head[:min(len(head), frameLimit)])
	s.frame = &head
	return s
}

// Masked returns the step with what may be shown of its frame in Bytes. This takes a while, so a listener should let
// another goroutine do it.
func (s Step) Masked() Step {
	if s.frame != nil {
		s.Bytes = maskFrame(*s.frame, s)
		s.frame = nil
	}
	return s
}

// MarshalJSON returns the masked step.
func (s Step) MarshalJSON() ([]byte, error) {
	type fields Step // without this method
	return json.Marshal(fields(s.Masked()))
}

// Trace passes steps to listeners. Its methods are safe for concurrent use. A nil Trace has no listeners.
type Trace struct {
	number    atomic.Uint64
	mu        sync.Mutex                  // held while listeners is replaced
	listeners atomic.Pointer[[]*listener] // nil while nobody listens
}

type listener struct {
	hasRoom func() bool
	handle  func(Step)
}

// IsOn reports whether somebody listens.
func (t *Trace) IsOn() bool { return t != nil && t.listeners.Load() != nil }

// Emit passes a step to all listeners. It sets Number, At and Where.
func (t *Trace) Emit(s Step) { t.EmitBuilt(func() Step { return s }) }

// EmitBuilt is Emit for steps that take work to build. It calls build at most once, and only if a listener has room.
func (t *Trace) EmitBuilt(build func() Step) {
	if !t.IsOn() {
		return
	}
	listeners := t.listeners.Load()
	if listeners == nil {
		return // The last one has stopped meanwhile.
	}
	number := t.number.Add(1)
	var s Step // Its Number is 0 until it is built.
	for _, l := range *listeners {
		if !l.hasRoom() {
			continue
		}
		if s.Number == 0 {
			s = build()
			s.Number = number
			s.At = time.Now()
			s.Where = placeOfPoint()
			s.limit()
		}
		l.handle(s)
	}
}

// limit makes a step small, and independent of the memory of its builder.
func (s *Step) limit() {
	s.Size = cmp.Or(s.Size, len(s.Bytes))
	s.Bytes = bytes.Clone(s.Bytes[:min(len(s.Bytes), ByteLimit)])
	s.Text = limited(s.Text)
	s.Error = limited(s.Error)
}

// limited returns a copy of the first bytes of a text.
func limited(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), ByteLimit)]), "")
}

// reporters are how the names of functions begin that report for others, so a step is not theirs.
var reporters = []string{
	"log/slog.",
	"podcount/internal/view/logging.",
	"podcount/internal/view/observe.",
	"podcount/internal/view/trace.(*",
}

// placeOfPoint names the function that has the point, as in "watch.go:975 main.(*Reflector).handleEvent": the first one
// up the stack that is not a reporter. It returns "" if there is none near.
func placeOfPoint() string {
	const maxReporters = 16 // in a row
	pcs := make([]uintptr, maxReporters)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		isReporter := func(prefix string) bool { return strings.HasPrefix(frame.Function, prefix) }
		if !slices.ContainsFunc(reporters, isReporter) {
			function := strings.ReplaceAll(path.Base(frame.Function), "[...]", "")
			return fmt.Sprintf("%s:%d %s", path.Base(frame.File), frame.Line, function)
		}
		if !more {
			return ""
		}
	}
}

// Listen calls handle with every step from now on, until stop is called; a step that is being emitted then may still
// follow. Several goroutines call handle at once, so their steps may come out of order. handle must not wait, because
// the program waits for it.
func (t *Trace) Listen(handle func(Step)) (stop func()) {
	return t.ListenWithin(func() bool { return true }, handle)
}

// ListenWithin is Listen for a listener that may have no room for a step. hasRoom is called once for each step. If it
// returns false, the listener does not get the step.
func (t *Trace) ListenWithin(hasRoom func() bool, handle func(Step)) (stop func()) {
	own := &listener{hasRoom, handle}
	t.replace(func(old []*listener) []*listener { return append(old, own) })
	return func() {
		isOwn := func(l *listener) bool { return l == own }
		t.replace(func(old []*listener) []*listener { return slices.DeleteFunc(old, isOwn) })
	}
}

// replace changes the listeners. Emit may still use the old slice, so change gets a copy.
func (t *Trace) replace(change func(old []*listener) []*listener) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var now []*listener
	if old := t.listeners.Load(); old != nil {
		now = slices.Clone(*old)
	}
	now = change(now)
	t.listeners.Store(&now)
	if len(now) == 0 {
		t.listeners.Store(nil)
	}
}

// contextKey is the key of a Trace in a context.
type contextKey struct{}

// NewContext returns a context that carries a trace. A test that runs the whole program passes it one in this way.
func NewContext(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// FromContext returns the trace that a context carries, or a new one.
func FromContext(ctx context.Context) *Trace {
	if t, isCarried := ctx.Value(contextKey{}).(*Trace); isCarried {
		return t
	}
	return new(Trace)
}
