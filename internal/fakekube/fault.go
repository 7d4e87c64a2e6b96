package fakekube

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

// Fault is what happens to requests in place of an answer, or on the way of one.
//
// Of answer, drop, stall, after, cut, hang, and status with body, a fault has one. Where it has more, the first in
// this order counts; cut and hang exclude each other. It may have a delay and met besides, and a delay alone is a
// fault, too.
type Fault struct {
	// match says which requests meet the fault. It is called with the fake locked, and must not call it. A request
	// meets the first fault that matches it.
	Match func(*http.Request) bool

	// times is how many requests meet the fault, 0 counts as 1.
	Times int

	// delay passes before anything else happens to the request.
	Delay time.Duration

	// status is answered in place of the truth, with header and body. Without a body of its own the answer is empty.
	// Its Content-Type is application/json, unless the header says otherwise.
	Status int
	Header map[string]string

	// body is that of the status or, where that is 0, of a 200.
	Body string

	// drop breaks the connection before anything is done.
	Drop bool

	// stall gives no answer until the client goes away.
	Stall bool

	// cut breaks the connection after so many bytes of the true answer's body, of a watch at some later moment.
	Cut int

	// hang falls silent after so many bytes of the true answer's body, until the client goes away.
	Hang int

	// met gets a value from each request that meets the fault, which waits until somebody takes it.
	Met chan struct{}

	// after does what the request asks for, and then breaks the connection in place of an answer.
	After bool

	// answer answers in place of the fake, which does nothing.
	Answer http.HandlerFunc

	// missed says that the answer to the last request was too short for cut or hang. The fake sets it.
	missed bool
}

// Frame is something that a watch gets as if it had happened: raw, an object, or the newest event's object once more.
type Frame struct {
	Resource string // whose next watch, or running one, gets it
	Event    string // its type, such as "ADDED", "BOOKMARK" or "ERROR"
	Object   any    // if nil, the one that this watch was told of last, if any
	Raw      string // if set, these bytes stand in place of the whole frame
	End      bool   // the watch ends after it
}

// lag is of an API server whose cache has stopped at a version, until it catches up.
type lag struct {
	match   func(Request) bool // which watches come to that server
	version int
	over    chan struct{}
}

// LoseNext makes watches miss the next n changes. It takes the place of an earlier loseNext.
func (f *Server) LoseNext(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = n
}

// CutOff breaks each request of clients that call the server host (and a port), or lets them through again. Either
// breaks all watches that run.
func (f *Server) CutOff(host string, isAway bool) {
	f.mu.Lock()
	f.away[host] = isAway
	f.mu.Unlock()
	f.EndWatches(true)
}

// FallBehind breaks all watches once. From then on, those that match come to an API server that has not heard of
// the last changes, nor hears of one until catchUp or heal is called. Its lists are no older than another server's:
// without a version it asks etcd.
func (f *Server) FallBehind(changes int, match func(Request) bool) (catchUp func()) {
	over := make(chan struct{})
	f.mu.Lock()
	f.behind = &lag{match: match, version: f.version - changes, over: over}
	f.mu.Unlock()
	f.EndWatches(true)
	return func() {
		f.mu.Lock()
		f.behind = nil
		f.mu.Unlock()
		close(over)
	}
}

// Inject adds a fault. If it has not been met times times when the test ends, or the last answer was too short to
// be cut or to hang, the test fails.
func (f *Server) Inject(t testing.TB, ft Fault) {
	ft.Times = max(ft.Times, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &ft)
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if (ft.Times > 0 || ft.missed) && !t.Failed() {
			t.Errorf("a fault was not delivered: %d requests more should have met %+v", ft.Times, ft)
		}
	})
}

// Keep makes a fault happen to all requests that match, whatever its times, until it is lifted. Then the test fails if
// there were none.
func (f *Server) Keep(t testing.TB, ft Fault) (lift func()) {
	const always = 1 << 30
	ft.Times = always
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &ft)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if ft.Times == always {
			t.Errorf("no request has met %+v", ft)
		}
		ft.Times = 0
	}
}

// Disturb adds a fault that need not be met.
func (f *Server) Disturb(ft Fault) {
	ft.Times = max(ft.Times, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &ft)
}

// LiftFaults takes back the faults that have not been met yet.
func (f *Server) LiftFaults() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// Heal takes back all that inject, disturb, keep, interject, loseNext and fallBehind have set up and that has not
// happened yet. Watches that had fallen behind catch up.
func (f *Server) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
	f.frames = nil
	f.lose = 0
	f.behind = nil
	f.movedLocked()
}

// FaultsSet is how many faults there have been since the last heal or liftFaults, met or not.
func (f *Server) FaultsSet() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.faults)
}

// FaultsLeft reports whether requests are still to meet a fault.
func (f *Server) FaultsLeft() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.faults, func(ft *Fault) bool { return ft.Times > 0 })
}

// takeFault is the first fault that is still to be met and that matches, one time of which is used up; nil if there is
// none.
func (f *Server) takeFault(r *http.Request) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ft := range f.faults {
		if ft.Times > 0 && ft.Match(r) {
			ft.Times--
			return ft
		}
	}
	return nil
}

// serveFault lets a request meet a fault.
func (f *Server) serveFault(w http.ResponseWriter, r *http.Request, asked Request, ft *Fault) {
	if ft.Met != nil {
		ft.Met <- struct{}{}
	}
	if ft.Delay > 0 {
		select {
		case <-time.After(ft.Delay):
		case <-r.Context().Done():
		}
		if r.Context().Err() != nil {
			return
		}
	}
	switch {
	case ft.Answer != nil:
		ft.Answer(w, r)
	case ft.Drop:
		panic(http.ErrAbortHandler)
	case ft.Stall:
		<-r.Context().Done()
	case ft.After:
		f.serve(httptest.NewRecorder(), r, asked, nil)
		panic(http.ErrAbortHandler)
	case ft.Cut > 0 || ft.Hang > 0:
		f.setMissed(ft, true) // until the writer gets there
		faulty := &faultyWriter{
			ResponseWriter: w,
			left:           max(ft.Cut, ft.Hang),
			hang:           ft.Hang > 0,
			ctx:            r.Context(),
			reached:        func() { f.setMissed(ft, false) },
		}
		f.serve(faulty, r, asked, f.Spy)
	case ft.Status > 0 || ft.Body != "":
		w.Header().Set("Content-Type", mediaJSON)
		for key, value := range ft.Header {
			w.Header().Set(key, value)
		}
		w.WriteHeader(max(ft.Status, 200))
		io.WriteString(w, ft.Body)
	default: // a delay alone
		f.serve(w, r, asked, f.Spy)
	}
}

func (f *Server) setMissed(ft *Fault, missed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ft.missed = missed
}

// faultyWriter lets so many bytes of an answer's body pass. Then it breaks the connection, or falls silent.
type faultyWriter struct {
	http.ResponseWriter
	left    int // bytes that may still pass
	hang    bool
	ctx     context.Context // the request's: the client has gone
	reached func()          // called when the last of the bytes has passed
}

// Unwrap lets http.ResponseController find Flush.
func (w *faultyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *faultyWriter) Write(p []byte) (int, error) {
	n, _ := w.ResponseWriter.Write(p[:min(len(p), w.left)])
	w.left -= n
	if n == len(p) {
		return n, nil
	}
	w.reached()
	http.NewResponseController(w.ResponseWriter).Flush()
	if w.hang {
		<-w.ctx.Done()
	}
	panic(http.ErrAbortHandler)
}

// Interject gives one watch of the frame's resource, one that runs or the next, that frame.
func (f *Server) Interject(fr Frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frames = append(f.frames, &fr)
	f.movedLocked()
}

// takeFrameLocked takes the first frame that waits for a watch of the resource; nil is none.
func (f *Server) takeFrameLocked(resource string) *Frame {
	i := slices.IndexFunc(f.frames, func(fr *Frame) bool { return fr.Resource == resource })
	if i < 0 {
		return nil
	}
	fr := f.frames[i]
	f.frames = slices.Delete(f.frames, i, i+1)
	return fr
}
