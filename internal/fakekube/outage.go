package fakekube

import (
	"slices"
	"sync"
)

// EndWatches ends the watches that run: cleanly, as a server that goes down does, or by breaking their connections. A
// watch runs from the moment at which Requests has its request.
func (s *Server) EndWatches(isBroken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchEnd.isBroken = isBroken
	close(s.watchEnd.done)
	s.watchEnd = &watchEnding{done: make(chan struct{})}
}

// LoseEvents makes watches miss the next n changes, whatever they are; lists show them. It takes the place of an
// earlier LoseEvents. A Lie is of lists, too.
func (s *Server) LoseEvents(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eventsToLose = n
}

// CutOff breaks each request of clients that call the server by this HOST:PORT, or lets them through again. Either
// breaks all watches that run, of all clients.
func (s *Server) CutOff(host string, isAway bool) {
	s.mu.Lock()
	s.isCutOff[host] = isAway
	s.mu.Unlock()
	s.EndWatches(true)
}

// Lag breaks all watches once. From then on, those that are chosen come to an API server that has not heard of the last
// changes, so many, nor hears of one until catchUp or Heal is called, or Lag once more, which takes the place of the
// earlier call. Its lists are no older than another server's: without a version it asks etcd.
func (s *Server) Lag(on Requests, changes int) (catchUp func()) {
	mine := &lag{on: on, caughtUp: make(chan struct{})}
	s.mu.Lock()
	mine.version = s.latestVersion - changes
	s.lag = mine
	s.mu.Unlock()
	s.EndWatches(true)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lag == mine {
			s.lag = nil
		}
		close(mine.caughtUp)
	})
}

// lag is of an API server whose cache has stopped at a version, until it catches up.
type lag struct {
	on       Requests // which watches come to that server
	version  int
	caughtUp chan struct{}
}

// Strip has a mutating webhook remove a label from each node that a client writes; "" is none. Put and SetLabel pass no
// webhook.
func (s *Server) Strip(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strippedLabel = label
}

// Heal takes back all that Inject, Script, SendFrame, LoseEvents and Lag have set up and that has not happened yet.
// Watches that lagged catch up. What has been forbidden, cut off or stripped stays so.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.liftFaultsLocked()
	s.pendingFrames = nil
	s.eventsToLose = 0
	s.lag = nil
	s.signalChangeLocked()
}

// Frame is something that a watch gets as if it had happened: Raw, an Object, or the newest event's object once more.
type Frame struct {
	Resource string // whose next watch, or running one, gets it
	Type     string // such as "ADDED", "BOOKMARK" or "ERROR"
	Object   any    // if nil, the one that this watch was told of last; if there is none, no frame is sent
	Raw      string // if set, these bytes stand in place of the whole frame
	End      bool   // the watch ends after it
}

// SendFrame gives one watch of the frame's resource, one that runs or the next, that frame. Frames of one resource come
// in the order of the calls.
func (s *Server) SendFrame(fr Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pendingFrames = append(s.pendingFrames, &fr)
	s.signalChangeLocked()
}

// takeFrameLocked takes the first frame that waits for a watch of the resource; nil is none.
func (s *Server) takeFrameLocked(resource string) *Frame {
	i := slices.IndexFunc(s.pendingFrames, func(fr *Frame) bool { return fr.Resource == resource })
	if i < 0 {
		return nil
	}
	fr := s.pendingFrames[i]
	s.pendingFrames = slices.Delete(s.pendingFrames, i, i+1)
	return fr
}
