package main

// watch.go holds the Reflector, which keeps a Store equal to what the API server has. The Reflector lists a resource,
// watches it, resumes a watch that ended, and relists when resuming is not enough. Once an hour it audits the Store: it
// compares the Store with what the server had at the same version. If the resource comes from a
// CustomResourceDefinition, it first waits until the resource is installed. It also sends patches, because the server's
// answer to a patch belongs in the Store.
//
// The Reflector works for every kind, and makes no decisions about objects. The controllers in main.go do that.

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

	"podcount/internal/api/events"
	"podcount/internal/api/kube"
	"podcount/internal/api/objectmeta"
	"podcount/internal/api/retry"
	"podcount/internal/api/wire"
	"podcount/internal/run/process"
	"podcount/internal/view/logging"
	"podcount/internal/view/metrics"
	"podcount/internal/view/trace"
)

// levelFlow is the log level of frequent, normal events, such as the end of one watch and the start of the next. The
// flag -v 2 shows it.
const levelFlow = slog.Level(-2)

// The backoff after a failed request has the same values as in client-go's reflector. While the server is away, the
// first answer that anybody gets ends the waits of all: see retry.Shared.
const (
	initialBackoff    = 800 * time.Millisecond // after the first failure; each further failure doubles it
	maxBackoff        = 30 * time.Second
	backoffResetAfter = 2 * time.Minute // without a failure of a server that answers
)

const (
	// auditInterval is the time from one list or audit to the next audit, ± 10 %, while all watches work.
	auditInterval = time.Hour

	// auditRetry is the least time from a failed audit to the next one. The longest is twice that.
	auditRetry = 5 * time.Minute

	// maxFailedAudits is how many audits in a row must fail until a list replaces the next one.
	maxFailedAudits = 2

	// maxDriftExamples is the number of objects that the warning about an audit names.
	maxDriftExamples = 5

	// listTimeout is the longest time that a list may take, with all its pages.
	listTimeout = 10 * time.Minute

	// slowList is how long a list takes before its progress is logged.
	slowList = 2 * time.Second

	// pageLimit is the number of objects in a page. Lists come in pages only after whole lists have failed.
	pageLimit = 2000

	// briefWatch is how long a watch must last to count as working.
	briefWatch = time.Second

	// answerPatience is how long a watch may take to reach the version in an answer to Patch. It is twice the time from
	// one bookmark to the next.
	answerPatience = 2 * time.Minute

	// watchMargin is how much longer than its timeoutSeconds a watch may last. Servers end watches in time, but a proxy
	// may hold one that has lost its server.
	watchMargin = 30 * time.Second

	// versionCheckTimeout is the limit of haveVersionsGoneBack. It is short because the new watch, which is open
	// already, is not read meanwhile.
	versionCheckTimeout = time.Second

	// confirmTimeout is the limit of each request of Confirm.
	confirmTimeout = 10 * time.Second

	// confirmPatience is how long Confirm waits until the watch has reached the server's newest version, before it
	// demands a list. Where objects change all the time, an event comes at once. Elsewhere, only a bookmark shows that
	// nothing has changed, and bookmarks come once a minute.
	confirmPatience = 500 * time.Millisecond

	// discoveryInterval is how often the reflector asks whether a resource is installed, ± 20 %.
	discoveryInterval = 10 * time.Second

	// maxDiscoveryBackoff makes the longest backoff, with its jitter, as long as the longest discoveryInterval.
	maxDiscoveryBackoff = discoveryInterval * 3 / 5

	// absencesUntilRemoved is how often in a row discovery must lack an installed resource before it counts as removed.
	// A single 404 proves nothing, because the server may send one while it sets up another resource.
	absencesUntilRemoved = 2
)

// Reflector keeps a Store equal to what the server has. It lists, watches from the list's resourceVersion, resumes each
// watch from the last version that it saw, and audits the store about once an hour.
//
// Call Subscribe and the Need methods before Run. All other methods may be called at any time, by any goroutine.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type Reflector[T Object[T]] struct {
	*Store[T]
	client   *kube.Client
	kind     Kind[T]
	handlers []func(Delta[T])
	once     bool // see ReflectorOptions

	log             *slog.Logger
	metrics         *metrics.Registry
	trace           *trace.Trace
	outage          *logging.Outage // of lists and watches
	discoveryOutage *logging.Outage
	confirmOutage   *logging.Outage

	// The backoffs while the server does not answer, connected with those of all who ask it.
	serverBackoff    *retry.Member // of lists and watches
	discoveryBackoff *retry.Member

	synced     chan struct{} // closed by markSynced
	markSynced func()        // may be called more than once

	tellOthers func() // tells the other reflectors of a restored backup: see Restores

	lostAt atomic.Pointer[time.Time] // see LostAt; atomic, because the details of a ServerOutage need it

	// These run while a handler has a change from lists and watches, or from discovery. If one hangs with a change from
	// an answer to Patch, so does a worker, which the queue sees.
	publishing process.Stopwatch
	refreshing process.Stopwatch

	installed atomic.Pointer[Installation] // see Installed
	isMissing atomic.Bool                  // discovery has answered that the resource is not installed

	mu sync.Mutex // guards the fields down to confirmation

	// Only Run changes these, so Run reads them without mu.
	resumeVersion string             // the resourceVersion of the next watch; "" means that a list is due
	lastContact   time.Time          // when the server last sent a list or an event; zero if it never has
	listedAsOf    time.Time          // when the last complete list without a version was requested
	pausedUntil   time.Time          // when the last backoff ends, or has ended
	lastWatch     *WatchRecord       // how the last watch has ended; nil before that
	interrupt     context.CancelFunc // ends the watch or the audit that runs; nil while none does

	// Other goroutines change these, too.
	askAgainAt     time.Time     // newestVersion must not be called before this time
	newestAnswered string        // the newest version in an answer to Patch since the last complete list; "" if none
	answeredAt     time.Time     // when newestAnswered arrived
	isRestored     bool          // another reflector has noticed a restored backup, so Run must list
	confirmation   *confirmation // what Confirm waits for; nil while it does not wait

	// Only Run and the methods that it calls use the fields below.
	decoder *decoder[T]

	// Discovery. Resources under /api/ do not use these.
	session  *session // nil while the resource is not installed
	absences int      // answers in a row without the resource

	// What leads to a backoff although the server answers. Each begins anew after backoffResetAfter.
	failed       retry.Streak // lists and watches
	expired      retry.Streak // watches that ended with a 410
	undiscovered retry.Streak // discovery while the resource is not known to be installed

	// Lists.
	auditAt      time.Time // the next audit is due then
	relistReason string    // why resumeVersion is ""; a label of podcount_relists_total
	brokenLists  int       // failed lists since the last complete one whose errors suggest that the list is too large
	failedAudits int       // in a row
	usesPages    bool      // lists come in pages

	// Watches.
	fruitlessWatches int       // since the last list or useful watch; see watchPolicies
	watchedSince     time.Time // when the first watch since the last interruption was opened; zero if none was
	lastWasBrief     bool      // the last watch that was opened; see watchEnd.isBrief
	suspectsRestore  bool      // etcd may have been restored from a backup; see haveVersionsGoneBack
}

// ReflectorOptions configure a reflector. All fields except Once and Trace are required.
type ReflectorOptions[T Object[T]] struct {
	Client        *kube.Client
	Kind          Kind[T]
	Store         *Store[T]
	ServerBackoff *retry.Shared         // connects the backoffs of all who ask the server, while it does not answer
	Restores      *Restores             // connects the reflectors of one etcd
	ServerOutage  *logging.ServerOutage // logs that the server does not answer
	Log           *slog.Logger
	Metrics       *metrics.Registry
	Trace         *trace.Trace // gets a step for each list, watch, frame, change and patch

	// Once makes Run return if the server does not have the resource, or cannot be reached until a person acts.
	// Otherwise Run waits.
	Once bool
}

// NewReflector returns a reflector that sends no request until Run is called.
func NewReflector[T Object[T]](o ReflectorOptions[T]) *Reflector[T] {
	name := o.Kind.Name
	r := &Reflector[T]{
		Store:           o.Store,
		client:          o.Client,
		kind:            o.Kind,
		once:            o.Once,
		log:             o.Log,
		metrics:         o.Metrics,
		trace:           o.Trace,
		outage:          logging.NewOutage(o.Log, name, "watching again", "kind", name).MutedBy(o.ServerOutage),
		discoveryOutage: logging.NewOutage(o.Log, name, "discovery answers again", "kind", name).MutedBy(o.ServerOutage),
		confirmOutage:   logging.NewOutage(o.Log, name, "the cache is confirmed", "kind", name).MutedBy(o.ServerOutage),
		synced:          make(chan struct{}),
		relistReason:    "start",

		serverBackoff:    o.ServerBackoff.Join(),
		discoveryBackoff: o.ServerBackoff.Join(),
	}
	r.markSynced = sync.OnceFunc(func() { close(r.synced) })
	r.tellOthers = o.Restores.join(r.demandListAfterRestore)
	r.decoder = newDecoder(&r.kind)
	return r
}

// Subscribe makes the reflector call handle for every change of the store, except for the objects of the first list.
// Several goroutines may call handle at the same time. It must not block for long.
func (r *Reflector[T]) Subscribe(handle func(Delta[T])) {
	r.handlers = append(r.handlers, handle)
}

// NeedLabels makes the store keep the labels with these keys. All other labels are dropped to save memory.
func (r *Reflector[T]) NeedLabels(keys ...string) {
	r.kind.Labels = append(r.kind.Labels, keys...)
	r.decoder = newDecoder(&r.kind)
}

// NeedWholeObjects makes the reflector request spec and status. Without it, the server may send only metadata, which is
// much less work for both sides.
func (r *Reflector[T]) NeedWholeObjects() {
	r.kind.MetadataOnly = false
}

// readsWholeObjects reports whether NeedWholeObjects was called, or the kind needs whole objects anyway.
func (r *Reflector[T]) readsWholeObjects() bool { return !r.kind.MetadataOnly }

// NeedEveryVersion makes every new resourceVersion of an object a change. Without it, a version that differs only in
// fields that the store does not keep is no change.
func (r *Reflector[T]) NeedEveryVersion() {
	r.Store.reportsEveryVersion = true
}

// Run keeps the store equal to what the server has until ctx ends, and then returns nil. It returns early in three
// cases:
//   - It returns nil if Once is set and the server does not have the resource.
//   - It returns an error of kube.IsHopeless if Once is set and a list fails with it.
//   - It returns an error that wraps a *kube.Status if the server rejects the first list of a resource under /api/ as a
//     bad request. Then a selector is wrong, and a retry would not help.
func (r *Reflector[T]) Run(ctx context.Context) error {
	defer r.outage.Stop()
	defer r.discoveryOutage.Stop()
	defer r.confirmOutage.Stop()
	r.setDriftToZero()
	if r.kind.isOptional() {
		return r.runWhileInstalled(ctx)
	}
	return r.listAndWatch(ctx)
}

// runWhileInstalled asks the server every discoveryInterval whether the resource is installed, and lists and watches
// the resource while it is. A CustomResourceDefinition may be created, changed and removed at any time.
func (r *Reflector[T]) runWhileInstalled(ctx context.Context) error {
	defer func() { r.session.end() }() // a closure, because r.session changes
	for ctx.Err() == nil {
		found, err := r.discover(ctx)
		wait := r.untilNextDiscovery(err)
		isNotInstalled := errors.Is(err, errNotInstalled)
		switch {
		case ctx.Err() != nil:
			return nil
		case r.once && kube.IsHopeless(err):
			return err
		case isNotInstalled:
			r.discoveryOutage.Worked("discovery")
			r.handleAbsence()
		case err != nil:
			r.discoveryOutage.Failed("discovery", "cannot find out whether the resource is installed",
				kube.PauseBetweenComplaints(err), "err", err)
		default:
			r.discoveryOutage.Worked("discovery")
			r.handlePresence(ctx, found)
		}

		if r.once && isNotInstalled && r.session == nil {
			r.markSynced()
			return nil
		}
		r.discoveryBackoff.Sleep(ctx, wait)
	}
	return nil
}

// untilNextDiscovery returns how long to wait after discovery has ended with err, which is nil if it has worked.
func (r *Reflector[T]) untilNextDiscovery(err error) time.Duration {
	switch {
	case err == nil || errors.Is(err, errNotInstalled):
		r.discoveryBackoff.Works()
		r.undiscovered.Works(backoffResetAfter)
		return jittered(discoveryInterval, 0.2)
	case kube.IsUnanswered(err):
		return r.discoveryBackoff.Unanswered(err)
	case kube.IsAnswer(err):
		r.discoveryBackoff.Answered()
	}
	if r.session == nil { // The resource may be there, but is not listed yet.
		return r.undiscovered.Fail(kube.RetryAfter(err), initialBackoff, maxDiscoveryBackoff)
	}
	return max(kube.RetryAfter(err), jittered(discoveryInterval, 0.2))
}

// handlePresence begins a session, unless there is one, because discovery has found the resource.
func (r *Reflector[T]) handlePresence(ctx context.Context, found Installation) {
	r.absences = 0
	r.setInstalled(found)
	if r.session == nil {
		r.session = r.beginSession(ctx)
	}
}

// handleAbsence ends the session after absencesUntilRemoved answers in a row without the resource.
func (r *Reflector[T]) handleAbsence() {
	r.absences++
	if r.session == nil {
		r.isMissing.Store(true)
	}
	if r.session == nil && r.absences == 1 {
		r.log.Info("the server does not have this resource: is its CRD installed?",
			"resource", r.kind.Resource, "in", r.kind.API)
	}
	if r.session != nil && r.absences >= absencesUntilRemoved {
		r.session.end()
		r.session = nil
		r.handleRemoval()
	}
}

// errNotInstalled means that the server does not have the resource.
var errNotInstalled = errors.New("the resource is not installed")

// discover asks the server whether the resource is installed. It returns errNotInstalled if it is not.
// https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
func (r *Reflector[T]) discover(ctx context.Context) (Installation, error) {
	r.discoveryBackoff.Tries()
	var kind string
	var isInstalled, hasStatus bool
	read := func(answer io.Reader) (err error) {
		kind, err = wire.ReadResources(answer, func(name []byte) {
			isInstalled = isInstalled || string(name) == r.kind.Resource
			hasStatus = hasStatus || string(name) == r.kind.Resource+"/status"
		})
		return err
	}
	err := r.client.Send(ctx, kube.Request{Method: http.MethodGet, Path: r.kind.API}, read)
	if kube.StatusOf(err).Code == http.StatusNotFound {
		return Installation{}, errNotInstalled // nor is any other resource of this group and version
	}
	if err != nil {
		return Installation{}, err
	}
	if kind != "APIResourceList" {
		return Installation{}, fmt.Errorf("%s: the answer is of kind %q, not APIResourceList", r.kind.API, kind)
	}
	if !isInstalled {
		return Installation{}, errNotInstalled
	}
	return Installation{HasStatus: hasStatus}, nil
}

// Installation describes a resource under /apis/ that is installed. Each time that the resource is installed again, or
// that its description changes, there is a new pointer. So pointers tell installations apart.
type Installation struct {
	HasStatus bool // the resource has a status subresource
}

// setInstalled stores what discovery has found. If it is new, the controllers get every object again, because they may
// now have to write to it in another way.
func (r *Reflector[T]) setInstalled(found Installation) {
	known := r.Installed()
	isKnown := known != nil && *known == found
	if isKnown {
		return
	}
	r.log.Info("the resource is installed",
		"resource", r.kind.Resource, "in", r.kind.API, "status_subresource", found.HasStatus)
	r.installed.Store(&found)
	r.isMissing.Store(false)
	for _, obj := range r.All() {
		r.publishTimed(&r.refreshing, Delta[T]{Old: obj, New: obj})
	}
}

// handleRemoval empties the store after the resource was removed, because the server has deleted all its objects.
func (r *Reflector[T]) handleRemoval() {
	r.log.Info("the resource was removed: waiting for it to be installed again",
		"resource", r.kind.Resource, "in", r.kind.API)
	r.outage.Forget("watch")
	r.serverBackoff.Works() // It waits for no answer any more.
	r.installed.Store(nil)
	r.isMissing.Store(true)
	r.failed = retry.Streak{}
	r.expired = retry.Streak{}
	r.requireRelist("return")
	emptyList := r.BeginList()
	r.publishTimed(&r.refreshing, emptyList.Commit()...)
	r.endWaitIfConfirmed()
}

// session is a call of listAndWatch that runs in the background.
type session struct {
	cancel context.CancelFunc
	ended  <-chan struct{}
}

func (r *Reflector[T]) beginSession(ctx context.Context) *session {
	ctx, cancel := context.WithCancel(ctx)
	ended := process.Go(func() {
		r.listAndWatch(ctx) // It returns errors only for resources under /api/.
	})
	return &session{cancel: cancel, ended: ended}
}

// end stops a session, and waits until it has stopped. It does nothing if s is nil.
func (s *session) end() {
	if s == nil {
		return
	}
	s.cancel()
	<-s.ended
}

// listAndWatch lists, then watches and audits, until ctx ends. Run describes its error.
func (r *Reflector[T]) listAndWatch(ctx context.Context) error {
	for ctx.Err() == nil {
		r.takeDemand()
		var err error
		switch {
		case r.isListDue():
			err = r.relist(ctx)
		case r.isAuditDue():
			err = r.audit(ctx)
		default:
			wait := r.watch(ctx)
			r.pause(ctx, wait)
			continue
		}
		isHopeless := r.once && kube.IsHopeless(err)
		if err != nil && (isHopeless || r.isWrongSelector(err)) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			wait := r.recordFailure("cannot list", err)
			r.pause(ctx, wait)
		}
	}
	return nil
}

// pause waits before the next request, or until ctx ends. If the server has not answered, and answers another reflector
// now, that ends the wait, too.
func (r *Reflector[T]) pause(ctx context.Context, wait time.Duration) {
	r.setPause(wait)
	r.serverBackoff.Sleep(ctx, wait)
	r.setPause(0) // for isPaused
}

func (r *Reflector[T]) setPause(wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pausedUntil = time.Now().Add(wait)
}

func (r *Reflector[T]) isListDue() bool { return r.resumeVersion == "" }

func (r *Reflector[T]) isAuditDue() bool { return !time.Now().Before(r.auditAt) }

// isWrongSelector reports whether the error of a list means that a selector is wrong. Only the first list of a
// resource under /api/ proves that. Later lists, and those of custom resources, may be bad requests for other reasons.
func (r *Reflector[T]) isWrongSelector(err error) bool {
	isFirstList := !process.IsClosed(r.synced)
	return isFirstList && !r.kind.isOptional() && kube.StatusOf(err).Reason == "BadRequest"
}

// recordFailure logs a failed list or watch, and returns how long to wait before the next request.
func (r *Reflector[T]) recordFailure(problem string, err error) (wait time.Duration) {
	r.watchedSince = time.Time{}
	if kube.IsUnanswered(err) {
		wait = r.serverBackoff.Unanswered(err) // first, because it may mute the outage
	} else {
		wait = waitAfterFailure(&r.failed, err)
	}
	r.outage.Failed("watch", problem, kube.PauseBetweenComplaints(err), "err", err)
	return wait
}

// waitAfterFailure adds a failure to those that follow one another, and returns how long to wait before the next
// request.
func waitAfterFailure(streak *retry.Streak, err error) (wait time.Duration) {
	return streak.Fail(kube.RetryAfter(err), initialBackoff, maxBackoff)
}

// relist makes the store equal to one complete list. If the list fails, even after many objects, the store stays as it
// was. The request has no resourceVersion: without one, the server returns the most recent state.
func (r *Reflector[T]) relist(ctx context.Context) error {
	start := time.Now()
	r.watchedSince = time.Time{}
	answeredBefore := r.answeredVersion()
	listing := r.BeginList()
	meta, err := r.readList(ctx, r.newListRequest(), listing)
	if err != nil {
		r.planAfterFailedList(listing, err)
		return err // Without Commit, the listing is dropped, and the store does not change.
	}
	r.commitList(listing, meta.ResourceVersion, start)
	r.noticeRestore(answeredBefore, meta.ResourceVersion) // The list has repaired this store.
	r.forgetAnsweredVersion(answeredBefore)
	r.recordList(start)
	r.serverBackoff.Works()
	r.markSynced()
	return nil
}

// commitList makes the store equal to a complete list, and begins the next watch at the list's version.
func (r *Reflector[T]) commitList(listing *Listing[T], version string, start time.Time) {
	isFirst := !process.IsClosed(r.synced)
	changes := listing.Commit()
	r.publishTimed(&r.publishing, changes...)

	changeCount := len(changes)
	if isFirst {
		changeCount = r.Len() // Commit returns no changes for the first list.
	}
	r.log.Info("listed", "kind", r.kind.Name, "objects", r.Len(), "rv", version, "changes", changeCount,
		"took", time.Since(start).Round(time.Millisecond))
	r.emit(trace.Step{Point: trace.Listed, Version: version, Count: r.Len(), Took: time.Since(start)})
	reason := cmp.Or(r.relistReason, "hour") // Only the relist in place of an audit has no other reason.
	r.metrics.Count("podcount_relists_total", r.kind.Name, reason)

	r.lostAt.Store(nil)
	r.resumeFrom(version)
	r.planAfterList()
	r.fruitlessWatches = 0
	r.suspectsRestore = false
}

// planAfterList plans the next audit after a complete list.
func (r *Reflector[T]) planAfterList() {
	r.auditAt = time.Now().Add(jittered(auditInterval, 0.1))
	r.brokenLists = 0
	r.failedAudits = 0
}

// planAfterFailedList decides whether lists come in pages from now on, and whether to look for a restored backup. It
// also postpones the audit.
func (r *Reflector[T]) planAfterFailedList(listing *Listing[T], err error) {
	// A list that breaks off or times out may be too large for the server or the network. After two of them without a
	// complete list in between, lists come in pages.
	code := kube.StatusOf(err).Code
	brokeOff := listing.count > 0 || errors.Is(err, kube.ErrSilent)
	serverGaveUp := code == http.StatusInternalServerError || code == http.StatusGatewayTimeout
	if brokeOff || serverGaveUp {
		r.brokenLists++
	}
	if r.brokenLists >= 2 {
		r.usesPages = true
	}
	if !isRefusal(err) {
		r.suspectsRestore = true // The server may have been away, and only then can etcd have been restored.
	}
	r.postponeAudit() // A relist stays due, because resumeVersion is "".
}

// audit compares the store with a list of the objects as they were at resumeVersion. The last watch has ended there, so
// any difference is a fault, and not the passage of time: a watch has missed a change, or etcd was restored from a
// backup. audit counts the objects that differ, logs some of them, and corrects the store.
//
// A list without a version cannot prove that, and might not even find it. Since Kubernetes 1.34, such a list comes from
// the watch cache, which is what may have lost the change (https://github.com/kubernetes/kubernetes/issues/123072). A
// list at an exact version comes from etcd if the server's cache differs from etcd. The request gets a connection of
// its own, so that another replica of the API server may answer.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
func (r *Reflector[T]) audit(ctx context.Context) error {
	start := time.Now()
	version := r.resumeVersion
	r.watchedSince = time.Time{} // No watch is open during an audit, nor during a list.
	if !isDecimal(version) {
		return r.relistInsteadOfAudit(ctx, errors.New("the version is not a number"))
	}
	if r.failedAudits >= maxFailedAudits { // A list that finds less is better than none.
		return r.relistInsteadOfAudit(ctx, fmt.Errorf("%d audits in a row have failed", r.failedAudits))
	}
	areTrue, err := r.areVersionsTrue(ctx, version)
	if err != nil {
		r.countFailedAudit()
		r.postponeAudit()
		return err
	}
	if !areTrue {
		return r.relistInsteadOfAudit(ctx, errContradiction)
	}
	listing := r.BeginList()
	meta, err := r.readAudit(ctx, version, listing)
	switch {
	case errors.Is(err, errListDemanded):
		return nil // listAndWatch lists next.
	case isVersionUnavailable(err):
		return r.relistInsteadOfAudit(ctx, err)
	case err != nil:
		return r.handleFailedAudit(listing, err)
	case meta.ResourceVersion != version:
		// Servers before Kubernetes 1.19 ignore resourceVersionMatch, and send a state that is newer, but perhaps not
		// the newest. So it is not recorded by recordList, which would satisfy Confirm.
		r.countAudit("skipped")
		r.commitList(listing, meta.ResourceVersion, start)
		return nil
	}
	differences, changes := listing.CommitExact(version)
	r.publishTimed(&r.publishing, changes...)
	drift := slices.DeleteFunc(differences, r.isHarmless)
	r.reportDrift(drift, start)
	r.resumeFrom(version)
	r.planAfterList()
	return nil
}

// areVersionsTrue reports whether the server has all versions of the objects in the store. An audit at this version
// leaves alone what is newer, because it came with an answer to a patch. So it would never correct an object whose
// version is newer than all that the server has.
func (r *Reflector[T]) areVersionsTrue(ctx context.Context, version string) (bool, error) {
	held := r.newestHeld()
	if held == "" || !isNewerVersion(held, version) {
		return true, nil
	}
	if r.untilNextQuestion() > 0 {
		return false, r.newRequest("").Failed(errors.New("the server does not want to name its newest version yet"))
	}
	newest, err := r.newestVersion(ctx, confirmTimeout)
	if err != nil {
		return false, err
	}
	haveGoneBack := r.noticeRestore(held, newest)
	return !haveGoneBack, nil
}

// errListDemanded means that an audit was interrupted because Confirm demands a list, which is more urgent.
var errListDemanded = errors.New("a list is more urgent")

// readAudit reads the list of an audit. It returns an error that wraps errListDemanded if it was interrupted.
func (r *Reflector[T]) readAudit(
	ctx context.Context, version string, listing *Listing[T],
) (wire.ListMeta, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.allowInterrupt(func() { cancel(errListDemanded) })
	defer r.forbidInterrupt()
	return r.readList(ctx, r.newAuditRequest(version), listing)
}

// isVersionUnavailable reports whether the error of an audit's list means that the server cannot show that version. It
// has forgotten the version (410), does not have it yet, or does not support exact versions (400).
func isVersionUnavailable(err error) bool {
	status := kube.StatusOf(err)
	switch status.Code {
	case http.StatusGone, http.StatusBadRequest:
		return true
	case http.StatusGatewayTimeout: // Any other 504 is from a proxy.
		return status.HasCause("ResourceVersionTooLarge")
	case http.StatusInternalServerError: // https://github.com/kubernetes/kubernetes/issues/132358
		return strings.Contains(status.Message, "future revision")
	}
	return false
}

// handleFailedAudit counts a failed audit, and plans the next one. It returns err.
func (r *Reflector[T]) handleFailedAudit(listing *Listing[T], err error) error {
	r.countFailedAudit()
	r.planAfterFailedList(listing, err)
	return err
}

func (r *Reflector[T]) countFailedAudit() {
	r.failedAudits++
	r.countAudit("failed")
}

// postponeAudit lets the reflector watch before the next audit, because events are more urgent.
func (r *Reflector[T]) postponeAudit() {
	r.auditAt = time.Now().Add(auditRetry + rand.N(auditRetry))
}

// relistInsteadOfAudit lists without a version, which finds less than an audit, and proves nothing. why is the reason.
// If it is an error of the server with a Retry-After, the list waits for that.
func (r *Reflector[T]) relistInsteadOfAudit(ctx context.Context, why error) error {
	r.log.Info("cannot audit: listing without a version", "kind", r.kind.Name, "rv", r.resumeVersion, "why", why)
	r.countAudit("skipped")
	if err := retry.Sleep(ctx, kube.RetryAfter(why)); err != nil {
		return err
	}
	return r.relist(ctx)
}

// isHarmless reports whether a difference is no fault, because it shows the same version of a custom resource in
// another form. After a change of its CRD, the server may leave out fields, or add defaults.
func (r *Reflector[T]) isHarmless(difference Delta[T]) bool {
	if !r.kind.isOptional() || isNil(difference.Old) || isNil(difference.New) {
		return false
	}
	return difference.Old.meta().isSameVersion(difference.New.meta())
}

// reportDrift counts and logs what an audit has found.
func (r *Reflector[T]) reportDrift(drift []Delta[T], start time.Time) {
	r.log.Info("audited", "kind", r.kind.Name, "objects", r.Len(), "rv", r.resumeVersion, "drift", len(drift),
		"took", time.Since(start).Round(time.Millisecond))
	r.emit(trace.Step{Point: trace.Audited, Version: r.resumeVersion, Count: len(drift), Took: time.Since(start)})
	if len(drift) == 0 {
		r.countAudit("clean")
		return
	}
	r.countAudit("drift")
	var examples []string
	for _, difference := range drift {
		r.metrics.Count("podcount_cache_drift_total", r.kind.Name)
		examples = append(examples, describeDrift(difference))
	}
	slices.Sort(examples)
	examples = examples[:min(len(examples), maxDriftExamples)]
	r.log.Warn("the cache differed from the API server, and was corrected: "+
		"the API server lost watch events, or etcd was restored from a backup",
		"kind", r.kind.Name, "rv", r.resumeVersion, "objects", len(drift), "examples", strings.Join(examples, "; "))
}

// describeDrift returns an object's key, with its version in the store and at the server.
func describeDrift[T Object[T]](difference Delta[T]) string {
	versionOf := func(obj T) string {
		if isNil(obj) {
			return "none"
		}
		return obj.meta().ResourceVersion()
	}
	return fmt.Sprintf("%s (cached %s, actual %s)",
		difference.Key(), versionOf(difference.Old), versionOf(difference.New))
}

// setDriftToZero creates the counter that an alert watches. Prometheus would see no increase in a counter whose first
// value is 1.
func (r *Reflector[T]) setDriftToZero() {
	r.metrics.Set(0, "podcount_cache_drift_total", r.kind.Name)
}

// countAudit counts an audit in podcount_audits_total.
func (r *Reflector[T]) countAudit(result string) {
	r.metrics.Count("podcount_audits_total", r.kind.Name, result)
}

// isRefusal reports whether the server understood a request and refused it (4xx).
func isRefusal(err error) bool {
	return kube.StatusOf(err).Code/100 == 4
}

// newListRequest returns the request for a list of the most recent state. It requests all objects at once, which costs
// both sides half as much as pages. It requests pages only if usesPages is set.
func (r *Reflector[T]) newListRequest() kube.Request {
	request := r.newRequest("PartialObjectMetadataList")
	if r.usesPages {
		request.Query.Set("limit", strconv.Itoa(pageLimit))
	}
	return request
}

// newAuditRequest returns the request for a list of the state at exactly this version.
func (r *Reflector[T]) newAuditRequest(version string) kube.Request {
	request := r.newListRequest()
	request.Query.Set("resourceVersion", version)
	request.Query.Set("resourceVersionMatch", "Exact")
	request.NewConnection = true
	return request
}

// readList reads a list into listing, with all its pages.
//
// A later page that breaks off is requested once more, at once, because the server has just sent the page before it. So
// a list may take longer than any connection lasts. The token of a page stands for a version, so the repeated page has
// the same objects. The first page has no token. Its repetition could have other objects, so it is not repeated.
func (r *Reflector[T]) readList(
	ctx context.Context, request kube.Request, listing *Listing[T],
) (meta wire.ListMeta, err error) {
	tooSlow := fmt.Errorf("the list has not ended after %v", listTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, tooSlow)
	defer cancel()
	progress := newListProgress(r.log, r.kind.Name)
	const maxPages = listLimit/pageLimit + 1
	mayRepeatPage := false
	for range maxPages {
		countBefore := listing.count
		meta, err = r.readPage(ctx, request, listing, progress)
		hasBrokenOff := err != nil && kube.StatusOf(err).Code == 0 && ctx.Err() == nil
		if hasBrokenOff && mayRepeatPage {
			mayRepeatPage = false
			listing.count = countBefore // The repeated page brings the same objects again.
			continue
		}
		if err != nil || meta.Continue == "" {
			return meta, err
		}
		mayRepeatPage = true
		// The token has the version of the first page. With the token, the server accepts no other version.
		request.Query.Set("continue", meta.Continue)
		request.Query.Del("resourceVersion")
		request.Query.Del("resourceVersionMatch")
	}
	return meta, request.Failed(fmt.Errorf("the list has not ended after %d pages", maxPages))
}

// readPage sends one request, and adds the objects of the answer to listing.
func (r *Reflector[T]) readPage(
	ctx context.Context, request kube.Request, listing *Listing[T], progress *listProgress,
) (wire.ListMeta, error) {
	body, err := r.openStream(ctx, request)
	if err != nil {
		return wire.ListMeta{}, err
	}
	defer body.Close()
	add := func(obj T, metadata objectmeta.Draft) (kept bool, err error) {
		progress.logIfSlow(listing.count)
		return listing.Add(obj, metadata)
	}
	meta, err := r.decoder.list(body, body.IsProtobuf, add)
	return meta, request.Failed(err)
}

// openStream opens a list or a watch, and notes whether the server has answered.
func (r *Reflector[T]) openStream(ctx context.Context, request kube.Request) (*kube.Stream, error) {
	r.serverBackoff.Tries()
	body, err := r.client.Stream(ctx, request)
	if kube.IsAnswer(err) {
		r.serverBackoff.Answered()
	}
	return body, err
}

// listProgress logs the progress of a slow list, in intervals that double.
type listProgress struct {
	log     *slog.Logger
	kind    string
	start   time.Time
	nextLog time.Duration // since start
}

func newListProgress(log *slog.Logger, kind string) *listProgress {
	return &listProgress{log: log, kind: kind, start: time.Now(), nextLog: slowList}
}

// logIfSlow must be called before each object, with the number of objects so far. It checks the time only for every
// 256th object, because reading the clock takes time too.
func (p *listProgress) logIfSlow(objects int) {
	if objects%256 != 0 {
		return
	}
	elapsed := time.Since(p.start)
	if elapsed <= p.nextLog {
		return
	}
	p.log.Info("still listing", "kind", p.kind, "objects", objects, "for", elapsed.Round(time.Second))
	p.nextLog = 2 * elapsed
}

// watch runs one watch until it ends, is interrupted, or an audit is due, and returns how long to wait before the next
// request.
func (r *Reflector[T]) watch(ctx context.Context) (wait time.Duration) {
	ctx, cancel := context.WithDeadline(ctx, r.auditAt)
	defer cancel()
	r.allowInterrupt(cancel)
	defer r.forbidInterrupt()
	end := r.openAndConsume(ctx)
	r.recordLoss(end)
	if ctx.Err() != nil || r.isListDue() {
		return 0 // podcount stops, an audit or a list is due, or Confirm has demanded a list
	}
	return r.afterWatch(end)
}

// openAndConsume opens a watch and applies its events. It does not apply them if the server was restored from a backup:
// then it makes a list due.
func (r *Reflector[T]) openAndConsume(ctx context.Context) watchEnd {
	timeout := 300 + rand.IntN(300) // in seconds; watches that start together should not end together
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(timeout)*time.Second+watchMargin, errNotEnded)
	defer cancel()
	request := r.newWatchRequest(timeout)
	body, err := r.openStream(ctx, request)
	if err != nil {
		if !isRefusal(err) {
			r.suspectsRestore = true // The server may have been away, and only then can etcd have been restored.
		}
		return watchEnd{err: err}
	}
	defer body.Close()
	if r.suspectsRestore && r.haveVersionsGoneBack(ctx) {
		r.requireRelist("restored")
		return watchEnd{} // Nothing looks at it, because a list is due.
	}
	return r.consume(ctx, request, body)
}

// recordLoss records that no watch keeps the store up to date from now on. A watch that was silent has not done so
// since its last event, or since it was opened.
func (r *Reflector[T]) recordLoss(end watchEnd) {
	at := time.Now()
	if end.isOpened && kube.WasSilent(end.err) {
		at = at.Add(-end.lasted)
		if r.lastContact.After(at) {
			at = r.lastContact
		}
	}
	r.lostAt.CompareAndSwap(nil, &at)
}

// LostAt returns since when no watch keeps the store up to date. It is nil while one does, and before the first list.
func (r *Reflector[T]) LostAt() *time.Time { return r.lostAt.Load() }

// errNotEnded means that a watch has lasted longer than the server was asked to let it last.
var errNotEnded = errors.New("the server has not ended the watch in time")

// newWatchRequest returns the request for a watch that the server ends after a number of seconds.
func (r *Reflector[T]) newWatchRequest(timeout int) kube.Request {
	request := r.newRequest("PartialObjectMetadata")
	request.Query.Set("watch", "1")
	request.Query.Set("resourceVersion", r.resumeVersion)
	request.Query.Set("allowWatchBookmarks", "true")
	request.Query.Set("timeoutSeconds", strconv.Itoa(timeout))
	return request
}

// haveVersionsGoneBack reports whether the server's newest version is older than one that it named before. Then etcd
// was restored from a backup, and a relist is urgent: soon the server will use the same versions again for other
// changes. If the server has used them already, this finds nothing, and only an audit can.
//
// If the server does not answer, suspectsRestore stays set, and the next watch asks again. The same happens while
// Retry-After forbids the question. The open watch goes on at once, because Retry-After was for the question alone.
func (r *Reflector[T]) haveVersionsGoneBack(ctx context.Context) bool {
	if r.untilNextQuestion() > 0 {
		return false
	}
	known := r.newestKnown()
	newest, err := r.newestVersion(ctx, versionCheckTimeout)
	if err != nil {
		return false
	}
	r.suspectsRestore = false
	return r.noticeRestore(known, newest)
}

// newestKnown returns the newest version that the server has named: resumeVersion, or that of an answer to Patch. While
// no watch works, only the answers tell how new the server has been.
func (r *Reflector[T]) newestKnown() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newestAnswered != "" && isNewerVersion(r.newestAnswered, r.resumeVersion) {
		return r.newestAnswered
	}
	return r.resumeVersion
}

// noteAnsweredVersion notes the version in an answer to Patch. It ignores versions that cannot be compared.
func (r *Reflector[T]) noteAnsweredVersion(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isDecimal(version) && isNewerVersion(version, r.newestAnswered) {
		r.newestAnswered = version
		r.answeredAt = time.Now()
	}
}

func (r *Reflector[T]) answeredVersion() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newestAnswered
}

// forgetAnsweredVersion forgets the newest version in an answer, unless it has changed since it was read. A list that
// began after that has replaced all that those answers had brought.
func (r *Reflector[T]) forgetAnsweredVersion(read string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newestAnswered == read {
		r.newestAnswered = ""
	}
}

// newestVersion asks the server for its newest version. The request is a list of one object, without a version. The
// caller must first wait for untilNextQuestion.
func (r *Reflector[T]) newestVersion(ctx context.Context, timeout time.Duration) (string, error) {
	request := r.newRequest("")
	request.Accept = kube.Accept(true, "PartialObjectMetadataList", wire.JSON)
	request.Query.Set("limit", "1")
	request.Timeout = timeout
	var meta wire.ListMeta
	err := r.client.Send(ctx, request, func(answer io.Reader) (err error) {
		meta, err = wire.ReadListMeta(answer)
		return err
	})
	r.postponeQuestion(kube.RetryAfter(err))
	return meta.ResourceVersion, err
}

// postponeQuestion forbids newestVersion for some time, unless it is forbidden for longer already.
func (r *Reflector[T]) postponeQuestion(wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	askAgainAt := time.Now().Add(wait)
	if askAgainAt.After(r.askAgainAt) {
		r.askAgainAt = askAgainAt
	}
}

// untilNextQuestion returns how much longer newestVersion must not be called, because of Retry-After. It returns 0 or
// less if newestVersion may be called now.
func (r *Reflector[T]) untilNextQuestion() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.askAgainAt)
}

// noticeRestore reports whether the server's newest version is older than one that was known before. If so, it logs
// that, and tells the other reflectors. "" means that none was known.
func (r *Reflector[T]) noticeRestore(known, newest string) bool {
	areComparable := isDecimal(known) && isDecimal(newest)
	if !areComparable || !isNewerVersion(known, newest) {
		return false
	}
	r.log.Info("versions have gone back: etcd was probably restored from a backup, or the server named a false version",
		"kind", r.kind.Name, "from", known, "to", newest)
	r.tellOthers()
	return true
}

// consume applies the events of an open watch until it ends.
func (r *Reflector[T]) consume(ctx context.Context, request kube.Request, body *kube.Stream) watchEnd {
	start := time.Now()
	if r.watchedSince.IsZero() {
		r.watchedSince = start
	}
	r.failed.Works(backoffResetAfter)
	r.expired.Works(backoffResetAfter)
	r.lostAt.Store(nil)
	from := r.resumeVersion
	end := watchEnd{isOpened: true}
	r.log.Log(ctx, levelFlow, "watching", "kind", r.kind.Name, "rv", from)
	r.emit(trace.Step{Point: trace.Watching, Version: from})
	r.decoder.wire.WantsHead = r.trace.IsOn
	// A watch that stays open for a while works, even if it brings no events. One that ends at once does not.
	stayedOpen := time.AfterFunc(briefWatch, func() {
		r.serverBackoff.Works()
		r.outage.Worked("watch")
	})
	defer stayedOpen.Stop()

	err := r.decoder.events(body, body.IsProtobuf, func(event WatchEvent[T]) error {
		r.emitFrame(event, body.IsProtobuf)
		if event.Status != nil {
			return request.Failed(statusOfErrorFrame(*event.Status))
		}
		body.Heard()
		r.serverBackoff.Answered()
		end.events++
		r.metrics.Count("podcount_watch_events_total", r.kind.Name, event.Type)
		if err := r.handleEvent(event); err != nil {
			return request.Failed(err)
		}
		return request.Failed(r.checkAnswer())
	})
	end.err = cmp.Or(err, io.EOF)
	end.hasProgressed = r.resumeVersion != from
	end.lasted = time.Since(start)
	return end
}

// statusOfErrorFrame returns the Status of an ERROR frame as an error. A missing code becomes 500.
func statusOfErrorFrame(frame wire.Status) *kube.Status {
	frame.Code = cmp.Or(frame.Code, http.StatusInternalServerError)
	return &kube.Status{Status: frame}
}

// handleEvent applies one event to the store, and moves resumeVersion. A bookmark only moves resumeVersion. An event
// that is not newer than resumeVersion is ignored. That is a safeguard: a watch should bring only newer events.
// The error wraps errContradiction if the server's versions cannot all be true.
func (r *Reflector[T]) handleEvent(event WatchEvent[T]) error {
	meta := event.Object.meta()
	version := meta.ResourceVersion()
	isStale := !isNewerVersion(version, r.resumeVersion)
	if r.log.Enabled(context.Background(), slog.LevelDebug) {
		message := strings.TrimSpace(event.Type + " " + r.kind.Name + " " + meta.Key().String())
		r.log.Debug(message, "rv", version, "stale", isStale)
	}
	if isStale {
		r.recordContact()
		return r.checkStaleEvent(event)
	}
	if event.Type != "BOOKMARK" {
		changes := r.Apply(event.Type, event.Object)
		r.publishTimed(&r.publishing, changes...)
		hasNoEffect := len(changes) == 0
		if hasNoEffect {
			r.emitChange(Delta[T]{Old: event.Object, New: event.Object})
		}
	}
	r.resumeFrom(version) // after Apply, because Confirm may return now
	return nil
}

// errContradiction means that the server has named a version that is newer than all it has. As the store ignores what
// is older than it knows, such a version would make it ignore all changes from then on.
var errContradiction = errors.New("the server's versions contradict each other")

// checkStaleEvent returns an error unless an event that is not newer than resumeVersion only repeats what is known. A
// change that the store does not have must be newer, so resumeVersion is too new: it came from a bookmark, an event or
// a list with a version that the server has never had.
func (r *Reflector[T]) checkStaleEvent(event WatchEvent[T]) error {
	version := event.Object.meta().ResourceVersion()
	isRepeat := version == r.resumeVersion
	if event.Type != "BOOKMARK" {
		isRepeat = r.isKnown(event.Type, event.Object)
	}
	if isRepeat {
		return nil
	}
	what := strings.TrimSpace(event.Type + " " + event.Object.meta().Key().String())
	return fmt.Errorf("%w: %s at version %s is new, but comes after version %s",
		errContradiction, what, version, r.resumeVersion)
}

// checkAnswer returns an error if watches should long have reached the newest version in an answer to Patch. Until they
// do, the store ignores changes of that object. After an interruption, they need time to catch up.
func (r *Reflector[T]) checkAnswer() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	isAhead := r.newestAnswered != "" && isNewerVersion(r.newestAnswered, r.resumeVersion)
	if !isAhead || time.Since(r.answeredAt) < answerPatience || time.Since(r.watchedSince) < answerPatience {
		return nil
	}
	return fmt.Errorf("%w: an answer had version %s %v ago, and the watch is still at %s",
		errContradiction, r.newestAnswered, time.Since(r.answeredAt).Round(time.Second), r.resumeVersion)
}

// emit emits a step of this kind for the trace.
func (r *Reflector[T]) emit(step trace.Step) {
	step.Kind = r.kind.Name
	r.trace.EmitFor(1, step)
}

// emitFrame emits the step of a frame that has arrived.
func (r *Reflector[T]) emitFrame(event WatchEvent[T], isProtobuf bool) {
	r.trace.EmitBuilt(1, func() trace.Step {
		step := trace.Step{
			Point:      trace.Frame,
			Kind:       r.kind.Name,
			Type:       event.Type,
			Size:       int(event.size),
			IsProtobuf: isProtobuf,
		}
		if event.Status != nil {
			step.Text = event.Status.Message
		} else {
			step.Key = event.Object.meta().Key().String()
			step.Version = event.Object.meta().ResourceVersion()
		}
		return step.WithFrame(event.head)
	})
}

// emitChange emits the step of a change in the store.
func (r *Reflector[T]) emitChange(change Delta[T]) {
	r.trace.EmitBuilt(1, func() trace.Step {
		step := trace.Step{Point: trace.Change, Kind: r.kind.Name, Key: change.Key().String()}
		switch {
		case isNil(change.Old):
			step.Type = "added"
		case isNil(change.New):
			step.Type = "removed"
		case change.isUnchanged():
			step.Type = "unchanged"
		default:
			step.Type = "changed"
		}
		if !isNil(change.New) {
			step.Version = change.New.meta().ResourceVersion()
		}
		return step
	})
}

// afterWatch applies the policy for a watch that ended like this, and returns how long to wait before the next request.
func (r *Reflector[T]) afterWatch(end watchEnd) (wait time.Duration) {
	end.followsBrief = r.lastWasBrief
	if end.isOpened {
		r.lastWasBrief = end.isBrief()
	}
	if end.wasUseful() {
		r.fruitlessWatches = 0
	}
	if errors.Is(end.err, kube.ErrSilent) {
		r.watchedSince = time.Time{} // It could not have brought what was missing.
	}
	policy := watchPolicies[end.outcome()]
	r.recordWatchEnd(policy, end)
	wait = r.waitAfter(policy, end.err)
	isFruitless := policy.relistAfter > 0
	if !isFruitless {
		return wait
	}
	r.fruitlessWatches++
	if r.fruitlessWatches >= policy.relistAfter {
		r.requireRelist(policy.relistReason)
		r.log.Info("listing again", "kind", r.kind.Name, "why", end.err)
	}
	return wait
}

// waitAfter logs the end of a watch, and returns how long to wait before the next request.
func (r *Reflector[T]) waitAfter(policy watchPolicy, err error) time.Duration {
	if policy.problem != "" {
		return r.recordFailure(policy.problem, err)
	}
	r.log.Log(context.Background(), levelFlow, "watch ended", "kind", r.kind.Name, "rv", r.resumeVersion, "err", err)
	if policy.hasOwnBackoff {
		return waitAfterFailure(&r.expired, err)
	}
	return 0
}

// watchEnd describes how a watch ended, and what it brought.
type watchEnd struct {
	err           error // io.EOF if the server ended the stream between two events
	isOpened      bool  // the server accepted the watch
	events        int   // the number of events that could be decoded, bookmarks included
	hasProgressed bool  // the watch moved resumeVersion
	lasted        time.Duration
	followsBrief  bool // the watch that was opened before it was brief
}

// isBrief reports whether the watch was opened, and ended within briefWatch.
func (end watchEnd) isBrief() bool { return end.isOpened && end.lasted < briefWatch }

// wasUseful reports whether the watch moved resumeVersion, or stayed open and brought an event.
func (end watchEnd) wasUseful() bool {
	return end.hasProgressed || end.events > 0 && !end.isBrief()
}

// outcome classifies the end of a watch.
func (end watchEnd) outcome() watchOutcome {
	status := kube.StatusOf(end.err)                                  // The code is 0 if the server has not sent a Status.
	isSilent := errors.Is(end.err, kube.ErrSilent) && end.events == 0 // After an event, the watch has worked.
	isGarbage := errors.As(end.err, new(wire.GarbageError))
	// The order matters. A Status or silence says more than the fact that the watch was not opened, so !isOpened comes
	// later.
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
		return watchUnreadable
	case errors.Is(end.err, errContradiction):
		return watchContradicted
	case end.isBrief() && !end.hasProgressed:
		return watchShort
	case end.isBrief() && end.followsBrief:
		return watchBrief
	}
	return watchEnded
}

// watchOutcome says how a watch ended.
type watchOutcome int

const (
	watchEnded        watchOutcome = iota // The server or the network ended a watch that worked.
	watchExpired                          // 410: the server no longer knows the version.
	watchRejected                         // 400 or 422: the server rejected the request.
	watchFailed                           // Any other ERROR frame ended the stream.
	watchUnavailable                      // The server is overloaded (429), or the watch could not be opened.
	watchUnreadable                       // The stream could not be decoded.
	watchSilent                           // No whole event arrived, not even a bookmark.
	watchContradicted                     // The versions that the server has named contradict each other.
	watchShort                            // The watch ended within a second and brought nothing new.
	watchBrief                            // The watch brought news, but ended within a second, like the one before.
)

// WatchRecord says how a watch has ended, for people.
type WatchRecord struct {
	At      time.Time
	Outcome string // one word
	Meaning string // one or two sentences
	Err     error  // io.EOF if the server ended the stream between two events
}

// recordWatchEnd records how a watch has ended, for State.
func (r *Reflector[T]) recordWatchEnd(policy watchPolicy, end watchEnd) {
	r.emit(trace.Step{Point: trace.Ended, Type: policy.name, Text: end.err.Error(), Took: end.lasted})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastWatch = &WatchRecord{At: time.Now(), Outcome: policy.name, Meaning: policy.meaning, Err: end.err}
}

// watchPolicy says what the reflector does after a watch. The next watch resumes from the last version, unless a relist
// comes first.
type watchPolicy struct {
	name    string // one word for the outcome, for people
	meaning string // one or two sentences for people: what has happened, and what podcount does

	// problem is logged as a failure, and the next request waits for the backoff. If it is "", nothing has failed, and
	// the next request is sent at once, unless hasOwnBackoff is set.
	problem string

	// hasOwnBackoff means that the next request waits for a backoff that counts only expired watches. Earlier failures
	// of other kinds do not lengthen it.
	hasOwnBackoff bool

	// relistAfter is the number of fruitless watches, including this one, that lead to a relist. Only those since the
	// last list or useful watch count. It is 0 if the watch was not fruitless.
	relistAfter int

	// relistReason is a label of the metric podcount_relists_total.
	relistReason string
}

// watchPolicies say what the reflector does after each outcome. A watch is fruitless if every watch from the same
// version may end in the same way. Then only a relist helps. But a relist is expensive. So where the cause may also be
// temporary, the reflector first watches again.
var watchPolicies = [...]watchPolicy{
	// This is normal: servers end each watch after some minutes, and connections break.
	watchEnded: {
		name:    "ended",
		meaning: "This is normal: watches end after some minutes, or when a connection breaks. podcount resumes it.",
	},

	// This is normal: the server keeps only recent versions, and forgets the others when it restarts or compacts its
	// history. It will never know them again.
	watchExpired: {
		name:          "expired",
		meaning:       "This is normal: the server no longer knows the version of the watch. podcount lists again.",
		hasOwnBackoff: true,
		relistAfter:   1,
		relistReason:  "expired",
	},

	// The server would reject the same request again, perhaps because of the version in it.
	watchRejected: {
		name:         "rejected",
		meaning:      "The server rejected the request, perhaps because of its version. podcount lists again.",
		problem:      "cannot watch",
		relistAfter:  1,
		relistReason: "refused",
	},

	// The next watch may get the same ERROR frame.
	watchFailed: {
		name:         "failed",
		meaning:      "The server ended the watch with an error. podcount resumes it, and lists again if that repeats.",
		problem:      "cannot watch",
		relistAfter:  2,
		relistReason: "error",
	},

	// The version is still good, so the watch can resume when the server is available again.
	watchUnavailable: {
		name:    "unavailable",
		meaning: "The watch could not be opened: the error says why. podcount tries again, and resumes it.",
		problem: "cannot watch",
	},

	// The next watch may get the same event, and fail to decode it again.
	watchUnreadable: {
		name:         "unreadable",
		meaning:      "What arrived could not be decoded. podcount resumes the watch, and lists again if that repeats.",
		problem:      "cannot decode the watch",
		relistAfter:  2,
		relistReason: "garbage",
	},

	// The connection may be dead. But a server also stays silent if the version is newer than all it knows, because
	// etcd was restored from a backup.
	watchSilent: {
		name:         "silent",
		meaning:      "No whole event arrived for a long time. podcount opens a new watch, and lists again if that repeats.",
		relistAfter:  2,
		relistReason: "silence",
	},

	// A version that was too new makes the store ignore what comes after it. A list is the truth, whatever its version.
	watchContradicted: {
		name:         "contradicted",
		meaning:      "The server's versions contradict each other, so changes may be lost. podcount lists again.",
		problem:      "cannot trust the watch",
		relistAfter:  1,
		relistReason: "contradiction",
	},

	// The next watch may end at once too. Without a backoff this would be a busy loop.
	watchShort: {
		name:         "short",
		meaning:      "The watch ended within a second, without news. podcount waits before it opens the next one.",
		problem:      "watch ended at once",
		relistAfter:  3,
		relistReason: "short",
	},

	// One such watch is normal. But a proxy may end each watch after its first event. Each makes progress, so a relist
	// would not help, but without a backoff this would be a busy loop, too.
	watchBrief: {
		name:    "brief",
		meaning: "The watch ended within a second, like the one before. podcount waits before it resumes it.",
		problem: "watches end at once",
	},
}

// newRequest returns the request that lists and watches have in common. If the kind needs only metadata, the request
// asks for objects of metadataType.
func (r *Reflector[T]) newRequest(metadataType string) kube.Request {
	query := url.Values{}
	if r.kind.LabelSelector != "" {
		query.Set("labelSelector", r.kind.LabelSelector)
	}
	if r.kind.FieldSelector != "" {
		query.Set("fieldSelector", r.kind.FieldSelector)
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

// collectionPath returns the path of the objects in a namespace. The namespace "" means all namespaces, or that the
// kind has none.
func (r *Reflector[T]) collectionPath(namespace string) string {
	if namespace == "" {
		return r.kind.API + "/" + r.kind.Resource
	}
	return r.kind.API + "/namespaces/" + namespace + "/" + r.kind.Resource
}

// publish calls the functions that Subscribe has registered.
func (r *Reflector[T]) publish(changes ...Delta[T]) {
	for _, change := range changes {
		r.emitChange(change)
		for _, handle := range r.handlers {
			handle(change)
		}
	}
}

// publishTimed is publish with a stopwatch, which runs from 0 for each change.
func (r *Reflector[T]) publishTimed(stopwatch *process.Stopwatch, changes ...Delta[T]) {
	for _, change := range changes {
		stopwatch.Start()
		r.publish(change)
	}
	stopwatch.Stop()
}

// Stuck says so if a function that Subscribe has registered has not returned for longer than limit. Nothing else can
// hang, because each request has a time limit. Stuck returns "" otherwise.
func (r *Reflector[T]) Stuck(limit time.Duration) string {
	took := max(r.publishing.Elapsed(), r.refreshing.Elapsed())
	if took <= limit {
		return ""
	}
	return fmt.Sprintf("a change has not been taken for %v", took.Round(time.Second))
}

// recordContact records that the server has just sent an event. If nothing changes in the cluster, the server sends
// bookmarks of the version that resumeVersion has already.
func (r *Reflector[T]) recordContact() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastContact = time.Now()
}

// resumeFrom makes the next watch begin after this version, which the server has just sent. No relist is required then,
// so it clears relistReason.
func (r *Reflector[T]) resumeFrom(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resumeVersion = version
	r.lastContact = time.Now()
	r.relistReason = ""
	r.endWaitIfConfirmedLocked()
}

// recordList records that the store is equal to a list without a version, which was requested at this time.
func (r *Reflector[T]) recordList(requestedAt time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listedAsOf = requestedAt
	r.endWaitIfConfirmedLocked()
}

// requireRelist makes a list due.
func (r *Reflector[T]) requireRelist(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resumeVersion = ""
	r.relistReason = reason
}

// Confirm returns nil once the store is at least as new as the server was at some moment after since. A new leader
// needs that before it works: its watch may have failed a while ago, or lag. Confirm returns the error of ctx if that
// ends before. It must be called after Synced, by one goroutine at a time.
//
// Confirm asks the server for its newest version, and waits until Run has reached that. If the watch does not bring it
// soon, Confirm makes Run list. A list that was requested after since is new enough, too. A resource that discovery did
// not find counts as confirmed, because there is nothing to write. Confirm is not for reflectors with Once.
func (r *Reflector[T]) Confirm(ctx context.Context, since time.Time) error {
	waiting, endWait := context.WithCancel(ctx)
	defer endWait()
	r.beginConfirmation(&confirmation{since: since, endWait: endWait})
	defer r.endConfirmation()
	slow := time.AfterFunc(confirmPatience, r.logUnconfirmed)
	defer slow.Stop()

	r.awaitConfirmation(waiting)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.confirmOutage.Worked("confirm")
	return nil
}

// confirmation is what Confirm waits for.
type confirmation struct {
	since   time.Time          // a list that was requested after this time confirms the store
	newest  string             // the server's newest version, which confirms it, too; "" until the server has named it
	endWait context.CancelFunc // called when the store is confirmed

	// reasonToList is the reason for a list that Run must begin as soon as it can; "" if it need not.
	reasonToList string
}

// awaitConfirmation returns when waiting ends, because the store is confirmed or podcount stops. First it lets the
// watch confirm the store. If that does not happen soon, it demands a list.
func (r *Reflector[T]) awaitConfirmation(waiting context.Context) {
	reasonToList := r.askAndAwaitWatch(waiting)
	if waiting.Err() == nil {
		r.demandList(reasonToList)
	}
	<-waiting.Done()
}

// maxQuestions is how often Confirm asks for the newest version before it demands a list. The watch may work although
// all questions fail, and then nothing else would confirm the store.
const maxQuestions = 3

// askAndAwaitWatch asks the server for its newest version, and gives the watch some time to reach it. It returns the
// reason why Run must list. If waiting has ended, there is no reason.
func (r *Reflector[T]) askAndAwaitWatch(waiting context.Context) (reasonToList string) {
	var failed retry.Streak
	for range maxQuestions {
		if retry.Sleep(waiting, r.untilNextQuestion()) != nil {
			return ""
		}
		if r.isPaused() {
			// A question now would disturb a server that needs rest. The list waits until the backoff is over.
			return "elected"
		}
		known := r.newestKnown()
		newest, err := r.newestVersion(waiting, confirmTimeout)
		if err == nil && r.noticeRestore(known, newest) {
			return "restored"
		}
		if err == nil {
			r.recordNewest(newest)
			retry.Sleep(waiting, confirmPatience)
			return "elected" // because the watch has not reached that version in time
		}
		if waiting.Err() != nil {
			return ""
		}
		r.confirmOutage.Failed("confirm", "cannot confirm the cache", kube.PauseBetweenComplaints(err), "err", err)
		retry.Sleep(waiting, waitAfterFailure(&failed, err))
	}
	return "elected"
}

// isPaused reports whether Run is in a backoff.
func (r *Reflector[T]) isPaused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.pausedUntil)
}

func (r *Reflector[T]) beginConfirmation(c *confirmation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confirmation = c
	r.endWaitIfConfirmedLocked()
}

func (r *Reflector[T]) endConfirmation() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confirmation = nil
}

// recordNewest records the server's newest version. The store is confirmed once Run has reached it.
func (r *Reflector[T]) recordNewest(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.confirmation != nil {
		r.confirmation.newest = version
		r.endWaitIfConfirmedLocked()
	}
}

func (r *Reflector[T]) endWaitIfConfirmed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endWaitIfConfirmedLocked()
}

// endWaitIfConfirmedLocked makes Confirm return if the store is confirmed.
func (r *Reflector[T]) endWaitIfConfirmedLocked() {
	c := r.confirmation
	if c == nil {
		return
	}
	isListed := !r.listedAsOf.Before(c.since)
	areVersionsKnown := c.newest != "" && r.resumeVersion != ""
	isReached := areVersionsKnown && !isNewerVersion(c.newest, r.resumeVersion)
	if isListed || isReached || r.isAbsent() {
		c.endWait()
		r.confirmation = nil
	}
}

// demandList makes Run list as soon as it can, unless the store is confirmed already. A watch or an audit is
// interrupted for that. A list that runs, or a backoff, ends first.
func (r *Reflector[T]) demandList(reasonToList string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.confirmation == nil {
		return
	}
	r.confirmation.reasonToList = reasonToList
	if r.interrupt != nil {
		r.interrupt()
	}
}

// demandListAfterRestore makes Run list as soon as it can, because another reflector has noticed a restored backup. This
// one may be unable to notice it: meanwhile the server may have used the versions again that this one knows.
func (r *Reflector[T]) demandListAfterRestore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isRestored = true
	if r.interrupt != nil {
		r.interrupt()
	}
}

// takeDemand makes a list due if Confirm or a restore has demanded one.
func (r *Reflector[T]) takeDemand() {
	r.mu.Lock()
	defer r.mu.Unlock()
	reason := r.listDemandedLocked()
	if reason == "" {
		return
	}
	if r.resumeVersion != "" { // Otherwise a list is due already, for a reason of its own.
		r.resumeVersion = ""
		r.relistReason = reason
	}
	r.isRestored = false
	if r.confirmation != nil {
		r.confirmation.reasonToList = ""
	}
}

// listDemandedLocked returns the reason for a list that was demanded. It returns "" if none was.
func (r *Reflector[T]) listDemandedLocked() (reason string) {
	switch {
	case r.isRestored:
		return "restored"
	case r.confirmation != nil:
		return r.confirmation.reasonToList
	}
	return ""
}

// Restores lets the reflectors of one etcd tell each other that it was restored from a backup.
type Restores struct {
	mu     sync.Mutex // guards the fields below
	demand []func()   // makes each member list
	toldAt time.Time
}

// retellAfter is how long after a restore no further one is told. Meanwhile, those who were told may notice the same one
// by themselves.
const retellAfter = time.Minute

// join adds a member. demandList makes it list, and tellOthers makes all others list. A nil Restores has no members.
func (s *Restores) join(demandList func()) (tellOthers func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := len(s.demand)
	s.demand = append(s.demand, demandList)
	return func() { s.tell(own) }
}

func (s *Restores) tell(from int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.toldAt) < retellAfter {
		return
	}
	s.toldAt = time.Now()
	for i, demandList := range s.demand {
		if i != from {
			demandList()
		}
	}
}

// allowInterrupt lets demandList call interrupt, which must end the watch or audit that begins now. It calls interrupt
// at once if a list has been demanded just before.
func (r *Reflector[T]) allowInterrupt(interrupt context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupt = interrupt
	if r.listDemandedLocked() != "" {
		interrupt()
	}
}

func (r *Reflector[T]) forbidInterrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupt = nil
}

// logUnconfirmed logs that a new leader still waits for Confirm, and why.
func (r *Reflector[T]) logUnconfirmed() {
	r.log.Info("this replica leads, and waits until its cache is confirmed",
		"kind", r.kind.Name, "why", r.whyUnconfirmed())
}

func (r *Reflector[T]) whyUnconfirmed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case time.Now().Before(r.pausedUntil):
		return "the last list or watch has failed"
	case r.resumeVersion == "":
		return "a list is not complete"
	case r.confirmation == nil || r.confirmation.newest == "":
		return "the newest version is not known yet"
	}
	return "the watch is at version " + r.resumeVersion + ", and the newest is " + r.confirmation.newest
}

// jittered returns a random duration that differs from d by at most this fraction of d. It keeps processes that started
// together from sending their requests together.
func jittered(d time.Duration, fraction float64) time.Duration {
	spread := time.Duration(float64(d) * fraction)
	return d - spread + rand.N(2*spread)
}

// Patch returns these errors in two cases that are no failures of the request.
var (
	// errGone means that the object was deleted. Perhaps another object was created under its name.
	errGone = errors.New("the object was deleted")

	// errStripped means that the server accepted a patch, but the object in its answer does not have what was patched.
	errStripped = errors.New("the server accepted the patch but dropped what it writes: " +
		"look for a mutating webhook, a MutatingAdmissionPolicy or a schema that removes it")
)

// Patch sends a merge patch for obj, or for one of its subresources unless subresource is "", and applies the server's
// answer to the store. It returns the object as it is now on the server. It returns an error that wraps
//   - errGone if obj was deleted;
//   - errStripped if isKept returns false for the object in the answer; only with this error, Patch also returns the
//     object;
//   - any error of kube.Client.Send, or of the decoder.
//
// The patch has no resourceVersion, so writes by others do not make it fail. It has the uid of obj, so it never changes
// another object of the same name.
func (r *Reflector[T]) Patch(
	ctx context.Context, obj T, subresource string, patch map[string]any, isKept func(now T) bool,
) (now T, err error) {
	now, err = r.sendPatch(ctx, obj, subresource, patch)
	if errors.Is(err, errGone) {
		r.recordPatch("gone", obj, err)
		return now, err
	}
	if err != nil {
		r.recordPatch("failed", obj, err)
		return now, err
	}
	r.noteAnsweredVersion(now.meta().ResourceVersion())
	r.publish(r.ApplyAnswer(now)...)
	if !isKept(now) {
		r.recordPatch("stripped", now, errStripped)
		return now, fmt.Errorf("patch %s/%s: %w", r.kind.Resource, now.meta().Key(), errStripped)
	}
	r.recordPatch("written", now, nil)
	return now, nil
}

// recordPatch counts a patch, and emits the step of its answer.
func (r *Reflector[T]) recordPatch(result string, obj T, err error) {
	if r.kind.PatchMetric != "" {
		r.metrics.Count(r.kind.PatchMetric, result)
	}
	r.trace.EmitBuilt(1, func() trace.Step {
		step := trace.Step{
			Point:   trace.Patched,
			Kind:    r.kind.Name,
			Key:     obj.meta().Key().String(),
			Type:    result,
			Version: obj.meta().ResourceVersion(),
		}
		if err != nil {
			step.Text = err.Error()
		}
		return step
	})
}

// emitPatch emits the step of a patch that is about to be sent.
func (r *Reflector[T]) emitPatch(obj T, body json.RawMessage) {
	r.trace.EmitBuilt(1, func() trace.Step {
		return trace.Step{
			Point:   trace.Patch,
			Kind:    r.kind.Name,
			Key:     obj.meta().Key().String(),
			Version: obj.meta().ResourceVersion(),
			Bytes:   body,
		}
	})
}

// sendPatch sends a patch, and returns the object in the answer, or nil and an error.
func (r *Reflector[T]) sendPatch(
	ctx context.Context, obj T, subresource string, patch map[string]any,
) (now T, err error) {
	var none T
	key := obj.meta().Key()
	path := r.collectionPath(key.Namespace) + "/" + key.Name
	if subresource != "" {
		path += "/" + subresource
	}
	decoder := newDecoder(&r.kind) // r.decoder is for Run only.
	request := kube.Request{
		Method: http.MethodPatch,
		Path:   path,
		Accept: kube.Accept(r.kind.MetadataOnly, "PartialObjectMetadata", wire.JSON),
	}
	body, err := json.Marshal(withUID(patch, obj.meta().UID()))
	if err != nil {
		return none, request.Failed(err)
	}
	request.Body = json.RawMessage(body)
	r.emitPatch(obj, body)
	err = r.client.Send(ctx, request, func(answer io.Reader) (err error) {
		now, err = decoder.parse(answer)
		return err
	})
	status := kube.StatusOf(err)
	isGone := status.Reason == "NotFound"
	isRecreated := status.Reason == "Invalid" && status.HasCause("metadata.uid")
	if isGone || isRecreated {
		return none, errGone
	}
	if err != nil {
		return none, err
	}
	// For a subresource, the server ignores the uid in the patch. So the object can still be another one.
	if now.meta().UID() != obj.meta().UID() {
		return none, errGone
	}
	return now, nil
}

// withUID returns a merge patch that the server applies only to the object with this uid.
func withUID(patch map[string]any, uid string) map[string]any {
	metadata := map[string]any{"uid": uid}
	patched, hasMetadata := patch["metadata"].(map[string]any)
	if hasMetadata {
		maps.Copy(metadata, patched)
	}
	conditional := maps.Clone(patch)
	conditional["metadata"] = metadata
	return conditional
}

// Synced returns a channel that is closed when the first list is complete. With Once, it is also closed when the server
// does not have the resource.
func (r *Reflector[T]) Synced() <-chan struct{} { return r.synced }

// Installed returns the current Installation of a resource under /apis/. It returns nil while the resource is not
// installed, and for resources under /api/.
func (r *Reflector[T]) Installed() *Installation { return r.installed.Load() }

// Kind returns the name of the kind, such as Pod.
func (r *Reflector[T]) Kind() string { return r.kind.Name }

// Reference returns what an Event says about the object that it is about.
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

// ReflectorState is the state of a reflector, for people.
type ReflectorState struct {
	Objects         int
	IsReady         bool
	IsAbsent        bool // the resource is not installed
	IsUnknown       bool // it is not known whether the resource is installed
	ResourceVersion string
	LastHeard       time.Time        // when the server last sent a list or an event; zero if it never has, or IsAbsent
	LastWatch       *WatchRecord     // nil before a watch has ended
	Problem         *logging.Problem // why lists, watches or discovery fail now; nil if they work
}

// State returns the current state. A reflector is ready once its first list is complete. It is also ready while its
// resource is not installed, because then there are no objects to wait for. Until discovery has answered, it is not
// known whether the resource is installed, and the reflector is not ready.
func (r *Reflector[T]) State() ReflectorState {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := ReflectorState{
		Objects:         r.Len(),
		IsReady:         r.isAbsent() || process.IsClosed(r.synced),
		IsAbsent:        r.isAbsent(),
		IsUnknown:       r.kind.isOptional() && r.Installed() == nil && !r.isMissing.Load(),
		ResourceVersion: r.resumeVersion,
		LastHeard:       r.lastContact,
		LastWatch:       r.lastWatch,
		Problem:         r.problem(),
	}
	if r.isAbsent() {
		state.LastHeard = time.Time{} // The server has nothing to send.
	}
	return state
}

// problem returns what fails at present: discovery, or else lists and watches, or the confirmation of a new leader.
func (r *Reflector[T]) problem() *logging.Problem {
	for _, outage := range []*logging.Outage{r.discoveryOutage, r.outage, r.confirmOutage} {
		if problem, isFailing := outage.Problem(); isFailing {
			return &problem
		}
	}
	return nil
}

// SetGauges updates the gauges, which must be done before each scrape. It removes a gauge whose value is unknown,
// because 0 would be wrong.
func (r *Reflector[T]) SetGauges() {
	state := r.State()
	if state.LastHeard.IsZero() {
		r.metrics.Remove("podcount_watch_age_seconds", r.kind.Name)
	} else {
		r.metrics.Set(time.Since(state.LastHeard).Seconds(), "podcount_watch_age_seconds", r.kind.Name)
	}
	switch {
	case r.isAbsent():
		r.metrics.Remove("podcount_cache_synced", r.kind.Name)
		r.metrics.Remove("podcount_cache_objects", r.kind.Name)
	case !process.IsClosed(r.synced):
		r.metrics.Set(0, "podcount_cache_synced", r.kind.Name)
		r.metrics.Remove("podcount_cache_objects", r.kind.Name)
	default:
		r.metrics.Set(1, "podcount_cache_synced", r.kind.Name)
		r.metrics.Set(float64(state.Objects), "podcount_cache_objects", r.kind.Name)
	}
}

// isAbsent reports whether the reflector is waiting for its resource to be installed, because discovery has answered
// that it is not.
func (r *Reflector[T]) isAbsent() bool { return !r.once && r.isMissing.Load() }
