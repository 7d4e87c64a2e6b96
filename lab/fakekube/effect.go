package fakekube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Effect is what a Fault does to a request: Refuse, Reply, Handle, Record, Cut, CutFrame, Truncate, Hang, DropRequest,
// DropAnswer, Reset or Stall. A Lie is also an Effect, but it changes what lists and watches show instead of affecting
// single requests.
type Effect interface {
	// String returns the effect in the text form of Script.
	String() string

	// problem says why the effect is invalid. It returns "" if it is valid.
	problem() string

	// apply has the effect on a request.
	apply(e *faultedRequest)
}

// faultedRequest is a request that has met a fault. Only the goroutine that serves it may use it.
type faultedRequest struct {
	server    *Server
	w         http.ResponseWriter
	r         *http.Request
	info      Request
	arrival   arrivalState
	injection *Injection
}

// serveNormally answers as if there were no fault. spy may be nil.
func (e *faultedRequest) serveNormally(w http.ResponseWriter, spy Spy) {
	e.server.serveNormally(w, e.r, e.info, e.arrival, spy)
}

// isSpared reports whether an effect must not truncate what is still to be sent, because Heal has been called. It is
// false for a list, which is sent all at once.
func (e *faultedRequest) isSpared() bool { return e.info.Verb == "watch" && e.arrival.isHealed() }

// userName returns the name of the user for whom the request is sent. It never returns a token.
func (e *faultedRequest) userName() string {
	if name := e.r.Header.Get("Impersonate-User"); name != "" {
		return name
	}
	user, isKnown := e.server.user(e.r)
	if !isKnown {
		return anonymous
	}
	return user.Name
}

// Refuse answers with the Status that the server would send, without any other effect.
type Refuse struct {
	// Code is the HTTP status, from 400 to 599.
	Code int

	// Reason and Message default to those that the server uses with this code.
	Reason  string
	Message string

	// RetryAfter is sent in the header and in the Status, rounded up to whole seconds. 0 sends none.
	RetryAfter time.Duration
}

func (f Refuse) apply(e *faultedRequest) {
	reason, message := refusal(f.Code, e.info, e.userName())
	details := Object{}
	isAboutObject := f.Code == 403 || f.Code == 404 || f.Code == 409 || f.Code == 422
	if isAboutObject {
		details = objectDetails(e.info)
	}
	if f.RetryAfter > 0 {
		seconds := f.retryAfterSeconds()
		details["retryAfterSeconds"] = seconds
		e.w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	var shown any // nil omits the details; empty ones would show
	if len(details) > 0 {
		shown = details
	}
	e.w.Header().Set("Content-Type", mediaJSON)
	e.w.WriteHeader(f.Code)
	json.NewEncoder(e.w).Encode(Status(f.Code, cmp.Or(f.Reason, reason), cmp.Or(f.Message, message), shown))
}

// objectDetails returns the details of a Status about the object of a request.
func objectDetails(info Request) Object {
	details := Object{}
	if info.Name != "" {
		details["name"] = info.Name
	}
	if info.Group != "" {
		details["group"] = info.Group
	}
	if info.Resource != "" {
		details["kind"] = info.Resource
	}
	return details
}

// retryAfterSeconds returns RetryAfter rounded up to whole seconds.
func (f Refuse) retryAfterSeconds() int { return int((f.RetryAfter + time.Second - 1) / time.Second) }

// refusal returns the server's reason and message for refusing a user's request with this code.
func refusal(code int, q Request, user string) (reason, message string) {
	named := kind{group: q.Group, resource: q.Resource}.qualified()
	if q.Name != "" {
		named += fmt.Sprintf(" %q", q.Name)
	}
	switch code {
	case 400:
		return "BadRequest", "the server rejected our request for an unknown reason"
	case 401:
		return "Unauthorized", "Unauthorized"
	case 403:
		return "Forbidden", forbiddenMessage(user, attributesOf(q))
	case 404:
		return "NotFound", named + " not found"
	case 405:
		return "MethodNotAllowed", "the server does not allow this method on the requested resource"
	case 409:
		if q.Verb == "create" {
			return "AlreadyExists", named + " already exists"
		}
		return "Conflict", "Operation cannot be fulfilled on " + named + ": the object has been modified; " +
			"please apply your changes to the latest version and try again"
	case 410:
		return "Expired", "The resourceVersion for the provided " + q.Verb + " is too old."
	case 413:
		return "RequestEntityTooLarge", "Request entity too large: limit is 3145728"
	case 415:
		return "UnsupportedMediaType", "the body of the request was in an unknown format"
	case 422:
		return "Invalid", named + " is invalid"
	case 429:
		return "TooManyRequests", "storage is (re)initializing"
	case 500:
		return "InternalError", "Internal error occurred: etcdserver: request timed out"
	case 503:
		return "ServiceUnavailable", "apiserver not ready"
	case 504:
		return "Timeout", "Timeout: request did not complete within requested timeout - context deadline exceeded"
	}
	return strings.ReplaceAll(http.StatusText(code), " ", ""), http.StatusText(code)
}

func (f Refuse) problem() string {
	if f.Code < 400 || f.Code > 599 {
		return fmt.Sprintf("%d is no code to refuse with: those are 400 to 599", f.Code)
	}
	if f.RetryAfter < 0 {
		return "Retry-After is less than 0"
	}
	return ""
}

// String returns the effect in the text form of Script.
func (f Refuse) String() string {
	text := "refuse " + strconv.Itoa(f.Code)
	if f.Reason != "" {
		text += " reason " + word(f.Reason)
	}
	if f.Message != "" {
		text += " message " + strconv.Quote(f.Message)
	}
	if f.RetryAfter > 0 {
		text += " retry-after " + strconv.Itoa(f.retryAfterSeconds()) + "s"
	}
	return text
}

// Reply sends a fixed answer to any request, without any other effect, like a proxy or a server with a bug.
type Reply struct {
	// Code is the HTTP status. 0 means 200.
	Code int

	// Header is the header. Its Content-Type defaults to application/json.
	Header map[string]string

	// Body is sent unchanged.
	Body string
}

func (f Reply) apply(e *faultedRequest) {
	e.w.Header().Set("Content-Type", mediaJSON)
	for name, value := range f.Header {
		e.w.Header().Set(name, value)
	}
	e.w.WriteHeader(cmp.Or(f.Code, 200))
	io.WriteString(e.w, f.Body)
}

func (f Reply) problem() string {
	if f.Code != 0 && (f.Code < 200 || f.Code > 599) {
		return fmt.Sprintf("%d is no code to reply with: those are 200 to 599", f.Code)
	}
	return ""
}

// String returns the effect in the text form of Script.
func (f Reply) String() string {
	text := "reply " + strconv.Itoa(cmp.Or(f.Code, 200))
	for _, name := range slices.Sorted(maps.Keys(f.Header)) {
		text += " header " + word(name) + " " + word(f.Header[name])
	}
	if f.Body != "" {
		text += " body " + strconv.Quote(f.Body)
	}
	return text
}

// Handle answers instead of the fake. It is called without a lock and may call the fake. It has no text form.
type Handle http.HandlerFunc

func (f Handle) apply(e *faultedRequest) { f(e.w, e.r) }

func (f Handle) problem() string {
	if f == nil {
		return "there is no handler"
	}
	return ""
}

// String returns a text for messages. Script cannot parse it.
func (f Handle) String() string { return "handle …" }

// Cut breaks the connection after a number of bytes of the normal answer's body, counted as sent, that is, after
// compression. For a watch, counting starts with its first event. The body must be longer than that.
type Cut struct {
	After int // in bytes
}

func (f Cut) apply(e *faultedRequest) { e.truncate(f.After, false) }

func (f Cut) problem() string { return lengthProblem(f.After) }

// String returns the effect in the text form of Script.
func (f Cut) String() string { return fmt.Sprintf("cut after %d bytes", f.After) }

// Hang stops sending after a number of bytes, counted as for Cut, and leaves the connection open until the client
// closes it.
type Hang struct {
	After int // in bytes
}

func (f Hang) apply(e *faultedRequest) { e.truncate(f.After, true) }

func (f Hang) problem() string { return lengthProblem(f.After) }

// String returns the effect in the text form of Script.
func (f Hang) String() string { return fmt.Sprintf("hang after %d bytes", f.After) }

// lengthProblem says why an answer cannot be cut after n bytes. It returns "" if it can.
func lengthProblem(n int) string {
	if n < 1 {
		return "an answer lets at least 1 byte pass"
	}
	return ""
}

// truncate sends only the first bytes of the normal answer.
func (e *faultedRequest) truncate(bytes int, hangs bool) {
	e.injection.recordTruncation(true) // unless the writer reaches the limit
	e.serveNormally(&shortWriter{
		ResponseWriter: e.w,
		left:           bytes,
		hangs:          hangs,
		ctx:            e.r.Context(),
		isSpared:       e.isSpared,
		reached:        func() { e.injection.recordTruncation(false) },
	}, e.server.Spy)
}

// shortWriter passes on a limited number of bytes of an answer's body. Then it breaks the connection or falls silent.
type shortWriter struct {
	http.ResponseWriter
	left     int // bytes that may still pass
	hangs    bool
	ctx      context.Context // of the request; done when the client is gone
	isSpared func() bool     // from then on, everything passes
	reached  func()          // called when the limit is reached
}

// cuts implements cutter.
func (w *shortWriter) cuts(answer []byte) bool { return len(answer) > w.left }

// Unwrap gives http.ResponseController access to Flush.
func (w *shortWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *shortWriter) Write(p []byte) (int, error) {
	if w.isSpared() {
		return w.ResponseWriter.Write(p)
	}
	n, _ := w.ResponseWriter.Write(p[:min(len(p), w.left)])
	w.left -= n
	if n == len(p) {
		return n, nil
	}
	w.reached()
	http.NewResponseController(w.ResponseWriter).Flush()
	if w.hangs {
		<-w.ctx.Done()
	}
	panic(http.ErrAbortHandler)
}

// Truncate sends the first half of the normal answer as if that were the whole one. Of a watch, it sends half of the
// first event, and ends.
type Truncate struct{}

func (Truncate) apply(e *faultedRequest) {
	defer func() {
		if problem := recover(); problem != nil && problem != any(endOfHalf{}) {
			panic(problem)
		}
	}()
	e.serveNormally(&halfWriter{e.w, e.isSpared}, e.server.Spy)
}

func (Truncate) problem() string { return "" }

// String returns the effect in the text form of Script.
func (Truncate) String() string { return "truncate" }

// halfWriter passes on half of the first Write, and then panics with an endOfHalf.
type halfWriter struct {
	http.ResponseWriter
	isSpared func() bool // from then on, everything passes
}

// endOfHalf is what a halfWriter panics with.
type endOfHalf struct{}

// Unwrap gives http.ResponseController access to Flush.
func (w *halfWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *halfWriter) WriteHeader(code int) {
	w.Header().Del("Content-Length") // it would show that the rest is missing
	w.ResponseWriter.WriteHeader(code)
}

func (w *halfWriter) Write(p []byte) (int, error) {
	if w.isSpared() {
		return w.ResponseWriter.Write(p)
	}
	w.ResponseWriter.Write(p[:len(p)/2])
	panic(endOfHalf{})
}

// cuts implements cutter.
func (w *halfWriter) cuts([]byte) bool { return true }

// DropRequest breaks the connection without processing the request. Over HTTP/2, it resets only the stream.
type DropRequest struct{}

func (DropRequest) apply(*faultedRequest) { panic(http.ErrAbortHandler) }

func (DropRequest) problem() string { return "" }

// String returns the effect in the text form of Script.
func (DropRequest) String() string { return "drop request" }

// DropAnswer processes the request, and then breaks the connection instead of answering. Over HTTP/2, it resets only
// the stream.
type DropAnswer struct{}

func (DropAnswer) apply(e *faultedRequest) {
	e.serveNormally(discardAnswer{}, nil)
	panic(http.ErrAbortHandler)
}

func (DropAnswer) problem() string { return "" }

// String returns the effect in the text form of Script.
func (DropAnswer) String() string { return "drop answer" }

// discardAnswer is an http.ResponseWriter that discards the answer. Its value is the header.
type discardAnswer http.Header

func (n discardAnswer) Header() http.Header { return http.Header(n) }

func (n discardAnswer) Write(p []byte) (int, error) { return len(p), nil }

func (n discardAnswer) WriteHeader(int) {}

// Reset breaks the connection with all requests on it, either before or after it processes the request. Without a
// connection of Listen or NewNetwork, it affects only the request.
type Reset struct {
	ActsFirst bool // process the request first
}

func (f Reset) apply(e *faultedRequest) {
	if f.ActsFirst {
		e.serveNormally(discardAnswer{}, nil)
	}
	conn, isKnown := e.r.Context().Value(connKey{}).(net.Conn)
	if isKnown {
		conn.Close()
	}
	panic(http.ErrAbortHandler)
}

func (f Reset) problem() string { return "" }

// String returns the effect in the text form of Script.
func (f Reset) String() string {
	if f.ActsFirst {
		return "reset after acting"
	}
	return "reset before acting"
}

// Stall neither processes nor answers the request, and waits until the client is gone.
type Stall struct{}

func (Stall) apply(e *faultedRequest) { <-e.r.Context().Done() }

func (Stall) problem() string { return "" }

// String returns the effect in the text form of Script.
func (Stall) String() string { return "stall" }
