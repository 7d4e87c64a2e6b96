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
func (p *playground) restart(r *press) error {
	replica := p.replicas.shown()
	if replica == nil {
		return errors.New("podcount does not run")
	}
	before := p.label()
	stopped := time.Now()
	if err := p.stopReplica(r, replica); err != nil {
		return err
	}
	started := time.Now()
	if err := p.startReplica(r, replica); err != nil {
		return err
	}
	if !p.hasSecondReplica() {
		r.say("Nobody served this page for at most %s.", rounded(time.Since(stopped)))
	}
	if err := p.awaitLeader(r, "the stop", stopped); err != nil {
		return err
	}
	return p.followLabel(r, before, started, "the start", 0)
}

// stopReplica stops a replica and reports how long that took.
func (p *playground) stopReplica(r *press, replica *replica) error {
	began := time.Now()
	if err := p.replicas.stop(replica); err != nil {
		return err
	}
	r.say("%s has stopped within %s.", capitalized(replica.name), rounded(time.Since(began)))
	return nil
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
	watches := func() bool { return p.requests(since, replica).watches > 0 && replica.hasPage() }
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

// awaitLeader waits until a replica leads, if there is an election, and reports how long that took since an event.
func (p *playground) awaitLeader(r *press, event string, since time.Time) error {
	if !p.flags.hasElection() {
		return nil
	}
	var leader *replica
	limit := p.pauses.giveUp + p.flags.leaseDuration() // the old leader may not have given the Lease back
	isLed, err := p.await(limit, func() bool {
		leader = p.leader()
		return leader != nil
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
	file, err := writeSecondKubeconfig(p.replicas.list()[0].kubeconfig)
	if err != nil {
		return err
	}
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
	if err := p.stopReplica(r, old); err != nil {
		return err
	}
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
	if err := p.awaitLeader(r, "the stop", stopped); err != nil {
		return err
	}
	if err := p.growWeb(r); err != nil {
		return err
	}
	return p.followLabel(r, before, stopped, "the stop", 0)
}
