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

	// A part that has not failed for maxTryTime is not tried any more. It is longer than the time between two tries of
	// anything: a backoff of a minute and a dial of half a minute.
	maxTryTime = 2 * time.Minute
)

// outageState is what an Outage remembers. It decides when the log gets a line, but does not log. Its methods get the
// time from the caller, who holds Outage.mu.
type outageState struct {
	failing   map[string]*failingPart // by name
	chronic   int                     // how many of the failing parts are chronic
	changedAt time.Time               // when a part last began or ceased to fail
	workedAt  time.Time               // when a try of any part last succeeded

	// The outage. It is on while a part fails that is not chronic.
	isOn        bool
	beganAt     time.Time
	isAnnounced bool
	tries       int // how many tries have failed since it began; if it is not on, since the last one ended

	// Announcements are the lines about the beginning of an outage.
	announcedAt []time.Time // those within the last announceSpan
	unannounced int         // how many outages since the last one have ended without any

	// Reminders are the lines that say that something still fails.
	remindAt time.Time     // when the next one is due, zero if none is
	pause    time.Duration // the time from the line before to that one
}

// failingPart is a part that fails.
type failingPart struct {
	failure   // the newest one
	since     time.Time
	isChronic bool
}

// failure is a try that failed. The fields are those of Outage.Failed.
type failure struct {
	at      time.Time
	problem string
	args    []any
	pause   time.Duration
}

// addFailure notes that a try of a part has failed. That may begin an outage.
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

// announce notes that the outage is announced, and returns how many before it were not.
func (s *outageState) announce(now time.Time) (unannounced int) {
	unannounced = s.unannounced
	s.unannounced = 0
	s.announcedAt = append(s.announcedAt, now)
	s.isAnnounced = true
	s.planReminder(now)
	return unannounced
}

// isReminderOverdue reports whether a new failure must be logged before the next reminder is due. That is so if the
// pause before that reminder is longer than the failure's own, and the failure's own has passed: the reminder waits for
// somebody to act, but what fails now may pass by itself.
func (s *outageState) isReminderOverdue(now time.Time, pause time.Duration) bool {
	if s.remindAt.IsZero() || pause >= s.pause {
		return false
	}
	lastLineAt := s.remindAt.Add(-s.pause)
	return now.Sub(lastLineAt) >= pause
}

// noteReminder notes that it is time for a reminder. isStillTried is false if no failing part has been tried for a
// while; then there is nothing to log.
func (s *outageState) noteReminder(now time.Time) (isStillTried bool) {
	s.markChronic(now)
	s.planReminder(now)
	return now.Sub(s.newest().at) < maxTryTime
}

// markChronic makes all failing parts chronic if they have been the same ones for a while, and others have worked since
// the outage began. That ends the outage without a line.
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
	tries        int // how many have failed
	stillFailing int // how many chronic parts
	wasAnnounced bool
}

// remove notes that a part does not fail any more. isOver is true if that ends the outage, or if it was the last
// chronic part that failed.
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
		took:         now.Sub(s.beginOf(part)),
		tries:        s.tries,
		stillFailing: len(s.failing),
		wasAnnounced: !s.isOn || s.isAnnounced,
	}
	if !end.wasAnnounced {
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

// beginOf returns when what a line about this part is about began: the outage or, if only chronic parts fail, its own
// failure.
func (s *outageState) beginOf(part *failingPart) time.Time {
	if s.isOn {
		return s.beganAt
	}
	return part.since
}
