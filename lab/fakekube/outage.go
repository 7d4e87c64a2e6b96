package fakekube

import (
	"slices"
	"sync"
)

// EndWatches ends the running watches cleanly, as a server does when it shuts down. A watch counts as running once
// Received includes its request.
func (s *Server) EndWatches() { s.endWatches(false) }

// BreakWatches breaks the connections of the running watches, as defined by EndWatches.
func (s *Server) BreakWatches() { s.endWatches(true) }

func (s *Server) endWatches(isBroken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchEnd.isBroken = isBroken
	close(s.watchEnd.done)
	s.watchEnd = &watchEnding{done: make(chan struct{})}
}

// LoseEvents makes all watches miss the next n changes; lists still show them. It replaces an earlier LoseEvents. To
// falsify lists as well, inject a Lie.
func (s *Server) LoseEvents(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eventsToLose = n
}

// CutOff breaks the requests of clients that call the server by this host, which is that of their URL, with the port
// only if the URL has one. The host is back when reconnect was called for each of its CutOffs. Both also break all
// running watches, of all clients: a Network for each client, and its Kill, disturb only that one.
func (s *Server) CutOff(host string) (reconnect func()) {
	addCutOff := func(n int) {
		s.mu.Lock()
		s.cutOffs[host] += n
		s.mu.Unlock()
		s.BreakWatches()
	}
	addCutOff(+1)
	return sync.OnceFunc(func() { addCutOff(-1) })
}

// Lag breaks all watches once. From then on, the watches that on selects reach an API server that lags behind by a
// number of changes and receives no further ones until catchUp or Heal is called. Another Lag replaces this one.
// Lists from the lagging server are up to date, because they come from etcd.
func (s *Server) Lag(on Requests, changes int) (catchUp func()) {
	newLag := &lag{on: on, caughtUp: make(chan struct{})}
	s.mu.Lock()
	newLag.version = s.latestVersion - changes
	s.lag = newLag
	s.mu.Unlock()
	s.BreakWatches()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lag == newLag {
			s.lag = nil
		}
		close(newLag.caughtUp)
	})
}

// lag is an API server whose cache stays at a version until it catches up.
type lag struct {
	on       Requests // watches that this server serves
	version  int
	caughtUp chan struct{}
}

// Heal cancels everything pending from Inject, Script, SendFrame, LoseEvents and Lag. Lagging watches catch up. A watch
// that a fault would truncate with a later event is not truncated. Forbid, CutOff and Mutate stay in effect.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.liftFaultsLocked()
	s.pendingFrames = nil
	s.eventsToLose = 0
	s.lag = nil
	close(s.healed)
	s.healed = make(chan struct{})
	s.signalChangeLocked()
}

// Frame is a fabricated event of a watch: Raw, an Object, or a repetition of the last event's object.
type Frame struct {
	Resource string // of the watch that sends it
	Type     string // such as "ADDED", "BOOKMARK" or "ERROR"
	Object   any    // nil repeats the last object of the watch; without one, nothing is sent
	Raw      string // if set, replaces the whole frame
	End      bool   // end the watch after the frame

	// Met, if set, is called before the frame is sent, with the request of the watch that sends it. It runs on the
	// goroutine of the watch, and without a lock.
	Met func(Request)
}

// SendFrame makes one watch of the frame's resource, either a running one or the next, send the frame. Frames of the
// same resource are sent in the order of the calls.
func (s *Server) SendFrame(fr Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pendingFrames = append(s.pendingFrames, &fr)
	s.signalChangeLocked()
}

// takeFrameLocked removes and returns the first pending frame for a resource, or nil.
func (s *Server) takeFrameLocked(resource string) *Frame {
	i := slices.IndexFunc(s.pendingFrames, func(fr *Frame) bool { return fr.Resource == resource })
	if i < 0 {
		return nil
	}
	fr := s.pendingFrames[i]
	s.pendingFrames = slices.Delete(s.pendingFrames, i, i+1)
	return fr
}
