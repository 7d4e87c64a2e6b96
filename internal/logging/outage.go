package logging

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Outage logs what people need to know about something that fails and is tried again and again: a line when it begins
// to fail, one a minute while it fails, and one when it works again. Further failures are logged at the debug level.
// It is safe for concurrent use.
//
// An outage has parts, which fail and work on their own. It begins when the first part fails, and is over when no part
// fails any more. There are two exceptions:
//
//   - A part that has failed for ten minutes while others worked is chronic. It still gets its lines, but it no longer
//     counts: an outage of the others begins and ends as if the chronic parts worked.
//   - Something that fails and works by turns would get two lines each time. So only five outages are announced within
//     five minutes. The next announcement says how many were not.
type Outage struct {
	log     *slog.Logger
	subject string
	again   string
	args    []any

	mu         sync.Mutex // guards the fields below
	state      outageState
	reminder   *time.Timer // calls remind; nil before the first reminder
	reminderAt time.Time   // when it does, zero if it does not
	isStopped  bool
}

// NewOutage makes an Outage that has not begun. subject and again make the line at its end: "Pod" and "watching again"
// make "Pod: watching again after 37s". args are attributes of each line.
func NewOutage(log *slog.Logger, subject, again string, args ...any) *Outage {
	return &Outage{
		log:     log,
		subject: subject,
		again:   again,
		args:    args,
		state:   outageState{failing: map[string]*failingPart{}},
	}
}

// Failed reports that a try of a part has failed. problem is the message of the line, and args are its attributes.
// pause is the time until the next line, if the outage lasts. It must be more than 0; it is usually a minute, and
// longer if somebody has to act first.
func (o *Outage) Failed(part, problem string, pause time.Duration, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.state.addFailure(part, failure{at: now, problem: problem, args: args, pause: pause})
	switch {
	case o.state.mayAnnounce(now):
		unannounced := o.state.announce(now)
		o.logFailureLocked(slog.LevelWarn, unannounced)
	case o.state.isReminderOverdue(now, pause):
		o.state.noteReminder(now) // This try proves that the part is still tried.
		o.logFailureLocked(slog.LevelWarn, 0)
	default:
		o.logFailureLocked(slog.LevelDebug, 0)
	}
	o.setReminderLocked()
}

// Worked reports that a try of a part has succeeded.
func (o *Outage) Worked(part string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state.workedAt = time.Now()
	o.removeLocked(part, o.again, slog.LevelInfo)
}

// Forget reports that a part has nothing left to do. It may or may not work.
func (o *Outage) Forget(part string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removeLocked(part, "nothing fails any more", slog.LevelInfo)
}

// GiveUp reports that a part has failed and will not be tried again.
func (o *Outage) GiveUp(part string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removeLocked(part, "given up", slog.LevelDebug)
}

// Failing returns how many parts fail now.
func (o *Outage) Failing() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.state.failing)
}

// Stop ends the lines about an outage that lasts. It is for the end of the process, when nothing is tried again.
func (o *Outage) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isStopped = true
	o.setReminderLocked()
}

// setReminderLocked makes remind run when the state wants the next line, and at no other time.
func (o *Outage) setReminderLocked() {
	at := o.state.remindAt
	if o.isStopped {
		at = time.Time{}
	}
	if at.Equal(o.reminderAt) {
		return
	}
	o.reminderAt = at
	if o.reminder != nil {
		o.reminder.Stop()
	}
	if !at.IsZero() {
		o.reminder = time.AfterFunc(time.Until(at), o.remind)
	}
}

// remind logs that the outage lasts. The timer calls it.
func (o *Outage) remind() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	isCancelled := o.reminderAt.IsZero() || now.Before(o.reminderAt)
	if isCancelled {
		return // The timer fired while another goroutine stopped it or set another one.
	}
	isStillTried := o.state.noteReminder(now)
	if isStillTried {
		o.logFailureLocked(slog.LevelWarn, 0)
	}
	o.setReminderLocked()
}

// logFailureLocked logs the newest failure, and how many outages before this one were not announced.
func (o *Outage) logFailureLocked(level slog.Level, unannounced int) {
	if !o.log.Enabled(context.Background(), level) {
		return
	}
	newest := o.state.newest()
	args := slices.Clone(o.args)
	if o.state.tries > 1 {
		lasts := time.Since(o.state.beginOf(newest))
		args = append(args, "for", rounded(lasts), "failed_tries", o.state.tries)
	}
	if failing := len(o.state.failing); failing > 1 {
		args = append(args, "failing", failing)
	}
	if unannounced > 0 {
		args = append(args, "unsaid_outages", unannounced)
	}
	args = append(args, newest.args...)
	o.log.Log(context.Background(), level, newest.problem, args...)
}

// removeLocked ends the failure of a part. If that ends the outage, it logs so. outcome says what ended the failure.
func (o *Outage) removeLocked(part, outcome string, level slog.Level) {
	end, isOver := o.state.remove(part, time.Now())
	o.setReminderLocked()
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

// rounded makes a duration short to read: it has whole seconds from ten seconds on, and three digits below.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
