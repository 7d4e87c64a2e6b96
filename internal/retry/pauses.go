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
	// Nobody ends the pause of a key that is not tried any more. So a pause that is long over ends by itself.
	maps.DeleteFunc(p.ends, func(_ K, end time.Time) bool { return time.Since(end) > 2*d })
	isFirst = len(p.ends) == 0
	if p.ends == nil {
		p.ends = map[K]time.Time{}
	}
	p.ends[key] = time.Now().Add(d)
	return isFirst
}

// Left returns how much longer a key must not be tried. It is 0 if the key may be tried.
func (p *Pauses[K]) Left(key K) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	end, isPaused := p.ends[key]
	if !isPaused {
		return 0
	}
	return max(0, time.Until(end))
}

// End forgets the pause of a key. It reports whether that was the last pause. A pause counts until End is called, even
// if its time is over.
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
