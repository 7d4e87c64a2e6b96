package sim

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"podcount/internal/fakekube"
)

// knowledge is an object as a process has last received it.
type knowledge struct {
	object fakekube.Object
	at     time.Time // when it was received
}

// Told notes an event that a watch sends to a process. The fake calls it.
func (s *sim) Told(a fakekube.Answer, eventType string, o fakekube.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[a.Request.Host]
	if p == nil || p.isDead {
		return
	}
	s.noteSentEventLocked(p, a.Request.Resource, versionOf(o))
	p.noteObject(a, o, eventType == "DELETED")
}

// Answered notes every other answer to a process. The fake calls it.
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
	s.followAnswerLocked(p, a)
	if a.RetryAfter > 0 {
		p.retryAfter[retryKey(q)] = time.Now().Add(a.RetryAfter)
	}
	if a.Code == http.StatusUnauthorized {
		s.recordLocked("%s %s gets 401", p.host, q.Route)
		p.noteRefusal(q)
	}
	isSuccess := a.Code/100 == 2
	if !isSuccess {
		if q.Verb == "watch" && !p.isDead {
			s.totals.watchesRefused++
		}
		return
	}
	switch {
	case q.Verb == "update" && q.Resource == "leases":
		s.noteLeaderLocked(p, a)
	case isAudit(q):
		p.noteAudit(a)
	case q.Verb == "list" && !a.HasMore && !isVersionQuestion(q):
		p.noteList(a)
	case q.Verb == "patch":
		s.notePatchedLocked(p, a)
	}
}

// retryKey names the requests that must wait after a Retry-After: those with the same method and path. The lists of one
// object, with which the program only asks for the newest version, have a key of their own. The program asks while a
// watch is open or a list is due, and a refusal of the question does not stop these.
func retryKey(q fakekube.Request) string {
	key := q.Method + q.Path
	if isVersionQuestion(q) {
		key += "?limit=1"
	}
	return key
}

func isVersionQuestion(q fakekube.Request) bool {
	return q.Verb == "list" && q.Query.Get("limit") == "1"
}

// noteLeaderLocked notes which process has got the lease. An answer without a holder is to a release.
func (s *sim) noteLeaderLocked(p *proc, a fakekube.Answer) {
	if holderIn(a.Body) != "" {
		s.leaderHost = a.Request.Host
		s.leaderSentAt = p.leaseSentAt
		if !p.hasLed {
			p.hasLed = true
			p.electedAt = s.newest
		}
	}
}

// notePatchedLocked notes the object that a process has patched, and kills the process if that fault is due.
func (s *sim) notePatchedLocked(p *proc, a fakekube.Answer) {
	var o fakekube.Object
	json.Unmarshal(a.Body, &o)
	p.noteObject(a, o, false)
	if s.killNextWriter && a.Request.Resource == "nodes" {
		s.killNextWriter = false
		s.noteMetLocked(p, writerKilledStep(), target{})
		s.running.Go(func() { s.killProcess(p.slot, 3*time.Second) })
	}
}

// noteWritten notes when a write was answered, if the process must then wait before it writes to the object again.
func (p *proc) noteWritten(a fakekube.Answer) {
	// After any other answer, the process may retry sooner.
	finalCodes := []int{http.StatusOK, http.StatusNotFound, http.StatusUnprocessableEntity}
	if !slices.Contains(finalCodes, a.Code) {
		return
	}
	var patch sentPatch
	json.Unmarshal([]byte(a.Request.Body), &patch)
	key := a.Request.Resource + "/" + objectOf(a.Request)
	p.writeAnsweredAt[key+" "+patch.Metadata.UID] = time.Now()
}

// noteList notes the objects of a list, or of the last page of a list.
func (p *proc) noteList(a fakekube.Answer) {
	resource := a.Request.Resource
	p.hasList[resource] = p.hasList[resource] || !a.IsCut
	p.mayBeStale[resource] = p.mayBeStale[resource] && p.mayMiss(a)
	listed := map[string]bool{}
	for _, o := range a.Items {
		listed[resource+"/"+fakekube.KeyOf(o).String()] = true
		p.noteObject(a, o, false)
	}
	maps.DeleteFunc(p.knows, func(key string, _ *knowledge) bool {
		return strings.HasPrefix(key, resource+"/") && !listed[key]
	})
}

// isAudit reports whether a request lists the objects as they were at an exact version.
func isAudit(q fakekube.Request) bool { return q.Query.Get("resourceVersionMatch") == "Exact" }

// noteAudit notes the objects of an audit. Of each object, the process keeps what is newer than the audit. So an audit
// does not show that nothing is left from before a restored backup.
func (p *proc) noteAudit(a fakekube.Answer) {
	resource := a.Request.Resource
	isLost := a.IsCut || p.link.hasSilentWire()
	if !isLost {
		p.progress[resource].unloggedAudit = time.Now()
	}
	version, _ := strconv.Atoi(a.Request.Query.Get("resourceVersion"))
	listed := map[string]bool{}
	for _, o := range a.Items {
		key := resource + "/" + fakekube.KeyOf(o).String()
		listed[key] = true
		known := p.knows[key]
		if known == nil || versionOf(known.object) <= version {
			p.noteObject(a, o, false)
		}
	}
	maps.DeleteFunc(p.knows, func(key string, known *knowledge) bool {
		isGone := strings.HasPrefix(key, resource+"/") && !listed[key]
		return isGone && versionOf(known.object) <= version
	})
}

// noteObject notes an object that is sent to a process. If the answer may be lost, the process may know the old object
// or the new one, and the simulation assumes neither.
func (p *proc) noteObject(a fakekube.Answer, o fakekube.Object, isGone bool) {
	key := a.Request.Resource + "/" + fakekube.KeyOf(o).String()
	version := versionOf(o)
	known := p.knows[key]
	isList := a.Items != nil
	if known != nil && !isList && !isGone && versionOf(known.object) > version {
		return // The process has already received a newer version.
	}
	delete(p.knows, key)
	if p.mayMiss(a) {
		p.unsure[key] = version
		return
	}
	if !isGone && p.unsure[key] <= version {
		p.knows[key] = &knowledge{object: o, at: time.Now()}
	}
}

// mayMiss reports whether an answer may be lost, partly or wholly, on its way to the process.
func (p *proc) mayMiss(a fakekube.Answer) bool { return a.IsCut || p.link.mayLose() }

// versionOf returns an object's resourceVersion. The fake's versions are numbers from 1 on.
func versionOf(o fakekube.Object) int {
	version, _ := strconv.Atoi(fakekube.TextIn(fakekube.MetaOf(o), "resourceVersion"))
	return version
}
