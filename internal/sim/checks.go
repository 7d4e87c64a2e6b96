package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"podcount/internal/fakekube"
)

// What one process may ask within a second. Events have a bucket of their own, and a watch may end at once.
const (
	mostCalls  = 15 // of one verb, for one path
	mostEvents = 60 // and watches

	// hotLoop is the number after which a process is taken to ask without ever waiting. Virtual time stands still then:
	// the rule that it breaks would be noted, but the simulation would never come to look.
	hotLoop = 1000
)

// Asked holds a request against the rules.
func (s *sim) Asked(q fakekube.Request) {
	lease := s.lease()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[q.Host]
	if p == nil || p.isDead {
		return
	}
	s.stats.requests++
	s.checkPaceLocked(p, q)
	switch {
	case q.Resource == "leases":
		s.noteLeaseAskedLocked(p, q)
	case q.Verb == "watch":
		s.noteWatchAskedLocked(p, q)
		s.sayLocked("%s %s %s", p.host, q.Route, q.Query.Get("resourceVersion"))
	case q.Verb == "list":
		s.sayLocked("%s %s %s", p.host, q.Route, q.Query.Get("resourceVersion"))
	case q.Method == http.MethodGet: // nothing else to check
	case q.Resource == "events":
		s.checkLeadsLocked(p, q, lease)
	default:
		s.checkLeadsLocked(p, q, lease)
		s.checkWriteLocked(p, q)
	}
}

// checkPaceLocked: no request comes again and again, and none before the time that the server has named.
func (s *sim) checkPaceLocked(p *proc, q fakekube.Request) {
	now := time.Now()
	if p.busySince != now.Unix() {
		p.busySince = now.Unix()
		clear(p.busy)
	}
	call := q.Verb + " " + q.Path
	p.busy[call]++
	most := mostCalls
	if q.Resource == "events" || q.Verb == "watch" {
		most = mostEvents
	}
	if p.busy[call] > most {
		s.breakLocked(p, "asks again and again: %s", q)
	}
	if p.busy[call] > hotLoop {
		// Nothing else ends the test: it waits for time to pass, and this is a goroutine of the server's.
		end := s.story[max(0, len(s.story)-100):]
		fmt.Fprintln(os.Stderr, "a hot loop in "+s.t.Name()+"; "+strings.Join(end, "\n"))
		os.Exit(1)
	}
	until := p.mustWait[q.Method+q.Path]
	if now.Before(until) && q.Resource != "events" && q.Resource != "leases" {
		s.breakLocked(p, "does not wait until %v (Retry-After): %s", until.Sub(s.began), q)
	}
}

// noteLeaseAskedLocked notes by which name a process asks for the lease, and when.
func (s *sim) noteLeaseAskedLocked(p *proc, q fakekube.Request) {
	holder := holderIn([]byte(q.Body))
	if holder == "" {
		return
	}
	s.hostOf[holder] = q.Host
	p.leaseSent = time.Now()
}

// holderIn is the holder of a lease in JSON.
func holderIn(lease []byte) string {
	var l struct {
		Spec struct{ HolderIdentity string }
	}
	json.Unmarshal(lease, &l)
	return l.Spec.HolderIdentity
}

// checkLeadsLocked: with an election, the leader alone writes, and only until the deadline for renewing its lease.
func (s *sim) checkLeadsLocked(p *proc, q fakekube.Request, lease fakekube.Object) {
	if !s.elects() || time.Since(s.leaseTampered) <= s.renewDeadline {
		return
	}
	holder := s.hostOf[fakekube.TextIn(lease, "holderIdentity")]
	leads := holder == q.Host && s.leaderHost == q.Host && time.Since(s.leaderAsked) < s.renewDeadline
	if !leads {
		since := s.leaderAsked.Sub(s.began)
		s.breakLocked(p, "does not lead, as %s does (%s since %v): %s", holder, s.leaderHost, since, q)
	}
}

// sentPatch is what the simulation reads of a write.
type sentPatch struct {
	Metadata struct {
		UID, ResourceVersion string
		Labels               fakekube.Object
	}
	Status fakekube.Object
}

// checkWriteLocked: a write comes after complete lists, is a patch with a uid and without a version, comes some time
// after the one before, and changes something.
func (s *sim) checkWriteLocked(p *proc, q fakekube.Request) {
	now := time.Now()
	s.stats.writes++
	s.wroteAt = now
	s.sayLocked("%s writes %s %s", p.host, q.Path, q.Body)
	if !p.hasList["pods"] || !p.hasList[q.Resource] {
		s.breakLocked(p, "writes before its caches are complete")
	}

	var patch sentPatch
	json.Unmarshal([]byte(q.Body), &patch)
	uid := patch.Metadata.UID
	if uid == "" || patch.Metadata.ResourceVersion != "" || q.Verb != "patch" {
		s.breakLocked(p, "writes without a uid, or with a version: %s", q)
	}

	rest := s.interval
	if q.Resource == "counts" {
		rest = min(rest, s.StatusRest)
	}
	key := q.Resource + "/" + objectOf(q)
	past := now.Sub(p.wrote[key+" "+uid])
	if past < rest {
		s.breakLocked(p, "writes to %s again after %v", objectOf(q), past)
	}

	known := p.knows[key]
	if known == nil || fakekube.TextIn(fakekube.MetaOf(known.object), "uid") != uid || p.isBlind[q.Resource] {
		return
	}
	if !patch.changes(known.object, q.Resource) && known.at.Before(now) {
		since := known.at.Sub(s.began)
		s.breakLocked(p, "writes to %s what it knows, since %v, to be there", objectOf(q), since)
	}
}

// objectOf names the object that a request is about.
func objectOf(q fakekube.Request) string {
	return key{Namespace: q.Namespace, Name: q.Name}.String()
}

// changes reports whether an object is another one with the patch: a node by its labels, a Count by its status.
func (patch sentPatch) changes(o fakekube.Object, resource string) bool {
	has, _ := o["status"].(fakekube.Object)
	want := patch.Status
	if resource == "nodes" {
		has, _ = fakekube.MetaOf(o)["labels"].(fakekube.Object)
		want = patch.Metadata.Labels
	}
	for k, v := range want {
		if has[k] != v {
			return true
		}
	}
	return false
}

// Changed notes a change. A lease is not taken from a process that has renewed it. The fake is locked.
func (s *sim) Changed(c fakekube.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = c.Version
	s.history[c.Resource] = append(s.history[c.Resource], c)
	if c.Resource != "leases" {
		return
	}
	was, _ := c.Old["spec"].(fakekube.Object)
	is, _ := c.New["spec"].(fakekube.Object)
	holder := fakekube.TextIn(was, "holderIdentity")
	next := fakekube.TextIn(is, "holderIdentity")
	seconds, _ := was["leaseDurationSeconds"].(float64)
	past := time.Since(s.leaseRenewed)
	isHeld := holder != "" && holder != next && past.Seconds() < seconds
	p := s.byHost[s.hostOf[next]]
	if p != nil && isHeld && time.Since(s.leaseTampered) > s.leaseDuration {
		s.breakLocked(p, "takes a lease that %s has renewed %v ago", holder, past)
	}
	s.leaseRenewed = time.Now()
}
