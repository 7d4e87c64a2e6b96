package trial

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"podcount/lab/fakekube"
)

// noticeEnd ends the row if a program has ended by itself. In rows with an election it may: it is how most programs
// give up the lead.
func (s *scene) noticeEnd(p *instance) {
	how := p.process.ending()
	switch {
	case how == "" || s.mayEnd:
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

// noticeConnections notes when connections were opened.
func (s *scene) noticeConnections() {
	dialed := 0
	for _, p := range s.instances {
		dialed += p.net.Dialed()
	}
	for len(s.dialedAt) < dialed {
		s.dialedAt = append(s.dialedAt, time.Now())
	}
}

// noticeFalseNumber notes the first number that never was true. It does so only while that proves something.
func (s *scene) noticeFalseNumber() {
	text := s.counting.falseNumber()
	if text == "" || s.falsehood != "" || !s.isJudged {
		return
	}
	s.falsehood = fmt.Sprintf("at second %.1f, %s", s.second(time.Now()), text)
	s.say("that is false: %s", text)
}

// sentAfter returns the selected requests that a program has sent after a time.
func (s *scene) sentAfter(begin time.Time, p *instance, on fakekube.Requests) []fakekube.Request {
	on.Host = p.host
	isEarly := func(q fakekube.Request) bool { return !q.At.After(begin) }
	return slices.DeleteFunc(s.fake.Received(on), isEarly)
}

// work selects the writes for the job.
var work = fakekube.Requests{If: func(q fakekube.Request) bool { return isWork(q.Route) }}

// mustNotWrite ends the row if a program writes while there is nothing to do.
func (s *scene) mustNotWrite(since time.Time) {
	for _, p := range s.instances {
		if n := len(s.sentAfter(since, p, work)); n > 0 {
			s.end(Needless, "the %s has sent %d writes in %s, although all was right",
				p.who, n, time.Since(since).Round(time.Second))
		}
	}
}

// mustBeCalm ends the row if a program writes, or asks very often, while there is nothing to do.
func (s *scene) mustBeCalm(d time.Duration) {
	begin := time.Now()
	s.pause(d)
	s.mustNotWrite(begin)
	asked := 0
	for _, p := range s.instances {
		asked += len(s.sentAfter(begin, p, fakekube.Requests{}))
	}
	if perSecond := float64(asked) / d.Seconds(); perSecond > calmRate {
		s.end(HotLoop, "%d requests in %s in which nothing has changed", asked, d)
	}
}

// calmRate is how many requests a second are too many while nothing changes. Two replicas that look at their Lease
// every 2 s send one.
const calmRate = 3

// mustNotPoll ends the row if a program lists all pods again and again while nothing changes.
func (s *scene) mustNotPoll(d time.Duration) {
	begin := time.Now()
	s.pause(d)
	isFirstPage := func(q fakekube.Request) bool { return !q.Query.Has("continue") }
	lists := fakekube.Requests{Verb: "relist", Resource: "pods", If: isFirstPage}
	for _, p := range s.instances {
		if n := len(s.sentAfter(begin, p, lists)); n > maxIdleLists {
			s.end(HotLoop, "it has listed all pods %d times in %s in which nothing has changed", n, d)
		}
	}
}

// maxIdleLists is generous: who watches lists nothing, and who begins each watch with a list should let it last.
const maxIdleLists = 2

// silence says since when the programs have sent nothing. It returns "" if they have sent something lately.
func (s *scene) silence() string {
	all := s.fake.Received(fakekube.Requests{})
	if len(all) == 0 {
		return "; and the program has sent no request at all"
	}
	last := all[len(all)-1].At
	if time.Since(last) < silenceToTell {
		return ""
	}
	return fmt.Sprintf("; and the last request came at second %.1f", s.second(last))
}

// silenceToTell is how long a program must have been silent for that to be a hint.
const silenceToTell = 20 * time.Second

// note says that no fault of the row has met anything. It returns "" if one has, or if there was none.
func (s *scene) note() string {
	if s.aims > 0 && s.hits.Load() == 0 {
		return "its fault met nothing"
	}
	return ""
}

// hotLoop says how a program has asked or connected too often. It returns "" if none has.
func (s *scene) hotLoop() string {
	for _, p := range s.instances {
		if rate, at := p.recorder.highestRate(); rate > hotRate {
			return fmt.Sprintf("the %s has sent %.0f requests a second, from second %.1f on", p.who, rate, s.second(at))
		}
	}
	if rate, at := highestRate(s.dialedAt); rate > hotRate {
		return fmt.Sprintf("there were %.0f connections a second, from second %.1f on", rate, s.second(at))
	}
	return ""
}

// election is what is known about the Lease of a row.
type election struct {
	mu        sync.Mutex // guards the fields below
	holders   map[string]*instance
	intrusion string // how a program has written while it did not hold the Lease; "" if none has
}

// noteLease learns who holds the Lease, and notices a write to a node by someone else. It is called after each write
// of a program that has succeeded, on the request's goroutine.
func (s *scene) noteLease(p *instance, rt fakekube.Route) {
	holder := s.cluster.holder()
	e := &s.election
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case rt.Resource == "leases" && holder != "" && e.holders[holder] == nil:
		e.holders[holder] = p
		s.timeline.add("server", "the Lease is held by %q, which is the %s", holder, p.who)
	case rt.Resource == "nodes" && e.holders[holder] != p && e.intrusion == "":
		e.intrusion = fmt.Sprintf("the %s has written to a node at second %.1f, while %s held the Lease",
			p.who, s.second(time.Now()), cmp.Or(holder, "nobody"))
	}
}

// checkLease ends the row if a program has written while another one held the Lease.
func (s *scene) checkLease() {
	s.election.mu.Lock()
	defer s.election.mu.Unlock()
	if s.election.intrusion != "" {
		s.end(Intruded, "%s", s.election.intrusion)
	}
}

// leader returns the program that holds the Lease. It ends the row if none does.
func (s *scene) leader() *instance {
	s.election.mu.Lock()
	defer s.election.mu.Unlock()
	leader := s.election.holders[s.cluster.holder()]
	if leader == nil {
		s.end(NoLease, "nobody holds the Lease %s", s.instances[0].Lease)
	}
	return leader
}
