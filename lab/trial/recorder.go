package trial

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"podcount/lab/fakekube"
)

// recorder stands before the API server of one program, and adds to the timeline what the program asks and gets.
type recorder struct {
	api      http.Handler
	timeline *timeline
	who      string
	answered func(fakekube.Route, int) // called with the code after each answer, and when a watch begins
	delay    time.Duration             // before each answer

	mu      sync.Mutex // guards the fields below
	asked   []time.Time
	watches int // how many are open
	left    int // how many writes the program has not waited for
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	x := &exchange{ResponseWriter: w, recorder: r, route: fakekube.RouteOf(q), began: time.Now()}
	x.what = x.describe(q)
	pass(q.Context(), r.delay)
	defer func() {
		problem := recover()
		x.end(problem != nil, q.Context().Err() != nil)
		if problem != nil {
			panic(problem)
		}
	}()
	r.api.ServeHTTP(x, q)
}

// openWatches returns how many watches are open.
func (r *recorder) openWatches() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watches
}

// abandoned returns how many writes the program has not waited for.
func (r *recorder) abandoned() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// highestRate returns the most requests a second over any hotSpan, and when that span began. Those that mayBeMany do
// not count.
func (r *recorder) highestRate() (rate float64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.asked, time.Time.Compare)
	return highestRate(r.asked)
}

// highestRate returns the most events a second over any hotSpan, and when that span began. times must be in order.
func highestRate(times []time.Time) (rate float64, at time.Time) {
	first := 0
	for last, t := range times {
		for t.Sub(times[first]) > hotSpan {
			first++
		}
		if r := float64(last-first+1) / hotSpan.Seconds(); r > rate {
			rate = r
			at = times[first]
		}
	}
	return rate, at
}

// isWork reports whether a request is a write for the job of a program, and not about the program itself.
func isWork(rt fakekube.Route) bool {
	isAboutItself := rt.Resource == "events" || rt.Resource == "leases" || strings.HasSuffix(rt.Resource, "reviews")
	return isWrite(rt) && !isAboutItself
}

func isWrite(rt fakekube.Route) bool {
	return !slices.Contains([]string{"list", "watch", "get", "head"}, rt.Verb)
}

// exchange is a request, and the writer of its answer.
type exchange struct {
	http.ResponseWriter
	recorder *recorder
	route    fakekube.Route
	what     string // the request, for the timeline
	isPage   bool   // it asks for a further page of a list
	began    time.Time

	code    int    // 0 until the answer has begun
	writes  int    // one for each event of a watch
	refusal []byte // the beginning of an answer that is an error
}

// maxShown is how much of a body the timeline shows, in bytes.
const maxShown = 160

// describe returns the request for the timeline. It leaves the body readable.
func (x *exchange) describe(q *http.Request) string {
	what := x.route.String()
	if x.route.Resource == "" {
		what += " " + q.URL.Path
	}
	query := q.URL.Query()
	x.isPage = query.Has("continue")
	for _, name := range []string{"resourceVersion", "sendInitialEvents", "limit", "continue"} {
		if value := query.Get(name); value != "" {
			what += " " + name + "=" + value[:min(len(value), 12)]
		}
	}
	isText := strings.Contains(q.Header.Get("Content-Type"), "json")
	if x.route.Resource != "nodes" || !isWrite(x.route) || !isText {
		return what
	}
	head, _ := io.ReadAll(io.LimitReader(q.Body, maxShown))
	q.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), q.Body), q.Body}
	return what + " " + strings.ToValidUTF8(strings.TrimSpace(string(head)), "")
}

// Unwrap gives http.ResponseController access to the writer below.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) WriteHeader(code int) {
	if x.code == 0 {
		x.begin(code)
	}
	x.ResponseWriter.WriteHeader(code)
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.code == 0 {
		x.begin(http.StatusOK)
	}
	x.writes++
	if x.code >= 400 && x.refusal == nil {
		x.refusal = bytes.Clone(p)
	}
	if x.isOpenWatch() && bytes.HasPrefix(p, []byte(`{"type":"ERROR"`)) {
		text := strings.TrimSpace(string(p[:min(len(p), maxShown)]))
		x.recorder.timeline.add("server", "sends on a watch: %s", text)
	}
	return x.ResponseWriter.Write(p)
}

func (x *exchange) isOpenWatch() bool { return x.route.Verb == "watch" && x.code == http.StatusOK }

// begin is called when the answer begins.
func (x *exchange) begin(code int) {
	x.code = code
	if x.isOpenWatch() {
		x.countWatch(1)
		x.recorder.timeline.add(x.recorder.who, "%s: begins", x.what)
		x.recorder.answered(x.route, code)
	}
}

// end is called when nothing more is sent. isBroken says that the connection broke, and isAbandoned that the client is
// gone.
func (x *exchange) end(isBroken, isAbandoned bool) {
	r := x.recorder
	say := func(format string, args ...any) {
		r.timeline.add(r.who, "%s: "+format, append([]any{x.what}, args...)...)
	}
	switch {
	case x.isOpenWatch() && isBroken:
		say("broken after %d events", x.writes)
	case x.isOpenWatch():
		say("ended after %d events", x.writes)
	case x.code == 0 && isBroken:
		say("no answer, the connection broke")
	case isBroken:
		say("the answer broke off")
	case x.code == 0 && isAbandoned:
		if isWork(x.route) {
			r.mu.Lock()
			r.left++
			r.mu.Unlock()
		}
		say("gave up without an answer after %s", time.Since(x.began).Round(100*time.Millisecond))
	default:
		x.code = max(x.code, http.StatusOK) // that of an empty answer
		say("%d %s%s", x.code, http.StatusText(x.code), x.message())
	}
	if x.isOpenWatch() {
		x.countWatch(-1)
	}
	if !x.mayBeMany() {
		r.mu.Lock()
		r.asked = append(r.asked, x.began)
		r.mu.Unlock()
	}
	r.answered(x.route, x.code)
}

// mayBeMany reports whether a program may send as many such requests as it has reasons for: further pages of a list,
// Events, and writes that succeed.
func (x *exchange) mayBeMany() bool {
	hasWritten := isWork(x.route) && x.code/100 == 2
	return x.isPage || hasWritten || isWrite(x.route) && x.route.Resource == "events"
}

func (x *exchange) countWatch(n int) {
	x.recorder.mu.Lock()
	defer x.recorder.mu.Unlock()
	x.recorder.watches += n
}

// message is the message of an answer that is an error, with a comma before it. It is "" if it is not known.
func (x *exchange) message() string {
	var status struct{ Message string }
	if json.Unmarshal(x.refusal, &status) != nil || status.Message == "" {
		return ""
	}
	return ", " + status.Message[:min(len(status.Message), maxShown)]
}
