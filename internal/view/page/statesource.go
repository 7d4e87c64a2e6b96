package page

import "sync"

// stateSource calls Options.State, which may hang, at most once at a time.
type stateSource struct {
	read func() State

	mu      sync.Mutex // guards running
	running *stateCall // nil while no call runs
}

// stateCall is a call of Options.State, for all who wait for it.
type stateCall struct {
	done  chan struct{} // closed when state is set
	state State
}

// begin returns the call that runs, or begins one.
func (s *stateSource) begin() *stateCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		s.running = &stateCall{done: make(chan struct{})}
		go s.finish(s.running)
	}
	return s.running
}

// finish reads the state for a call.
func (s *stateSource) finish(c *stateCall) {
	c.state = s.read()
	s.mu.Lock()
	s.running = nil
	s.mu.Unlock()
	close(c.done)
}
