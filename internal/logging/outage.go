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
// An outage has parts, which fail and work on their own. A part that fails on while others work again is no reason to say
// nothing of a new outage: after soloTime it is told of apart, every soloPause.
//
// Something that fails and works by turns would say two lines each time. So of many outages at most outagesSaid are
// said in outageSpan; each other one is said at the debug level, and counted in the next line of a beginning.
type Outage struct {
	log     *slog.Logger
	subject string // what fails
	again   string // that it works, in two words
	args    []any  // attributes of each line

	mu       sync.Mutex // guards all below
	current  episode
	solo     episode     // of parts that fail alone
	worked   time.Time   // when a part worked last
	begins   []time.Time // when the newest outages were said
	unsaid   int         // outages since the last one that was said
	nextLine *time.Timer // of current
	nextSolo *time.Timer // of solo
}

// episode is parts that fail at the same time.
type episode struct {
	failing map[string]time.Time // since when each part does
	began   time.Time
	tries   int // that have failed since then
	newest  failure
	isSaid  bool          // its beginning was said
	triedAt time.Time     // when the newest of them did
	saidAt  time.Time     // when the last line of it was
	pause   time.Duration // between that line and the next
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
	soloTime    = 10 * time.Minute
	soloPause   = 10 * time.Minute

	// tryTime is longer than there is between two tries of anything: a backoff of a minute, and a dial of half a minute.
	tryTime = 2 * time.Minute
)

// NewOutage makes an Outage that has not begun. subject and again make the line when it is over, as in "Pod" and
// "watching again": how long it took is added. args are attributes of each line.
func NewOutage(log *slog.Logger, subject, again string, args ...any) *Outage {
	return &Outage{log: log, subject: subject, again: again, args: args}
}

// Failed says that a try of a part has failed. problem and args are said, now or later. pause is the time between two
// lines while it lasts: longer than a minute where somebody has to act first.
func (o *Outage) Failed(part, problem string, pause time.Duration, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	newest := failure{problem, args, pause}
	if _, isSolo := o.solo.failing[part]; isSolo {
		o.solo.tries++
		o.solo.triedAt = time.Now()
		o.solo.newest = newest
		o.sayLocked(&o.solo, slog.LevelDebug)
		return
	}
	e := &o.current
	if len(e.failing) == 0 {
		*e = episode{failing: map[string]time.Time{}, began: time.Now()}
	}
	if e.failing[part].IsZero() {
		e.failing[part] = time.Now()
	}
	e.tries++
	e.triedAt = time.Now()
	e.newest = newest
	switch {
	case !e.isSaid && o.mayBeginLocked():
		o.beginLocked()
	case e.isSaid && pause < e.pause && time.Since(e.saidAt) >= pause:
		o.goOnLocked() // what somebody had to act on has become what passes: no reason to wait so long
	default:
		o.sayLocked(e, slog.LevelDebug)
	}
}

// Worked says that a try of a part has succeeded.
func (o *Outage) Worked(part string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.worked = time.Now()
	o.endPartLocked(part, o.again)
}

// Forget says that a part is not tried any more, or has nothing left to do: that says nothing about whether it works.
func (o *Outage) Forget(part string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endPartLocked(part, "nothing fails any more")
}

func (o *Outage) endPartLocked(part, what string) {
	for _, e := range []*episode{&o.current, &o.solo} {
		if _, fails := e.failing[part]; !fails {
			continue
		}
		delete(e.failing, part)
		if len(e.failing) == 0 {
			o.endLocked(e, what)
		}
	}
}

func (o *Outage) endLocked(e *episode, what string) {
	level := slog.LevelInfo
	if !e.isSaid {
		o.unsaid++
		level = slog.LevelDebug
	}
	if e == &o.current {
		stop(&o.nextLine)
	} else {
		stop(&o.nextSolo)
	}
	text := o.subject + ": " + what + " after " + Round(time.Since(e.began)).String()
	o.log.Log(context.Background(), level, text, append(slices.Clone(o.args), "failed_tries", e.tries)...)
}

// Stop ends the lines of an outage that lasts, as nothing will be tried any more. Failed may still be called.
func (o *Outage) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	stop(&o.nextLine)
	stop(&o.nextSolo)
}

func stop(timer **time.Timer) {
	if *timer != nil {
		(*timer).Stop()
	}
	*timer = nil
}

// Failing returns the parts that fail now, in no order.
func (o *Outage) Failing() (parts []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range []*episode{&o.current, &o.solo} {
		for part := range e.failing {
			parts = append(parts, part)
		}
	}
	return parts
}

// mayBeginLocked reports whether one more beginning may be said.
func (o *Outage) mayBeginLocked() bool {
	o.begins = slices.DeleteFunc(o.begins, func(t time.Time) bool { return time.Since(t) >= outageSpan })
	return len(o.begins) < outagesSaid
}

func (o *Outage) beginLocked() {
	o.begins = append(o.begins, time.Now())
	o.current.isSaid = true
	var more []any
	if o.unsaid > 0 {
		more = append(more, "unsaid_outages", o.unsaid)
		o.unsaid = 0
	}
	o.sayLocked(&o.current, slog.LevelWarn, more...)
	o.waitLocked()
}

// goOnLocked says that the outage lasts. Where nothing is tried any more there is nothing to say.
func (o *Outage) goOnLocked() {
	o.splitLocked()
	e := &o.current
	if len(e.failing) == 0 {
		return
	}
	if time.Since(e.triedAt) < tryTime {
		o.sayLocked(e, slog.LevelWarn)
	}
	o.waitLocked()
}

// waitLocked has the next line of the current outage said after a pause.
func (o *Outage) waitLocked() {
	e := &o.current
	e.saidAt = time.Now()
	e.pause = e.newest.pause
	stop(&o.nextLine)
	began := e.began
	o.nextLine = time.AfterFunc(e.pause, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.nextLine != nil && len(o.current.failing) > 0 && o.current.began.Equal(began) {
			o.goOnLocked()
		}
	})
}

// splitLocked takes parts out of the current outage that have failed for long while others worked. They are told of
// apart from now on.
func (o *Outage) splitLocked() {
	e := &o.current
	isNew := len(o.solo.failing) == 0
	moved := false
	for part, since := range e.failing {
		if time.Since(since) < soloTime || o.worked.Before(since) {
			continue
		}
		if isNew && !moved {
			o.solo = episode{failing: map[string]time.Time{}, began: since, tries: e.tries, triedAt: e.triedAt, isSaid: true}
		}
		moved = true
		o.solo.failing[part] = since
		o.solo.newest = e.newest
		delete(e.failing, part)
	}
	if !moved {
		return
	}
	o.sayLocked(&o.solo, slog.LevelWarn, "next_line_in", soloPause)
	o.waitSoloLocked()
	if len(e.failing) == 0 {
		stop(&o.nextLine) // all that is left of it is told of apart
	}
}

// waitSoloLocked has the next line said about the parts that fail alone.
func (o *Outage) waitSoloLocked() {
	stop(&o.nextSolo)
	o.nextSolo = time.AfterFunc(soloPause, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.nextSolo == nil || len(o.solo.failing) == 0 {
			return
		}
		if time.Since(o.solo.triedAt) < soloPause {
			o.sayLocked(&o.solo, slog.LevelWarn, "next_line_in", soloPause)
		}
		o.waitSoloLocked()
	})
}

// sayLocked writes a line about the newest failure.
func (o *Outage) sayLocked(e *episode, level slog.Level, more ...any) {
	args := slices.Clone(o.args)
	if e.tries > 1 {
		args = append(args, "for", Round(time.Since(e.began)), "failed_tries", e.tries)
	}
	if len(e.failing) > 1 {
		args = append(args, "failing", len(e.failing))
	}
	args = append(args, more...)
	args = append(args, e.newest.args...)
	o.log.Log(context.Background(), level, e.newest.problem, args...)
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
