// Package background runs functions in goroutines that can be waited for, and names those that still run. It stops
// nothing: what it runs must end by itself.
package background

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Go runs f in a goroutine, and returns a channel that is closed when f has returned.
func Go(f func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	return ended
}

// HasEnded reports whether a channel is closed that nothing is ever sent to.
func HasEnded(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Group runs functions that have names, so that one that hangs can be named. The zero value is ready for use. Safe for
// concurrent use.
type Group struct {
	all     sync.WaitGroup
	mu      sync.Mutex     // guards running
	running map[string]int // how many functions of a name run
}

// Go runs f in a goroutine. Several functions may have the same name.
func (g *Group) Go(name string, f func()) {
	g.count(name, +1)
	g.all.Go(func() {
		defer g.count(name, -1)
		f()
	})
}

// Wait returns when all functions have returned. No function may be added from then on.
func (g *Group) Wait() { g.all.Wait() }

// Running returns the names of the functions that run, sorted and joined by commas.
func (g *Group) Running() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(g.running)), ", ")
}

func (g *Group) count(name string, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == nil {
		g.running = map[string]int{}
	}
	g.running[name] += by
	if g.running[name] == 0 {
		delete(g.running, name)
	}
}
