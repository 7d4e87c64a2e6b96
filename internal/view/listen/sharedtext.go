package listen

import (
	"sync"
	"time"
)

// sharedText is a text that many want, but that is read only once within metricsAge.
type sharedText struct {
	read func() string

	mu     sync.Mutex // guards newest
	newest *reading   // nil before the first
}

// reading is one call of sharedText.read, for everybody who asks while it lasts, and for metricsAge after it has begun.
type reading struct {
	began time.Time
	ended chan struct{} // closed once text is set
	text  string        // "" if read has panicked
}

// get returns the text. It returns "" if that takes longer than metricsTimeout for another caller.
func (s *sharedText) get() string {
	newest, isNew := s.join()
	if isNew {
		defer close(newest.ended)
		newest.text = s.read()
		return newest.text
	}
	select {
	case <-newest.ended:
		return newest.text
	case <-time.After(metricsTimeout):
		return ""
	}
}

// join returns the newest reading. If it is too old, join makes another one, which the caller must do.
func (s *sharedText) join() (newest *reading, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest != nil && s.newest.isGood() {
		return s.newest, false
	}
	s.newest = &reading{began: time.Now(), ended: make(chan struct{})}
	return s.newest, true
}

// isGood reports whether a reading lasts, or has begun recently.
func (r *reading) isGood() bool {
	select {
	case <-r.ended:
		return time.Since(r.began) < metricsAge
	default:
		return true
	}
}
