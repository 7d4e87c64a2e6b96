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

// Server is an API server in memory, an http.Handler: it keeps one linear history of changes, and answers in the
// shapes of a real kube-apiserver. Make one with New. Its fields are options, which may be set until the first request.
// Where a method says nothing else, it may be called at any time, on any goroutine.
type Server struct {
	// Bookmarks is how often a watch gets a bookmark, a minute at first; 0 is never.
	Bookmarks time.Duration

	// OnlyMediaType, if set, is the one media type in which lists and watches are answered, as whole objects.
	OnlyMediaType string

	// NoControllers says that nothing acts in the cluster but the API server, as where etcd and kube-apiserver run alone.
	// Without it, what a DELETE begins is ended at once, as by the controllers of a cluster in good health: a pod on a
	// node ends, the garbage collector removes its finalizers, and a namespace goes with all that is in it. With it, these
	// stay, marked as being deleted.
	NoControllers bool

	// HasKubelets says that somebody plays the kubelets, so that a pod on a node that is deleted stays, marked as being
	// deleted, until a DELETE with gracePeriodSeconds=0 says that it has ended.
	HasKubelets bool

	// ClientCA, if set, is the authority whose client certificates are let in where a token is needed.
	ClientCA *x509.CertPool

	// Spy, if set, hears what happens.
	Spy Spy

	mu                 sync.Mutex // guards all below
	requiresCredential bool       // whoever has no credential is anonymous, and a wrong one is refused
	tokens             map[string]credential
	isForbidden        map[string]bool // by verb and resource, as in "patch nodes"

	latestVersion int    // the newest
	kinds         []kind // that are served; replaced, never changed
	installations int    // how many times a custom resource has been defined

	objects          map[string]map[Key]Object // by qualified resource, such as "pods" or "leases.coordination.k8s.io"
	history          []Change                  // in the order of versions
	compactedVersion int                       // changes up to this version are compacted away
	eventsToLose     int                       // how many coming changes no watch will hear of

	requests []Request
	activity chan struct{} // closed and replaced with each change and each request
	changed  chan struct{} // closed and replaced with each change

	watchEnd      *watchEnding // of the watches that run; replaced when it comes
	lag           *lag         // if any, of the watches that are asked for now
	pendingFrames []*Frame     // that watches will get between their events

	injections    []*Injection
	isCutOff      map[string]bool // by host: its requests break
	strippedLabel string          // a label that a mutating webhook removes from each node that is written; "": none
}

// New is a fake with the namespaces default and kube-system, and nothing else. Everybody may do everything there. The
// versions of the namespaces are 201 and 202, so that the next object gets 203.
func New() *Server {
	s := &Server{
		Bookmarks:     time.Minute,
		isForbidden:   map[string]bool{},
		tokens:        map[string]credential{},
		latestVersion: 200,
		kinds:         builtIn,
		objects:       map[string]map[Key]Object{},
		activity:      make(chan struct{}),
		changed:       make(chan struct{}),
		watchEnd:      &watchEnding{done: make(chan struct{})},
		isCutOff:      map[string]bool{},
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

// ServeHTTP serves the API. A request meets the first fault that matches it and has requests left to meet; without one,
// it is answered in truth. Faults do not add up: a request meets one at most.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		panic(http.ErrAbortHandler) // a request that did not come whole is none
	}
	asked := RequestOf(r)
	asked.Body = string(body)
	asked.Token, _ = bearerToken(r)
	if hasCredential(r) {
		sender, _ := s.user(r)
		asked.User = sender.Name
	}
	came, canReach := s.recordRequest(asked)
	if !canReach {
		panic(http.ErrAbortHandler)
	}
	if s.Spy != nil {
		s.Spy.Asked(asked)
	}
	met := s.matchFault(asked)
	if met == nil {
		s.serveNormally(w, r, asked, came, s.Spy)
		return
	}
	s.serveFault(w, r, asked, came, met)
}

// arrival is what a request found when it came. A watch ends with it: whoever has seen the request in Requests may rely
// on EndWatches, InstallCRD and Lag to reach its watch, although the watch may not have begun.
type arrivalState struct {
	watchEnd *watchEnding
	kinds    []kind
	lag      *lag
}

// recordRequest keeps a request, and returns what it found. canReach says whether the host that it is for can be reached.
func (s *Server) recordRequest(asked Request) (came arrivalState, canReach bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, asked)
	s.signalActivityLocked()
	came = arrivalState{watchEnd: s.watchEnd, kinds: s.kinds, lag: s.lag}
	return came, !s.isCutOff[asked.Host]
}

// request is a request that is being served. One goroutine has it.
type request struct {
	*http.Request
	info    Request
	arrival arrivalState
	spy     Spy // nil also where the answer will be lost
	user    User
	w       http.ResponseWriter

	kind     kind
	key      Key
	query    url.Values
	body     []byte
	isStatus bool // it is about the subresource status

	options     options     // of a write
	listOptions listOptions // of a list or a watch

	mediaType string // of the answer
	view      view   // as what objects are shown

	code          int    // of the answer; 0: nothing is left to be sent
	replyJSON     []byte // in JSON
	replyProtobuf []byte // the same in protobuf, if somebody has made that already; nil: nobody has
	items         []Object
	hasMore       bool // the list has another page
}

// Status is the Status that the server answers where it refuses a request, ready for encoding/json. An empty reason is
// left out, and so are details that are nil.
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

// failWith answers with a Status.
func (r *request) failWith(code int, reason, message string, details any) {
	r.answer(code, Status(code, reason, message, details))
}

// details name the object in a Status.
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

// rejectInvalidName reports whether the name in the path is one that no object can have, because it would lead
// elsewhere in a path; where it is, that is answered. The server says so where it looks for the object.
func (r *request) rejectInvalidName() bool {
	problem := segmentProblem(r.key.Name)
	if problem == "" {
		return false
	}
	r.badRequest(fmt.Sprintf("Name parameter invalid: %q: %s", r.key.Name, problem))
	return true
}

func (r *request) notFound() {
	if r.rejectInvalidName() {
		return
	}
	r.failWith(404, "NotFound", fmt.Sprintf("%s %q not found", r.kind.qualified(), r.key.Name), r.details())
}

func (r *request) conflict() {
	message := fmt.Sprintf("Operation cannot be fulfilled on %s %q: the object has been modified; "+
		"please apply your changes to the latest version and try again", r.kind.qualified(), r.key.Name)
	r.failWith(409, "Conflict", message, r.details())
}
