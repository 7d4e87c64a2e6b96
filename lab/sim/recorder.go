package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// recorder collects the steps of a history, as many as a browser can show. Beyond its limits, it leaves out the oldest
// ones: a broken rule ends a seed, so the newest steps tell what has led to it. sim.mu guards it.
type recorder struct {
	maxSteps int
	maxSize  int // the most bytes of all steps together

	steps   []*recordedStep
	size    int // the bytes of all steps together
	dropped int // how many steps were left out
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
		place.recorder.dropped++
		return
	}
	step.At = place.at
	text, err := json.Marshal(step)
	must(err)
	place.keep(lane, text)
}

// add adds a step of the program.
func (r *recorder) add(lane int, step json.RawMessage) { r.reserve().keep(lane, step) }

// keep puts a step into its place, and leaves out the oldest steps if there are too many now.
func (place *recordedStep) keep(lane int, step json.RawMessage) {
	r := place.recorder
	place.json = withLane(lane, step)
	r.size += len(place.json)
	for len(r.steps) > r.maxSteps || r.size > r.maxSize {
		r.dropOldest()
	}
}

// withLane returns a step, which must be an object that is not empty, with its lane as its first field.
func withLane(lane int, step json.RawMessage) json.RawMessage {
	return append(fmt.Appendf(nil, `{"lane":%d,`, lane), step[1:]...)
}

// dropOldest leaves out the oldest tenth of the steps.
func (r *recorder) dropOldest() {
	n := max(1, len(r.steps)/10)
	for _, step := range r.steps[:n] {
		r.size -= len(step.json)
		step.isDropped = true
		if step.json != nil {
			r.dropped++
		}
	}
	r.steps = slices.Delete(r.steps, 0, n)
}

// recorded returns all steps. If some were left out, the first one says how many.
func (r *recorder) recorded() (steps []json.RawMessage) {
	if r.dropped > 0 {
		gap := ownStep{At: r.steps[0].at, Point: pointGap, Text: fmt.Sprintf("left out: the first %d steps", r.dropped)}
		text, err := json.Marshal(gap)
		must(err)
		steps = append(steps, withLane(faultsLane, text))
	}
	for _, step := range r.steps {
		if step.json != nil {
			steps = append(steps, step.json)
		}
	}
	return steps
}
