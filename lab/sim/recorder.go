package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// recorder collects the steps of a history, as many as a browser can show. Beyond its limits, it leaves out lines of
// the log and bytes, and if that is not enough, the oldest steps. A broken rule ends a seed, so the newest steps tell
// what has led to it. sim.mu guards it.
type recorder struct {
	maxSteps int
	maxSize  int // the most bytes of all steps together

	steps []*recordedStep
	size  int // the bytes of all steps together

	// What was left out.
	isShort         bool // no lines of the log and no bytes are recorded any more
	droppedLogLines int
	droppedBytes    int // the steps that have lost their bytes
	droppedSteps    int // the oldest ones
}

// recordedStep is a step, or the place for one.
type recordedStep struct {
	recorder *recorder
	at       time.Time
	json     json.RawMessage // nil while the place is empty

	isDropped bool // it is no longer part of the history
}

// newRecorder returns a recorder with the usual limits.
func newRecorder() *recorder { return &recorder{maxSteps: 200_000, maxSize: 64 << 20} }

// reserve returns the next place for a step.
func (r *recorder) reserve() *recordedStep {
	place := &recordedStep{recorder: r, at: time.Now()}
	r.steps = append(r.steps, place)
	return place
}

// fill puts a step of the simulation itself into its place.
func (place *recordedStep) fill(lane int, step ownStep) {
	if place.isDropped {
		place.recorder.droppedSteps++
		return
	}
	step.At = place.at
	text, err := json.Marshal(step)
	must(err)
	place.json = withLane(lane, text)
	place.recorder.size += len(place.json)
	place.recorder.keepLimits()
}

// add adds a step of the program.
func (r *recorder) add(lane int, step json.RawMessage) {
	if r.isShort {
		step = r.shorten(step)
	}
	if step == nil {
		return
	}
	place := r.reserve()
	place.json = withLane(lane, step)
	r.size += len(place.json)
	r.keepLimits()
}

// withLane returns a step, which must be an object that is not empty, with its lane as its first field.
func withLane(lane int, step json.RawMessage) json.RawMessage {
	return append(fmt.Appendf(nil, `{"lane":%d,`, lane), step[1:]...)
}

// keepLimits leaves out something if there is too much.
func (r *recorder) keepLimits() {
	if r.isFull() && !r.isShort {
		r.shortenAll()
	}
	for r.isFull() {
		r.dropOldest()
	}
}

// isFull reports whether there is too much.
func (r *recorder) isFull() bool { return len(r.steps) > r.maxSteps || r.size > r.maxSize }

// shortenAll leaves out all lines of the log and all bytes, from now on as well.
func (r *recorder) shortenAll() {
	r.isShort = true
	r.size = 0
	var kept []*recordedStep
	for _, step := range r.steps {
		isEmpty := step.json == nil
		if !isEmpty {
			step.json = r.shorten(step.json)
		}
		if isEmpty || step.json != nil {
			kept = append(kept, step)
			r.size += len(step.json)
		}
	}
	r.steps = kept
}

// shorten returns a step without its bytes, or nil if it is a line of the log.
func (r *recorder) shorten(step json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	must(json.Unmarshal(step, &fields))
	if string(fields["point"]) == `"log"` {
		r.droppedLogLines++
		return nil
	}
	if fields["bytes"] == nil {
		return step
	}
	r.droppedBytes++
	delete(fields, "bytes")
	short, err := json.Marshal(fields)
	must(err)
	return short
}

// dropOldest leaves out the oldest tenth of the steps.
func (r *recorder) dropOldest() {
	n := max(1, len(r.steps)/10)
	for _, step := range r.steps[:n] {
		r.size -= len(step.json)
		step.isDropped = true
		if step.json != nil {
			r.droppedSteps++
		}
	}
	r.steps = slices.Delete(r.steps, 0, n)
}

// recorded returns all steps. If something was left out, the first one says so.
func (r *recorder) recorded() (steps []json.RawMessage) {
	if r.isShort {
		steps = append(steps, r.gap())
	}
	for _, step := range r.steps {
		if step.json != nil {
			steps = append(steps, step.json)
		}
	}
	return steps
}

// gap returns a step that says what was left out.
func (r *recorder) gap() json.RawMessage {
	text, err := json.Marshal(ownStep{
		At:    r.steps[0].at,
		Point: pointGap,
		Text: fmt.Sprintf("left out: %d lines of the log, the bytes of %d steps, and the first %d steps",
			r.droppedLogLines, r.droppedBytes, r.droppedSteps),
	})
	must(err)
	return withLane(faultsLane, text)
}
