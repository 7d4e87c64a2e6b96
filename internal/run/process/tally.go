package process

import (
	"fmt"
	"sync"
)

// Tally counts what a controller does in a run of -once, by the keys of the objects, for the line at its end. Safe for
// concurrent use.
type Tally[K comparable] struct {
	mu         sync.Mutex // guards all fields below
	hasBegun   bool
	objects    int  // how many objects there were when the run began
	isComplete bool // todo has all keys that the run begins with

	// These are sets of keys. A key is first in todo. A key in written is also in done.
	todo    map[K]bool // The key was added to the queue.
	done    map[K]bool // The key has no work left.
	written map[K]bool // The key's object was written to.
}

// NewTally makes a tally of a run that has not begun.
func NewTally[K comparable]() *Tally[K] {
	return &Tally[K]{todo: map[K]bool{}, done: map[K]bool{}, written: map[K]bool{}}
}

// Begin records that the run begins, and how many objects there are.
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

// AddTodo records that keys were added to the queue.
func (t *Tally[K]) AddTodo(keys ...K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		t.todo[key] = true
	}
}

// MarkComplete records that AddTodo was called with all keys that the run begins with. Until then, IsAllDone returns
// false.
func (t *Tally[K]) MarkComplete() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isComplete = true
}

// MarkDone records that a key has no work left.
func (t *Tally[K]) MarkDone(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[key] = true
}

// MarkWritten records that a key's object was written to, and that the key has no work left.
func (t *Tally[K]) MarkWritten(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written[key] = true
	t.done[key] = true
}

// IsAllDone reports whether all keys of the run are known, and none has work left.
func (t *Tally[K]) IsAllDone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isComplete && len(t.done) >= len(t.todo)
}

// Summary describes the outcome, as in "3 nodes: 1 written, 2 right, 0 failed". noun is the word for one object, such
// as "node". failed is the number of keys that have failed.
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
