package main

// watch.go holds the Reflector, which keeps a Store equal to what the API server has. The Reflector lists a resource,
// watches it, resumes a watch that ended, and relists when resuming is not enough. Once an hour it audits the Store: it
// compares the Store with what the server had at the same version. It also sends patches, because the server's answer
// to a patch belongs in the Store.
//
// Without faults, listAndWatch does this for one resource:
//
//	listing, version := list everything               // relist, readList
//	make the store equal to the listing               // Listing.Commit
//	again and again:
//		watch from this version, and for each event:  // watch, openAndConsume, consume
//			apply the object in it to the store       // handleEvent, Store.apply
//			version = that of the object              // so that the next watch resumes here
//
// After the types and the constructor come these functions, and Patch. Then comes what makes the store right in spite
// of faults, and then what others ask of it. What decides when to list and to watch is in the packages of
// internal/watch: ending (what follows the end of a watch), position (from which version the next watch resumes, or why
// a list is due), presence (is the resource installed?) and audit. pages reads lists, and subscribers hands on
// changes.
//
// A resourceVersion is a number that grows with each change in the cluster. (If it is not a number, podcount can only
// see whether two versions are equal.) Each object has that of its last change, a list has one as well, and a watch
// brings what has changed since then. A bookmark says that the watch has brought all changes up to a version. With 410,
// the server says that it has forgotten a version.
//
// The answer to a patch may be ahead of the watch. position remembers its version (PatchAnswered), and distrusts a
// watch that does not reach it in two minutes (CheckAnswers). A new leader waits until its stores are as new as the
// server was when it was elected (Confirm).
//
// The Reflector works for every kind, and makes no decisions about objects. The controllers in main.go do that.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"podcount/internal/api/events"
	"podcount/internal/api/kube"
	"podcount/internal/api/object"
	"podcount/internal/api/retry"
	"podcount/internal/api/wire"
	"podcount/internal/run/process"
	"podcount/internal/view/logging"
	"podcount/internal/view/observe"
	"podcount/internal/watch/audit"
	"podcount/internal/watch/ending"
	"podcount/internal/watch/pages"
	"podcount/internal/watch/position"
	"podcount/internal/watch/presence"
	"podcount/internal/watch/subscribers"
)

// watchMargin is how much longer than its timeoutSeconds a watch may last. Servers end watches in time, but a proxy
// that has lost the server may keep the connection to podcount open.
const watchMargin = 30 * time.Second

// Reflector keeps a Store equal to what the server has. It lists, watches from the list's resourceVersion, resumes each
// watch from the last version that it saw, and audits the store about once an hour.
//
// Call Subscribe and the Need methods first, and then Run, which may be called only once. Confirm has rules of its own.
// The other methods may be called at any time, by any goroutine.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type Reflector[T object.Object[T]] struct {
	*Lister[T]  // of the store, for everyone: Get, All and Len
	store       *Store[T]
	subscribers subscribers.Subscribers[Delta[T]]
	client      *kube.Client
	kind        object.Kind[T]
	once        bool // see ReflectorOptions

	report   *observe.CacheReport // makes log lines, metrics and more of what happens
	position *position.Position   // from where the next watch resumes, or that a list is due
	presence *presence.Presence   // whether a resource under /apis/ is installed; not run for others

	// While listAndWatch runs, only its goroutine uses these. There is one exception: the timer of noteOpened uses the
	// backoff, which any goroutine may use. After listAndWatch has ended, onRemoved resets the judge.
	decoder    *object.Decoder[T]
	backoff    *retry.Member // the waits while the server does not answer at all
	judge      *ending.Judge // says what follows the end of a watch; has the waits of a server that answers
	listReader pages.Reader  // reads lists, whole or in pages
	auditPlan  audit.Plan    // when the next audit is due
}

// ReflectorOptions configure a reflector. All fields except Once are required.
type ReflectorOptions[T object.Object[T]] struct {
	observe.Sinks
	Client        *kube.Client
	Kind          object.Kind[T]
	Store         *Store[T]
	ServerBackoff *retry.Shared         // wakes all who wait for the server as soon as one of them gets an answer
	Restores      *position.Restores    // tells all reflectors if one notices that etcd was restored from a backup
	ServerOutage  *logging.ServerOutage // logs that the server does not answer

	// Once makes Run return if the server does not have the resource, or cannot be reached until a person acts.
	// Otherwise Run waits.
	Once bool
}

// NewReflector returns a reflector that sends no request until Run is called.
func NewReflector[T object.Object[T]](o ReflectorOptions[T]) *Reflector[T] {
	report := observe.NewCacheReport(observe.CacheOptions{
		Sinks:        o.Sinks,
		Kind:         o.Kind.Name,
		API:          o.Kind.API,
		Resource:     o.Kind.Resource,
		PatchMetric:  o.Kind.PatchMetric,
		ServerOutage: o.ServerOutage,
		Pause:        kube.PauseBetweenComplaints,
	})
	r := &Reflector[T]{
		Lister:  &o.Store.Lister,
		store:   o.Store,
		client:  o.Client,
		kind:    o.Kind,
		once:    o.Once,
		report:  report,
		backoff: o.ServerBackoff.Join(),
	}
	r.judge = ending.NewJudge(r.backoff)
	r.position = position.New(position.Options{
		Resource: o.Kind.Resource,
		Restores: o.Restores,
		Report:   report,
		Ask:      r.newestVersion,
	})
	r.presence = presence.New(presence.Options{
		Client:   o.Client,
		API:      o.Kind.API,
		Resource: o.Kind.Resource,
		Backoff:  o.ServerBackoff.Join(), // Its loop has a backoff of its own.
		Report:   report,
		// The error is always nil, because isFinal is false for a resource under /apis/.
		Serve:       func(ctx context.Context) { r.listAndWatch(ctx) },
		OnInstalled: r.onInstalled,
		OnMissing:   r.onMissing,
		OnRemoved:   r.onRemoved,
		Once:        o.Once,
	})
	return r
}

// NeedLabels makes the store keep the labels with these keys. All other labels are dropped to save memory.
func (r *Reflector[T]) NeedLabels(keys ...string) { r.kind.Labels = append(r.kind.Labels, keys...) }

// NeedWholeObjects makes the reflector request spec and status. Otherwise, of pods and nodes it requests only metadata,
// which is much less work for both sides.
func (r *Reflector[T]) NeedWholeObjects() { r.kind.MetadataOnly = false }

// NeedEveryVersion makes every new resourceVersion of an object a change. Without it, a version that differs only in
// fields that the store does not keep is no change.
func (r *Reflector[T]) NeedEveryVersion() { r.store.reportsEveryVersion = true }

// Subscribe makes the reflector call handle with each change: see subscribers.Subscribers.Subscribe.
func (r *Reflector[T]) Subscribe(handle func(Delta[T])) { r.subscribers.Subscribe(handle) }

// Run keeps the store equal to what the server has until ctx ends, and then returns nil. It returns early in three
// cases:
//   - It returns nil if Once is set and the server does not have the resource.
//   - It returns an error if Once is set and a request is hopeless, because the server's host does not exist or its
//     certificate is wrong: see kube.IsHopeless. The request is a list for a resource under /api/. Under /apis/, it is
//     discovery, which asks what resources the server has.
//   - It returns an error that wraps a *kube.Status if the server rejects a list of a resource under /api/ as a bad
//     request, and no list has succeeded yet. Then a selector is wrong, and a retry would not help.
func (r *Reflector[T]) Run(ctx context.Context) error {
	r.report.Begin()
	defer r.report.End()
	r.decoder = object.NewDecoder(&r.kind) // Nobody calls the Need methods any more.
	if !r.kind.IsOptional() {
		return r.listAndWatch(ctx)
	}
	err := r.presence.Run(ctx)
	if r.once && r.presence.IsMissing() {
		r.position.MarkSynced() // The empty store is complete.
	}
	return err
}

// listAndWatch lists, then watches and audits, until ctx ends. Run describes its error.
func (r *Reflector[T]) listAndWatch(ctx context.Context) error {
	for ctx.Err() == nil {
		version, isListDue := r.position.TakeNext()
		var wait time.Duration
		var err error
		switch {
		case isListDue:
			err = r.relist(ctx)
		case r.auditPlan.IsDue():
			err = r.auditPlan.Audit(ctx, version, auditTarget[T]{r}, r.report)
		default:
			wait = r.watch(ctx, version)
		}
		if err != nil && r.isFinal(err) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			wait = r.judge.WaitAfterFailure(err)
			r.report.ListFailed(err) // It logs nothing if WaitAfterFailure has just logged that the server is away.
		}
		endPause := r.position.BeginPause(wait) // A Confirm that waits for this loop asks nothing during the pause.
		r.backoff.Sleep(ctx, wait)              // It may return early.
		endPause()
	}
	return nil
}

// isFinal reports whether Run must give up after the error of a list or an audit, because a retry would not help.
func (r *Reflector[T]) isFinal(err error) bool {
	if r.kind.IsOptional() {
		return false // Discovery finds out what is wrong: see Presence.Run.
	}
	// After a complete list, the selector was right, and a bad request has other reasons.
	hasList := process.IsClosed(r.Synced())
	isWrongSelector := !hasList && kube.StatusOf(err).Reason == "BadRequest"
	// With -once, nobody waits for the person who could help.
	isHopeless := r.once && kube.IsHopeless(err)
	return isWrongSelector || isHopeless
}

// relist makes the store equal to one complete list. If the list fails, even after many objects, the store stays as it
// was. The request has no resourceVersion: without one, the server returns the most recent state.
func (r *Reflector[T]) relist(ctx context.Context) error {
	begun := r.position.BeginList()
	listing := r.store.newListing()
	version, err := r.readList(ctx, r.newRequest("PartialObjectMetadataList"), listing)
	if err != nil {
		r.handleFailedList(listing, err)
		return err // Without Commit, the listing is dropped, and the store does not change.
	}
	changes, isFirst := listing.Commit()
	changeCount := len(changes)
	if isFirst {
		changeCount = r.Len()
	}
	r.publish(subscribers.Watches, changes...)
	r.report.Listed(version, begun.Reason, r.Len(), changeCount, time.Since(begun.At))
	r.noteListed(begun, version)
	return nil
}

// noteListed tells the other parts that the store has all of a complete list.
func (r *Reflector[T]) noteListed(list position.ListBegun, version string) {
	r.judge.ListCompleted()
	r.listReader.Succeeded()
	r.auditPlan.Done()
	r.backoff.Succeeded()
	// This comes last, because controllers may begin after it: see Synced and Confirm.
	r.position.Listed(list, version)
}

// publish hands changes to the functions that Subscribe has registered.
func (r *Reflector[T]) publish(from subscribers.Source, changes ...Delta[T]) {
	for _, change := range changes {
		r.report.Changed(observe.ChangeOf(change.Old, change.New))
		r.subscribers.Publish(from, change)
	}
}

// handleFailedList notes that a list has failed. Later ones may come in pages, and the next audit must wait.
func (r *Reflector[T]) handleFailedList(listing *Listing[T], err error) {
	r.listReader.Failed(listing.Len(), err)
	r.position.Failed(err)
	r.auditPlan.Postpone()
}

// readList reads a list into listing, with all its pages, and returns its version.
func (r *Reflector[T]) readList(
	ctx context.Context, request kube.Request, listing *Listing[T],
) (version string, err error) {
	listing.onProgress = r.report.BeginReading()
	readPage := func(ctx context.Context, page kube.Request) (wire.ListMeta, error) {
		body, err := r.openStream(ctx, page)
		if err != nil {
			return wire.ListMeta{}, err
		}
		defer body.Close()
		meta, err := r.decoder.List(body, body.IsProtobuf, listing.Add)
		return meta, page.Wrap(err)
	}
	meta, err := r.listReader.Read(ctx, request, listing, listLimit, readPage)
	return meta.ResourceVersion, err
}

// openStream opens a list or a watch. It notes that the server has answered, if it has.
func (r *Reflector[T]) openStream(ctx context.Context, request kube.Request) (*kube.Stream, error) {
	r.backoff.BeginTry()
	body, err := r.client.Stream(ctx, request)
	if kube.IsAnswer(err) {
		r.backoff.Answered()
	}
	return body, err
}

// watch runs one watch from this version, until it ends, is interrupted, or an audit is due. It returns how long to
// wait before the next request.
func (r *Reflector[T]) watch(ctx context.Context, version string) (wait time.Duration) {
	interruptible, done := r.position.Interruptible(ctx, r.auditPlan.Due()) // until the audit, or a demand for a list
	defer done()
	end, serverWentBack := r.openAndConsume(interruptible, version)
	r.position.WatchEnded(end)
	// If podcount stops, or an audit or a list is due, we have ended the watch ourselves. There is nothing to judge.
	isOurEnd := interruptible.Err() != nil || serverWentBack
	if isOurEnd {
		return 0
	}
	return r.judgeEnd(end)
}

// openAndConsume opens a watch, which the server ends after some minutes, and applies its events. It does not apply
// them if the server has gone back to a backup: then a list is due.
func (r *Reflector[T]) openAndConsume(ctx context.Context, version string) (end ending.End, serverWentBack bool) {
	timeout := 5*time.Minute + rand.N(5*time.Minute) // Watches that start together should not end together.
	limited, cancel := context.WithTimeoutCause(ctx, timeout+watchMargin, errNotEnded)
	defer cancel()
	request := r.newRequest("PartialObjectMetadata")
	request.Query.Set("watch", "1")
	request.Query.Set("resourceVersion", version)
	request.Query.Set("allowWatchBookmarks", "true") // so that the version stays recent while nothing changes
	request.Query.Set("timeoutSeconds", strconv.Itoa(int(timeout.Seconds())))
	body, err := r.openStream(limited, request)
	if err != nil {
		r.position.Failed(err)
		return ending.End{Err: err}, false
	}
	defer body.Close()
	// If the server was away, it may have come back with a backup.
	if r.position.AskIfGoneBack(limited) {
		return ending.End{}, true
	}
	return r.consume(request, body, version), false
}

// errNotEnded is the cause with which a watch is cut off that the server should have ended. It becomes End.Err, and is
// judged like an end by the server.
var errNotEnded = errors.New("the server has not ended the watch in time")

// consume applies the events of an open watch until it ends.
func (r *Reflector[T]) consume(request kube.Request, body *kube.Stream, version string) ending.End {
	start := time.Now()
	timer := r.noteOpened(version)
	defer timer.Stop()

	end := ending.End{IsOpened: true}
	next := version // from where the next watch resumes
	handle := func(event object.WatchEvent[T]) error {
		r.report.Frame(observe.FrameOf(event, body.IsProtobuf))
		if event.Status != nil {
			return request.Wrap(statusOfErrorFrame(*event.Status))
		}
		end.Events++
		body.Heard()
		r.backoff.Answered()
		var err error
		next, err = r.handleEvent(event, next)
		if err == nil {
			err = r.position.CheckAnswers() // It fails if the watch lags too far behind the answers to patches.
		}
		return request.Wrap(err)
	}
	end.Err = r.decoder.Events(body, body.IsProtobuf, handle)
	if end.Err == nil {
		end.Err = io.EOF // The server has ended the stream.
	}
	end.HasProgressed = next != version
	end.Lasted = time.Since(start)
	return end
}

// noteOpened tells the other parts that a watch is open. Once it has been open for a while, it counts as working, even
// if it has brought no events. The caller must stop the timer for that when the watch ends.
func (r *Reflector[T]) noteOpened(version string) *time.Timer {
	r.position.Opened()
	r.judge.Opened()
	r.report.Watching(version)
	r.decoder.KeepHeads(r.report.Trace.IsOn) // The trace shows the first bytes of frames.
	return time.AfterFunc(ending.Brief, func() {
		r.backoff.Succeeded()
		r.report.WatchWorks()
	})
}

// statusOfErrorFrame returns the Status of an ERROR frame as an error. A missing code becomes 500.
func statusOfErrorFrame(frame wire.Status) *kube.Status {
	frame.Code = cmp.Or(frame.Code, http.StatusInternalServerError)
	return &kube.Status{Status: frame}
}

// handleEvent applies one event to the store, and returns the version from which the next watch resumes. A bookmark
// moves only that version. The error wraps ending.ErrContradiction if the server's versions cannot all be true.
func (r *Reflector[T]) handleEvent(event object.WatchEvent[T], version string) (next string, err error) {
	meta := event.Object.ObjectMeta()
	next = meta.ResourceVersion()
	isNewer := object.IsNewer(next, version)
	r.report.Received(event.Type, meta, isNewer)
	if !isNewer { // It may be a bookmark with the known version. A change should be newer: see checkOldEvent.
		r.position.Heard()
		return version, r.checkOldEvent(event, version)
	}
	if event.Type != "BOOKMARK" {
		changes := r.store.apply(event.Type, event.Object)
		if len(changes) == 0 {
			r.report.Unchanged(meta)
		}
		r.publish(subscribers.Watches, changes...)
	}
	r.position.MoveTo(next) // after publish: a new leader may begin now (see Confirm), and must not miss the changes
	return next, nil
}

// judgeEnd decides what follows the end of a watch: the next one, which resumes from the version that this one has
// reached, or a list. It returns how long to wait before that.
func (r *Reflector[T]) judgeEnd(end ending.End) (wait time.Duration) {
	verdict := r.judge.Judge(end)
	r.report.WatchEnded(observe.WatchRecord{
		At:        time.Now(),
		Outcome:   verdict.Outcome.Name,
		Meaning:   verdict.Outcome.Meaning,
		Problem:   verdict.Outcome.Problem,
		Err:       end.Err,
		Version:   r.position.State().Version,
		Took:      end.Lasted,
		IsListDue: verdict.IsListDue,
	})
	r.position.Apply(verdict)
	return verdict.Wait
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
		Method:    http.MethodGet,
		API:       r.kind.API,
		Namespace: r.kind.Namespace,
		Resource:  r.kind.Resource,
		Query:     query,
		Accept:    kube.Accept(r.kind.MetadataOnly, metadataType, mediaTypes...),
	}
}

// Patch sends a merge patch for obj, or for one of its subresources unless subresource is "", and applies the server's
// answer to the store.
//
// The server may accept a patch and yet drop fields from it. droppedFrom gets the answer, and returns the names of the
// fields that were dropped. Patch returns the same names. The error wraps
//   - object.ErrGone if obj was deleted;
//   - object.ErrStripped if there are dropped fields;
//   - any error of kube.Client.Send, or of the decoder.
//
// The patch has no resourceVersion, so writes by others do not make it fail. It has the uid of obj: if obj was deleted,
// and another object has its name by now, the server refuses the patch. But in a patch of a subresource, the server
// ignores the uid, and so changes the other object. Patch notices that by the uid in the answer, and returns
// object.ErrGone then, too.
func (r *Reflector[T]) Patch(
	ctx context.Context, obj T, subresource string, patch map[string]any, droppedFrom func(answer T) []string,
) (dropped []string, err error) {
	answer, err := r.sendPatch(ctx, obj, subresource, patch)
	if err != nil {
		result := "failed"
		if errors.Is(err, object.ErrGone) {
			result = "gone"
		}
		r.report.Patched(result, obj.ObjectMeta(), err)
		return nil, err
	}
	r.position.PatchAnswered(answer.ObjectMeta().ResourceVersion())
	r.publish(subscribers.Patches, r.store.applyAnswer(answer)...)
	dropped = droppedFrom(answer)
	if len(dropped) > 0 {
		r.report.Patched("stripped", answer.ObjectMeta(), object.ErrStripped)
		return dropped, fmt.Errorf("patch %s/%s: %w", r.kind.Resource, answer.ObjectMeta().Key(), object.ErrStripped)
	}
	r.report.Patched("written", answer.ObjectMeta(), nil)
	return nil, nil
}

// sendPatch sends a patch, and returns the object in the answer, or nil and an error.
func (r *Reflector[T]) sendPatch(
	ctx context.Context, obj T, subresource string, patch map[string]any,
) (answer T, err error) {
	var none T
	key := obj.ObjectMeta().Key()
	decoder := object.NewDecoder(&r.kind) // r.decoder is for Run only.
	request := kube.Request{
		Method:      http.MethodPatch,
		API:         r.kind.API,
		Namespace:   key.Namespace,
		Resource:    r.kind.Resource,
		Name:        key.Name,
		Subresource: subresource,
		Accept:      kube.Accept(r.kind.MetadataOnly, "PartialObjectMetadata", wire.JSON),
	}
	body, err := json.Marshal(withUID(patch, obj.ObjectMeta().UID()))
	if err != nil {
		return none, request.Wrap(err)
	}
	request.Body = json.RawMessage(body)
	r.report.Patching(obj.ObjectMeta(), body)
	err = r.client.Send(ctx, request, func(received io.Reader) error {
		parsed, parseErr := decoder.Parse(received)
		answer = parsed
		return parseErr
	})
	status := kube.StatusOf(err)
	isGone := status.Reason == "NotFound"
	isRecreated := status.Reason == "Invalid" && status.HasCause("metadata.uid")
	if isGone || isRecreated {
		return none, object.ErrGone
	}
	if err != nil {
		return none, err
	}
	// A patch of a subresource may have changed another object of this name: see Patch.
	if answer.ObjectMeta().UID() != obj.ObjectMeta().UID() {
		return none, object.ErrGone
	}
	return answer, nil
}

// withUID returns a merge patch that the server applies only to the object with this uid, except for subresources.
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

// ---------------------------------------------------------------------------------------------------------------------
// What makes the store right in spite of faults

// checkOldEvent checks an event that is not newer than the version which the watch has reached. If the store knows it,
// it is a repetition, and checkOldEvent returns nil. Otherwise the versions contradict each other. Suppose that the
// watch has reached 900, and then brings an unknown change with 850. Then the server has never had 900, though it named
// it, and handleEvent would drop all changes up to 900 as old.
func (r *Reflector[T]) checkOldEvent(event object.WatchEvent[T], version string) error {
	meta := event.Object.ObjectMeta()
	var isRepeat bool
	switch event.Type {
	case "BOOKMARK":
		isRepeat = meta.ResourceVersion() == version
	default:
		isRepeat = r.store.knows(event.Type, event.Object)
	}
	if isRepeat {
		return nil
	}
	what := strings.TrimSpace(event.Type + " " + meta.NamespacedName())
	return fmt.Errorf("%w: %s at version %s is new, but comes after version %s",
		ending.ErrContradiction, what, meta.ResourceVersion(), version)
}

// auditTarget adapts a Reflector to audit.Cache. Package audit explains what an audit is good for.
type auditTarget[T object.Object[T]] struct{ *Reflector[T] }

// HasServerCaughtUp asks whether the server has come as far as the newest object in the store.
func (a auditTarget[T]) HasServerCaughtUp(ctx context.Context) (bool, error) {
	// No watch is open during an audit. So give the next one the usual time to reach the answers to patches.
	a.position.AllowCatchUp()
	return a.position.AskIfCaughtUp(ctx, a.store.newestHeld())
}

// Relist lists without a version.
func (a auditTarget[T]) Relist(ctx context.Context) error { return a.relist(ctx) }

// Correct makes the store equal to a list of the objects as they were at exactly this version. It returns the objects
// that were not right. It uses a connection of its own, so that another replica of the API server may answer.
func (a auditTarget[T]) Correct(ctx context.Context, version string) (drift []observe.Change, err error) {
	interruptible, done := a.position.Interruptible(ctx, time.Time{})
	defer done()
	request := a.newRequest("PartialObjectMetadataList")
	request.Query.Set("resourceVersion", version)
	request.Query.Set("resourceVersionMatch", "Exact")
	request.NewConnection = true
	listing := a.store.newListing()
	actual, err := a.readList(interruptible, request, listing)
	if err == nil && actual != version {
		err = audit.ErrOtherVersion
	}
	if err != nil {
		isInterrupted := interruptible.Err() != nil // for a list that is more urgent, or by a stop
		if !isInterrupted {
			a.handleFailedList(listing, err)
		}
		return nil, err
	}
	differences, changes := listing.CommitExact(version)
	a.publish(subscribers.Watches, changes...)
	a.listReader.Succeeded()
	a.position.MoveTo(version) // It is the same version, but now the server has confirmed it, which may end Confirm.
	return driftOf(&a.kind, differences), nil
}

// driftOf returns the differences that are faults. It is no fault if a custom resource looks different in the same
// version: after a change of its CRD, the server may leave out fields, or add defaults.
func driftOf[T object.Object[T]](kind *object.Kind[T], differences []Delta[T]) (drift []observe.Change) {
	for _, d := range differences {
		isPair := !isNil(d.Old) && !isNil(d.New)
		isHarmless := kind.IsOptional() && isPair && d.Old.ObjectMeta().IsSameVersion(d.New.ObjectMeta())
		if !isHarmless {
			drift = append(drift, observe.ChangeOf(d.Old, d.New))
		}
	}
	return drift
}

// newestVersion asks the server for its newest version. The request is a list of one object, without a version.
func (r *Reflector[T]) newestVersion(ctx context.Context, timeout time.Duration) (string, error) {
	request := r.newRequest("PartialObjectMetadataList")
	request.Accept = kube.Accept(true, "PartialObjectMetadataList", wire.JSON) // even if the kind needs whole objects
	request.Query.Set("limit", "1")
	request.Timeout = timeout
	var list struct{ Metadata wire.ListMeta }
	err := r.client.Send(ctx, request, func(answer io.Reader) error {
		return json.NewDecoder(answer).Decode(&list)
	})
	return list.Metadata.ResourceVersion, err
}

// Confirm returns nil once the store is at least as new as the server was at some moment after since. A new leader
// needs that before it works: its watch may have failed a while ago, or lag. Confirm returns the error of ctx if that
// ends before. It must be called after Synced, by one goroutine at a time. It is not for reflectors with Once.
func (r *Reflector[T]) Confirm(ctx context.Context, since time.Time) error {
	return r.position.Confirm(ctx, since)
}

// onInstalled hands on every object again after the resource was installed, or has got or lost its status subresource.
// The controllers may now have to write to it in another way.
func (r *Reflector[T]) onInstalled() {
	r.position.SetAbsent(false)
	for _, obj := range r.All() {
		r.publish(subscribers.Discovery, Delta[T]{Old: obj, New: obj})
	}
}

// onMissing notes that the server does not have the resource. While Run waits for it, the empty store is right, and the
// reflector is ready. With Once, Run does not wait: it returns, and marks the empty store as synced.
func (r *Reflector[T]) onMissing() {
	if !r.once {
		r.position.SetAbsent(true)
	}
}

// onRemoved empties the store, by the commit of an empty list, after the resource was removed: the server has
// deleted all its objects.
func (r *Reflector[T]) onRemoved() {
	r.judge.Reset()
	r.position.MakeListDue(position.Returned) // It comes when the resource returns.
	emptyList := r.store.newListing()
	changes, _ := emptyList.Commit()
	r.publish(subscribers.Discovery, changes...)
	r.onMissing() // after publish, because Confirm may return now, as in handleEvent
}

// ---------------------------------------------------------------------------------------------------------------------
// What others ask of a Reflector

// Synced returns a channel that is closed when the first list is complete. With Once, it is also closed when the server
// does not have the resource.
func (r *Reflector[T]) Synced() <-chan struct{} { return r.position.Synced() }

// Installed returns how a resource under /apis/ is installed now. It returns nil while the resource is not installed,
// and for resources under /api/.
func (r *Reflector[T]) Installed() *presence.Installation { return r.presence.Installed() }

// Stuck says so if a function that Subscribe has registered hangs: see subscribers.Subscribers.Stuck.
func (r *Reflector[T]) Stuck(limit time.Duration) string { return r.subscribers.Stuck(limit) }

// LostAt returns since when no watch keeps the store up to date: see Position.LostAt.
func (r *Reflector[T]) LostAt() *time.Time { return r.position.LostAt() }

// Kind returns the name of the kind, such as Pod.
func (r *Reflector[T]) Kind() string { return r.kind.Name }

// Reference returns what an Event needs to name the object that it is about.
func (r *Reflector[T]) Reference(obj T) events.Reference {
	key := obj.ObjectMeta().Key()
	return events.Reference{
		APIVersion: r.kind.APIVersion(),
		Kind:       r.kind.Name,
		Namespace:  key.Namespace,
		Name:       key.Name,
		UID:        obj.ObjectMeta().UID(),
	}
}

// State returns the current state. A reflector is ready once its first list is complete. It is also ready while its
// resource is not installed, because then there are no objects to wait for. Until discovery has answered, it is not
// known whether the resource is installed, and the reflector is not ready.
func (r *Reflector[T]) State() observe.CacheState {
	at := r.position.State()
	return observe.CacheState{
		Objects:         r.Len(),
		IsReady:         at.IsAbsent || process.IsClosed(r.Synced()),
		IsSynced:        process.IsClosed(r.Synced()),
		IsAbsent:        at.IsAbsent,
		IsUnknown:       r.kind.IsOptional() && r.Installed() == nil && !r.presence.IsMissing(),
		ResourceVersion: at.Version,
		LastHeard:       at.HeardAt,
		LastWatch:       r.report.LastWatch(),
		Problem:         r.report.Problem(),
		Counts:          &r.report.Counts,
	}
}
