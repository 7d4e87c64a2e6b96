package sim

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// proc is one process of the program, from its start to its end. sim.mu guards it.
type proc struct {
	slot  int
	host  string // the name by which it calls the server
	link  *link
	began time.Time
	stop  context.CancelFunc

	isEnding bool // for whatever reason; another process follows
	isDead   bool // it was killed, so that no rule applies to it any more

	// What it knows.
	progress   map[string]*progress  // by resource
	hasList    map[string]bool       // resources of which it has got a complete list
	knows      map[string]*knowledge // by resource and key
	unsure     map[string]int        // versions that it may or may not have received, by resource and key
	mayBeStale map[string]bool       // resources that it may know in another state than it was sent

	// What it has sent.
	countedSecond    int64                // the current second, in Unix time
	requestsInSecond map[string]int       // the requests in that second, by verb and path
	retryAfter       map[string]time.Time // until when Retry-After lets it wait, by method and path
	writeAnsweredAt  map[string]time.Time // when it last got an answer to a write, by resource, key and uid
	leaseSentAt      time.Time            // when it last requested the lease
}

// restartDelay is the time after which a process that has ended by itself is started again, as a kubelet does.
const restartDelay = 2 * time.Second

// launch starts a process in a slot, unless the simulation is over.
func (s *sim) launch(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver {
		return
	}
	ctx, stop := context.WithCancel(s.t.Context())
	p := &proc{
		slot:             slot,
		host:             fmt.Sprintf("r%d-%d:1", slot, len(s.byHost)),
		link:             &link{net: s.net, wires: map[*wire]bool{}},
		began:            time.Now(),
		stop:             stop,
		progress:         map[string]*progress{},
		knows:            map[string]*knowledge{},
		unsure:           map[string]int{},
		mayBeStale:       map[string]bool{},
		hasList:          map[string]bool{},
		writeAnsweredAt:  map[string]time.Time{},
		retryAfter:       map[string]time.Time{},
		requestsInSecond: map[string]int{},
	}
	for _, resource := range s.resources() {
		p.progress[resource] = &progress{unlogged: map[int]int{}}
	}
	s.slots[slot] = p
	s.byHost[p.host] = p
	s.recordLocked("%s starts", p.host)
	s.running.Go(func() { s.runProcess(ctx, p) })
}

// resources returns the resources that the controllers read.
func (s *sim) resources() []string {
	if s.runsCounts {
		return []string{"pods", "nodes", "counts"}
	}
	return []string{"pods", "nodes"}
}

// runProcess runs a process to its end.
func (s *sim) runProcess(ctx context.Context, p *proc) {
	// With -v 4, each event of a watch is logged.
	args := append([]string{"-master", "http://" + p.host, "-v", "4", "-log-format", "json"}, s.args...)
	noEnv := func(string) string { return "" }
	err := s.Program(ctx, args, noEnv, io.Discard, &processLog{sim: s, p: p}, p.link.dial)
	p.link.cut()

	s.mu.Lock()
	defer s.mu.Unlock()
	if p.isDead {
		return
	}
	s.recordLocked("%s ends: %v", p.host, err)
	lostLease := err != nil && s.elects() && strings.Contains(err.Error(), s.LeaseLost)
	if err != nil && !lostLease {
		s.breakRuleLocked(p, "ended with %v", err)
	}
	if p.isEnding {
		return
	}
	p.isEnding = true
	s.launchLater(p.slot, restartDelay)
}

// launchLater starts a process in a slot after a while.
func (s *sim) launchLater(slot int, after time.Duration) {
	s.running.Go(func() {
		<-time.After(after)
		s.launch(slot)
	})
}

// stopProcess asks the process in a slot to stop, and starts another one after a while.
func (s *sim) stopProcess(slot int, after time.Duration) {
	p, isNew := s.markEnding(slot, false)
	if !isNew {
		return
	}
	p.stop()
	s.launchLater(slot, after)
}

// killProcess kills the process in a slot, and starts another one after a while. Nothing that the killed process sends
// reaches the server.
func (s *sim) killProcess(slot int, after time.Duration) {
	p, isNew := s.markEnding(slot, true)
	if !isNew {
		return
	}
	s.disturb(p, (*link).die)
	p.stop()
	s.launchLater(slot, after)
}

// markEnding notes that the process in a slot ends. isNew is false if it was ending already.
func (s *sim) markEnding(slot int, kill bool) (p *proc, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = s.slots[slot]
	isNew = !p.isEnding
	p.isEnding = true
	p.isDead = p.isDead || kill
	return p, isNew
}

// disturb changes the network of a process. What the server has sent at this very moment may be lost.
func (s *sim) disturb(p *proc, do func(*link)) {
	do(p.link)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(p.knows, func(_ string, known *knowledge) bool { return known.at.Equal(now) })
	maps.DeleteFunc(p.writeAnsweredAt, func(_ string, at time.Time) bool { return at.Equal(now) })
}

// eachProcess calls do for the newest process of each slot.
func (s *sim) eachProcess(do func(*proc)) {
	s.mu.Lock()
	all := slices.Clone(s.slots)
	s.mu.Unlock()
	for _, p := range all {
		do(p)
	}
}

// drawProcess draws one of the newest processes.
func (s *sim) drawProcess() *proc {
	i := s.dice.IntN(len(s.slots))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[i]
}
