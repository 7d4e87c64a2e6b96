package sim

import (
	"math/rand/v2"
	"time"

	"podcount/internal/fakekube"
)

// flags holds the flags that a seed chooses, and what they mean.
type flags struct {
	args           []string
	interval       time.Duration
	selects        func(pod fakekube.Object) bool
	namespace      string // only its pods are counted, unless it is ""
	labelsEachNode bool   // each node shows the number of its own pods
	runsCounts     bool   // the controller count runs
	leaseDuration  time.Duration
	renewDeadline  time.Duration // without an election, it is 0, and so is leaseDuration
}

// elects reports whether processes elect a leader.
func (o flags) elects() bool { return o.leaseDuration > 0 }

// drawFlags chooses the flags of all processes. ownPodsLabel is the value of -node-label.
func drawFlags(dice *rand.Rand, ownPodsLabel string) flags {
	o := flags{selects: func(fakekube.Object) bool { return true }}
	o.interval = pick(dice, time.Second, 10*time.Second, 10*time.Second, 30*time.Second)
	o.args = []string{"-interval", o.interval.String()}
	o.args = append(o.args, "-wire", pick(dice, "protobuf", "protobuf", "json"))
	o.args = append(o.args, "-pod-events", pick(dice, "on", "off", "off", "off"))
	o.labelsEachNode = dice.IntN(2) == 0
	if o.labelsEachNode {
		o.args = append(o.args, "-node-label", ownPodsLabel)
	}
	switch dice.IntN(6) {
	case 0:
		o.args = append(o.args, "-pod-selector", "app in (web,none)")
		o.selects = func(pod fakekube.Object) bool {
			app := labelOf(pod, "app")
			return app == "web" || app == "none"
		}
	case 1:
		o.args = append(o.args, "-field-selector", "spec.nodeName!=")
		o.selects = func(pod fakekube.Object) bool { return nodeOf(pod) != "" }
	case 2:
		o.args = append(o.args, "-namespace", "default")
		o.namespace = "default"
	}
	o.runsCounts = dice.IntN(2) > 0
	if !o.runsCounts {
		o.args = append(o.args, "-controllers", "pod-count")
	}
	return o
}

// drawElection chooses whether processes elect a leader, and how fast.
func (o *flags) drawElection(dice *rand.Rand) {
	if dice.IntN(2) > 0 {
		return
	}
	type times struct{ duration, deadline, retry time.Duration }
	short := times{15 * time.Second, 10 * time.Second, 2 * time.Second}
	middle := times{60 * time.Second, 40 * time.Second, 10 * time.Second}
	long := times{120 * time.Second, 80 * time.Second, 20 * time.Second}
	chosen := pick(dice, short, middle, long, long, long)
	o.leaseDuration = chosen.duration
	o.renewDeadline = chosen.deadline
	o.args = append(o.args, "-leader-elect",
		"-leader-elect-lease-duration", chosen.duration.String(),
		"-leader-elect-renew-deadline", chosen.deadline.String(),
		"-leader-elect-retry-period", chosen.retry.String())
}
