package logging

import (
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// panicPause is the shortest time between two lines of one Panics.
const panicPause = time.Minute

// Panics logs the panics of one part of the program. It logs the first panic at once, with its stack. After that it
// logs at most one line a minute, with the number of panics since the previous line. Safe for concurrent use.
type Panics struct {
	log     *slog.Logger
	subject string
	args    []any // attributes of each line

	mu            sync.Mutex // guards all fields below
	isStackLogged bool       // the first panic was logged, with its stack
	isPaused      bool       // a line was logged less than panicPause ago
	unlogged      int        // the number of panics since the last line
	newest        error      // the newest panic
}

// NewPanics makes a Panics. subject names the part of the program, as in "a controller". args are attributes of each
// line.
func NewPanics(log *slog.Logger, subject string, args ...any) *Panics {
	return &Panics{log: log, subject: subject, args: args}
}

// Report logs or counts a panic. Call it in the deferred function that recovers: the stack shows where the panic began
// only there.
func (p *Panics) Report(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unlogged++
	p.newest = err
	if !p.isStackLogged {
		p.isStackLogged = true
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

// logLocked logs a line, and begins a pause. Panics during the pause are logged together at its end.
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
