package fakekube

import (
	"cmp"
	"net/http"
	"net/url"
	"time"
)

// Request is a request that the fake received, with its route.
type Request struct {
	Method string
	Path   string
	Query  url.Values
	Header http.Header // as received
	Body   string

	// User is the name of the authenticated user. It is "" if the request has no credential or a wrong one.
	User string

	// Token is the request's bearer token, or "". The fake never shows it in a message.
	Token string

	// Certificate is the common name in the client certificate of the request's connection, or "".
	Certificate string

	HTTP2 bool      // HTTP/2 rather than HTTP/1.1
	At    time.Time // when the whole body had arrived; in virtual time within a bubble

	// Host is the host by which the client called the server, as in its URL. Tests use it to tell replicas apart.
	Host string

	Route
}

// String returns the method, the path with the query, and the body.
func (q Request) String() string {
	return q.Method + " " + q.Path + "?" + q.Query.Encode() + " " + q.Body
}

// requestOf describes a request by its head. The caller fills in the body, the user and the token.
func requestOf(r *http.Request) Request {
	query := r.URL.Query()
	info := Request{
		Method: r.Method,
		Path:   r.URL.Path,
		Query:  query,
		Header: r.Header,
		HTTP2:  r.ProtoMajor == 2,
		At:     time.Now(),
		Host:   r.Host,
		Route:  routeOf(r.Method, r.URL.Path, query),
	}
	certificate := clientCertificate(r)
	if certificate != nil {
		info.Certificate = certificate.Subject.CommonName
	}
	return info
}

// Answer is the fake's answer to a request.
type Answer struct {
	Request Request

	// Code is the HTTP status. It is 200 for a running watch.
	Code int

	// Body is the answer in JSON, even if it is sent as protobuf. It is empty for a watch.
	Body []byte

	// Items are the complete objects of a list or of one of its pages.
	Items []Object

	// HasMore means that the list has more pages.
	HasMore bool

	// RetryAfter is how long the client must wait before it repeats the request. It is 0 unless a Capacity refuses the
	// request.
	RetryAfter time.Duration

	// IsCut means that a fault will truncate the answer. A truncated watch breaks at some later time, so any of its
	// events may be lost. After Heal, its later events are not.
	IsCut bool

	// MayBreak means that a fault may break off the answer, even at its very end. A client that waits for the end then
	// loses the answer, and one that does not has all of it.
	MayBreak bool
}

// Spy observes the fake. Its methods are called on the goroutines that serve requests, several at a time, and delay
// the client until they return. They must not modify the objects that they get.
//
// Answers that a fault replaces or drops are not reported, because the client does not receive them.
type Spy interface {
	// Asked is called with each request before it is processed, except for requests from hosts that are cut off. The
	// fake is not locked.
	Asked(q Request)

	// Told is called before a watch sends an ADDED, MODIFIED or DELETED event, with the complete object. Initial
	// events are included; bookmarks, errors and frames of SendFrame are not. The fake is not locked.
	Told(a Answer, event string, o Object)

	// Answered is called before an answer is sent, successful or not. This includes the refusal of a watch, but not
	// the start of one. The text answers of /readyz, /livez, /healthz and unknown paths, and answers without a body,
	// are not reported. The fake is not locked.
	Answered(a Answer)

	// Changed is called with each change, in the order of versions. The fake is locked, so the spy must not call it.
	Changed(c Change)
}

// Received returns the selected requests so far, in the order in which they arrived, including those that met a fault
// or were cut off. Received(Requests{Verb: "write"}) are those that want to change something. It panics if the
// selection is invalid, as Inject does.
func (s *Server) Received(on Requests) []Request {
	if problem := on.problem(); problem != "" {
		panic(problem)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Request
	for _, q := range s.requests {
		if on.matches(q) {
			found = append(found, q)
		}
	}
	return found
}

// ForgetRequests clears the log of requests. A fake that runs for days needs this, because it keeps every request.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
	for _, in := range s.injections {
		in.firstRequest = 0
	}
}

// nextRequestOrChange returns a channel that is closed with the next request or change.
func (s *Server) nextRequestOrChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.activity
}

// Await waits until cond holds, and fails the test if it does not within 20 s, which are virtual in a bubble. It checks
// cond after each request and change, and also every 50 ms, because a controller may act without contacting the server.
// It must be called on the test's own goroutine.
func (s *Server) Await(t TB, condition string, cond func() bool) {
	t.Helper()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for {
		grew := s.nextRequestOrChange()
		if cond() {
			return
		}
		select {
		case <-grew:
		case <-ticks.C:
		case <-late.C:
			if !cond() {
				t.Fatalf("never: %s", condition)
			}
			return
		}
	}
}

// answerForSpy returns the answer as reported to a spy.
func (r *request) answerForSpy() Answer {
	return Answer{
		Request:  r.info,
		Code:     cmp.Or(r.code, 200),
		Body:     r.replyJSON,
		Items:    r.items,
		HasMore:  r.hasMore,
		IsCut:    r.isCut(),
		MayBreak: r.mayBreak(),
	}
}

// mayBreak reports whether a fault may break off the answer.
func (r *request) mayBreak() bool {
	_, isFaulty := r.w.(cutter)
	return isFaulty
}

// isCut reports whether a fault will truncate the answer. A watch has no fixed length, so a fault truncates it sooner
// or later, unless Heal is called before.
func (r *request) isCut() bool {
	w, isFaulty := r.w.(cutter)
	if !isFaulty {
		return false
	}
	isWatch := r.code == 0
	if isWatch {
		return !r.arrival.isHealed()
	}
	data, _ := r.payload()
	return w.cuts(data)
}

// cutter is an http.ResponseWriter that may not pass on a whole answer.
type cutter interface {
	// cuts reports whether an answer of a fixed length will be truncated.
	cuts(answer []byte) bool
}
