package fakekube

import (
	"cmp"
	"net/http"
	"net/url"
	"time"
)

// Request is a request that the fake got, and what the router understood of it.
type Request struct {
	Method string
	Path   string
	Query  url.Values
	Header http.Header // as it came
	Body   string

	// User is the name of the user who sent the request. It is "" where the request has no credential, or a wrong one.
	User string

	// Token is the bearer token of the request, "" where it has none. No message of the fake shows it.
	Token string

	HTTP2 bool      // or else HTTP/1.1
	At    time.Time // when its body had come, virtual in a bubble

	// Host is how the client calls the server. It tells one replica of a program from another.
	Host string

	Route
}

// String is the method, the path with the query, and the body.
func (q Request) String() string {
	return q.Method + " " + q.Path + "?" + q.Query.Encode() + " " + q.Body
}

// RequestOf describes a request by what its head says. The caller adds the body, the user and the token.
func RequestOf(r *http.Request) Request {
	query := r.URL.Query()
	return Request{
		Method: r.Method,
		Path:   r.URL.Path,
		Query:  query,
		Header: r.Header,
		HTTP2:  r.ProtoMajor == 2,
		At:     time.Now(),
		Host:   r.Host,
		Route:  routeOf(r.Method, r.URL.Path, query),
	}
}

// Answer is what the fake answers to a request.
type Answer struct {
	Request Request

	// Code is the HTTP status. It is 200 for a watch that runs.
	Code int

	// Body is the answer in JSON, also where it is sent as protobuf. A watch has none.
	Body []byte

	// Items are the objects of a list, or of one of its pages, in full.
	Items []Object

	// HasMore says that a list has more pages after this one.
	HasMore bool

	// IsCut says that a fault will cut the answer short on its way, so that it does not arrive whole. The fault of
	// a watch strikes at some later moment: no event of such a watch is sure to arrive.
	IsCut bool
}

// Spy hears what happens at the fake, as it happens. Its methods are called on the goroutines that serve requests,
// several at a time, and what they do delays the client. They must not change the objects that they get.
//
// An answer that a fault replaces, breaks off before it begins, or loses, is not told: the client gets none of it.
type Spy interface {
	// Asked is called with each request before anything is done about it, except those of hosts that are cut off.
	// The fake is not locked.
	Asked(q Request)

	// Told is called before a watch sends an event, ADDED, MODIFIED or DELETED, with the object in full. The objects with
	// which a watch without a version begins are told, too. Bookmarks, errors and frames of SendFrame are not. The fake is
	// not locked.
	Told(a Answer, event string, o Object)

	// Answered is called before an answer is sent, whether a success or a refusal: also where a watch is refused, but
	// not where one begins. The texts of /readyz, /livez, /healthz and of an unknown path are not told, nor is an answer
	// without a body. The fake is not locked.
	Answered(a Answer)

	// Changed is called with each change, in the order of their versions. The fake is locked: the spy must not call it.
	Changed(c Change)
}

// Requests returns the requests so far that match, in the order in which they came. Those that met a fault or were cut
// off are among them. It calls match with the fake locked, so that match must not call the fake.
func (s *Server) Requests(match func(Request) bool) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Request
	for _, q := range s.requests {
		if match(q) {
			found = append(found, q)
		}
	}
	return found
}

// ForgetRequests forgets the requests so far. A fake that serves for days needs it, as it keeps each of them.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
	for _, in := range s.injections {
		in.firstRequest = 0
	}
}

// IsWrite reports whether a request would make, change or delete objects, of any resource but Events. It is for
// Requests, as IsList and IsWatch are.
func IsWrite(q Request) bool {
	switch q.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return q.Resource != "events"
	}
	return false
}

// IsList matches lists of a resource, in one namespace or all, and their pages.
func IsList(resource string) func(Request) bool {
	return func(q Request) bool {
		return q.Verb == "list" && q.Resource == resource
	}
}

// IsWatch matches watches of a resource, in one namespace or all.
func IsWatch(resource string) func(Request) bool {
	return func(q Request) bool {
		return q.Verb == "watch" && q.Resource == resource
	}
}

// nextRequestOrChange is closed with the next request or change, whichever is first.
func (s *Server) nextRequestOrChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.activity
}

// Await waits until cond holds, in real time, and fails the test if it does not within 20 s. It looks again with each
// request and each change, and now and then besides: a controller may act without telling the server. It must be
// called on the test's own goroutine.
func (s *Server) Await(t TB, what string, cond func() bool) {
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
				t.Fatalf("never: %s", what)
			}
			return
		}
	}
}

// answerForSpy is the answer as a spy is told of it.
func (r *request) answerForSpy() Answer {
	return Answer{
		Request: r.info,
		Code:    cmp.Or(r.code, 200),
		Body:    r.replyJSON,
		Items:   r.items,
		HasMore: r.hasMore,
		IsCut:   r.isCut(),
	}
}

// isCut reports whether a fault will keep the answer from arriving whole. A watch has no length, so that a fault cuts
// it sooner or later.
func (r *request) isCut() bool {
	w, isFaulty := r.w.(*shortWriter)
	if !isFaulty {
		return false
	}
	isWatch := r.code == 0
	if isWatch {
		return true
	}
	data, _ := r.payload()
	return len(data) > w.left
}
