package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// Some states last only for a moment, and some are rare. By the dice alone, hardly any fault would ever strike in them.
// So every second seed takes aim at some pairs of a state and a fault. Which pairs depends on the seed's number alone:
// the seeds take all pairs in turn. A step that takes aim leads a process towards the state, and lets the fault strike
// as soon as the state is there.
//
// When that is depends on the program too. So in these seeds, the script has the names of the steps and their times,
// but not what they did to the cluster. After a calm, even the times may depend on the program.

// aimsPerSeed is at how many pairs a seed takes aim, at most. All of them have the same state.
const aimsPerSeed = 20

// aimShare is the share of aims among the steps of a seed that takes aim.
const aimShare = 0.3

// holdTime is how long an aim delays the request during which a state lasts, so that a fault has time to strike.
const holdTime = 40 * time.Second

// waitAfterAim returns how long only life goes on after an aim at a state, so that a rare state can come. 0 means that
// the next step may be of any kind.
func (s *sim) waitAfterAim(in state) time.Duration {
	switch in {
	case stateSilenceList: // after two silent watches
		return 3 * s.Silence
	case stateAudit:
		return 2 * s.LongestUnlisted // because a list that fails is repeated some minutes later
	}
	return 0
}

// aimsAtRareState reports whether the seed takes aim at a state that is rare. Then it lasts longer, and no other faults
// strike.
func (s *sim) aimsAtRareState() bool {
	return len(s.pairsToAimAt) > 0 && s.waitAfterAim(s.pairsToAimAt[0].state) > 0
}

// aim is a fault that waits for a state.
type aim struct {
	pair
	step step       // the fault
	dice *rand.Rand // of the step that has taken aim
}

// pairsToAimAt returns the pairs at which a seed takes aim. Seeds with odd numbers have none.
func pairsToAimAt(seed uint64) []pair {
	if seed%2 == 1 {
		return nil
	}
	var groups [][]pair
	for _, in := range allStates {
		groups = slices.AppendSeq(groups, slices.Chunk(possiblePairsIn(in), aimsPerSeed))
	}
	return groups[seed/2%uint64(len(groups))]
}

// possiblePairsIn returns the possible pairs with a state.
func possiblePairsIn(in state) (pairs []pair) {
	for _, one := range possiblePairs() {
		if one.state == in {
			pairs = append(pairs, one)
		}
	}
	return pairs
}

// allowsAims reports whether the setting that was drawn allows all pairs at which the seed takes aim.
func (s *sim) allowsAims() bool {
	for _, one := range s.pairsToAimAt {
		if !s.allows(one) {
			return false
		}
	}
	return true
}

// allows reports whether a process can come into the state of a pair with this setting, and the fault can strike it.
func (s *sim) allows(one pair) bool {
	switch {
	case one.state == stateNoElection && s.elects():
		return false
	case slices.Contains(contestStates, one.state) && !s.elects():
		return false
	case one.state == stateStandingBy && len(s.slots) < 2:
		return false
	case one.state == stateAudit && s.fake.Bookmarks == 0:
		return false // Without bookmarks, idle watches are silent. The lists after that postpone each audit.
	}
	return len(s.concerned(one)) > 0
}

// concerned returns the resources whose reflectors, or whose election, can meet a pair in this seed.
func (s *sim) concerned(one pair) (resources []string) {
	followed := append(s.resources(), "leases")
	for _, resource := range faultsByName()[one.fault].concerns {
		if mayBeIn(resource, one.state) && slices.Contains(followed, resource) {
			resources = append(resources, resource)
		}
	}
	return resources
}

// takeAims takes aim at the next of the seed's pairs, and then waits for a rare state. Audits are so rare that it takes
// aim at all pairs at once.
func (s *sim) takeAims() {
	in := s.pairsToAimAt[0].state
	times := 1
	if in == stateAudit {
		times = len(s.pairsToAimAt)
	}
	for range times {
		s.takeAim()
	}
	end := time.Now().Add(s.waitAfterAim(in))
	for time.Now().Before(end) && !s.hasBroken() {
		s.takeStep(lifeSteps)
		s.wait(s.drawDuration(span{10 * time.Second, 2 * time.Minute}))
	}
}

// takeAim is a step that takes aim at the next of the seed's pairs.
func (s *sim) takeAim() {
	one := s.pairsToAimAt[s.aimsTaken%len(s.pairsToAimAt)]
	s.aimsTaken++
	s.nextStep(func() { s.aimAt(one) })
}

// aimAt makes the fault of a pair strike as soon as the state is there, and leads a process towards that state.
func (s *sim) aimAt(one pair) {
	fault := faultsByName()[one.fault]
	resource := pick(s.dice, s.concerned(one)...)
	slot := s.dice.IntN(len(s.slots))
	description := fmt.Sprintf("AIM while %s: %s", one.state, one.fault)
	s.noteStep(description, description, fault.strikesAny())
	s.recordOwn(faultsLane, ownStep{Point: pointAim, Text: description})
	if s.isDone(one) {
		return
	}
	s.arm(aim{pair: one, step: fault, dice: s.dice})
	// The state may be nothing but a request in flight. It must last, unless the fault strikes this very request.
	strikesHeldRequest := fault.request != nil && fault.request.class.isState
	if !strikesHeldRequest {
		s.hold(one.state, resource)
	}
	leadInto[one.state](s, slot, resource)
}

// isDone reports whether a pair has been met, or its fault still waits.
func (s *sim) isDone(one pair) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	isWaiting := slices.ContainsFunc(s.aims, func(a aim) bool { return a.pair == one })
	return isWaiting || s.stats.met[one]
}

// arm makes a fault strike as soon as its state is there. A fault of requests waits at the server, and any other one
// waits in s.aims for strikeWhereAimed.
func (s *sim) arm(a aim) {
	if a.step.request == nil {
		s.aims = append(s.aims, a)
		return
	}
	s.injectWhere(*a.step.request, 1, func(q fakekube.Request) bool {
		return s.isIn(a.state, q.Host, a.step.concerns...)
	})
}

// isIn reports whether a reflector of a process, or its election, is in a state.
func (s *sim) isIn(in state, host string, resources ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[host]
	return p != nil && slices.ContainsFunc(resources, func(resource string) bool {
		return s.stateOfLocked(p, resource) == in
	})
}

// strikeWhereAimed lets one of the faults strike that wait for a state, if that state is there.
func (s *sim) strikeWhereAimed() {
	for i, a := range s.aims {
		at := s.targetOf(a)
		if at.p != nil {
			s.aims = slices.Delete(s.aims, i, i+1)
			s.strikeAimed(a, at)
			return
		}
	}
}

func (s *sim) strikeAimed(a aim, at target) {
	s.withDice(a.dice, func() {
		description := s.strike(a.step, at)
		s.record("AIMED at r%d, %s: %s", at.p.slot, a.state, description)
	})
}

// targetOf returns where a fault strikes that waits for a state. The process is nil while none is in that state.
func (s *sim) targetOf(a aim) target {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.slots {
		for _, resource := range a.step.concerns {
			if s.stateOfLocked(p, resource) == a.state {
				return target{p: p, resource: resource}
			}
		}
	}
	return target{}
}

// wait lets d pass. If faults wait for their state, it looks for that state once a second.
func (s *sim) wait(d time.Duration) {
	end := time.Now().Add(d)
	for len(s.aims) > 0 && time.Until(end) > time.Second {
		<-time.After(time.Second)
		s.strikeWhereAimed()
	}
	<-time.After(time.Until(end))
}

// hold delays the next request for a resource that a process sends in a state. Without a delay, the state would be over
// at once.
func (s *sim) hold(in state, resource string) {
	isRequest := requestIn(in, resource)
	if isRequest == nil {
		return
	}
	isHeld := func(q fakekube.Request) bool { return isRequest(q) && s.isIn(in, q.Host, resource) }
	s.extendBound(holdTime)
	s.fake.InjectUnchecked(fakekube.Fault{On: fakekube.Requests{If: isHeld}, Times: 1, Delay: holdTime})
}

// requestIn matches the requests for a resource during which a state lasts. It is nil if the state lasts by itself.
func requestIn(in state, resource string) func(fakekube.Request) bool {
	switch {
	case slices.Contains(listStates, in):
		return isListOf(resource)
	case slices.Contains(openingStates, in):
		return fixture.IsWatch(resource)
	case in == stateAcquiring || in == stateReleasing:
		return isForLease
	}
	return nil
}

// leadInto has, for each state, what leads the process in a slot towards it. resource is the one whose reflector is
// meant. Many of these functions lead all processes there, not only the one in the slot.
var leadInto = map[state]func(s *sim, slot int, resource string){
	stateAbsent:         removeCRD,
	stateUnlisted:       failFirstLists,
	stateFirstList:      restart,
	stateExpiredList:    expireWatch,
	stateGarbageList:    sendGarbage,
	stateSilenceList:    silenceWatches,
	stateAudit:          waitForIt,
	stateOtherList:      sendErrors,
	statePagedList:      failWholeLists,
	stateWaitingToList:  failLists,
	stateOpeningWatch:   expireWatch,
	stateResumingWatch:  endWatches,
	stateRetryingWatch:  refuseWatches,
	stateWatching:       waitForIt,
	stateIdle:           waitForIt,
	stateWaitingToWatch: refuseWatches,
	stateNoElection:     waitForIt,
	stateAcquiring:      restart,
	stateStandingBy:     waitForIt,
	stateLeading:        waitForIt,
	stateNotRenewed:     refuseRenewals,
	stateReleasing:      restart,
}

// waitForIt does nothing, because the state comes by itself.
func waitForIt(*sim, int, string) {}

func removeCRD(s *sim, _ int, _ string) { fixture.InstallCRD(s.fake, nil) }

func restart(s *sim, slot int, _ string) { s.stopProcess(slot, restartDelay) }

func failFirstLists(s *sim, slot int, resource string) {
	s.refuse(isListOf(resource), 4, unavailable())
	s.stopProcess(slot, restartDelay)
}

func expireWatch(s *sim, _ int, resource string) { s.sendFrames(1, resource, "an error 410, Expired") }

// sendGarbage garbles two watches in a row, because the first one is only resumed.
func sendGarbage(s *sim, _ int, resource string) { s.sendFrames(2, resource, "two bytes of garbage") }

// sendErrors ends two watches in a row with an error, because the first one is only resumed.
func sendErrors(s *sim, _ int, resource string) { s.sendFrames(2, resource, "an error 500") }

// silenceWatches lets two watches in a row fall silent, because the first one is only resumed.
func silenceWatches(s *sim, _ int, resource string) {
	s.fake.InjectUnchecked(fakekube.Fault{
		On:    fakekube.Requests{Verb: "watch", Resource: resource},
		Times: 2 * len(s.slots),
		Do:    fakekube.Hang{After: 1},
	})
	s.extendBoundForSilence()
	s.fake.EndWatches()
}

// failWholeLists makes two lists in a row fail, after which lists come in pages.
func failWholeLists(s *sim, slot int, resource string) {
	s.refuse(isListOf(resource), 2, refusal(500, "InternalError", nil))
	expireWatch(s, slot, resource)
}

func failLists(s *sim, slot int, resource string) {
	s.refuse(isListOf(resource), 3, unavailable())
	expireWatch(s, slot, resource)
}

func endWatches(s *sim, _ int, _ string) { s.fake.EndWatches() }

func refuseWatches(s *sim, _ int, resource string) {
	s.refuse(fixture.IsWatch(resource), 2, unavailable())
	s.fake.EndWatches()
}

func refuseRenewals(s *sim, _ int, _ string) { s.refuse(isForLease, 2, unavailable()) }

// refuse gives an answer to the next few requests of a kind, so many for each process. Refused requests lead to a
// backoff.
func (s *sim) refuse(isMeant func(fakekube.Request) bool, timesEach int, answer fakekube.Fault) {
	answer.On.If = isMeant
	answer.Times = timesEach * len(s.slots)
	s.fake.InjectUnchecked(answer)
}

// unavailable refuses a request as a server does that is shutting down.
func unavailable() fakekube.Fault { return refusal(503, "ServiceUnavailable", nil) }

// sendFrames sends an odd frame on the next few watches of a resource, on so many for each process.
func (s *sim) sendFrames(timesEach int, resource, name string) {
	frames := oddFrames()
	i := slices.IndexFunc(frames, func(f oddFrame) bool { return f.name == name })
	for range timesEach * len(s.slots) {
		s.sendFrame(frames[i], resource)
	}
}

// faultsByName returns all faults by their names. The caller must not change them.
var faultsByName = sync.OnceValue(func() map[string]step {
	faults := map[string]step{}
	for _, fault := range faultSteps() {
		faults[fault.name] = fault
	}
	return faults
})
