package fakekube

import (
	"fmt"
	"maps"
	"slices"
)

// Lie makes the API server that the chosen requests come to lose the next changes of the chosen objects from its watch
// cache, so many. What it answers from there does not show them: watches, and lists without a version (since v1.34),
// of version 0, or not older than a version. Lists at an exact version, which come from etcd, tell the truth, as do
// reads of one object. A later change of an object mends what is known of it; Lift mends the rest. Servers have done
// so: https://github.com/kubernetes/kubernetes/issues/123072.
//
// Where versions go back (SetVersion, Checkpoint), a lost change whose version is given a second time is forgotten: the
// new change of that version is told. A restored Snapshot mends all that is lost, as the servers start again with it.
//
// On.Resource, Namespace and Name choose the objects; Verb, User, Host and If choose the lists and watches. It goes on
// until it is lifted: there is neither a delay nor a number of times.
type Lie struct {
	// Changes is how many changes get lost.
	Changes int
}

func (f Lie) String() string {
	if f.Changes == 1 {
		return "lie about 1 change"
	}
	return fmt.Sprintf("lie about %d changes", f.Changes)
}

func (f Lie) problem() string {
	if f.Changes < 1 {
		return "a lie needs changes that it is about"
	}
	return ""
}

// problemIn says why there can be no such lie in a fault.
func (f Lie) problemIn(ft Fault) string {
	hasCount := ft.Skip != 0 || ft.Every != 0 || ft.Rate != 0 || ft.Seed != 0 || ft.Times != 0 && ft.Times != Always
	if hasCount || ft.Delay != 0 || ft.Met != nil {
		return "a lie goes on until it is lifted: it has no delay, and takes no number of requests"
	}
	reads := Requests{Verb: ft.On.Verb}
	isList := reads.matchesSender(Request{Route: Route{Verb: "list"}})
	isWatch := reads.matchesSender(Request{Route: Route{Verb: "watch"}})
	if !isList && !isWatch {
		return "lists and watches can lie, and no other verb"
	}
	return f.problem()
}

// apply is never called: no request meets a lie as it meets another fault.
func (f Lie) apply(*faultedRequest) {}

// lostChanges are what a Lie is about. The server's lock guards them.
type lostChanges struct {
	left     int          // changes that are still to be lost
	versions map[int]bool // of the lost changes

	// cached is what the cache has in place of the truth, by qualified resource. nil: that the object is not there.
	cached map[string]map[Key]Object
}

func newLostChanges(n int) *lostChanges {
	return &lostChanges{left: n, versions: map[int]bool{}, cached: map[string]map[Key]Object{}}
}

// informLiesLocked lets the lies that there are know of a change.
func (s *Server) informLiesLocked(c Change) {
	for _, in := range s.injections {
		if in.lie != nil && !in.isLifted {
			in.lie.observe(c, in.fault.On)
		}
	}
}

// rewindLiesLocked has the lies forget the lost changes after a version, as their versions will be given again.
func (s *Server) rewindLiesLocked(version int) {
	for _, in := range s.injections {
		if in.lie != nil {
			maps.DeleteFunc(in.lie.versions, func(v int, _ bool) bool { return v > version })
		}
	}
}

// clearLiesLocked fills the caches from etcd, as servers that start do.
func (s *Server) clearLiesLocked() {
	for _, in := range s.injections {
		if in.lie != nil {
			clear(in.lie.versions)
			clear(in.lie.cached)
		}
	}
}

// observe loses a change of a chosen object, as long as some are to be lost. One that is not lost mends what the cache
// knows of its object.
func (l *lostChanges) observe(c Change, on Requests) {
	objects := Requests{Resource: on.Resource, Namespace: on.Namespace, Name: on.Name}
	key := c.Key()
	resource := kind{group: c.Group, resource: c.Resource}.qualified()
	isChosen := objects.matches(Request{Route: Route{Resource: c.Resource, Namespace: key.Namespace, Name: key.Name}})
	if l.left == 0 || !isChosen {
		delete(l.cached[resource], key)
		return
	}
	l.left--
	l.versions[c.Version] = true
	if l.cached[resource] == nil {
		l.cached[resource] = map[Key]Object{}
	}
	if _, isStale := l.cached[resource][key]; !isStale {
		l.cached[resource][key] = c.Old
	}
}

// cachedLocked is what the watch cache of the API server that a request comes to has of a kind. It must not be changed.
func (s *Server) cachedLocked(r *request) map[Key]Object {
	objects := s.objects[r.kind.qualified()]
	isCopy := false
	for _, in := range s.injections {
		if !in.liesToLocked(r.info) || len(in.lie.cached[r.kind.qualified()]) == 0 {
			continue
		}
		if !isCopy {
			objects = maps.Clone(objects)
			isCopy = true
		}
		for key, o := range in.lie.cached[r.kind.qualified()] {
			objects[key] = o
			if o == nil {
				delete(objects, key)
			}
		}
		in.used++
	}
	return objects
}

// liesToLocked reports whether an injection is a lie that this list or watch gets.
func (in *Injection) liesToLocked(q Request) bool {
	return in.lie != nil && !in.isLifted && in.fault.On.matchesSender(q)
}

// visibleChangesLocked is those of the changes that a watch hears of.
func (s *Server) visibleChangesLocked(r *request, news []Change) []Change {
	for _, in := range s.injections {
		if !in.liesToLocked(r.info) {
			continue
		}
		told := slices.DeleteFunc(slices.Clone(news), func(c Change) bool {
			return c.Resource == r.kind.resource && c.Group == r.kind.group && in.lie.versions[c.Version]
		})
		in.used += len(news) - len(told)
		news = told
	}
	return news
}
