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

// Program is the program under simulation, from its flags to its end, which comes soon after that of ctx: as a process
// is asked to stop by a signal. It reaches the server through dial alone, starts nothing that outlives it, and is run
// several times at once. Its log goes to stderr.
//
// It gets the flags -master with a URL over plain http, -v 4, -log-format json, -interval, -wire and -pod-events. Some
// seeds also give it -node-label, -pod-selector, -field-selector, -namespace, -controllers and the four that begin with
// -leader-elect.
type Program func(
	ctx context.Context,
	args []string,
	getenv func(string) string,
	stdout, stderr io.Writer,
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
) error

// Options say what is simulated, and what the program promises.
//
// All but Seed and WholeStory must be set: Simulate panics where one is missing, as a check would pass for lack of it.
// The durations are promises, as the program's real constants are, jitter included. From them comes the bound, the time
// within which all must be right once all faults have stopped:
//
//	LongestBackoff + the interval + 10 s for the writes + 2 × LongestDiscovery
//	+ with an election, its lease's duration and renew deadline
//	+ the longest that a fault since the last calm has made necessary: how long it goes on by itself,
//	  Silence where a connection fell silent, LongestUnlisted where a change was lost
//
// Too long a bound hides mistakes, too short a one finds some where there are none.
type Options struct {
	// Program is what is simulated.
	Program Program

	// Name is what the program is called in the story.
	Name string

	// Rerun says, for people, how to run one seed once more, and how to see its whole story.
	Rerun func(seed uint64) string

	// Seed chooses the flags, the cluster's life and its faults. RunSeeds sets it.
	Seed uint64

	// WholeStory shows all that happened when a seed fails, not just the end.
	WholeStory bool

	// TotalLabel is the node label that shows how many pods there are.
	TotalLabel string

	// OwnPodsLabel is the node label that shows how many pods the node itself has. Some seeds give it as -node-label.
	OwnPodsLabel string

	// ControlPlaneLabel marks the nodes that show the total.
	ControlPlaneLabel string

	// LeaseNamespace and LeaseName are those of the lease by which processes elect a leader.
	LeaseNamespace, LeaseName string

	// LeaseLost is part of the error with which a process ends that has lost its lease. Where processes elect a leader,
	// this error breaks no rule. Any other does.
	LeaseLost string

	// LongestBackoff is the longest time between two tries at the same thing, with jitter. It is part of the bound: a
	// try may have failed in the moment before all faults stopped.
	LongestBackoff time.Duration

	// LongestDiscovery is the longest time between two questions for a resource that may not be installed, with
	// jitter. It is part of the bound twice, as it takes two to know that one is gone.
	LongestDiscovery time.Duration

	// Silence is how long a connection may be silent before it is taken for dead. It is part of the bound, with 5 s
	// on top, after a fault that nobody is told of.
	Silence time.Duration

	// LongestUnlisted is the longest time between two lists of a resource that is being watched, also where the first
	// try at the second one fails. A change that no watch tells of stays unknown for so long, so that it is part of
	// the bound after such a change, and after a backup was restored.
	LongestUnlisted time.Duration

	// StatusRest is the least time between two writes to the status of one Count, where the interval is not less. A
	// write that comes sooner breaks a rule. Between two writes to one node, that is the interval.
	StatusRest time.Duration
}

// missing are the names of those that must be set and are not.
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

// Result is what became of a seed.
type Result struct {
	// Stats are the seed's numbers.
	Stats Stats

	// Script is the life and the faults that the seed brought, a line each, and when.
	Script []string

	// Broken are the rules that were broken, in the order in which that was noticed. Where it was one process that broke
	// a rule, its name comes first; what is wrong with the cluster or with the whole seed names none.
	Broken []string

	// Story is what led to the first of them: what the seed brought, what processes asked and logged.
	Story string
}

// Stats are numbers of what was seen, in one seed or several: that much has been held against the rules. They are for
// people: String has all of them.
type Stats struct {
	seeds     int
	changes   int // of the cluster's life, and faults
	faults    int
	requests  int
	writes    int
	watches   int // that processes said they had begun
	events    int // that processes said they had heard, bookmarks too
	calms     int // times that all faults stopped
	simulated time.Duration
	slowest   time.Duration // the last write after all faults had stopped
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

// String is one sentence of all the numbers.
func (s Stats) String() string {
	return fmt.Sprintf("%d seeds, %.0f simulated hours: %d changes, %d of them faults; %d requests, %d writes, "+
		"%d watches with %d events held against the rules; "+
		"%d times all faults stopped, the last write was %v later at most",
		s.seeds, s.simulated.Hours(), s.changes, s.faults, s.requests, s.writes,
		s.watches, s.events, s.calms, s.slowest.Round(time.Millisecond))
}
