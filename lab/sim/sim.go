package sim

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// sim is the simulation of one seed. It is the fake's spy.
type sim struct {
	// What is simulated.
	Options
	flags
	t      *testing.T
	fake   *fakekube.Server
	net    *fakekube.Network
	access *access

	// What the seed determines. Only the goroutine of run uses these fields.
	dice          *rand.Rand // those of the seed, or during a step, those of the step
	faults        []step     // the faults that can strike with this seed
	restoreBackup func()     // restores the last backup
	script        []string   // see Result

	// How far the seed has come. Only the goroutine of run uses these fields.
	stepNumber int           // the number of steps so far, including those that were left out
	taken      []takenStep   // the steps that have happened
	target     target        // what the present fault strikes
	faultLasts time.Duration // how long the present fault lasts; 0 if that is not known
	act        int           // the number of the present act; 0 before the processes start
	actBegan   time.Time     // when the act began

	began   time.Time      // when the simulation began
	running sync.WaitGroup // the processes, and the functions that run later

	// mu guards all fields below, and all processes. It may be locked while the fake is locked, but not the other way
	// round.
	mu sync.Mutex

	// What the result reports.
	story  []string
	broken []string // the rules that were broken, each in words
	rules  []string // the same rules, without the values in them
	stats  Stats
	totals totals

	recorder *recorder // nil unless Options.Recording is set

	files fileState // the files with the credential

	// The processes.
	isOver         bool             // no more processes may start
	slots          []*proc          // the newest process of each slot
	byHost         map[string]*proc // all processes, including those that have ended
	killNextWriter bool             // the next process that patches a node is killed after that

	// What has happened in the cluster.
	history     map[string][]fakekube.Change // by resource, without the changes that a restored backup has undone
	newest      int                          // the newest version
	mayDrift    map[string]bool              // the resources that were lied about, or whose changes were lost
	extraBound  time.Duration                // how much the faults since the last calm extend the bound
	lastWriteAt time.Time
	water       *water // nil while faults are possible

	heldAtStart     holding // before the first process starts
	heldAtFirstCalm holding // nil before that

	areWritesForbidden bool // nothing that matters has changed since all became right

	// The election.
	leaseChangedAt  time.Time
	leaseTamperedAt time.Time         // when a fault last changed the lease; its rules do not apply right after that
	leaderHost      string            // the process that last got the lease
	leaderSentAt    time.Time         // when that process sent its request
	hostOf          map[string]string // processes, by their identity in the lease
}

// Run simulates one seed in virtual time, and fails the test if a rule was broken. Several tests may call it at the
// same time, but not from within a bubble of testing/synctest.
func Run(t *testing.T, o Options) Result {
	result := Simulate(t, o)
	if len(result.Broken) > 0 {
		// The story is long, so the broken rules come again at its end.
		firstFew := strings.Join(result.Broken[:min(len(result.Broken), 5)], "\n")
		t.Errorf("seed %d: %s\n%s\nseed %d: %s\n%s",
			o.Seed, result.Broken[0], result.Story, o.Seed, firstFew, o.Rerun(o.Seed, o.Only))
	}
	return result
}

// Simulate is Run without failing the test, for tests that expect broken rules.
func Simulate(t *testing.T, o Options) (result Result) {
	if missing := o.missing(); len(missing) > 0 {
		panic("sim.Options lacks " + strings.Join(missing, ", "))
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, o)
		s.run()
		result = s.end()
	})
	return result
}

// newSim returns the simulation of a seed before it begins, with the flags, slots and faults that the seed draws.
func newSim(t *testing.T, o Options) *sim {
	s := emptySim(t, o)
	s.drawSetting()
	s.access = newAccess(t, o.Seed)
	s.recordPhase("the processes use %v", s.access)
	// Some seeds begin with high versions, which soon no longer fit into 32 bits, or get another digit.
	s.fake.SetVersion(pick(s.dice, 0, 0, math.MaxInt32-50, 999_999_999_999_900))
	s.serve()
	for _, fault := range faultSteps() {
		isDrawn := s.dice.IntN(3) == 0
		if isDrawn {
			s.faults = append(s.faults, fault)
		}
	}
	return s
}

// emptySim returns a simulation without flags, slots and faults. The caller must set access, and call serve.
func emptySim(t *testing.T, o Options) *sim {
	s := &sim{
		Options:  o,
		t:        t,
		fake:     fakekube.New(),
		dice:     seedDice(o.Seed),
		began:    time.Now(),
		actBegan: time.Now(),
		byHost:   map[string]*proc{},
		mayDrift: map[string]bool{},
		history:  map[string][]fakekube.Change{},
		hostOf:   map[string]string{},
	}
	if o.Recording != nil {
		s.recorder = newRecorder()
	}
	s.fake.Spy = s
	return s
}

// drawSetting draws what stays the same for the whole seed: the flags of the processes, how many there are, and how
// often the server sends bookmarks.
func (s *sim) drawSetting() {
	s.fake.Bookmarks = pick(s.dice, time.Minute, time.Minute, time.Minute, 0)
	s.flags = drawFlags(s.dice, s.OwnPodsLabel)
	s.slots = make([]*proc, pick(s.dice, 1, 1, 1, 1, 2, 3))
	s.drawElection(s.dice)
}

// run alternates between life with faults and calm, until the time is over or a rule is broken. A life and the calm
// after it are an act. How long a calm lasts depends on the faults that have struck. So only the lives count for the
// time, and the steps are the same in any case.
func (s *sim) run() {
	faultShare := pick(s.dice, 0.1, 0.3, 0.6)
	s.populate()
	s.heldAtStart = s.currentHolding()
	for i := range s.slots {
		s.launch(i)
	}
	left := s.lifetime()
	for left > 0 && !s.isOverEarly() {
		s.beginAct()
		d := s.drawDuration(span{2 * s.longestGap(), 20 * s.longestGap()})
		s.live(d, faultShare)
		left -= time.Since(s.actBegan)
		if s.hasBroken() {
			return
		}
		s.flurry()
		s.calm()
		if s.hasBroken() {
			return
		}
		s.calmWater()
		s.rewritesWithoutWrites()
		s.checkLeaks()
	}
}

// populate fills the cluster before the processes start, and makes the first backup.
func (s *sim) populate() {
	fixture.InstallCRD(s.fake, &fixture.CRD{HasStatus: s.dice.IntN(4) > 0})
	s.fake.AddNode("n0", s.ControlPlaneLabel)
	for range 30 {
		s.takeStep(lifeSteps)
	}
	s.restoreBackup = s.fake.Snapshot()
}

// lifetime returns how long all lives of the seed last together, at least.
func (s *sim) lifetime() time.Duration {
	if s.isLong() {
		return 20 * time.Hour
	}
	return 90 * time.Minute
}

// longestGap is the longest time between two steps of a life.
func (s *sim) longestGap() time.Duration {
	if s.isLong() {
		return 10 * time.Minute
	}
	return 3 * time.Minute
}

// isLong reports whether this is one of the few seeds that last so long that hourly work happens many times.
func (s *sim) isLong() bool { return s.Seed%50 == 0 }

// isOverEarly reports, after an act, whether a rule was broken, or no step of Options.Only is left.
func (s *sim) isOverEarly() bool {
	isLastStepTaken := s.Only != nil && s.Only.last() <= s.stepNumber
	return isLastStepTaken || s.hasBroken()
}

// beginAct begins the next act.
func (s *sim) beginAct() {
	s.act++
	s.actBegan = time.Now()
	s.recordPhase("act %d begins", s.act)
}

// live takes steps for d. faultShare is the share of faults among them, from 0 to 1.
func (s *sim) live(d time.Duration, faultShare float64) {
	end := time.Now().Add(d)
	for time.Now().Before(end) && !s.hasBroken() {
		isFault := s.dice.Float64() < faultShare && len(s.faults) > 0
		s.countStep(isFault)
		if isFault {
			s.takeStep(s.faults)
		} else {
			s.takeStep(lifeSteps)
		}
		<-time.After(s.drawDuration(span{50 * time.Millisecond, s.longestGap()}))
	}
}

// countStep adds a step to the statistics.
func (s *sim) countStep(isFault bool) {
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

	held := s.currentHolding()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.simulated = time.Since(s.began)
	s.stats.seeds = 1
	if len(s.broken) == 0 && s.Only == nil { // A few steps are too few to compare the totals.
		s.checkTotalsLocked()
	}
	if len(s.broken) == 0 && s.heldAtStart != nil {
		s.compareHoldingsLocked("before the first process started", s.heldAtStart, held, noConnectionSlack)
	}
	s.keepHistoryLocked()
	return Result{
		Stats:  s.stats,
		Script: s.script,
		Broken: s.broken,
		Story:  s.storyLocked(),
		taken:  s.taken,
		rules:  s.rules,
	}
}

// later calls do after d, unless the test has ended by then. It returns at once.
func (s *sim) later(d time.Duration, do func()) {
	s.running.Go(func() {
		if s.pause(d) {
			do()
		}
	})
}

// pause waits for d. It returns false, at once, if the test ends before that.
func (s *sim) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-s.t.Context().Done():
	}
	return s.t.Context().Err() == nil
}
