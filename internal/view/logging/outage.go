package logging

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Outage logs the failures of something that is retried again and again: a line when it begins to fail, one each
// pause (usually a minute) while it fails, and one when it works again. It logs all other failures at the debug level.
// It is safe for concurrent use.
//
// The parts of an Outage fail and recover independently. An outage begins when the first part fails, and ends when no
// part fails any more. There are two exceptions:
//
//   - A part that has failed for ten minutes while others worked is chronic. It still gets a line per pause, but an
//     outage of the other parts begins and ends as if the chronic parts worked.
//   - Something that fails and recovers again and again would get two lines each time. So only five outages are
//     announced within five minutes. The next announcement has the number of those that were not.
type Outage struct {
	log     *slog.Logger
	subject string
	again   string        // what the line at the end of an outage says
	args    []any         // attributes of each line
	details func() []any  // further attributes, which change; nil if there are none
	server  *ServerOutage // see MutedBy; nil if nothing mutes this outage

	mu        sync.Mutex // guards the fields below
	state     outageState
	timer     *time.Timer // calls remind; nil before the first reminder
	timerAt   time.Time   // when the timer fires, or zero if it is stopped
	isStopped bool
}

// NewOutage makes an Outage whose parts all work. subject and again make up the line at the end of an outage: "Pod" and
// "watching again" make "Pod: watching again after 37s". args are attributes of each line.
func NewOutage(log *slog.Logger, subject, again string, args ...any) *Outage {
	return &Outage{
		log:     log,
		subject: subject,
		again:   again,
		args:    args,
		state:   outageState{failing: map[string]*failingPart{}},
	}
}

// Failed reports that a try of a part has failed. problem is the message of the log line, and args are its attributes.
//
// pause is the time until the next line if the outage lasts. It must be more than 0. It is usually a minute, but longer
// for a failure that lasts until a person acts.
func (o *Outage) Failed(part, problem string, pause time.Duration, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	f := failure{at: now, problem: problem, args: args, pause: pause}
	o.state.addFailure(part, f)
	switch {
	case o.isMuted(f):
		o.state.wasMuted = true
		o.logFailureLocked(slog.LevelDebug, 0)
	case o.state.mayAnnounce(now):
		unannounced := o.state.announce(now)
		o.logFailureLocked(slog.LevelWarn, unannounced)
	case o.state.isReminderOverdue(now, pause):
		o.state.recordReminder(now)
		o.logFailureLocked(slog.LevelWarn, 0)
	default:
		o.logFailureLocked(slog.LevelDebug, 0)
	}
	o.setTimerLocked()
}

// Worked reports that a try of a part has succeeded.
func (o *Outage) Worked(part string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state.workedAt = time.Now()
	o.removeLocked(part, o.again, slog.LevelInfo)
}

// Forget reports that a part is no longer needed, whether it works or not.
func (o *Outage) Forget(part string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removeLocked(part, "nothing fails any more", slog.LevelInfo)
}

// GiveUp reports that a part has failed and will not be retried.
func (o *Outage) GiveUp(part string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removeLocked(part, "given up", slog.LevelDebug)
}

// Problem is what fails at present.
type Problem struct {
	Text string // the problem and the error of the newest failure
	Err  error  // that error; nil if the failure has none
}

// Problem returns the newest failure of the parts that fail now. isFailing is false if all of them work.
func (o *Outage) Problem() (now Problem, isFailing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var newest *failingPart
	for _, part := range o.state.failing {
		if newest == nil || part.at.After(newest.at) {
			newest = part
		}
	}
	if newest == nil {
		return Problem{}, false
	}
	now.Text = newest.problem
	now.Err = newest.err()
	if now.Err != nil {
		now.Text += ": " + now.Err.Error()
	}
	return now, true
}

// Failing returns how many parts fail now.
func (o *Outage) Failing() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.state.failing)
}

// Stop ends the reminders. Call it when nothing is retried any more, as at the end of the process.
func (o *Outage) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isStopped = true
	o.setTimerLocked()
}

// setTimerLocked sets the timer to the time of the state's next reminder, or stops it if there is none.
func (o *Outage) setTimerLocked() {
	at := o.state.remindAt
	if o.isStopped {
		at = time.Time{}
	}
	if at.Equal(o.timerAt) {
		return
	}
	o.timerAt = at
	if o.timer != nil {
		o.timer.Stop()
	}
	if !at.IsZero() {
		o.timer = time.AfterFunc(time.Until(at), o.remind)
	}
}

// remind logs that something still fails. The timer calls it.
func (o *Outage) remind() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	isCancelled := o.timerAt.IsZero() || now.Before(o.timerAt)
	if isCancelled {
		return // The timer fired while another goroutine was stopping or replacing it.
	}
	isStillTried := o.state.recordReminder(now)
	if isStillTried && !o.isMuted(o.state.newest().failure) {
		o.logFailureLocked(slog.LevelWarn, 0)
	}
	o.setTimerLocked()
}

// logFailureLocked logs the newest failure. unannounced is how many earlier outages the line reports as not announced.
func (o *Outage) logFailureLocked(level slog.Level, unannounced int) {
	if !o.log.Enabled(context.Background(), level) {
		return
	}
	newest := o.state.newest()
	args := slices.Clone(o.args)
	if o.state.tries > 1 {
		took := time.Since(o.state.failingSince(newest))
		args = append(args, "for", rounded(took), "failed_tries", o.state.tries)
	}
	if failing := len(o.state.failing); failing > 1 {
		args = append(args, "failing", failing)
	}
	if unannounced > 0 {
		args = append(args, "unannounced_outages", unannounced)
	}
	if o.details != nil {
		args = append(args, o.details()...)
	}
	args = append(args, newest.args...)
	o.log.Log(context.Background(), level, newest.problem, args...)
}

// removeLocked removes a part from those that fail. If that ends the outage, it logs a line at this level. outcome is
// how the failure of the part ended.
func (o *Outage) removeLocked(part, outcome string, level slog.Level) {
	end, isOver := o.state.remove(part, time.Now())
	o.setTimerLocked()
	if !isOver {
		return
	}
	if !end.wasAnnounced {
		level = slog.LevelDebug
	}
	text := o.subject + ": " + outcome + " after " + rounded(end.took).String()
	switch {
	case end.stillFailing == 1:
		text += ", but 1 still fails"
	case end.stillFailing > 1:
		text += ", but " + strconv.Itoa(end.stillFailing) + " still fail"
	}
	args := append(slices.Clone(o.args), "failed_tries", end.tries)
	o.log.Log(context.Background(), level, text, args...)
}

// rounded rounds a duration for people: to whole seconds from ten seconds on, and to three digits or fewer below.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
