package fakekube

import (
	"fmt"
	"maps"
	"net/http"
	"time"
)

// serveNormally answers a request as if no fault were injected. spy may be nil.
func (s *Server) serveNormally(w http.ResponseWriter, r *http.Request, info Request, arrival arrivalState, spy Spy) {
	req := &request{
		Request:   r,
		info:      info,
		arrival:   arrival,
		spy:       spy,
		w:         w,
		query:     info.Query,
		body:      []byte(info.Body),
		mediaType: mediaJSON,
	}
	if !req.takeSeat() {
		return
	}
	defer req.leaveSeat()
	if s.Upstream != nil {
		s.serveUpstream(w, r, info, arrival)
		return
	}
	defer req.finish()
	if req.rejectUnparsablePath() || req.rejectInvalidTimeout() || !s.authenticateAndAuthorize(req) {
		return
	}
	if info.Resource == "" && s.serveDiscovery(req) {
		return
	}
	handle := s.findHandler(req)
	if handle == nil {
		return
	}
	if !req.checkAccept() || req.isForCollection() && !req.readListOptions() {
		return
	}
	if !s.negotiate(req) || req.rejectTooLarge() {
		return
	}
	handle(req)
}

// finish reports the answer to the spy and sends it, unless nothing remains to be sent.
func (r *request) finish() {
	if r.code == 0 {
		return
	}
	r.workOnAnswer()
	if r.spy != nil {
		r.spy.Answered(r.answerForSpy())
	}
	r.send()
}

// rejectUnparsablePath answers 500 and returns true for the watch paths that make the real server fail while it
// parses them.
func (r *request) rejectUnparsablePath() bool {
	at := addressOf(r.info.Path)
	if at.version == "" || at.resource != "watch" || at.name != "" {
		return false
	}
	text := fmt.Sprintf("Internal Server Error: %q: failed to create RequestInfo: "+
		"unable to determine kind and namespace from url, %s", r.info.Path, r.info.Path)
	http.Error(r.w, text, http.StatusInternalServerError)
	return true
}

// rejectInvalidTimeout answers 400 and returns true if the timeout parameter is not a duration. A valid timeout has
// no effect, because the fake always answers in time. Watches use timeoutSeconds instead.
func (r *request) rejectInvalidTimeout() bool {
	timeout := r.query.Get("timeout")
	if timeout == "" || r.info.Verb == "watch" {
		return false
	}
	_, err := time.ParseDuration(timeout)
	if err != nil {
		r.badRequest("invalid timeout specified in the request URL - " + err.Error())
	}
	return err != nil
}

// authenticateAndAuthorize sets the user of a request and reports whether that user may send it. If not, it answers
// 401 or 403.
func (s *Server) authenticateAndAuthorize(r *request) bool {
	r.warnOfExtraSpace()
	sender, isKnown := s.user(r.Request)
	if !isKnown {
		r.failWith(401, "Unauthorized", "Unauthorized", nil)
		return false
	}
	user, isAnswered := s.impersonatedUser(r, sender)
	if isAnswered {
		return false
	}
	r.user = user
	wanted := attributesOf(r.info)
	allowed, reason := s.authorize(user, wanted)
	if !allowed {
		r.forbidden(user, wanted, reason)
	}
	return allowed
}

// findHandler sets the kind and the key of a request, and returns the function that serves it. If the API has no such
// path, or no such method there, it answers so and returns nil.
func (s *Server) findHandler(r *request) func(*request) {
	at := addressOf(r.info.Path)
	s.mu.Lock()
	k, isServed := s.kindOfRouteLocked(r.info.Route)
	s.mu.Unlock()
	r.kind = k
	r.key = Key{r.info.Namespace, r.info.Name}
	r.isStatus = r.info.Subresource == "status"
	switch {
	case isServed && k.isCustom():
		return s.findCustomHandler(r, at)
	case isServed:
		return s.findBuiltInHandler(r, at)
	case at.isOfBuiltInGroup(r.arrival.kinds):
		r.noResource()
	default:
		r.noPath()
	}
	return nil
}

// findBuiltInHandler is findHandler for a built-in kind. The real server registers a fixed set of paths for these,
// each with its methods.
func (s *Server) findBuiltInHandler(r *request, at address) func(*request) {
	isCollection := at.name == ""
	hasScope := r.kind.isNamespaced == at.isInNamespace || r.kind.isNamespaced && isCollection
	hasSubresource := at.subresource == "" || r.kind.hasSubresource(at.subresource) && !at.isWatch
	if !hasScope || !hasSubresource || at.isTooLong || r.kind.isReview && !isCollection {
		r.noResource()
		return nil
	}
	handle := s.builtInHandler(r, at)
	if handle == nil {
		r.failWith(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", Object{})
		return nil
	}
	return handle
}

// builtInHandler returns the function that serves a request for a built-in kind. It returns nil if the path does not
// have this method.
func (s *Server) builtInHandler(r *request, at address) func(*request) {
	isAcrossNamespaces := r.kind.isNamespaced && at.namespace == ""
	canWrite := !isAcrossNamespaces && !at.isWatch
	if r.Method != http.MethodGet && !canWrite || r.Method == http.MethodHead {
		return nil
	}
	if r.info.Verb == "deletecollection" && r.kind.qualified() == "namespaces" {
		return nil
	}
	verb := r.info.Verb
	switch {
	case r.kind.isReview && verb != "create":
		return nil
	case r.kind.isReview:
		return s.review
	case at.subresource == "token" && verb == "create":
		return s.createToken
	case at.subresource == "binding" && verb == "create":
		return s.bind
	case at.subresource == "eviction" && verb == "create":
		return s.evict
	case at.subresource == "finalize" && verb == "update":
		return s.finalize
	case at.subresource != "" && at.subresource != "status":
		return nil
	case at.name != "" && verb == "create", at.name == "" && (verb == "update" || verb == "patch"):
		return nil
	case at.name != "" && verb == "watch":
		r.convertOldWatch()
	}
	return s.handlerFor(r.info.Route)
}

// convertOldWatch turns a watch in the old form, which has an object's name in its path, into one with a field
// selector.
func (r *request) convertOldWatch() {
	r.query = maps.Clone(r.query)
	r.query.Set("fieldSelector", "metadata.name="+r.key.Name)
	r.key.Name = ""
}

// findCustomHandler is findHandler for a custom resource. The real server registers no fixed paths for these.
func (s *Server) findCustomHandler(r *request, at address) func(*request) {
	isAcrossNamespaces := r.info.Verb == "list" || r.info.Verb == "watch"
	hasScope := r.kind.isNamespaced == at.isInNamespace || r.kind.isNamespaced && isAcrossNamespaces
	if !hasScope {
		r.noPath()
		return nil
	}
	r.warnOfDeprecation()
	if at.subresource != "" && !r.kind.hasSubresource(at.subresource) {
		r.notFound()
		return nil
	}
	if at.name == "" && (r.info.Verb == "update" || r.info.Verb == "patch") {
		r.failWith(400, "BadRequest", "name must be provided", nil)
		return nil
	}
	if r.info.Verb == "watch" && at.name != "" {
		r.convertOldWatch()
	}
	handle := s.handlerFor(r.info.Route)
	if handle == nil {
		r.key.Name = ""
		r.failWith(405, "MethodNotAllowed",
			fmt.Sprintf("%s is not supported on resources of kind %q", r.info.Verb, r.kind.qualified()), r.details())
	}
	return handle
}

// handlerFor returns the function for a verb on an object, a collection or a status. It returns nil if there is no
// such verb.
func (s *Server) handlerFor(rt Route) func(*request) {
	isStatus := rt.Subresource == "status"
	switch rt.Verb {
	case "get":
		return s.read
	case "update":
		return s.update
	case "patch":
		return s.patch
	}
	if isStatus {
		return nil
	}
	switch rt.Verb {
	case "list":
		return s.list
	case "watch":
		return s.watch
	case "create":
		return s.create
	case "delete":
		return s.delete
	case "deletecollection":
		return s.deleteCollection
	}
	return nil
}

// noResource answers 404 for a path within a known group.
func (r *request) noResource() {
	r.failWith(404, "NotFound", "the server could not find the requested resource", Object{})
}

// noPath answers 404 for a path outside of all groups.
func (r *request) noPath() { http.NotFound(r.w, r.Request) }

// maxBody is the size limit of a request's body in bytes.
const maxBody = 3 << 20

// rejectTooLarge answers 413 and returns true if the request's body exceeds maxBody.
func (r *request) rejectTooLarge() bool {
	if len(r.body) <= maxBody {
		return false
	}
	r.failWith(413, "RequestEntityTooLarge", fmt.Sprintf("Request entity too large: limit is %d", maxBody), nil)
	return true
}
