package logging

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// At most maxAnnounced outages are announced within announceSpan.
	maxAnnounced = 5
	announceSpan = 5 * time.Minute

	// A part that has failed for chronicAfter, while others worked, is chronic.
	chronicAfter = 10 * time.Minute

	// If nothing has failed again for maxTryInterval, nothing is retried any more, as far as one can tell. This is longer
	// than a backoff of a minute and a dial of half a minute.
	maxTryInterval = 2 * time.Minute
)

// Outage logs the failures of something that is retried again and again: a line when it begins to fail, one each
// pause (usually a minute) while it fails, and one when it works again. It logs all other failures at the debug level.
// It is safe for concurrent use.
//
// The parts of an Outage fail and recover independently. An outage begins when the first part fails, and ends when no
// part fails any more:
//
//	         a part fails           a line says so
//	quiet ─────────────────▶ begun ────────────────▶ announced: a line each pause
//	  ▲                        │                         │
//	  └───── no part fails ────┴── no part fails, and ───┘
//	                               a line says so
//
// There are three exceptions:
//
//   - A part that has failed for ten minutes while others worked is chronic. It still gets a line per pause, but an
//     outage of the other parts begins and ends as if the chronic parts worked.
//   - Something that fails and recovers again and again would get two lines each time. So only five outages are
//     announced within five minutes. The next announcement has the number of those that were not.
//   - What a ServerOutage already says is not said again: see MutedBy.
type Outage struct {
	log     *slog.Logger
	subject string
	again   string        // what the line at the end of an outage says
	args    []any         // attributes of each line
	details func() []any  // further attributes, which change; nil if there are none
	server  *ServerOutage // see MutedBy; nil if nothing mutes this outage

	mu       sync.Mutex // guards the fields below
	phase    outagePhase
	failing  map[string]*failingPart // by name
	chronic  int                     // how many of them are chronic
	workedAt time.Time               // when a try of any part last succeeded
	tries    int                     // how many have failed since the outage began or, between outages, since one ended

	beganAt  time.Time // when the outage began
	wasMuted bool      // a failure in this outage was muted

	announcedAt []time.Time // when outages were announced, within announceSpan
	unannounced int         // how many outages have ended without an announcement since the last line that said so

	lineAt    time.Time   // when the last line on a failure was logged
	timer     *time.Timer // calls remind a pause after that; nil before the first line
	isStopped bool
}

// outagePhase is how far an outage has come: see the picture above.
type outagePhase int

const (
	quiet     outagePhase = iota // no part fails, or only chronic ones do
	begun                        // an outage is on, of which no line says so
	announced                    // an outage is on, and a line has said so
)

// failingPart is a part that fails now.
type failingPart struct {
	since     time.Time // when it began to fail
	isChronic bool

	// Of the newest failure: its time, and the arguments of Failed.
	at      time.Time
	problem string
	pause   time.Duration
	err     error
	args    []any
}

// NewOutage makes an Outage whose parts all work. subject and again make up the line at the end of an outage: "Pod" and
// "watching again" make "Pod: watching again after 37s". args are attributes of each line.
func NewOutage(log *slog.Logger, subject, again string, args ...any) *Outage {
	return &Outage{log: log, subject: subject, again: again, args: args, failing: map[string]*failingPart{}}
}

// Failed reports that a try of a part has failed. problem is the message of the log line, and args are its attributes
// beside the error.
//
// pause is the time until the next line if the outage lasts. It must be more than 0. It is usually a minute, but longer
// for a failure that lasts until a person acts.
func (o *Outage) Failed(part, problem string, pause time.Duration, err error, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	p := o.failing[part]
	if p == nil {
		p = &failingPart{since: now}
		o.failing[part] = p
	}
	p.at, p.problem, p.pause, p.err, p.args = now, problem, pause, err, args
	o.markChronicLocked(p)
	if o.phase == quiet && !p.isChronic {
		o.phase = begun
		o.beganAt = now
		o.wasMuted = false
		o.tries = 0
	}
	o.tries++

	isTooOld := func(at time.Time) bool { return now.Sub(at) >= announceSpan }
	o.announcedAt = slices.DeleteFunc(o.announcedAt, isTooOld)
	mayAnnounce := len(o.announcedAt) < maxAnnounced
	isOverdue := now.Sub(o.lineAt) > pause // The pause at the last line was longer, or nothing was tried for long.
	switch {
	case o.isMuted(p):
		o.wasMuted = true
		o.logFailureLocked(slog.LevelDebug, p)
	case o.phase == begun && mayAnnounce:
		o.phase = announced
		o.announcedAt = append(o.announcedAt, now)
		o.warnLocked(p)
	case o.phase != begun && isOverdue:
		o.warnLocked(p)
	default:
		o.logFailureLocked(slog.LevelDebug, p)
	}
}

// markChronicLocked marks a part as chronic if it is. If all parts that fail are, that ends the outage without a line.
func (o *Outage) markChronicLocked(p *failingPart) {
	othersWork := o.workedAt.After(p.since)
	if p.isChronic || !othersWork || time.Since(p.since) < chronicAfter {
		return
	}
	p.isChronic = true
	o.chronic++
	if o.chronic == len(o.failing) {
		o.phase = quiet
	}
}

// warnLocked logs the newest failure, and sets the timer for the next line.
func (o *Outage) warnLocked(p *failingPart) {
	o.logFailureLocked(slog.LevelWarn, p)
	o.unannounced = 0
	o.lineAt = time.Now()
	if o.timer == nil {
		o.timer = time.AfterFunc(p.pause, o.remind)
	} else {
		o.timer.Reset(p.pause)
	}
}

// remind logs that something still fails, if a line is due. The timer calls it.
func (o *Outage) remind() {
	o.mu.Lock()
	defer o.mu.Unlock()
	newest := o.newestLocked()
	if newest == nil || o.phase == begun || o.isStopped {
		return
	}
	left := time.Until(o.lineAt.Add(newest.pause))
	isStillTried := time.Since(newest.at) < maxTryInterval
	switch {
	case left > 0:
		o.timer.Reset(left) // The newest failure has a longer pause than the one at the last line.
	case isStillTried && !o.isMuted(newest):
		o.warnLocked(newest)
	}
}

// logFailureLocked logs the newest failure.
func (o *Outage) logFailureLocked(level slog.Level, newest *failingPart) {
	args := slices.Clone(o.args)
	if o.tries > 1 {
		args = append(args, "for", rounded(o.tookLocked(newest)), "failed_tries", o.tries)
	}
	if failing := len(o.failing); failing > 1 {
		args = append(args, "failing", failing)
	}
	if level == slog.LevelWarn && o.unannounced > 0 {
		args = append(args, "unannounced_outages", o.unannounced)
	}
	if o.details != nil {
		args = append(args, o.details()...)
	}
	args = append(append(args, newest.args...), "err", newest.err)
	o.log.Log(context.Background(), level, newest.problem, args...)
}

// tookLocked returns for how long the outage has been on or, if only chronic parts fail, for how long this one has.
func (o *Outage) tookLocked(p *failingPart) time.Duration {
	if o.phase == quiet {
		return time.Since(p.since)
	}
	return time.Since(o.beganAt)
}

// Worked reports that a try of a part has succeeded.
func (o *Outage) Worked(part string) {
	o.mu.Lock()
	o.workedAt = time.Now()
	o.mu.Unlock()
	o.remove(part, o.again, slog.LevelInfo)
}

// Forget reports that a part is no longer needed, whether it works or not.
func (o *Outage) Forget(part string) { o.remove(part, "nothing fails any more", slog.LevelInfo) }

// GiveUp reports that a part has failed and will not be retried.
func (o *Outage) GiveUp(part string) { o.remove(part, "given up", slog.LevelDebug) }

// remove removes a part from those that fail. If that ends the outage, or if it was the last part that failed, it logs
// a line at this level. outcome is how the failure of the part ended.
func (o *Outage) remove(part, outcome string, level slog.Level) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.failing[part]
	if p == nil {
		return
	}
	delete(o.failing, part)
	if p.isChronic {
		o.chronic--
	}
	stillFailing := len(o.failing)
	onlyChronicFail := o.phase != quiet && stillFailing == o.chronic
	if stillFailing > 0 && !onlyChronicFail {
		return
	}
	if o.phase == begun {
		level = slog.LevelDebug
		if !o.wasMuted {
			o.unannounced++
		}
	}
	text := o.subject + ": " + outcome + " after " + rounded(o.tookLocked(p)).String()
	switch {
	case stillFailing == 1:
		text += ", but 1 still fails"
	case stillFailing > 1:
		text += fmt.Sprintf(", but %d still fail", stillFailing)
	}
	o.log.Log(context.Background(), level, text, append(slices.Clone(o.args), "failed_tries", o.tries)...)
	o.phase = quiet
	o.tries = 0
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

// Problem is what fails at present.
type Problem struct {
	Text string // the problem and the error of the newest failure
	Err  error  // that error
}

// Problem returns the newest failure of the parts that fail now. isFailing is false if all of them work.
func (o *Outage) Problem() (now Problem, isFailing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	newest := o.newestLocked()
	if newest == nil {
		return Problem{}, false
	}
	return Problem{Text: newest.problem + ": " + newest.err.Error(), Err: newest.err}, true
}

// newestLocked returns the part that failed last, or nil if none fails.
func (o *Outage) newestLocked() (newest *failingPart) {
	for _, p := range o.failing {
		if newest == nil || p.at.After(newest.at) {
			newest = p
		}
	}
	return newest
}

// Failing returns how many parts fail now.
func (o *Outage) Failing() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.failing)
}

// Stop ends the reminders. Call it when nothing is retried any more, as at the end of the process.
func (o *Outage) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isStopped = true
}

// ServerOutage logs that a server is away: one line each minute. While it does, the Outages that it mutes do not log
// that they get no answer, either: see Outage.MutedBy.
type ServerOutage struct {
	*Outage // It has one part.
	isAway  func(err error) bool
}

// serverPart is the only part of a ServerOutage.
const serverPart = "server"

// NewServerOutage makes a ServerOutage. isAway reports whether an error says that the server is away. details returns
// further attributes of a line; it must not call an Outage.
func NewServerOutage(log *slog.Logger, isAway func(err error) bool, details func() []any) *ServerOutage {
	s := &ServerOutage{NewOutage(log, "API server", "reached again"), isAway}
	s.details = details
	return s
}

// Failed reports that the server has not answered.
func (s *ServerOutage) Failed(err error) {
	s.Outage.Failed(serverPart, "the API server cannot be reached", time.Minute, err)
}

// Worked reports that the server has answered.
func (s *ServerOutage) Worked() { s.Outage.Worked(serverPart) }

// MutedBy makes an Outage log nothing above the debug level while its newest failure says that a server is away, and
// the ServerOutage says that, too. It returns the Outage. Call it before the first failure.
func (o *Outage) MutedBy(s *ServerOutage) *Outage {
	o.server = s
	return o
}

// isMuted reports whether a failure need not be logged, because a ServerOutage logs that the server is away.
func (o *Outage) isMuted(p *failingPart) bool {
	return o.server != nil && o.server.isAway(p.err) && o.server.Failing() > 0
}
