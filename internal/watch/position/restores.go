package position

import (
	"sync"
	"time"
)

// Restores lets the Positions of one etcd, the database of the API server, tell each other that it was restored from a
// backup, which Position.checkForRestore notices. A Position may be unable to notice it by itself: by then, the server
// may have reached the versions again that this Position knows.
type Restores struct {
	mu     sync.Mutex // guards the fields below
	demand []func()   // makes each member list
	toldAt time.Time
}

// retellAfter is how long the others are not told again. Those who were told may notice the same restore by themselves.
const retellAfter = time.Minute

// Join adds a member. demandList makes it list, and tellOthers makes all others list.
func (s *Restores) Join(demandList func()) (tellOthers func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := len(s.demand)
	s.demand = append(s.demand, demandList)
	return func() { s.tell(own) }
}

func (s *Restores) tell(from int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.toldAt) < retellAfter {
		return
	}
	s.toldAt = time.Now()
	for i, demandList := range s.demand {
		if i != from {
			demandList()
		}
	}
}
