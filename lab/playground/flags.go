package main

import (
	"slices"
	"strings"
	"time"
)

// flags are the flags that the user gave for podcount.
type flags []string

// nameOf returns the name and the value of an argument such as -name, --name or -name=value.
func nameOf(argument string) (name, value string, hasValue bool) {
	if !strings.HasPrefix(argument, "-") {
		return "", "", false
	}
	name = strings.TrimPrefix(strings.TrimPrefix(argument, "-"), "-")
	return strings.Cut(name, "=")
}

// has reports whether a flag was given. If the name ends in "*", any flag that begins so counts.
func (f flags) has(wanted string) bool {
	beginning, isOpen := strings.CutSuffix(wanted, "*")
	return slices.ContainsFunc(f, func(argument string) bool {
		name, _, _ := nameOf(argument)
		return name == wanted || isOpen && strings.HasPrefix(name, beginning)
	})
}

// value returns the value of a flag. It is the last one if the flag was given more than once.
func (f flags) value(wanted, otherwise string) string {
	found := otherwise
	for i, argument := range f {
		name, value, hasValue := nameOf(argument)
		switch {
		case name != wanted:
		case hasValue:
			found = value
		case i+1 < len(f):
			found = f[i+1]
		}
	}
	return found
}

// without returns the flags without one that has a value.
func (f flags) without(unwanted string) flags {
	var rest flags
	for i := 0; i < len(f); i++ {
		name, _, hasValue := nameOf(f[i])
		if name != unwanted {
			rest = append(rest, f[i])
			continue
		}
		if !hasValue {
			i++ // skip the value
		}
	}
	return rest
}

// interval returns podcount's -interval.
func (f flags) interval() time.Duration { return f.duration("interval", 10*time.Second) }

// renewDeadline returns how long podcount leads without renewing the Lease.
func (f flags) renewDeadline() time.Duration {
	return f.duration("leader-elect-renew-deadline", 10*time.Second)
}

// leaseDuration returns how long a Lease is valid that nobody renews.
func (f flags) leaseDuration() time.Duration {
	return f.duration("leader-elect-lease-duration", 15*time.Second)
}

// duration returns the value of a flag, or podcount's default. podcount itself refuses a value that is no duration.
func (f flags) duration(name string, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(f.value(name, ""))
	if err != nil {
		return otherwise
	}
	return d
}

// electionFlags are the flags with which podcount takes part in an election, as the page shows it. The durations are
// long enough for a leader to survive each outage of the playground. A replica that stops politely gives the Lease
// back, so that the other one need not wait.
var electionFlags = flags{
	"-leader-elect",
	"-leader-elect-lease-duration=90s",
	"-leader-elect-renew-deadline=75s",
}

// withElection adds the flags for an election, unless the user's flags decide that themselves.
func (f flags) withElection() flags {
	for _, name := range []string{"leader-elect*", "once", "prune", "dry-run", "manifest", "h", "help", "version"} {
		if f.has(name) {
			return f
		}
	}
	return append(slices.Clone(electionFlags), f...)
}

// writesLabel reports whether podcount writes the label with the number of all pods.
func (f flags) writesLabel() bool {
	controllers := strings.Split(f.value("controllers", "*"), ",")
	isOn := slices.Contains(controllers, "*") || slices.Contains(controllers, "pod-count")
	return isOn && !slices.Contains(controllers, "-pod-count") && !f.has("dry-run") && !f.has("prune")
}

// hasElection reports whether podcount takes part in an election.
func (f flags) hasElection() bool {
	return f.has("leader-elect") && f.value("leader-elect", "") != "false" && !f.has("dry-run")
}
