// Package backlog keeps changes that could not be handled, and tries them again. Each object's changes wait for a
// backoff of their own, so that one bad object delays no other.
//
// A backlog is for handlers that fail because of a bug. It limits what it keeps, and it may handle changes late and out
// of order with newer ones. So it suits handlers that only take from a change which objects to look at.
package backlog

import (
	"context"
	"slices"
	"sync"
	"time"

	"podcount/internal/retry"
)

const (
	objectLimit = 10_000 // objects whose changes are kept
	changeLimit = 8      // changes of one object that are kept

	firstPause = time.Second // after the first failure; it doubles with each further one
	maxPause   = time.Minute
)

// Backlog keeps changes of type C by the key of the object that has changed. Safe for concurrent use.
type Backlog[K comparable, C any] struct {
	options Options[K, C]

	mu      sync.Mutex // guards all fields below
	objects map[K]*object[C]
	isFull  bool // a change was dropped
}

// Options are what a backlog is made with. All of them are required.
type Options[K comparable, C any] struct {
	// Handle handles a change. It may be called by several goroutines at once.
	Handle func(C) error

	// Stop ends all tries when it ends.
	Stop context.Context

	// OnFull is called once, when changes of an object are dropped because there are too many objects.
	OnFull func(key K)
}

// object is the changes of one object, the oldest first.
type object[C any] struct {
	changes  []C
	failures int
}

// New makes an empty backlog.
func New[K comparable, C any](o Options[K, C]) *Backlog[K, C] {
	return &Backlog[K, C]{options: o, objects: map[K]*object[C]{}}
}

// Len returns the number of objects that have changes in the backlog.
func (b *Backlog[K, C]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.objects)
}

// Add keeps a change that could not be handled, and has it tried again. Of an object with many changes it keeps the
// first one and the newest.
func (b *Backlog[K, C]) Add(key K, change C) {
	b.mu.Lock()
	defer b.mu.Unlock()
	obj := b.objects[key]
	if obj == nil && len(b.objects) >= objectLimit {
		b.dropLocked(key)
		return
	}
	if obj == nil {
		obj = &object[C]{}
		b.objects[key] = obj
		b.tryLaterLocked(key, obj)
	}
	obj.add(change)
}

func (b *Backlog[K, C]) dropLocked(key K) {
	if !b.isFull {
		b.isFull = true
		b.options.OnFull(key)
	}
}

func (o *object[C]) add(changes ...C) {
	o.changes = append(o.changes, changes...)
	surplus := len(o.changes) - changeLimit
	if surplus > 0 {
		o.changes = slices.Delete(o.changes, 1, 1+surplus)
	}
}

func (b *Backlog[K, C]) tryLaterLocked(key K, obj *object[C]) {
	obj.failures++
	pause := retry.Backoff(obj.failures, firstPause, maxPause)
	time.AfterFunc(pause, func() { b.try(key, obj) })
}

// try handles the changes of one object, and keeps those that fail again. The lock is not held meanwhile, so that more
// changes may be added.
func (b *Backlog[K, C]) try(key K, obj *object[C]) {
	if b.options.Stop.Err() != nil {
		return
	}
	b.mu.Lock()
	changes := obj.changes
	obj.changes = nil
	b.mu.Unlock()

	hasWorked := func(change C) bool { return b.options.Handle(change) == nil }
	stillFailing := slices.DeleteFunc(changes, hasWorked)

	b.mu.Lock()
	defer b.mu.Unlock()
	added := obj.changes
	obj.changes = stillFailing
	obj.add(added...)
	if len(obj.changes) == 0 {
		delete(b.objects, key)
		return
	}
	b.tryLaterLocked(key, obj)
}
