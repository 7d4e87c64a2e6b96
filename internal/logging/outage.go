package logging

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Outage tells of something that fails, and is tried again and again: a line when it begins, one a minute while it
// lasts, with how long that is and how many tries have failed, and one when it is over. Safe for concurrent use.
//
// Something that fails and works by turns would say two lines each time. So of many outages at most outagesSaid are
// said in outageSpan; each other one is said at the debug level, and counted in the next line of a beginning.
type Outage struct {
	log  *slog.Logger
	over string // the message when it is over: what works again
	args []any  // attributes of each line

	mu      sync.Mutex
	failing map[string]bool // the parts that fail now; guarded by mu, as is all below
	began   time.Time
	tries   int // that have failed since it began
	newest  failure
	isSaid  bool          // its beginning was said
	saidAt  time.Time     // when the last line of it was
	pause   time.Duration // between that line and the next
	minute  *time.Timer   // says the next line
	begins  []time.Time   // when the newest outages were said
	unsaid  int           // outages since the last one that was said
}

// failure is what is said of a try that has failed.
type failure struct {
	problem string
	args    []any
	pause   time.Duration
}

const (
	outagesSaid = 5
	outageSpan  = 5 * time.Minute
)

// NewOutage makes an Outage that has not begun. over says what works again when it is over, as in "Pod: watching
// again"; how long it took is added. args are attributes of each line about failures.
func NewOutage(log *slog.Logger, over string, args ...any) *Outage {
	return &Outage{log: log, over: over, args: args, failing: map[string]bool{}}
}

// Failed says that a try has failed: the outage has begun, or goes on. part tells apart what can fail and work on its
// own; the outage is over when all parts work. problem and args are said. pause is the time between two lines while it
// lasts: longer than a minute where somebody has to act first.
func (o *Outage) Failed(part, problem string, pause time.Duration, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failing) == 0 {
		o.began = time.Now()
		o.tries = 0
		o.isSaid = false
	}
	o.failing[part] = true
	o.tries++
	o.newest = failure{problem, args, pause}
	switch {
	case !o.isSaid && o.mayBeginLocked():
		o.beginLocked()
	case o.isSaid && pause < o.pause && time.Since(o.saidAt) >= pause:
		o.goOnLocked() // what has to be done by somebody has become what passes: no reason to wait so long
	default:
		o.sayLocked(slog.LevelDebug, o.lastingLocked()...)
	}
}

// Worked says that a try of a part has not failed.
func (o *Outage) Worked(part string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.failing[part] {
		return
	}
	delete(o.failing, part)
	if len(o.failing) > 0 {
		return
	}
	level := slog.LevelInfo
	if !o.isSaid {
		o.unsaid++
		level = slog.LevelDebug
	}
	o.stopLocked()
	o.log.Log(context.Background(), level, o.over+" after "+Round(time.Since(o.began)).String(), "failed_tries", o.tries)
}

// Stop ends the lines of an outage that lasts: nothing will be tried any more. Failed may still be called.
func (o *Outage) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopLocked()
}

func (o *Outage) stopLocked() {
	if o.minute != nil {
		o.minute.Stop()
	}
	o.minute = nil
}

// Failing returns how many parts fail now.
func (o *Outage) Failing() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.failing)
}

// mayBeginLocked reports whether one more beginning may be said.
func (o *Outage) mayBeginLocked() bool {
	o.begins = slices.DeleteFunc(o.begins, func(t time.Time) bool { return time.Since(t) >= outageSpan })
	return len(o.begins) < outagesSaid
}

func (o *Outage) beginLocked() {
	o.begins = append(o.begins, time.Now())
	o.isSaid = true
	var more []any
	if o.tries > 1 {
		more = o.lastingLocked() // it began before it might be said
	}
	if o.unsaid > 0 {
		more = append(more, "unsaid_outages", o.unsaid)
		o.unsaid = 0
	}
	o.sayLocked(slog.LevelWarn, more...)
	o.waitLocked()
}

// goOnLocked says that the outage lasts.
func (o *Outage) goOnLocked() {
	o.sayLocked(slog.LevelWarn, o.lastingLocked()...)
	o.waitLocked()
}

// waitLocked has the next line said after a pause.
func (o *Outage) waitLocked() {
	o.saidAt = time.Now()
	o.pause = o.newest.pause
	o.stopLocked()
	began := o.began
	o.minute = time.AfterFunc(o.pause, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.minute != nil && len(o.failing) > 0 && o.began.Equal(began) {
			o.goOnLocked()
		}
	})
}

// lastingLocked are the attributes of a line that is not the first.
func (o *Outage) lastingLocked() []any {
	args := []any{"for", Round(time.Since(o.began)), "failed_tries", o.tries}
	if len(o.failing) > 1 {
		args = append(args, "failing", len(o.failing))
	}
	return args
}

func (o *Outage) sayLocked(level slog.Level, more ...any) {
	o.log.Log(context.Background(), level, o.newest.problem, slices.Concat(o.args, more, o.newest.args)...)
}

// Round makes a duration short to read: whole seconds from ten seconds on, three digits below.
func Round(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
