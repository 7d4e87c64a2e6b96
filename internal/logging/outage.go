package logging

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Outage tells of something that fails, and is tried again and again: a line when it begins, one a minute while it
// lasts, with how long that is and how many tries have failed, and one when it is over. Safe for concurrent use.
//
// An outage has parts, which fail and work on their own. Parts that have failed for ten minutes while others worked are
// chronic: lines about them go on, but when others fail, too, that is a new outage with a beginning and an end.
//
// Something that fails and works by turns would say two lines each time. So at most five outages are said in five
// minutes; each other one is said at the debug level, and counted in the next line of a beginning.
type Outage struct {
	log     *slog.Logger
	subject string // what fails
	again   string // that it works, in two words
	args    []any  // attributes of each line

	mu       sync.Mutex // guards all below
	failing  map[string]*part
	chronic  int       // how many of them are
	changed  time.Time // when their number last changed
	worked   time.Time // when a part worked last
	isOn     bool      // more fail than the chronic ones: the rest is about this outage
	began    time.Time
	tries    int           // that have failed since then
	isSaid   bool          // its beginning was said
	saidAt   time.Time     // when the last line about a failure was
	pause    time.Duration // between that line and the next
	nextLine *time.Timer   // says it
	isEnded  bool          // Stop was called
	begins   []time.Time   // when the newest outages were said
	unsaid   int           // outages since the last one that was said
}

// part is what fails on its own.
type part struct {
	since   time.Time
	triedAt time.Time // when it failed last
	problem string    // what is said of that
	args    []any
	pause   time.Duration

	isChronic bool
}

const (
	outagesSaid = 5                // at most, in
	outageSpan  = 5 * time.Minute  // this
	soloTime    = 10 * time.Minute // after which a part that fails alone is chronic

	// tryTime is longer than there is between two tries of anything: a backoff of a minute, and a dial of half a minute.
	tryTime = 2 * time.Minute
)

// NewOutage makes an Outage that has not begun. subject and again make the line when it is over, as in "Pod" and
// "watching again": how long it took is added. args are attributes of each line.
func NewOutage(log *slog.Logger, subject, again string, args ...any) *Outage {
	return &Outage{log: log, subject: subject, again: again, args: args, failing: map[string]*part{}}
}

// Failed says that a try of a part has failed. problem and args are said, now or later. pause, which must be more than
// 0, is the time between two lines while it lasts: longer than a minute where somebody has to act first.
func (o *Outage) Failed(name, problem string, pause time.Duration, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	p := o.failing[name]
	if p == nil {
		p = &part{since: now}
		o.failing[name] = p
		o.changed = now
	}
	p.triedAt = now
	p.problem = problem
	p.args = args
	p.pause = pause
	if !o.isOn && len(o.failing) > o.chronic {
		o.isOn = true
		o.isSaid = false
		o.began = now
		o.tries = 0
	}
	o.tries++
	hasBecomeUrgent := pause < o.pause && now.Sub(o.saidAt) >= pause // no missing right any more, but what may pass
	switch {
	case o.isOn && !o.isSaid && o.mayBeginLocked():
		o.beginLocked()
	case o.isSaid && hasBecomeUrgent:
		o.goOnLocked()
	default:
		o.sayLocked(slog.LevelDebug)
	}
}

// Worked says that a try of a part has succeeded.
func (o *Outage) Worked(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.worked = time.Now()
	o.endLocked(name, o.again, slog.LevelInfo)
}

// Forget says that a part has nothing left to do. That says nothing about whether it works.
func (o *Outage) Forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endLocked(name, "nothing fails any more", slog.LevelInfo)
}

// GiveUp says that a part is not tried any more, though it has failed.
func (o *Outage) GiveUp(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endLocked(name, "given up", slog.LevelDebug)
}

func (o *Outage) endLocked(name, what string, level slog.Level) {
	p := o.failing[name]
	if p == nil {
		return
	}
	delete(o.failing, name)
	o.changed = time.Now()
	left := len(o.failing)
	if p.isChronic {
		o.chronic--
	}
	began := o.began
	if !o.isOn {
		began = p.since
	}
	switch {
	case left == 0:
		o.stopLocked()
	case o.isOn && left <= o.chronic:
		what += ", but for " + strconv.Itoa(left) + ","
	default:
		return // others fail still
	}
	if o.isOn && !o.isSaid {
		o.unsaid++
		level = slog.LevelDebug
	}
	text := o.subject + ": " + what + " after " + rounded(time.Since(began)).String()
	o.log.Log(context.Background(), level, text, append(slices.Clone(o.args), "failed_tries", o.tries)...)
	o.isOn = false
	o.tries = 0
}

// Stop ends the lines of an outage that lasts, as nothing will be tried any more. What fails afterwards is said once.
func (o *Outage) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isEnded = true
	o.stopLocked()
}

func (o *Outage) stopLocked() {
	if o.nextLine != nil {
		o.nextLine.Stop()
	}
	o.nextLine = nil
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
	if o.unsaid > 0 {
		more = append(more, "unsaid_outages", o.unsaid)
		o.unsaid = 0
	}
	o.sayLocked(slog.LevelWarn, more...)
	o.waitLocked()
}

// goOnLocked says that the outage lasts. Where nothing is tried any more there is nothing to say.
func (o *Outage) goOnLocked() {
	isStable := time.Since(o.changed) >= soloTime
	if o.isOn && isStable && o.worked.After(o.began) {
		for _, p := range o.failing {
			p.isChronic = true
		}
		o.chronic = len(o.failing)
		o.isOn = false
	}
	if time.Since(o.newestLocked().triedAt) < tryTime {
		o.sayLocked(slog.LevelWarn)
	}
	o.waitLocked()
}

// waitLocked has the next line said after a pause.
func (o *Outage) waitLocked() {
	o.stopLocked()
	if o.isEnded {
		return
	}
	o.saidAt = time.Now()
	o.pause = o.newestLocked().pause
	var timer *time.Timer
	timer = time.AfterFunc(o.pause, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.nextLine == timer && len(o.failing) > 0 {
			o.goOnLocked()
		}
	})
	o.nextLine = timer
}

// newestLocked returns the part that failed last.
func (o *Outage) newestLocked() (newest *part) {
	for _, p := range o.failing {
		if newest == nil || p.triedAt.After(newest.triedAt) {
			newest = p
		}
	}
	return newest
}

// sayLocked writes a line about the newest failure.
func (o *Outage) sayLocked(level slog.Level, more ...any) {
	if !o.log.Enabled(context.Background(), level) {
		return
	}
	newest := o.newestLocked()
	began := o.began
	if !o.isOn {
		began = newest.since
	}
	args := slices.Clone(o.args)
	if o.tries > 1 {
		args = append(args, "for", rounded(time.Since(began)), "failed_tries", o.tries)
	}
	if len(o.failing) > 1 {
		args = append(args, "failing", len(o.failing))
	}
	args = append(args, more...)
	args = append(args, newest.args...)
	o.log.Log(context.Background(), level, newest.problem, args...)
}

// rounded makes a duration short to read: whole seconds from ten seconds on, three digits below.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
