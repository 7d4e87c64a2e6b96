package sim

import (
	"fmt"
	"hash/fnv"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Sweep says which cases of the sweep to run.
type Sweep struct {
	// Options are those of the simulation. Seed is not used.
	Options

	// Only selects the case with this name. If there is none, it selects the cases whose name contains this text, so ""
	// selects all.
	Only string

	// Every runs only a fixed sample of the selected cases: on average, one of so many. 0 and 1 mean all.
	Every int

	// RerunCase returns an explanation of how to run one case again.
	RerunCase func(name string) string
}

// RunSweep lets the program live a short life, records its requests, and then repeats this life with each fault at each
// request, one life at a time on each processor. The test fails if a life breaks a rule. RunSweep prints its progress
// every 30 s, and then a table of the results.
func RunSweep(t *testing.T, sweep Sweep) {
	queue := &caseQueue{
		cases:     sweep.choose(sweep.record(t)),
		began:     time.Now(),
		printedAt: time.Now(),
		results:   map[string]*kindResult{},
	}
	if len(queue.cases) == 0 {
		t.Fatalf("no case of the sweep contains %q", sweep.Only)
	}
	fmt.Printf("cases to run: %d\n", len(queue.cases))
	// This subtest ends after all parallel ones in it.
	t.Run("cases", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				queue.work(t, sweep)
			})
		}
	})
	fmt.Print(queue.table())
}

// record lives each life without a fault, and returns all cases for the requests that come.
func (sweep Sweep) record(t *testing.T) []sweptCase {
	plans := sweptLives()
	cases := make([][]sweptCase, len(plans))
	// This subtest ends after all parallel ones in it.
	hasPassed := t.Run("without a fault", func(t *testing.T) {
		for i, plan := range plans {
			t.Run(plan.name, func(t *testing.T) {
				t.Parallel()
				cases[i] = sweep.recordLife(t, plan)
			})
		}
	})
	if !hasPassed {
		t.FailNow()
	}
	return slices.Concat(cases...)
}

func (sweep Sweep) recordLife(t *testing.T, plan lifePlan) []sweptCase {
	w, result := runLife(t, sweep.Options, plan, nil)
	if len(result.Broken) > 0 {
		t.Fatalf("%s\n%s", result.Story, strings.Join(result.Broken, "\n"))
	}
	cases := casesOf(plan, w.recording)
	fmt.Printf("%s: %d requests, %d cases\n", plan.name, len(w.recording), len(cases))
	return cases
}

// choose returns the cases to run.
func (sweep Sweep) choose(all []sweptCase) (chosen []sweptCase) {
	isWholeName := slices.ContainsFunc(all, func(c sweptCase) bool { return c.String() == sweep.Only })
	for _, c := range all {
		name := c.String()
		isSelected := strings.Contains(name, sweep.Only)
		if isWholeName {
			isSelected = name == sweep.Only
		}
		if isSelected && sweep.isInSample(name) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// isInSample reports whether the sample contains the case with this name. The name alone decides, so the sample is
// always the same, although some requests come only in some runs.
func (sweep Sweep) isInSample(name string) bool {
	hash := fnv.New32a()
	io.WriteString(hash, name)
	return hash.Sum32()%uint32(max(1, sweep.Every)) == 0
}

// caseQueue hands out the cases to the goroutines that run them, and adds up the results.
type caseQueue struct {
	cases []sweptCase
	began time.Time

	mu        sync.Mutex             // guards all below
	taken     int                    // how many cases have begun
	failed    int                    // how many cases have failed
	printedAt time.Time              // when the progress was last printed
	results   map[string]*kindResult // by the kind of the fault
}

// kindResult is the sum of the results for one kind of fault.
type kindResult struct {
	runs            int
	slowestRecovery time.Duration
	slowestPlace    place // where the fault with the slowest recovery struck
}

// work runs cases until the queue has no more.
func (q *caseQueue) work(t *testing.T, sweep Sweep) {
	for {
		c, ok := q.take()
		if !ok {
			return
		}
		t.Run(c.String(), func(t *testing.T) {
			w, result := runLife(t, sweep.Options, c.plan, &c)
			if len(result.Broken) > 0 {
				firstRules := strings.Join(result.Broken[:min(len(result.Broken), 5)], "\n")
				// The name of the case comes once more after the story, which is long.
				t.Errorf("%s\n%s\n%s\n%s\n%s", c, result.Story, c, firstRules, sweep.RerunCase(c.String()))
			}
			q.add(c, w.recovery, t.Failed())
		})
	}
}

// take returns the next case. ok is false if there is none.
func (q *caseQueue) take() (c sweptCase, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.printProgressLocked()
	if q.taken == len(q.cases) {
		return sweptCase{}, false
	}
	c = q.cases[q.taken]
	q.taken++
	return c, true
}

// printProgressLocked prints the progress, unless it has done so within the last 30 s.
func (q *caseQueue) printProgressLocked() {
	if time.Since(q.printedAt) <= 30*time.Second {
		return
	}
	q.printedAt = time.Now()
	fmt.Printf("%d of %d cases, %d failed\n", q.taken, len(q.cases), q.failed)
}

// add adds the result of a case.
func (q *caseQueue) add(c sweptCase, recovery time.Duration, hasFailed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if hasFailed {
		q.failed++
		fmt.Printf("FAILED %s\n", c)
	}
	kind := c.fault.kind
	if q.results[kind] == nil {
		q.results[kind] = &kindResult{}
	}
	r := q.results[kind]
	r.runs++
	if recovery >= r.slowestRecovery {
		r.slowestRecovery = recovery
		r.slowestPlace = c.place
	}
}

// table returns the results for each kind of fault.
func (q *caseQueue) table() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	const row = "%-28s %6v  %-16v  %v\n"
	text := fmt.Sprintf(row, "fault", "runs", "slowest recovery", "of")
	for _, kind := range faultKinds() {
		r := q.results[kind]
		if r != nil {
			text += fmt.Sprintf(row, kind, r.runs, r.slowestRecovery.Round(time.Millisecond), r.slowestPlace)
		}
	}
	took := time.Since(q.began).Round(time.Second)
	return text + fmt.Sprintf("%d runs in %v, %d failed\n", q.taken, took, q.failed)
}
