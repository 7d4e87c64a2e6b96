package logging

import (
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// panicPause is the time between two lines about the panics of the same thing.
const panicPause = time.Minute

// Panics logs that something panics again and again: the first panic with its stack, and from then on at most a line a
// minute, with the number of panics since the line before. Safe for concurrent use.
type Panics struct {
	log     *slog.Logger
	subject string // what panics
	args    []any  // attributes of each line

	mu       sync.Mutex // guards all fields below
	hasStack bool       // the first panic was logged, with its stack
	isPaused bool       // a line was logged less than panicPause ago
	unlogged int        // panics since the last line
	newest   error
}

// NewPanics makes a Panics. subject is what panics, as in "a controller". args are attributes of each line.
func NewPanics(log *slog.Logger, subject string, args ...any) *Panics {
	return &Panics{log: log, subject: subject, args: args}
}

// Note takes note of a panic. Call it while the panic is being recovered, so that the stack shows where it began.
func (p *Panics) Note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unlogged++
	p.newest = err
	if !p.hasStack {
		p.hasStack = true
		p.logLocked(p.subject+" panics", "err", err, "stack", string(debug.Stack()))
		return
	}
	if !p.isPaused {
		p.logAgainLocked()
	}
}

func (p *Panics) logAgainLocked() {
	p.logLocked(p.subject+" panics again", "err", p.newest, "times", p.unlogged)
}

// logLocked writes a line, and then pauses.
func (p *Panics) logLocked(message string, args ...any) {
	p.log.Error(message, append(p.args[:len(p.args):len(p.args)], args...)...)
	p.unlogged = 0
	p.isPaused = true
	time.AfterFunc(panicPause, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.isPaused = false
		if p.unlogged > 0 {
			p.logAgainLocked()
		}
	})
}
