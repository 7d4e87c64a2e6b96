package sim

import (
	"sync"
	"time"
)

// pacer lets bytes pass at a limited speed, one after the other, as a network does. The zero value has no limit.
type pacer struct {
	mu             sync.Mutex    // guards all below
	bytesPerSecond int           // 0 means no limit
	freeAt         time.Time     // when all bytes so far will have passed
	changed        chan struct{} // closed by the next setSpeed; nil before the first one
}

// setSpeed changes the speed, in bytes a second. 0 removes the limit: all bytes that are on their way pass at once.
func (p *pacer) setSpeed(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytesPerSecond = bytesPerSecond
	p.freeAt = time.Now()
	if p.changed != nil {
		close(p.changed)
	}
	p.changed = make(chan struct{})
}

// isLimited reports whether there is a limit.
func (p *pacer) isLimited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytesPerSecond > 0
}

// pass returns when n bytes have passed, or when gone is closed.
func (p *pacer) pass(n int, gone <-chan struct{}) {
	wait, changed := p.enqueue(n)
	if wait == 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-changed:
	case <-gone:
	}
}

// enqueue lets n more bytes follow those that are on their way. It returns how long it takes until they have passed,
// and a channel that is closed when the speed changes.
func (p *pacer) enqueue(n int) (wait time.Duration, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytesPerSecond == 0 || n <= 0 {
		return 0, nil
	}
	now := time.Now()
	if p.freeAt.Before(now) {
		p.freeAt = now
	}
	p.freeAt = p.freeAt.Add(time.Duration(n) * time.Second / time.Duration(p.bytesPerSecond))
	return p.freeAt.Sub(now), p.changed
}
