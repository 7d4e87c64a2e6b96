package retry

import (
	"sync"
	"time"
)

// GroupPauses pauses keys that were refused. If a group is not known to accept any key, a refused key also pauses its
// whole group, because the other keys would probably be refused too. A pause of a key counts only in the group that
// refused it.
//
// A key must not be the zero value of K, nor a group that of G. The zero value of GroupPauses is ready for use. Safe
// for concurrent use.
type GroupPauses[K, G comparable] struct {
	keys Pauses[keyInGroup[K, G]]

	mu          sync.Mutex // guards all fields below
	accepting   G          // the group that is known to accept keys, or the zero value
	lastRefused K          // the key that was refused last, or the zero value if a key was accepted after that

	// The last group that was paused. Its pause has no effect while the group is known to accept keys.
	pausedGroup G
	pausedUntil time.Time
}

// keyInGroup is a key that was refused, and the group that refused it.
type keyInGroup[K, G comparable] struct {
	key   K
	group G
}

// Refused pauses a key for d, because it was refused. It reports whether no key was paused before.
//
// After two different keys were refused in a row, no group is known to accept keys any more.
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
	return p.keys.Begin(keyInGroup[K, G]{key, group}, d)
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
	left := p.keys.Left(keyInGroup[K, G]{key, group})
	isGroupPaused := p.pausedGroup == group && p.accepting != group
	if isGroupPaused {
		left = max(left, time.Until(p.pausedUntil))
	}
	return left
}

// End forgets the pauses of a key, in whichever group. It reports whether no key is paused any more, as Pauses.End does.
func (p *GroupPauses[K, G]) End(key K) (wasLast bool) {
	return p.keys.EndAll(func(one keyInGroup[K, G]) bool { return one.key == key })
}
