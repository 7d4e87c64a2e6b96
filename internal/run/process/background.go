package process

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Go runs f in a goroutine. The channel is closed when f has returned.
func Go(f func()) (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// IsClosed reports whether a channel is closed. Nothing may ever be sent to the channel.
func IsClosed(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// Group is a sync.WaitGroup whose goroutines have names, so that the log can name one that hangs. The zero value is
// ready for use. Safe for concurrent use.
type Group struct {
	all     sync.WaitGroup
	mu      sync.Mutex     // guards running
	running map[string]int // the number of running goroutines, by name
}

// Go runs f in a goroutine. Several goroutines may have the same name.
func (g *Group) Go(name string, f func()) {
	g.addRunning(name, +1)
	g.all.Go(func() {
		defer g.addRunning(name, -1)
		f()
	})
}

// Wait waits until all goroutines have ended. Go must not be called after that.
func (g *Group) Wait() { g.all.Wait() }

// Running returns the names of the goroutines that have not ended, sorted and joined by commas.
func (g *Group) Running() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(g.running)), ", ")
}

// addRunning changes the number of running goroutines with a name.
func (g *Group) addRunning(name string, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == nil {
		g.running = map[string]int{}
	}
	g.running[name] += change
	if g.running[name] == 0 {
		delete(g.running, name)
	}
}

// Stopwatch measures how long something takes that may hang. The zero value stands still. Any goroutine may read it.
type Stopwatch struct {
	began atomic.Pointer[time.Time] // nil while it stands still
}

// Start lets the stopwatch run from 0.
func (s *Stopwatch) Start() {
	now := time.Now()
	s.began.Store(&now)
}

// Stop lets it stand still.
func (s *Stopwatch) Stop() { s.began.Store(nil) }

// Elapsed returns how long the stopwatch has been running. It returns 0 if it stands still.
func (s *Stopwatch) Elapsed() time.Duration {
	began := s.began.Load()
	if began == nil {
		return 0
	}
	return time.Since(*began)
}
