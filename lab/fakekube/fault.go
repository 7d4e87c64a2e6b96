package fakekube

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Fault replaces or disturbs the answers to some requests. It reads like a sentence:
//
//	Fault{On: Requests{Verb: "patch", Resource: "nodes"}, Skip: 2, Times: 3, Do: Refuse{Code: 503}}
//
// The first two requests that On selects are answered normally, and the next three are refused. Script has a text
// form for the same fault: "patch nodes, skip 2, 3 times: refuse 503".
type Fault struct {
	// On selects the requests. The zero value selects all.
	On Requests

	// Skip is how many of the selected requests pass first.
	Skip int

	// Every makes only each Every-th of the remaining requests meet the fault: with 3, the third, the sixth and so
	// on. 0 and 1 mean all.
	Every int

	// Rate is the probability with which each remaining request meets the fault: 0.1 is one in ten on average. 0 and
	// 1 mean all. Seed makes the choice the same in each run.
	Rate float64
	Seed uint64

	// Times is how many requests meet the fault, or Always. 0 means one, except with Every or Rate, which require an
	// explicit value.
	Times int

	// Delay passes before anything else happens.
	Delay time.Duration

	// Do is the effect. If it is nil, the request gets the normal answer after the Delay.
	Do Effect

	// Met, if set, is called with each request that meets the fault, before anything else happens. It runs on the
	// goroutine of the request, which waits for it, and without a lock.
	Met func(Request)
}

// Always is the Times of a fault that lasts until it is lifted.
const Always = -1

// problem says why the fault is invalid, or returns "" for a valid one.
func (ft Fault) problem() string {
	if problem := ft.On.problem(); problem != "" {
		return problem
	}
	if lie, isLie := ft.Do.(Lie); isLie {
		return lie.problemIn(ft)
	}
	switch {
	case ft.Times < Always || ft.Skip < 0 || ft.Every < 0 || ft.Delay < 0:
		return "a number is less than 0"
	case !(ft.Rate >= 0 && ft.Rate <= 1):
		return "the rate is not between 0 and 1"
	case ft.Times == 0 && (ft.Every > 1 || ft.isRandom()):
		return "it does not say how often: give a number of times, or always"
	case ft.Seed != 0 && !ft.isRandom():
		return "a seed needs a rate"
	case ft.Do == nil && ft.Delay == 0:
		return "nothing happens: there is neither a delay nor an effect"
	case ft.Do == nil:
		return ""
	}
	return ft.Do.problem()
}

// isRandom reports whether Rate chooses requests at random.
func (ft Fault) isRandom() bool { return ft.Rate > 0 && ft.Rate < 1 }

// String returns the fault in the text form of Script. Script can parse it unless it has an If, a Handle or a Record.
func (ft Fault) String() string {
	text := ft.On.String()
	if ft.Skip > 0 {
		text += fmt.Sprintf(", skip %d", ft.Skip)
	}
	if ft.Every > 1 {
		text += ", every " + ordinal(ft.Every)
	}
	if ft.isRandom() {
		text += fmt.Sprintf(", at rate %v", ft.Rate)
	}
	if ft.Seed > 0 {
		text += fmt.Sprintf(", seed %d", ft.Seed)
	}
	switch {
	case ft.Times == Always:
		text += ", always"
	case ft.Times > 0:
		text += ", " + times(ft.Times)
	}
	var effects []string
	if ft.Delay > 0 {
		effects = append(effects, "delay "+ft.Delay.String())
	}
	if ft.Do != nil {
		effects = append(effects, ft.Do.String())
	}
	return text + ": " + strings.Join(effects, ", ")
}

// ordinal returns a number in a form such as "3rd".
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}

// times returns "once" or, for example, "3 times".
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Injection is an injected fault. Its methods may be called at any time.
type Injection struct {
	server       *Server
	fault        Fault
	test         TB  // nil if the fault need not be met
	firstRequest int // index in Server.requests of the first request after the injection
	limit        int // the fault's Times, with 1 for 0

	// The server's lock guards the fields below.

	matched         int // requests that On has selected so far
	used            int // requests that have met the fault so far
	random          *rand.Rand
	lastWasTooShort bool // the last answer was too short to be cut
	hasTruncated    bool // at least one answer was cut
	isLifted        bool
	lie             *lostChanges // state of a Lie; nil for other faults
}

// Inject adds a fault. A request meets at most one fault: the first match in the order of injection. A Lie is
// different: it combines with any fault.
//
// When the test ends or Lift is called, the test fails if the fault was met fewer than Times times or not at all, or if
// the last answer was too short for its Cut, CutFrame or Hang. It does not fail if LiftFaults or Heal have removed the
// fault, or if it has failed already. It fails at once if the fault is invalid.
func (s *Server) Inject(t TB, ft Fault) *Injection {
	t.Helper()
	if problem := ft.problem(); problem != "" {
		t.Fatalf("the fault %q: %s", ft, problem)
	}
	in := s.inject(t, ft)
	t.Cleanup(in.check)
	return in
}

// InjectUnchecked is Inject for a fault that need not be met. It panics if the fault is invalid.
func (s *Server) InjectUnchecked(ft Fault) *Injection { return s.inject(nil, ft) }

func (s *Server) inject(t TB, ft Fault) *Injection {
	if problem := ft.problem(); problem != "" {
		panic(fmt.Sprintf("the fault %q: %s", ft, problem))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in := &Injection{
		server:       s,
		fault:        ft,
		test:         t,
		firstRequest: len(s.requests),
		limit:        cmp.Or(ft.Times, 1),
		random:       rand.New(rand.NewPCG(ft.Seed, 0)),
	}
	if lie, isLie := ft.Do.(Lie); isLie {
		in.limit = Always
		in.lie = newLostChanges(lie.Changes)
	}
	s.injections = append(s.injections, in)
	return in
}

// Used returns how many requests have met the fault so far. For a Lie, it returns how many lists and events were
// false.
func (in *Injection) Used() int {
	in.server.mu.Lock()
	defer in.server.mu.Unlock()
	return in.used
}

// Lift removes the fault. Requests that have already met it remain affected. The test fails if the fault was not met
// as Inject requires.
func (in *Injection) Lift() {
	in.check()
	in.server.mu.Lock()
	defer in.server.mu.Unlock()
	in.liftLocked()
}

func (in *Injection) liftLocked() {
	in.isLifted = true
	in.server.signalChangeLocked() // so that watches notice the end of a lie
}

// check fails the test if the fault has neither been met nor lifted.
func (in *Injection) check() {
	if in.test == nil {
		return
	}
	in.test.Helper()
	in.server.mu.Lock()
	defer in.server.mu.Unlock()
	if in.isLifted || in.test.Failed() {
		return
	}
	if missed := in.shortfallLocked(); missed != "" {
		shown := in.fault
		shown.On.User = in.server.withoutTokensLocked(shown.On.User)
		in.test.Errorf("the fault %q %s", shown, missed)
	}
}

// redactedToken replaces bearer tokens in messages.
const redactedToken = "TOKEN"

// withoutTokensLocked redacts the tokens in Requests.User.
func (s *Server) withoutTokensLocked(users string) string {
	shown := strings.Split(users, "|")
	for i, user := range shown {
		if _, isToken := s.tokens[user]; isToken {
			shown[i] = redactedToken
		}
	}
	return strings.Join(shown, "|")
}

// Shortfall says how the fault was not met as Inject requires. It returns "" if it was met.
func (in *Injection) Shortfall() string {
	in.server.mu.Lock()
	defer in.server.mu.Unlock()
	return in.shortfallLocked()
}

// shortfallLocked says how the fault was not met. It returns "" if it was met.
func (in *Injection) shortfallLocked() string {
	isEndless := in.limit == Always
	cutNone := in.lastWasTooShort && !(isEndless && in.hasTruncated)
	switch {
	case in.used == 0 && in.lie != nil && in.lie.left > 0:
		return fmt.Sprintf("had nothing to lie about: changes that were still to happen: %d", in.lie.left)
	case in.used == 0:
		return "was met by no request; there came " + in.requestsSinceLocked()
	case !isEndless && in.used < in.limit:
		return fmt.Sprintf("was met %s, not %s; there came %s",
			times(in.used), times(in.limit), in.requestsSinceLocked())
	case cutNone:
		return "was met, but the answer was too short for it"
	}
	return ""
}

// requestsSinceLocked describes the requests that came after the injection. It shows their hosts if the fault has one.
func (in *Injection) requestsSinceLocked() string {
	const most = 20
	var routes []string
	count := map[string]int{}
	for _, q := range in.server.requests[in.firstRequest:] {
		text := q.scriptWords(in.fault.On.Host != "")
		if count[text] == 0 {
			routes = append(routes, text)
		}
		count[text]++
	}
	if len(routes) == 0 {
		return "none"
	}
	more := ""
	if len(routes) > most {
		more = fmt.Sprintf(" and %d others", len(routes)-most)
		routes = routes[:most]
	}
	for i, text := range routes {
		routes[i] = fmt.Sprintf("%q %s", text, times(count[text]))
	}
	return strings.Join(routes, ", ") + more
}

// scriptWords returns the request in the text form of Script, without its token.
func (q Request) scriptWords(withHost bool) string {
	resource := cmp.Or(q.fullResource(), q.Path)
	words := Requests{Verb: q.Verb, Resource: resource, Namespace: q.Namespace, Name: q.Name, User: q.User}
	if withHost {
		words.Host = q.Host
	}
	return words.String()
}

// matchLocked reports whether a request meets the fault, and counts it.
func (in *Injection) matchLocked(q Request) bool {
	ft := in.fault
	isSpent := in.limit != Always && in.used >= in.limit
	if isSpent || in.isLifted || in.lie != nil || !ft.On.matches(q) {
		return false
	}
	in.matched++
	nth := in.matched - ft.Skip
	if nth <= 0 || ft.Every > 1 && nth%ft.Every != 0 {
		return false
	}
	if ft.isRandom() && in.random.Float64() >= ft.Rate {
		return false
	}
	in.used++
	return true
}

// matchFault returns the fault that a request meets, or nil.
func (s *Server) matchFault(q Request) *Injection {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.injections, func(in *Injection) bool { return in.matchLocked(q) })
	if i < 0 {
		return nil
	}
	return s.injections[i]
}

// serveFault serves a request that meets a fault.
func (s *Server) serveFault(
	w http.ResponseWriter, r *http.Request, info Request, arrival arrivalState, injection *Injection,
) {
	ft := injection.fault
	if ft.Met != nil {
		ft.Met(info)
	}
	if !waitFor(r.Context(), ft.Delay) {
		return
	}
	e := &faultedRequest{server: s, w: w, r: r, info: info, arrival: arrival, injection: injection}
	if ft.Do == nil {
		e.serveNormally(w, s.Spy)
		return
	}
	ft.Do.apply(e)
}

// waitFor waits for a delay, which may be 0. It returns false if ctx ends before.
func waitFor(ctx context.Context, delay time.Duration) bool {
	if delay == 0 {
		return true
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// recordTruncation records whether an answer was too short for a Cut, a CutFrame or a Hang.
func (in *Injection) recordTruncation(isShort bool) {
	in.server.mu.Lock()
	defer in.server.mu.Unlock()
	in.lastWasTooShort = isShort
	if !isShort {
		in.hasTruncated = true
	}
}

// LiftFaults removes all faults. No test fails because they were not met. Requests that have already met one remain
// affected.
func (s *Server) LiftFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.liftFaultsLocked()
}

func (s *Server) liftFaultsLocked() {
	for _, in := range s.injections {
		in.liftLocked()
	}
	s.injections = nil
}

// FaultsLeft reports whether any fault can still be met.
func (s *Server) FaultsLeft() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.injections, func(in *Injection) bool {
		return !in.isLifted && in.lie == nil && (in.limit == Always || in.used < in.limit)
	})
}
