package process

import (
	"sync/atomic"
	"time"
)

// Stopwatch measures how long something takes that may hang. The zero value stands still. Any goroutine may read it.
type Stopwatch struct {
	began atomic.Int64 // in nanoseconds since origin; 0 while it stands still
}

// origin is any moment. Times count from it by the monotonic clock, because the wall clock may be set.
var origin = time.Now()

// Start lets the stopwatch run from 0.
func (s *Stopwatch) Start() { s.began.Store(int64(time.Since(origin)) | 1) } // never 0

// Stop lets it stand still.
func (s *Stopwatch) Stop() { s.began.Store(0) }

// Elapsed returns how long the stopwatch has been running. It returns 0 if it stands still.
func (s *Stopwatch) Elapsed() time.Duration {
	began := s.began.Load()
	if began == 0 {
		return 0
	}
	return time.Since(origin) - time.Duration(began)
}
