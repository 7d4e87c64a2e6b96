package fakekube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Effect is what a Fault does to a request: Refuse, Reply, Handle, Cut, Hang, DropRequest, DropAnswer or Stall. A Lie
// is an Effect, too, but it is about what lists and watches show, and not about single requests.
type Effect interface {
	// String is the effect in the words of Script.
	String() string

	// problem says why there can be no such effect; "" is nothing.
	problem() string

	// happen does it to a request.
	apply(e *faultedRequest)
}

// encounter is one request that has met a fault. One goroutine has it.
type faultedRequest struct {
	server    *Server
	w         http.ResponseWriter
	r         *http.Request
	info      Request
	arrival   arrivalState
	injection *Injection
}

// serveNormally lets the fake answer as if there were no fault.
func (e *faultedRequest) serveNormally(w http.ResponseWriter, spy Spy) {
	e.server.serveNormally(w, e.r, e.info, e.arrival, spy)
}

// userName is the name of the user for whom the request is sent, never a token.
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

// Refuse answers with the Status that the server would send, and does nothing.
type Refuse struct {
	// Code is the HTTP status, from 400 on.
	Code int

	// Reason and Message are the server's own for this code, if they are empty.
	Reason  string
	Message string

	// RetryAfter is said in the header and in the Status. It is rounded up to whole seconds; 0 leaves it out.
	RetryAfter time.Duration
}

func (f Refuse) apply(e *faultedRequest) {
	reason, message := refusal(f.Code, e.info, e.userName())
	details := Object{}
	switch f.Code {
	case 403, 404, 409, 422: // these are about an object
		for key, value := range map[string]string{"name": e.info.Name, "group": e.info.Group, "kind": e.info.Resource} {
			if value != "" {
				details[key] = value
			}
		}
	}
	if f.RetryAfter > 0 {
		seconds := f.retryAfterSeconds()
		details["retryAfterSeconds"] = seconds
		e.w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	var shown any // no details at all, rather than empty ones
	if len(details) > 0 {
		shown = details
	}
	e.w.Header().Set("Content-Type", mediaJSON)
	e.w.WriteHeader(f.Code)
	json.NewEncoder(e.w).Encode(Status(f.Code, cmp.Or(f.Reason, reason), cmp.Or(f.Message, message), shown))
}

func (f Refuse) retryAfterSeconds() int { return int((f.RetryAfter + time.Second - 1) / time.Second) }

// refusal is the reason and the message with which the server refuses a user's request.
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

// Reply answers so, whatever was asked for, and does nothing: what a proxy sends, or a server that has a bug.
type Reply struct {
	// Code is the HTTP status. 0 is 200.
	Code int

	// Header is the header. Without a Content-Type, that is application/json.
	Header map[string]string

	// Body is sent as it is.
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

// Handle answers in place of the fake, which does nothing. It is called without a lock, and may call the fake. The text
// form has no words for it.
type Handle http.HandlerFunc

func (f Handle) apply(e *faultedRequest) { f(e.w, e.r) }

func (f Handle) problem() string {
	if f == nil {
		return "there is no handler"
	}
	return ""
}

func (f Handle) String() string { return "handle …" }

// Cut breaks the connection after so many bytes of the true answer's body. They are counted as they are sent, so after
// they have been compressed, if they are. A watch's count from its first event on, so that it breaks at some later
// moment. The answer must be longer.
type Cut struct {
	After int
}

func (f Cut) apply(e *faultedRequest) { e.truncate(f.After, false) }
func (f Cut) problem() string         { return lengthProblem(f.After) }
func (f Cut) String() string          { return fmt.Sprintf("cut after %d bytes", f.After) }

// Hang falls silent after so many bytes, counted as for Cut, until the client goes away.
type Hang struct {
	After int
}

func (f Hang) apply(e *faultedRequest) { e.truncate(f.After, true) }
func (f Hang) problem() string         { return lengthProblem(f.After) }
func (f Hang) String() string          { return fmt.Sprintf("hang after %d bytes", f.After) }

// lengthProblem says why an answer cannot end after so many bytes; "" is nothing.
func lengthProblem(n int) string {
	if n < 1 {
		return "an answer lets at least 1 byte pass"
	}
	return ""
}

// truncate lets so many bytes of the answer pass.
func (e *faultedRequest) truncate(bytes int, hangs bool) {
	e.injection.recordTruncation(true) // until the writer gets there
	e.serveNormally(&shortWriter{
		ResponseWriter: e.w,
		left:           bytes,
		hangs:          hangs,
		ctx:            e.r.Context(),
		reached:        func() { e.injection.recordTruncation(false) },
	}, e.server.Spy)
}

// shortWriter lets so many bytes of an answer's body pass. Then it breaks the connection, or falls silent.
type shortWriter struct {
	http.ResponseWriter
	left    int // bytes that may still pass
	hangs   bool
	ctx     context.Context // the request's: the client has gone
	reached func()          // called when the last of the bytes has passed
}

// Unwrap lets http.ResponseController find Flush.
func (w *shortWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *shortWriter) Write(p []byte) (int, error) {
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

// DropRequest breaks the connection before anything is done.
type DropRequest struct{}

func (DropRequest) apply(*faultedRequest) { panic(http.ErrAbortHandler) }
func (DropRequest) problem() string       { return "" }
func (DropRequest) String() string        { return "drop request" }

// DropAnswer does what the request asks for, and then breaks the connection in place of an answer.
type DropAnswer struct{}

func (DropAnswer) apply(e *faultedRequest) {
	e.serveNormally(discardAnswer{}, nil)
	panic(http.ErrAbortHandler)
}
func (DropAnswer) problem() string { return "" }
func (DropAnswer) String() string  { return "drop answer" }

// nowhere is a writer whose answer nobody gets. It is the header of that answer.
type discardAnswer http.Header

func (n discardAnswer) Header() http.Header         { return http.Header(n) }
func (n discardAnswer) Write(p []byte) (int, error) { return len(p), nil }
func (n discardAnswer) WriteHeader(int)             {}

// Stall gives no answer until the client goes away, and does nothing.
type Stall struct{}

func (Stall) apply(e *faultedRequest) { <-e.r.Context().Done() }
func (Stall) problem() string         { return "" }
func (Stall) String() string          { return "stall" }
