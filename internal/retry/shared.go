package retry

import (
	"context"
	"math/rand/v2"
	"sync"
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
//   - When a loop gets an answer again, the outage is over. All loops that wait for an answer are woken.
//   - When that loop has also done its work with it, the backoffs of all loops begin anew. Those that still wait are woken
//     again, because they may have tried a moment too early.
//
// So all loops are back soon after the first, and an outage lengthens no wait of the next one. A server that answers and
// fails again and again, perhaps because of what it is asked for, gets no more requests for that: a loop that was woken
// twice in vain waits for its own backoff, as if it were alone, until it gets an answer itself.
type Shared struct {
	o SharedOptions

	mu      sync.Mutex // guards waiting, and the fields of all Members
	waiting map[*Member]struct{}
}

// SharedOptions configure a Shared. All of them are required.
type SharedOptions struct {
	Base, Limit time.Duration // see Backoff

	// OnFailure is called each time that a loop gets no answer, unless that comes too late: the outage is over. OnOver is
	// called at the end of each outage. The goroutine of a loop calls them, and they must not wait.
	OnFailure func(err error)
	OnOver    func()
}

// NewShared makes a Shared whose loops all get answers.
func NewShared(o SharedOptions) *Shared { return &Shared{o: o, waiting: map[*Member]struct{}{}} }

// NextTry returns when the first of the loops that wait for an answer tries again. It is zero if all get answers.
func (s *Shared) NextTry() (first time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range s.waiting {
		if first.IsZero() || m.nextTry.Before(first) {
			first = m.nextTry
		}
	}
	return first
}

// Member is the part of one loop in a Shared. Only that loop may use it.
type Member struct {
	shared *Shared

	failures int           // in a row
	nextTry  time.Time     // when the loop tries again
	woken    chan struct{} // closed when the loop is woken; made by each failure
	isWoken  bool          // woken is closed
	sawWake  bool          // Sleep has returned for that, so that the next try is after it
	inVain   int           // how often in a row the loop was woken, and got no answer
	hadPart  bool          // the loop got no answer at least once since it has last done its work
}

// Join returns the part of another loop.
func (s *Shared) Join() *Member { return &Member{shared: s} }

// Unanswered tells that the server has not answered the loop's last try, which failed with err. It returns how long to
// wait before the next one. Wait with Sleep, which notices when the loop is woken.
func (m *Member) Unanswered(err error) (wait time.Duration) {
	isLate, wait := m.backOff()
	if !isLate {
		m.shared.o.OnFailure(err)
	}
	return wait
}

// backOff returns how long to wait after a try without an answer. isLate means that the try began before the end of the
// outage, so that it does not begin a new one.
func (m *Member) backOff() (isLate bool, wait time.Duration) {
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	isLate = m.isWoken && !m.sawWake
	if m.sawWake {
		m.inVain++
	}
	m.failures++
	m.hadPart = true
	m.isWoken = false
	m.sawWake = false
	m.woken = make(chan struct{})
	wait = Backoff(m.failures, s.o.Base, s.o.Limit)
	m.nextTry = time.Now().Add(wait)
	s.waiting[m] = struct{}{}
	return isLate, wait
}

// Answered tells that the server has answered the loop, if only with a refusal. If it did not before, the outage is over
// for all.
func (m *Member) Answered() {
	if m.endOutage() {
		m.shared.o.OnOver()
	}
}

func (m *Member) endOutage() (isOver bool) {
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	_, isOver = s.waiting[m]
	delete(s.waiting, m)
	m.inVain = 0
	m.isWoken = false
	m.sawWake = false
	if isOver {
		s.wakeLocked()
	}
	return isOver
}

// Works tells that the loop has done its work with the server's answers.
func (m *Member) Works() {
	m.Answered()
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.hadPart {
		return // It knows nothing about the outage of others.
	}
	m.hadPart = false
	m.failures = 0
	for other := range s.waiting {
		if other.mayBeWoken() {
			other.failures = 0
		}
	}
	s.wakeLocked()
}

// mayBeWoken reports whether an answer to others concerns the loop.
func (m *Member) mayBeWoken() bool { return m.inVain < maxInVain }

// wakeLocked ends the waits of the loops to which the server does not answer.
func (s *Shared) wakeLocked() {
	for m := range s.waiting {
		if m.mayBeWoken() && !m.isWoken {
			m.isWoken = true
			close(m.woken)
		}
	}
}

// Sleep waits for d, or until ctx ends. It returns early if the loop is woken after a try that was not answered.
func (m *Member) Sleep(ctx context.Context, d time.Duration) {
	ended := time.Now().Add(d)
	select {
	case <-m.wokenIfWaiting():
		m.seeWake()
		Sleep(ctx, min(rand.N(maxWakePause), time.Until(ended)))
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (m *Member) seeWake() {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	m.sawWake = true
}

// wokenIfWaiting returns a channel that is closed when the loop is woken, or nil if its last try was answered.
func (m *Member) wokenIfWaiting() <-chan struct{} {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	if _, isWaiting := m.shared.waiting[m]; !isWaiting {
		return nil
	}
	return m.woken
}
