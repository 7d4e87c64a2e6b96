package suite

import "time"

// The limits that podcount promises. They repeat constants of the program on purpose: if one of those changes, a test
// fails.
const (
	// How the reflectors keep their caches.
	reflectorBackoff  = 800 * time.Millisecond // the wait after the first failure; it doubles with each further one
	auditInterval     = time.Hour              // plus or minus 10 %
	discoveryInterval = 10 * time.Second       // plus or minus 20 %

	// How podcount stops.
	drainTimeout     = 10 * time.Second // how long writes in flight may take
	eventsTimeout    = 5 * time.Second  // how long waiting Events may take after that
	flushTimeout     = time.Second      // how long writing out the last lines may take, for stdout and stderr each
	signalCopyWindow = time.Second      // a second signal within this time counts as a copy of the first

	// What -once does.
	onceListTimeout = 2 * time.Minute // how long filling the caches may take
	onceTries       = 10              // how often a key is tried
)
