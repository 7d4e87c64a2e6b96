package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// requestFaults returns one fault for each class of requests and each of its outcomes.
func requestFaults() (steps []step) {
	for _, class := range readClasses() {
		for _, outcome := range readOutcomes() {
			steps = append(steps, requestFault{class, outcome}.step())
		}
	}
	for _, class := range writeClasses() {
		for _, outcome := range writeOutcomes() {
			steps = append(steps, requestFault{class, outcome}.step())
		}
	}
	return steps
}

// requestFault gives the next few requests of a class an outcome instead of the server's answer.
type requestFault struct {
	class   requestClass
	outcome outcome
}

func (f requestFault) step() step {
	return step{name: f.name(), weight: 1, do: f.strike}
}

func (f requestFault) name() string { return f.class.name + " get " + f.outcome.name }

func (f requestFault) strike(s *sim) string {
	fault := f.outcome.fault
	fault.Times = pick(s.dice, 1, 1, 2, 3, 8)
	fault.On.If = f.class.match
	fault.Met = func(q fakekube.Request) { s.noteOutcome(q, f) }
	s.extendBound(fault.Delay)
	if f.isSilent() {
		s.extendBoundForSilence()
	}
	s.fake.InjectUnchecked(fault)
	return fmt.Sprintf("THE NEXT %d %s", fault.Times, f.name())
}

// noteOutcome notes that a fault has struck a request.
func (s *sim) noteOutcome(q fakekube.Request, f requestFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[q.Host]
	if p == nil || p.isDead {
		return
	}
	s.recordLocked("%s %s gets %s", p.host, q.Route, f.outcome.name)
	s.recordOwnLocked(faultsLane, ownStep{
		Point: pointStruck,
		Key:   p.host,
		Type:  f.outcome.name,
		Text:  fmt.Sprint(q.Route),
	})
	reply, _ := f.outcome.fault.Do.(fakekube.Reply)
	seconds, _ := strconv.Atoi(reply.Header["Retry-After"])
	p.retryAfter[retryKey(q)] = time.Now().Add(time.Duration(seconds) * time.Second)
	if reply.Code == http.StatusUnauthorized {
		p.noteRefusal(q)
	}
	if q.Verb == "watch" && f.refuses() {
		s.totals.watchesRefused++
	}
}

// refuses reports whether a client sees a failure before it gets any part of an answer.
func (f requestFault) refuses() bool {
	switch effect := f.outcome.fault.Do.(type) {
	case fakekube.DropRequest, fakekube.DropAnswer, fakekube.Reset, fakekube.Stall:
		return true
	case fakekube.Reply:
		return effect.Code >= 300
	}
	return false
}

// isSilent reports whether the client waits for the answer, or for the rest of it, and gets no error.
func (f requestFault) isSilent() bool {
	switch f.outcome.fault.Do.(type) {
	case fakekube.Stall, fakekube.Hang:
		return true
	}
	return false
}

// requestClass is a class of requests that a fault may strike.
type requestClass struct {
	name  string
	match func(fakekube.Request) bool
}

func isDiscovery(q fakekube.Request) bool {
	return q.Resource == "" && strings.HasSuffix(q.Path, "/v1")
}

func isNewEvent(q fakekube.Request) bool { return q.Resource == "events" && q.Name == "" }

// isForLease matches the requests of an election.
func isForLease(q fakekube.Request) bool { return q.Resource == "leases" }

// isListOf matches lists of a resource, except those with which podcount only asks for the newest version.
func isListOf(resource string) func(fakekube.Request) bool {
	isList := fixture.IsList(resource)
	return func(q fakekube.Request) bool { return isList(q) && !isVersionQuestion(q) }
}

func isPatchOf(resource string) func(fakekube.Request) bool {
	return func(q fakekube.Request) bool { return q.Verb == "patch" && q.Resource == resource }
}

func readClasses() []requestClass {
	return []requestClass{
		{"discovery", isDiscovery},
		{"lists of counts", isListOf("counts")},
		{"lists of nodes", isListOf("nodes")},
		{"lists of pods", isListOf("pods")},
		{"watches of counts", fixture.IsWatch("counts")},
		{"watches of nodes", fixture.IsWatch("nodes")},
		{"watches of pods", fixture.IsWatch("pods")},
	}
}

func writeClasses() []requestClass {
	return []requestClass{
		{"events", isNewEvent},
		{"leases", isForLease},
		{"patches of counts", isPatchOf("counts")},
		{"patches of nodes", isPatchOf("nodes")},
	}
}

// outcome is what a request may get instead of the server's answer.
type outcome struct {
	name  string // in the story
	fault fakekube.Fault
}

// commonOutcomes returns the outcomes of all requests.
func commonOutcomes() []outcome {
	plainText := map[string]string{"Content-Type": "text/plain", "Retry-After": "40"}
	html := map[string]string{"Content-Type": "text/html"}
	tooMany := fakekube.Reply{Code: 429, Body: "Too many requests, please try again later.", Header: plainText}
	badGateway := fakekube.Reply{Code: 502, Body: "<html>Bad Gateway</html>", Header: html}
	retryIn7s := fakekube.Object{"retryAfterSeconds": 7}
	return []outcome{
		{"401: a token has expired", refusal(401, "Unauthorized", nil)},
		{"403: a role was removed", refusal(403, "Forbidden", nil)},
		{"404: an aggregated API is not there yet", refusal(404, "NotFound", nil)},

		// API Priority and Fairness sends the first two. The third is from the limit that came before it.
		{"429, with Retry-After: 7", refusal(429, "TooManyRequests", retryIn7s, "Retry-After", "7")},
		{"429, without Retry-After", refusal(429, "TooManyRequests", nil)},
		{"429 in plain text, with Retry-After: 40", fakekube.Fault{Do: tooMany}},

		{"500: etcd has no leader", refusal(500, "InternalError", nil)},
		{"503, with Retry-After: 5: the server starts", refusal(503, "ServiceUnavailable", nil, "Retry-After", "5")},
		{"502: a proxy finds no server", fakekube.Fault{Do: badGateway}},
		{"a broken connection: a server crashes", fakekube.Fault{Do: fakekube.DropRequest{}}},
		{"silence: a proxy forgets", fakekube.Fault{Do: fakekube.Stall{}}},
		{"20 s of delay: the server is overloaded", fakekube.Fault{Delay: 20 * time.Second}},
	}
}

// readOutcomes returns the outcomes of lists, watches and discovery.
func readOutcomes() []outcome {
	html := map[string]string{"Content-Type": "text/html"}
	return append(commonOutcomes(), []outcome{
		{"410: the version was compacted away", refusal(410, "Expired", nil)},
		{"504: this server is behind the others", refusal(504, "Timeout", cause("ResourceVersionTooLarge"))},
		{"half an answer, sent as a whole one", fakekube.Fault{Do: fakekube.Reply{Body: `{"kind":`}}},
		{"a login page", fakekube.Fault{Do: fakekube.Reply{Body: "<html>", Header: html}}},
		{"a broken connection after 1 byte", fakekube.Fault{Do: fakekube.Cut{After: 1}}},
		{"a broken connection after 700 bytes", fakekube.Fault{Do: fakekube.Cut{After: 700}}},
		{"silence after 1 byte", fakekube.Fault{Do: fakekube.Hang{After: 1}}},
		{"silence after 700 bytes", fakekube.Fault{Do: fakekube.Hang{After: 700}}},
	}...)
}

// writeOutcomes returns the outcomes of writes. The lost answer is there twice, because it is the easiest one to handle
// wrongly. A single entry with twice the weight would change the life of every seed, because a seed draws once for each
// entry.
func writeOutcomes() []outcome {
	return append(commonOutcomes(), []outcome{
		{"409: another writer was faster", refusal(409, "Conflict", nil)},
		{"422: an admission policy refuses it", refusal(422, "Invalid", cause(""))},
		{"403: no event can be made there any more", refusal(403, "Forbidden", cause("NamespaceTerminating"))},
		{"success, and a lost answer", fakekube.Fault{Do: fakekube.DropAnswer{}}},
		{"success, and a lost answer", fakekube.Fault{Do: fakekube.DropAnswer{}}},
		{"a broken connection after 1 byte", fakekube.Fault{Do: fakekube.Cut{After: 1}}},
	}...)
}

// refusal returns a fault that answers with this Status. header has names and values in turn.
func refusal(code int, reason string, details any, header ...string) fakekube.Fault {
	body, _ := json.Marshal(fakekube.Status(code, reason, "simulated", details))
	reply := fakekube.Reply{Code: code, Body: string(body), Header: map[string]string{}}
	for pair := range slices.Chunk(header, 2) {
		reply.Header[pair[0]] = pair[1]
	}
	return fakekube.Fault{Do: reply}
}

// cause returns the details of a Status that has this cause.
func cause(reason string) fakekube.Object {
	return fakekube.Object{"causes": []any{fakekube.Object{"reason": reason}}}
}
