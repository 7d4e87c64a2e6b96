package retry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxWakePause is the longest pause of a Member that is woken, so that they do not all come at the same moment.
	maxWakePause = 500 * time.Millisecond

	// maxInVain is how often in a row a Member is woken in vain. After that, its fault is its own.
	maxInVain = 2
)

// Shared connects the backoffs of several loops that ask one server. Each loop that gets no answer has its own backoff,
// but they share the end of an outage:
//
//   - As soon as any loop gets an answer, the outage is over. All loops that wait for an answer are woken.
//   - When a loop that had got none has also done its work with the answer, the backoffs of all loops begin again,
//     except of those that were woken in vain. Those that still wait are woken once more, because they may have tried
//     a moment too early.
//
// So all loops are back soon after the first, and an outage lengthens no wait of the next one. A server that answers
// and fails again and again, perhaps because of what it is asked for, gets no more requests for that: a loop that was
// woken twice in vain waits for its own backoff until it has done its work. And a loop that gets no answer while others
// do is alone: it has a fault of its own, and begins no outage.
type Shared struct {
	o SharedOptions

	isOn atomic.Bool // an outage is on; changed under mu

	mu         sync.Mutex // guards the fields below, and those of all Members
	members    []*Member
	answeredAt time.Time // when a loop last got an answer during an outage, or ended a wait for one
}

// SharedOptions configure a Shared. All of them are required.
type SharedOptions struct {
	Base, Limit time.Duration // see Backoff

	// OnFailure is called each time that a loop gets no answer during an outage, and OnOver at the end of each outage.
	// They must not wait for anything, nor call the Shared.
	OnFailure func(err error)
	OnOver    func()
}

// NewShared makes a Shared whose loops all get answers.
func NewShared(o SharedOptions) *Shared { return &Shared{o: o} }

// NextTry returns when the first of the loops that wait for an answer tries again. It is zero if none sleeps.
func (s *Shared) NextTry() (first time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		isFirst := first.IsZero() || m.nextTry.Before(first)
		if !m.nextTry.IsZero() && isFirst {
			first = m.nextTry
		}
	}
	return first
}

// Member is the part of one loop in a Shared. Sleep is for the loop alone. Any goroutine may call the other methods.
type Member struct {
	shared *Shared

	isWaiting atomic.Bool // no answer came to the loop's newest try whose result is known; changed under Shared.mu

	failures int           // in a row, since the loop, or another one after an outage, has done its work
	nextTry  time.Time     // when Sleep ends; zero unless the loop sleeps while it waits for an answer
	triedAt  time.Time     // when the newest try began
	failedAt time.Time     // when the loop last got no answer; zero if it has done its work since
	woken    chan struct{} // closed when the loop is woken; nil once Sleep has noticed that
	isWoken  bool          // the loop was woken since it last got no answer
	inVain   int           // how often the loop was woken, and got no answer, since it has last done its work
	isAlone  bool          // others got an answer while this loop got none, since it has last done its work
}

// Join returns the part of another loop, which never leaves.
func (s *Shared) Join() *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &Member{shared: s, triedAt: time.Now()}
	s.members = append(s.members, m)
	return m
}

// BeginTry tells that the loop asks the server now.
func (m *Member) BeginTry() {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	m.triedAt = time.Now()
}

// Unanswered tells that the server has not answered the loop's try, which failed with err. It returns how long to wait
// before the next one. Wait with Sleep, which notices when the loop is woken.
func (m *Member) Unanswered(err error) (wait time.Duration) {
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	isLate := m.triedAt.Before(s.answeredAt) // The try began before the end of the last outage.
	if m.isWaiting.Load() && !isLate && s.answeredAt.After(m.failedAt) {
		m.isAlone = true
	}
	if m.isWoken && !isLate {
		m.inVain++
	}
	m.failures++
	m.failedAt = time.Now()
	m.isWoken = false
	m.woken = make(chan struct{})
	m.isWaiting.Store(true)
	if !isLate && !m.isAlone {
		s.isOn.Store(true)
		s.o.OnFailure(err)
	}
	return Backoff(m.failures, s.o.Base, s.o.Limit)
}

// Answered tells that the server has answered the loop, if only with a refusal. It may be called often.
func (m *Member) Answered() {
	s := m.shared
	if !s.isOn.Load() && !m.isWaiting.Load() {
		return // without a lock, because each event of a watch is an answer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answeredAt = time.Now()
	m.isWaiting.Store(false)
	s.wakeLocked()
	if s.isOn.Swap(false) {
		s.o.OnOver()
	}
}

// Succeeded tells that the loop has done its work with the server's answers.
func (m *Member) Succeeded() {
	m.Answered()
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	hasNotFailed := m.failedAt.IsZero()
	if hasNotFailed {
		return // It knows nothing about the outage of others.
	}
	m.failedAt = time.Time{}
	m.failures = 0
	m.isWoken = false
	m.inVain = 0
	m.isAlone = false
	for _, other := range s.members {
		if other.mayBeWoken() {
			other.failures = 0
		}
	}
	s.wakeLocked()
}

// mayBeWoken reports whether the loop waits for an answer, and one to others concerns it.
func (m *Member) mayBeWoken() bool { return m.isWaiting.Load() && m.inVain < maxInVain }

// wakeLocked ends the sleeps of the loops that wait for an answer.
func (s *Shared) wakeLocked() {
	for _, m := range s.members {
		if m.mayBeWoken() && !m.isWoken {
			m.isWoken = true
			close(m.woken)
		}
	}
}

// Sleep waits for d, or until ctx ends. It returns early if the loop waits for an answer, and is woken. The next Sleep
// waits, even if the try before it fails for another reason than a missing answer.
func (m *Member) Sleep(ctx context.Context, d time.Duration) {
	mu := &m.shared.mu
	ends := time.Now().Add(d)
	mu.Lock()
	var woken <-chan struct{} // nil if the loop waits for no answer
	if m.isWaiting.Load() {
		woken = m.woken
		m.nextTry = ends
	}
	mu.Unlock()
	select {
	case <-woken:
		Sleep(ctx, min(Between(0, maxWakePause), time.Until(ends)))
	case <-time.After(d):
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	m.nextTry = time.Time{}
	if m.isWoken {
		m.woken = nil
	}
}
