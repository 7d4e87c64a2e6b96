package fakekube

import (
	"fmt"
	"maps"
	"slices"
)

// Lie makes an API server lose the next changes of the selected objects from its watch cache. Everything that the
// server answers from that cache lacks them: watches, and lists without a version (since v1.34), of version 0, or not
// older than a version. Lists at an exact version come from etcd and stay correct, as do reads of one object. A later
// change of an object corrects the cache's copy of it, and Lift corrects all the rest. Real servers have had this
// fault: https://github.com/kubernetes/kubernetes/issues/123072.
//
// If versions go back (SetVersion, Checkpoint) and the version of a lost change is assigned a second time, watches
// report the new change. Restoring a Snapshot corrects the caches, because the servers restart with it.
//
// On.Resource, Namespace and Name select the objects; Verb, User, Host and If select the lists and watches. A Lie
// lasts until it is lifted, and accepts neither a delay nor a number of times.
type Lie struct {
	// Changes is the number of changes to lose.
	Changes int
}

// String returns the effect in the text form of Script.
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

// problemIn says why the lie is invalid in a fault. It returns "" if it is valid.
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

// apply is never called: a lie does not affect single requests.
func (f Lie) apply(*faultedRequest) {}

// lostChanges is the state of a Lie. The server's lock guards it.
type lostChanges struct {
	left     int          // number of changes still to lose
	versions map[int]bool // of the lost changes

	// cached holds the outdated objects of the cache, by qualified resource. A nil object is missing from the cache.
	cached map[string]map[Key]Object
}

func newLostChanges(n int) *lostChanges {
	return &lostChanges{left: n, versions: map[int]bool{}, cached: map[string]map[Key]Object{}}
}

// informLiesLocked reports a change to all lies, and reports whether any of them hides it.
func (s *Server) informLiesLocked(c Change) (isHidden bool) {
	for _, in := range s.injections {
		if in.lie != nil && !in.isLifted {
			in.lie.observe(c, in.fault.On)
			isHidden = isHidden || in.lie.versions[c.Version]
		}
	}
	return isHidden
}

// rewindLiesLocked makes the lies forget the lost changes after a version, because those versions will be assigned
// again.
func (s *Server) rewindLiesLocked(version int) {
	for _, in := range s.injections {
		if in.lie != nil {
			maps.DeleteFunc(in.lie.versions, func(v int, _ bool) bool { return v > version })
		}
	}
}

// clearLiesLocked refills the caches from etcd, as restarting servers do.
func (s *Server) clearLiesLocked() {
	for _, in := range s.injections {
		if in.lie != nil {
			clear(in.lie.versions)
			clear(in.lie.cached)
		}
	}
}

// observe loses a change of a selected object while some are left to lose. Any other change corrects the cache's copy
// of its object.
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

// cachedLocked returns the objects of a kind in the watch cache of the API server that serves a request. The caller
// must not modify the map.
func (s *Server) cachedLocked(r *request) map[Key]Object {
	objects := s.objects[r.kind.place()]
	isCopy := false
	for _, in := range s.injections {
		if !in.liesToLocked(r.info) || len(in.lie.cached[r.kind.place()]) == 0 {
			continue
		}
		if !isCopy {
			objects = maps.Clone(objects)
			isCopy = true
		}
		for key, o := range in.lie.cached[r.kind.place()] {
			objects[key] = o
			if o == nil {
				delete(objects, key)
			}
		}
		in.used++
	}
	return objects
}

// liesToLocked reports whether the injection is a lie that affects this list or watch.
func (in *Injection) liesToLocked(q Request) bool {
	return in.lie != nil && !in.isLifted && in.fault.On.matchesSender(q)
}

// visibleChangesLocked returns the changes that a watch can see.
func (s *Server) visibleChangesLocked(r *request, changes []Change) []Change {
	for _, in := range s.injections {
		if !in.liesToLocked(r.info) {
			continue
		}
		visible := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool {
			return r.kind.hasChanged(c) && in.lie.versions[c.Version]
		})
		in.used += len(changes) - len(visible)
		changes = visible
	}
	return changes
}
