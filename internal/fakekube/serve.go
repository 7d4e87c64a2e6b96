package fakekube

import (
	"fmt"
	"maps"
	"net/http"
	"time"
)

// serveNormally answers a request in truth. A spy, if there is one, hears of it.
func (s *Server) serveNormally(w http.ResponseWriter, r *http.Request, asked Request, came arrivalState, spy Spy) {
	req := &request{
		Request:   r,
		info:      asked,
		arrival:   came,
		spy:       spy,
		w:         w,
		query:     asked.Query,
		body:      []byte(asked.Body),
		mediaType: mediaJSON,
	}
	defer func() {
		if req.code == 0 {
			return
		}
		if spy != nil {
			spy.Answered(req.answerForSpy())
		}
		req.send()
	}()
	if req.rejectUnparsablePath() || req.rejectInvalidTimeout() || !s.authenticateAndAuthorize(req) {
		return
	}
	if asked.Resource == "" && s.serveDiscovery(req) {
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

// rejectUnparsablePath reports whether the path is one that the server itself stumbles over, which it answers so.
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

// rejectInvalidTimeout reports whether the request says how long it may take, and that is no duration, which is answered.
// The fake is always faster. A watch has a parameter of its own for that.
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

// authenticateAndAuthorize reports whether the fake knows who sends a request, and whether that user may send it. Where it does not,
// it answers why.
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

// findHandler finds the kind that a request is about, and what serves the request. It is nil where the API has no such
// path, or no such method there, which has been answered.
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
	case at.isOfBuiltInGroup():
		r.noResource()
	default:
		r.noPath()
	}
	return nil
}

// findBuiltInHandler is endpoint for a built-in kind. Its paths are a fixed set, and each has its own methods.
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

// builtInHandler is what serves a request for a built-in kind; nil where the path has no such method.
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

// convertOldWatch makes a watch in the old form, which names an object in its path, one that selects it.
func (r *request) convertOldWatch() {
	r.query = maps.Clone(r.query)
	r.query.Set("fieldSelector", "metadata.name="+r.key.Name)
	r.key.Name = ""
}

// findCustomHandler is endpoint for a custom resource. The server has no fixed set of paths for these.
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

// handlerFor is what serves a verb on an object, on a collection, or on a status; nil where there is no such verb.
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

// noResource answers for what a group does not have.
func (r *request) noResource() {
	r.failWith(404, "NotFound", "the server could not find the requested resource", Object{})
}

// noPath answers for a path that is of no group.
func (r *request) noPath() { http.NotFound(r.w, r.Request) }

// maxBody is the greatest length of a request's body, in bytes.
const maxBody = 3 << 20

// rejectTooLarge reports whether a request's body is longer than the server takes; where it is, that is answered.
func (r *request) rejectTooLarge() bool {
	if len(r.body) <= maxBody {
		return false
	}
	r.failWith(413, "RequestEntityTooLarge", fmt.Sprintf("Request entity too large: limit is %d", maxBody), nil)
	return true
}
