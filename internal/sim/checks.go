package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"podcount/internal/fakekube"
)

// What one process may ask within a second. Events have a bucket of their own, and a watch may end at once.
const (
	mostCalls  = 15 // of one verb, for one path
	mostEvents = 60 // and watches
	hotLoop    = 1000
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
	if p.busy[call] > hotLoop { // time stands still meanwhile, so that the test would never end
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

// Told notes what a process is told on a watch.
func (s *sim) Told(a fakekube.Answer, event string, o fakekube.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[a.Request.Host]
	if p == nil || p.isDead {
		return
	}
	s.noteToldLocked(p, a.Request.Resource, versionOf(o))
	p.learns(a, o, event == "DELETED")
}

// Answered notes what a process is told otherwise.
func (s *sim) Answered(a fakekube.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := a.Request
	p := s.byHost[q.Host]
	if p == nil {
		return
	}
	if q.Verb == "patch" && !p.mayMiss(a) {
		p.noteWritten(a)
	}
	if a.Code/100 != 2 {
		if q.Verb == "watch" && !p.isDead {
			s.heard.watchesRefused++
		}
		return
	}
	switch {
	case q.Verb == "update" && q.Resource == "leases":
		if holderIn(a.Body) != "" {
			s.leaderHost = q.Host
			s.leaderAsked = p.leaseSent
		}
	case q.Verb == "list" && !a.HasMore && q.Query.Get("limit") != "1":
		p.learnsList(a)
	case q.Verb == "patch":
		var o fakekube.Object
		json.Unmarshal(a.Body, &o)
		p.learns(a, o, false)
		if s.killsWriter && q.Resource == "nodes" { // before it can say so in an event, or soon after
			s.killsWriter = false
			s.running.Go(func() { s.killProcess(p.slot, 3*time.Second) })
		}
	}
}

// noteWritten notes that a process has an answer to a write after which it has to rest.
func (p *proc) noteWritten(a fakekube.Answer) {
	switch a.Code {
	case http.StatusOK, http.StatusNotFound, http.StatusUnprocessableEntity:
	default:
		return
	}
	var patch sentPatch
	json.Unmarshal([]byte(a.Request.Body), &patch)
	key := a.Request.Resource + "/" + objectOf(a.Request)
	p.wrote[key+" "+patch.Metadata.UID] = time.Now()
}

// learnsList notes what a process is told by a list, or by its last page.
func (p *proc) learnsList(a fakekube.Answer) {
	resource := a.Request.Resource
	p.hasList[resource] = p.hasList[resource] || !a.IsCut
	p.isBlind[resource] = p.isBlind[resource] && p.mayMiss(a)
	listed := map[string]bool{}
	for _, o := range a.Items {
		listed[resource+"/"+fakekube.KeyOf(o).String()] = true
		p.learns(a, o, false)
	}
	maps.DeleteFunc(p.knows, func(k string, _ *knowledge) bool {
		return strings.HasPrefix(k, resource+"/") && !listed[k]
	})
}

// learns notes what a process is told of an object. Where it may miss that, nobody can say which of both it knows.
func (p *proc) learns(a fakekube.Answer, o fakekube.Object, isGone bool) {
	k := a.Request.Resource + "/" + fakekube.KeyOf(o).String()
	version := versionOf(o)
	was := p.knows[k]
	isList := a.Items != nil
	if was != nil && !isList && !isGone && versionOf(was.object) > version {
		return // it has heard more already, in another way
	}
	delete(p.knows, k)
	if p.mayMiss(a) {
		p.unsure[k] = version
		return
	}
	if !isGone && p.unsure[k] <= version {
		p.knows[k] = &knowledge{object: o, at: time.Now()}
	}
}

// mayMiss reports whether an answer may not arrive.
func (p *proc) mayMiss(a fakekube.Answer) bool { return a.IsCut || p.link.mayLose() }

// versionOf is an object's resourceVersion. The fake's are numbers from 1 on.
func versionOf(o fakekube.Object) int {
	version, _ := strconv.Atoi(fakekube.TextIn(fakekube.MetaOf(o), "resourceVersion"))
	return version
}
