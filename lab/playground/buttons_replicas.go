package main

import (
	"errors"
	"fmt"
	"time"
)

// These buttons start and stop processes of podcount.

// secondToken is the token with which the second replica talks to the server.
const secondToken = "playground-second-replica"

// lookTime is how long the second replica is watched before the report says that it has written nothing.
const lookTime = 3 * time.Second

func restartButton() *button {
	return &button{
		name:     "restart",
		disturbs: true,
		label:    fixed("Restart podcount"),
		expect: func(p *playground) string {
			const end = " It writes no label that is right already. This page says that it has lost podcount, and " +
				"finds it again within some seconds."
			switch {
			case p.hasSecondReplica():
				return "The leader stops and gives its Lease back. Then it starts with empty caches, and lists " +
					"everything. Either replica is elected within five seconds, and works." + end
			case p.flags.hasElection():
				return "podcount stops and gives its Lease back. Then it starts with empty caches, lists everything, " +
					"is elected, and works. That takes a second or two." + end
			}
			return "podcount stops. Then it starts with empty caches, lists everything, and works. That takes a " +
				"second or two." + end
		},
		act: (*playground).restart,
	}
}

// restart stops the replica that is shown, and starts it again at once.
func (p *playground) restart(r *press) error { return p.replace(r, p.stopReplica) }

// killLeader is restart without a warning.
func (p *playground) killLeader(r *press) error {
	return p.replace(r, func(r *press, replica *replica) {
		p.replicas.kill(replica)
		r.say("%s is dead.", capitalized(replica.name))
	})
}

// replace ends the process of the replica that is shown, and starts it again at once.
func (p *playground) replace(r *press, end func(*press, *replica)) error {
	replica := p.replicas.shown()
	if replica == nil {
		return errNotRunning
	}
	before, holder := p.label(), p.holder()
	ended := time.Now()
	end(r, replica)
	started := time.Now()
	if err := p.startReplica(r, replica); err != nil {
		return err
	}
	if !p.hasSecondReplica() {
		r.say("Nobody served this page for at most %s.", rounded(time.Since(ended)))
	}
	if err := p.awaitLeader(r, "the end", ended, holder); err != nil {
		return err
	}
	return p.followLabel(r, before, started, "the start", 0)
}

var errNotRunning = errors.New("podcount does not run")

// stopReplica stops a replica and reports how long that took.
func (p *playground) stopReplica(r *press, replica *replica) {
	began := time.Now()
	if err := p.replicas.stop(replica); err != nil {
		r.say("%s", sentence(err))
		return
	}
	r.say("%s has stopped within %s.", capitalized(replica.name), rounded(time.Since(began)))
}

// startReplica starts a replica, and waits until it has listed what it caches, and its page answers.
func (p *playground) startReplica(r *press, replica *replica) error {
	since := time.Now()
	if err := p.replicas.start(replica); err != nil {
		return err
	}
	return p.awaitCaches(r, replica, since)
}

// awaitCaches waits until a replica that was just started watches, and its page answers.
func (p *playground) awaitCaches(r *press, replica *replica, since time.Time) error {
	watches := func() bool { return p.requests(since, replica).watches > 0 && p.replicas.hasPage(replica) }
	isReady, err := p.await(p.pauses.giveUp, watches)
	if err != nil {
		return err
	}
	if !isReady {
		return fmt.Errorf("%s does not watch, or shows no page", replica.name)
	}
	r.say("%s was started. %s later, it watched, after %s.", capitalized(replica.name),
		rounded(time.Since(since)), counted(p.requests(since, replica).lists, "list"))
	return nil
}

// awaitLeader waits until a replica leads, if there is an election, and reports how long that took since an event. old
// is the identity of a leader that does not count, or "".
func (p *playground) awaitLeader(r *press, event string, since time.Time, old string) error {
	if !p.flags.hasElection() {
		return nil
	}
	var leader *replica
	limit := p.pauses.giveUp + p.flags.leaseDuration() // the old leader may not have given the Lease back
	isLed, err := p.await(limit, func() bool {
		leader = p.leader()
		return leader != nil && p.holder() != old
	})
	if err != nil {
		return err
	}
	if !isLed {
		return errors.New("no replica was elected")
	}
	r.say("%s leads, %s after %s.", capitalized(leader.name), rounded(time.Since(since)), event)
	return nil
}

// leader returns the replica that runs and holds the Lease, or nil.
func (p *playground) leader() *replica {
	replica := p.replicas.shown()
	if replica == nil || !p.leads(replica.token) {
		return nil
	}
	return replica
}

func killButton() *button {
	return &button{
		name:     "kill",
		disturbs: true,
		label:    fixed("Kill podcount"),
		expect: func(p *playground) string {
			const start = "podcount ends at once, and then starts again with empty caches. "
			if !p.flags.hasElection() {
				return start + "Nothing is lost, because the API server keeps all that podcount needs."
			}
			return start + "The dead leader has not given its Lease back, and nobody can know that it is dead. So the " +
				"next one leads only when the Lease has not changed for " + seconds(p.flags.leaseDuration()) +
				". Until then, nobody writes."
		},
		act: (*playground).killLeader,
	}
}

func pauseButton() *button {
	return &button{
		name:     "pause",
		disturbs: true,
		label:    fixed("Pause podcount"),
		expect: func(p *playground) string {
			if p.hasSecondReplica() {
				return "The leader does nothing for so long that it loses its Lease, which takes up to " +
					seconds(p.flags.leaseDuration()) + ". The other replica leads. Then the old leader goes on, sees " +
					"that its time is over, and ends without a write. It is started again, and waits."
			}
			return "podcount does nothing for " + seconds(p.pauses.away) + ", as if its machine was frozen, and a pod " +
				"comes meanwhile. Then it goes on, reads what its watches have brought, and corrects the label. It " +
				"still leads, because the pause is shorter than the Lease lasts."
		},
		act: (*playground).pauseLeader,
	}
}

// pauseLeader lets the replica that is shown do nothing for a while. If there is another one, it takes over.
func (p *playground) pauseLeader(r *press) error {
	if err := p.settle(); err != nil {
		return err
	}
	replica := p.replicas.shown()
	if replica == nil {
		return errNotRunning
	}
	before, holder := p.label(), p.holder()
	isReplaced := p.hasSecondReplica()
	paused := p.replicas.expectEnd(replica, isReplaced)
	if paused == nil {
		return errNotRunning
	}
	paused.child.pause()
	began := time.Now()
	r.say("%s does nothing any more.", capitalized(replica.name))
	err := p.growWeb(r)
	switch {
	case err != nil:
	case isReplaced:
		err = p.awaitLeader(r, "the pause began", began, holder)
	default:
		err = r.wait(p.pauses.away)
	}
	written := p.requests(began, replica).labels
	paused.child.resume()
	woken := time.Now()
	if err != nil {
		p.replicas.expectEnd(replica, false)
		return err
	}
	r.say("%s went on after %s. Until then, it wrote %s.", capitalized(replica.name), rounded(woken.Sub(began)),
		counted(written, "label"))
	if isReplaced {
		hasEnded, err := p.await(p.pauses.giveUp, func() bool { return !p.replicas.isRunning(replica) })
		switch {
		case err != nil:
			return err
		case !hasEnded:
			return fmt.Errorf("%s has not ended", replica.name)
		}
		r.say("It saw that its time was over, and ended after %s. It had written %s since.", rounded(time.Since(woken)),
			counted(p.requests(woken, replica).labels, "label"))
		if err := p.startReplica(r, replica); err != nil {
			return err
		}
	}
	return p.followLabel(r, before, began, "the pause began", 0)
}

func secondReplicaButton() *button {
	return &button{
		name:     "second-replica",
		disturbs: true,
		label: func(p *playground) string {
			if p.hasSecondReplica() {
				return "Stop the leader"
			}
			return "A second replica"
		},
		expect: func(p *playground) string {
			if p.hasSecondReplica() {
				return "The leader stops and gives its Lease back. The other replica, whose caches are warm, sees " +
					"that within five seconds, and leads. The page moves to it. Then the old leader is started " +
					"again, and waits."
			}
			return "A second podcount starts with the same flags. It fills its caches, and waits, because the first " +
				"one renews its Lease. It writes nothing. Then this button stops the leader."
		},
		whyNot: func(p *playground) string {
			if p.flags.hasElection() {
				return ""
			}
			return "podcount runs without -leader-elect, so that two of them would both write: leave out the flags " +
				"that you gave about that"
		},
		act: func(p *playground, r *press) error {
			if p.hasSecondReplica() {
				return p.stopLeader(r)
			}
			return p.startSecond(r)
		},
	}
}

func (p *playground) hasSecondReplica() bool { return len(p.replicas.list()) > 1 }

// startSecond starts a second replica, and looks what it does.
func (p *playground) startSecond(r *press) error {
	file := secondKubeconfig(p.replicas.list()[0].kubeconfig)
	p.cluster.fake.AddUser(secondToken, "second-replica", "system:masters")
	withoutPort := p.flags.without("listen") // the first replica listens there
	second := newReplica("the second replica", secondToken, file, withoutPort)
	since := time.Now()
	if err := p.replicas.add(second); err != nil {
		return err
	}
	if err := p.awaitCaches(r, second, since); err != nil {
		return err
	}
	p.publishButtons()
	if err := r.wait(lookTime); err != nil {
		return err
	}
	r.say("In %s, it sent %s.", rounded(time.Since(since)), p.requests(since, second))
	if leader := p.leader(); leader != nil {
		r.say("%s still leads.", capitalized(leader.name))
	}
	return nil
}

// stopLeader stops the leader, waits until the other replica leads, and starts the old leader again.
func (p *playground) stopLeader(r *press) error {
	old := p.leader()
	if old == nil {
		return errors.New("no replica leads now")
	}
	if err := p.settle(); err != nil {
		return err
	}
	before := p.label()
	p.stopReplica(r, old)
	stopped := time.Now()
	err := p.awaitTakeover(r, before, stopped)
	if err := errors.Join(err, p.startReplica(r, old)); err != nil {
		return err
	}
	r.say("It waits now.")
	return nil
}

// awaitTakeover waits until a replica leads after the old leader has stopped, and gives it something to do.
func (p *playground) awaitTakeover(r *press, before string, stopped time.Time) error {
	if err := p.awaitLeader(r, "the stop", stopped, ""); err != nil {
		return err
	}
	if err := p.growWeb(r); err != nil {
		return err
	}
	return p.followLabel(r, before, stopped, "the stop", 0)
}
