package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
)

// Program is the program under simulation, from its flags to its end, which comes soon after that of ctx: as a process
// is asked to stop by a signal. It reaches the server through dial alone, starts nothing that outlives it, and is run
// several times at once. Its log goes to stderr.
//
// It gets the flags -master with a URL over plain http, -v 4, -log-format json, -interval, -wire and -pod-events. Some
// seeds also give it -node-label, -pod-selector, -field-selector, -namespace, -controllers and the four that begin with
// -leader-elect.
type Program func(
	ctx context.Context,
	args []string,
	getenv func(string) string,
	stdout, stderr io.Writer,
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
) error

// Options say what is simulated, and what the program promises.
//
// All but Seed and WholeStory must be set: Simulate panics where one is missing, as a check would pass for lack of it.
// The durations are promises, as the program's real constants are, jitter included. From them comes the bound, the time
// within which all must be right once all faults have stopped:
//
//	LongestBackoff + the interval + 10 s for the writes + 2 × LongestDiscovery
//	+ with an election, its lease's duration and renew deadline
//	+ the longest that a fault since the last calm has made necessary: how long it goes on by itself,
//	  Silence where a connection fell silent, LongestUnlisted where a change was lost
//
// Too long a bound hides mistakes, too short a one finds some where there are none.
type Options struct {
	// Program is what is simulated.
	Program Program

	// Name is what the program is called in the story.
	Name string

	// Rerun says, for people, how to run one seed once more, and how to see its whole story.
	Rerun func(seed uint64) string

	// Seed chooses the flags, the cluster's life and its faults. RunSeeds sets it.
	Seed uint64

	// WholeStory shows all that happened when a seed fails, not just the end.
	WholeStory bool

	// TotalLabel is the node label that shows how many pods there are.
	TotalLabel string

	// OwnPodsLabel is the node label that shows how many pods the node itself has. Some seeds give it as -node-label.
	OwnPodsLabel string

	// ControlPlaneLabel marks the nodes that show the total.
	ControlPlaneLabel string

	// LeaseNamespace and LeaseName are those of the lease by which processes elect a leader.
	LeaseNamespace, LeaseName string

	// LeaseLost is part of the error with which a process ends that has lost its lease. Where processes elect a leader,
	// this error breaks no rule. Any other does.
	LeaseLost string

	// LongestBackoff is the longest time between two tries at the same thing, with jitter. It is part of the bound: a
	// try may have failed in the moment before all faults stopped.
	LongestBackoff time.Duration

	// LongestDiscovery is the longest time between two questions for a resource that may not be installed, with
	// jitter. It is part of the bound twice, as it takes two to know that one is gone.
	LongestDiscovery time.Duration

	// Silence is how long a connection may be silent before it is taken for dead. It is part of the bound, with 5 s
	// on top, after a fault that nobody is told of.
	Silence time.Duration

	// LongestUnlisted is the longest time between two lists of a resource that is being watched, also where the first
	// try at the second one fails. A change that no watch tells of stays unknown for so long, so that it is part of
	// the bound after such a change, and after a backup was restored.
	LongestUnlisted time.Duration

	// StatusRest is the least time between two writes to the status of one Count, where the interval is not less. A
	// write that comes sooner breaks a rule. Between two writes to one node, that is the interval.
	StatusRest time.Duration
}

// missing are the names of those that must be set and are not.
func (o Options) missing() []string {
	mayBeZero := []string{"Seed", "WholeStory"}
	var names []string
	options := reflect.ValueOf(o)
	for i := range options.NumField() {
		name := options.Type().Field(i).Name
		if options.Field(i).IsZero() && !slices.Contains(mayBeZero, name) {
			names = append(names, name)
		}
	}
	return names
}

// Result is what became of a seed.
type Result struct {
	// Stats are the seed's numbers.
	Stats Stats

	// Script is the life and the faults that the seed brought, a line each, and when.
	Script []string

	// Broken are the rules that were broken, in the order in which that was noticed. Where it was one process that broke
	// a rule, its name comes first; what is wrong with the cluster or with the whole seed names none.
	Broken []string

	// Story is what led to the first of them: what the seed brought, what processes asked and logged.
	Story string
}

// Stats are numbers of what was seen, in one seed or several: that much has been held against the rules. They are for
// people: String has all of them.
type Stats struct {
	seeds     int
	changes   int // of the cluster's life, and faults
	faults    int
	requests  int
	writes    int
	watches   int // that processes said they had begun
	events    int // that processes said they had heard, bookmarks too
	calms     int // times that all faults stopped
	simulated time.Duration
	slowest   time.Duration // the last write after all faults had stopped
}

func (s *Stats) add(o Stats) {
	s.seeds += o.seeds
	s.changes += o.changes
	s.faults += o.faults
	s.requests += o.requests
	s.writes += o.writes
	s.watches += o.watches
	s.events += o.events
	s.calms += o.calms
	s.simulated += o.simulated
	s.slowest = max(s.slowest, o.slowest)
}

// String is one sentence of all the numbers.
func (s Stats) String() string {
	return fmt.Sprintf("%d seeds, %.0f simulated hours: %d changes, %d of them faults; %d requests, %d writes, "+
		"%d watches with %d events held against the rules; "+
		"%d times all faults stopped, the last write was %v later at most",
		s.seeds, s.simulated.Hours(), s.changes, s.faults, s.requests, s.writes,
		s.watches, s.events, s.calms, s.slowest.Round(time.Millisecond))
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

// flags are the flags that a seed chooses, and what they mean.
type flags struct {
	args           []string
	interval       time.Duration
	selects        func(pod fakekube.Object) bool
	namespace      string // whose pods are counted; "": all of them
	labelsEachNode bool   // with the number of its own pods
	runsCounts     bool   // the controller count runs
	leaseDuration  time.Duration
	renewDeadline  time.Duration // 0, as the duration, without an election
}

// elects reports whether processes elect a leader.
func (o flags) elects() bool { return o.leaseDuration > 0 }

// drawFlags chooses the flags of all processes. ownPodsLabel is for -node-label.
func drawFlags(dice *rand.Rand, ownPodsLabel string) flags {
	o := flags{selects: func(fakekube.Object) bool { return true }}
	o.interval = pick(dice, time.Second, 10*time.Second, 10*time.Second, 30*time.Second)
	o.args = []string{"-interval", o.interval.String()}
	o.args = append(o.args, "-wire", pick(dice, "protobuf", "protobuf", "json"))
	o.args = append(o.args, "-pod-events", pick(dice, "on", "off", "off", "off"))
	o.labelsEachNode = dice.IntN(2) == 0
	if o.labelsEachNode {
		o.args = append(o.args, "-node-label", ownPodsLabel)
	}
	switch dice.IntN(6) {
	case 0:
		o.args = append(o.args, "-pod-selector", "app in (web,none)")
		o.selects = func(pod fakekube.Object) bool {
			app := labelOf(pod, "app")
			return app == "web" || app == "none"
		}
	case 1:
		o.args = append(o.args, "-field-selector", "spec.nodeName!=")
		o.selects = func(pod fakekube.Object) bool { return nodeOf(pod) != "" }
	case 2:
		o.args = append(o.args, "-namespace", "default")
		o.namespace = "default"
	}
	o.runsCounts = dice.IntN(2) > 0
	if !o.runsCounts {
		o.args = append(o.args, "-controllers", "pod-count")
	}
	return o
}

// drawElection chooses whether processes elect a leader, and how fast.
func (o *flags) drawElection(dice *rand.Rand) {
	if dice.IntN(2) > 0 {
		return
	}
	type times struct{ duration, deadline, retry time.Duration }
	short := times{15 * time.Second, 10 * time.Second, 2 * time.Second}
	middle := times{60 * time.Second, 40 * time.Second, 10 * time.Second}
	long := times{120 * time.Second, 80 * time.Second, 20 * time.Second}
	chosen := pick(dice, short, middle, long, long, long)
	o.leaseDuration = chosen.duration
	o.renewDeadline = chosen.deadline
	o.args = append(o.args, "-leader-elect",
		"-leader-elect-lease-duration", chosen.duration.String(),
		"-leader-elect-renew-deadline", chosen.deadline.String(),
		"-leader-elect-retry-period", chosen.retry.String())
}

func labelOf(o fakekube.Object, key string) string {
	labels, _ := fakekube.MetaOf(o)["labels"].(fakekube.Object)
	return fakekube.TextIn(labels, key)
}

func nodeOf(pod fakekube.Object) string {
	spec, _ := pod["spec"].(fakekube.Object)
	return fakekube.TextIn(spec, "nodeName")
}

// pick draws one of several.
func pick[T any](dice *rand.Rand, of ...T) T { return of[dice.IntN(len(of))] }

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
