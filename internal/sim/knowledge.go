package sim

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"podcount/internal/fakekube"
)

// knowledge is an object that a process has been told of.
type knowledge struct {
	object fakekube.Object
	at     time.Time
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
