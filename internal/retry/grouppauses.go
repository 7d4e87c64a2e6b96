package retry

import (
	"sync"
	"time"
)

// GroupPauses pauses keys that were refused. If the group of such a key is not known to accept keys, it also pauses the
// whole group, because the group may be why the key was refused. No key is the zero value of K, and no group that of G.
// The zero value of GroupPauses is ready for use. Safe for concurrent use.
type GroupPauses[K, G comparable] struct {
	keys Pauses[K]

	mu          sync.Mutex // guards all fields below
	accepts     G          // the last group that has accepted a key, as far as is known
	lastRefused K          // the zero value after a key was accepted

	// The last group that was paused. The pause has no effect if accepts is the same group.
	pausedGroup G
	pausedUntil time.Time
}

// Refused pauses a key for d, because it was refused. It reports whether no key was paused before.
//
// If two different keys are refused in a row, the group is no longer known to accept keys.
func (p *GroupPauses[K, G]) Refused(key K, group G, d time.Duration) (isFirst bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var noKey K
	var noGroup G
	isSecondInARow := p.lastRefused != noKey && p.lastRefused != key
	if isSecondInARow {
		p.accepts = noGroup
	}
	p.lastRefused = key
	if p.accepts != group {
		p.pausedGroup = group
		p.pausedUntil = time.Now().Add(d)
	}
	return p.keys.Begin(key, d)
}

// Accepted records that a group has accepted a key. That ends the pause of the group, but not those of its other keys.
func (p *GroupPauses[K, G]) Accepted(group G) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var noKey K
	p.accepts = group
	p.lastRefused = noKey
}

// Left returns how much longer a key of a group must not be tried. It is 0 if the key may be tried.
func (p *GroupPauses[K, G]) Left(key K, group G) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.keys.Left(key)
	isGroupPaused := p.pausedGroup == group && p.accepts != group
	if isGroupPaused {
		left = max(left, time.Until(p.pausedUntil))
	}
	return left
}

// End forgets the pause of a key. It reports whether that was the last pause of a key.
func (p *GroupPauses[K, G]) End(key K) (wasLast bool) { return p.keys.End(key) }
