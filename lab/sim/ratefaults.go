package sim

import (
	"fmt"
	"time"

	"podcount/lab/fakekube"
)

// rateFaults returns the faults that last for a while, and let some requests through all that time.
func rateFaults() []step {
	lasts := span{10 * time.Second, 10 * time.Minute}
	return []step{
		{
			name:   "half of all answers are 429",
			weight: 2,
			do:     answersRefused{lasts: lasts, share: 0.5}.strike,
		},
		{
			name:   "all answers are late",
			weight: 2,
			do:     answersLate{lasts: lasts, by: 5 * time.Second}.strike,
		},
		{
			name:   "slow network",
			weight: 2,
			do:     networkSlow{lasts: lasts, bytesPerSecond: 20_000}.strike,
			reach:  oneProcess,
		},
		{
			name:   "connections are cut",
			weight: 2,
			do:     connectionsCut{lasts: lasts, age: 30 * time.Second}.strike,
			reach:  oneProcess,
		},
	}
}

// answersRefused refuses a share of all requests for a while, as API Priority and Fairness does when others overload
// the server.
type answersRefused struct {
	lasts span
	share float64 // from 0 to 1
}

func (f answersRefused) strike(s *sim) string {
	d := s.drawAndNoteLength(f.lasts)
	tooMany := tooManyRequests()
	fault := tooMany.outcome.fault
	fault.Rate = f.share
	fault.Seed = s.dice.Uint64()
	fault.Times = fakekube.Always
	fault.Met = func(q fakekube.Request) { s.noteOutcome(q, tooMany) }
	s.later(d, s.fake.InjectUnchecked(fault).Lift)
	return fmt.Sprintf("OF ALL ANSWERS %.0f %% ARE 429 for %v", 100*f.share, d)
}

// tooManyRequests returns the refusal of any request with a 429, whose Retry-After asks to wait for a second.
func tooManyRequests() requestFault {
	fault := refusal(429, "TooManyRequests", fakekube.Object{"retryAfterSeconds": 1}, "Retry-After", "1")
	return requestFault{
		class:   requestClass{name: "requests", match: func(fakekube.Request) bool { return true }},
		outcome: outcome{name: "429, with Retry-After: 1", fault: fault},
	}
}

// answersLate delays all answers for a while, as when etcd's disk is slow.
type answersLate struct {
	lasts span
	by    time.Duration
}

func (f answersLate) strike(s *sim) string {
	d := s.drawAndNoteLength(f.lasts)
	late := s.fake.InjectUnchecked(fakekube.Fault{Times: fakekube.Always, Delay: f.by})
	s.later(d, late.Lift)
	s.extendBound(f.by)
	return fmt.Sprintf("ALL ANSWERS ARE LATE, by %v for %v", f.by, d)
}

// networkSlow limits the speed of the network of one process for a while, as when a mobile connection is bad.
type networkSlow struct {
	lasts          span
	bytesPerSecond int
}

func (f networkSlow) strike(s *sim) string {
	p := s.target.p
	d := s.drawAndNoteLength(f.lasts)
	p.link.setSpeed(f.bytesPerSecond)
	s.later(d, func() { p.link.setSpeed(0) })
	return fmt.Sprintf("NETWORK OF r%d SLOW for %v: %d bytes a second", p.slot, d, f.bytesPerSecond)
}

// connectionsCut cuts each connection of one process when it reaches an age, for a while, as a proxy does that allows
// no long requests.
type connectionsCut struct {
	lasts span
	age   time.Duration
}

func (f connectionsCut) strike(s *sim) string {
	p := s.target.p
	d := s.drawAndNoteLength(f.lasts)
	s.cutOldConnections(p, f.age)
	s.later(d, func() { p.link.setMaxAge(0) })
	return fmt.Sprintf("CONNECTIONS OF r%d ARE CUT after %v, for %v", p.slot, f.age, d)
}

// cutOldConnections cuts each connection of a process when it reaches an age, within a second, until the link has no
// such limit any more. It returns at once.
func (s *sim) cutOldConnections(p *proc, age time.Duration) {
	p.link.setMaxAge(age)
	s.running.Go(func() {
		for s.pause(time.Second) && p.link.hasMaxAge() {
			s.disturb(p, (*link).cutOld)
		}
	})
}
