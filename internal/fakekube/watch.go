package fakekube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// watcher is a watch that runs. One goroutine has it.
type watcher struct {
	server  *Server
	r       *request
	selects func(Object) bool

	from   int    // it has told all up to this version
	newest Object // that it has told of, nil: none yet
}

// ending is the end of all watches that run at one time.
type ending struct {
	over     chan struct{} // closed when they have to end
	isBroken bool          // they end with their connections; set before over is closed
}

// outlook is what a watch finds when it looks at the fake.
type outlook struct {
	news      []Change // that it has not told yet, of whatever resource
	now       int      // the version that it has told all of, once it has told the news
	forgotten int
	extra     *Frame          // if any, comes after the news
	isGone    bool            // the resource has been removed, or defined again
	moved     <-chan struct{} // closed when looking again is worth while,
	over      <-chan struct{} // as this one is; nil: never
}

// watch streams the history from a version on. From the future it is silent; from what is forgotten it is a 410, in the
// stream, as a real server does it.
func (s *Server) watch(r *request) {
	selects := r.selection()
	if selects == nil {
		return
	}
	w := &watcher{server: s, r: r, selects: selects}
	r.w.Header().Set("Content-Type", r.media)
	if r.media == mediaProtobuf {
		r.w.Header().Set("Content-Type", r.media+";stream=watch")
	}
	r.w.WriteHeader(200)
	http.NewResponseController(r.w).Flush()
	w.begin()
	w.run()
}

// begin finds where the watch begins. Without a version, or with 0, it first tells of all that there is.
func (w *watcher) begin() {
	w.from, _ = strconv.Atoi(w.r.q.Get("resourceVersion"))
	if w.from == 0 {
		var all []Object
		w.from, all = w.server.present(w.r.kind)
		for _, o := range all {
			if w.selects(o) {
				w.sendEvent("ADDED", o)
			}
		}
	}
}

// present is all of a kind, and the version at which it is so.
func (s *Server) present(k kind) (version int, all []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, slices.Collect(maps.Values(s.objects[k.qualified()]))
}

// run tells what happens until the watch ends.
func (w *watcher) run() {
	const never = 10000 * time.Hour
	seconds, _ := strconv.Atoi(w.r.q.Get("timeoutSeconds"))
	end := time.NewTimer(time.Duration(cmp.Or(seconds, 1800)) * time.Second)
	defer end.Stop()
	bookmarks := time.NewTicker(cmp.Or(w.server.Bookmarks, never))
	defer bookmarks.Stop()
	for {
		found := w.look()
		if w.from < found.forgotten {
			message := fmt.Sprintf("too old resource version: %d (%d)", w.from, found.forgotten)
			w.send("ERROR", Status(410, "Expired", message, nil))
			return
		}
		for _, c := range found.news {
			w.tell(c)
		}
		if found.extra != nil {
			w.interject(found.extra)
			if found.extra.End {
				return
			}
		}
		w.from = max(w.from, found.now)
		if found.isGone {
			return
		}
		isUpToDate := w.from == found.now // it is not where the client began in the future
		select {
		case <-found.moved:
		case <-found.over:
		case <-bookmarks.C:
			if isUpToDate {
				w.bookmark()
			}
		case <-end.C:
			if isUpToDate {
				w.bookmark()
			}
			return
		case <-w.r.came.ended.over:
			if w.r.came.ended.isBroken {
				panic(http.ErrAbortHandler)
			}
			return
		case <-w.r.Context().Done():
			return
		}
	}
}

// look finds what there is to tell.
func (w *watcher) look() outlook {
	s := w.server
	resource := w.r.kind.resource
	s.mu.Lock()
	defer s.mu.Unlock()
	byVersion := func(c Change, version int) int { return c.Version - version }
	first, _ := slices.BinarySearchFunc(s.history, w.from+1, byVersion)
	found := outlook{
		news:      s.history[first:],
		now:       s.version,
		forgotten: s.forgotten,
		extra:     s.takeFrameLocked(resource),
		isGone:    s.isGoneLocked(w.r),
		moved:     s.moved,
	}
	lagging := w.r.came.lagging
	if lagging != nil && lagging == s.lagging && lagging.on.match(w.r.asked) {
		found.now = min(found.now, lagging.version)
		found.over = lagging.over
		found.news = slices.DeleteFunc(slices.Clone(found.news), func(c Change) bool { return c.Version > found.now })
	}
	return found
}

// isGoneLocked reports whether the custom resource that a request is about has been removed, or defined again, since the
// request came.
func (s *Server) isGoneLocked(r *request) bool {
	return r.kind.isCustom() && r.kind.installationIn(s.kinds) != r.kind.installationIn(r.came.kinds)
}

// tell sends the event that a change is to this watch, if it is one.
func (w *watcher) tell(c Change) {
	if c.Resource != w.r.kind.resource || c.Group != w.r.kind.group || c.Lost {
		return
	}
	was := c.Old != nil && w.selects(c.Old)
	is := c.New != nil && w.selects(c.New)
	event := ""
	o := c.New
	switch {
	case was && is:
		event = "MODIFIED"
	case is:
		event = "ADDED"
	case was: // gone, or selected no more: the previous content, under the new version
		event = "DELETED"
		o = Clone(c.Old)
		MetaOf(o)["resourceVersion"] = strconv.Itoa(c.Version)
	default:
		return
	}
	w.sendEvent(event, o)
}

// sendEvent sends what has happened to an object. The spy hears of it first.
func (w *watcher) sendEvent(event string, o Object) {
	w.newest = o
	if w.r.spy != nil {
		w.r.spy.Told(w.r.told(), event, o)
	}
	w.send(event, w.r.show(o, false))
}

// send sends a frame.
func (w *watcher) send(event string, o any) {
	data, _ := json.Marshal(o)
	if w.r.media == mediaProtobuf {
		data = ProtobufEvent(event, Protobuf(data))
	} else {
		data = fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", event, data)
	}
	w.sendRaw(data)
}

func (w *watcher) sendRaw(data []byte) {
	w.r.w.Write(data)
	http.NewResponseController(w.r.w).Flush()
}

// bookmark tells a client that has asked for it which version it has heard all of.
func (w *watcher) bookmark() {
	if w.r.q.Get("allowWatchBookmarks") != "true" {
		return
	}
	w.send("BOOKMARK", w.r.show(Object{
		"metadata": Object{"resourceVersion": strconv.Itoa(w.from)},
		"spec":     Object{"containers": nil},
		"status":   Object{},
	}, false))
}

// interject sends what a test has put in.
func (w *watcher) interject(fr *Frame) {
	switch {
	case fr.Raw != "":
		w.sendRaw([]byte(fr.Raw))
	case fr.Object != nil:
		w.send(fr.Type, fr.Object)
	case w.newest != nil:
		w.send(fr.Type, w.r.show(w.newest, false))
	}
}
