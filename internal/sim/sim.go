package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
)

// step is something that happens in a simulated cluster, good or bad.
type step struct {
	name string

	// weight is how often the step is drawn, in proportion to the others.
	weight int

	// do makes it happen, and returns a description for the story, or "" if nothing has happened.
	do func(*sim) string
}

// sim is the simulation of one seed. It is the fake's spy.
type sim struct {
	// What is simulated.
	Options
	flags
	t    *testing.T
	fake *fakekube.Server
	net  *fakekube.Network

	// What the seed brings. Only the goroutine of run uses these fields.
	dice   *rand.Rand
	faults []step // those that this seed has
	backup func() // restores the backup; nil if there is none
	script []string

	began   time.Time
	running sync.WaitGroup // the processes, and what happens later

	// mu guards all fields below, and all processes. It may be locked while the fake is locked, but not the other way
	// round.
	mu sync.Mutex

	// What is reported in the end.
	story  []string
	broken []string // the rules that were broken, each in words
	stats  Stats
	totals totals

	// The processes.
	isOver         bool             // no process starts any more
	slots          []*proc          // the newest process of each slot
	byHost         map[string]*proc // every process, those that have ended too
	killNextWriter bool             // the next process that has patched a node is killed

	// What has happened in the cluster.
	history     map[string][]fakekube.Change // by resource, without what a restored backup has undone
	newest      int                          // the newest version
	extraBound  time.Duration                // what the faults since the last calm add to the bound
	lastWriteAt time.Time

	// The election.
	leaseRenewed  time.Time         // when the lease last changed
	leaseTampered time.Time         // when a fault last changed it, so that its holder may be wrong for a while
	leaderHost    string            // the process that last got the lease
	leaderSentAt  time.Time         // when that process sent its request
	hostOf        map[string]string // processes, by their identity in the lease
}

// Run simulates one seed in virtual time, and fails the test if a rule was broken. Several tests may call it at the
// same time, but not from within a bubble of testing/synctest.
func Run(t *testing.T, o Options) Result {
	result := Simulate(t, o)
	if len(result.Broken) > 0 {
		first := strings.Join(result.Broken[:min(len(result.Broken), 5)], "\n")
		t.Errorf("seed %d: %s\n%s\nseed %d: %s\n%s",
			o.Seed, result.Broken[0], result.Story, o.Seed, first, o.Rerun(o.Seed))
	}
	return result
}

// Simulate is Run for a test that expects broken rules. It returns them and does not fail the test.
func Simulate(t *testing.T, o Options) (result Result) {
	missing := o.missing()
	if len(missing) > 0 {
		panic("sim.Options lacks " + strings.Join(missing, ", "))
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, o)
		s.run()
		result = s.end()
	})
	return result
}

// newSim draws what a seed begins with.
func newSim(t *testing.T, o Options) *sim {
	dice := rand.New(rand.NewPCG(o.Seed, 0))
	s := &sim{
		Options: o,
		t:       t,
		fake:    fakekube.New(),
		dice:    dice,
		began:   time.Now(),
		byHost:  map[string]*proc{},
		history: map[string][]fakekube.Change{},
		hostOf:  map[string]string{},
	}
	s.fake.Spy = s
	s.net = s.fake.ServeIn(t)
	s.fake.Bookmarks = pick(dice, time.Minute, time.Minute, time.Minute, 0)
	s.flags = drawFlags(dice, o.OwnPodsLabel)
	s.slots = make([]*proc, pick(dice, 1, 1, 1, 1, 2, 3))
	s.drawElection(dice)
	for _, fault := range faultSteps() {
		if dice.IntN(3) == 0 {
			s.faults = append(s.faults, fault)
		}
	}
	return s
}

// run lets the cluster live until its time is over or a rule is broken.
func (s *sim) run() {
	faulty := pick(s.dice, 0.1, 0.3, 0.6)
	s.fake.InstallCRD(&fakekube.CRD{HasStatus: s.dice.IntN(4) > 0})
	s.fake.AddNode("n0", s.ControlPlaneLabel)
	for range 30 {
		s.step(lifeSteps)
	}
	for i := range s.slots {
		s.launch(i)
	}
	total := 2 * time.Hour
	gap := 3 * time.Minute // the longest time between two steps
	if s.Seed%50 == 0 {
		total = 24 * time.Hour
		gap = 10 * time.Minute
	}
	for time.Since(s.began) < total && !s.hasBroken() {
		s.live(s.drawDuration(span{2 * gap, 20 * gap}), gap, faulty)
		if s.hasBroken() {
			return
		}
		s.flurry()
		s.calm()
	}
}

// live takes steps for a time d, with at most gap between two of them. faulty is the share of faults, from 0 to 1.
func (s *sim) live(d, gap time.Duration, faulty float64) {
	calm := time.Now().Add(d)
	for time.Now().Before(calm) && !s.hasBroken() {
		isFault := s.dice.Float64() < faulty && len(s.faults) > 0
		s.count(isFault)
		if isFault {
			s.step(s.faults)
		} else {
			s.step(lifeSteps)
		}
		<-time.After(s.drawDuration(span{50 * time.Millisecond, gap}))
	}
}

// step draws one of the steps and executes it.
func (s *sim) step(of []step) {
	sum := 0
	for _, step := range of {
		sum += step.weight
	}
	n := s.dice.IntN(sum)
	i := slices.IndexFunc(of, func(step step) bool {
		n -= step.weight
		return n < 0
	})
	what := of[i].do(s)
	if what == "" {
		return
	}
	s.log("%s", what)
	s.script = append(s.script, fmt.Sprint(time.Since(s.began), " ", what))
}

func (s *sim) count(isFault bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.changes++
	if isFault {
		s.stats.faults++
	}
}

// end stops all processes and returns the result.
func (s *sim) end() Result {
	s.mu.Lock()
	s.isOver = true
	for _, p := range s.byHost {
		p.stop()
	}
	s.mu.Unlock()
	s.running.Wait()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.simulated = time.Since(s.began)
	s.stats.seeds = 1
	if len(s.broken) == 0 {
		s.checkTotalsLocked()
	}
	return Result{Stats: s.stats, Script: s.script, Broken: s.broken, Story: s.storyLocked()}
}

// later calls do after a while, unless the test has ended by then.
func (s *sim) later(d time.Duration, do func()) {
	s.running.Go(func() {
		if s.pause(d) {
			do()
		}
	})
}

// pause waits. It returns false if the test has ended in the meantime.
func (s *sim) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-s.t.Context().Done():
	}
	return s.t.Context().Err() == nil
}
