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

// proc is one process of the program, from its start to its end. sim.mu guards its fields.
type proc struct {
	slot  int    // numbers the processes that run side by side; when one has ended, the next one gets its slot
	host  string // the name by which only this process calls the server: its slot and a number, as in r0-2:1
	link  *link
	began time.Time
	stop  context.CancelFunc // asks it to stop

	isEnding bool // it has ended, or was stopped or killed; another process follows
	isDead   bool // it was killed, so no rule applies to it any more
	hasEnded bool // its function has returned

	// What it knows.
	progress   map[string]*progress  // by resource
	hasList    map[string]bool       // resources of which it has received a complete list
	knows      map[string]*knowledge // objects that it has received, by resource and key
	unsure     map[string]int        // the last version that may have been lost on its way, by resource and key
	mayBeStale map[string]bool       // resources of which it may still hold objects from before a restored backup

	// What it has sent.
	countedSecond    int64                    // the second that requestsInSecond is about, in Unix time
	requestsInSecond map[string]int           // the number of requests, by verb and path
	retryAfter       map[string]time.Time     // when it may repeat a request at the earliest, by retryKey
	writeAnsweredAt  map[string]time.Time     // when it last got an answer to a write, by resource, key and uid
	askedAt          map[string]time.Time     // when it last asked for the newest version, by resource
	leaseSentAt      time.Time                // when it last requested the lease
	refused          map[string]*unauthorized // the last 401, by request

	// electedAtVersion is the newest version of the cluster when it first got the lease. It is 0 before that, and again
	// after a restored backup, when the old versions have lost their meaning.
	electedAtVersion int
	hasLed           bool // it has got the lease
}

// restartDelay is the time after which a process is restarted that has ended by itself. In a real cluster, the kubelet
// restarts it.
const restartDelay = 2 * time.Second

// launch starts a new process in a slot, unless the simulation is over.
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
		askedAt:          map[string]time.Time{},
		requestsInSecond: map[string]int{},
		refused:          map[string]*unauthorized{},
	}
	for _, resource := range s.resources() {
		p.progress[resource] = &progress{unlogged: map[int]int{}}
	}
	s.slots[slot] = p
	s.byHost[p.host] = p
	s.recordLocked("%s starts", p.host)
	s.recordOwnLocked(p.lane(), ownStep{Point: pointStarts, Key: p.host})
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
	// With -v 4, the program logs each event of its watches.
	args := slices.Concat(s.access.argsFor(p.host), []string{"-v", "4", "-log-format", "json"}, s.args)
	noEnv := func(string) string { return "" }
	err := s.Program(s.attach(ctx, p), args, noEnv, io.Discard, &processLog{sim: s, p: p}, p.link.dial)
	p.link.close()

	s.mu.Lock()
	defer s.mu.Unlock()
	p.hasEnded = true
	if p.isDead {
		return
	}
	s.recordLocked("%s ends: %v", p.host, err)
	s.recordEndLocked(p, err)
	hasLostLease := err != nil && s.elects() && strings.Contains(err.Error(), s.LeaseLost)
	if err != nil && !hasLostLease && !s.mayRefuseFilesLocked(p) {
		s.breakRuleLocked(p, "ended with %v", err)
	}
	s.checkSecretsInLogLocked(p, []byte(fmt.Sprint(err))) // A process shows the error with which it ends.
	if p.isEnding {
		return
	}
	p.isEnding = true
	s.launchLater(p.slot, restartDelay)
}

// launchLater starts a process in a slot after d. It returns at once.
func (s *sim) launchLater(slot int, d time.Duration) {
	s.later(d, func() { s.launch(slot) })
}

// stopProcess asks the process in a slot to stop, and starts another one after d. It returns at once.
func (s *sim) stopProcess(slot int, d time.Duration) {
	p, wasEnding := s.markEnding(slot)
	if wasEnding {
		return
	}
	p.stop()
	s.launchLater(slot, d)
}

// killProcess kills the process in a slot, and starts another one after d. It returns at once. Nothing that the killed
// process sends from now on reaches the server.
func (s *sim) killProcess(slot int, d time.Duration) {
	p, wasEnding := s.markDead(slot)
	if wasEnding {
		return
	}
	s.disturb(p, (*link).die)
	p.stop()
	s.launchLater(slot, d)
}

// markEnding notes that the process in a slot ends. It returns the process, and whether it was ending already.
func (s *sim) markEnding(slot int) (p *proc, wasEnding bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.markEndingLocked(slot)
}

// markDead is markEnding for a process that is killed.
func (s *sim) markDead(slot int) (p *proc, wasEnding bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = s.slots[slot]
	if !p.isDead && !p.hasEnded {
		s.recordOwnLocked(p.lane(), ownStep{Point: pointEnds, Key: p.host, Type: "killed"})
	}
	p.isDead = true
	return s.markEndingLocked(slot)
}

func (s *sim) markEndingLocked(slot int) (p *proc, wasEnding bool) {
	p = s.slots[slot]
	wasEnding = p.isEnding
	p.isEnding = true
	return p, wasEnding
}

// disturb changes the network of a process.
func (s *sim) disturb(p *proc, change func(*link)) {
	change(p.link)
	s.forgetInFlight(p)
}

// forgetInFlight forgets what the server has sent to a process at this very moment, because it may be lost.
func (s *sim) forgetInFlight(p *proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(p.knows, func(_ string, known *knowledge) bool { return known.at.Equal(now) })
	maps.DeleteFunc(p.writeAnsweredAt, func(_ string, at time.Time) bool { return at.Equal(now) })
	for _, progress := range p.progress {
		if progress.unloggedAudit.Equal(now) {
			progress.unloggedAudit = time.Time{}
		}
	}
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

// drawProcess draws a slot, and returns its newest process.
func (s *sim) drawProcess() *proc {
	i := s.dice.IntN(len(s.slots))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[i]
}
