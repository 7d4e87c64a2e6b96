package logging

import (
	"slices"
	"time"
)

const (
	// At most maxAnnounced outages are announced within announceSpan.
	maxAnnounced = 5
	announceSpan = 5 * time.Minute

	// A part that has failed for chronicAfter, while others worked, is chronic.
	chronicAfter = 10 * time.Minute

	// If a failing part has not failed again for maxTryInterval, it is no longer retried. This is longer than the time
	// between any two failures, which is at most a backoff of a minute and a dial of half a minute.
	maxTryInterval = 2 * time.Minute
)

// outageState decides when an Outage logs a line, but does not log. The caller of its methods must hold Outage.mu.
type outageState struct {
	failing   map[string]*failingPart // by name
	chronic   int                     // how many of the failing parts are chronic
	changedAt time.Time               // when a part last began or stopped failing
	workedAt  time.Time               // when a try of any part last succeeded

	// The outage is on while any part fails that is not chronic.
	isOn        bool
	beganAt     time.Time
	isAnnounced bool
	wasMuted    bool // a failure of it was not announced, because the server was away
	tries       int  // how many tries have failed since it began or, if it is not on, since the last one ended

	// An announcement is the line at the beginning of an outage.
	announcedAt []time.Time // the times of the announcements within announceSpan
	unannounced int         // how many outages have ended without an announcement since the last announcement

	// A reminder is a line that says that something still fails.
	remindAt time.Time     // when the next reminder is due, or zero
	pause    time.Duration // the time from the previous line to the next reminder
}

// failingPart is a part that fails now.
type failingPart struct {
	failure   // the newest failure
	since     time.Time
	isChronic bool
}

// failure is one failed try: its time, and the arguments of Outage.Failed.
type failure struct {
	at      time.Time
	problem string
	args    []any
	pause   time.Duration
}

// err returns the error among the attributes of the failure, or nil if there is none.
func (f failure) err() error {
	for _, arg := range f.args {
		if err, isError := arg.(error); isError {
			return err
		}
	}
	return nil
}

// addFailure records that a try of a part has failed. That may begin an outage.
func (s *outageState) addFailure(name string, f failure) {
	part := s.failing[name]
	if part == nil {
		part = &failingPart{since: f.at}
		s.failing[name] = part
		s.changedAt = f.at
	}
	part.failure = f
	if !s.isOn && !part.isChronic {
		s.isOn = true
		s.beganAt = f.at
		s.isAnnounced = false
		s.wasMuted = false
		s.tries = 0
	}
	s.tries++
}

// mayAnnounce reports whether the outage has not been announced yet, and may be now.
func (s *outageState) mayAnnounce(now time.Time) bool {
	if !s.isOn || s.isAnnounced {
		return false
	}
	isOld := func(at time.Time) bool { return now.Sub(at) >= announceSpan }
	s.announcedAt = slices.DeleteFunc(s.announcedAt, isOld)
	return len(s.announcedAt) < maxAnnounced
}

// announce records that the outage is announced now, and returns how many outages before it were not.
func (s *outageState) announce(now time.Time) (unannounced int) {
	unannounced = s.unannounced
	s.unannounced = 0
	s.announcedAt = append(s.announcedAt, now)
	s.isAnnounced = true
	s.planReminder(now)
	return unannounced
}

// isReminderOverdue reports whether a new failure must be logged now, although the next reminder is not due yet. That
// reminder may be far away because an earlier failure had a long pause. It is overdue if the new failure has a shorter
// pause, which is over.
func (s *outageState) isReminderOverdue(now time.Time, pause time.Duration) bool {
	if s.remindAt.IsZero() || pause >= s.pause {
		return false
	}
	lastLineAt := s.remindAt.Add(-s.pause)
	return now.Sub(lastLineAt) >= pause
}

// recordReminder records that a reminder is due now, and plans the next one. There is nothing to log if isStillTried is
// false, because no failing part has been tried for a while.
func (s *outageState) recordReminder(now time.Time) (isStillTried bool) {
	s.markChronic(now)
	s.planReminder(now)
	return now.Sub(s.newest().at) < maxTryInterval
}

// markChronic marks all failing parts as chronic, which ends the outage without a log line. It does so only if the same
// parts have failed for chronicAfter, and others have worked since the outage began.
func (s *outageState) markChronic(now time.Time) {
	othersWork := s.workedAt.After(s.beganAt)
	isStable := now.Sub(s.changedAt) >= chronicAfter
	if !s.isOn || !othersWork || !isStable {
		return
	}
	for _, part := range s.failing {
		part.isChronic = true
	}
	s.chronic = len(s.failing)
	s.isOn = false
}

func (s *outageState) planReminder(now time.Time) {
	s.pause = s.newest().pause
	s.remindAt = now.Add(s.pause)
}

// outageEnd describes an outage that is over.
type outageEnd struct {
	took         time.Duration
	tries        int // how many tries have failed
	stillFailing int // how many chronic parts still fail
	wasAnnounced bool
}

// remove records that a part no longer fails. isOver is true if that ends the outage, or if it was the last failing
// part and chronic.
func (s *outageState) remove(name string, now time.Time) (end outageEnd, isOver bool) {
	part := s.failing[name]
	if part == nil {
		return outageEnd{}, false
	}
	delete(s.failing, name)
	s.changedAt = now
	if part.isChronic {
		s.chronic--
	}
	nothingFails := len(s.failing) == 0
	onlyChronicFail := s.isOn && len(s.failing) == s.chronic
	if !nothingFails && !onlyChronicFail {
		return outageEnd{}, false
	}
	if nothingFails {
		s.remindAt = time.Time{}
	}
	end = outageEnd{
		took:         now.Sub(s.failingSince(part)),
		tries:        s.tries,
		stillFailing: len(s.failing),
		wasAnnounced: !s.isOn || s.isAnnounced,
	}
	if !end.wasAnnounced && !s.wasMuted {
		s.unannounced++
	}
	s.isOn = false
	s.tries = 0
	return end, true
}

// newest returns the part that failed last. At least one must fail.
func (s *outageState) newest() (newest *failingPart) {
	for _, part := range s.failing {
		if newest == nil || part.at.After(newest.at) {
			newest = part
		}
	}
	return newest
}

// failingSince returns the time from which a log line about a part counts: the beginning of the outage or, if only
// chronic parts fail, the beginning of the part's own failure.
func (s *outageState) failingSince(part *failingPart) time.Time {
	if s.isOn {
		return s.beganAt
	}
	return part.since
}
