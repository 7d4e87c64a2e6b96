package retry

import (
	"maps"
	"sync"
	"time"
)

// Pauses remembers which keys must not be tried for a while. The zero value is ready for use. Safe for concurrent use.
type Pauses[K comparable] struct {
	mu   sync.Mutex // guards ends
	ends map[K]time.Time
}

// Begin pauses a key for d from now on. It reports whether no key was paused before.
func (p *Pauses[K]) Begin(key K, d time.Duration) (isFirst bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A key that is no longer tried never reaches End, so forget the pauses that were over long ago.
	isLongOver := func(_ K, end time.Time) bool { return time.Since(end) > 2*d }
	maps.DeleteFunc(p.ends, isLongOver)
	isFirst = len(p.ends) == 0
	if p.ends == nil {
		p.ends = map[K]time.Time{}
	}
	p.ends[key] = time.Now().Add(d)
	return isFirst
}

// Left returns how much longer a key must not be tried, or 0 if it may be tried.
func (p *Pauses[K]) Left(key K) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	end, isPaused := p.ends[key]
	if !isPaused {
		return 0
	}
	return max(0, time.Until(end))
}

// End forgets the pause of a key. It reports whether no key is paused any more, which is false if the key was not
// paused. For Begin and End, a pause whose time is over still counts until End is called.
func (p *Pauses[K]) End(key K) (wasLast bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, isPaused := p.ends[key]; !isPaused {
		return false
	}
	delete(p.ends, key)
	return len(p.ends) == 0
}

// EndAll forgets the pauses of all keys that match.
func (p *Pauses[K]) EndAll(matches func(K) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.ends, func(key K, _ time.Time) bool { return matches(key) })
}
