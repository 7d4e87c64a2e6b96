package sim

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// A reflector lists and watches one resource for one process. An election is a process's part in the contest for the
// lease. The simulation follows what each of them is doing, from the requests, the answers and the log. The states have
// one purpose: they tell which faults have struck in which state (coverage.go). No rule depends on them.

// state is what a reflector or an election is doing, in words.
type state string

// The states of a reflector. While it waits to list or to watch again, it is in a backoff.
const (
	stateAbsent          state = "its resource is absent"
	stateUnlisted        state = "waiting for its first list"
	stateFirstList       state = "in its first list"
	stateExpiredList     state = "listing after an expired version"
	stateGarbageList     state = "listing after garbage"
	stateSilenceList     state = "listing after silence"
	stateAudit           state = "auditing"
	stateOtherList       state = "listing for another reason"
	statePagedList       state = "listing in pages"
	stateWaitingToList   state = "waiting to list again"
	stateOpeningWatch    state = "opening the watch after a list"
	stateResumingWatch   state = "resuming a watch"
	stateRetryingWatch   state = "opening a watch after a wait"
	stateWatching        state = "watching"
	stateIdle            state = "watching, idle"
	stateWaitingToWatch  state = "waiting to watch again"
	stateBetweenRequests state = "between two requests" // for a moment only, so no fault strikes in it
)

// The states of an election. There is none for a term that is over: the process ends at the same moment.
const (
	stateNoElection state = "no election"
	stateAcquiring  state = "acquiring the lease"
	stateStandingBy state = "standing by"
	stateLeading    state = "leading"
	stateNotRenewed state = "leading after a failed renewal"
	stateReleasing  state = "releasing the lease"
)

var (
	// listStates are those in which a list is in flight.
	listStates = slices.Concat([]state{stateFirstList}, relistStates)

	// relistStates are those in which a list is in flight that is not the first one.
	relistStates = []state{
		stateExpiredList, stateGarbageList, stateSilenceList, stateAudit, stateOtherList, statePagedList,
	}

	// openingStates are those in which the request for a watch is in flight.
	openingStates = []state{stateOpeningWatch, stateResumingWatch, stateRetryingWatch}

	// watchingStates are those in which a watch runs.
	watchingStates = []state{stateWatching, stateIdle}

	// streamStates are those in which a watch runs, or may begin at any moment.
	streamStates = slices.Concat(openingStates, watchingStates)

	// listedStates are those of a resource that has been listed.
	listedStates = slices.Concat(relistStates, []state{stateWaitingToList}, openingStates, watchingStates,
		[]state{stateWaitingToWatch})

	// contestStates are those in which an election sends requests.
	contestStates = []state{stateAcquiring, stateStandingBy, stateLeading, stateNotRenewed, stateReleasing}

	// writingStates are those in which writes are sent: the resource has been listed, and with an election, the process
	// leads.
	writingStates = slices.Concat(listedStates, []state{stateNoElection, stateLeading, stateNotRenewed})

	reflectorStates = slices.Concat([]state{stateAbsent, stateUnlisted, stateFirstList}, listedStates)
	electionStates  = slices.Concat([]state{stateNoElection}, contestStates)
	allStates       = slices.Concat(reflectorStates, electionStates)
)

// activity is what a reflector or an election is doing now.
type activity struct {
	state state

	// nextList is the state that the next list will be in. It is "" while the log has not told that a list is due.
	nextList state

	// lastProblem is the message about the end of the last watch. It is "" again after the next list, or once the next
	// watch is requested.
	lastProblem string

	// eventAt is when the watch began, or when the last event other than a bookmark was logged.
	eventAt time.Time

	// heardAt is when the watch began, or when the last event or bookmark was logged.
	heardAt time.Time
}

// idleAfter is the time without an event after which a watch is idle.
const idleAfter = time.Minute

// newActivities returns what a process does at its start, by resource. The resource leases stands for the election.
func (s *sim) newActivities() map[string]*activity {
	all := map[string]*activity{}
	for _, resource := range s.resources() {
		all[resource] = &activity{state: stateUnlisted, nextList: stateFirstList}
	}
	if s.runsCounts {
		all["counts"].state = stateAbsent
	}
	all["leases"] = &activity{state: stateNoElection}
	if s.elects() {
		all["leases"].state = stateAcquiring
	}
	return all
}

// stateOfLocked returns the state of a process's reflector, or of its election if the resource is leases. It returns ""
// if there is none, such as after the end of the process.
func (s *sim) stateOfLocked(p *proc, resource string) state {
	a := p.activities[resource]
	if a == nil || p.isDead {
		return ""
	}
	if p.isEnding {
		return a.stateWhileEnding()
	}
	if a.state == stateWatching && time.Since(a.eventAt) >= idleAfter {
		return stateIdle
	}
	return a.state
}

// stateWhileEnding returns the state of an activity whose process was asked to stop. Only an election has one then.
func (a *activity) stateWhileEnding() state {
	switch a.state {
	case stateNoElection:
		return stateNoElection
	case stateLeading, stateNotRenewed:
		return stateReleasing
	}
	return ""
}

// The log of a process may arrive a little after its next request. So a request alone must show which state begins, and
// a line that comes too late must not end that state.

// followRequestLocked notes the state that begins with a request of a process.
func (s *sim) followRequestLocked(p *proc, q fakekube.Request) {
	a := p.activities[q.Resource]
	if a == nil {
		return
	}
	switch {
	case q.Verb == "list" && !isVersionQuestion(q):
		a.state = s.stateOfListLocked(a, q)
	case q.Verb == "watch":
		a.state = a.stateOfOpening()
		a.lastProblem = ""
		a.nextList = ""
	case q.Resource == "leases" && q.Method == http.MethodPut && a.state == stateStandingBy:
		a.state = stateAcquiring
	}
}

// stateOfListLocked returns the state that begins with a list.
func (s *sim) stateOfListLocked(a *activity, q fakekube.Request) state {
	switch {
	case isAudit(q):
		return stateAudit
	case q.Query.Get("limit") != "":
		return statePagedList
	case a.nextList != "":
		return a.nextList
	case time.Since(a.heardAt) >= s.Silence:
		return stateSilenceList
	}
	return stateOtherList
}

// stateOfOpening returns the state that begins with the request for a watch.
func (a *activity) stateOfOpening() state {
	isListLogged := a.state == stateBetweenRequests && a.lastProblem == ""
	isListUnlogged := slices.Contains(listStates, a.state)
	switch {
	case isListLogged || isListUnlogged:
		return stateOpeningWatch
	case a.state == stateWaitingToWatch || a.state == stateWaitingToList:
		return stateRetryingWatch
	}
	return stateResumingWatch
}

// followAnswerLocked notes the state that begins with an answer about the lease.
func (s *sim) followAnswerLocked(p *proc, a fakekube.Answer) {
	election := p.activities["leases"]
	if election == nil || a.Request.Resource != "leases" || a.Code/100 != 2 {
		return
	}
	holder := holderIn(a.Body)
	isOwn := s.hostOf[holder] == p.host
	isHeldByAnother := holder != "" && !isOwn
	switch {
	case election.state == stateAcquiring && a.Request.Verb == "get" && isHeldByAnother:
		election.state = stateStandingBy
	case election.state == stateNotRenewed && a.Request.Verb == "update" && isOwn:
		election.state = stateLeading
	}
}

// followLogLocked notes the state that begins with a line of a process's log.
func (p *proc) followLogLocked(line logLine) {
	if a := p.activities[line.resource()]; a != nil {
		a.followLog(line)
	}
	if election := p.activities["leases"]; election != nil {
		election.followElectionLog(line.Msg)
	}
}

// resource returns the resource that a line is about, or "".
func (line logLine) resource() string {
	words := strings.Fields(line.Msg)
	isEvent := line.Stale != nil && len(words) > 1
	switch {
	case isEvent:
		return resourceOfKind[words[1]] // as in "ADDED Node n0"
	case line.Kind != "":
		return resourceOfKind[line.Kind]
	}
	return line.Resource
}

// followLog follows the log of a reflector.
func (a *activity) followLog(line logLine) {
	switch line.Msg {
	case "the resource is installed":
		if a.state == stateAbsent {
			a.state = stateUnlisted
		}
	case "the resource was removed: waiting for it to be installed again":
		a.state = stateAbsent
		a.nextList = stateOtherList
	case "listed", "audited":
		if slices.Contains(listStates, a.state) {
			a.state = stateBetweenRequests
		}
		a.nextList = ""
		a.lastProblem = ""
	case "cannot list":
		a.state = stateWaitingToList
		if a.nextList == stateFirstList {
			a.state = stateUnlisted
		}
	case "watching":
		a.state = stateWatching
		a.eventAt = time.Now()
		a.heardAt = time.Now()
	case "watch ended":
		if a.state == stateWatching {
			a.state = stateBetweenRequests
		}
		a.lastProblem = line.Msg
	case "cannot watch", "cannot decode the watch", "watch ended at once":
		a.state = stateWaitingToWatch
		a.lastProblem = line.Msg
	case "listing again":
		if !slices.Contains(listStates, a.state) {
			a.state = stateWaitingToList
		}
		a.nextList = a.stateOfListAfter(line.Why)
	case "versions have gone back: etcd was probably restored from a backup":
		a.nextList = stateOtherList
	default:
		a.followEvent(line)
	}
}

// followEvent notes an event or a bookmark. Other lines of the log lack Stale.
func (a *activity) followEvent(line logLine) {
	if line.Stale == nil {
		return
	}
	a.heardAt = time.Now()
	isBookmark := strings.HasPrefix(line.Msg, "BOOKMARK")
	if !isBookmark {
		a.eventAt = time.Now()
	}
}

// stateOfListAfter returns the state of a list that is due because a watch ended like this.
func (a *activity) stateOfListAfter(why string) state {
	switch {
	case strings.Contains(why, "410"):
		return stateExpiredList
	case strings.HasPrefix(why, "no sign of life"):
		return stateSilenceList
	case a.lastProblem == "cannot decode the watch":
		return stateGarbageList
	}
	return stateOtherList
}

// followElectionLog follows the log of an election.
func (a *activity) followElectionLog(message string) {
	switch message {
	case "standing by, because another replica leads":
		a.state = stateStandingBy
	case "elected: this replica leads":
		a.state = stateLeading
	case "cannot renew the lease":
		a.state = stateNotRenewed
	}
}
