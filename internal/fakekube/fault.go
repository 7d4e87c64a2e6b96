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
func (f *Server) EndWatches(isBroken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended.isBroken = isBroken
	close(f.ended.over)
	f.ended = &ending{over: make(chan struct{})}
}

// LoseNext makes watches miss the next n changes. It takes the place of an earlier LoseNext.
func (f *Server) LoseNext(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = n
}

// CutOff breaks each request of clients that call the server by this HOST:PORT, or lets them through again. Either
// breaks all watches that run, of all clients.
func (f *Server) CutOff(host string, isAway bool) {
	f.mu.Lock()
	f.away[host] = isAway
	f.mu.Unlock()
	f.EndWatches(true)
}

// FallBehind breaks all watches once. From then on, those that match come to an API server that has not heard of
// the last changes, so many, nor hears of one until catchUp or Heal is called, or FallBehind once more, which takes the
// place of the earlier call. Its lists are no older than another server's: without a version it asks etcd. match is
// called with the fake locked, and must not call it.
func (f *Server) FallBehind(changes int, match func(Request) bool) (catchUp func()) {
	mine := &lag{match: match, over: make(chan struct{})}
	f.mu.Lock()
	mine.version = f.version - changes
	f.behind = mine
	f.mu.Unlock()
	f.EndWatches(true)
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.behind == mine {
			f.behind = nil
		}
		close(mine.over)
	})
}

// Strip has a mutating webhook remove a label from each node that a client writes; "" is none. Put and SetLabel pass no
// webhook.
func (f *Server) Strip(label string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stripped = label
}

// Inject adds a fault to those that are there, which come first. The test fails if, when it ends, fewer than Times
// requests have met the fault, or the last answer was too short to be cut or to hang. It does not if LiftFaults or Heal
// have taken the fault back.
func (f *Server) Inject(t testing.TB, ft Fault) {
	ft.Times = max(ft.Times, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &ft)
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		isMet := ft.Times == 0 && !ft.missed
		if !isMet && !ft.isLifted && !t.Failed() {
			t.Errorf("a fault was not delivered: %d requests more should have met %+v", ft.Times, ft)
		}
	})
}

// Keep makes a fault happen to all requests that match, whatever its Times, until lift is called. Then the test fails
// if there were none, or if all their answers were too short to be cut or to hang. It does not if LiftFaults or Heal
// have taken the fault back before.
func (f *Server) Keep(t testing.TB, ft Fault) (lift func()) {
	const always = 1 << 30
	ft.Times = always
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &ft)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
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
func (f *Server) Disturb(ft Fault) {
	ft.Times = max(ft.Times, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &ft)
}

// LiftFaults takes back the faults that have not been met yet. Requests that have met one go on with it.
func (f *Server) LiftFaults() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.liftFaultsLocked()
}

func (f *Server) liftFaultsLocked() {
	for _, ft := range f.faults {
		ft.isLifted = true
	}
	f.faults = nil
}

// Heal takes back all that Inject, Disturb, Keep, Interject, LoseNext and FallBehind have set up and that has not
// happened yet. Watches that lagged catch up. What has been forbidden, cut off or stripped stays so.
func (f *Server) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.liftFaultsLocked()
	f.frames = nil
	f.lose = 0
	f.behind = nil
	f.movedLocked()
}

// FaultsSet is how many faults there have been since the last Heal or LiftFaults, met or not.
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

// takeFault uses up one time of the first fault that is still to be met and that matches, and returns it; nil if there
// is none.
func (f *Server) takeFault(r *http.Request) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ft := range f.faults {
		if ft.Times > 0 && (ft.Match == nil || ft.Match(r)) {
			ft.Times--
			return ft
		}
	}
	return nil
}

// serveFault lets a request meet a fault.
func (f *Server) serveFault(w http.ResponseWriter, r *http.Request, asked Request, came arrival, ft *Fault) {
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
		f.serve(httptest.NewRecorder(), r, asked, came, nil)
		panic(http.ErrAbortHandler)
	case ft.Cut > 0 || ft.Hang > 0:
		f.setMissed(ft, true) // until the writer gets there
		faulty := &faultyWriter{
			ResponseWriter: w,
			left:           cmp.Or(ft.Cut, ft.Hang),
			hang:           ft.Cut == 0,
			ctx:            r.Context(),
			reached:        func() { f.setMissed(ft, false) },
		}
		f.serve(faulty, r, asked, came, f.Spy)
	case ft.Status > 0 || ft.Body != "":
		w.Header().Set("Content-Type", mediaJSON)
		for key, value := range ft.Header {
			w.Header().Set(key, value)
		}
		w.WriteHeader(max(ft.Status, 200))
		io.WriteString(w, ft.Body)
	default: // a delay alone
		f.serve(w, r, asked, came, f.Spy)
	}
}

func (f *Server) setMissed(ft *Fault, missed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
