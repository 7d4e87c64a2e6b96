package sim

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// rate is a fault that disturbs a process for minutes, but lets some requests through all that time.
type rate struct {
	name  string
	begin func(*sim) // starts the fault, which endFaults ends

	// What must hold while it lasts.

	maxAge            time.Duration // each label and status shows a number that was right at most this long ago
	maxPerSecond      int           // the highest number of requests in a second
	maxReadsPerMinute float64       // the highest number of lists, watches and discoveries in a minute, on average
	maxLists          int           // the highest number of lists of one resource, tries that fail included
}

const (
	// rateDuration is how long each rate lasts. After half of it, the watches end, and the process must list under the
	// rate.
	rateDuration = 3 * time.Minute

	// The cluster of the rates.
	rateNodes = 50
	ratePods  = 2000
)

// rates returns all rates. Their limits follow from the cluster, and from the flags: an interval of 10 s, and the
// defaults for the writes.
//   - A new number waits for up to 10 s until its node may be written to again. Ages are measured every 5 s.
//   - In a second, at most 40 writes and 50 Events are sent, because these are the bursts, and a few reads.
//   - In a minute, discovery sends up to 8 reads. A watch ends once by itself, so 3 watches and lists make 6 reads.
func rates() []rate {
	return []rate{
		{
			// The list, and the watch after it, are refused at most 3 times each. Three of these waits take at most 2 s,
			// and then three backoffs at most 12 s. A write is refused at most 3 times, too, and waits for up to 2 s
			// each time.
			name:              "half of all answers are 429",
			begin:             (*sim).refuseHalf,
			maxAge:            40 * time.Second,
			maxPerSecond:      100,
			maxReadsPerMinute: 16,
			maxLists:          4,
		},
		{
			// Four workers need 65 s to write to all 51 nodes. The list and the watch take 5 s each.
			name:              "every answer is 5 s late",
			begin:             (*sim).delayAll,
			maxAge:            90 * time.Second,
			maxPerSecond:      100,
			maxReadsPerMinute: 10,
			maxLists:          1,
		},
		{
			// The compressed list of pods has 273 kB, and takes 14 s. Events of watches, writes and their answers share
			// the network with it.
			name:              "the network carries 20 kB/s",
			begin:             func(s *sim) { s.slots[0].link.setSpeed(20_000) },
			maxAge:            35 * time.Second,
			maxPerSecond:      100,
			maxReadsPerMinute: 10,
			maxLists:          1,
		},
		{
			// Each of the three watches ends twice a minute, and goes on at once.
			name:              "each connection is cut after 30 s",
			begin:             func(s *sim) { s.cutOldConnections(s.slots[0], 30*time.Second) },
			maxAge:            15 * time.Second,
			maxPerSecond:      100,
			maxReadsPerMinute: 18,
			maxLists:          1,
		},
	}
}

// CheckRates checks that the program survives each rate, in a cluster of 50 nodes and 2,000 pods that come and go.
// While a rate lasts, the labels follow the pods, with few requests. After it, everything becomes right within the
// bound of the simulation, and then nothing is written. CheckRates logs how old the labels were, and how many requests
// there were.
func CheckRates(t *testing.T, o Options) {
	for _, r := range rates() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { r.check(t, o) })
		})
	}
}

func (r rate) check(t *testing.T, o Options) {
	s := newRateSim(t, o)
	s.launch(0)
	settle(30 * time.Second)
	s.checkRight("before the rate")

	tr := s.newTruth()
	began := time.Now()
	r.begin(s)
	oldest := s.liveUnder(r, tr)
	s.endWatchesForGood()
	oldest = max(oldest, s.liveUnder(r, tr))
	s.checkRequests(r, began)
	s.calm()
	t.Logf("a label was at most %v old; the last write came %v after the rate", oldest, s.stats.slowest)
	s.end()
	for _, rule := range s.broken {
		t.Error(rule)
	}
}

// liveUnder lets pods come and go for half of the time of a rate. Every 5 s, it checks the age of each label and
// status. It returns the highest age.
func (s *sim) liveUnder(r rate, tr *truth) (oldest time.Duration) {
	end := time.Now().Add(rateDuration / 2)
	for time.Now().Before(end) && !s.hasBroken() {
		s.churn(tr)
		settle(5 * time.Second)
		description, age := s.oldest(tr)
		oldest = max(oldest, age)
		if age > r.maxAge {
			s.fail("%s, which was right %v ago, and so is older than %v", description, age, r.maxAge)
		}
	}
	return oldest
}

// endWatchesForGood breaks all watches, none of which can resume: the next version comes after a gap, and the history
// before it is gone.
func (s *sim) endWatchesForGood() {
	s.fake.SetVersion(s.fake.Latest() + 1)
	s.fake.Compact()
	s.fake.BreakWatches()
}

// fail is failLocked for a caller that has not locked mu.
func (s *sim) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(format, args...)
}

// newRateSim returns a simulation of one process, with the flags and the cluster of the rates.
func newRateSim(t *testing.T, o Options) *sim {
	s := newPlainSim(t, o, 1)
	s.args = append(s.args, "-node-label", o.OwnPodsLabel)
	s.labelsEachNode = true
	s.fake.AddNode("n0", s.ControlPlaneLabel)
	for i := 1; i <= rateNodes; i++ {
		s.fake.AddNode(fmt.Sprint("n", i))
	}
	fixture.AddCount(s.fake, "web", fmt.Sprintf(`{"name":"web","count":%d}`, ratePods))
	for i := range ratePods {
		s.addRatePod(fmt.Sprint("pod-", i))
	}
	return s
}

// newPlainSim returns a simulation of some processes that have the same few flags, and use plain HTTP. It has no
// faults, and nothing is drawn for it.
func newPlainSim(t *testing.T, o Options, processes int) *sim {
	s := emptySim(t, o)
	s.access = plainAccess(t)
	s.serve()
	s.flags = flags{
		args:       []string{"-interval", "10s", "-pod-events", "off"},
		interval:   10 * time.Second,
		selects:    func(fakekube.Object) bool { return true },
		runsCounts: true,
	}
	s.slots = make([]*proc, processes)
	fixture.InstallCRD(s.fake, &fixture.CRD{HasStatus: true})
	return s
}

// addRatePod adds a pod on some node, and returns the node. An annotation makes the pod as large as a usual one after
// compression.
func (s *sim) addRatePod(name string) (node string) {
	node = fmt.Sprint("n", 1+s.dice.IntN(rateNodes))
	filler := make([]byte, 100)
	for i := range filler {
		filler[i] = byte(s.dice.Uint32())
	}
	s.fake.Put("pods", fakekube.PodOn(fakekube.Object{
		"namespace":   "default",
		"name":        name,
		"labels":      fakekube.Object{"app": "web"},
		"annotations": fakekube.Object{"example.com/filler": hex.EncodeToString(filler)},
	}, node))
	return node
}

// truth knows what each label and status should be, and what it should have been before.
type truth struct {
	pods    int
	perNode map[string]int
	right   map[string]string      // by the name of the label or status
	past    map[string][]pastValue // by the same names, the oldest value first
}

// pastValue is what a label or status should have been until a time.
type pastValue struct {
	value string
	until time.Time
}

// newTruth returns the truth about the cluster as it is.
func (s *sim) newTruth() *truth {
	right, _ := s.labelsAndStatuses(s.look())
	tr := &truth{perNode: map[string]int{}, right: right, past: map[string][]pastValue{}}
	for _, pod := range s.fake.All("pods") {
		tr.pods++
		tr.perNode[nodeOf(pod)]++
	}
	return tr
}

// addPods notes that a node has got n pods, or has lost some if n is negative.
func (tr *truth) addPods(node string, n int) {
	tr.pods += n
	tr.perNode[node] += n
	tr.set(nameOfTotal("n0"), strconv.Itoa(tr.pods))
	tr.set(nameOfOwnPods(node), strconv.Itoa(tr.perNode[node]))
	web := nameOfStatus(key{Namespace: "default", Name: "web"})
	tr.set(web, fmt.Sprint(tr.pods == ratePods, " ", tr.pods, " 1")) // in the form of addStatuses
}

// set notes that a value is right from now on, instead of another one.
func (tr *truth) set(name, value string) {
	tr.past[name] = append(tr.past[name], pastValue{tr.right[name], time.Now()})
	tr.right[name] = value
}

// neverRight is the age of a value that never was right.
const neverRight = 10000 * time.Hour

// age returns how long ago a value was right, which is 0 for a value that is right now.
func (tr *truth) age(name, value string) time.Duration {
	if value == tr.right[name] {
		return 0
	}
	for _, p := range slices.Backward(tr.past[name]) {
		if p.value == value {
			return time.Since(p.until)
		}
	}
	return neverRight
}

// churn removes or adds ten pods at once. There are a tenth more names than pods at the start, so both happen.
func (s *sim) churn(tr *truth) {
	const names = ratePods * 11 / 10
	for range 10 {
		k := key{Namespace: "default", Name: fmt.Sprint("pod-", s.dice.IntN(names))}
		pod := s.fake.Get("pods", k)
		if pod != nil {
			s.fake.Remove("pods", k)
			tr.addPods(nodeOf(pod), -1)
			continue
		}
		node := s.addRatePod(k.Name)
		tr.addPods(node, 1)
	}
}

// oldest returns the label or status that is outdated for the longest time, in words, and its age.
func (s *sim) oldest(tr *truth) (description string, age time.Duration) {
	_, actual := s.labelsAndStatuses(s.look())
	for name, value := range actual {
		ageOfThis := tr.age(name, value)
		if ageOfThis > age {
			age = ageOfThis
			description = fmt.Sprintf("%s is %q instead of %q", name, value, tr.right[name])
		}
	}
	return description, age
}

// checkRequests checks how many requests there were since the rate began.
func (s *sim) checkRequests(r rate, began time.Time) {
	all := s.requestsSince(began)
	peak := peakPerSecond(all)
	lists := map[string]int{} // by resource
	reads := 0
	for _, q := range all {
		if q.Method == http.MethodGet {
			reads++
		}
		if isListOf(q.Resource)(q) {
			lists[q.Resource]++
		}
	}
	readsPerMinute := float64(reads) / rateDuration.Minutes()
	s.t.Logf("%d requests, at most %d in a second; %.1f reads a minute; lists: %v",
		len(all), peak, readsPerMinute, lists)
	if peak > r.maxPerSecond {
		s.fail("sends %d requests in a second, more than %d", peak, r.maxPerSecond)
	}
	if readsPerMinute > r.maxReadsPerMinute {
		s.fail("sends %.1f reads a minute, more than %.1f", readsPerMinute, r.maxReadsPerMinute)
	}
	for _, resource := range s.resources() {
		if lists[resource] < 1 || lists[resource] > r.maxLists {
			s.fail("lists %s %d times, which is not between 1 and %d", resource, lists[resource], r.maxLists)
		}
	}
}

// requestsSince returns the requests of all processes since a time.
func (s *sim) requestsSince(start time.Time) []fakekube.Request {
	return fixture.Requests(s.fake, func(q fakekube.Request) bool { return !q.At.Before(start) })
}

// peakPerSecond returns the highest number of requests in a second.
func peakPerSecond(requests []fakekube.Request) (peak int) {
	perSecond := map[int64]int{} // by Unix time
	for _, q := range requests {
		second := q.At.Unix()
		perSecond[second]++
		peak = max(peak, perSecond[second])
	}
	return peak
}

// delayAll makes every answer 5 s late.
func (s *sim) delayAll() {
	s.fake.InjectUnchecked(fakekube.Fault{Times: fakekube.Always, Delay: 5 * time.Second})
	s.extendBound(5 * time.Second)
}

// refuseHalf refuses half of all requests with a 429, but none more than three times in a row. The same coin as in each
// other run decides: it depends only on the verb, on the path, and on how often both were requested before.
func (s *sim) refuseHalf() {
	tooMany := tooManyRequests()
	coins := map[string]*coin{} // by verb and path
	fault := tooMany.outcome.fault
	fault.Times = fakekube.Always
	fault.Met = func(q fakekube.Request) { s.noteOutcome(q, tooMany) }
	fault.On.If = func(q fakekube.Request) bool { // The fake is locked, so coins needs no lock of its own.
		call := q.Verb + " " + q.Path
		if coins[call] == nil {
			coins[call] = newCoin(call)
		}
		return coins[call].flip()
	}
	s.fake.InjectUnchecked(fault)
}

// coin shows heads half of the time, but never more than three times in a row.
type coin struct {
	dice  *rand.Rand
	heads int // in a row
}

// newCoin returns a coin whose results depend only on a name.
func newCoin(name string) *coin {
	hash := fnv.New64()
	hash.Write([]byte(name))
	return &coin{dice: rand.New(rand.NewPCG(hash.Sum64(), 0))}
}

func (c *coin) flip() (isHeads bool) {
	isHeads = c.dice.IntN(2) == 0 && c.heads < 3
	if isHeads {
		c.heads++
	} else {
		c.heads = 0
	}
	return isHeads
}
