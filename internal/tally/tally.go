// Package tally counts what a controller has done in a run that comes to an end. It decides nothing.
package tally

import (
	"fmt"
	"sync"
)

// Tally counts by keys of objects: which ones got work, which ones are done, and which ones were written to. Safe for
// concurrent use.
type Tally[K comparable] struct {
	mu       sync.Mutex // guards all fields below
	hasBegun bool
	objects  int // how many there were at the beginning
	isFull   bool
	todo     map[K]bool
	done     map[K]bool
	written  map[K]bool
}

// New makes a tally of a run that has not begun.
func New[K comparable]() *Tally[K] {
	return &Tally[K]{todo: map[K]bool{}, done: map[K]bool{}, written: map[K]bool{}}
}

// Begin says that the run begins, with this many objects.
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

// Todo says that these keys have work to do.
func (t *Tally[K]) Todo(keys ...K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		t.todo[key] = true
	}
}

// Full says that all keys with work to do at the beginning have been passed to Todo.
func (t *Tally[K]) Full() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isFull = true
}

// Done says that a key has nothing left to do.
func (t *Tally[K]) Done(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[key] = true
}

// Written says that an object was written to, and so has nothing left to do.
func (t *Tally[K]) Written(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written[key] = true
	t.done[key] = true
}

// IsAllDone reports whether all keys are known, and all of them are done.
func (t *Tally[K]) IsAllDone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isFull && len(t.done) >= len(t.todo)
}

// Summary returns the outcome as people read it, as in "3 nodes: 1 written, 2 right, 0 failed". noun is one object, and
// failed is how many keys have failed.
func (t *Tally[K]) Summary(noun string, failed int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	notDone := max(0, len(t.todo)-len(t.done)-failed)
	right := max(0, t.objects-len(t.written)-failed-notDone)
	text := fmt.Sprintf("%s: %d written, %d right, %d failed", Count(t.objects, noun), len(t.written), right, failed)
	if notDone > 0 {
		text += fmt.Sprintf(", %d not done", notDone)
	}
	return text
}

// Count returns a number of things in words, as in "1 node" or "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
