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

// Program runs the program with these flags. It must end soon after ctx does, as a process ends after a signal. It must
// connect to the server only with dial, write its log to stderr, and start nothing that outlives it. Several calls may
// run at the same time.
//
// The flags are -master with a URL over plain http, or -kubeconfig, and -v 4, -log-format json, -interval, -wire and
// -pod-events. Some seeds add -node-label, -pod-selector, -field-selector, -namespace, -controllers, or -leader-elect
// with its times. The kubeconfig names files with a CA, and with a token or a client certificate, or a program that
// prints a token. All of these change while the program runs. If a file is damaged when the program starts, it may end
// with an error at once.
type Program func(
	ctx context.Context,
	args []string,
	getenv func(string) string,
	stdout, stderr io.Writer,
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
) error

// Options describes what is simulated, and what the program promises.
//
// All options except Seed, Only, WholeStory and Recording must be set. Without one of them, a check would pass wrongly,
// so Simulate panics. The durations are those of the program, including jitter. They determine the bound, which is the
// time within which everything must be right after all faults have stopped:
//
//	LongestBackoff + the interval + 10 s for the writes + 2 × LongestDiscovery
//	+ with an election, its lease's duration and renew deadline
//	+ the longest effect of a fault since the last calm: its own duration; Silence if an
//	  answer did not come; Silence, or HTTP2Silence if HTTP/2 is offered, if a
//	  connection fell silent; LongestUnlisted if a change was lost
//
// A bound that is too long hides mistakes. One that is too short reports mistakes where there are none.
type Options struct {
	// Program is the program to simulate.
	Program Program

	// Name is the name of the program in the story.
	Name string

	// Rerun returns an explanation of how to run one seed again, with all its steps or only some of them, and how to
	// see its whole story.
	Rerun func(seed uint64, only Steps) string

	// Seed determines the access to the server, the flags, the cluster's life and its faults. RunSeeds sets it.
	Seed uint64

	// Only are the steps that happen. All others are left out, and the seed ends with the calm after the last one. nil
	// means all steps.
	Only Steps

	// WholeStory shows everything that happened when a seed fails, not only the lines around the first broken rule.
	WholeStory bool

	// Recording records the history of the seed. nil means that nothing is recorded.
	Recording *Recording

	// TotalLabel is the node label that shows how many pods there are.
	TotalLabel string

	// OwnPodsLabel is the node label that shows how many pods the node itself has. Some seeds give it as -node-label.
	OwnPodsLabel string

	// ControlPlaneLabel marks the nodes that show the total.
	ControlPlaneLabel string

	// LeaseNamespace and LeaseName are the namespace and the name of the lease with which processes elect a leader.
	LeaseNamespace, LeaseName string

	// LeaseLost is part of the error with which a process ends when it has lost its lease. In an election, this error
	// breaks no rule. Every other error does.
	LeaseLost string

	// LongestBackoff is the longest time between two attempts at the same thing. It is part of the bound, because an
	// attempt may fail just before all faults stop.
	LongestBackoff time.Duration

	// LongestDiscovery is the longest time between two checks whether a resource is installed. It is in the bound
	// twice, because only the second check convinces the program that a resource is gone.
	LongestDiscovery time.Duration

	// Silence is how long an answer may be silent before the program gives it up. It is part of the bound, with 5 s on
	// top, after a fault that causes no error.
	Silence time.Duration

	// HTTP2Silence is how long an HTTP/2 connection may be silent before the program gives it up, and how long a TLS
	// handshake may be silent. If the server offers HTTP/2, it replaces Silence after a fault of a whole connection.
	HTTP2Silence time.Duration

	// LongestOldCredential is how long the program may use an old credential after the files have a new one. A request
	// that arrives later breaks a rule, except for the time that it may have needed to connect, or that it may have
	// waited before net/http retried it.
	LongestOldCredential time.Duration

	// LongestUnlisted is the longest time between two lists of a watched resource, even if the first attempt at the
	// second list fails. It is part of the bound after a change that the watches have lost, and after a restored
	// backup.
	LongestUnlisted time.Duration

	// MinStatusInterval is the shortest time between two writes to the status of one Count, unless the interval is
	// shorter. An earlier write breaks a rule. For two writes to one node, the shortest time is the interval.
	MinStatusInterval time.Duration

	// LongestQuestion is for how long the program may not read a watch that has just opened, because it first asks for
	// the newest version.
	LongestQuestion time.Duration

	// atCalm is called at each calm, when nothing happens any more, with the number of processes. It may be nil.
	atCalm func(processes int)
}

// missing returns the names of the options that must be set and are not.
func (o Options) missing() []string {
	mayBeZero := []string{"Seed", "Only", "WholeStory", "Recording", "atCalm"}
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
	// Stats are the statistics of the seed.
	Stats Stats

	// Script has a line for each step, with its act, its time since the act began, and its number. The line says what
	// the step did, and a step that changed nothing has none.
	Script []string

	// Broken has a line for each broken rule, in the order of detection. It begins with the name of the process that
	// has broken the rule, unless the rule is about the cluster or the whole seed.
	Broken []string

	// Story is what led to the first broken rule: the changes, the faults, and what the processes sent and logged.
	Story string

	taken []takenStep // the steps that have happened
	rules []string    // the rules that were broken, in the order of Broken, without the values in them
}

// Stats counts what happened in one seed or several, and what was checked against the rules.
type Stats struct {
	seeds     int
	simulated time.Duration

	// What happened in the cluster.
	changes int // including faults
	faults  int
	calms   int           // how often all faults stopped
	slowest time.Duration // the longest time from the beginning of a calm to its last write

	// How long labels and statuses were not right in calm water.
	labelDelays  delays
	statusDelays delays

	// What the processes did.
	requests int
	writes   int
	watches  int // that the processes have logged
	events   int // that the processes have logged, including bookmarks
	audits   int // that the processes have logged
	drifted  int // objects in which audits found a difference
}

// add adds the statistics of more seeds.
func (s *Stats) add(other Stats) {
	s.seeds += other.seeds
	s.simulated += other.simulated
	s.changes += other.changes
	s.faults += other.faults
	s.calms += other.calms
	s.slowest = max(s.slowest, other.slowest)
	s.labelDelays.addAll(other.labelDelays)
	s.statusDelays.addAll(other.statusDelays)
	s.requests += other.requests
	s.writes += other.writes
	s.watches += other.watches
	s.events += other.events
	s.audits += other.audits
	s.drifted += other.drifted
}

// String returns a sentence with all the numbers.
func (s Stats) String() string {
	return fmt.Sprintf("%d seeds, %.0f simulated hours: %d changes, %d of them faults; %d requests, %d writes, "+
		"%d watches with %d events and %d audits checked against the rules, %d objects had drifted; "+
		"%d times all faults stopped, the last write was at most %v later; "+
		"corrected in calm water: labels: %v; statuses: %v",
		s.seeds, s.simulated.Hours(), s.changes, s.faults, s.requests, s.writes,
		s.watches, s.events, s.audits, s.drifted, s.calms, s.slowest.Round(time.Millisecond),
		s.labelDelays, s.statusDelays)
}
