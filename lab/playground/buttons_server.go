package main

import (
	"errors"
	"fmt"
	"time"

	"podcount/lab/fakekube"
)

// These buttons disturb the server, or the connections to it.

func killServerButton() *button {
	return &button{
		name:     "kill-server",
		disturbs: true,
		label:    fixed("Kill the server"),
		expect: func(p *playground) string {
			return fmt.Sprintf("The server is gone for %s, and a pod comes meanwhile. podcount tries again after "+
				"pauses that double. So it notices the server's return %s. Then it continues its watches where "+
				"they ended, without a list.", seconds(p.pauses.away), withinSeconds(longestPause(p.pauses.away))) +
				p.warnOfLostLease(p.pauses.away)
		},
		act: (*playground).killServer,
	}
}

// killServer takes the server away for a while.
func (p *playground) killServer(r *press) error {
	if err := p.settle(); err != nil {
		return err
	}
	before := p.label()
	gone := time.Now()
	if err := p.use(func(c *cluster) { c.takeAway(p.pauses.away) }); err != nil {
		return err
	}
	r.say("The server is gone.")
	if err := p.growWeb(r); err != nil {
		return err
	}
	if err := r.wait(p.pauses.away); err != nil {
		return err
	}
	isBack := func() bool {
		isAway, _ := p.cluster.newestOutage()
		return !isAway
	}
	if _, err := p.await(p.pauses.giveUp, isBack); err != nil {
		return err
	}
	back := time.Now()
	r.say("It was away for %s. Meanwhile podcount sent %s in vain.",
		rounded(back.Sub(gone)), counted(p.requests(gone).all-p.requests(back).all, "request"))
	limit := longestPause(p.pauses.away) + p.pauses.giveUp
	watches := func(t traffic) bool { return t.watches > 0 }
	if err := p.awaitTraffic(back, limit, "watched again", watches); err != nil {
		return err
	}
	r.say("podcount watched again %s after the return.", rounded(time.Since(back)))
	return p.followLabel(r, before, back, "the return", longestPause(p.pauses.away))
}

// renewal is how much longer than a silence the time between two renewals of the Lease may be.
const renewal = 10 * time.Second

// warnOfLostLease says what happens to a leader that cannot renew its Lease for some time.
func (p *playground) warnOfLostLease(silence time.Duration) string {
	if !p.flags.hasElection() || p.flags.renewDeadline() > silence+renewal {
		return ""
	}
	return fmt.Sprintf(" But a leader that cannot renew its Lease for %s ends, and the playground ends with it.",
		seconds(p.flags.renewDeadline()))
}

func expireHistoryButton() *button {
	return &button{
		name:     "expire-history",
		disturbs: true,
		label:    fixed("Expire the history"),
		expect: fixed("The server breaks all watches and forgets its history, in which a pod came. So no watch will " +
			"ever report that pod. podcount asks for what happened since its last version, hears 410 Expired, waits " +
			"some seconds, and lists again. Then the label is right. Each further time within two minutes, the wait " +
			"is longer, up to a minute."),
		act: (*playground).expireHistory,
	}
}

// expireHistory makes the server forget its history, with a new pod in it.
func (p *playground) expireHistory(r *press) error {
	if err := p.settle(); err != nil {
		return err
	}
	before := p.label()
	since := time.Now()
	if err := p.use((*cluster).forgetHistory); err != nil {
		return err
	}
	r.say("The server has forgotten its history. There is a new pod that no watch will report.")
	if err := p.awaitList(r, since); err != nil {
		return err
	}
	return p.followLabel(r, before, since, "the history was forgotten", 0)
}

// awaitList waits until podcount has listed the pods again since a time, and reports how long that took.
func (p *playground) awaitList(r *press, since time.Time) error {
	lists := func(t traffic) bool { return t.ofPods > 0 }
	limit := 2*lastPause + p.pauses.giveUp // the pauses double here, too
	if err := p.awaitTraffic(since, limit, "listed again", lists); err != nil {
		return err
	}
	r.say("podcount began to list the pods again after %s.", rounded(time.Since(since)))
	return nil
}

func loseEventButton() *button {
	return &button{
		name:     "lose-event",
		disturbs: true,
		label:    fixed("Lose an event"),
		expect: func(p *playground) string {
			return fmt.Sprintf("A pod is gone, but the server forgets to tell the watches. podcount cannot know, so "+
				"its label is one too high. In a cluster, the next list or the hourly audit mends that. Here, the "+
				"server forgets its history %s later, so that podcount must list again.", seconds(p.pauses.wrong))
		},
		act: (*playground).loseEvent,
	}
}

// loseEvent removes a pod without telling the watches, and makes podcount list again some time later.
func (p *playground) loseEvent(r *press) error {
	if err := p.settle(); err != nil {
		return err
	}
	before := p.label()
	began := time.Now()
	var lie *fakekube.Injection
	name := ""
	err := p.use(func(c *cluster) {
		name, lie = c.removeSilently()
	})
	if err != nil {
		return err
	}
	if lie == nil {
		return errors.New("web has no pod left that could be removed")
	}
	defer lie.Lift()
	r.say("The pod %s is gone, and no watch was told. The label is %s, and the truth is %s.", name, before, p.truth())
	if err := r.wait(p.pauses.wrong); err != nil {
		return err
	}
	if p.label() == p.truth() {
		r.say("After %s, something else has mended it.", rounded(time.Since(began)))
	} else {
		r.say("After %s, the label is %s, and the truth is %s.", rounded(time.Since(began)), p.label(), p.truth())
	}
	wrong := p.label()
	since := time.Now()
	if err := p.use((*cluster).forgetHistoryOnly); err != nil {
		return err
	}
	r.say("Now the server has forgotten its history.")
	if err := p.awaitList(r, since); err != nil {
		return err
	}
	return p.followLabel(r, wrong, since, "the history was forgotten", 0)
}

// removeSilently removes a pod of web, and hides that from the watches until the lie is lifted. lie is nil if there is
// no such pod.
func (c *cluster) removeSilently() (name string, lie *fakekube.Injection) {
	web := c.controllers.web
	names := c.podsOf(web)
	if len(names) == 0 {
		return "", nil
	}
	name = names[0]
	key := fakekube.Key{Namespace: web.namespace, Name: name}
	lie = c.fake.InjectUnchecked(fakekube.Fault{
		On: fakekube.Requests{Verb: "watch", Resource: "pods", Namespace: key.Namespace, Name: key.Name},
		Do: fakekube.Lie{Changes: 2}, // that it is being deleted, and that it is gone
	})
	web.replicas--
	c.finish("pods", c.fake.Get("pods", key))
	return name, lie
}

// pingLimit is how long podcount takes to notice a silent connection, and silenceLimit is how long without HTTP/2.
const (
	pingLimit    = 45 * time.Second
	silenceLimit = 150 * time.Second
)

func halfOpenButton() *button {
	return &button{
		name:     "half-open",
		disturbs: true,
		label:    fixed("Half-open connection"),
		expect: func(p *playground) string {
			return "All connections stay open, but nothing passes any more, and a pod comes. At first, nobody gets an error. " +
				"After 30 s of silence, podcount sends an HTTP/2 ping, and it waits 15 s for the answer. So it " +
				"notices after 45 s, connects again, and continues its watches without a list. Without HTTP/2, it " +
				"would notice after 150 s." +
				p.warnOfLostLease(pingLimit)
		},
		act: (*playground).silenceConnections,
	}
}

// silenceConnections makes the open connections half-open.
func (p *playground) silenceConnections(r *press) error {
	if err := p.settle(); err != nil {
		return err
	}
	before := p.label()
	since := time.Now()
	p.endpoint.GoSilent()
	r.say("Nothing passes any more on the connections to the server.")
	if err := p.growWeb(r); err != nil {
		return err
	}
	limit := silenceLimit + p.pauses.giveUp
	watches := func(t traffic) bool { return t.watches > 0 }
	if err := p.awaitTraffic(since, limit, "watched again", watches); err != nil {
		return err
	}
	r.say("podcount watched again after %s.", rounded(time.Since(since)))
	return p.followLabel(r, before, since, "the silence began", 0)
}

// slowness is how long each answer of a slow server takes.
const slowness = 2 * time.Second

func slowServerButton() *button {
	return &button{
		name:     "slow-server",
		disturbs: true,
		label:    fixed("Slow server"),
		expect: func(p *playground) string {
			return fmt.Sprintf("For %s, each answer takes %s, and a pod comes. Watches that are open still report at "+
				"once. So the label changes %s later than usual, and podcount does not send the patch twice.",
				seconds(p.pauses.slow), seconds(slowness), seconds(slowness))
		},
		act: (*playground).slowDown,
	}
}

// slowDown makes the server slow for a while, but not for the components of the cluster.
func (p *playground) slowDown(r *press) error {
	if err := p.settle(); err != nil {
		return err
	}
	before := p.label()
	began := time.Now()
	fault := p.cluster.fake.InjectUnchecked(fakekube.Fault{
		On:    fakekube.Requests{Host: p.cluster.host},
		Times: fakekube.Always,
		Delay: slowness,
	})
	defer fault.Lift()
	r.say("Each answer takes %s.", seconds(slowness))
	since := time.Now()
	if err := p.growWeb(r); err != nil {
		return err
	}
	if err := p.followLabel(r, before, since, "the pod was created", slowness); err != nil {
		return err
	}
	if err := r.wait(time.Until(began.Add(p.pauses.slow))); err != nil {
		return err
	}
	answers := counted(fault.Used(), "slow answer")
	r.say("The server is fast again, after %s and %s.", rounded(time.Since(began)), answers)
	return nil
}
