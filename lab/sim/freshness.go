package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"podcount/lab/fakekube"
)

// In calm water, the cluster lives on, but no fault is active, and none has been within the bound that Options
// explains. There, each label and status must be fresh, all along: the value that it shows was right at some time
// within its delay. Two promises of the program make up the delay:
//   - After a write, the program leaves a node alone for an interval, and a Count for MinStatusInterval, or an interval
//     if that is shorter.
//   - If another writer changes a status, the program corrects it an interval later, so that two programs that disagree
//     do not overwrite each other as fast as they can.
//
// freshnessMargin covers the rest: the program looks for nodes with a wrong total once a second, and corrects a label
// that another writer has changed a second later. The rate limit for writes is not part of the delay, because a few
// nodes and Counts never use it up.

// freshnessMargin is the part of a delay that does not depend on the flags.
const freshnessMargin = time.Second

// labelDelay returns how long a label may show what is no longer right.
func (s *sim) labelDelay() time.Duration { return s.interval + freshnessMargin }

// statusDelay returns how long a status may show what is no longer right. cause is what has made it wrong.
func (s *sim) statusDelay(cause staleness) time.Duration {
	if cause == overwritten {
		return s.interval + freshnessMargin
	}
	return min(s.interval, s.MinStatusInterval) + freshnessMargin
}

// staleness is the reason why a label or status is not right.
type staleness int

const (
	outdated    staleness = iota // what it should be has changed
	overwritten                  // another writer has changed it
)

// calmWater lets the cluster live for a while without faults. Call it after calm, when everything is right.
func (s *sim) calmWater() {
	s.beginCalmWater()
	end := time.Now().Add(s.drawDuration(span{5 * time.Second, time.Minute}))
	for time.Now().Before(end) && !s.hasBroken() {
		s.takeStepInCalmWater()
		<-time.After(s.drawDuration(span{100 * time.Millisecond, 2 * s.interval}))
	}
	settle(longestStay + s.labelDelay())
	s.endCalmWater()
	s.checkRight("after calm water")
}

func (s *sim) beginCalmWater() {
	v := s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordPhaseLocked("calm water begins: life without faults")
	s.water = newWater(v)
	s.checkFreshnessLocked()
}

func (s *sim) endCalmWater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkFreshnessLocked()
	s.stats.labelDelays.addAll(s.water.labelDelays)
	s.stats.statusDelays.addAll(s.water.statusDelays)
	s.water = nil
}

// takeStepInCalmWater takes a step of life. What the step does to labels and statuses is not the program's doing.
func (s *sim) takeStepInCalmWater() {
	s.countStep(false)
	s.setOverwriting(true)
	s.takeStep(lifeSteps)
	s.setOverwriting(false)
}

func (s *sim) setOverwriting(isOverwriting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.water.isOverwriting = isOverwriting
}

// water is calm water, from its beginning to its end.
type water struct {
	view   view
	began  time.Time
	values map[string]*valueHistory // by the name of the label or status, in words

	// isOverwriting is whether a step of life is being taken, which is another writer. If a process writes at that very
	// moment, its write is taken for life's.
	isOverwriting bool

	// How long labels and statuses were not right, until a process corrected them.
	labelDelays  delays
	statusDelays delays
}

func newWater(v view) *water {
	return &water{view: v, began: time.Now(), values: map[string]*valueHistory{}}
}

// valueHistory is what a label or status shows in calm water, and what it should show. An absent label shows "".
type valueHistory struct {
	shown string
	right string

	// rightUntil has the values that were right earlier, and when they ceased to be.
	rightUntil map[string]time.Time

	// staleSince is when the shown value ceased to be right, or when another writer made it wrong. It is zero while the
	// value is right.
	staleSince time.Time
	cause      staleness // of what has made it wrong, if it is
}

// noteLifeLocked notes a change in calm water, and checks that all labels and statuses have been fresh up to now.
func (s *sim) noteLifeLocked(c fakekube.Change) {
	if s.water == nil || !slices.Contains(viewedResources, c.Resource) {
		return
	}
	s.water.view.apply(c)
	s.checkFreshnessLocked()
}

// checkFreshnessLocked checks that all labels and statuses have been fresh up to now. Then it notes what they show from
// now on, and what they should show.
func (s *sim) checkFreshnessLocked() {
	for _, name := range slices.Sorted(maps.Keys(s.water.values)) {
		s.checkValueLocked(name, s.water.values[name])
	}
	expected, actual := s.labelsAndStatuses(s.water.view)
	s.water.update(expected, actual)
}

// checkValueLocked checks that a label or status has not been wrong for longer than its delay.
func (s *sim) checkValueLocked(name string, h *valueHistory) {
	if h.staleSince.IsZero() {
		return
	}
	delay := s.labelDelay()
	if isStatus(name) {
		delay = s.statusDelay(h.cause)
	}
	lasted := time.Since(h.staleSince)
	if lasted > delay {
		s.recordLocked("%s: not fresh: %s", brokenRule, name)
		s.failLocked("not fresh: in calm water, %s is %q and should be %q, for %v, though %v are the most",
			name, h.shown, h.right, lasted, delay)
	}
}

// update notes what the labels and statuses should be, and what they are.
func (w *water) update(expected, actual map[string]string) {
	names := slices.Collect(maps.Keys(w.values))
	names = slices.AppendSeq(names, maps.Keys(expected))
	names = slices.AppendSeq(names, maps.Keys(actual))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		w.updateValue(name, actual[name], expected[name])
		_, isExpected := expected[name]
		_, isShown := actual[name]
		if !isExpected && !isShown { // It is absent and should be, perhaps because its object is gone.
			delete(w.values, name)
		}
	}
}

// updateValue notes what a label or status shows, and what it should show.
func (w *water) updateValue(name, shown, right string) {
	now := time.Now()
	h := w.values[name]
	if h == nil {
		h = &valueHistory{shown: shown, right: right, rightUntil: map[string]time.Time{}}
		w.values[name] = h
	}
	if h.right != right {
		h.rightUntil[h.right] = now
		h.right = right
	}
	hasChanged := h.shown != shown
	h.shown = shown
	wasRight := h.staleSince.IsZero()
	switch {
	case shown == right:
		w.noteDelay(name, h)
		h.staleSince = time.Time{}
	case hasChanged && !w.isOverwriting: // A process has written what is no longer right.
		h.staleSince = h.whenRight(w.began)
		h.cause = outdated
	case hasChanged && wasRight:
		h.staleSince = now
		h.cause = overwritten
	case wasRight:
		h.staleSince = now
		h.cause = outdated
	default: // It was wrong before. Another writer's value excuses no earlier delay.
	}
}

// whenRight returns when the shown value ceased to be right. If it has not been right since the beginning of the calm
// water, whenRight returns that beginning.
func (h *valueHistory) whenRight(began time.Time) time.Time {
	until, isKnown := h.rightUntil[h.shown]
	if !isKnown {
		return began
	}
	return until
}

// noteDelay notes how long a label or status was not right that is right now. It ignores those that life itself has
// made right.
func (w *water) noteDelay(name string, h *valueHistory) {
	if h.staleSince.IsZero() || w.isOverwriting {
		return
	}
	delay := time.Since(h.staleSince)
	if isStatus(name) {
		w.statusDelays.add(delay)
	} else {
		w.labelDelays.add(delay)
	}
}

// delays counts durations, rounded up to hundredths of a second.
type delays map[time.Duration]int

func (d *delays) add(delay time.Duration) {
	const step = 10 * time.Millisecond
	if *d == nil {
		*d = delays{}
	}
	(*d)[(delay+step-1).Truncate(step)]++
}

// addAll adds all durations of other.
func (d *delays) addAll(other delays) {
	if *d == nil {
		*d = delays{}
	}
	for delay, times := range other {
		(*d)[delay] += times
	}
}

// String returns the number, the median, the 99th percentile and the longest of the durations, in words.
func (d delays) String() string {
	all := d.number()
	return fmt.Sprintf("%d, after %v (median), %v (99 %%), %v (the slowest)",
		all, d.quantile(0.5), d.quantile(0.99), d.quantile(1))
}

func (d delays) number() (n int) {
	for _, times := range d {
		n += times
	}
	return n
}

// quantile returns the shortest duration that at least this share of the durations does not exceed, or 0 if there are
// none.
func (d delays) quantile(share float64) time.Duration {
	left := share * float64(d.number())
	for _, delay := range slices.Sorted(maps.Keys(d)) {
		left -= float64(d[delay])
		if left <= 0 {
			return delay
		}
	}
	return 0
}
