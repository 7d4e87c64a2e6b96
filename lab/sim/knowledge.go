package sim

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"podcount/lab/fakekube"
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
	if a.RetryAfter > 0 {
		p.retryAfter[retryKey(q)] = time.Now().Add(a.RetryAfter)
	}
	if a.Code == http.StatusUnauthorized {
		s.recordLocked("%s %s gets 401", p.host, q.Route)
		p.noteRefusal(q)
	}
	isSuccess := a.Code/100 == 2
	switch {
	case !isSuccess && q.Verb == "watch" && !p.isDead:
		s.totals.watchesRefused++
	case !isSuccess:
		// The process has learned nothing about the cluster.
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

// retryKey names the requests that must wait after a Retry-After: those with the same method and path. A question for
// the newest version has a key of its own: if it is refused, lists and watches need not wait.
func retryKey(q fakekube.Request) string {
	key := q.Method + q.Path
	if isVersionQuestion(q) {
		key += "?limit=1"
	}
	return key
}

// isVersionQuestion matches the lists of one object, with which the program only asks for the newest version.
func isVersionQuestion(q fakekube.Request) bool {
	return q.Verb == "list" && q.Query.Get("limit") == "1"
}

// noteLeaderLocked notes which process has got the lease.
func (s *sim) noteLeaderLocked(p *proc, a fakekube.Answer) {
	isRelease := holderIn(a.Body) == ""
	if isRelease {
		return
	}
	s.leaderHost = a.Request.Host
	s.leaderSentAt = p.leaseSentAt
	if !p.hasLed {
		p.hasLed = true
		p.electedAtVersion = s.newest
	}
}

// notePatchedLocked notes the object that a process has patched, and kills the process if that fault is due.
func (s *sim) notePatchedLocked(p *proc, a fakekube.Answer) {
	var o fakekube.Object
	json.Unmarshal(a.Body, &o)
	p.noteObject(a, o, false)
	if s.killNextWriter && a.Request.Resource == "nodes" {
		s.killNextWriter = false
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
	uid := patchIn(a.Request).Metadata.UID
	p.writeAnsweredAt[writeID(a.Request, uid)] = time.Now()
}

// objectID names an object of any resource.
func objectID(resource string, k key) string { return resource + "/" + k.String() }

// isObjectOf reports whether an objectID is that of an object of a resource.
func isObjectOf(resource, id string) bool { return strings.HasPrefix(id, resource+"/") }

// writeID names the object that a write is for. An object that was recreated has another uid, and so another name.
func writeID(q fakekube.Request, uid string) string {
	return objectID(q.Resource, keyIn(q)) + " " + uid
}

// keyIn returns the key of the object that a request is about.
func keyIn(q fakekube.Request) key { return key{Namespace: q.Namespace, Name: q.Name} }

// noteList notes the objects of a list, or of the last page of a list.
func (p *proc) noteList(a fakekube.Answer) {
	resource := a.Request.Resource
	p.hasList[resource] = p.hasList[resource] || !a.IsCut
	p.mayBeStale[resource] = p.mayBeStale[resource] && p.mayMiss(a)
	listed := map[string]bool{}
	for _, o := range a.Items {
		listed[objectID(resource, fakekube.KeyOf(o))] = true
		p.noteObject(a, o, false)
	}
	maps.DeleteFunc(p.knows, func(id string, _ *knowledge) bool {
		return isObjectOf(resource, id) && !listed[id]
	})
}

// isAudit reports whether a request lists the objects as they were at an exact version.
func isAudit(q fakekube.Request) bool { return q.Query.Get("resourceVersionMatch") == "Exact" }

// noteAudit notes the objects of an audit. Of each object, the process keeps what is newer than the audit. So an audit
// does not show that nothing is left from before a restored backup.
func (p *proc) noteAudit(a fakekube.Answer) {
	resource := a.Request.Resource
	mayBeLost := a.MayBreak || p.link.hasSilentWire() // A slow link loses nothing.
	if !mayBeLost {
		p.progress[resource].unloggedAudit = time.Now()
	}
	version, _ := strconv.Atoi(a.Request.Query.Get("resourceVersion"))
	listed := map[string]bool{}
	for _, o := range a.Items {
		id := objectID(resource, fakekube.KeyOf(o))
		listed[id] = true
		known := p.knows[id]
		if known == nil || versionOf(known.object) <= version {
			p.noteObject(a, o, false)
		}
	}
	maps.DeleteFunc(p.knows, func(id string, known *knowledge) bool {
		isGone := isObjectOf(resource, id) && !listed[id]
		return isGone && versionOf(known.object) <= version
	})
}

// noteObject notes an object that is sent to a process. If the answer may be lost, the process may know the old object
// or the new one, and the simulation assumes neither.
func (p *proc) noteObject(a fakekube.Answer, o fakekube.Object, isGone bool) {
	id := objectID(a.Request.Resource, fakekube.KeyOf(o))
	version := versionOf(o)
	known := p.knows[id]
	isList := a.Items != nil
	if known != nil && !isList && !isGone && versionOf(known.object) > version {
		return // The process has already received a newer version.
	}
	delete(p.knows, id)
	if p.mayMiss(a) {
		p.unsure[id] = version
		return
	}
	if !isGone && p.unsure[id] <= version {
		p.knows[id] = &knowledge{object: o, at: time.Now()}
	}
}

// mayMiss reports whether an answer may be lost, partly or wholly, on its way to the process.
func (p *proc) mayMiss(a fakekube.Answer) bool { return a.IsCut || p.link.mayLose() }

// versionOf returns an object's resourceVersion. The fake's versions are numbers from 1 on.
func versionOf(o fakekube.Object) int {
	version, _ := strconv.Atoi(fakekube.TextIn(fakekube.MetaOf(o), "resourceVersion"))
	return version
}
