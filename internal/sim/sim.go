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

	// do makes it happen, and returns in words what it was, for the story; "": nothing.
	do func(*sim) string
}

// sim is the simulation of one seed. It is the fake's spy.
type sim struct {
	Options
	flags
	t       *testing.T
	fake    *fakekube.Server
	net     *fakekube.Network
	dice    *rand.Rand // the seed's: its loop alone draws from them
	faults  []step     // that this seed has
	backup  func()     // restores the backup; nil: none has been made
	began   time.Time
	script  []string // what the seed has brought, and when
	running sync.WaitGroup

	mu     sync.Mutex // guards all below, and all processes; taken after the fake's
	story  []string
	wrong  []string // rules that were broken
	over   bool     // no process starts any more
	stats  Stats
	heard  hearingTotals
	slots  []*proc          // the processes that run, or the last ones of those that will be followed by another
	byHost map[string]*proc // every one that ever was

	history map[string][]fakekube.Change // by resource, without what a restored backup has undone
	newest  int                          // version

	leaseRenewed  time.Time         // by whichever process
	leaseTampered time.Time         // by somebody else: for a moment the lease says nothing
	leaderHost    string            // which got the lease last
	leaderAsked   time.Time         // when it asked for that
	hostOf        map[string]string // by lease holder

	patience    time.Duration // beyond the usual bound, for what has happened since the last calm
	killsWriter bool          // the next process that gets the answer to a node's patch is killed
	wroteAt     time.Time
}

// Run simulates one seed, in virtual time, and makes the test fail if a rule was broken. It may be called by several
// tests at a time, but not within a bubble of testing/synctest.
func Run(t *testing.T, o Options) Result {
	result := Simulate(t, o)
	if len(result.Broken) > 0 {
		first := strings.Join(result.Broken[:min(len(result.Broken), 5)], "\n")
		t.Errorf("seed %d: %s\n%s\nseed %d: %s\n%s",
			o.Seed, result.Broken[0], result.Story, o.Seed, first, o.Rerun(o.Seed))
	}
	return result
}

// Simulate is Run for a test that expects broken rules: it returns them, and the test does not fail.
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

// newSim draws what a seed starts with.
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

// run is the life of the cluster.
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
	gap := 3 * time.Minute // between two steps, at most
	if s.Seed%50 == 0 {
		total = 24 * time.Hour
		gap = 10 * time.Minute
	}
	for time.Since(s.began) < total && !s.hasBroken() {
		s.live(s.some(span{2 * gap, 20 * gap}), gap, faulty)
		if s.hasBroken() {
			return
		}
		s.flurry()
		s.calm()
	}
}

// live takes one step after the other, for so long. faulty is how many of them are faults, from 0 to 1.
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
		<-time.After(s.some(span{50 * time.Millisecond, gap}))
	}
}

// step draws one of the steps, and does it.
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
	s.say("%s", what)
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

// end stops all processes, and returns what has been.
func (s *sim) end() Result {
	s.mu.Lock()
	s.over = true
	for _, p := range s.byHost {
		p.stop()
	}
	s.mu.Unlock()
	s.running.Wait()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.simulated = time.Since(s.began)
	s.stats.seeds = 1
	if len(s.wrong) == 0 {
		s.checkTotalsLocked()
	}
	return Result{Stats: s.stats, Script: s.script, Broken: s.wrong, Story: s.tellLocked()}
}

// later does something after a while, unless the test has ended by then.
func (s *sim) later(d time.Duration, do func()) {
	s.running.Go(func() {
		if s.pause(d) {
			do()
		}
	})
}

// pause waits. It returns false if the test has ended meanwhile.
func (s *sim) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-s.t.Context().Done():
	}
	return s.t.Context().Err() == nil
}
