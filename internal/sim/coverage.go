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
//   - A fault concerns the reflectors of some resources, or the election, or all of them.
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

// reach says whom a fault strikes.
type reach int

const (
	everyProcess reach = iota
	oneProcess
	oneReflector
)

// reflectors are the resources that have a reflector. The resource leases stands for the election.
var (
	reflectors = []string{"pods", "nodes", "counts"}
	everything = []string{"pods", "nodes", "counts", "leases"}
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
			if fault.canMeet(in) && !slices.Contains(pairs, one) { // A name may be there twice.
				pairs = append(pairs, one)
			}
		}
	}
	return pairs
}

// noteStrike notes that a fault strikes, in the present states of all that it concerns.
func (s *sim) noteStrike(f step, at target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.slots {
		if at.p == nil || at.p == p {
			s.noteMetLocked(p, f, at)
		}
	}
}

// noteMetLocked notes that a fault strikes one process.
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

// unmetPairs returns a line for each state, with the faults that never struck in it. Faults of the same requests share
// an item, as in "leases get 401: a token has expired, or 500: etcd has no leader".
func (s Stats) unmetPairs() string {
	lines := "These faults never struck in these states:\n"
	for _, in := range allStates {
		unmet := faultsIn(in, s.unmet())
		if len(unmet) > 0 {
			items := itemsOf(unmet, faultsIn(in, possiblePairs()))
			lines += fmt.Sprintf("- %s (%d): %s\n", in, len(unmet), strings.Join(items, "; "))
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

// itemsOf returns an item for each fault, or for all faults of the same requests. If these are all that are possible,
// the item says so.
func itemsOf(faults, possible []string) (items []string) {
	all := outcomesByRequest(possible)
	outcomes := outcomesByRequest(faults)
	for _, requests := range slices.Sorted(maps.Keys(outcomes)) {
		item := requests
		isComplete := len(outcomes[requests]) == len(all[requests])
		switch {
		case isComplete && len(all[requests]) > 1:
			item += " get anything"
		case outcomes[requests][0] != "":
			item += " get " + strings.Join(outcomes[requests], ", or ")
		}
		items = append(items, item)
	}
	return items
}

// outcomesByRequest splits the names of faults into requests and outcomes. The outcome of another fault is "".
func outcomesByRequest(faults []string) map[string][]string {
	outcomes := map[string][]string{}
	for _, fault := range faults {
		requests, outcome, _ := strings.Cut(fault, " get ")
		outcomes[requests] = append(outcomes[requests], outcome)
	}
	return outcomes
}
