package retry

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// maxWakePause is the longest pause of a Member after another one has got through, so that they do not all come at the
// same moment.
const maxWakePause = 500 * time.Millisecond

// Shared is the backoff of several loops that ask one server. While the server does not answer, they try again at the
// same times, and each of these times counts as one failure, however many loops fail. As soon as one loop gets an
// answer, the outage is over: the others try again at once, and the next outage begins with the shortest wait.
//
// A loop that the server answers takes no part in the outage, so a fault that concerns one loop alone delays no other.
type Shared struct {
	base, limit time.Duration // see Backoff
	onOver      func()        // called at the end of each outage

	mu       sync.Mutex // guards the fields below, and isWaiting of each Member
	failures int        // the times at which loops have failed since the outage began
	nextTry  time.Time  // when the loops that fail try again
	over     chan struct{}
	waiting  map[*Member]struct{} // the loops to which the server does not answer
}

// NewShared makes a Shared whose waits are those of Backoff. onOver is called when an outage is over, by the goroutine
// of the loop that got an answer.
func NewShared(base, limit time.Duration, onOver func()) *Shared {
	return &Shared{
		base:    base,
		limit:   limit,
		onOver:  onOver,
		over:    make(chan struct{}),
		waiting: map[*Member]struct{}{},
	}
}

// NextTry returns when the loops to which the server does not answer try again. It is in the past while they try, and
// zero if there are none.
func (s *Shared) NextTry() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nextTry
}

// Member is the part of one loop in a Shared. Only that loop may use it.
type Member struct{ shared *Shared }

// Join returns the part of another loop.
func (s *Shared) Join() *Member { return &Member{s} }

// Unanswered tells that the server has not answered the loop's last try. It returns how long to wait before the next
// one. Wait with Sleep, which notices when another loop gets an answer.
func (m *Member) Unanswered() (wait time.Duration) {
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[m] = struct{}{}
	isNextTryDue := !time.Now().Before(s.nextTry)
	if isNextTryDue {
		s.failures++
		s.nextTry = time.Now().Add(Backoff(s.failures, s.base, s.limit))
	}
	return time.Until(s.nextTry)
}

// Answered tells that the server has answered the loop, if only with a refusal. If it did not answer this loop before,
// the outage is over for all.
func (m *Member) Answered() {
	if m.shared.end(m) {
		m.shared.onOver()
	}
}

// end ends the outage if the server did not answer this loop until now.
func (s *Shared) end(m *Member) (isOver bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, isWaiting := s.waiting[m]; !isWaiting {
		return false
	}
	clear(s.waiting)
	s.failures = 0
	s.nextTry = time.Time{}
	close(s.over)
	s.over = make(chan struct{})
	return true
}

// Sleep waits for d, or until ctx ends. It returns early if the loop waits because the server does not answer, and
// another loop gets an answer.
func (m *Member) Sleep(ctx context.Context, d time.Duration) {
	ended := time.Now().Add(d)
	select {
	case <-m.overIfWaiting():
		Sleep(ctx, min(rand.N(maxWakePause), time.Until(ended)))
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// overIfWaiting returns a channel that is closed at the end of the outage, or nil if the server answers this loop.
func (m *Member) overIfWaiting() <-chan struct{} {
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, isWaiting := s.waiting[m]; !isWaiting {
		return nil
	}
	return s.over
}
