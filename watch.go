package main

// watch.go owns the reflector, which keeps a store equal to the server: it asks whether a resource is there, lists,
// watches, resumes, and lists again; and it patches objects, as the answers belong into the store. It counts nothing,
// decides nothing, and knows no kind.

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

	"podcount/internal/events"
	"podcount/internal/kube"
	"podcount/internal/logging"
	"podcount/internal/metrics"
	"podcount/internal/retry"
	"podcount/internal/wire"
)

// The reflector's numbers, as in client-go where not explained here.
const (
	reflectorBackoff = 800 * time.Millisecond
	reflectorLimit   = 30 * time.Second
	healthy          = 2 * time.Minute // without a failure, after which the backoff begins anew
	relistEvery      = time.Hour       // guards against a server that has lost an event
	shortWatch       = time.Second
	pageLimit        = 2000             // objects a page, once whole lists have failed
	listTime         = 10 * time.Minute // how long a list may take
	slowList         = 2 * time.Second
	discoverEvery    = 10 * time.Second // ± 20 %
)

var errRelist = errors.New("time for a full list")

// Reflector keeps a store equal to what the server has: it lists, then watches from the list's resourceVersion, and
// resumes from the last version that it saw. https://kubernetes.io/docs/reference/using-api/api-concepts/
type Reflector[T Object[T]] struct {
	*Store[T]
	client   *kube.Client
	kind     Kind[T]          // may be changed until Run, as may
	handlers []func(Delta[T]) // who hears every change but the first list's; they must not block for long
	once     bool             // what is not there, and what changes, is no business of ours

	log       *slog.Logger
	metrics   *metrics.Registry
	outage    *logging.Outage          // of lists and watches
	discovery *logging.Outage          // of a resource under /apis/
	synced    context.Context          // done after the first list, by
	listed    func()                   // this
	found     atomic.Pointer[presence] // what discovery says of a resource under /apis/

	state   sync.Mutex // guards both, which Run alone changes
	version string     // where the next watch starts; "": list first
	heard   time.Time  // when the server last told anything

	// Owned by Run, alone.
	decoder  *decoder[T]
	why      string    // the next list is due, if not to time
	relistAt time.Time // when the list is due in any case
	paged    bool      // whole lists have failed: list in pages
	lost     int       // whole lists that failed in a row
	vain     int       // watches in a row that came to nothing: ended at once, in garbage, or were silent
	expired  int       // whose version was too old
	failures int
	failedAt time.Time
	away     bool // the server was: it may come back with another past
}

// presence is a resource's time on the server: another pointer whenever it has come, or come back, or become another.
type presence struct{ status bool } // there is a subresource of this name

// ReflectorOptions say what a reflector keeps equal to what. Each but Once is needed.
type ReflectorOptions[T Object[T]] struct {
	Client  *kube.Client
	Kind    Kind[T]
	Store   *Store[T] // is filled
	Log     *slog.Logger
	Metrics *metrics.Registry
	Once    bool // a resource that the server does not have is not waited for
}

// levelFlow is the level of what happens often while all is well, such as a watch that ends and the next one: -v 2.
const levelFlow = slog.Level(-2)

// NewReflector makes a reflector. It asks for nothing until Run.
func NewReflector[T Object[T]](o ReflectorOptions[T]) *Reflector[T] {
	name := o.Kind.Name
	r := &Reflector[T]{
		Store:     o.Store,
		client:    o.Client,
		kind:      o.Kind,
		once:      o.Once,
		log:       o.Log,
		metrics:   o.Metrics,
		outage:    logging.NewOutage(o.Log, name, "watching again", "kind", name),
		discovery: logging.NewOutage(o.Log, name, "discovery answers again", "kind", name),
		why:       "start",
		heard:     time.Now(),
	}
	r.synced, r.listed = context.WithCancel(context.Background())
	r.decoder = newDecoder(&r.kind)
	return r
}

func (r *Reflector[T]) tell(changes ...Delta[T]) {
	for _, d := range changes {
		for _, f := range r.handlers {
			f(d)
		}
	}
}

// Reference names an object to the event recorder.
func (r *Reflector[T]) Reference(obj T) events.Reference {
	_, version, _ := strings.Cut(r.kind.API[1:], "/")
	return events.Reference{
		APIVersion: version,
		Kind:       r.kind.Name,
		Namespace:  obj.meta().Key().Namespace,
		Name:       obj.meta().Key().Name,
		UID:        obj.meta().UID(),
	}
}

// Synced is closed once the first list is complete.
func (r *Reflector[T]) Synced() <-chan struct{} { return r.synced.Done() }

// State is for people, and for gauges. A store is ready if complete; that of a resource that the server does not have
// is.
func (r *Reflector[T]) State() (kind string, isReady bool, state map[string]any) {
	r.state.Lock()
	version, silent := r.version, time.Since(r.heard).Seconds()
	r.state.Unlock()
	absent := !r.once && strings.HasPrefix(r.kind.API, "/apis/") && r.found.Load() == nil
	if isReady = absent || r.synced.Err() != nil; absent {
		silent = 0 // as it should be
	}
	if absent {
		r.metrics.Remove("podcount_watch_age_seconds", r.kind.Name)
	} else {
		r.metrics.Set(silent, "podcount_watch_age_seconds", r.kind.Name)
	}
	if absent || r.synced.Err() == nil { // nobody knows how many there are
		r.metrics.Remove("podcount_cache_objects", r.kind.Name)
	} else {
		r.metrics.Set(float64(r.Len()), "podcount_cache_objects", r.kind.Name)
	}
	return r.kind.Name, isReady, map[string]any{
		"objects":           r.Len(),
		"ready":             isReady,
		"resourceVersion":   version,
		"secondsSinceHeard": silent,
	}
}

// move sets where the next watch starts, as the server has just told; or, by "", says why a list is due.
func (r *Reflector[T]) move(version, why string) {
	r.state.Lock()
	defer r.state.Unlock()
	if r.version, r.why = version, why; version != "" {
		r.heard = time.Now()
	}
}

// errStripped is why an object is not right although the server has accepted what was written.
var errStripped = errors.New("the server accepted the write, but not what it says: " +
	"a mutating webhook, a MutatingAdmissionPolicy or a schema takes that away")

// Patch sends a merge patch of obj, or of its subresource sub, and takes the answer into the store. It returns the
// object as it is now; nil if it is gone, or was made again under its name, as the watch will tell. kept reports
// whether the object in the answer has what was written: if not, the error is errStripped, and the object is returned
// beside it.
//
// The patch goes without resourceVersion, so that other writers cannot hold us up, but with the uid, so that an object
// that was made again does not get what was meant for the one before it.
func (r *Reflector[T]) Patch(
	ctx context.Context, obj T, sub string, patch map[string]any, kept func(now T) bool,
) (now T, err error) {
	now, err = r.patch(ctx, obj, sub, patch)
	var none T
	switch {
	case err != nil:
		r.metrics.Count(r.kind.Patches, "failed")
		return none, err
	case now == none:
		r.metrics.Count(r.kind.Patches, "gone")
		return none, nil
	}
	if !kept(now) {
		r.metrics.Count(r.kind.Patches, "stripped")
		err = fmt.Errorf("patch %s/%s: %w", r.kind.Resource, now.meta().Key(), errStripped)
	} else {
		r.metrics.Count(r.kind.Patches, "written")
	}
	r.tell(r.Apply("WRITTEN", now)...)
	return now, err
}

// patch sends the patch, and returns the object of the answer; nil if obj is gone.
func (r *Reflector[T]) patch(ctx context.Context, obj T, sub string, patch map[string]any) (now T, err error) {
	meta := map[string]any{"uid": obj.meta().UID()}
	given, _ := patch["metadata"].(map[string]any)
	maps.Copy(meta, given)
	patch["metadata"] = meta
	key := obj.meta().Key()
	req := kube.Request{
		Method: http.MethodPatch,
		Path:   strings.TrimSuffix(r.kind.path(key.Namespace)+"/"+key.Name+"/"+sub, "/"),
		Body:   patch,
		Accept: kube.Accept(r.kind.MetadataOnly, "PartialObjectMetadata", wire.JSON),
	}
	var answer json.RawMessage
	err = r.client.Send(ctx, req, &answer)
	status := kube.StatusOf(err)
	var none T
	isGone := status.Reason == "NotFound"
	isAnother := status.Reason == "Invalid" && status.HasCause("metadata.uid")
	if isGone || isAnother {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	now, err = newDecoder(&r.kind).parse(answer)
	if err != nil {
		return none, err
	}
	if now.meta().UID() != obj.meta().UID() {
		return none, nil // of a subresource's patch, the server does not check it
	}
	return now, nil
}

// Run keeps the store equal to the server until ctx ends. It returns early in two cases: with nil where Once is set and
// the server does not have the resource; and with an error that wraps a *kube.Status where the very first list, of a
// resource that is not under /apis/, is a bad request: then a selector is wrong, and no patience will mend it.
func (r *Reflector[T]) Run(ctx context.Context) error {
	defer r.outage.Stop()
	defer r.discovery.Stop()
	if !strings.HasPrefix(r.kind.API, "/apis/") {
		return r.run(ctx)
	}
	// No single 404, of a list or of discovery, says that the resource is gone: one that is new may be answered so for
	// a moment.
	var running sync.WaitGroup
	stop, err := func() {}, error(nil)
	for lacks := 0; ctx.Err() == nil; retry.Sleep(ctx, max(kube.RetryAfter(err), discoverEvery*4/5+rand.N(discoverEvery*2/5))) {
		here, news := r.found.Load(), (*presence)(nil)
		news, err = r.discover(ctx)
		if news != nil {
			lacks = 0
		} else if err == nil {
			lacks++
		}
		if err == nil {
			r.discovery.Worked("discovery")
		}
		switch {
		case err != nil && ctx.Err() == nil:
			r.discovery.Failed("discovery", "cannot discover", kube.PauseBetweenComplaints(err), "err", err)
		case news == nil && here == nil && lacks == 1:
			r.log.Info("waiting for a resource that the server does not have: is its CRD installed?",
				"resource", r.kind.Resource, "in", r.kind.API)
			if r.once {
				r.listed()
				stop()
				return nil
			}
		case news == nil && here != nil && lacks == 2:
			r.log.Info("the resource is gone: waiting for it to come back",
				"resource", r.kind.Resource, "in", r.kind.API)
			stop()
			running.Wait()
			r.outage.Forget("watch")
			r.found.Store(nil)
			r.failures = 0
			r.move("", "return")
			r.tell(r.List().Commit()...)
		case news != nil && (here == nil || *news != *here):
			r.log.Info("discovered", "resource", r.kind.Resource, "in", r.kind.API, "status", news.status)
			r.found.Store(news)
			for _, obj := range r.All() { // none, where it has just come
				r.tell(Delta[T]{obj, obj})
			}
			if here == nil {
				var alive context.Context
				alive, stop = context.WithCancel(ctx)
				running.Go(func() { r.run(alive) })
			}
		}
	}
	stop()
	running.Wait()
	return nil
}

// discover asks whether the server has the resource; nil: no.
// https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
func (r *Reflector[T]) discover(ctx context.Context) (found *presence, err error) {
	var answer struct {
		Kind      string
		Resources []struct{ Name string }
	}
	err = r.client.Send(ctx, kube.Request{Method: http.MethodGet, Path: r.kind.API}, &answer)
	if kube.StatusOf(err).Code == http.StatusNotFound {
		return nil, nil // nothing at all of this group and version
	} else if err == nil && answer.Kind != "APIResourceList" {
		err = fmt.Errorf("%s: the answer is of kind %q, not APIResourceList", r.kind.API, answer.Kind)
	}
	has := func(name string) bool { return slices.Contains(answer.Resources, struct{ Name string }{name}) }
	if has(r.kind.Resource) {
		found = &presence{has(r.kind.Resource + "/status")}
	}
	return found, err
}

// run lists and watches until ctx ends, or as Run says.
func (r *Reflector[T]) run(ctx context.Context) error {
	for ctx.Err() == nil {
		var wait time.Duration
		if r.version != "" && time.Now().Before(r.relistAt) {
			wait = r.watch(ctx)
		} else if err := r.list(ctx); err != nil && ctx.Err() == nil {
			if r.synced.Err() == nil && r.found.Load() == nil && kube.StatusOf(err).Reason == "BadRequest" {
				return err
			}
			wait = r.afterFailure("cannot list", err)
		}
		retry.Sleep(ctx, wait)
	}
	return nil
}

// afterFailure says what failed, and how long to wait.
func (r *Reflector[T]) afterFailure(what string, err error) time.Duration {
	if time.Since(r.failedAt) > healthy {
		r.failures = 0
	}
	r.failures++
	r.failedAt = time.Now()
	wait := max(retry.Backoff(r.failures, reflectorBackoff, reflectorLimit), kube.RetryAfter(err))
	r.outage.Failed("watch", what, kube.PauseBetweenComplaints(err), "err", err)
	return wait
}

// request begins a list or a watch, whose objects come as this type where metadata alone is asked for.
func (r *Reflector[T]) request(as string) kube.Request {
	q := url.Values{"labelSelector": {r.kind.Selector}, "fieldSelector": {r.kind.Fields}}
	maps.DeleteFunc(q, func(_ string, values []string) bool { return values[0] == "" })
	types := []string{wire.Protobuf, wire.JSON}
	if !r.kind.Protobuf {
		types = types[1:]
	}
	return kube.Request{
		Method: http.MethodGet,
		Path:   r.kind.path(r.kind.Namespace),
		Query:  q,
		Accept: kube.Accept(r.kind.MetadataOnly, as, types...),
	}
}

// list makes the store equal to one complete list: the most recent state, which an unset resourceVersion asks for.
func (r *Reflector[T]) list(ctx context.Context) error {
	start, listing := time.Now(), r.List()
	meta, err := r.pages(ctx, listing)
	if err != nil {
		if code := kube.StatusOf(err).Code; listing.n > 0 || errors.Is(err, kube.ErrSilent) || code == http.StatusInternalServerError || code == http.StatusGatewayTimeout {
			r.lost++ // too much for this server, or for the way to it? Pages are smaller
			r.paged = r.paged || r.lost >= 2
		}
		// The hourly list can wait; what the watch brings cannot.
		r.relistAt, r.away = time.Now().Add(relistEvery/12+rand.N(relistEvery/12)), r.away || kube.StatusOf(err).Code/100 != 4
		return err
	}
	isFirst := r.synced.Err() == nil
	changes := listing.Commit() // of the first list, none
	r.tell(changes...)
	changed := len(changes)
	if isFirst {
		changed = r.Len()
	}
	r.log.Info("listed", "kind", r.kind.Name, "objects", r.Len(), "rv", meta.ResourceVersion, "changes", changed,
		"took", time.Since(start).Round(time.Millisecond))
	r.metrics.Count("podcount_relists_total", r.kind.Name, cmp.Or(r.why, "hour"))
	r.move(meta.ResourceVersion, "")
	r.lost, r.vain, r.away = 0, 0, false
	r.relistAt = time.Now().Add(relistEvery + rand.N(relistEvery/5) - relistEvery/10)
	r.listed()
	return nil
}

// pages reads a list: whole, in one answer, which is half the work for both sides; or in pages.
func (r *Reflector[T]) pages(ctx context.Context, listing *Listing[T]) (meta wire.ListMeta, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTime, fmt.Errorf("the list has not ended after %v", listTime))
	defer cancel()
	start, slow, req := time.Now(), slowList, r.request("PartialObjectMetadataList")
	if r.paged {
		req.Query.Set("limit", strconv.Itoa(pageLimit))
	}
	for range listLimit/pageLimit + 1 {
		body, err := r.client.Stream(ctx, req)
		if err != nil {
			return meta, err
		}
		meta, err = r.decoder.list(body, body.IsProtobuf, func(obj T, text []byte) (kept bool, err error) {
			if listing.n%256 == 0 && time.Since(start) > slow {
				r.log.Info("still listing", "kind", r.kind.Name, "objects", listing.n,
					"for", time.Since(start).Round(time.Second))
				slow = 2 * time.Since(start)
			}
			return listing.Add(obj, text)
		})
		body.Close()
		if err != nil || meta.Continue == "" {
			return meta, req.Failed(err)
		}
		req.Query.Set("continue", meta.Continue)
	}
	return meta, req.Failed(fmt.Errorf("the list has not ended after %d pages", listLimit/pageLimit))
}

// watch applies events until the watch ends. Then it decides how long to wait, and, by clearing version, whether to
// list.
func (r *Reflector[T]) watch(ctx context.Context) (wait time.Duration) {
	due, cancel := context.WithDeadlineCause(ctx, r.relistAt, errRelist)
	defer cancel()
	req := r.request("PartialObjectMetadata")
	maps.Copy(req.Query, url.Values{"watch": {"1"}, "resourceVersion": {r.version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(300 + rand.IntN(300))}}) // so that watches do not all end together
	body, err := r.client.Stream(due, req)
	opened, from, start := err == nil, r.version, time.Now()
	events := 0 // frames that were understood, bookmarks too
	if opened {
		defer body.Close()
		if r.away && r.rewound(ctx) {
			return 0
		}
		start = time.Now()
		r.log.Log(ctx, levelFlow, "watching", "kind", r.kind.Name, "rv", from)
		// An idle watch says nothing for a while. One that was refused in truth ends at once.
		lives := time.AfterFunc(shortWatch, func() { r.outage.Worked("watch") })
		err = r.decoder.events(body, body.IsProtobuf, func(ev WatchEvent[T]) error {
			if ev.Status != nil {
				status := &kube.Status{Status: *ev.Status}
				status.Code = cmp.Or(status.Code, http.StatusInternalServerError)
				return req.Failed(status)
			}
			events++
			r.metrics.Count("podcount_watch_events_total", r.kind.Name, ev.Type)
			r.apply(ev)
			if r.version != from {
				r.outage.Worked("watch")
			}
			return nil
		})
		lives.Stop()
	}
	status := kube.StatusOf(err)
	code := status.Code
	r.away = r.away || !opened && code/100 != 4
	silent := events == 0 && errors.Is(err, kube.ErrSilent)
	short := opened && r.version == from && time.Since(start) < shortWatch
	if events > 0 && !short {
		r.vain, r.expired = 0, 0
	}
	enough, why, failed := 0, "", "" // that many watches in vain, one after the other, lead to a list; 0: this one was not
	switch {
	case errors.Is(err, errRelist) || ctx.Err() != nil:
		return 0
	case code == http.StatusGone || status.Reason == "Expired" || status.Reason == "Gone":
		// The version is too old, which is no fault: with a server's restart, history begins anew. A wait, but not an
		// outage's.
		r.expired++
		enough, why, wait = 1, "expired", retry.Backoff(r.expired, reflectorBackoff, reflectorLimit)
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity:
		enough, why, failed = 1, "refused", "cannot watch"
	case opened && code != 0 && code != http.StatusTooManyRequests: // an ERROR frame: for this version it may never end
		enough, why, failed = 2, "error", "cannot watch"
	case code != 0 || !opened && !silent:
		failed = "cannot watch"
	case errors.As(err, new(wire.GarbageError)):
		enough, why, failed = 2, "garbage", "watch ended in garbage"
	case silent: // Not even a bookmark. A version from the future, too, is answered so.
		enough, why = 2, "silence"
	case short:
		enough, why, failed = 3, "short", "watch ended at once"
	}
	err = cmp.Or(err, io.EOF)
	if failed != "" {
		wait = r.afterFailure(failed, err)
	} else {
		r.log.Log(ctx, levelFlow, "watch ended", "kind", r.kind.Name, "rv", r.version, "err", err)
	}
	if enough > 0 {
		if r.vain++; r.vain >= enough {
			r.move("", why)
			r.log.Info("listing anew", "kind", r.kind.Name, "after", err)
		}
	}
	return wait
}

// rewound asks for the newest version. It is older than what we have heard of if etcd was restored from a backup: then
// a list is due, and at once, as other changes will come under the same versions. Where that fails, the next watch
// asks.
func (r *Reflector[T]) rewound(ctx context.Context) bool {
	var page struct{ Metadata wire.ListMeta }
	req := r.request("")
	req.Accept = kube.Accept(true, "PartialObjectMetadataList", wire.JSON)
	req.Timeout = shortWatch // as the watch waits
	req.Query.Set("limit", "1")
	if r.client.Send(ctx, req, &page) != nil {
		return false
	}
	if r.away = false; newerVersion(r.version, page.Metadata.ResourceVersion) {
		r.log.Info("versions have gone back", "kind", r.kind.Name,
			"from", r.version, "to", page.Metadata.ResourceVersion)
		r.move("", "restored")
	}
	return r.version == ""
}

// apply takes one event and moves the resume point. A bookmark moves that only.
func (r *Reflector[T]) apply(ev WatchEvent[T]) {
	m := ev.Object.meta()
	stale := !newerVersion(m.ResourceVersion(), r.version) // it would turn back time
	if r.log.Enabled(context.Background(), slog.LevelDebug) {
		what := strings.TrimSpace(ev.Type + " " + r.kind.Name + " " + m.Key().String())
		r.log.Debug(what, "rv", m.ResourceVersion(), "stale", stale)
	}
	if stale {
		return
	}
	r.move(m.ResourceVersion(), "")
	if ev.Type != "BOOKMARK" {
		r.tell(r.Apply(ev.Type, ev.Object)...)
	}
}
