package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"podcount/internal/fakekube"
)

// requestSort is a sort of requests that may meet a fault.
type requestSort struct {
	name  string
	match func(fakekube.Request) bool
}

func isPatchOf(resource string) func(fakekube.Request) bool {
	return func(q fakekube.Request) bool { return q.Verb == "patch" && q.Resource == resource }
}

func sortsOfReads() []requestSort {
	return []requestSort{
		{"discovery", func(q fakekube.Request) bool { return q.Resource == "" && strings.HasSuffix(q.Path, "/v1") }},
		{"lists of counts", fakekube.IsList("counts")},
		{"lists of nodes", fakekube.IsList("nodes")},
		{"lists of pods", fakekube.IsList("pods")},
		{"watches of counts", fakekube.IsWatch("counts")},
		{"watches of nodes", fakekube.IsWatch("nodes")},
		{"watches of pods", fakekube.IsWatch("pods")},
	}
}

func sortsOfWrites() []requestSort {
	return []requestSort{
		{"events", func(q fakekube.Request) bool { return q.Resource == "events" && q.Name == "" }},
		{"leases", func(q fakekube.Request) bool { return q.Resource == "leases" }},
		{"patches of counts", isPatchOf("counts")},
		{"patches of nodes", isPatchOf("nodes")},
	}
}

// refusal is an answer with this Status in place of what was asked for. header is names and values by turns.
func refusal(code int, reason string, details any, header ...string) fakekube.Fault {
	body, _ := json.Marshal(fakekube.Status(code, reason, "simulated", details))
	ft := fakekube.Fault{Status: code, Body: string(body), Header: map[string]string{}}
	for pair := range slices.Chunk(header, 2) {
		ft.Header[pair[0]] = pair[1]
	}
	return ft
}

// cause is the details of a Status that has one cause.
func cause(reason string) fakekube.Object {
	return fakekube.Object{"causes": []any{fakekube.Object{"reason": reason}}}
}

// commonOutcomes are what a request of any sort may meet.
func commonOutcomes() []fakekube.Fault {
	plainText := map[string]string{"Content-Type": "text/plain", "Retry-After": "40"}
	html := map[string]string{"Content-Type": "text/html"}
	return []fakekube.Fault{
		refusal(401, "Unauthorized", nil), // a token has expired
		refusal(403, "Forbidden", nil),    // a role was removed
		refusal(404, "NotFound", nil),     // an aggregated API is not there yet

		// The server's priority and fairness has no room, and its older limit, which answers in plain text.
		refusal(429, "TooManyRequests", fakekube.Object{"retryAfterSeconds": 7}, "Retry-After", "7"),
		refusal(429, "TooManyRequests", nil),
		{Status: 429, Body: "Too many requests, please try again later.", Header: plainText},

		refusal(500, "InternalError", nil),                            // etcd has no leader
		refusal(503, "ServiceUnavailable", nil, "Retry-After", "5"),   // the server starts
		{Status: 502, Body: "<html>Bad Gateway</html>", Header: html}, // a proxy finds no server
		{Drop: true},              // a server crashes
		{Stall: true},             // a proxy forgets
		{Delay: 20 * time.Second}, // an overloaded server
	}
}

// readOutcomes are what a list, a watch or discovery may meet.
func readOutcomes() []fakekube.Fault {
	html := map[string]string{"Content-Type": "text/html"}
	return append(commonOutcomes(),
		refusal(410, "Expired", nil),                              // the version was compacted away
		refusal(504, "Timeout", cause("ResourceVersionTooLarge")), // this server has not come so far
		fakekube.Fault{Body: `{"kind":`},                          // half an answer that says it is whole
		fakekube.Fault{Status: 200, Body: "<html>", Header: html}, // a login page in between
		fakekube.Fault{Cut: 1},                                    // a connection breaks,
		fakekube.Fault{Cut: 700},
		fakekube.Fault{Hang: 1}, // or falls silent, in the middle of an answer
		fakekube.Fault{Hang: 700},
	)
}

// writeOutcomes are what a write may meet.
func writeOutcomes() []fakekube.Fault {
	return append(commonOutcomes(),
		refusal(409, "Conflict", nil),                            // another writer was faster
		refusal(422, "Invalid", cause("")),                       // an admission policy says no
		refusal(403, "Forbidden", cause("NamespaceTerminating")), // no event can be made there any more
		fakekube.Fault{After: true},                              // it is done, and the answer is lost,
		fakekube.Fault{After: true},                              // which is what goes wrong most easily
		fakekube.Fault{Cut: 1},
	)
}

// requestFaults are one fault for each sort of requests and each thing that it may meet.
func requestFaults() (steps []step) {
	for _, requests := range sortsOfReads() {
		for _, outcome := range readOutcomes() {
			steps = append(steps, requestFault{requests, outcome}.step())
		}
	}
	for _, requests := range sortsOfWrites() {
		for _, outcome := range writeOutcomes() {
			steps = append(steps, requestFault{requests, outcome}.step())
		}
	}
	return steps
}

// requestFault makes the next few requests of a sort meet something else than the server's answer.
type requestFault struct {
	requests requestSort
	outcome  fakekube.Fault
}

func (f requestFault) step() step {
	return step{name: f.requests.name + " meet " + f.text(), weight: 1, do: f.strike}
}

// text is what is met, in words.
func (f requestFault) text() string {
	ft := f.outcome
	switch {
	case ft.Drop:
		return "a broken connection"
	case ft.Stall:
		return "silence"
	case ft.After:
		return "a lost answer"
	case ft.Cut > 0:
		return fmt.Sprint("an end after ", ft.Cut, " bytes")
	case ft.Hang > 0:
		return fmt.Sprint("silence after ", ft.Hang, " bytes")
	case ft.Delay > 0:
		return ft.Delay.String()
	}
	return fmt.Sprint(ft.Status, " ", ft.Header["Retry-After"], " ", ft.Body)
}

func (f requestFault) strike(s *sim) string {
	ft := f.outcome
	ft.Times = pick(s.dice, 1, 1, 2, 3, 8)
	ft.Match = func(r *http.Request) bool {
		q := fakekube.RequestOf(r)
		if !f.requests.match(q) {
			return false
		}
		s.met(q, f)
		return true
	}
	s.needs(ft.Delay)
	if ft.Stall || ft.Hang > 0 {
		s.needsSilence()
	}
	s.fake.Disturb(ft)
	return fmt.Sprintf("THE NEXT %d %s meet %s", ft.Times, f.requests.name, f.text())
}

// met notes that a request meets a fault. The fake is locked.
func (s *sim) met(q fakekube.Request, f requestFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[q.Host]
	if p == nil || p.isDead {
		return
	}
	s.sayLocked("%s %s meets %s", p.host, q.Route, f.text())
	seconds, _ := strconv.Atoi(f.outcome.Header["Retry-After"])
	p.mustWait[q.Method+q.Path] = time.Now().Add(time.Duration(seconds) * time.Second)
	if q.Verb == "watch" && f.refuses() {
		s.heard.watchesRefused++
	}
}

// refuses reports whether what is met looks like a failure from its beginning on.
func (f requestFault) refuses() bool {
	ft := f.outcome
	return ft.Drop || ft.Stall || ft.After || ft.Status >= 300
}
