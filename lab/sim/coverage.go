package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Coverage tells whether the faults have struck wherever they can. It counts pairs: a state of a reflector or of an
// election (states.go), and a fault that strikes in it. These rules say which pairs are possible:
//   - A fault concerns the reflectors of some resources, or the election, or all of them. It strikes in their states.
//   - A fault of requests strikes where such a request is sent: of a list, while a list is in flight; of a write, once
//     the resource has been listed, and with an election, while the process leads.
//   - A fault of a watch strikes where a watch runs or is being opened.
//   - Only the resource of a CRD can be absent.
//   - Without an election, nobody asks for the lease.

// pair is a fault that strikes in a state.
type pair struct {
	state state
	fault string // the name of the fault
}

// reach says how far a fault reaches.
type reach int

const (
	everyProcess reach = iota
	oneProcess
	oneReflector // the reflector of one resource, in every process
)

// What a fault may concern, by resource. The resource leases stands for the election.
var (
	reflectors = []string{"pods", "nodes", "counts"}
	everything = []string{"pods", "nodes", "counts", "leases"} // all reflectors and the election
)

// canMeet reports whether a fault can strike a reflector, or the election, in a state.
func (f step) canMeet(in state) bool {
	isAnyConcerned := slices.ContainsFunc(f.concerns, func(resource string) bool { return mayBeIn(resource, in) })
	isPossible := f.possibleIn == nil || slices.Contains(f.possibleIn, in)
	return isAnyConcerned && isPossible
}

// mayBeIn reports whether the reflector of a resource, or the election, can be in a state.
func mayBeIn(resource string, in state) bool {
	switch {
	case resource == "leases":
		return slices.Contains(electionStates, in)
	case in == stateAbsent: // The server always has pods and nodes.
		return resource == "counts"
	}
	return slices.Contains(reflectorStates, in)
}

// possiblePairs returns all pairs that can be met, state by state. The caller must not change them.
var possiblePairs = sync.OnceValue(findPossiblePairs)

func findPossiblePairs() (pairs []pair) {
	faults := faultSteps()
	for _, in := range allStates {
		for _, fault := range faults {
			one := pair{in, fault.name}
			if fault.canMeet(in) && !slices.Contains(pairs, one) { // Two faults may have the same name.
				pairs = append(pairs, one)
			}
		}
	}
	return pairs
}

// noteStrike notes that a fault strikes its target: one process or all of them.
func (s *sim) noteStrike(f step, at target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.slots {
		if at.p == nil || at.p == p {
			s.noteMetLocked(p, f, at)
		}
	}
}

// noteMetLocked notes that a fault strikes one process, in the present states of all that it concerns.
func (s *sim) noteMetLocked(p *proc, f step, at target) {
	for _, resource := range f.concerns {
		isStruck := at.resource == "" || at.resource == resource
		in := s.stateOfLocked(p, resource)
		if isStruck && in != "" && in != stateBetweenRequests {
			s.stats.met[pair{in, f.name}] = true
		}
	}
}

// unmet returns the possible pairs that were never met.
func (s Stats) unmet() []pair {
	return slices.DeleteFunc(slices.Clone(possiblePairs()), func(one pair) bool { return s.met[one] })
}

// unmetPairs returns a line for each state, with the faults that never struck in it. Faults of the same class of
// requests share an item, as in "leases get 401: a token has expired, or 500: etcd has no leader".
func (s Stats) unmetPairs() string {
	lines := "These faults never struck in these states:\n"
	unmet := s.unmet()
	for _, in := range allStates {
		faults := faultsIn(in, unmet)
		if len(faults) > 0 {
			items := itemsOf(faults, faultsIn(in, possiblePairs()))
			lines += fmt.Sprintf("- %s (%d): %s\n", in, len(faults), strings.Join(items, "; "))
		}
	}
	return lines
}

// faultsIn returns the faults of the pairs with this state.
func faultsIn(in state, pairs []pair) (faults []string) {
	for _, one := range pairs {
		if one.state == in {
			faults = append(faults, one.fault)
		}
	}
	return faults
}

// itemsOf returns an item for each class of requests, with the outcomes of its faults, and one for each other fault. If
// these outcomes are all that are possible, the item says so.
func itemsOf(faults, possible []string) (items []string) {
	possibleOutcomes := outcomesByClass(possible)
	outcomesOf := outcomesByClass(faults)
	for _, class := range slices.Sorted(maps.Keys(outcomesOf)) {
		outcomes := outcomesOf[class]
		isRequestFault := outcomes[0] != ""
		isComplete := len(outcomes) > 1 && len(outcomes) == len(possibleOutcomes[class])
		switch {
		case isComplete:
			items = append(items, class+" get anything")
		case isRequestFault:
			items = append(items, class+" get "+strings.Join(outcomes, ", or "))
		default:
			items = append(items, class)
		}
	}
	return items
}

// outcomesByClass splits the names of faults of requests into classes of requests and outcomes. The name of another
// fault is a class by itself, with the outcome "".
func outcomesByClass(faults []string) map[string][]string {
	outcomesOf := map[string][]string{}
	for _, fault := range faults {
		class, outcome, _ := strings.Cut(fault, " get ")
		outcomesOf[class] = append(outcomesOf[class], outcome)
	}
	return outcomesOf
}
