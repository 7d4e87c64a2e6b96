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

// Seeds says which seeds to run.
type Seeds struct {
	// First and Last are the first and the last seed to run.
	First, Last uint64

	// Limit is the real time after which no more seeds are begun. 0 means no limit.
	Limit time.Duration

	// keepGoing says that the seeds come from ParseSeeds.
	keepGoing bool
}

// ParseSeeds reads "N", which means the seeds from 1 to N, or "FROM-TO". RunSeeds runs all of these even if one fails,
// and prints its progress every 30 s. With other Seeds it stops after the first failure. The error quotes the text.
func ParseSeeds(text string) (Seeds, error) {
	seeds := Seeds{First: 1, keepGoing: true}
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

// seedQueue gives seeds to the goroutines that run them, and adds up their statistics.
type seedQueue struct {
	Seeds
	end time.Time

	mu      sync.Mutex // guards all below
	next    uint64
	sum     Stats
	printed time.Time // when the progress was last printed

	hasFailed bool // a seed has failed
}

// take returns the next seed. ok is false if no more seeds must be run.
func (q *seedQueue) take() (seed uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keepGoing && time.Since(q.printed) > 30*time.Second {
		q.printed = time.Now()
		fmt.Println(q.sum)
	}
	if q.hasFailed && !q.keepGoing {
		return 0, false
	}
	if q.next > q.Last || q.Limit > 0 && !time.Now().Before(q.end) {
		return 0, false
	}
	q.next++
	return q.next - 1, true
}

// add adds the statistics of a seed.
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

// RunSeeds simulates many seeds, one on each processor at a time, and prints their statistics. Each seed is a subtest.
// The test fails if a rule was broken, or if no seed has run.
func RunSeeds(t *testing.T, o Options, seeds Seeds) {
	queue := &seedQueue{Seeds: seeds, end: time.Now().Add(seeds.Limit), next: seeds.First, printed: time.Now()}
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
