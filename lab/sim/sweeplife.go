package sim

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// sweptLife is one run of the swept life.
type sweptLife struct {
	*sim
	plan      lifePlan
	sweptCase *sweptCase // nil in the run that records the requests
	injection *fakekube.Injection

	truths   map[string]bool // what has ever been true, in the words of writtenBy
	rightAt  time.Time       // when everything was last seen to be right
	recovery time.Duration   // the longest time until everything was right again

	// sim.mu guards the fields below.
	stage     stage
	idleFrom  time.Time // when the idle stage began; the zero time before that
	idleUntil time.Time
	requests  map[string]int // how many came in this stage so far, by class
	struckAt  time.Time      // when the fault struck; the zero time before that
	recording []recordedRequest
}

// recordedRequest is a request of the undisturbed life.
type recordedRequest struct {
	place  place
	frames int // how many frames its answer had, without those that only repeated bookmarks
}

// runLife runs a swept life once, with the fault of a case. If c is nil, it records the requests instead.
func runLife(t *testing.T, o Options, plan lifePlan, c *sweptCase) (w *sweptLife, result Result) {
	synctest.Test(t, func(t *testing.T) {
		w = newSweptLife(t, o, plan)
		w.sweptCase = c
		w.run()
		result = w.end()
	})
	return w, result
}

func newSweptLife(t *testing.T, o Options, plan lifePlan) *sweptLife {
	w := &sweptLife{
		sim:      emptySim(t, o),
		plan:     plan,
		truths:   map[string]bool{},
		requests: map[string]int{},
	}
	w.flags = sweptFlags(plan, o.OwnPodsLabel)
	w.slots = make([]*proc, 1)
	w.access = sweptAccess(t)
	w.writeFile(caFile, string(w.access.serverCA.PEM()))
	w.net = fakekube.NewNetwork(&http.Server{
		Handler:   w.fake,
		TLSConfig: &tls.Config{GetCertificate: w.access.serverCertificate},
	})
	t.Cleanup(w.net.Close)
	return w
}

// sweptFlags returns the flags of the process.
func sweptFlags(plan lifePlan, ownPodsLabel string) flags {
	f := flags{
		args:           append([]string{"-interval", "1s", "-node-label", ownPodsLabel}, plan.args...),
		interval:       time.Second,
		selects:        func(fakekube.Object) bool { return true },
		labelsEachNode: true,
		runsCounts:     true,
	}
	if !plan.isWithoutElection {
		f.args = append(f.args, "-leader-elect") // with the default times
		f.leaseDuration = 15 * time.Second
		f.renewDeadline = 10 * time.Second
	}
	return f
}

// writeFile writes a file that the kubeconfig names.
func (w *sweptLife) writeFile(name, text string) {
	if err := os.WriteFile(filepath.Join(w.access.dir, name), []byte(text), 0o600); err != nil {
		w.t.Error(err)
	}
}

// setToken gives the process a new token. The server refuses all other tokens from now on.
func (w *sweptLife) setToken(token string) {
	w.writeFile(tokenFile, token)
	w.fake.Allow(token)
}

// run lives all stages, lets the process stop, and checks everything.
func (w *sweptLife) run() {
	w.inject()
	for _, next := range w.plan.stages {
		w.liveStage(next)
		if w.hasBroken() {
			return
		}
	}
	w.checkCalm()
	w.stopOrderly()
	w.checkWritesWereTrue()
	w.checkFaultWasMet()
}

// liveStage lives a stage, and checks at its end that everything is right.
func (w *sweptLife) liveStage(next stage) {
	w.begin(next)
	for _, step := range next.steps {
		w.noteRecovery()
		step(w)
		w.noteTruths()
		settle(stepPause)
	}
	settle(next.lasts)
	w.awaitFault()
	w.awaitRight()
}

// begin begins a stage.
func (w *sweptLife) begin(next stage) {
	w.record("stage %s", next.name)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stage = next
	if next.isIdle {
		w.idleFrom = time.Now()
		w.idleUntil = w.idleFrom.Add(next.lasts)
	}
	clear(w.requests)
}

// inject injects the fault, or the recorder.
func (w *sweptLife) inject() {
	if w.sweptCase == nil {
		recorder := fakekube.Record{Begin: w.recordRequest}
		w.fake.InjectUnchecked(fakekube.Fault{Times: fakekube.Always, Do: recorder})
		return
	}
	fault := w.sweptCase.fault.fault
	fault.On.If = func(q fakekube.Request) bool { return w.placeOf(q) == w.sweptCase.place }
	fault.Met = w.noteStruck
	w.injection = w.fake.InjectUnchecked(fault)
}

// placeOf returns the place of a new request, and counts it.
func (w *sweptLife) placeOf(q fakekube.Request) place {
	w.mu.Lock()
	defer w.mu.Unlock()
	class := classOf(q)
	w.requests[class]++
	return place{stage: w.stage.name, class: class, number: w.requests[class]}
}

// recordRequest records a request of the undisturbed life, and the frames of its answer.
func (w *sweptLife) recordRequest(q fakekube.Request) (ended func(fakekube.Recording)) {
	at := w.placeOf(q)
	isRepeat := w.isIdleNow() && at.number > 1
	if isRepeat || !w.plan.sweeps(at) {
		return func(fakekube.Recording) {}
	}
	return func(answer fakekube.Recording) {
		if answer.Header.Get("Content-Encoding") != "" {
			w.fail("the answer to %s is compressed, so it has no frames", at)
		}
		frames := w.distinctFrames(answer.Frames)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.recording = append(w.recording, recordedRequest{place: at, frames: frames})
	}
}

func (w *sweptLife) isIdleNow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stage.isIdle
}

// distinctFrames returns how many frames an answer has before it only repeats bookmarks in an idle stage. An event of a
// watch in that stage is a bookmark. The frames of a list have all the same time, so they count as only one.
func (w *sweptLife) distinctFrames(frames []fakekube.RecordedFrame) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	bookmarks := 0
	var lastSentAt time.Time
	for i, frame := range frames {
		isIdle := frame.SentAt.After(w.idleFrom) && frame.SentAt.Before(w.idleUntil)
		if isIdle && !frame.SentAt.Equal(lastSentAt) {
			bookmarks++
		}
		if bookmarks > mostBookmarks {
			return i
		}
		lastSentAt = frame.SentAt
	}
	return len(frames)
}

// noteStruck notes that the fault strikes a request, and has its effect on the network.
func (w *sweptLife) noteStruck(q fakekube.Request) {
	w.mu.Lock()
	w.struckAt = time.Now()
	p := w.byHost[q.Host]
	w.mu.Unlock()
	if p == nil {
		return
	}
	struck := w.sweptCase
	// The class has nothing but a name: the sweep does not count in which states a fault strikes.
	w.noteOutcome(q, requestFault{requestClass{name: struck.place.class}, struck.fault.outcome})
	if struck.fault.disturb != nil {
		w.disturb(p, func(l *link) { struck.fault.disturb(w.sim, l) })
	}
}

// longestWaitForFault is how long a stage waits for the request that the fault shall strike. Some requests come at
// random times, so one that the recorded stage had may come later.
const longestWaitForFault = time.Minute

// awaitFault waits for the fault to strike if that must happen in this stage.
func (w *sweptLife) awaitFault() {
	w.waitWhile(w.isFaultDue, longestWaitForFault)
}

// waitWhile waits as long as a condition holds, but no longer than most.
func (w *sweptLife) waitWhile(holds func() bool, most time.Duration) {
	end := time.Now().Add(most)
	for holds() && time.Now().Before(end) {
		settle(w.interval)
	}
}

// isFaultDue reports whether the fault must strike in this stage, and has not struck yet.
func (w *sweptLife) isFaultDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sweptCase != nil && w.sweptCase.place.stage == w.stage.name && w.struckAt.IsZero()
}

func (w *sweptLife) isFaultSilent() bool { return w.sweptCase != nil && w.sweptCase.fault.isSilent }

// awaitRight waits until everything is right, and checks that this happens within the bound.
func (w *sweptLife) awaitRight() {
	if w.isFaultSilent() {
		w.extendBoundForSilence()
	}
	bound := w.nextBound()
	w.waitWhile(w.isWrong, bound)
	w.checkRight(fmt.Sprintf("within %v after stage %q", bound, w.stage.name))
	w.noteRecovery()
}

// isWrong reports whether any label or status is wrong.
func (w *sweptLife) isWrong() bool {
	expected, actual := w.labelsAndStatuses(w.look())
	return !maps.Equal(expected, actual)
}

// noteRecovery notes, if everything is right, how long that has taken: from the fault to the last write. If everything
// was already right once after the fault, the time begins with the step that followed. So call it right before each
// step.
func (w *sweptLife) noteRecovery() {
	if w.isWrong() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	wrongSince := w.rightAt
	if w.struckAt.After(w.rightAt) {
		wrongSince = w.struckAt
	}
	w.rightAt = time.Now()
	hasStruck := !w.struckAt.IsZero()
	if hasStruck {
		w.recovery = max(w.recovery, w.lastWriteAt.Sub(wrongSince))
	}
}

// checkCalm checks that the process follows every resource again, and writes nothing for five intervals.
func (w *sweptLife) checkCalm() {
	w.begin(stage{name: calmStage})
	if w.isFaultSilent() {
		settle(w.Silence) // The process may lose its lease, and be followed by another one.
	}
	w.waitWhile(w.lacksProgress, w.nextBound())
	w.checkStaysRight(time.Now())
}

// lacksProgress reports whether the process has yet to log anything that checkProgressLocked demands.
func (w *sweptLife) lacksProgress() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, resource := range w.resources() {
		if w.slots[0].progress[resource].missing(resource) != "" {
			return true
		}
	}
	return false
}

// gracePeriod is how long a process may take to stop. Kubernetes kills the containers of a pod after that.
const gracePeriod = 30 * time.Second

// stopOrderly asks the process to stop, and checks that it ends in time. runProcess checks its error.
func (w *sweptLife) stopOrderly() {
	w.begin(stage{name: stopStage})
	p, wasEnding := w.markEnding(0)
	if wasEnding {
		w.fail("the process was not running at the end")
		return
	}
	start := time.Now()
	p.stop()
	w.running.Wait()
	took := time.Since(start)
	if took > gracePeriod {
		w.fail("it took %v to stop", took)
	}
}

// noteTruths notes what all labels should be now, and how many pods all Counts count.
func (w *sweptLife) noteTruths() {
	expected, _ := w.labelsAndStatuses(w.look())
	for name, value := range expected {
		w.truths[name+" "+value] = true
	}
	counted := podsPerName(w.fake.All("pods"))["default/"+countedName]
	w.truths[fmt.Sprintf("%s %d", countedName, counted)] = true
}

// checkWritesWereTrue checks that the process has never written anything that was not true before, such as a number of
// only some of the pods. What it writes may be late.
func (w *sweptLife) checkWritesWereTrue() {
	isPatch := func(q fakekube.Request) bool { return q.Verb == "patch" && q.Resource != "events" }
	for _, q := range fixture.Requests(w.fake, isPatch) {
		for _, written := range w.writtenBy(q) {
			if !w.truths[written] {
				w.fail("writes what was never true: %s", written)
			}
		}
	}
}

// writtenBy returns the labels or the number that a patch writes, as in "n1 own 3" and "web 4". A new Count may show an
// old number of pods, because the news of the pods may come later. So the number has no name of a Count.
func (w *sweptLife) writtenBy(q fakekube.Request) (written []string) {
	var patch sentPatch
	json.Unmarshal([]byte(q.Body), &patch)
	if q.Resource == "counts" {
		return []string{fmt.Sprintf("%s %v", countedName, patch.Status["count"])}
	}
	shortNames := map[string]string{w.TotalLabel: "total", w.OwnPodsLabel: "own"} // as in labelsAndStatuses
	for label, value := range patch.Metadata.Labels {
		written = append(written, fmt.Sprintf("%s %s %v", q.Name, shortNames[label], value))
	}
	return written
}

// checkFaultWasMet checks that the fault has struck.
func (w *sweptLife) checkFaultWasMet() {
	if w.injection == nil {
		return
	}
	shortfall := w.injection.Shortfall()
	if shortfall != "" {
		w.fail("the fault %s", shortfall)
	}
}
