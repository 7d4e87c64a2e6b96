package fakekube

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Capacity is how much a server can do at once. It follows API Priority and Fairness in its simplest form: one queue
// for all requests, first come, first served.
// https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
type Capacity struct {
	// Seats is how many requests the server works on at once. It must be at least 1.
	Seats int

	// Queue is how many further requests may wait for a seat. All others are refused with a 429.
	Queue int

	// MaxWait is how long a request may wait for a seat before it is refused with a 429. 0 sets no limit. A real server
	// has a limit of 15 s, which is a quarter of its request timeout.
	MaxWait time.Duration

	// PerRequest is how long the server works on any request.
	PerRequest time.Duration

	// PerObject is how much longer it works on a list, for each object in the answer.
	PerObject time.Duration
}

// capacityRetryAfter is the Retry-After of requests that are refused for lack of a seat, in seconds.
const capacityRetryAfter = "1"

// Limit gives the server a capacity, which applies to the requests that arrive from now on. load returns the numbers so
// far; it may be called at any time. Another Limit replaces this one.
//
// A request occupies a seat until its whole answer has been sent. A watch occupies one only while it begins. Answers
// that a fault replaces need no seat. Limit panics if the capacity has no seats.
func (s *Server) Limit(c Capacity) (load func() Load) {
	if c.Seats < 1 {
		panic("a capacity needs at least one seat")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seats = &seats{capacity: c}
	return s.seats.load
}

// Load is the work that a server with a capacity has had since the call of Limit.
type Load struct {
	Refused      int // requests that got a 429
	LongestQueue int // the highest number of requests that waited at the same time
}

// seats are what a server with a capacity has.
type seats struct {
	capacity Capacity

	mu      sync.Mutex      // guards all fields below
	busy    int             // seats that are taken
	waiting []chan struct{} // requests in the queue, the oldest first; closing a channel gives its request a seat
	totals  Load
}

// load returns the numbers so far.
func (l *seats) load() Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.totals
}

// waitForSeat waits for a seat. It returns false if the request must be refused, or if ctx ends first.
func (l *seats) waitForSeat(ctx context.Context) bool {
	turn := l.enqueue()
	if turn == nil {
		return false
	}
	var late <-chan time.Time // nil never fires
	if l.capacity.MaxWait > 0 {
		timer := time.NewTimer(l.capacity.MaxWait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-turn:
		return true
	case <-late:
	case <-ctx.Done():
	}
	return !l.leaveQueue(turn)
}

// enqueue returns a channel that is closed when the request has a seat, which may be at once. It returns nil if the
// queue is full.
func (l *seats) enqueue() (turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	isFree := l.busy < l.capacity.Seats
	if !isFree && len(l.waiting) >= l.capacity.Queue {
		l.totals.Refused++
		return nil
	}
	turn = make(chan struct{})
	if isFree {
		l.busy++
		close(turn)
		return turn
	}
	l.waiting = append(l.waiting, turn)
	l.totals.LongestQueue = max(l.totals.LongestQueue, len(l.waiting))
	return turn
}

// leaveQueue removes a request from the queue. It returns false if the request is no longer there, because it has just
// got a seat.
func (l *seats) leaveQueue(turn chan struct{}) (hasLeft bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, turn)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	l.totals.Refused++
	return true
}

// freeSeat gives the seat of a request to the next one in the queue.
func (l *seats) freeSeat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.busy--
		return
	}
	close(l.waiting[0])
	l.waiting = l.waiting[1:]
}

// takeSeat waits until the server can work on the request, and lets the time pass that any request needs. Without a
// seat, it answers 429 and returns false. Without a capacity, it returns true at once.
func (r *request) takeSeat() bool {
	seats := r.arrival.seats
	if seats == nil {
		return true
	}
	if !seats.waitForSeat(r.Context()) {
		r.refuseForCapacity()
		return false
	}
	r.hasSeat = true
	waitFor(r.Context(), seats.capacity.PerRequest)
	isWatch := r.info.Verb == "watch"
	if isWatch {
		r.leaveSeat()
	}
	return true
}

// leaveSeat lets another request have the seat. It does nothing if the request has none.
func (r *request) leaveSeat() {
	if !r.hasSeat {
		return
	}
	r.arrival.seats.freeSeat()
	r.hasSeat = false
}

// workOnAnswer lets the time pass that the server needs for the objects of a list.
func (r *request) workOnAnswer() {
	if !r.hasSeat {
		return
	}
	waitFor(r.Context(), time.Duration(len(r.items))*r.arrival.seats.capacity.PerObject)
}

// refuseForCapacity answers 429, in plain text like the server.
func (r *request) refuseForCapacity() {
	if r.spy != nil {
		r.spy.Answered(Answer{Request: r.info, Code: http.StatusTooManyRequests, RetryAfter: time.Second})
	}
	r.w.Header().Set("Retry-After", capacityRetryAfter)
	http.Error(r.w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}
