package suite

import (
	"time"
)

// The times that podcount promises. The program has constants of its own, which the tests do not see: they measure what
// it does.
const (
	// How the reflectors keep their caches.
	reflectorBackoff    = 800 * time.Millisecond // the first wait after a failure; each further one doubles it
	reflectorMaxBackoff = 30 * time.Second       // the longest of those waits, without jitter
	relistInterval      = time.Hour              // ± 10 %
	discoveryInterval   = 10 * time.Second       // ± 20 %

	// How podcount stops.
	drainTimeout     = 10 * time.Second // how long writes in flight may take
	eventsTimeout    = 5 * time.Second  // how long waiting Events may take after that
	flushTimeout     = time.Second      // how long the last lines may take, on stdout and on stderr each
	signalCopyWindow = time.Second      // within it, a second signal is taken for a copy of the first

	// What -once does.
	onceListTimeout = 2 * time.Minute // how long the caches may take
	onceTries       = 10              // how often a key is tried
)
