package sim

import (
	"math/rand/v2"
	"time"

	"podcount/lab/fakekube"
)

// flags holds the flags that a seed draws, and what they mean.
type flags struct {
	args []string

	// What the program counts, and what it writes.
	interval       time.Duration
	selects        func(pod fakekube.Object) bool
	namespace      string // only the pods and Counts of this namespace matter, unless it is ""
	labelsEachNode bool   // each node gets a label with the number of its own pods
	runsCounts     bool   // the controller count runs

	// The election. Both are 0 if there is none.
	leaseDuration time.Duration
	renewDeadline time.Duration
}

// elects reports whether processes elect a leader.
func (f flags) elects() bool { return f.leaseDuration > 0 }

// drawFlags draws the flags of all processes, except those of the election. ownPodsLabel is for -node-label.
func drawFlags(dice *rand.Rand, ownPodsLabel string) flags {
	f := flags{selects: func(fakekube.Object) bool { return true }}
	f.interval = pick(dice, time.Second, 10*time.Second, 10*time.Second, 30*time.Second)
	f.args = []string{"-interval", f.interval.String()}
	f.args = append(f.args, "-wire", pick(dice, "protobuf", "protobuf", "json"))
	f.args = append(f.args, "-pod-events", pick(dice, "on", "off", "off", "off"))
	f.labelsEachNode = dice.IntN(2) == 0
	if f.labelsEachNode {
		f.args = append(f.args, "-node-label", ownPodsLabel)
	}
	switch dice.IntN(6) {
	case 0:
		f.args = append(f.args, "-pod-selector", "app in (web,none)")
		f.selects = func(pod fakekube.Object) bool {
			app := labelOf(pod, "app")
			return app == "web" || app == "none"
		}
	case 1:
		f.args = append(f.args, "-field-selector", "spec.nodeName!=")
		f.selects = func(pod fakekube.Object) bool { return nodeOf(pod) != "" }
	case 2:
		f.args = append(f.args, "-namespace", "default")
		f.namespace = "default"
	}
	f.runsCounts = dice.IntN(2) > 0
	if !f.runsCounts {
		f.args = append(f.args, "-controllers", "pod-count")
	}
	return f
}

// drawElection draws whether processes elect a leader, and adds the flags for that.
func (f *flags) drawElection(dice *rand.Rand) {
	if dice.IntN(2) > 0 {
		return
	}
	type times struct{ duration, deadline, retry time.Duration }
	short := times{15 * time.Second, 10 * time.Second, 2 * time.Second}
	middle := times{60 * time.Second, 40 * time.Second, 10 * time.Second}
	long := times{120 * time.Second, 80 * time.Second, 20 * time.Second}
	chosen := pick(dice, short, middle, long, long, long)
	f.leaseDuration = chosen.duration
	f.renewDeadline = chosen.deadline
	f.args = append(f.args, "-leader-elect",
		"-leader-elect-lease-duration", chosen.duration.String(),
		"-leader-elect-renew-deadline", chosen.deadline.String(),
		"-leader-elect-retry-period", chosen.retry.String())
}
