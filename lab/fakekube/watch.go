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

// watcher is a running watch. Only the goroutine that serves the request may use it.
type watcher struct {
	server  *Server
	r       *request
	selects func(Object) bool

	hasColumns bool // a table with column definitions has been sent

	seenVersion int    // the client knows all changes up to this version
	lastObject  Object // object of the last event; nil before the first
}

// watchEnding ends all watches that run at the same time.
type watchEnding struct {
	done     chan struct{} // closed when the watches must end
	isBroken bool          // also break the connections; set before done is closed
}

// watchUpdate is what a watch finds when it polls the server's state.
type watchUpdate struct {
	// changes are the changes, of all resources, that the watch has not processed yet.
	changes []Change

	// version is the version that the client will have seen after these changes.
	version int

	// compactedVersion is the version up to which the history is gone.
	compactedVersion int

	// frame is a frame of SendFrame that follows the changes, or nil.
	frame *Frame

	// isResourceGone means that the custom resource has been removed or redefined.
	isResourceGone bool

	// changed is closed when there is something new, and caughtUp when the server no longer lags. caughtUp is nil if
	// it does not lag.
	changed, caughtUp <-chan struct{}
}

// watch streams the changes after a version. If the client wants initial events, the existing objects come first. A
// watch from a version in the future stays silent until then. One from a compacted version gets a 410 event, as from
// a real server.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-watch
func (s *Server) watch(r *request) {
	selects := r.selector()
	if selects == nil {
		return
	}
	from, err := parseVersion(r.listOptions.versionText)
	if err != nil {
		r.internalError(err.Error())
		return
	}
	if r.view.kind == viewTable && !r.checkTableParameters() {
		return
	}
	w := &watcher{server: s, r: r, selects: selects, seenVersion: int(min(from, math.MaxInt))}
	r.w.Header().Set("Content-Type", r.mediaType)
	if r.mediaType == mediaProtobuf {
		r.w.Header().Set("Content-Type", r.mediaType+";stream=watch")
	}
	r.w.WriteHeader(200)
	http.NewResponseController(r.w).Flush()
	if r.view.kind == viewMetadataList {
		return // no event can be shown as a list, so the server sends nothing
	}
	if w.sendInitialEvents() {
		w.run()
	}
}

// sendInitialEvents sends the existing objects if the client wants them. It reports whether the watch continues.
func (w *watcher) sendInitialEvents() bool {
	if !w.r.listOptions.wantsInitialEvents {
		if w.seenVersion == 0 {
			w.seenVersion = w.server.Latest()
		}
		return true
	}
	version, all := w.server.initialObjects(w.r, w.selects)
	if w.seenVersion > version {
		w.send("ERROR", w.r.kind.tooLargeVersion(uint64(w.seenVersion), version))
		return false
	}
	w.seenVersion = version
	for _, o := range all {
		w.sendEvent("ADDED", o)
	}
	w.sendBookmark(Object{initialEventsEnd: "true"})
	return true
}

// initialObjects returns the objects with which a watch begins, in the order of their keys in etcd, and their
// version.
func (s *Server) initialObjects(r *request, selects func(Object) bool) (version int, all []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latestVersion, selectedInOrder(s.cachedLocked(r), selects)
}

// lastBookmarkLead is how long before its timeout a watch gets its last bookmark. A shorter watch gets none, nor does
// one that has seen no change since it began.
const lastBookmarkLead = 2 * time.Second

// run sends events until the watch ends.
func (w *watcher) run() {
	const never = 10000 * time.Hour
	timeout := cmp.Or(w.r.listOptions.timeout, 30*time.Minute)
	end := time.NewTimer(timeout)
	defer end.Stop()
	bookmarks := time.NewTicker(cmp.Or(w.server.Bookmarks, never))
	defer bookmarks.Stop()
	lastBookmark := time.NewTimer(timeout - lastBookmarkLead)
	defer lastBookmark.Stop()
	start := w.seenVersion
	for {
		found := w.poll()
		if isOver := w.sendAll(found); isOver {
			return
		}
		isUpToDate := w.seenVersion == found.version // false if the watch began in the future
		select {
		case <-found.changed:
		case <-found.caughtUp:
		case <-bookmarks.C:
			if isUpToDate {
				w.sendBookmark(nil)
			}
		case <-lastBookmark.C:
			isLongEnough := timeout > lastBookmarkLead
			if isUpToDate && isLongEnough && w.seenVersion > start && w.server.Bookmarks > 0 {
				w.sendBookmark(nil)
			}
		case <-end.C:
			return
		case <-w.r.arrival.watchEnd.done:
			if w.r.arrival.watchEnd.isBroken {
				panic(http.ErrAbortHandler)
			}
			return
		case <-w.r.Context().Done():
			return
		}
	}
}

// sendAll sends an update and reports whether the watch ends with it.
func (w *watcher) sendAll(found watchUpdate) (isOver bool) {
	if w.seenVersion < found.compactedVersion {
		w.send("ERROR", Status(410, "Expired", w.expiredMessage(found.compactedVersion), nil))
		return true
	}
	for _, c := range found.changes {
		w.sendChange(c)
	}
	if found.frame != nil {
		w.sendFrame(found.frame)
		if found.frame.End {
			return true
		}
	}
	w.seenVersion = max(w.seenVersion, found.version)
	return found.isResourceGone
}

// expiredMessage is the server's message for a watch that began at a compacted version.
func (w *watcher) expiredMessage(compacted int) string {
	if !w.r.kind.isCached() {
		return "The resourceVersion for the provided watch is too old."
	}
	return fmt.Sprintf("too old resource version: %d (%d)", w.seenVersion, compacted)
}

// poll returns what has happened since the last poll.
func (w *watcher) poll() watchUpdate {
	s := w.server
	resource := w.r.kind.resource
	s.mu.Lock()
	defer s.mu.Unlock()
	first := sort.Search(len(s.history), func(i int) bool { return s.history[i].Version > w.seenVersion })
	found := watchUpdate{
		changes:          s.visibleChangesLocked(w.r, s.history[first:]),
		version:          s.latestVersion,
		compactedVersion: s.compactedVersion,
		frame:            s.takeFrameLocked(resource),
		isResourceGone:   s.isGoneLocked(w.r),
		changed:          s.changed,
	}
	lagging := w.r.arrival.lag
	if lagging != nil && lagging == s.lag && lagging.on.matches(w.r.info) {
		found.limitTo(lagging)
	}
	return found
}

// limitTo hides the changes that a lagging server does not know yet.
func (u *watchUpdate) limitTo(lagging *lag) {
	u.version = min(u.version, lagging.version)
	u.caughtUp = lagging.caughtUp
	u.changes = slices.DeleteFunc(slices.Clone(u.changes), func(c Change) bool { return c.Version > u.version })
}

// isGoneLocked reports whether the request's custom resource has been removed or redefined since the request arrived.
func (s *Server) isGoneLocked(r *request) bool {
	return r.kind.isCustom() && r.kind.installationIn(s.kinds) != r.kind.installationIn(r.arrival.kinds)
}

// sendChange sends the event for a change if it concerns this watch. An object that becomes selected is ADDED, and
// one that is no longer selected is DELETED.
func (w *watcher) sendChange(c Change) {
	if !w.r.kind.hasChanged(c) || c.Lost {
		return
	}
	wasSelected := c.Old != nil && w.selects(c.Old)
	isSelected := c.New != nil && w.selects(c.New)
	switch {
	case wasSelected && isSelected:
		w.sendEvent("MODIFIED", c.New)
	case isSelected:
		w.sendEvent("ADDED", c.New)
	case wasSelected:
		// The event has the previous content, but the version of the change.
		deleted := Clone(c.Old)
		MetaOf(deleted)["resourceVersion"] = strconv.Itoa(c.Version)
		w.sendEvent("DELETED", deleted)
	}
}

// sendEvent sends an event about an object, after reporting it to the spy.
func (w *watcher) sendEvent(event string, o Object) {
	w.lastObject = o
	if w.r.spy != nil {
		w.r.spy.Told(w.r.answerForSpy(), event, o)
	}
	w.send(event, w.render(o))
}

// render returns an object in the form that the client asked for. Among the tables of a watch, only the first defines
// the columns.
func (w *watcher) render(o Object) any {
	shown := w.r.render(o, false)
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

// send encodes and sends an event.
func (w *watcher) send(event string, o any) {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err) // only the object of a Frame can be invalid; stored objects come from JSON
	}
	if w.r.mediaType == mediaProtobuf {
		data = protobufEvent(event, Protobuf(data))
	} else {
		data = fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", event, data)
	}
	w.sendRaw(data)
}

// sendRaw sends bytes and flushes them.
func (w *watcher) sendRaw(data []byte) {
	w.r.w.Write(data)
	http.NewResponseController(w.r.w).Flush()
}

// sendFrame sends a frame of SendFrame.
func (w *watcher) sendFrame(fr *Frame) {
	if fr.Met != nil {
		fr.Met(w.r.info)
	}
	switch {
	case fr.Raw != "":
		w.sendRaw([]byte(fr.Raw))
	case fr.Object != nil:
		w.send(fr.Type, fr.Object)
	case w.lastObject != nil:
		w.send(fr.Type, w.render(w.lastObject))
	}
}
