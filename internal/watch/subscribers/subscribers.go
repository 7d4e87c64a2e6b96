// Package subscribers hands changes to the functions that want them, and notices if one of these hangs.
package subscribers

import (
	"fmt"
	"time"

	"podcount/internal/run/process"
)

// Source is where a change comes from. Each Source has one goroutine, except Patches.
type Source int

const (
	Watches   Source = iota // and lists
	Discovery               // of whether the resource is installed
	Patches                 // answers to patches, which workers wait for; if one hangs, the queue sees that, too
)

// Subscribers are the functions that get each change D of a store.
type Subscribers[D any] struct {
	handlers []func(D)
	clocks   [Patches + 1]process.Stopwatch // run while a function has a change
}

// Subscribe makes the reflector call handle for every change of the store, except for the objects of the first list.
// Several goroutines may call handle at the same time. It must not block for long.
func (s *Subscribers[D]) Subscribe(handle func(D)) { s.handlers = append(s.handlers, handle) }

// Publish hands on a change.
func (s *Subscribers[D]) Publish(from Source, change D) {
	s.clocks[from].Start()
	defer s.clocks[from].Stop()
	for _, handle := range s.handlers {
		handle(change)
	}
}

// Stuck says so if a function that Subscribe has registered has not returned for longer than limit. Nothing else can
// hang, because each request has a time limit. Stuck returns "" otherwise.
func (s *Subscribers[D]) Stuck(limit time.Duration) string {
	took := max(s.clocks[Watches].Elapsed(), s.clocks[Discovery].Elapsed(), s.clocks[Patches].Elapsed())
	if took <= limit {
		return ""
	}
	return fmt.Sprintf("a change has not been taken for %v", took.Round(time.Second))
}
