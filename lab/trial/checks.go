package trial

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// noticeEnd ends the row if a program has ended by itself. With others beside it, it may: it is how most programs give
// up the lead.
func (s *scene) noticeEnd(p *instance) {
	how := p.process.ending()
	switch {
	case how == "":
	case s.row.needs&needsElection == 0:
		s.end(Exited, "the %s has exited: %s", p.who, how)
	case !p.isGone:
		p.isGone = true
		s.timeline.add(p.who, "has exited: %s", how)
	}
}

// noticeLabels adds the labels that have changed to the timeline.
func (s *scene) noticeLabels() {
	now := s.cluster.labels()
	for _, node := range slices.Sorted(maps.Keys(now)) {
		if now[node] != s.seen[node] {
			s.timeline.add("server", "the label of %s is %q", node, now[node])
		}
	}
	s.seen = now
}

// mustBeCalm ends the row if a program writes, or asks very often, while there is nothing to do.
func (s *scene) mustBeCalm(d time.Duration) {
	begin := time.Now()
	before := s.requests()
	s.pause(d)
	for _, p := range s.instances {
		if n := p.recorder.workSince(begin); n > 0 {
			s.end(Needless, "the %s has sent %d writes in %s, although all was right", p.who, n, d)
		}
	}
	asked := s.requests() - before
	if perSecond := float64(asked) / d.Seconds(); perSecond > calmRate {
		s.end(HotLoop, "%d requests in %s in which nothing has changed", asked, d)
	}
}

// mustNotPoll ends the row if a program lists all pods again and again while nothing changes.
func (s *scene) mustNotPoll(d time.Duration) {
	begin := time.Now()
	s.pause(d)
	for _, p := range s.instances {
		if n := p.recorder.listsSince(begin); n > maxIdleLists {
			s.end(HotLoop, "it has listed all pods %d times in %s in which nothing has changed", n, d)
		}
	}
}

// maxIdleLists is generous: who watches lists nothing, and who begins each watch with a list should let it last.
const maxIdleLists = 2

// calmRate is how many requests a second are too many while nothing changes. Two replicas that look at their Lease
// every 2 s send one.
const calmRate = 3

// lastRequest returns when the last request of a program has begun; zero if there was none.
func (s *scene) lastRequest() (last time.Time) {
	for _, p := range s.instances {
		if times := p.recorder.times(); len(times) > 0 && times[len(times)-1].After(last) {
			last = times[len(times)-1]
		}
	}
	return last
}

// note says that no fault of the row has met anything. It returns "" if one has, or if there was none.
func (s *scene) note() string {
	if s.aims > 0 && s.hits.Load() == 0 {
		return "its fault met nothing"
	}
	return ""
}

// requests returns how many requests there were so far.
func (s *scene) requests() (n int) {
	for _, p := range s.instances {
		n += p.recorder.count()
	}
	return n
}

// hotLoop says how a program has asked or connected too often. It returns "" if none has.
func (s *scene) hotLoop() string {
	second := func(at time.Time) float64 { return at.Sub(s.timeline.began).Seconds() }
	for _, p := range s.instances {
		if rate, at := highestRate(p.recorder.times()); rate > hotRate {
			return fmt.Sprintf("the %s has sent %.0f requests a second, from second %.1f on", p.who, rate, second(at))
		}
	}
	if rate, at := highestRate(s.dialedAt); rate > hotRate {
		return fmt.Sprintf("there were %.0f connections a second, from second %.1f on", rate, second(at))
	}
	return ""
}

// checkLease ends the row if a program has written while another one held the Lease.
func (s *scene) checkLease() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.intrusion != "" {
		s.end(Intruded, "%s", s.intrusion)
	}
}

// answered is called after each request of a program, on the request's goroutine.
func (s *scene) answered(p *instance, q *http.Request, code int) {
	if isWrite(q) && code < 300 {
		s.noteLease(p, q)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// noteLease learns who holds the Lease, and notices a write to a node by someone else.
func (s *scene) noteLease(p *instance, q *http.Request) {
	if !s.trial.program.Elects || s.row.needs&needsElection == 0 {
		return
	}
	holder := s.cluster.holder()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case strings.Contains(q.URL.Path, "/leases"):
		if holder != "" && s.holders[holder] == nil {
			s.holders[holder] = p
			s.timeline.add("server", "the Lease is held by %q, which is the %s", holder, p.who)
		}
	case strings.Contains(q.URL.Path, "/nodes/") && s.holders[holder] != p && s.intrusion == "":
		s.intrusion = fmt.Sprintf("the %s has written to a node at second %.1f, while %s held the Lease",
			p.who, time.Since(s.timeline.began).Seconds(), cmp.Or(holder, "nobody"))
	}
}

// leader returns the program that holds the Lease.
func (s *scene) leader() *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holders[s.cluster.holder()]
}
