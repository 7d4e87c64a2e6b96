package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// place is a request of the swept life: the number-th of its class in a stage. The classes make the numbers the same in
// each run, although requests for different resources and objects overtake each other.
type place struct {
	stage  string
	class  string
	number int // from 1
}

func (p place) String() string { return fmt.Sprintf("%s: %s %d", p.stage, p.class, p.number) }

// classOf returns the class of a request: the verb, the resource or the path, the name, and the purpose. The names of
// Events differ from run to run.
func classOf(q fakekube.Request) string {
	class := q.Verb + " " + cmp.Or(q.Resource, q.Path)
	if q.Subresource != "" {
		class += "/" + q.Subresource
	}
	hasFixedName := q.Name != "" && q.Resource != "events"
	if hasFixedName {
		class += " " + q.Name
	}
	switch {
	case isVersionQuestion(q):
		class += " for-its-version"
	case isAudit(q):
		class += " at-a-version"
	}
	return class
}

// sweptFault is a way in which a request can fail.
type sweptFault struct {
	outcome

	// kind is the row of the table of results. It is the name, except that cuts at different frames share a row.
	kind string

	// disturb disturbs the network of the process before the request fails. It may be nil.
	disturb func(s *sim, l *link)

	// isSilent means that the process gets no error, so that only the silence tells it about the fault.
	isSilent bool

	// skipsWatches means that the fault comes after the server has acted. A watch acts until it ends, so the fault
	// cannot strike it. The cuts of its answer come nearest to it.
	skipsWatches bool
}

// refusedFor is how long connections are refused.
const refusedFor = 3 * time.Second

// wholeFaults returns the faults that do not depend on the frames of an answer.
func wholeFaults() []sweptFault {
	html := fakekube.Reply{Body: "<html></html>", Header: map[string]string{"Content-Type": "text/html"}}
	retryIn7s := fakekube.Object{"retryAfterSeconds": 7}
	lateReset := fakekube.Fault{Do: fakekube.Reset{ActsFirst: true}}

	// A fault needs an effect or a delay. This one has no effect of its own: the answer is lost in the silence.
	normalAnswer := fakekube.Fault{Delay: time.Nanosecond}
	return []sweptFault{
		faultOf("connection refused", fakekube.Fault{Do: fakekube.Reset{}}).with(refuseConnections),
		faultOf("reset before acting", fakekube.Fault{Do: fakekube.Reset{}}).with(noteBreak),
		faultOf("reset after acting", lateReset).with(noteBreak).afterActing(),
		faultOf("stream reset before acting", fakekube.Fault{Do: fakekube.DropRequest{}}),
		faultOf("stream reset after acting", fakekube.Fault{Do: fakekube.DropAnswer{}}).afterActing(),
		faultOf("stall", fakekube.Fault{Do: fakekube.Stall{}}).silently(),
		faultOf("silence before acting", fakekube.Fault{Do: fakekube.Stall{}}).with(fallSilent).silently(),
		faultOf("silence after acting", normalAnswer).with(fallSilent).silently(),
		faultOf("401", refusal(401, "Unauthorized", nil)),
		faultOf("403", refusal(403, "Forbidden", nil)),
		faultOf("404", refusal(404, "NotFound", nil)),
		faultOf("409", refusal(409, "Conflict", nil)),
		faultOf("410", refusal(410, "Expired", nil)),
		faultOf("422", refusal(422, "Invalid", cause(""))),
		faultOf("429", refusal(429, "TooManyRequests", nil)),
		faultOf("429 with Retry-After", refusal(429, "TooManyRequests", retryIn7s, "Retry-After", "7")),
		faultOf("500", refusal(500, "InternalError", nil)),
		faultOf("503", refusal(503, "ServiceUnavailable", nil)),
		faultOf("504", refusal(504, "Timeout", nil)),
		faultOf("HTML with 200", fakekube.Fault{Do: html}),
		faultOf("truncated, as if whole", fakekube.Fault{Do: fakekube.Truncate{}}),
	}
}

func faultOf(name string, fault fakekube.Fault) sweptFault {
	return sweptFault{outcome: outcome{name, fault}, kind: name}
}

// with returns the fault as one that also disturbs the network.
func (f sweptFault) with(disturb func(s *sim, l *link)) sweptFault {
	f.disturb = disturb
	return f
}

// silently returns the fault as one that causes no error.
func (f sweptFault) silently() sweptFault {
	f.isSilent = true
	return f
}

// afterActing returns the fault as one that comes after the server has acted.
func (f sweptFault) afterActing() sweptFault {
	f.skipsWatches = true
	return f
}

// noteBreak disturbs nothing. It notes that the fault itself breaks the connection, so that other answers of this
// moment may be lost with it.
func noteBreak(_ *sim, l *link) { l.noteBreak() }

// refuseConnections makes the link refuse connections for a while. The fault itself breaks the present one.
func refuseConnections(s *sim, l *link) {
	l.noteBreak()
	l.setAway(true)
	s.later(refusedFor, func() { l.setAway(false) })
}

// fallSilent makes the connections silent.
func fallSilent(_ *sim, l *link) { l.silence() }

// cutFaults returns the faults that cut an answer of so many frames at the end of each frame, and one byte before and
// after that. Nothing follows the last frame. Frame 0 ends where the answer begins.
func cutFaults(frames int) []sweptFault {
	faults := []sweptFault{cutFault(0, 0)}
	if frames > 0 {
		faults = append(faults, cutFault(0, 1))
	}
	for frame := 1; frame <= frames; frame++ {
		faults = append(faults, cutFault(frame, -1), cutFault(frame, 0))
		isLast := frame == frames
		if !isLast {
			faults = append(faults, cutFault(frame, 1))
		}
	}
	return faults
}

// cutFault returns the fault that cuts an answer at the end of a frame. extra is 1 for a byte after that, and -1 for a
// byte before it.
func cutFault(frame, extra int) sweptFault {
	cut := fakekube.CutFrame{Frame: frame, Extra: extra}
	fault := faultOf(cut.String(), fakekube.Fault{Do: cut})
	switch extra {
	case -1:
		fault.kind = "cut 1 byte before that"
	case 0:
		fault.kind = "cut after a frame"
	case 1:
		fault.kind = "cut 1 byte after that"
	}
	return fault
}

// faultKinds returns the kinds of all faults, in the order of the table.
func faultKinds() (kinds []string) {
	for _, fault := range wholeFaults() {
		kinds = append(kinds, fault.kind)
	}
	for _, extra := range []int{0, -1, 1} {
		kinds = append(kinds, cutFault(1, extra).kind)
	}
	return kinds
}

// sweptCase is a run of the sweep: a life, a place in it, and the fault that strikes there.
type sweptCase struct {
	plan  lifePlan
	place place
	fault sweptFault
}

func (c sweptCase) String() string { return c.place.String() + ": " + c.fault.name }

// casesOf returns all cases for the requests that were recorded in a life.
func casesOf(plan lifePlan, recording []recordedRequest) (cases []sweptCase) {
	for _, request := range plan.inOrder(recording) {
		isWatch := strings.HasPrefix(request.place.class, "watch ")
		for _, fault := range append(wholeFaults(), cutFaults(request.frames)...) {
			if isWatch && fault.skipsWatches {
				continue
			}
			cases = append(cases, sweptCase{plan, request.place, fault})
		}
	}
	return cases
}

// inOrder sorts the recorded requests by their stages, and within a stage by class and number.
func (plan lifePlan) inOrder(recording []recordedRequest) []recordedRequest {
	stageIndex := func(r recordedRequest) int {
		i := slices.IndexFunc(plan.stages, func(s stage) bool { return s.name == r.place.stage })
		if i < 0 {
			return len(plan.stages) // calmStage or stopStage
		}
		return i
	}
	slices.SortFunc(recording, func(a, b recordedRequest) int {
		return cmp.Or(
			stageIndex(a)-stageIndex(b),
			strings.Compare(a.place.class, b.place.class),
			a.place.number-b.place.number)
	})
	return recording
}
