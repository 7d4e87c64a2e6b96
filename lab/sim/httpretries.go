package sim

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"podcount/lab/fakekube"
)

// net/http retries some requests by itself, with the same credential and the same body. So a request may arrive long
// after the process has decided on it:
//   - Over HTTP/1.1, a GET is retried at once if a connection that was used before breaks before the first byte of the
//     answer (persistConn.shouldRetryRequest in Go 1.26). By then, it may have waited for minutes. Other requests are
//     retried only if nothing of them was written, and so without any wait.
//   - Over HTTP/2, a request of any method is retried if the server has sent GOAWAY and ignores the request. The first
//     retry follows at once, and the others after 1 s, 2 s, 4 s, 8 s, up to 17 s and up to 35 s
//     (http2Transport.RoundTripOpt).

// maxAgeLocked returns how long ago a process may have decided on a request that arrives now, because of net/http's
// retries. It returns 0 if net/http cannot have retried the request.
func (s *sim) maxAgeLocked(p *proc, q fakekube.Request) time.Duration {
	if q.HTTP2 {
		return min(s.access.shedding.maxAge(), s.Silence)
	}
	if q.Method == http.MethodGet {
		return p.link.lost.maxAge()
	}
	return 0
}

// lostRequests are the last requests of a process whose connections have broken before the answer. They matter only
// over HTTP/1.1. The zero value is ready.
type lostRequests struct {
	mu  sync.Mutex
	all []lostRequest
}

// lostRequest is a request whose connection has broken before the answer.
type lostRequest struct {
	sentAt time.Time
	lostAt time.Time // when the process noticed that the connection was broken
}

// add adds a request that is lost now.
func (l *lostRequests) add(sentAt time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetOldLocked()
	l.all = append(l.all, lostRequest{sentAt: sentAt, lostAt: time.Now()})
}

// maxAge returns how old a retry that arrives now may be: the age of the oldest lost request. It returns 0 if there is
// none.
func (l *lostRequests) maxAge() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetOldLocked()
	age := time.Duration(0)
	for _, r := range l.all {
		age = max(age, time.Since(r.sentAt))
	}
	return age
}

// forgetOldLocked forgets the requests whose retries have arrived, because there was time enough.
func (l *lostRequests) forgetOldLocked() {
	l.all = slices.DeleteFunc(l.all, func(r lostRequest) bool { return time.Since(r.lostAt) > connectTime })
}

// shedding is the fault that makes the server ask its clients to close their connections. Its zero value is off.
type shedding struct {
	mu      sync.Mutex
	isOn    bool
	began   time.Time // no request that net/http may still retry is older; zero if there are none
	stopped time.Time // when the fault was last turned off
}

// set turns the fault on or off.
func (f *shedding) set(isOn bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endRetriesLocked()
	switch {
	case isOn && f.began.IsZero():
		f.began = time.Now()
	case !isOn && f.isOn:
		f.stopped = time.Now()
	}
	f.isOn = isOn
}

// isActive reports whether the fault is on.
func (f *shedding) isActive() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isOn
}

// maxAge returns how old a request that arrives now may be, because connections are shed, or were shed a short time
// ago. Otherwise it returns 0.
func (f *shedding) maxAge() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endRetriesLocked()
	if f.began.IsZero() {
		return 0
	}
	return time.Since(f.began)
}

// endRetriesLocked clears began when the last retry is over. The last wait for a retry may have begun at the end of the
// fault. A wait is at most 4 s longer than all the waits before it together, and those were within the fault.
func (f *shedding) endRetriesLocked() {
	if f.isOn {
		return
	}
	longestWait := f.stopped.Sub(f.began) + 4*time.Second
	if time.Since(f.stopped) > longestWait {
		f.began = time.Time{}
	}
}
