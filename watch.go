package main

// watch.go owns the reflector, which keeps a store equal to what the server has. The reflector asks whether a resource
// is installed, lists it, watches it, resumes a watch that ended, and relists when resuming is not enough. It also
// sends patches, because the server's answer to a patch belongs in the store. It knows no kind, counts nothing, and
// decides nothing about the objects.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"podcount/internal/background"
	"podcount/internal/events"
	"podcount/internal/kube"
	"podcount/internal/logging"
	"podcount/internal/metrics"
	"podcount/internal/retry"
	"podcount/internal/wire"
)

// levelFlow is the log level of what happens often while all is well, such as one watch that ends and the next that
// begins. The flag -v 2 shows it.
const levelFlow = slog.Level(-2)

// After a failure the reflector waits for a backoff with the values of client-go's reflector.
const (
	reflectorBackoff    = 800 * time.Millisecond // after the first failure; it doubles with each further one
	reflectorMaxBackoff = 30 * time.Second
	reflectorHealthy    = 2 * time.Minute // after this long without a failure, the backoff starts from the beginning
)

const (
	relistInterval = time.Hour // ± 10 %. A relist finds what a server that lost an event never told
	listTimeout    = 10 * time.Minute
	pageLimit      = 2000            // objects in a page, once whole lists have failed
	slowList       = 2 * time.Second // a list that takes longer logs its progress

	shortWatch = time.Second // a watch that ends sooner, and brought nothing, counts as fruitless

	discoveryInterval = 10 * time.Second // ± 20 %. How often discovery is asked whether a resource is installed
	provenAbsences    = 2                // answers in a row without a resource that prove that it is gone
)

// Reflector keeps a store equal to what the server has. It lists, then watches from the list's resourceVersion, and
// resumes from the last version that it saw.
//
// Configure it with Subscribe and the Need methods before Run is called. The other methods may be called at any time,
// by any goroutine.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type Reflector[T Object[T]] struct {
	*Store[T]
	client   *kube.Client
	kind     Kind[T]
	handlers []func(Delta[T])
	once     bool // see ReflectorOptions

	log             *slog.Logger
	metrics         *metrics.Registry
	outage          *logging.Outage // lists and watches that fail
	discoveryOutage *logging.Outage

	synced     chan struct{} // closed by markSynced
	markSynced func()        // may be called more than once

	installed atomic.Pointer[Installation]

	mu          sync.Mutex // guards the two fields below, which only Run changes
	version     string     // the next watch resumes from this resourceVersion; "" means that a list is due
	lastContact time.Time  // when the server last sent something

	// Only Run uses the fields below.
	decoder  *decoder[T]
	failures int       // in a row
	failedAt time.Time // the last failure

	relistAt     time.Time // a list is due then, even if the watches work
	relistReason string    // why version is "", for the metric
	failedLists  int       // lists in a row that failed as one that is too large does
	listsInPages bool

	fruitlessWatches int  // in a row; see consequences
	expiredWatches   int  // in a row
	wasUnreachable   bool // etcd may have been restored from a backup meanwhile
}

// ReflectorOptions are what a reflector is made with. All of them but Once are required.
type ReflectorOptions[T Object[T]] struct {
	Client  *kube.Client
	Kind    Kind[T]
	Store   *Store[T]
	Log     *slog.Logger
	Metrics *metrics.Registry

	// Once makes Run return if the server does not have the resource, rather than wait until it is installed.
	Once bool
}

// NewReflector makes a reflector. It sends no request until Run is called.
func NewReflector[T Object[T]](o ReflectorOptions[T]) *Reflector[T] {
	name := o.Kind.Name
	r := &Reflector[T]{
		Store:           o.Store,
		client:          o.Client,
		kind:            o.Kind,
		once:            o.Once,
		log:             o.Log,
		metrics:         o.Metrics,
		outage:          logging.NewOutage(o.Log, name, "watching again", "kind", name),
		discoveryOutage: logging.NewOutage(o.Log, name, "discovery answers again", "kind", name),
		synced:          make(chan struct{}),
		relistReason:    "start",
		lastContact:     time.Now(),
	}
	r.markSynced = sync.OnceFunc(func() { close(r.synced) })
	r.decoder = newDecoder(&r.kind)
	return r
}

// Subscribe has handle called with every change of the store except those of the first list. It is called by several
// goroutines at once, and must not block for long.
func (r *Reflector[T]) Subscribe(handle func(Delta[T])) {
	r.handlers = append(r.handlers, handle)
}

// NeedLabels makes the store keep these labels of each object. All other labels are dropped to save memory.
func (r *Reflector[T]) NeedLabels(keys ...string) {
	r.kind.Labels = append(r.kind.Labels, keys...)
}

// NeedWholeObjects asks the server for spec and status too. Otherwise it sends metadata only, which is much less work.
func (r *Reflector[T]) NeedWholeObjects() {
	r.kind.MetadataOnly = false
}

// NeedEveryVersion makes each new resourceVersion of an object a change, even if none of the fields in the store
// differs.
func (r *Reflector[T]) NeedEveryVersion() {
	r.Store.reportsEveryVersion = true
}

// Run keeps the store equal to the server until ctx ends. It returns early in two cases:
//   - with nil, if Once is set and the server does not have the resource;
//   - with an error that wraps a *kube.Status, if the server calls the very first list of a built-in resource a bad
//     request. Then a selector is wrong, and trying again would not help.
func (r *Reflector[T]) Run(ctx context.Context) error {
	defer r.outage.Stop()
	defer r.discoveryOutage.Stop()
	if r.kind.isOptional() {
		r.runWhileInstalled(ctx)
		return nil
	}
	return r.listAndWatch(ctx)
}

// runWhileInstalled asks discovery again and again whether the resource is installed, and lists and watches while it
// is: a CustomResourceDefinition may be installed, changed and removed at any time.
func (r *Reflector[T]) runWhileInstalled(ctx context.Context) {
	var watching *session // nil while the resource is not installed
	defer func() { watching.end() }()
	absences := 0 // answers in a row without the resource
	for {
		found, err := r.discover(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.discoveryOutage.Failed("discovery", "cannot discover", kube.PauseBetweenComplaints(err), "err", err)
		} else {
			r.discoveryOutage.Worked("discovery")
		}

		switch {
		case err != nil:
			// Nobody knows whether the resource is installed: change nothing.
		case found != nil:
			absences = 0
			r.noteInstalled(found)
			if watching == nil {
				watching = r.beginSession(ctx)
			}
		default:
			absences++
			// While the server sets up a new resource it may answer 404 for a moment. So a single 404 proves nothing.
			isGone := watching != nil && absences >= provenAbsences
			isFirstAbsence := watching == nil && absences == 1
			if isGone {
				watching.end()
				watching = nil
				r.noteRemoved()
			}
			if isFirstAbsence {
				r.log.Info("waiting for a resource that the server does not have: is its CRD installed?",
					"resource", r.kind.Resource, "in", r.kind.API)
			}
			if isFirstAbsence && r.once {
				r.markSynced()
				return
			}
		}

		if retry.Sleep(ctx, max(kube.RetryAfter(err), jittered(discoveryInterval, 0.2))) != nil {
			return
		}
	}
}

// discover asks whether the server has the resource. It returns nil if it does not.
// https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
func (r *Reflector[T]) discover(ctx context.Context) (*Installation, error) {
	var answer struct {
		Kind      string
		Resources []struct{ Name string }
	}
	err := r.client.Send(ctx, kube.Request{Method: http.MethodGet, Path: r.kind.API}, &answer)
	if kube.StatusOf(err).Code == http.StatusNotFound {
		return nil, nil // no resource of this group and version is installed
	}
	if err != nil {
		return nil, err
	}
	if answer.Kind != "APIResourceList" {
		return nil, fmt.Errorf("%s: the answer is of kind %q, not APIResourceList", r.kind.API, answer.Kind)
	}
	has := func(name string) bool {
		return slices.Contains(answer.Resources, struct{ Name string }{name})
	}
	if !has(r.kind.Resource) {
		return nil, nil
	}
	return &Installation{HasStatus: has(r.kind.Resource + "/status")}, nil
}

// Installation is one installation of a resource under /apis/. Another pointer means that the resource was removed and
// installed again, or that its definition has changed.
type Installation struct {
	HasStatus bool // it has a status subresource
}

// noteInstalled takes note of what discovery has found. If that is new, controllers look at each object again, because
// what they may write to it can have changed.
func (r *Reflector[T]) noteInstalled(found *Installation) {
	known := r.Installed()
	if known != nil && *known == *found {
		return
	}
	r.log.Info("discovered", "resource", r.kind.Resource, "in", r.kind.API, "status", found.HasStatus)
	r.installed.Store(found)
	for _, obj := range r.All() {
		r.publish(Delta[T]{Old: obj, New: obj})
	}
}

// noteRemoved empties the store, because the server has removed all objects together with their resource.
func (r *Reflector[T]) noteRemoved() {
	r.log.Info("the resource is gone: waiting for it to come back", "resource", r.kind.Resource, "in", r.kind.API)
	r.outage.Forget("watch")
	r.installed.Store(nil)
	r.failures = 0
	r.requireRelist("return")
	emptyList := r.BeginList()
	r.publish(emptyList.Commit()...)
}

// session is a listAndWatch that runs in the background.
type session struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

func (r *Reflector[T]) beginSession(ctx context.Context) *session {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		r.listAndWatch(ctx) // its error is for built-in resources only
	}()
	return s
}

// end stops a session and waits until it has stopped. It does nothing if s is nil.
func (s *session) end() {
	if s == nil {
		return
	}
	s.cancel()
	<-s.ended
}

// listAndWatch lists, then watches, until ctx ends. Its error is described at Run.
func (r *Reflector[T]) listAndWatch(ctx context.Context) error {
	for ctx.Err() == nil {
		var wait time.Duration
		if r.isListDue() {
			err := r.relist(ctx)
			if err != nil && r.isWrongSelector(err) {
				return err
			}
			if err != nil && ctx.Err() == nil {
				wait = r.noteFailure("cannot list", err)
			}
		} else {
			wait = r.watch(ctx)
		}
		retry.Sleep(ctx, wait)
	}
	return nil
}

func (r *Reflector[T]) isListDue() bool {
	return r.version == "" || !time.Now().Before(r.relistAt)
}

// isWrongSelector reports whether the error of a list means that a selector is wrong. A server that has once understood
// the selectors, or that has the resource from a CustomResourceDefinition, may answer so for other reasons.
func (r *Reflector[T]) isWrongSelector(err error) bool {
	isFirstList := !background.HasEnded(r.synced)
	return isFirstList && !r.kind.isOptional() && kube.StatusOf(err).Reason == "BadRequest"
}

// noteFailure logs what failed, and returns how long to wait before the next request.
func (r *Reflector[T]) noteFailure(what string, err error) (wait time.Duration) {
	if time.Since(r.failedAt) > reflectorHealthy {
		r.failures = 0
	}
	r.failures++
	r.failedAt = time.Now()
	r.outage.Failed("watch", what, kube.PauseBetweenComplaints(err), "err", err)
	backoff := retry.Backoff(r.failures, reflectorBackoff, reflectorMaxBackoff)
	return max(backoff, kube.RetryAfter(err))
}

// relist makes the store equal to one complete list. The list has no resourceVersion, which asks for the most recent
// state. If the list fails part-way, the store is left as it was.
func (r *Reflector[T]) relist(ctx context.Context) error {
	start := time.Now()
	isFirst := !background.HasEnded(r.synced)
	listing := r.BeginList()
	meta, err := r.readPages(ctx, listing)
	if err != nil {
		r.noteFailedList(listing, err)
		return err
	}
	changes := listing.Commit()
	r.publish(changes...)

	changed := len(changes)
	if isFirst {
		changed = r.Len() // Commit returns no changes for the first list
	}
	r.log.Info("listed", "kind", r.kind.Name, "objects", r.Len(), "rv", meta.ResourceVersion, "changes", changed,
		"took", time.Since(start).Round(time.Millisecond))
	r.metrics.Count("podcount_relists_total", r.kind.Name, cmp.Or(r.relistReason, "hour"))

	r.resumeFrom(meta.ResourceVersion)
	r.relistAt = time.Now().Add(jittered(relistInterval, 0.1))
	r.failedLists = 0
	r.fruitlessWatches = 0
	r.wasUnreachable = false
	r.markSynced()
	return nil
}

// noteFailedList decides how and when the next list is tried.
func (r *Reflector[T]) noteFailedList(listing *Listing[T], err error) {
	// A list that breaks off, or that the server gives up on, may be too large for the server or for the way to it. Two
	// such lists in a row, and from then on lists come in pages.
	code := kube.StatusOf(err).Code
	brokeOff := listing.n > 0 || errors.Is(err, kube.ErrSilent)
	wasGivenUp := code == http.StatusInternalServerError || code == http.StatusGatewayTimeout
	if brokeOff || wasGivenUp {
		r.failedLists++
	}
	if r.failedLists >= 2 {
		r.listsInPages = true
	}
	if !isRefusal(err) {
		r.wasUnreachable = true
	}
	// If this was the hourly relist, then watching comes first: events cannot wait, and the relist can.
	r.relistAt = time.Now().Add(relistInterval/12 + rand.N(relistInterval/12))
}

// isRefusal reports whether the server has understood a request and refused it (4xx).
func isRefusal(err error) bool {
	return kube.StatusOf(err).Code/100 == 4
}

// readPages reads a list into listing. It asks for one answer with all objects, which is half the work of pages for
// both sides, or for pages where such answers have failed.
func (r *Reflector[T]) readPages(ctx context.Context, listing *Listing[T]) (meta wire.ListMeta, err error) {
	tooSlow := fmt.Errorf("the list has not ended after %v", listTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, tooSlow)
	defer cancel()
	request := r.newRequest("PartialObjectMetadataList")
	if r.listsInPages {
		request.Query.Set("limit", strconv.Itoa(pageLimit))
	}
	progress := newListProgress(r.log, r.kind.Name)
	const maxPages = listLimit/pageLimit + 1
	for range maxPages {
		meta, err = r.readPage(ctx, request, listing, progress)
		if err != nil || meta.Continue == "" {
			return meta, err
		}
		request.Query.Set("continue", meta.Continue)
	}
	return meta, request.Failed(fmt.Errorf("the list has not ended after %d pages", maxPages))
}

// readPage adds the objects of one answer to listing.
func (r *Reflector[T]) readPage(
	ctx context.Context, request kube.Request, listing *Listing[T], progress *listProgress,
) (wire.ListMeta, error) {
	body, err := r.client.Stream(ctx, request)
	if err != nil {
		return wire.ListMeta{}, err
	}
	defer body.Close()
	add := func(obj T, text []byte) (kept bool, err error) {
		progress.note(listing.n)
		return listing.Add(obj, text)
	}
	meta, err := r.decoder.list(body, body.IsProtobuf, add)
	return meta, request.Failed(err)
}

// listProgress logs now and then how far a slow list has come.
type listProgress struct {
	log    *slog.Logger
	kind   string
	start  time.Time
	nextAt time.Duration // after start
}

func newListProgress(log *slog.Logger, kind string) *listProgress {
	return &listProgress{log: log, kind: kind, start: time.Now(), nextAt: slowList}
}

// note is called with the number of objects so far, before each object. It reads the clock rarely, because that costs
// time too.
func (p *listProgress) note(objects int) {
	if objects%256 != 0 {
		return
	}
	passed := time.Since(p.start)
	if passed <= p.nextAt {
		return
	}
	p.log.Info("still listing", "kind", p.kind, "objects", objects, "for", passed.Round(time.Second))
	p.nextAt = 2 * passed
}

// watch runs one watch to its end, and returns how long to wait before the next request.
func (r *Reflector[T]) watch(ctx context.Context) (wait time.Duration) {
	ctx, cancel := context.WithDeadline(ctx, r.relistAt)
	defer cancel()
	end, isVersionGood := r.openAndConsume(ctx)
	if ctx.Err() != nil || !isVersionGood {
		return 0 // podcount stops, or a list is due
	}
	return r.follow(end)
}

// openAndConsume opens a watch and applies its events. isVersionGood is false if the watch was given up because the
// server's versions have gone back.
func (r *Reflector[T]) openAndConsume(ctx context.Context) (end watchEnd, isVersionGood bool) {
	request := r.newWatchRequest()
	body, err := r.client.Stream(ctx, request)
	if err != nil {
		if !isRefusal(err) {
			r.wasUnreachable = true
		}
		return watchEnd{err: err}, true
	}
	defer body.Close()
	if r.wasUnreachable && r.haveVersionsGoneBack(ctx) {
		r.requireRelist("restored")
		return watchEnd{}, false
	}
	return r.consume(ctx, request, body), true
}

func (r *Reflector[T]) newWatchRequest() kube.Request {
	request := r.newRequest("PartialObjectMetadata")
	seconds := 300 + rand.IntN(300) // so that watches that began together do not end together
	request.Query.Set("watch", "1")
	request.Query.Set("resourceVersion", r.version)
	request.Query.Set("allowWatchBookmarks", "true")
	request.Query.Set("timeoutSeconds", strconv.Itoa(seconds))
	return request
}

// haveVersionsGoneBack asks the server for its newest version. If that is older than the one that we have seen, etcd
// was restored from a backup. Then a relist must come at once, because other changes will get the versions that we
// know. If the server does not answer, the next watch asks again.
func (r *Reflector[T]) haveVersionsGoneBack(ctx context.Context) bool {
	request := r.newRequest("")
	request.Accept = kube.Accept(true, "PartialObjectMetadataList", wire.JSON)
	request.Query.Set("limit", "1")
	request.Timeout = shortWatch // the watch, which is open, waits for this
	var page struct{ Metadata wire.ListMeta }
	if r.client.Send(ctx, request, &page) != nil {
		return false
	}
	r.wasUnreachable = false
	newest := page.Metadata.ResourceVersion
	if !newerVersion(r.version, newest) {
		return false
	}
	r.log.Info("versions have gone back", "kind", r.kind.Name, "from", r.version, "to", newest)
	return true
}

// consume applies the events of an open watch until it ends.
func (r *Reflector[T]) consume(ctx context.Context, request kube.Request, body *kube.Stream) watchEnd {
	start := time.Now()
	from := r.version
	end := watchEnd{isOpened: true}
	r.log.Log(ctx, levelFlow, "watching", "kind", r.kind.Name, "rv", from)
	// A watch that lives for a while works, even if there is nothing to tell. One that was refused ends at once.
	lives := time.AfterFunc(shortWatch, func() { r.outage.Worked("watch") })
	defer lives.Stop()

	err := r.decoder.events(body, body.IsProtobuf, func(event WatchEvent[T]) error {
		if event.Status != nil {
			return request.Failed(statusOfErrorFrame(*event.Status))
		}
		end.frames++
		r.metrics.Count("podcount_watch_events_total", r.kind.Name, event.Type)
		r.apply(event)
		if r.version != from {
			r.outage.Worked("watch")
		}
		return nil
	})
	end.err = cmp.Or(err, io.EOF)
	end.hasMoved = r.version != from
	end.lasted = time.Since(start)
	return end
}

// statusOfErrorFrame makes an error of the Status in an ERROR frame, which may lack the code.
func statusOfErrorFrame(frame wire.Status) *kube.Status {
	frame.Code = cmp.Or(frame.Code, http.StatusInternalServerError)
	return &kube.Status{Status: frame}
}

// apply takes one event into the store, and moves the version to resume from. A bookmark only moves the version.
func (r *Reflector[T]) apply(event WatchEvent[T]) {
	meta := event.Object.meta()
	version := meta.ResourceVersion()
	isStale := !newerVersion(version, r.version)
	if r.log.Enabled(context.Background(), slog.LevelDebug) {
		what := strings.TrimSpace(event.Type + " " + r.kind.Name + " " + meta.Key().String())
		r.log.Debug(what, "rv", version, "stale", isStale)
	}
	if isStale {
		return // time must not run backwards
	}
	r.resumeFrom(version)
	if event.Type != "BOOKMARK" {
		r.publish(r.Apply(event.Type, event.Object)...)
	}
}

// follow does what follows from the end of a watch, and returns how long to wait before the next request.
func (r *Reflector[T]) follow(end watchEnd) (wait time.Duration) {
	outcome := end.outcome()
	next := consequences[outcome]
	if end.frames > 0 && !end.isShort() {
		r.fruitlessWatches = 0
		r.expiredWatches = 0
	}
	if next.problem != "" {
		wait = r.noteFailure(next.problem, end.err)
	} else {
		r.log.Log(context.Background(), levelFlow, "watch ended", "kind", r.kind.Name, "rv", r.version, "err", end.err)
	}
	if outcome == watchExpired {
		r.expiredWatches++
		wait = retry.Backoff(r.expiredWatches, reflectorBackoff, reflectorMaxBackoff)
	}
	if next.relistAfter == 0 {
		return wait
	}
	r.fruitlessWatches++
	if r.fruitlessWatches >= next.relistAfter {
		r.requireRelist(next.relistReason)
		r.log.Info("listing again", "kind", r.kind.Name, "after", end.err)
	}
	return wait
}

// watchEnd is what is known about a watch that has ended.
type watchEnd struct {
	err      error // io.EOF if the server ended the stream between two events
	isOpened bool  // the server accepted the watch
	frames   int   // that were understood, bookmarks included
	hasMoved bool  // the version to resume from is newer now
	lasted   time.Duration
}

// isShort reports whether the watch came to an end before it can have been of any use.
func (end watchEnd) isShort() bool {
	return end.isOpened && !end.hasMoved && end.lasted < shortWatch
}

// outcome classifies the end of a watch.
func (end watchEnd) outcome() watchOutcome {
	status := kube.StatusOf(end.err)
	isSilent := errors.Is(end.err, kube.ErrSilent) && end.frames == 0
	isGarbage := errors.As(end.err, new(wire.GarbageError))
	switch {
	case status.Code == http.StatusGone || status.Reason == "Expired" || status.Reason == "Gone":
		return watchExpired
	case status.Code == http.StatusBadRequest || status.Code == http.StatusUnprocessableEntity:
		return watchRejected
	case status.Code == http.StatusTooManyRequests:
		return watchUnavailable
	case status.Code != 0 && end.isOpened:
		return watchFailed
	case status.Code != 0:
		return watchUnavailable
	case isSilent:
		return watchSilent
	case !end.isOpened:
		return watchUnavailable
	case isGarbage:
		return watchGarbled
	case end.isShort():
		return watchShort
	}
	return watchEnded
}

// watchOutcome says how a watch ended.
type watchOutcome int

const (
	watchEnded       watchOutcome = iota // the server or the network ended a watch that had worked
	watchExpired                         // 410: the server does not know the version any more
	watchRejected                        // 400 or 422: the server objects to the request itself
	watchFailed                          // the stream ended with an ERROR frame
	watchUnavailable                     // no watch was opened, or the server asked for patience (429)
	watchGarbled                         // the stream had something in it that cannot be understood
	watchSilent                          // nothing at all came, not even a bookmark
	watchShort                           // it ended within a second and brought nothing new
)

// consequence is what follows from an outcome. In any case the next watch resumes from the last version, unless a
// relist comes first.
type consequence struct {
	// problem is logged as a failure, and the next request waits for the backoff. If it is "", nothing has failed, and
	// the next request is sent at once.
	problem string

	// relistAfter is how many fruitless watches in a row lead to a relist, this one included. If it is 0, the watch was
	// not fruitless.
	relistAfter int

	// relistReason names the outcome in the metric podcount_relists_total.
	relistReason string
}

// consequences is the whole policy of the reflector. A watch is fruitless if it ended in a way that may well repeat
// itself at the same version for ever. Then only a relist helps. But a relist is expensive, so it waits for a second or
// a third fruitless watch in a row where chance may have ended the first.
var consequences = map[watchOutcome]consequence{
	// Servers end each watch after some minutes, and connections break.
	watchEnded: {},

	// The version will not come back. This is no fault: a restarted server has forgotten all versions before its start.
	// The wait is a backoff of its own (see follow), because an outage before it must not make the relist wait another
	// minute.
	watchExpired: {relistAfter: 1, relistReason: "expired"},

	// The same request would be rejected again. Perhaps the server does not like the version in it.
	watchRejected: {problem: "cannot watch", relistAfter: 1, relistReason: "refused"},

	// The same version may bring the same ERROR frame again.
	watchFailed: {problem: "cannot watch", relistAfter: 2, relistReason: "error"},

	// The version may still be good once the server can be reached, has room, or grants the right.
	watchUnavailable: {problem: "cannot watch"},

	// A broken connection does not garble. But the event that comes next may always be encoded like this.
	watchGarbled: {problem: "watch ended in garbage", relistAfter: 2, relistReason: "garbage"},

	// A connection may have died without a word. But a server answers with silence, too, if it has never heard of the
	// version because etcd was restored from an older backup.
	watchSilent: {relistAfter: 2, relistReason: "silence"},

	// Without a backoff this would be a busy loop.
	watchShort: {problem: "watch ended at once", relistAfter: 3, relistReason: "short"},
}

// newRequest returns a request for the objects of the kind, as a list or a watch sends it. Where only metadata is
// needed, the answer should come as metadataType.
func (r *Reflector[T]) newRequest(metadataType string) kube.Request {
	query := url.Values{}
	if r.kind.Selector != "" {
		query.Set("labelSelector", r.kind.Selector)
	}
	if r.kind.Fields != "" {
		query.Set("fieldSelector", r.kind.Fields)
	}
	mediaTypes := []string{wire.JSON}
	if r.kind.Protobuf {
		mediaTypes = []string{wire.Protobuf, wire.JSON}
	}
	return kube.Request{
		Method: http.MethodGet,
		Path:   r.collectionPath(r.kind.Namespace),
		Query:  query,
		Accept: kube.Accept(r.kind.MetadataOnly, metadataType, mediaTypes...),
	}
}

// collectionPath is the path of all objects in a namespace, or of all objects if the namespace is "".
func (r *Reflector[T]) collectionPath(namespace string) string {
	if namespace == "" {
		return r.kind.API + "/" + r.kind.Resource
	}
	return r.kind.API + "/namespaces/" + namespace + "/" + r.kind.Resource
}

func (r *Reflector[T]) publish(changes ...Delta[T]) {
	for _, change := range changes {
		for _, handle := range r.handlers {
			handle(change)
		}
	}
}

// resumeFrom makes the next watch begin at this version, which the server has just sent.
func (r *Reflector[T]) resumeFrom(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = version
	r.lastContact = time.Now()
	r.relistReason = ""
}

// requireRelist makes the next request a list. The reason goes to the metric podcount_relists_total.
func (r *Reflector[T]) requireRelist(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = ""
	r.relistReason = reason
}

// jittered returns d, or up to this fraction more or less at random, so that processes that began together drift apart.
func jittered(d time.Duration, fraction float64) time.Duration {
	spread := time.Duration(float64(d) * fraction)
	return d - spread + rand.N(2*spread)
}

// errStripped means that the server accepted a patch, but that the object does not have what was patched.
var errStripped = errors.New("the server accepted the patch but dropped what it writes: " +
	"look for a mutating webhook, a MutatingAdmissionPolicy or a schema that removes it")

// Patch sends a merge patch for obj, or for one of its subresources, and takes the answer into the store. subresource
// is "" for the object itself.
//
// It returns the object as it is on the server now, or nil if the server does not have obj any more: it is gone, or it
// was recreated under the same name, as the watch will report. isKept reports whether the object in the answer has what
// was patched. If it does not, Patch returns the object and an error that wraps errStripped. All other errors are those
// of kube.Client.Send, and come with a nil object.
//
// The patch carries no resourceVersion, so that other writers cannot make it fail. It does carry the uid, so that an
// object that was recreated does not get what was meant for its predecessor.
func (r *Reflector[T]) Patch(
	ctx context.Context, obj T, subresource string, patch map[string]any, isKept func(now T) bool,
) (now T, err error) {
	var none T
	now, err = r.sendPatch(ctx, obj, subresource, patch)
	if err != nil {
		r.countPatch("failed")
		return none, err
	}
	if now == none {
		r.countPatch("gone")
		return none, nil
	}
	r.publish(r.ApplyAnswer(now)...)
	if !isKept(now) {
		r.countPatch("stripped")
		return now, fmt.Errorf("patch %s/%s: %w", r.kind.Resource, now.meta().Key(), errStripped)
	}
	r.countPatch("written")
	return now, nil
}

func (r *Reflector[T]) countPatch(result string) {
	if r.kind.PatchMetric != "" {
		r.metrics.Count(r.kind.PatchMetric, result)
	}
}

// sendPatch sends a patch, and returns the object in the answer. It returns nil if the server does not have obj.
func (r *Reflector[T]) sendPatch(
	ctx context.Context, obj T, subresource string, patch map[string]any,
) (now T, err error) {
	var none T
	key := obj.meta().Key()
	path := r.collectionPath(key.Namespace) + "/" + key.Name
	if subresource != "" {
		path += "/" + subresource
	}
	var answer json.RawMessage
	err = r.client.Send(ctx, kube.Request{
		Method: http.MethodPatch,
		Path:   path,
		Body:   withUID(patch, obj.meta().UID()),
		Accept: kube.Accept(r.kind.MetadataOnly, "PartialObjectMetadata", wire.JSON),
	}, &answer)
	status := kube.StatusOf(err)
	isGone := status.Reason == "NotFound"
	isRecreated := status.Reason == "Invalid" && status.HasCause("metadata.uid")
	if isGone || isRecreated {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	now, err = newDecoder(&r.kind).parse(answer)
	if err != nil {
		return none, err
	}
	// When a subresource is patched, the server ignores the uid in the patch.
	if now.meta().UID() != obj.meta().UID() {
		return none, nil
	}
	return now, nil
}

// withUID returns a merge patch that the server applies only to the object with this uid.
func withUID(patch map[string]any, uid string) map[string]any {
	metadata := map[string]any{"uid": uid}
	if given, ok := patch["metadata"].(map[string]any); ok {
		maps.Copy(metadata, given)
	}
	guarded := maps.Clone(patch)
	guarded["metadata"] = metadata
	return guarded
}

// Synced returns a channel that is closed when the first list is complete. With Once, it is also closed when the server
// does not have the resource.
func (r *Reflector[T]) Synced() <-chan struct{} { return r.synced }

// Installed returns the present installation of a resource under /apis/, or nil while the server does not have it.
func (r *Reflector[T]) Installed() *Installation { return r.installed.Load() }

// Kind returns the name of the kind, as in Pod.
func (r *Reflector[T]) Kind() string { return r.kind.Name }

// Reference names an object for an Event about it.
func (r *Reflector[T]) Reference(obj T) events.Reference {
	key := obj.meta().Key()
	return events.Reference{
		APIVersion: r.kind.apiVersion(),
		Kind:       r.kind.Name,
		Namespace:  key.Namespace,
		Name:       key.Name,
		UID:        obj.meta().UID(),
	}
}

// ReflectorState is what /debug/state shows of a reflector.
type ReflectorState struct {
	Objects           int     `json:"objects"`
	IsReady           bool    `json:"ready"`
	ResourceVersion   string  `json:"resourceVersion"`
	SecondsSinceHeard float64 `json:"secondsSinceHeard"`
}

// State returns the present state. A reflector is ready once its first list is complete, and also while its resource is
// not installed: then there is nothing that a controller could miss.
func (r *Reflector[T]) State() ReflectorState {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := ReflectorState{
		Objects:           r.Len(),
		IsReady:           r.isAbsent() || background.HasEnded(r.synced),
		ResourceVersion:   r.version,
		SecondsSinceHeard: time.Since(r.lastContact).Seconds(),
	}
	if r.isAbsent() {
		state.SecondsSinceHeard = 0 // nothing is expected from the server
	}
	return state
}

// SetGauges sets the metrics that are not updated as things happen. It removes those whose value nobody knows, because
// a 0 would claim that there are no objects.
func (r *Reflector[T]) SetGauges() {
	state := r.State()
	if r.isAbsent() {
		r.metrics.Remove("podcount_watch_age_seconds", r.kind.Name)
	} else {
		r.metrics.Set(state.SecondsSinceHeard, "podcount_watch_age_seconds", r.kind.Name)
	}
	if r.isAbsent() || !background.HasEnded(r.synced) {
		r.metrics.Remove("podcount_cache_objects", r.kind.Name)
	} else {
		r.metrics.Set(float64(state.Objects), "podcount_cache_objects", r.kind.Name)
	}
}

// isAbsent reports whether the reflector waits for its resource to be installed.
func (r *Reflector[T]) isAbsent() bool {
	return r.kind.isOptional() && !r.once && r.Installed() == nil
}
