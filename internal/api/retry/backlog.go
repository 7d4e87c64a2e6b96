package retry

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	maxBacklogObjects = 10_000 // in a backlog
	maxBacklogChanges = 8      // of one object

	minBacklogPause = time.Second
	maxBacklogPause = time.Minute
)

// Backlog retries changes of type C whose handler has failed. It is for handlers that fail because of a bug. Safe for
// concurrent use.
//
// Each object has its own backoff, so that one bad object delays no other. A backlog may drop changes, and it handles
// old ones after newer ones, so the handler must not depend on their order.
type Backlog[K comparable, C any] struct {
	stop    context.Context // ends the retries
	options BacklogOptions[K, C]

	mu             sync.Mutex // guards all fields below
	objects        map[K]*backlogged[C]
	isFullReported bool // OnFull was called
}

// BacklogOptions configure a Backlog. All of them are required.
type BacklogOptions[K comparable, C any] struct {
	// Handle handles a change. Several goroutines may call it at once.
	Handle func(C) error

	// OnFull is called once, when a change is first dropped because there are too many objects. key is the object whose
	// change was dropped. OnFull must not call the backlog.
	OnFull func(key K)
}

// backlogged holds the changes of one object, the oldest first.
type backlogged[C any] struct {
	changes  []C
	failures int // how many tries in a row have failed
}

// NewBacklog makes an empty backlog. It retries changes until stop ends.
func NewBacklog[K comparable, C any](stop context.Context, o BacklogOptions[K, C]) *Backlog[K, C] {
	return &Backlog[K, C]{stop: stop, options: o, objects: map[K]*backlogged[C]{}}
}

// Len returns the number of objects that have changes in the backlog.
func (b *Backlog[K, C]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.objects)
}

// Add adds a change whose handler has failed. If an object has too many changes, only its first change and the newest
// ones are kept. If there are too many objects, the change is dropped.
func (b *Backlog[K, C]) Add(key K, change C) {
	b.mu.Lock()
	defer b.mu.Unlock()
	obj := b.objects[key]
	if obj == nil && len(b.objects) >= maxBacklogObjects {
		b.reportFullLocked(key)
		return
	}
	if obj == nil {
		obj = &backlogged[C]{}
		b.objects[key] = obj
		b.retryLaterLocked(key, obj)
	}
	obj.add(change)
}

func (b *Backlog[K, C]) reportFullLocked(key K) {
	if !b.isFullReported {
		b.isFullReported = true
		b.options.OnFull(key)
	}
}

// add appends newer changes. If there are too many then, only the first and the newest ones are kept: the first shows
// the object before all of them, and the last shows it now.
func (o *backlogged[C]) add(changes ...C) {
	o.changes = append(o.changes, changes...)
	surplus := len(o.changes) - maxBacklogChanges
	if surplus > 0 {
		o.changes = slices.Delete(o.changes, 1, 1+surplus)
	}
}

func (b *Backlog[K, C]) retryLaterLocked(key K, obj *backlogged[C]) {
	obj.failures++
	pause := Backoff(obj.failures, minBacklogPause, maxBacklogPause)
	time.AfterFunc(pause, func() { b.handleAgain(key, obj) })
}

// handleAgain handles the changes of one object, and keeps those that fail again. More changes may be added meanwhile,
// because it does not hold the lock while it calls the handler.
func (b *Backlog[K, C]) handleAgain(key K, obj *backlogged[C]) {
	if b.stop.Err() != nil {
		return
	}
	var stillFailing []C
	for _, change := range b.takeChanges(obj) {
		if b.options.Handle(change) != nil {
			stillFailing = append(stillFailing, change)
		}
	}
	b.putBack(key, obj, stillFailing)
}

func (b *Backlog[K, C]) takeChanges(obj *backlogged[C]) (changes []C) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changes = obj.changes
	obj.changes = nil
	return changes
}

// putBack puts changes that still fail before those that were added since takeChanges. If there are none at all, the
// object is removed. If none still fail, the backoff of the added changes begins at its minimum.
func (b *Backlog[K, C]) putBack(key K, obj *backlogged[C], stillFailing []C) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(stillFailing) == 0 {
		obj.failures = 0
	}
	added := obj.changes
	obj.changes = stillFailing
	obj.add(added...)
	if len(obj.changes) == 0 {
		delete(b.objects, key)
		return
	}
	b.retryLaterLocked(key, obj)
}
