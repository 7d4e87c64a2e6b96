package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// button is a button of the page. A press of it changes the cluster, disturbs podcount, and reports what happens.
type button struct {
	name string

	// disturbs reports whether the button disturbs the server or podcount. Only one such press can go on at a time:
	// nobody could tell what comes from what.
	disturbs bool

	// label is the text on the button, and expect says what will happen.
	label  func(p *playground) string
	expect func(p *playground) string

	// whyNot, if set, says why the button can do nothing now, or returns "".
	whyNot func(p *playground) string

	// act does what the button does.
	act func(p *playground, r *press) error
}

// buttons are all buttons, in the order in which the page shows them.
func buttons() []*button {
	return []*button{
		podMoreButton(),
		podLessButton(),
		waveButton(),
		otherWriterButton(),
		killServerButton(),
		expireHistoryButton(),
		loseEventButton(),
		halfOpenButton(),
		slowServerButton(),
		restartButton(),
		killButton(),
		pauseButton(),
		secondReplicaButton(),
	}
}

// fixed returns a function for a text that is always the same.
func fixed(text string) func(*playground) string { return func(*playground) string { return text } }

var (
	// errNoButton is the error for a name that no button has.
	errNoButton = errors.New("there is no such button")

	// errNoLabel is the error of each button if there is no label that it could report about.
	errNoLabel = errors.New("with the flags that you gave, podcount does not write the label that buttons report about")
)

// pressButton presses the button with this name, and returns the number of the press.
func (p *playground) pressButton(name string) (number int, err error) {
	for _, b := range buttons() {
		if b.name != name {
			continue
		}
		if !p.flags.writesLabel() {
			return 0, errNoLabel
		}
		if b.whyNot != nil {
			if reason := b.whyNot(p); reason != "" {
				return 0, errors.New(reason)
			}
		}
		return p.presses.begin(b, b.label(p), func(r *press) error { return p.measure(r) })
	}
	return 0, errNoButton
}

// measure does what the button of a press does. Meanwhile the cluster does not scale web by itself, so that the numbers
// in the report come from the button.
func (p *playground) measure(r *press) error {
	if err := p.use(func(c *cluster) { c.measurements++ }); err != nil {
		return err
	}
	defer p.use(func(c *cluster) { c.measurements-- })
	if err := p.awaitReturn(r); err != nil {
		return err
	}
	return r.button.act(p, r)
}

// awaitReturn waits until podcount has noticed the end of the last outage, which a signal or another press has made. If
// two outages became one, podcount would need longer than the button says.
func (p *playground) awaitReturn(r *press) error {
	if p.hasReturned() {
		return nil
	}
	r.say("First, podcount has to find the server again, which was away.")
	limit := outage + longestPause(outage) + p.pauses.giveUp
	hasReturned, err := p.await(limit, p.hasReturned)
	if err == nil && !hasReturned {
		err = fmt.Errorf("after %s, podcount has not watched again", rounded(limit))
	}
	return err
}

// hasReturned reports whether each replica that runs has watched since the last outage.
func (p *playground) hasReturned() bool {
	isAway, backAt := p.cluster.newestOutage()
	if isAway {
		return false
	}
	return !slices.ContainsFunc(p.replicas.list(), func(r *replica) bool {
		return p.replicas.isRunning(r) && p.requests(backAt, r).watches == 0
	})
}

// podcount waits this long after a request that was not answered: at least firstPause, then twice as long, and so on up
// to lastPause. By chance, each wait is up to twice as long.
const (
	firstPause = 800 * time.Millisecond
	lastPause  = 30 * time.Second
)

// longestPause returns how long podcount may need to notice that the server is back after an outage.
func longestPause(outage time.Duration) time.Duration {
	pause := firstPause
	for elapsed := pause; elapsed <= outage && pause < lastPause; elapsed += pause {
		pause = min(2*pause, lastPause)
	}
	return 2 * pause
}

// busyError says why a button cannot be pressed now, though it can a little later. That is no failure.
type busyError string

func (e busyError) Error() string { return string(e) }

// whyNotDuring says why a button cannot be pressed while a press of another one goes on. It returns "" if it can.
func (b *button) whyNotDuring(other *press) string {
	switch {
	case b.name == other.button.name:
		return "this is still going on: press again when it is done"
	case b.disturbs && other.button.disturbs:
		return fmt.Sprintf("%q is still going on, and would mix with this: press again when it is done", other.label)
	}
	return ""
}

// await waits until a condition holds. It checks the condition with each change of the cluster, and every 20 ms.
// isMet is false if that takes longer than limit. err is not nil if the playground ends.
func (p *playground) await(limit time.Duration, condition func() bool) (isMet bool, err error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		changed := p.cluster.fake.NextChange()
		if condition() {
			return true, nil
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond):
		case <-late.C:
			return condition(), nil
		case <-p.ctx.Done():
			return false, errEnding
		}
	}
}

// awaitTruth waits until the label is right. extra is added to the time that this may usually take.
func (p *playground) awaitTruth(extra time.Duration) error {
	limit := p.pauses.giveUp + p.flags.interval() + extra
	isRight, err := p.await(limit, func() bool { return p.label() == p.truth() })
	if err != nil {
		return err
	}
	if !isRight {
		return fmt.Errorf("after %s, the label is %s, but the truth is %s", rounded(limit), p.label(), p.truth())
	}
	return nil
}

// settle waits a little, until the label is right and no pod is being deleted, so that what comes next is all that
// happens. It goes on without that if something else keeps changing pods.
func (p *playground) settle() error {
	_, err := p.await(p.flags.interval()+3*time.Second, func() bool {
		return p.label() == p.truth() && !slices.ContainsFunc(p.cluster.all("pods"), isDying)
	})
	return err
}

// awaitTraffic waits until podcount's requests since a time fulfil a condition. what describes that.
func (p *playground) awaitTraffic(since time.Time, limit time.Duration, what string, enough func(traffic) bool) error {
	isMet, err := p.await(limit, func() bool { return enough(p.requests(since)) })
	if err != nil {
		return err
	}
	if !isMet {
		return fmt.Errorf("after %s, podcount has not %s", rounded(limit), what)
	}
	return nil
}

// followLabel waits until the label is right, and reports how it has changed, and what podcount has sent since a time.
// before is what the label was then, and event is what has happened then.
func (p *playground) followLabel(r *press, before string, since time.Time, event string, extra time.Duration) error {
	if err := p.awaitTruth(extra); err != nil {
		return err
	}
	took := rounded(time.Since(since))
	if after := p.label(); after != before {
		r.say("The label went from %s to %s, %s after %s.", before, after, took, event)
	} else {
		r.say("The label still says %s, and that is the truth, %s after %s.", after, took, event)
	}
	r.say("podcount sent %s.", p.requests(since))
	return nil
}

// rounded returns a duration for people: in milliseconds, or in seconds if it is long.
func rounded(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprint(d.Milliseconds(), " ms")
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// withinSeconds returns a limit for people, in whole seconds.
func withinSeconds(limit time.Duration) string {
	return fmt.Sprintf("within %.0f s", math.Ceil(limit.Seconds()))
}

// seconds returns a pause for people.
func seconds(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }
