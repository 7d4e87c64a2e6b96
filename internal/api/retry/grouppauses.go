package retry

import (
	"sync"
	"time"
)

// GroupPauses pauses keys that were refused. For example, a key is an object, and its group is an installation of the
// CRD. A refused key also pauses its whole group, unless the group is known to accept keys: the other keys would
// probably be refused, too. If another group refuses a key, all pauses of single keys end.
//
// A key must not be the zero value of K, nor a group that of G. The zero value of GroupPauses is ready for use. Safe
// for concurrent use.
type GroupPauses[K, G comparable] struct {
	keys Pauses[K] // those that keysGroup has refused; it has a lock of its own

	mu          sync.Mutex // guards all fields below
	keysGroup   G          // the group that was the last to refuse a key
	accepting   G          // the group that is known to accept keys, or the zero value
	lastRefused K          // the key that was refused last, or the zero value if a key was accepted after that

	// The last group that was paused. Its pause has no effect while the group is known to accept keys.
	pausedGroup G
	pausedUntil time.Time
}

// Refused pauses a key for d, because it was refused. It reports whether no key was paused before.
//
// After two different keys were refused in a row, of whichever groups, no group is known to accept keys any more. A key
// that is refused again does not count.
func (p *GroupPauses[K, G]) Refused(key K, group G, d time.Duration) (isFirst bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var noKey K
	var noGroup G
	isSecondInARow := p.lastRefused != noKey && p.lastRefused != key
	if isSecondInARow {
		p.accepting = noGroup
	}
	p.lastRefused = key
	if p.accepting != group {
		p.pausedGroup = group
		p.pausedUntil = time.Now().Add(d)
	}
	if p.keysGroup != group {
		p.keysGroup = group
		p.keys.EndAll(func(K) bool { return true })
	}
	return p.keys.Begin(key, d)
}

// Accepted records that a group has accepted a key. This ends the pause of the group, but not those of single keys.
func (p *GroupPauses[K, G]) Accepted(group G) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var noKey K
	p.accepting = group
	p.lastRefused = noKey
}

// Left returns how much longer a key of a group must not be tried, or 0 if it may be tried.
func (p *GroupPauses[K, G]) Left(key K, group G) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var left time.Duration
	if p.keysGroup == group {
		left = p.keys.Left(key)
	}
	isGroupPaused := p.pausedGroup == group && p.accepting != group
	if isGroupPaused {
		left = max(left, time.Until(p.pausedUntil))
	}
	return left
}

// End forgets the pause of a key. It reports whether no key is paused any more, as Pauses.End does.
func (p *GroupPauses[K, G]) End(key K) (wasLast bool) { return p.keys.End(key) }
