package listen

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Shared reads something that many may want at once, and that may hang. At most one reading runs at a time.
type Shared[T any] struct {
	Read   func() T
	MaxAge time.Duration // how long after it has begun a reading is good enough for those who come

	mu     sync.Mutex  // guards newest
	newest *Reading[T] // nil before the first
}

// Reading is one call of Shared.Read, for all who want its value.
type Reading[T any] struct {
	Ended <-chan struct{} // closed when Value does not wait
	began time.Time
	value T
	panic any // what Read has panicked with; nil if it has not
}

// Begin returns the newest reading if it still runs, or is good enough. Otherwise it begins another one.
func (s *Shared[T]) Begin() *Reading[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest != nil && s.newest.isGood(s.MaxAge) {
		return s.newest
	}
	ended := make(chan struct{})
	reading := &Reading[T]{Ended: ended, began: time.Now()}
	s.newest = reading
	go func() {
		defer close(ended)
		defer func() {
			if p := recover(); p != nil {
				reading.panic = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			}
		}()
		reading.value = s.Read()
	}()
	return reading
}

// Within returns the value of a reading, unless that takes longer than limit.
func (s *Shared[T]) Within(limit time.Duration) (value T, isRead bool) {
	reading := s.Begin()
	select {
	case <-reading.Ended:
		return reading.Value(), true
	case <-time.After(limit):
		return value, false
	}
}

// Value waits for the end of the reading, and returns what was read. It panics if Read has.
func (r *Reading[T]) Value() T {
	<-r.Ended
	if r.panic != nil {
		panic(r.panic)
	}
	return r.value
}

// isGood reports whether a reading runs, or has begun recently enough.
func (r *Reading[T]) isGood(maxAge time.Duration) bool {
	select {
	case <-r.Ended:
		return time.Since(r.began) < maxAge
	default:
		return true
	}
}
