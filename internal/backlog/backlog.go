// Package backlog retries changes whose handler has failed. Each object has a backoff of its own, so that one bad
// object delays no other.
//
// A backlog is for handlers that fail because of a bug. It keeps a limited number of changes, and handles them after
// newer ones. So the handler must not depend on the order of changes.
package backlog

import (
	"context"
	"slices"
	"sync"
	"time"

	"podcount/internal/retry"
)

const (
	objectLimit = 10_000 // objects in a backlog
	changeLimit = 8      // changes of one object

	firstPause = time.Second // after the first failure; each further failure doubles it
	maxPause   = time.Minute
)

// Backlog holds changes of type C, by the keys of the objects that have changed. Safe for concurrent use.
type Backlog[K comparable, C any] struct {
	options Options[K, C]

	mu      sync.Mutex // guards all fields below
	objects map[K]*object[C]
	isFull  bool // objects has reached its limit, and OnFull was called
}

// Options are what a backlog is made with. All of them are required.
type Options[K comparable, C any] struct {
	// Handle handles a change. Several goroutines may call it at once.
	Handle func(C) error

	// Stop ends when no change may be retried any more.
	Stop context.Context

	// OnFull is called the first time that a change is dropped because there are too many objects. key is the object
	// of that change.
	OnFull func(key K)
}

// object holds the changes of one object, the oldest first.
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

// Add adds a change whose handler has failed. If an object has too many changes, its first change and the newest ones
// are kept.
func (b *Backlog[K, C]) Add(key K, change C) {
	b.mu.Lock()
	defer b.mu.Unlock()
	obj := b.objects[key]
	if obj == nil && len(b.objects) >= objectLimit {
		b.reportFullLocked(key)
		return
	}
	if obj == nil {
		obj = &object[C]{}
		b.objects[key] = obj
		b.retryLaterLocked(key, obj)
	}
	obj.add(change)
}

func (b *Backlog[K, C]) reportFullLocked(key K) {
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

func (b *Backlog[K, C]) retryLaterLocked(key K, obj *object[C]) {
	obj.failures++
	pause := retry.Backoff(obj.failures, firstPause, maxPause)
	time.AfterFunc(pause, func() { b.retry(key, obj) })
}

// retry handles the changes of one object, and keeps those that fail again. It does not hold the lock while it calls
// the handler, so more changes may be added meanwhile.
func (b *Backlog[K, C]) retry(key K, obj *object[C]) {
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
	b.retryLaterLocked(key, obj)
}
