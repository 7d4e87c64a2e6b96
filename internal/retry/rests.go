package retry

import (
	"maps"
	"sync"
	"time"
)

// Rests remembers what must be left alone for a while, because trying it again at once would be of no use. The zero
// value remembers nothing. Safe for concurrent use.
type Rests[K comparable] struct {
	mu    sync.Mutex // guards until
	until map[K]time.Time
}

// Begin makes a key rest for d from now on. It reports whether no key was resting before.
func (r *Rests[K]) Begin(key K, d time.Duration) (isFirst bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A key that is not tried any more is never ended by its owner. So a rest that is long over ends by itself.
	maps.DeleteFunc(r.until, func(_ K, until time.Time) bool { return time.Since(until) > 2*d })
	isFirst = len(r.until) == 0
	if r.until == nil {
		r.until = map[K]time.Time{}
	}
	r.until[key] = time.Now().Add(d)
	return isFirst
}

// Left returns how long a key must still be left alone. It is 0 if the key may be tried.
func (r *Rests[K]) Left(key K) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, isKnown := r.until[key]
	if !isKnown {
		return 0
	}
	return max(0, time.Until(until))
}

// End forgets a key. It reports whether that was the last one: a key counts until End, even if its time is over.
func (r *Rests[K]) End(key K) (wasLast bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, isKnown := r.until[key]; !isKnown {
		return false
	}
	delete(r.until, key)
	return len(r.until) == 0
}

// EndAll forgets all keys that match.
func (r *Rests[K]) EndAll(matches func(K) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.until, func(key K, _ time.Time) bool { return matches(key) })
}
