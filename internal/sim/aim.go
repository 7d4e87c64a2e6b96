package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"podcount/internal/fakekube"
)

// Some states last only for a moment, and some are rare, so that the dice alone would hardly ever let a fault strike in
// them. So every second seed takes aim at some pairs of a state and a fault. Which pairs depends on the seed's number
// alone: the seeds take all pairs in turn. A further step, "aim", leads a process towards the state, and lets the fault
// strike as soon as the state is there.
//
// When that is depends on the program too. So in these seeds, the script has the names of the steps and their times,
// but not what they did to the cluster.

// aimsPerSeed is at how many pairs a seed takes aim, at most. All of them have the same state.
const aimsPerSeed = 20

// aimShare is the share of aims among the steps of a seed that takes aim.
const aimShare = 0.3

// holdTime is how long an aim delays the request during which a state lasts, so that a fault has time to strike.
const holdTime = 40 * time.Second

// patience is how long only life goes on after an aim at a state, so that the state can come. 0 means that the next
// step may be of any kind.
func (s *sim) patience(in state) time.Duration {
	switch in {
	case stateSilenceList: // after two silent watches
		return 3 * s.Silence
	case stateAudit:
		return 2 * s.LongestUnlisted // because a list that fails is repeated some minutes later
	}
	return 0
}

// aim is a fault that waits for a state.
type aim struct {
	pair
	what step
	dice *rand.Rand // of the step that has taken aim
}

// pairsToAimAt returns the pairs at which a seed takes aim. Seeds with odd numbers have none.
func pairsToAimAt(seed uint64) []pair {
	if seed%2 == 1 {
		return nil
	}
	var groups [][]pair
	pairs := possiblePairs()
	for _, in := range allStates {
		ofState := slices.DeleteFunc(slices.Clone(pairs), func(one pair) bool { return one.state != in })
		groups = slices.AppendSeq(groups, slices.Chunk(ofState, aimsPerSeed))
	}
	return groups[seed/2%uint64(len(groups))]
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

func (s *sim) allows(one pair) bool {
	if slices.Contains(electionStates, one.state) && s.elects() == (one.state == stateNoElection) {
		return false
	}
	if one.state == stateStandingBy && len(s.slots) < 2 {
		return false
	}
	if one.state == stateAudit && s.fake.Bookmarks == 0 { // An idle watch is silent, so the list never waits an hour.
		return false
	}
	return len(s.concerned(one)) > 0
}

// concerned returns the resources whose reflectors, or whose election, can meet a pair in this seed.
func (s *sim) concerned(one pair) []string {
	followed := append(s.resources(), "leases")
	concerns := slices.Clone(faultsByName()[one.fault].concerns)
	return slices.DeleteFunc(concerns, func(resource string) bool {
		return !mayBeIn(resource, one.state) || !slices.Contains(followed, resource)
	})
}

// needsPatience reports whether the state at which the seed takes aim is so rare that no other faults may strike, and
// that the seed must last longer.
func (s *sim) needsPatience() bool {
	return len(s.pairsToAimAt) > 0 && s.patience(s.pairsToAimAt[0].state) > 0
}

// takeAims takes aim at the next of the seed's pairs. At the hour, which is rare, it takes aim at all of them.
func (s *sim) takeAims() {
	in := s.pairsToAimAt[0].state
	n := 1
	if in == stateAudit {
		n = len(s.pairsToAimAt)
	}
	for range n {
		s.takeAim()
	}
	end := time.Now().Add(s.patience(in))
	for time.Now().Before(end) && !s.hasBroken() {
		s.takeStep(lifeSteps)
		s.wait(s.drawDuration(span{10 * time.Second, 2 * time.Minute}))
	}
}

// takeAim is a step that takes aim at the next of the seed's pairs.
func (s *sim) takeAim() {
	one := s.pairsToAimAt[s.aimsTaken%len(s.pairsToAimAt)]
	s.aimsTaken++
	s.nextStep(func() {
		what := faultsByName()[one.fault]
		resource := pick(s.dice, s.concerned(one)...)
		slot := s.dice.IntN(len(s.slots))
		description := fmt.Sprintf("AIM while %s: %s", one.state, one.fault)
		s.noteStep(description, description, what.strikesAny())
		if s.isDone(one) {
			return
		}
		s.arm(aim{pair: one, what: what, dice: s.dice})
		isState := what.request != nil && what.request.class.isState
		if !isState {
			s.hold(one.state, resource)
		}
		leadInto[one.state](s, slot, resource)
	})
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
	if a.what.request == nil {
		s.aims = append(s.aims, a)
		return
	}
	s.injectWhere(*a.what.request, 1, func(q fakekube.Request) bool {
		return s.isIn(a.state, q.Host, a.what.concerns...)
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
		if at.p == nil {
			continue
		}
		s.aims = slices.Delete(s.aims, i, i+1)
		s.withDice(a.dice, func() {
			description := s.strike(a.what, at)
			s.record("AIMED at r%d, %s: %s", at.p.slot, a.state, description)
		})
		return
	}
}

// targetOf returns where a fault strikes that waits for a state. The process is nil while none is in that state.
func (s *sim) targetOf(a aim) target {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.slots {
		for _, resource := range a.what.concerns {
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
		return fakekube.IsWatch(resource)
	case in == stateAcquiring || in == stateReleasing:
		return isForLease
	}
	return nil
}

// leadInto has, for each state, what leads the process in a slot towards it. The resource is the one whose reflector is
// meant. Nothing need be done for the states that come by themselves.
var leadInto = map[state]func(s *sim, slot int, resource string){
	stateAbsent: func(s *sim, _ int, _ string) { s.fake.InstallCRD(nil) },
	stateUnlisted: func(s *sim, slot int, resource string) {
		s.refuse(isListOf(resource), 4, refusal(503, "ServiceUnavailable", nil))
		s.stopProcess(slot, restartDelay)
	},
	stateFirstList:   restart,
	stateExpiredList: expireWatch,
	stateGarbageList: func(s *sim, _ int, resource string) { s.sendFrames(2, resource, "two bytes of garbage") },
	stateSilenceList: func(s *sim, _ int, resource string) {
		s.fake.InjectUnchecked(fakekube.Fault{
			On:    fakekube.Requests{If: fakekube.IsWatch(resource)},
			Times: 2 * len(s.slots),
			Do:    fakekube.Hang{After: 1},
		})
		s.extendBoundForSilence()
		s.fake.EndWatches(false)
	},
	stateAudit:     waitForIt,
	stateOtherList: func(s *sim, _ int, resource string) { s.sendFrames(2, resource, "an error 500") },
	statePagedList: func(s *sim, slot int, resource string) {
		s.refuse(isListOf(resource), 2, refusal(500, "InternalError", nil))
		expireWatch(s, slot, resource)
	},
	stateWaitingToList: func(s *sim, slot int, resource string) {
		s.refuse(isListOf(resource), 3, refusal(503, "ServiceUnavailable", nil))
		expireWatch(s, slot, resource)
	},
	stateOpeningWatch:   expireWatch,
	stateResumingWatch:  func(s *sim, _ int, _ string) { s.fake.EndWatches(false) },
	stateRetryingWatch:  refuseWatch,
	stateWatching:       waitForIt,
	stateIdle:           waitForIt,
	stateWaitingToWatch: refuseWatch,
	stateNoElection:     waitForIt,
	stateAcquiring:      restart,
	stateStandingBy:     waitForIt,
	stateLeading:        waitForIt,
	stateNotRenewed:     func(s *sim, _ int, _ string) { s.refuse(isForLease, 2, refusal(503, "ServiceUnavailable", nil)) },
	stateReleasing:      restart,
}

func waitForIt(*sim, int, string) {}

func restart(s *sim, slot int, _ string) { s.stopProcess(slot, restartDelay) }

func expireWatch(s *sim, _ int, resource string) { s.sendFrames(1, resource, "an error 410, Expired") }

func refuseWatch(s *sim, _ int, resource string) {
	s.refuse(fakekube.IsWatch(resource), 2, refusal(503, "ServiceUnavailable", nil))
	s.fake.EndWatches(false)
}

// refuse refuses the next few requests of a kind by each process, which leads to a backoff.
func (s *sim) refuse(which func(fakekube.Request) bool, times int, fault fakekube.Fault) {
	fault.On.If = which
	fault.Times = times * len(s.slots)
	s.fake.InjectUnchecked(fault)
}

// sendFrames sends an odd frame on a watch of a resource, then on the next one, and so on, so often for each process.
func (s *sim) sendFrames(times int, resource, name string) {
	frames := oddFrames()
	i := slices.IndexFunc(frames, func(f oddFrame) bool { return f.name == name })
	for range times * len(s.slots) {
		s.sendFrame(frames[i], resource)
	}
}

// faultsByName has all faults.
var faultsByName = sync.OnceValue(func() map[string]step {
	faults := map[string]step{}
	for _, fault := range faultSteps() {
		faults[fault.name] = fault
	}
	return faults
})
