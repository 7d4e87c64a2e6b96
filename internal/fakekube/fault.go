package fakekube

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// Fault is what happens to requests in place of an answer, or on the way of one.
//
// Of Answer, Drop, Stall, After, Cut, Hang, and Status with Body, a fault has one. Where it has more, the first in
// this order counts. It may have a Delay and Met besides, and a Delay alone is a fault, too.
type Fault struct {
	// Match says which requests meet the fault; nil is all. It is called with the fake locked, and must not call it.
	// A request meets one fault: the first, in the order in which they were added, that matches it and has Times left.
	Match func(*http.Request) bool

	// Times is how many requests meet the fault. 0 counts as 1.
	Times int

	// Met, if not nil, gets a value from each request that meets the fault, which waits until somebody takes it.
	Met chan struct{}

	// Delay passes before anything else happens to the request.
	Delay time.Duration

	// Answer answers in place of the fake, which does nothing. It is called without a lock, and may call the fake.
	Answer http.HandlerFunc

	// Drop breaks the connection before anything is done.
	Drop bool

	// Stall gives no answer until the client goes away.
	Stall bool

	// After does what the request asks for, and then breaks the connection in place of an answer.
	After bool

	// Cut breaks the connection after so many bytes of the true answer's body. A watch's bytes count from its first
	// event on, so that it breaks at some later moment.
	Cut int

	// Hang falls silent after so many bytes, counted as for Cut, until the client goes away.
	Hang int

	// Status is answered in place of the truth, with Header and Body. Without a body of its own the answer is empty.
	// Its Content-Type is application/json, unless the header says otherwise.
	Status int
	Header map[string]string

	// Body is that of the Status or, where that is 0, of a 200.
	Body string

	// missed says that the answer to the last request was too short for Cut or Hang. The fake sets it, as it does
	// hasStruck, which says that one of the answers was not.
	missed    bool
	hasStruck bool

	// isLifted says that nobody expects requests to meet the fault any more.
	isLifted bool
}

// Frame is something that a watch gets as if it had happened: Raw, an Object, or the newest event's object once more.
type Frame struct {
	Resource string // whose next watch, or running one, gets it
	Event    string // its type, such as "ADDED", "BOOKMARK" or "ERROR"
	Object   any    // if nil, the one that this watch was told of last; if there is none, no frame is sent
	Raw      string // if set, these bytes stand in place of the whole frame
	End      bool   // the watch ends after it
}

// lag is of an API server whose cache has stopped at a version, until it catches up.
type lag struct {
	match   func(Request) bool // which watches come to that server
	version int
	over    chan struct{}
}

// EndWatches ends the watches that run: cleanly, as a server that goes down does, or by breaking their connections. A
// watch runs from the moment at which Requests has its request.
func (s *Server) EndWatches(isBroken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended.isBroken = isBroken
	close(s.ended.over)
	s.ended = &ending{over: make(chan struct{})}
}

// LoseNext makes watches miss the next n changes. It takes the place of an earlier LoseNext.
func (s *Server) LoseNext(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = n
}

// CutOff breaks each request of clients that call the server by this HOST:PORT, or lets them through again. Either
// breaks all watches that run, of all clients.
func (s *Server) CutOff(host string, isAway bool) {
	s.mu.Lock()
	s.away[host] = isAway
	s.mu.Unlock()
	s.EndWatches(true)
}

// FallBehind breaks all watches once. From then on, those that match come to an API server that has not heard of
// the last changes, so many, nor hears of one until catchUp or Heal is called, or FallBehind once more, which takes the
// place of the earlier call. Its lists are no older than another server's: without a version it asks etcd. match is
// called with the fake locked, and must not call it.
func (s *Server) FallBehind(changes int, match func(Request) bool) (catchUp func()) {
	mine := &lag{match: match, over: make(chan struct{})}
	s.mu.Lock()
	mine.version = s.version - changes
	s.behind = mine
	s.mu.Unlock()
	s.EndWatches(true)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.behind == mine {
			s.behind = nil
		}
		close(mine.over)
	})
}

// Strip has a mutating webhook remove a label from each node that a client writes; "" is none. Put and SetLabel pass no
// webhook.
func (s *Server) Strip(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stripped = label
}

// Inject adds a fault to those that are there, which come first. The test fails if, when it ends, fewer than Times
// requests have met the fault, or the last answer was too short to be cut or to hang. It does not if LiftFaults or Heal
// have taken the fault back.
func (s *Server) Inject(t testing.TB, ft Fault) {
	ft.Times = max(ft.Times, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &ft)
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		isMet := ft.Times == 0 && !ft.missed
		if !isMet && !ft.isLifted && !t.Failed() {
			t.Errorf("a fault was not delivered: %d requests more should have met %+v", ft.Times, ft)
		}
	})
}

// Keep makes a fault happen to all requests that match, whatever its Times, until lift is called. Then the test fails
// if there were none, or if all their answers were too short to be cut or to hang. It does not if LiftFaults or Heal
// have taken the fault back before.
func (s *Server) Keep(t testing.TB, ft Fault) (lift func()) {
	const always = 1 << 30
	ft.Times = always
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &ft)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case ft.isLifted:
		case ft.Times == always:
			t.Errorf("no request has met %+v", ft)
		case ft.missed && !ft.hasStruck:
			t.Errorf("all answers were too short for %+v", ft)
		}
		ft.Times = 0
	}
}

// Disturb adds a fault that need not be met: it is Inject for whoever cannot know what will be asked.
func (s *Server) Disturb(ft Fault) {
	ft.Times = max(ft.Times, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &ft)
}

// LiftFaults takes back the faults that have not been met yet. Requests that have met one go on with it.
func (s *Server) LiftFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.liftFaultsLocked()
}

func (s *Server) liftFaultsLocked() {
	for _, ft := range s.faults {
		ft.isLifted = true
	}
	s.faults = nil
}

// Heal takes back all that Inject, Disturb, Keep, Interject, LoseNext and FallBehind have set up and that has not
// happened yet. Watches that lagged catch up. What has been forbidden, cut off or stripped stays so.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.liftFaultsLocked()
	s.frames = nil
	s.lose = 0
	s.behind = nil
	s.movedLocked()
}

// FaultsSet is how many faults there have been since the last Heal or LiftFaults, met or not.
func (s *Server) FaultsSet() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults)
}

// FaultsLeft reports whether requests are still to meet a fault.
func (s *Server) FaultsLeft() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.faults, func(ft *Fault) bool { return ft.Times > 0 })
}

// takeFault uses up one time of the first fault that is still to be met and that matches, and returns it; nil if there
// is none.
func (s *Server) takeFault(r *http.Request) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ft := range s.faults {
		if ft.Times > 0 && (ft.Match == nil || ft.Match(r)) {
			ft.Times--
			return ft
		}
	}
	return nil
}

// serveFault lets a request meet a fault.
func (s *Server) serveFault(w http.ResponseWriter, r *http.Request, asked Request, came arrival, ft *Fault) {
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
		s.serve(httptest.NewRecorder(), r, asked, came, nil)
		panic(http.ErrAbortHandler)
	case ft.Cut > 0 || ft.Hang > 0:
		s.setMissed(ft, true) // until the writer gets there
		faulty := &faultyWriter{
			ResponseWriter: w,
			left:           cmp.Or(ft.Cut, ft.Hang),
			hang:           ft.Cut == 0,
			ctx:            r.Context(),
			reached:        func() { s.setMissed(ft, false) },
		}
		s.serve(faulty, r, asked, came, s.Spy)
	case ft.Status > 0 || ft.Body != "":
		w.Header().Set("Content-Type", mediaJSON)
		for key, value := range ft.Header {
			w.Header().Set(key, value)
		}
		w.WriteHeader(max(ft.Status, 200))
		io.WriteString(w, ft.Body)
	default: // a delay alone
		s.serve(w, r, asked, came, s.Spy)
	}
}

func (s *Server) setMissed(ft *Fault, missed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ft.missed = missed
	if !missed {
		ft.hasStruck = true
	}
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

// Interject gives one watch of the frame's resource, one that runs or the next, that frame. Frames of one resource come
// in the order in which they were interjected.
func (s *Server) Interject(fr Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames = append(s.frames, &fr)
	s.movedLocked()
}

// takeFrameLocked takes the first frame that waits for a watch of the resource; nil is none.
func (s *Server) takeFrameLocked(resource string) *Frame {
	i := slices.IndexFunc(s.frames, func(fr *Frame) bool { return fr.Resource == resource })
	if i < 0 {
		return nil
	}
	fr := s.frames[i]
	s.frames = slices.Delete(s.frames, i, i+1)
	return fr
}
