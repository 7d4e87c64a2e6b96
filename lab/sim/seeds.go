package sim

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Seeds are the seeds to run.
type Seeds struct {
	// First and Last are the first and the last seed to run.
	First, Last uint64

	// Limit is the real time after which no more seeds begin. 0 means no limit.
	Limit time.Duration

	// Shrink is how long RunSeeds looks, in real time, for the shortest story of a seed that fails. 0 means not at all.
	// It does so for the first three seeds that fail.
	Shrink time.Duration

	// keepGoing is whether to run all seeds even if one fails, and to print the progress every progressInterval.
	// ParseSeeds sets it.
	keepGoing bool
}

// progressInterval is how often RunSeeds prints its progress.
const progressInterval = 30 * time.Second

// ParseSeeds reads "N", which means the seeds from 1 to N, or "FROM-TO". RunSeeds runs all of these even if one fails,
// and prints more. With other Seeds, it stops after the first failure. The error quotes the text.
func ParseSeeds(text string) (Seeds, error) {
	asRange := text
	if !strings.Contains(text, "-") {
		asRange = "1-" + text
	}
	first, last, err := parseRange(asRange)
	if err != nil {
		return Seeds{}, fmt.Errorf("seeds %q: %w", text, err)
	}
	return Seeds{First: first, Last: last, keepGoing: true}, nil
}

// RunSeeds simulates many seeds, one at a time on each processor, and prints their statistics. Each seed is a subtest.
// The test fails if a rule was broken, or if no seed has run.
func RunSeeds(t *testing.T, o Options, seeds Seeds) {
	if err := o.Recording.checkSeeds(seeds); err != nil {
		t.Fatal(err)
	}
	queue := newSeedQueue(seeds)
	// This subtest ends after all parallel ones in it.
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				queue.work(t, o)
			})
		}
	})
	fmt.Println(queue.sum)
	if queue.sum.seeds == 0 {
		t.Error("no seed has run")
	}
}

// seedQueue hands out the seeds to the goroutines that run them, and adds up the statistics.
type seedQueue struct {
	Seeds
	end time.Time

	mu        sync.Mutex // guards all below
	next      uint64     // the next seed to run
	sum       Stats      // of all seeds so far
	printedAt time.Time  // when the progress was last printed
	hasFailed bool       // any seed
	shrunk    int        // for how many failed seeds a shorter story was looked for
}

func newSeedQueue(seeds Seeds) *seedQueue {
	return &seedQueue{Seeds: seeds, end: time.Now().Add(seeds.Limit), next: seeds.First, printedAt: time.Now()}
}

// work runs seeds until the queue has no more.
func (q *seedQueue) work(t *testing.T, o Options) {
	for {
		q.printProgress()
		seed, ok := q.take()
		if !ok {
			return
		}
		o.Seed = seed
		hasPassed := t.Run(fmt.Sprint(seed), func(t *testing.T) { q.run(t, o) })
		if !hasPassed { // A seed can also fail without a broken rule.
			q.noteFailure()
		}
	}
}

// run runs one seed. If it breaks a rule, run also looks for the shortest story.
func (q *seedQueue) run(t *testing.T, o Options) {
	result := Run(t, o)
	q.add(result.Stats)
	if len(result.Broken) == 0 {
		return
	}
	q.noteFailure() // so that the others begin no more seeds meanwhile
	// The log of a test comes only when all seeds have run, so this line shows a failure in time.
	fmt.Printf("seed %d has failed: %s\n", o.Seed, result.Broken[0])
	if q.mayShrink() {
		t.Log(shortestStory(t, o, result, q.Shrink))
	}
}

// take returns the next seed. ok is false if no more seeds may begin.
func (q *seedQueue) take() (seed uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	isStopped := q.hasFailed && !q.keepGoing
	isTimeOver := q.Limit > 0 && !time.Now().Before(q.end)
	if isStopped || isTimeOver || q.next > q.Last {
		return 0, false
	}
	seed = q.next
	q.next++
	return seed, true
}

// printProgress prints the statistics so far, unless it has done so lately.
func (q *seedQueue) printProgress() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keepGoing && time.Since(q.printedAt) > progressInterval {
		q.printedAt = time.Now()
		fmt.Println(q.sum)
	}
}

func (q *seedQueue) add(stats Stats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum.add(stats)
}

// maxShrunk is for how many failed seeds a shorter story is looked for.
const maxShrunk = 3

// mayShrink reports whether to look for a shorter story of one more failed seed.
func (q *seedQueue) mayShrink() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Shrink == 0 || q.shrunk == maxShrunk {
		return false
	}
	q.shrunk++
	return true
}

func (q *seedQueue) noteFailure() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hasFailed = true
}

// CheckSeeds checks that a seed always has the same script, and that two seeds have different ones.
func CheckSeeds(t *testing.T, o Options) {
	script := func(seed uint64) string {
		o.Seed = seed
		return strings.Join(Run(t, o).Script, "\n")
	}
	first := script(27)
	if len(first) < 1000 {
		t.Errorf("the script of seed 27 is too short:\n%s", first)
	}
	again := script(27)
	if again != first {
		t.Errorf("seed 27 has two scripts:\n%s\n\nand:\n%s", first, again)
	}
	if script(23) == first {
		t.Error("seeds 27 and 23 have the same script")
	}
}
