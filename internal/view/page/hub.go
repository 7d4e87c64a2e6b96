package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"podcount/internal/view/trace"
)

const (
	viewerLimit   = 8                     // viewers at a time
	historyLength = 10 * 60               // samples, one a second
	flushInterval = 50 * time.Millisecond // between two batches of steps
	stepLimit     = 256                   // steps in a batch; more of them are skipped
	batchLimit    = 256 << 10             // bytes of a batch after which further steps are skipped
	queueLength   = 16                    // messages that wait for a viewer
)

// hub passes what happens to the viewers. Every message is made once for all of them.
//
// It never waits for a viewer. A message for which a viewer has no room is lost to that viewer.
type hub struct {
	trace *trace.Trace

	steps    chan trace.Step // that were emitted, and not yet sent
	skipped  atomic.Int64    // steps for which there was no room in steps
	hasSteps chan struct{}   // gets a value when there are steps to send
	joined   chan struct{}   // gets a value when a viewer has joined

	mu            sync.Mutex // guards the fields below
	viewers       []*viewer
	history       []Sample // oldest first
	stopListening func()   // ends the listening to the trace; nil while no viewer wants steps
	hasEnded      bool
}

// viewer is an open stream to a browser.
type viewer struct {
	wantsSteps bool
	messages   chan []byte // closed when the stream shall end
	skipped    int         // the steps that the viewer has missed, and was not told of; the hub's mu guards it
}

func newHub(t *trace.Trace) *hub {
	return &hub{
		trace:    t,
		steps:    make(chan trace.Step, stepLimit),
		hasSteps: make(chan struct{}, 1),
		joined:   make(chan struct{}, 1),
		history:  []Sample{}, // nil would be null as JSON
	}
}

// join adds a viewer, whose first message is the history. It returns nil if there are too many viewers, or if the hub
// has ended.
func (h *hub) join(wantsSteps bool) *viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hasEnded || len(h.viewers) >= viewerLimit {
		return nil
	}
	v := &viewer{wantsSteps: wantsSteps, messages: make(chan []byte, queueLength)}
	v.messages <- messageOf("samples", h.history)
	h.viewers = append(h.viewers, v)
	h.listenOrStopLocked()
	signal(h.joined)
	return v
}

// leave removes a viewer.
func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.viewers = slices.DeleteFunc(h.viewers, func(other *viewer) bool { return other == v })
	h.listenOrStopLocked()
}

// end ends the streams of all viewers, and lets no more of them join.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hasEnded = true
	for _, v := range h.viewers {
		close(v.messages)
	}
	h.viewers = nil
	h.listenOrStopLocked()
}

// listenOrStopLocked listens to the trace if a viewer wants steps, and else stops listening.
func (h *hub) listenOrStopLocked() {
	isWanted := slices.ContainsFunc(h.viewers, func(v *viewer) bool { return v.wantsSteps })
	switch {
	case isWanted && h.stopListening == nil:
		h.stopListening = h.trace.ListenWithin(h.hasRoom, h.addStep)
	case !isWanted && h.stopListening != nil:
		h.stopListening()
		h.stopListening = nil
	}
}

func (h *hub) hasViewers() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.viewers) > 0
}

// hasRoom reports whether addStep can keep another step. If not, the step is skipped.
func (h *hub) hasRoom() bool {
	if len(h.steps) < cap(h.steps) {
		return true
	}
	h.skipped.Add(1)
	return false
}

// addStep keeps a step until sendSteps sends it. The program waits for addStep.
func (h *hub) addStep(s trace.Step) {
	select {
	case h.steps <- s:
	default: // another goroutine was faster
		h.skipped.Add(1)
	}
	signal(h.hasSteps)
}

// signal puts a value into a channel, unless there is one already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sendSteps sends the steps that wait to the viewers that want steps. Here they are masked and become JSON.
func (h *hub) sendSteps() {
	var batch bytes.Buffer
	count := 0
	skipped := int(h.skipped.Swap(0))
	for range len(h.steps) {
		step := <-h.steps
		if batch.Len() >= batchLimit {
			skipped++
			continue
		}
		batch.Write(messageOf("step", step))
		count++
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.viewers {
		if v.wantsSteps {
			v.offerSteps(batch.Bytes(), count, skipped)
		}
	}
}

// offerSteps sends a batch of steps to a viewer, or counts them as skipped. skipped is the number of steps that are not
// in the batch.
func (v *viewer) offerSteps(batch []byte, count, skipped int) {
	v.skipped += skipped
	if v.skipped > 0 && v.offer(messageOf("skipped", v.skipped)) {
		v.skipped = 0
	}
	if count > 0 && !v.offer(batch) {
		v.skipped += count
	}
}

// offer sends a message to a viewer. It reports whether there was room.
func (v *viewer) offer(message []byte) bool {
	select {
	case v.messages <- message:
		return true
	default:
		return false
	}
}

// addSample adds a sample to the history, and sends it to all viewers.
func (h *hub) addSample(s Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.history) == historyLength {
		h.history = slices.Delete(h.history, 0, 1)
	}
	h.history = append(h.history, s)
	h.sendLocked(messageOf("sample", s))
}

// send sends a message to all viewers.
func (h *hub) send(message []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sendLocked(message)
}

func (h *hub) sendLocked(message []byte) {
	for _, v := range h.viewers {
		v.offer(message)
	}
}

// messageOf returns a server-sent event. Its data is JSON, in which Go escapes <, > and &, and which has no line break.
func messageOf(event string, data any) []byte {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // the types of this package can all be JSON
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, text)
}
