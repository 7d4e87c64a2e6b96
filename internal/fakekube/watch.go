package fakekube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"time"
)

// watcher is a watch that runs. It belongs to the goroutine that serves the request.
type watcher struct {
	server  *Server
	r       *request
	selects func(Object) bool

	hasColumns bool // it has sent a table with the definitions of its columns

	from   int    // the client has heard of all changes up to this version
	newest Object // the object of the last event; nil where there was none yet
}

// ending is the end of all watches that run at one time.
type ending struct {
	over     chan struct{} // closed when they have to end
	isBroken bool          // they end with their connections; it is set before over is closed
}

// outlook is what a watch finds when it looks at the fake.
type outlook struct {
	// news are the changes that the watch has not told of yet, of all resources.
	news []Change

	// now is the version up to which the client has heard of all changes, once it has heard of the news.
	now int

	// forgotten is the version up to which the history is gone.
	forgotten int

	// extra is a frame of SendFrame, which comes after the news. It is nil where there is none.
	extra *Frame

	// isGone says that the resource has been removed, or defined again.
	isGone bool

	// moved is closed when there is something new, and over when the watch lags behind no longer; a nil one never is.
	moved, over <-chan struct{}
}

// watch streams the changes after a version. Where the client wants initial events, the objects that are there come
// first. A watch that begins at a version from the future is silent; one that begins at a version that is forgotten
// gets a 410 in the stream, as from a real server.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-watch
func (s *Server) watch(r *request) {
	selects := r.selection()
	if selects == nil {
		return
	}
	from, err := parseVersion(r.listOptions.versionText)
	if err != nil {
		r.broken(err.Error())
		return
	}
	if r.view.kind == viewTable && !r.canShowTable() {
		return
	}
	w := &watcher{server: s, r: r, selects: selects, from: int(min(from, math.MaxInt))}
	r.w.Header().Set("Content-Type", r.media)
	if r.media == mediaProtobuf {
		r.w.Header().Set("Content-Type", r.media+";stream=watch")
	}
	r.w.WriteHeader(200)
	http.NewResponseController(r.w).Flush()
	if r.view.kind == viewMetadataList {
		return // no event can be shown as a list, and the server says no more than that
	}
	if w.begin() {
		w.run()
	}
}

// begin sends what a watch begins with. It reports whether the watch goes on.
func (w *watcher) begin() bool {
	if !w.r.listOptions.wantsInitialEvents {
		if w.from == 0 {
			w.from = w.server.Latest()
		}
		return true
	}
	version, all := w.server.present(w.r, w.selects)
	if w.from > version {
		w.send("ERROR", w.r.kind.tooLarge(uint64(w.from), version))
		return false
	}
	w.from = version
	for _, o := range all {
		w.sendEvent("ADDED", o)
	}
	w.bookmark(Object{initialEventsEnd: "true"})
	return true
}

// present returns the objects that a watch begins with, in the order of etcd's keys, and the version at which they are
// so.
func (s *Server) present(r *request, selects func(Object) bool) (version int, all []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, sorted(s.cachedLocked(r), selects)
}

// beforeEnd is how long before its end a watch gets its last bookmark. One that is shorter gets none, nor does one that
// would hear no more than the version at which it began.
const beforeEnd = 2 * time.Second

// run tells what happens, until the watch ends.
func (w *watcher) run() {
	const never = 10000 * time.Hour
	timeout := cmp.Or(w.r.listOptions.timeout, 30*time.Minute)
	end := time.NewTimer(timeout)
	defer end.Stop()
	bookmarks := time.NewTicker(cmp.Or(w.server.Bookmarks, never))
	defer bookmarks.Stop()
	lastBookmark := time.NewTimer(timeout - beforeEnd)
	defer lastBookmark.Stop()
	start := w.from
	for {
		found := w.look()
		if isOver := w.tellAll(found); isOver {
			return
		}
		isUpToDate := w.from == found.now // not so where the client began in the future
		select {
		case <-found.moved:
		case <-found.over:
		case <-bookmarks.C:
			if isUpToDate {
				w.bookmark(nil)
			}
		case <-lastBookmark.C:
			isLongEnough := timeout > beforeEnd
			if isUpToDate && isLongEnough && w.from > start && w.server.Bookmarks > 0 {
				w.bookmark(nil)
			}
		case <-end.C:
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

// tellAll sends what the watch has found, and reports whether the watch ends with that.
func (w *watcher) tellAll(found outlook) (isOver bool) {
	if w.from < found.forgotten {
		w.send("ERROR", Status(410, "Expired", w.tooOld(found.forgotten), nil))
		return true
	}
	for _, c := range found.news {
		w.tell(c)
	}
	if found.extra != nil {
		w.interject(found.extra)
		if found.extra.End {
			return true
		}
	}
	w.from = max(w.from, found.now)
	return found.isGone
}

// tooOld says, in the server's words, that the watch began at a version that is forgotten.
func (w *watcher) tooOld(forgotten int) string {
	if !w.r.kind.isCached() {
		return "The resourceVersion for the provided watch is too old."
	}
	return fmt.Sprintf("too old resource version: %d (%d)", w.from, forgotten)
}

// look finds what there is to tell.
func (w *watcher) look() outlook {
	s := w.server
	resource := w.r.kind.resource
	s.mu.Lock()
	defer s.mu.Unlock()
	first := sort.Search(len(s.history), func(i int) bool { return s.history[i].Version > w.from })
	found := outlook{
		news:      s.toldLocked(w.r, s.history[first:]),
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

// isGoneLocked reports whether the custom resource that a request is about has been removed, or defined again, since
// the request came.
func (s *Server) isGoneLocked(r *request) bool {
	return r.kind.isCustom() && r.kind.installationIn(s.kinds) != r.kind.installationIn(r.came.kinds)
}

// tell sends the event that a change is for this watch, if it is one: an object that comes to be selected is ADDED, and
// one that is selected no longer is DELETED.
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
	case was: // the client gets the previous content, under the new version
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
	w.send(event, w.shown(o))
}

// shown is an object as the client wants to see it. Of the tables that a watch sends, the first alone defines the
// columns.
func (w *watcher) shown(o Object) any {
	shown := w.r.show(o, false)
	t, isTable := shown.(table)
	if !isTable {
		return shown
	}
	if w.hasColumns {
		t.Columns = nil
	}
	w.hasColumns = true
	return t
}

// send sends a frame.
func (w *watcher) send(event string, o any) {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err) // what is stored came from JSON, so that it is the object of a Frame
	}
	if w.r.media == mediaProtobuf {
		data = ProtobufEvent(event, Protobuf(data))
	} else {
		data = fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", event, data)
	}
	w.sendRaw(data)
}

// sendRaw sends bytes, and does not wait for more of them.
func (w *watcher) sendRaw(data []byte) {
	w.r.w.Write(data)
	http.NewResponseController(w.r.w).Flush()
}

// interject sends a frame of SendFrame.
func (w *watcher) interject(fr *Frame) {
	switch {
	case fr.Raw != "":
		w.sendRaw([]byte(fr.Raw))
	case fr.Object != nil:
		w.send(fr.Type, fr.Object)
	case w.newest != nil:
		w.send(fr.Type, w.shown(w.newest))
	}
}
