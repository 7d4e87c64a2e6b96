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
)

// recorder stands before the API server of one program. It keeps what the program asks, and when.
type recorder struct {
	api      http.Handler
	timeline *timeline
	who      string
	answered func(r *http.Request, code int) // is called after each answer, and when a watch begins

	mu       sync.Mutex // guards the fields below
	requests []asked
	watches  int // how many are open
}

// asked is a request as the recorder remembers it.
type asked struct {
	at      time.Time
	what    string
	isList  bool // of all pods, in whatever form
	isWork  bool // a write for the job
	isEvent bool // a write of an Event, or a further page of a list, of which a program may send many
	isDone  bool // a write for the job that had success
}

// maxShown is how much of the body of a write the timeline shows, in bytes.
const maxShown = 160

func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	question := describe(q)
	if question.isWork && strings.Contains(q.URL.Path, "/nodes/") {
		question.what += shownBody(q)
	}
	r.mu.Lock()
	index := len(r.requests)
	r.requests = append(r.requests, question)
	r.mu.Unlock()

	isWatch := strings.HasPrefix(question.what, "watch ")
	seen := &answerWriter{ResponseWriter: w, recorder: r, isWatch: isWatch}
	seen.begun = func(code int) {
		if isWatch && code == 200 {
			r.countWatch(1)
			r.timeline.add(r.who, "%s: begins", question.what)
			r.answered(q, code)
		}
	}
	began := time.Now()
	defer func() {
		problem := recover()
		r.finish(q, question.what, isWatch, seen, problem != nil, time.Since(began))
		if question.isWork && problem == nil && seen.code/100 == 2 {
			r.mu.Lock()
			r.requests[index].isDone = true
			r.mu.Unlock()
		}
		if problem != nil {
			panic(problem)
		}
	}()
	r.api.ServeHTTP(seen, q)
}

// finish adds the end of a request to the timeline.
func (r *recorder) finish(
	q *http.Request, what string, isWatch bool, seen *answerWriter, isBroken bool, took time.Duration,
) {
	isOpenWatch := isWatch && seen.code == 200
	if isOpenWatch {
		r.countWatch(-1)
	}
	switch {
	case isOpenWatch && isBroken:
		r.timeline.add(r.who, "%s: broken after %d events", what, seen.writes)
	case isOpenWatch:
		r.timeline.add(r.who, "%s: ended after %d events", what, seen.writes)
	case isBroken && seen.code == 0:
		r.timeline.add(r.who, "%s: no answer, the connection broke", what)
	case isBroken:
		r.timeline.add(r.who, "%s: the answer broke off", what)
	case seen.code == 0 && q.Context().Err() != nil:
		r.timeline.add(r.who, "%s: gave up without an answer after %s", what, rounded(took))
	default:
		code := max(seen.code, 200)
		r.timeline.add(r.who, "%s: %d %s%s", what, code, http.StatusText(code), seen.message())
	}
	r.answered(q, max(seen.code, 200))
}

func (r *recorder) countWatch(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches += n
}

// openWatches returns how many watches are open.
func (r *recorder) openWatches() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watches
}

// rounded leaves out what nobody wants to know of a duration.
func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// describe says what a request asks for, in the words of the API.
func describe(q *http.Request) asked {
	what := verb(q) + " "
	segments := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	switch {
	case segments[0] == "api" && len(segments) > 2:
		what += strings.Join(segments[2:], "/")
	case segments[0] == "apis" && len(segments) > 3:
		what += strings.Join(segments[3:], "/")
	default:
		what += q.URL.Path
	}
	query := q.URL.Query()
	for _, name := range []string{"resourceVersion", "sendInitialEvents", "limit", "continue"} {
		if value := query.Get(name); value != "" {
			what += " " + name + "=" + value[:min(len(value), 12)]
		}
	}
	last := segments[len(segments)-1]
	isEvent := isWrite(q) && slices.Contains(segments, "events")
	isAboutItself := slices.Contains(segments, "leases") || strings.HasSuffix(last, "reviews")
	return asked{
		at:      time.Now(),
		what:    what,
		isList:  isList(q) && last == "pods",
		isWork:  isWrite(q) && !isEvent && !isAboutItself,
		isEvent: isEvent || query.Get("continue") != "",
	}
}

// isList reports whether the server has to send all objects of a kind. The pages of a list count once, and a question
// for the newest version does not count.
func isList(q *http.Request) bool {
	query := q.URL.Query()
	switch {
	case q.Method != "GET":
		return false
	case verb(q) == "watch":
		return isTrue(query.Get("sendInitialEvents")) || query.Get("resourceVersion") == ""
	}
	return query.Get("continue") == "" && query.Get("limit") != "1"
}

// verb returns the verb of a request, as in RBAC as far as the path shows it.
func verb(q *http.Request) string {
	switch {
	case q.Method == "GET" && isTrue(q.URL.Query().Get("watch")):
		return "watch"
	case q.Method == "POST":
		return "create"
	case q.Method == "PUT":
		return "update"
	}
	return strings.ToLower(q.Method)
}

func isTrue(value string) bool { return value == "1" || strings.EqualFold(value, "true") }

func isWrite(q *http.Request) bool { return q.Method != "GET" && q.Method != "HEAD" }

// shownBody returns the beginning of the body of a write, as far as it is text, and leaves the body readable.
func shownBody(q *http.Request) string {
	head, _ := io.ReadAll(io.LimitReader(q.Body, maxShown))
	q.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), q.Body), q.Body}
	if len(head) == 0 || !strings.Contains(q.Header.Get("Content-Type"), "json") {
		return ""
	}
	return " " + strings.ToValidUTF8(strings.TrimSpace(string(head)), "")
}

// answerWriter keeps the code of an answer, and shows the errors in a watch.
type answerWriter struct {
	http.ResponseWriter
	recorder *recorder
	isWatch  bool
	code     int // 0 until the answer has begun
	begun    func(code int)
	writes   int    // one for each event of a watch
	refusal  []byte // the beginning of an answer that is an error
}

// message is the message of an answer that is an error, with a comma before it. It is "" if it is not known.
func (w *answerWriter) message() string {
	var status struct{ Message string }
	if json.Unmarshal(w.refusal, &status) != nil || status.Message == "" {
		return ""
	}
	return ", " + status.Message[:min(len(status.Message), maxShown)]
}

// Unwrap gives http.ResponseController access to the writer below.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *answerWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
		w.begun(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *answerWriter) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = 200
		w.begun(200)
	}
	w.writes++
	if w.code >= 400 && len(w.refusal) == 0 {
		w.refusal = bytes.Clone(p)
	}
	if w.isWatch && bytes.HasPrefix(p, []byte(`{"type":"ERROR"`)) {
		w.recorder.timeline.add("server", "sends on a watch: %s", strings.TrimSpace(string(p[:min(len(p), maxShown)])))
	}
	return w.ResponseWriter.Write(p)
}

// count returns how many requests there were so far.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}

// countSince returns how many requests of a sort the program has sent since a time.
func (r *recorder) countSince(begin time.Time, isMeant func(asked) bool) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.requests {
		if isMeant(q) && q.at.After(begin) {
			n++
		}
	}
	return n
}

// workSince returns how many writes for its job the program has sent since a time.
func (r *recorder) workSince(begin time.Time) int {
	return r.countSince(begin, func(q asked) bool { return q.isWork })
}

// listsSince returns how often the program has listed all pods since a time.
func (r *recorder) listsSince(begin time.Time) int {
	return r.countSince(begin, func(q asked) bool { return q.isList })
}

// times returns when the program has sent requests, except for those of which it may send many: it may write as often
// as there is something to write, as long as that succeeds.
func (r *recorder) times() (times []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.requests {
		if !q.isEvent && !q.isDone {
			times = append(times, q.at)
		}
	}
	return times
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
