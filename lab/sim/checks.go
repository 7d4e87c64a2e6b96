package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// These limits are for one process and one second.
const (
	// maxRepeats limits the requests with the same verb and path.
	maxRepeats = 15

	// maxFrequentRepeats replaces maxRepeats for Events, which have a rate limit of their own, and for watches, which
	// may end as soon as they begin.
	maxFrequentRepeats = 60

	// hotLoop is the number of requests that shows that a process never waits between them. While it does not wait,
	// virtual time stands still, and the simulation cannot end.
	hotLoop = 1000
)

// Asked checks a request against the rules. The fake calls it.
func (s *sim) Asked(q fakekube.Request) {
	lease := s.lease() // This locks the fake, so mu must not be locked yet.
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[q.Host]
	if p == nil || p.isDead {
		return
	}
	s.stats.requests++
	if !s.access.isUnchecked {
		s.checkAccessLocked(p, q)
	}
	s.checkRepetitionLocked(p, q)
	s.checkRetryAfterLocked(p, q)
	switch {
	case q.Resource == "leases":
		s.noteLeaseRequestLocked(p, q)
	case q.Verb == "watch":
		p.forgetRefusedQuestion(q)
		s.noteWatchRequestLocked(p, q)
		s.recordLocked("%s %s %s", p.host, q.Route, q.Query.Get("resourceVersion"))
	case q.Verb == "list":
		if isVersionQuestion(q) {
			p.askedAt[q.Resource] = time.Now()
		}
		s.recordLocked("%s %s %s", p.host, q.Route, q.Query.Get("resourceVersion"))
	case q.Method == http.MethodGet:
		// No rule is about other reads.
	case q.Resource == "events":
		s.checkForbiddenLocked(p, q)
		s.checkLeadsLocked(p, q, lease)
	default:
		s.checkForbiddenLocked(p, q)
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
func (s *sim) exitLocked(reason string) {
	endOfStory := strings.Join(s.story[max(0, len(s.story)-100):], "\n")
	s.keepHistoryLocked()
	fmt.Fprintf(os.Stderr, "%s in %s\n%s\n", reason, s.t.Name(), endOfStory)
	os.Exit(1)
}

// checkRetryAfterLocked checks that the process waits as long as Retry-After demands.
func (s *sim) checkRetryAfterLocked(p *proc, q fakekube.Request) {
	if q.Resource == "events" || q.Resource == "leases" {
		return
	}
	until := p.retryAfter[retryKey(q)]
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
	isLeader := holder == q.Host && s.leaderHost == q.Host && time.Since(s.leaderSentAt) < s.renewDeadline
	if !isLeader {
		renewed := s.leaderSentAt.Sub(s.began)
		s.breakRuleLocked(p, "writes without leading: the holder is %q, and %q has renewed last, at %v: %s",
			holder, s.leaderHost, renewed, q)
	}
}

// sentPatch has the fields of a write that the rules are about.
type sentPatch struct {
	Metadata struct {
		UID, ResourceVersion string
		Labels               fakekube.Object
	}
	Status fakekube.Object
}

// patchIn returns the patch in a write, without the fields that cannot be parsed.
func patchIn(q fakekube.Request) (patch sentPatch) {
	json.Unmarshal([]byte(q.Body), &patch)
	return patch
}

// checkWriteLocked checks a write to a node or a Count.
func (s *sim) checkWriteLocked(p *proc, q fakekube.Request) {
	s.stats.writes++
	s.lastWriteAt = time.Now()
	s.recordLocked("%s writes %s %s", p.host, q.Path, q.Body)
	if !p.hasList["pods"] || !p.hasList[q.Resource] {
		s.breakRuleLocked(p, "writes before its caches are complete")
	}
	patch := patchIn(q)
	if q.Verb != "patch" || patch.Metadata.UID == "" || patch.Metadata.ResourceVersion != "" {
		s.breakRuleLocked(p, "does not write by a patch with a uid and without a version: %s", q)
	}
	s.checkWriteIntervalLocked(p, q, patch)
	s.checkWriteIsNeededLocked(p, q, patch)
	s.checkKnowsElectionLocked(p, q)
}

// checkKnowsElectionLocked checks that a leader does not write from what was old already when it was elected: by its
// log, it has received each change of the pods, and of the resource that it writes, up to its election. A change that
// the watches have lost is not missed, because nothing tells the leader of it before the next list. A watch that lags
// is no excuse, because lists do not lag.
//
// A line of the log may arrive later than a request that was sent after it, but at the same moment. So what seems to be
// missing is looked for again when that moment is over.
func (s *sim) checkKnowsElectionLocked(p *proc, q fakekube.Request) {
	if s.missedBeforeElectionLocked(p, q) == "" {
		return
	}
	s.later(time.Nanosecond, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		missed := s.missedBeforeElectionLocked(p, q)
		if missed == "" || p.isDead {
			return
		}
		first, others, _ := strings.Cut(missed, ", ")
		s.breakRuleLocked(p, "writes, but was elected at version %d and has not received %s, nor %d later events: %s",
			p.electedAtVersion, first, strings.Count(others, ", "), q)
	})
}

// missedBeforeElectionLocked returns the events up to the election of a process that it has not received yet, of the
// pods and of the resource that it writes. It returns "" for a process that was not elected, and for a resource that
// the process has not listed since a backup was restored: then nobody knows which of the old versions it has received.
func (s *sim) missedBeforeElectionLocked(p *proc, write fakekube.Request) (events string) {
	for _, resource := range []string{"pods", write.Resource} {
		progress := p.progress[resource]
		if progress != nil && progress.upTo != 0 {
			events += s.changesBetweenLocked(resource, progress.upTo, p.electedAtVersion, "")
		}
	}
	return events
}

// checkWriteIntervalLocked checks that a write does not follow too soon after the answer to the last one.
func (s *sim) checkWriteIntervalLocked(p *proc, q fakekube.Request, patch sentPatch) {
	shortest := s.interval
	if q.Resource == "counts" {
		shortest = min(s.interval, s.MinStatusInterval)
	}
	answeredAt := p.writeAnsweredAt[writeID(q, patch.Metadata.UID)] // zero before the first write
	elapsed := time.Since(answeredAt)
	if elapsed < shortest {
		s.breakRuleLocked(p, "writes to %s again after only %v", keyIn(q), elapsed)
	}
}

// checkWriteIsNeededLocked checks that a write changes the object as the process knows it. The process may have decided
// on the write before it read the object: if it has received the object at this very moment, if it has not read the
// object yet, or if net/http retries the write. After a 401, the process sends the same write again.
func (s *sim) checkWriteIsNeededLocked(p *proc, q fakekube.Request, patch sentPatch) {
	known := p.knows[objectID(q.Resource, keyIn(q))]
	if known == nil || p.mayBeStale[q.Resource] {
		return
	}
	isSameObject := fakekube.TextIn(fakekube.MetaOf(known.object), "uid") == patch.Metadata.UID
	earliestDecision := time.Now().Add(-s.maxAgeLocked(p, q))
	mayBeDecidedEarlier := !known.at.Before(earliestDecision)
	isUnread := s.mayBeUnreadLocked(p, q.Resource, known.at)
	isRepeated := p.refusedNow(q) != nil // after a 401, with another credential
	if !isSameObject || mayBeDecidedEarlier || isUnread || isRepeated {
		return
	}
	if !patch.changes(known.object, q.Resource) {
		since := known.at.Sub(s.began)
		s.breakRuleLocked(p, "writes to %s what is already there, as it has known since %v", keyIn(q), since)
	}
}

// mayBeUnreadLocked reports whether the process may not yet have read an event that reached it at this time, because it
// has asked for the newest version first.
func (s *sim) mayBeUnreadLocked(p *proc, resource string, at time.Time) bool {
	askedAt, hasAsked := p.askedAt[resource]
	arrivedAfterQuestion := hasAsked && !at.Before(askedAt)
	return arrivedAfterQuestion && time.Since(askedAt) <= s.LongestQuestion
}

// changes reports whether the patch changes an object: the labels of a node, or the status of a Count.
func (patch sentPatch) changes(o fakekube.Object, resource string) bool {
	got, _ := o["status"].(fakekube.Object)
	want := patch.Status
	if resource == "nodes" {
		got, _ = fakekube.MetaOf(o)["labels"].(fakekube.Object)
		want = patch.Metadata.Labels
	}
	for name, value := range want {
		if got[name] != value {
			return true
		}
	}
	return false
}

// Changed adds a change to the history. The fake calls it, and is locked.
func (s *sim) Changed(c fakekube.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = c.Version
	s.recordChangeLocked(c)
	s.history[c.Resource] = append(s.history[c.Resource], c)
	s.noteLifeLocked(c)
	if c.Resource == "leases" {
		s.noteLeaseChangeLocked(c)
	}
}

// noteLeaseChangeLocked checks a change of the lease, and notes when it was, unless the lease was only rewritten.
func (s *sim) noteLeaseChangeLocked(c fakekube.Change) {
	isRewrite := reflect.DeepEqual(c.Old["spec"], c.New["spec"])
	if isRewrite {
		return
	}
	s.checkTakeoverLocked(c)
	s.leaseChangedAt = time.Now()
}

// checkTakeoverLocked checks that no process takes a lease that another one has renewed in time.
func (s *sim) checkTakeoverLocked(c fakekube.Change) {
	oldSpec, _ := c.Old["spec"].(fakekube.Object)
	newSpec, _ := c.New["spec"].(fakekube.Object)
	oldHolder := fakekube.TextIn(oldSpec, "holderIdentity")
	newHolder := fakekube.TextIn(newSpec, "holderIdentity")
	taker := s.byHost[s.hostOf[newHolder]]
	if taker == nil || oldHolder == "" || oldHolder == newHolder {
		return
	}
	seconds, _ := oldSpec["leaseDurationSeconds"].(float64)
	elapsed := time.Since(s.leaseChangedAt)
	wasTamperedWith := time.Since(s.leaseTamperedAt) <= s.leaseDuration
	if elapsed.Seconds() < seconds && !wasTamperedWith {
		s.breakRuleLocked(taker, "takes the lease although %s renewed it only %v ago", oldHolder, elapsed)
	}
}
