package sim

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Seeds are seeds to run.
type Seeds struct {
	// First to Last are run, both included.
	First, Last uint64

	// Limit is the real time after which no more are begun. 0 is no limit.
	Limit time.Duration

	// areChosen says that somebody asked for these by number. See ParseSeeds.
	areChosen bool
}

// ParseSeeds reads "N", the seeds from 1 to N, or "FROM-TO". Of these, RunSeeds runs all, even if one fails, and prints
// from time to time how far they are. Of other Seeds, it begins no more once one has failed. The error names what was
// given.
func ParseSeeds(text string) (Seeds, error) {
	seeds := Seeds{First: 1, areChosen: true}
	var err error
	from, to, isRange := strings.Cut(text, "-")
	if isRange {
		seeds.First, err = strconv.ParseUint(from, 10, 63)
		if err != nil {
			return Seeds{}, fmt.Errorf("seeds %q: %w", text, err)
		}
	} else {
		to = from
	}
	seeds.Last, err = strconv.ParseUint(to, 10, 63)
	if err != nil {
		return Seeds{}, fmt.Errorf("seeds %q: %w", text, err)
	}
	return seeds, nil
}

// seedQueue hands out seeds to those that run them, and adds up what they have seen.
type seedQueue struct {
	Seeds
	end time.Time

	mu   sync.Mutex // guards all below
	next uint64
	sum  Stats
	said time.Time // how far they are

	hasFailed bool // a seed has
}

// take returns the next seed; false: no more are to be run.
func (q *seedQueue) take() (seed uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.areChosen && time.Since(q.said) > 30*time.Second {
		q.said = time.Now()
		fmt.Println(q.sum)
	}
	if q.hasFailed && !q.areChosen {
		return 0, false
	}
	if q.next > q.Last || q.Limit > 0 && !time.Now().Before(q.end) {
		return 0, false
	}
	q.next++
	return q.next - 1, true
}

// add counts in what a seed has seen.
func (q *seedQueue) add(stats Stats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum.add(stats)
}

func (q *seedQueue) noteFailure() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hasFailed = true
}

// RunSeeds simulates many seeds, as many at a time as there are processors, and prints what was seen. The test fails if
// a rule was broken, or no seed has run. Each seed is a subtest of its own.
func RunSeeds(t *testing.T, o Options, seeds Seeds) {
	queue := &seedQueue{Seeds: seeds, end: time.Now().Add(seeds.Limit), next: seeds.First, said: time.Now()}
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

// work runs seeds until the queue has no more.
func (q *seedQueue) work(t *testing.T, o Options) {
	for {
		seed, ok := q.take()
		if !ok {
			return
		}
		isRight := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o := o
			o.Seed = seed
			q.add(Run(t, o).Stats)
		})
		if !isRight {
			q.noteFailure()
		}
	}
}
