package sim

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing/synctest"
)

// At each calm, when nothing happens any more, the processes must hold as much as at the first calm: as many goroutines
// and, apart from idle ones, as many connections. Of a process that has ended, nothing may be left. At the end of a
// seed, when all processes have ended, there must be exactly the goroutines from before the first one started.
//
// The memory of a seed cannot be told apart from that of others, so TestMemoryIsBackAtEachCalm runs a seed alone.
// Timers cannot be seen at all. A timer that leaks keeps memory, and one that still fires shows by what it does.

// holding is what the processes hold at a moment: numbers of goroutines and connections, by what they are.
type holding map[string]int

// currentHolding returns what the processes hold. Call it when nothing happens.
func (s *sim) currentHolding() holding {
	synctest.Wait()
	held := goroutines()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.slots {
		if p != nil {
			held["connections"] += len(p.link.openWires())
		}
	}
	return held
}

// checkLeaks checks, at a calm, that the processes hold as much as at the first calm, and that nothing is left of those
// that have ended.
func (s *sim) checkLeaks() {
	s.callAtCalm()
	held := s.currentHolding()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heldAtFirstCalm == nil {
		s.heldAtFirstCalm = held
	}
	connectionSlack := len(s.slots) * (maxIdleConnections + len(s.resources()))
	s.compareHoldingsLocked("at the first calm", s.heldAtFirstCalm, held, connectionSlack)
	for _, host := range slices.Sorted(maps.Keys(s.byHost)) {
		p := s.byHost[host]
		isPresent := s.slots[p.slot] == p
		open := len(p.link.openWires())
		if !isPresent && open > 0 {
			s.breakRuleLocked(p, "leaks: it has ended, but %d of its connections are open", open)
		}
	}
}

// maxIdleConnections is how many connections a process may keep for later requests. Their number depends on what it has
// requested in the last 90 s, such as whether a resource is installed. Over HTTP/2, each watch may also have a
// connection of its own, or all may share one: a server that sheds its connections lets those continue that have a
// watch.
const maxIdleConnections = http.DefaultMaxIdleConnsPerHost

// noConnectionSlack is for a comparison of two times without a process.
const noConnectionSlack = 0

// compareHoldingsLocked checks that as much is held now as at an earlier time. The number of connections may differ by
// connectionSlack.
func (s *sim) compareHoldingsLocked(when string, then, now holding, connectionSlack int) {
	all := maps.Clone(then)
	maps.Copy(all, now)
	var differences []string
	for _, what := range slices.Sorted(maps.Keys(all)) {
		allowed := 0
		if isPerConnection(what) {
			allowed = connectionSlack
		}
		difference := max(now[what]-then[what], then[what]-now[what])
		if difference > allowed {
			differences = append(differences, fmt.Sprintf("%s: %d, not %d", what, now[what], then[what]))
		}
	}
	if len(differences) > 0 {
		s.failLocked("leaks: more or less is held than %s: %s", when, strings.Join(differences, "; "))
	}
}

// isPerConnection reports whether something that is held belongs to a connection, so that its number differs with the
// number of connections.
func isPerConnection(what string) bool {
	return what == "connections" || strings.HasPrefix(what, "goroutines in net/http.")
}

// goroutines returns the numbers of the goroutines of this bubble, by the functions with which they begin. Other seeds
// run in bubbles of their own. The goroutines of the simulation itself do not count: some of them wait for minutes.
func goroutines() holding {
	bubble := ""
	numbers := holding{}
	for stack := range strings.SplitSeq(allStacks(), "\n\n") {
		if bubble == "" {
			bubble = bubbleOf(stack) // The first stack is that of this goroutine.
		}
		entry := entryOf(stack)
		isOwn := strings.Contains(entry, ".(*sim).") || strings.HasPrefix(entry, "testing.")
		if bubbleOf(stack) == bubble && !isOwn {
			numbers["goroutines in "+entry]++
		}
	}
	return numbers
}

// allStacks returns the stacks of all goroutines, as a panic shows them.
func allStacks() string {
	for size := 1 << 20; ; size *= 2 {
		buffer := make([]byte, size)
		n := runtime.Stack(buffer, true)
		if n < size {
			return string(buffer[:n])
		}
	}
}

// bubbleOf returns the bubble of a stack, as in "synctest bubble 7", or "" if it has none.
func bubbleOf(stack string) string {
	head, _, _ := strings.Cut(stack, "]:\n")
	i := strings.Index(head, "synctest bubble ")
	if i < 0 {
		return ""
	}
	bubble, _, _ := strings.Cut(head[i:], ",")
	return bubble
}

// entryOf returns the function with which the goroutine of a stack begins. If that is one of sync.WaitGroup, it returns
// the function that was passed to it.
func entryOf(stack string) string {
	stack, _, _ = strings.Cut(stack, "\ncreated by ")
	lines := strings.Split(stack, "\n")
	entry := ""
	for _, line := range slices.Backward(lines[1:]) {
		isFunction := !strings.HasPrefix(line, "\t")
		if isFunction {
			entry = line[:max(0, strings.LastIndex(line, "("))]
		}
		if isFunction && entry != "sync.(*WaitGroup).Go.func1" {
			return entry
		}
	}
	return entry
}
