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

	// AreChosen says that somebody asked for these: all of them are run even if one fails, and from time to time it
	// is said how far they are.
	AreChosen bool
}

// ParseSeeds reads "N", the seeds from 1 to N, or "FROM-TO". They are chosen. The error names what was given.
func ParseSeeds(text string) (Seeds, error) {
	seeds := Seeds{First: 1, AreChosen: true}
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
}

// take returns the next seed; false: there are no more, or there is no more time.
func (q *seedQueue) take() (seed uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.AreChosen && time.Since(q.said) > 30*time.Second {
		q.said = time.Now()
		fmt.Println(q.sum)
	}
	if q.next > q.Last || q.Limit > 0 && !time.Now().Before(q.end) {
		return 0, false
	}
	q.next++
	return q.next - 1, true
}

func (q *seedQueue) done(stats Stats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum.add(stats)
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

// work runs seeds until there are no more, or one has failed that nobody chose.
func (q *seedQueue) work(t *testing.T, o Options) {
	for q.AreChosen || !t.Failed() {
		seed, ok := q.take()
		if !ok {
			return
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o := o
			o.Seed = seed
			q.done(Run(t, o).Stats)
		})
	}
}
