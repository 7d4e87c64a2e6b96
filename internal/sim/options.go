package sim

import (
	"context"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"time"
)

// Program runs the program with these flags. It ends soon after ctx, as a process does after a signal. It must connect
// to the server only by dial, and must start nothing that outlives it. It is run several times at once. Its log goes to
// stderr.
//
// The flags are -master with a URL over plain http, -v 4, -log-format json, -interval, -wire and -pod-events. Some
// seeds also give it -node-label, -pod-selector, -field-selector, -namespace, -controllers and the four flags that
// begin with -leader-elect.
type Program func(
	ctx context.Context,
	args []string,
	getenv func(string) string,
	stdout, stderr io.Writer,
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
) error

// Options says what is simulated, and what the program promises.
//
// All options except Seed and WholeStory must be set. Simulate panics if one is missing, because a check would pass
// without it. The durations are the program's own, with jitter. From them follows the bound, which is the time within
// which everything must be right after all faults have stopped:
//
//	LongestBackoff + the interval + 10 s for the writes + 2 × LongestDiscovery
//	+ with an election, its lease's duration and renew deadline
//	+ the longest time that a fault since the last calm needs: its own duration, Silence if a
//	  connection fell silent, LongestUnlisted if a change was lost
//
// A bound that is too long hides mistakes. One that is too short reports mistakes where there are none.
type Options struct {
	// Program is what is simulated.
	Program Program

	// Name is what the program is called in the story.
	Name string

	// Rerun tells people how to run one seed once more, and how to see its whole story.
	Rerun func(seed uint64) string

	// Seed chooses the flags, the cluster's life and its faults. RunSeeds sets it.
	Seed uint64

	// WholeStory shows everything that happened when a seed fails, not only the lines around the first broken rule.
	WholeStory bool

	// TotalLabel is the node label that shows how many pods there are.
	TotalLabel string

	// OwnPodsLabel is the node label that shows how many pods the node itself has. Some seeds give it as -node-label.
	OwnPodsLabel string

	// ControlPlaneLabel marks the nodes that show the total.
	ControlPlaneLabel string

	// LeaseNamespace and LeaseName name the lease by which processes elect a leader.
	LeaseNamespace, LeaseName string

	// LeaseLost is part of the error with which a process ends that has lost its lease. In an election this error breaks
	// no rule. Every other error does.
	LeaseLost string

	// LongestBackoff is the longest time between two tries at the same thing, with jitter. It is part of the bound: a
	// try may have failed in the moment before all faults stopped.
	LongestBackoff time.Duration

	// LongestDiscovery is the longest time between two checks whether a resource is installed, with jitter. It is part
	// of the bound twice, because the program believes only the second check that a resource is gone.
	LongestDiscovery time.Duration

	// Silence is how long a connection may be silent before the program takes it for dead. It is part of the bound,
	// with 5 s on top, after a fault that causes no error.
	Silence time.Duration

	// LongestUnlisted is the longest time between two lists of a resource that is watched, even if the first try at the
	// second list fails. It is part of the bound after a change that no watch has brought, and after a backup was
	// restored.
	LongestUnlisted time.Duration

	// MinStatusInterval is the shortest time between two writes to the status of one Count, or the interval if that is shorter.
	// An earlier write breaks a rule. Between two writes to one node, the shortest time is the interval.
	MinStatusInterval time.Duration
}

// missing returns the names of the options that must be set and are not.
func (o Options) missing() []string {
	mayBeZero := []string{"Seed", "WholeStory"}
	var names []string
	options := reflect.ValueOf(o)
	for i := range options.NumField() {
		name := options.Type().Field(i).Name
		if options.Field(i).IsZero() && !slices.Contains(mayBeZero, name) {
			names = append(names, name)
		}
	}
	return names
}

// Result is the result of one seed.
type Result struct {
	// Stats has the seed's numbers.
	Stats Stats

	// Script has a line for each change and each fault that the seed has brought, with its time.
	Script []string

	// Broken has the rules that were broken, in the order in which the simulation noticed it. Each begins with the name
	// of the process that has broken the rule, unless the rule is about the cluster or the whole seed.
	Broken []string

	// Story is what led to the first broken rule: what the seed has brought, and what the processes sent and logged.
	Story string
}

// Stats counts, for one seed or several, what was checked against the rules. String prints all the numbers.
type Stats struct {
	seeds     int
	changes   int // from the cluster's life, and faults
	faults    int
	requests  int
	writes    int
	watches   int // as logged by the processes
	events    int // as logged by the processes, with bookmarks
	calms     int // how often all faults stopped
	simulated time.Duration
	slowest   time.Duration // the longest time from a calm's start to its last write
}

func (s *Stats) add(o Stats) {
	s.seeds += o.seeds
	s.changes += o.changes
	s.faults += o.faults
	s.requests += o.requests
	s.writes += o.writes
	s.watches += o.watches
	s.events += o.events
	s.calms += o.calms
	s.simulated += o.simulated
	s.slowest = max(s.slowest, o.slowest)
}

// String returns a sentence with all the numbers.
func (s Stats) String() string {
	return fmt.Sprintf("%d seeds, %.0f simulated hours: %d changes, %d of them faults; %d requests, %d writes, "+
		"%d watches with %d events held against the rules; "+
		"%d times all faults stopped, the last write was %v later at most",
		s.seeds, s.simulated.Hours(), s.changes, s.faults, s.requests, s.writes,
		s.watches, s.events, s.calms, s.slowest.Round(time.Millisecond))
}
