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

// proc is one process of the program, from its start to its end. The simulation's lock guards it.
type proc struct {
	slot  int
	host  string // as it calls the server
	link  *link
	began time.Time
	stop  context.CancelFunc

	isEnding bool // for whatever reason: another one follows
	isDead   bool // it was killed: nothing of it matters any more

	hearings map[string]*hearing   // by resource
	knows    map[string]*knowledge // by resource and key
	unsure   map[string]int        // versions that it may have heard of, by resource and key
	isBlind  map[string]bool       // resources of which it may know better, or worse, than what it is told

	hasList   map[string]bool      // resources of which it got a complete list
	wrote     map[string]time.Time // when it last had an answer to a write, by resource, key and uid
	mustWait  map[string]time.Time // until when, by method and path: the server has said so
	busy      map[string]int       // requests by verb and path within busySince
	busySince int64                // a second, in Unix time
	leaseSent time.Time            // when it last asked for the lease
}

// restartPause is the time after which a process that has ended by itself is started again, as a kubelet would.
const restartPause = 2 * time.Second

// launch starts a process in a slot, unless the simulation is over.
func (s *sim) launch(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	ctx, stop := context.WithCancel(s.t.Context())
	p := &proc{
		slot:     slot,
		host:     fmt.Sprintf("r%d-%d:1", slot, len(s.byHost)),
		link:     &link{net: s.net, wires: map[*wire]bool{}},
		began:    time.Now(),
		stop:     stop,
		hearings: map[string]*hearing{},
		knows:    map[string]*knowledge{},
		unsure:   map[string]int{},
		isBlind:  map[string]bool{},
		hasList:  map[string]bool{},
		wrote:    map[string]time.Time{},
		mustWait: map[string]time.Time{},
		busy:     map[string]int{},
	}
	for _, resource := range s.resources() {
		p.hearings[resource] = &hearing{unsaid: map[int]int{}}
	}
	s.slots[slot] = p
	s.byHost[p.host] = p
	s.sayLocked("%s starts", p.host)
	s.running.Go(func() { s.runProcess(ctx, p) })
}

// resources are those that the controllers read.
func (s *sim) resources() []string {
	if s.runsCounts {
		return []string{"pods", "nodes", "counts"}
	}
	return []string{"pods", "nodes"}
}

// runProcess runs a process to its end.
func (s *sim) runProcess(ctx context.Context, p *proc) {
	// -v 4: each event of a watch is logged.
	args := append([]string{"-master", "http://" + p.host, "-v", "4", "-log-format", "json"}, s.args...)
	noEnv := func(string) string { return "" }
	err := s.Program(ctx, args, noEnv, io.Discard, &processLog{sim: s, p: p}, p.link.dial)
	p.link.cut()

	s.mu.Lock()
	defer s.mu.Unlock()
	if p.isDead {
		return
	}
	s.sayLocked("%s ends: %v", p.host, err)
	lostLease := err != nil && s.elects() && strings.Contains(err.Error(), s.LeaseLost)
	if err != nil && !lostLease {
		s.breakLocked(p, "ended with %v", err)
	}
	if p.isEnding {
		return
	}
	p.isEnding = true
	s.launchLater(p.slot, restartPause)
}

// launchLater starts a process in a slot after a while.
func (s *sim) launchLater(slot int, after time.Duration) {
	s.running.Go(func() {
		<-time.After(after)
		s.launch(slot)
	})
}

// stopProcess asks the process in a slot to stop. Another one follows.
func (s *sim) stopProcess(slot int, after time.Duration) {
	p, isNew := s.endProcess(slot, false)
	if !isNew {
		return
	}
	p.stop()
	s.launchLater(slot, after)
}

// killProcess kills the process in a slot: nothing of it reaches the server from now on. Another one follows.
func (s *sim) killProcess(slot int, after time.Duration) {
	p, isNew := s.endProcess(slot, true)
	if !isNew {
		return
	}
	s.disturb(p, (*link).die)
	p.stop()
	s.launchLater(slot, after)
}

// endProcess notes that the process in a slot ends. isNew says that it was not ending before.
func (s *sim) endProcess(slot int, kill bool) (p *proc, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = s.slots[slot]
	isNew = !p.isEnding
	p.isEnding = true
	p.isDead = p.isDead || kill
	return p, isNew
}

// disturb does something to the way of a process: what it was told in this very moment may not have arrived.
func (s *sim) disturb(p *proc, do func(*link)) {
	do(p.link)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(p.knows, func(_ string, known *knowledge) bool { return known.at.Equal(now) })
	maps.DeleteFunc(p.wrote, func(_ string, at time.Time) bool { return at.Equal(now) })
}

// each does something to the newest process of each slot.
func (s *sim) each(do func(*proc)) {
	s.mu.Lock()
	all := slices.Clone(s.slots)
	s.mu.Unlock()
	for _, p := range all {
		do(p)
	}
}

// one draws a process.
func (s *sim) one() *proc {
	i := s.dice.IntN(len(s.slots))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[i]
}
