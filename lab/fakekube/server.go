package fakekube

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Server is an in-memory API server and an http.Handler. It keeps one linear history of changes, and its answers have
// the shape of a real kube-apiserver's. Create one with New.
//
// The exported fields are options; set them before the first request. Methods may be called at any time and from any
// goroutine, unless they say otherwise.
type Server struct {
	// Bookmarks is the interval between the bookmarks of a watch. New sets it to one minute; 0 sends none.
	Bookmarks time.Duration

	// OnlyMediaType, if set, is the only media type in which lists and watches are answered. They then contain whole
	// objects.
	OnlyMediaType string

	// NoControllers leaves deletions unfinished, as in a cluster that runs only etcd and kube-apiserver: pods on
	// nodes, namespaces, and objects with the garbage collector's finalizers stay in the terminating state. Without
	// it, the fake finishes these deletions at once.
	NoControllers bool

	// HasKubelets leaves the termination of pods to the caller: a deleted pod on a node stays until a DELETE with
	// gracePeriodSeconds=0 confirms that it has stopped.
	HasKubelets bool

	// ClientCA, if set, is the authority whose client certificates are accepted as credentials.
	ClientCA *x509.CertPool

	// Spy, if set, observes requests, answers and changes.
	Spy Spy

	// Upstream, if set, answers the requests instead of the fake, for example an httputil.ReverseProxy to a real API
	// server. The fake is then a proxy that lets faults happen: Received, Inject, Script, CutOff, EndWatches,
	// BreakWatches, Limit (except for PerObject) and a Network work as ever. What concerns objects and their changes,
	// such as Put, Compact, Lag, SendFrame or a Lie, has no effect, and a Spy does not hear of the upstream's answers.
	//
	// The upstream checks credentials. Allow and AddUser tell the fake whose tokens they are, so that Requests.User
	// can be a name. An upstream that panics with http.ErrAbortHandler breaks off its answer. An answer in JSON or
	// protobuf is passed on as a whole, or event by event if it is a watch; any other answer, as it comes.
	Upstream http.Handler

	// mu guards all fields below.
	mu sync.Mutex

	// requiresCredential is set by Allow. From then on, a request without a credential is anonymous, and one with a
	// wrong credential is refused.
	requiresCredential bool
	tokens             map[string]credential
	forbids            map[string]int // how often, by verb and resource, such as "patch nodes"

	latestVersion int    // resourceVersion of the newest change
	kinds         []kind // served kinds; the slice is replaced, never modified
	installations int    // number of times a custom resource has been defined

	objects          map[string]map[Key]Object // by qualified resource, such as "pods" or "leases.coordination.k8s.io"
	history          []Change                  // oldest change first
	compactedVersion int                       // changes up to this version have been compacted away
	eventsToLose     int                       // number of coming changes that no watch will see

	requests []Request
	activity chan struct{} // closed and replaced with each change and each request
	changed  chan struct{} // closed and replaced with each change

	watchEnd      *watchEnding  // ends the watches that run now; replaced when they end
	lag           *lag          // applies to watches that start now; may be nil
	pendingFrames []*Frame      // frames of SendFrame that no watch has sent yet
	healed        chan struct{} // closed and replaced by Heal

	seats      *seats // applies to requests that arrive now; nil if the server has no limit
	injections []*Injection
	cutOffs    map[string]int // how often each host is cut off: requests to it are broken off then
	mutations  []*mutation    // of Mutate, the oldest first
}

// New returns a fake that contains only the namespaces default and kube-system, and lets everyone do everything. The
// two namespaces have the versions 201 and 202, so the next object gets 203.
func New() *Server {
	s := &Server{
		Bookmarks:     time.Minute,
		forbids:       map[string]int{},
		tokens:        map[string]credential{},
		latestVersion: 200,
		kinds:         builtIn,
		objects:       map[string]map[Key]Object{},
		activity:      make(chan struct{}),
		changed:       make(chan struct{}),
		watchEnd:      &watchEnding{done: make(chan struct{})},
		healed:        make(chan struct{}),
		cutOffs:       map[string]int{},
	}
	for _, name := range []string{"default", "kube-system"} {
		s.Put("namespaces", Object{
			"metadata": Object{"name": name, "labels": Object{"kubernetes.io/metadata.name": name}},
			"spec":     Object{"finalizers": []any{"kubernetes"}},
			"status":   Object{"phase": "Active"},
		})
	}
	return s
}

// ServeHTTP serves the API. A request is subject to at most one fault: the first one that matches it and is not used
// up. Without a fault, it gets the normal answer.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		panic(http.ErrAbortHandler) // ignore an incomplete request
	}
	info := requestOf(r)
	info.Body = string(body)
	info.Token, _ = bearerToken(r)
	if hasCredential(r) {
		sender, _ := s.user(r)
		info.User = sender.Name
	}
	arrival, canReach := s.recordRequest(info)
	if !canReach {
		panic(http.ErrAbortHandler)
	}
	if s.Spy != nil {
		s.Spy.Asked(info)
	}
	injection := s.matchFault(info)
	if injection == nil {
		s.serveNormally(w, r, info, arrival, s.Spy)
		return
	}
	s.serveFault(w, r, info, arrival, injection)
}

// arrivalState is the part of the server's state that a request found on arrival. A watch compares it with the
// current state. So once Received includes a request, EndWatches, Lag, Heal and a change of a definition affect its
// watch, even if it has not started yet.
type arrivalState struct {
	watchEnd *watchEnding
	kinds    []kind
	lag      *lag
	seats    *seats        // nil if the server has no limit
	healed   chan struct{} // closed by Heal
}

// isHealed reports whether Heal has been called since the request arrived.
func (a arrivalState) isHealed() bool {
	select {
	case <-a.healed:
		return true
	default:
		return false
	}
}

// recordRequest appends a request to the log of requests and returns the state that it found. canReach is false if
// its host is cut off.
func (s *Server) recordRequest(info Request) (arrival arrivalState, canReach bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, info)
	s.signalActivityLocked()
	arrival = arrivalState{watchEnd: s.watchEnd, kinds: s.kinds, lag: s.lag, seats: s.seats, healed: s.healed}
	return arrival, s.cutOffs[info.Host] == 0
}

// request is a request that is being served. Only the goroutine that serves it may use it.
type request struct {
	*http.Request
	info    Request
	arrival arrivalState
	spy     Spy // nil if there is none, or if the answer will be dropped
	user    userInfo
	w       http.ResponseWriter

	kind     kind
	key      Key
	query    url.Values
	body     []byte
	isStatus bool // the request is for the status subresource

	hasSeat bool // whether the server works on the request; never without a Capacity

	options     options     // of a write
	listOptions listOptions // of a list or a watch

	mediaType string // of the answer
	view      view   // the form in which objects are shown

	code          int      // HTTP status of the answer; 0 if nothing remains to be sent
	replyJSON     []byte   // body of the answer in JSON
	replyProtobuf []byte   // the same in protobuf if it has already been encoded, otherwise nil
	items         []Object // objects of the list that is answered
	hasMore       bool     // the list has another page
}

// Status returns a failure Status, ready for encoding/json. An empty reason and nil details are left out.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
func Status(code int, reason, message string, details any) any {
	return struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   any    `json:"metadata"`
		Status     string `json:"status"`
		Message    string `json:"message"`
		Reason     string `json:"reason,omitempty"`
		Details    any    `json:"details,omitempty"`
		Code       int    `json:"code"`
	}{"Status", "v1", Object{}, "Failure", message, reason, details, code}
}

// failWith answers with a failure Status.
func (r *request) failWith(code int, reason, message string, details any) {
	r.answer(code, Status(code, reason, message, details))
}

// details returns the details of a Status, which name the object of the request.
func (r *request) details() Object {
	d := Object{"kind": r.kind.resource}
	if r.key.Name != "" {
		d["name"] = r.key.Name
	}
	if r.kind.group != "" {
		d["group"] = r.kind.group
	}
	return d
}

// rejectInvalidName answers 400 and returns true if the name in the path contains something that no name can contain,
// such as a percent sign. Like the real server, the fake checks this only when it looks up the object.
func (r *request) rejectInvalidName() bool {
	problem := segmentProblem(r.key.Name)
	if problem == "" {
		return false
	}
	r.badRequest(fmt.Sprintf("Name parameter invalid: %q: %s", r.key.Name, problem))
	return true
}

// notFound answers 404 for the object of the request.
func (r *request) notFound() {
	if r.rejectInvalidName() {
		return
	}
	r.failWith(404, "NotFound", fmt.Sprintf("%s %q not found", r.kind.qualified(), r.key.Name), r.details())
}

// conflict answers 409 because the object has another resourceVersion than the one that was sent.
func (r *request) conflict() {
	message := fmt.Sprintf("Operation cannot be fulfilled on %s %q: the object has been modified; "+
		"please apply your changes to the latest version and try again", r.kind.qualified(), r.key.Name)
	r.failWith(409, "Conflict", message, r.details())
}
