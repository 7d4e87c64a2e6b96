package sim

import (
	"net/http"
	"sync"
	"time"

	"podcount/internal/fakekube"
)

// net/http sends some requests again by itself, with the same credential and the same body. So a request may arrive
// long after the program has decided on it:
//   - Over HTTP/1.1, a GET is sent again if a connection that was used before breaks without an answer. By then, the
//     request may have waited for as long as the program lets an answer be silent.
//   - Over HTTP/2, a request is sent again if the server closes the connection without processing the request. The
//     first repetition follows at once, and the next ones after 1 s, 2 s, 4 s and so on.
//
// https://pkg.go.dev/net/http#Transport

// longestResendLocked returns how long ago a process may have decided on a request that arrives now, because net/http
// has sent it again. It returns 0 if that cannot be.
func (s *sim) longestResendLocked(p *proc, q fakekube.Request) time.Duration {
	if q.HTTP2 {
		return s.access.shedding.longestResend()
	}
	if q.Method == http.MethodGet && p.link.hasBrokenWithin(connectTime) {
		return s.Silence
	}
	return 0
}

// shedding is the fault that makes the server ask its clients to close their connections. Its zero value is ready.
type shedding struct {
	mu      sync.Mutex
	isOn    bool
	began   time.Time // the requests that net/http may still send again are not older; zero if there are none
	stopped time.Time // when it was last turned off
}

// set turns the fault on or off.
func (f *shedding) set(isOn bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetOldLocked()
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

// longestResend returns how long ago net/http may have got a request that arrives now, because connections are shed or
// were shed a short time ago. It returns 0 if net/http has sent the request only once.
func (f *shedding) longestResend() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetOldLocked()
	if f.began.IsZero() {
		return 0
	}
	return time.Since(f.began)
}

// forgetOldLocked forgets when connections were shed, once net/http sends none of those requests again. Each of its
// waits is 1 s longer than all its waits before together. So the last wait, which began while connections were shed,
// ends at most that much later.
func (f *shedding) forgetOldLocked() {
	longestWait := f.stopped.Sub(f.began) + time.Second
	if !f.isOn && time.Since(f.stopped) > longestWait {
		f.began = time.Time{}
	}
}
