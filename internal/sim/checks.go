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

// These are the most requests that one process may send in a second. Events have a rate limit of their own, and a watch
// may end as soon as it begins.
const (
	// maxRepeats limits the requests of one verb for one path.
	maxRepeats = 15

	// maxFrequentRepeats limits the Events, and the watches.
	maxFrequentRepeats = 60

	// hotLoop is the number after which a process is taken to send requests without ever waiting. Then virtual time
	// stands still, so that the simulation would never report the broken rule.
	hotLoop = 1000
)

// Asked checks a request against the rules. The fake calls it.
func (s *sim) Asked(q fakekube.Request) {
	lease := s.lease()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[q.Host]
	if p == nil || p.isDead {
		return
	}
	s.stats.requests++
	s.checkRepetitionLocked(p, q)
	s.checkRetryAfterLocked(p, q)
	switch {
	case q.Resource == "leases":
		s.noteLeaseRequestLocked(p, q)
	case q.Verb == "watch":
		s.noteWatchRequestLocked(p, q)
		s.recordLocked("%s %s %s", p.host, q.Route, q.Query.Get("resourceVersion"))
	case q.Verb == "list":
		s.recordLocked("%s %s %s", p.host, q.Route, q.Query.Get("resourceVersion"))
	case q.Method == http.MethodGet: // no rule is about other reads
	case q.Resource == "events":
		s.checkLeadsLocked(p, q, lease)
	default:
		s.checkLeadsLocked(p, q, lease)
		s.checkWriteLocked(p, q)
	}
}

// checkRepetitionLocked checks that the process does not repeat a request too often within a second.
func (s *sim) checkRepetitionLocked(p *proc, q fakekube.Request) {
	second := time.Now().Unix()
	if p.countedSecond != second {
		p.countedSecond = second
		clear(p.requestsInSecond)
	}
	call := q.Verb + " " + q.Path
	p.requestsInSecond[call]++
	most := maxRepeats
	if q.Resource == "events" || q.Verb == "watch" {
		most = maxFrequentRepeats
	}
	if p.requestsInSecond[call] > most {
		s.breakRuleLocked(p, "repeats a request too often: %s", q)
	}
	if p.requestsInSecond[call] > hotLoop {
		s.exitLocked("a hot loop")
	}
}

// exitLocked ends the whole test process. The test itself cannot be ended, because it waits for virtual time to pass,
// and the caller is a goroutine of the server.
func (s *sim) exitLocked(why string) {
	end := s.story[max(0, len(s.story)-100):]
	fmt.Fprintln(os.Stderr, why+" in "+s.t.Name()+"; "+strings.Join(end, "\n"))
	os.Exit(1)
}

// checkRetryAfterLocked checks that the process waits as long as Retry-After demands.
func (s *sim) checkRetryAfterLocked(p *proc, q fakekube.Request) {
	if q.Resource == "events" || q.Resource == "leases" {
		return
	}
	until := p.retryAfter[q.Method+q.Path]
	if time.Now().Before(until) {
		s.breakRuleLocked(p, "does not wait until %v, as Retry-After demands: %s", until.Sub(s.began), q)
	}
}

// noteLeaseRequestLocked notes the identity with which a process requests the lease, and the time.
func (s *sim) noteLeaseRequestLocked(p *proc, q fakekube.Request) {
	holder := holderIn([]byte(q.Body))
	if holder == "" {
		return
	}
	s.hostOf[holder] = q.Host
	p.leaseSentAt = time.Now()
}

// holderIn returns the holder of a lease in JSON.
func holderIn(lease []byte) string {
	var l struct {
		Spec struct{ HolderIdentity string }
	}
	json.Unmarshal(lease, &l)
	return l.Spec.HolderIdentity
}

// checkLeadsLocked checks that only the leader writes, and only within the renew deadline. Without an election, each
// process may write.
func (s *sim) checkLeadsLocked(p *proc, q fakekube.Request, lease fakekube.Object) {
	if !s.elects() || time.Since(s.leaseTamperedAt) <= s.renewDeadline {
		return
	}
	holder := s.hostOf[fakekube.TextIn(lease, "holderIdentity")]
	leads := holder == q.Host && s.leaderHost == q.Host && time.Since(s.leaderSentAt) < s.renewDeadline
	if !leads {
		since := s.leaderSentAt.Sub(s.began)
		s.breakRuleLocked(p, "writes without leading: the holder is %q, and %q has renewed last, at %v: %s",
			holder, s.leaderHost, since, q)
	}
}

// sentPatch is what the simulation reads from a write.
type sentPatch struct {
	Metadata struct {
		UID, ResourceVersion string
		Labels               fakekube.Object
	}
	Status fakekube.Object
}

// checkWriteLocked checks a write: the process has complete lists, the write is a patch with a uid and without a
// version, it does not follow the last one too soon, and it changes something.
func (s *sim) checkWriteLocked(p *proc, q fakekube.Request) {
	now := time.Now()
	s.stats.writes++
	s.lastWriteAt = now
	s.recordLocked("%s writes %s %s", p.host, q.Path, q.Body)
	if !p.hasList["pods"] || !p.hasList[q.Resource] {
		s.breakRuleLocked(p, "writes before its caches are complete")
	}

	var patch sentPatch
	json.Unmarshal([]byte(q.Body), &patch)
	uid := patch.Metadata.UID
	if uid == "" || patch.Metadata.ResourceVersion != "" || q.Verb != "patch" {
		s.breakRuleLocked(p, "does not write by a patch with a uid and without a version: %s", q)
	}

	rest := s.interval
	if q.Resource == "counts" {
		rest = min(rest, s.MinStatusInterval)
	}
	key := q.Resource + "/" + objectOf(q)
	past := now.Sub(p.writeAnsweredAt[key+" "+uid])
	if past < rest {
		s.breakRuleLocked(p, "writes to %s again after only %v", objectOf(q), past)
	}

	known := p.knows[key]
	if known == nil || fakekube.TextIn(fakekube.MetaOf(known.object), "uid") != uid || p.mayBeStale[q.Resource] {
		return
	}
	if !patch.changes(known.object, q.Resource) && known.at.Before(now) {
		since := known.at.Sub(s.began)
		s.breakRuleLocked(p, "writes to %s what it has known to be there since %v", objectOf(q), since)
	}
}

// objectOf returns the key of the object that a request is about.
func objectOf(q fakekube.Request) string {
	return key{Namespace: q.Namespace, Name: q.Name}.String()
}

// changes reports whether the patch changes an object: the labels of a node, or the status of a Count.
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

// Changed notes a change, and checks that no process takes a lease that another one has renewed in time. The fake calls
// it, and is locked.
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
	past := time.Since(s.leaseChangedAt)
	isHeld := holder != "" && holder != next && past.Seconds() < seconds
	p := s.byHost[s.hostOf[next]]
	if p != nil && isHeld && time.Since(s.leaseTamperedAt) > s.leaseDuration {
		s.breakRuleLocked(p, "takes the lease although %s renewed it only %v ago", holder, past)
	}
	s.leaseChangedAt = time.Now()
}
