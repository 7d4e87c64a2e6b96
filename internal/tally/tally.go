// Package tally counts what a controller has done in a run of -once, for the line that sums it up.
package tally

import (
	"fmt"
	"sync"
)

// Tally counts the objects of a run, by their keys. Safe for concurrent use.
type Tally[K comparable] struct {
	mu         sync.Mutex // guards all fields below
	hasBegun   bool
	objects    int  // how many objects there were when the run began
	isComplete bool // todo holds all keys that the run began with

	// Each key is in todo first. A key in written is also in done.
	todo    map[K]bool // keys that were added to the queue
	done    map[K]bool // keys with no work left
	written map[K]bool // keys of objects that were written to
}

// New makes a tally of a run that has not begun.
func New[K comparable]() *Tally[K] {
	return &Tally[K]{todo: map[K]bool{}, done: map[K]bool{}, written: map[K]bool{}}
}

// Begin records that the run has begun, and how many objects there are.
func (t *Tally[K]) Begin(objects int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hasBegun = true
	t.objects = objects
}

// HasBegun reports whether Begin was called.
func (t *Tally[K]) HasBegun() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hasBegun
}

// Todo records that keys were added to the queue.
func (t *Tally[K]) Todo(keys ...K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		t.todo[key] = true
	}
}

// Complete records that Todo has got all keys that the run begins with. Before that, the run cannot be done.
func (t *Tally[K]) Complete() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isComplete = true
}

// Done records that a key has no work left.
func (t *Tally[K]) Done(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[key] = true
}

// Written records that an object was written to, and has no work left.
func (t *Tally[K]) Written(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written[key] = true
	t.done[key] = true
}

// IsAllDone reports whether Complete was called and no key has work left.
func (t *Tally[K]) IsAllDone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isComplete && len(t.done) >= len(t.todo)
}

// Summary describes the outcome, as in "3 nodes: 1 written, 2 right, 0 failed". noun is the name of one object. failed
// is the number of keys that have failed.
func (t *Tally[K]) Summary(noun string, failed int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	notDone := max(0, len(t.todo)-len(t.done)-failed)
	right := max(0, t.objects-len(t.written)-failed-notDone)
	text := fmt.Sprintf("%s: %d written, %d right, %d failed", Plural(t.objects, noun), len(t.written), right, failed)
	if notDone > 0 {
		text += fmt.Sprintf(", %d not done", notDone)
	}
	return text
}

// Plural returns a number with its noun, as in "1 node" or "2 nodes".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
