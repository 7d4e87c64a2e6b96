package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"podcount/lab/fakekube"
)

// These buttons change pods or a label, and disturb nothing.

// withinInterval says how long podcount may take to write a label.
func withinInterval(p *playground) string {
	return fmt.Sprintf("podcount writes a label at most once in %s (-interval)", seconds(p.flags.interval()))
}

func podMoreButton() *button {
	return &button{
		name:  "pod-more",
		label: fixed("One pod more"),
		expect: func(p *playground) string {
			return "First, podcount finishes what it is doing. Then a pod is created, its event arrives within " +
				"milliseconds, and the label grows by one. " +
				withinInterval(p) + ", so that this may take as long."
		},
		act: (*playground).addPod,
	}
}

// addPod scales web up by one.
func (p *playground) addPod(r *press) error {
	if err := p.settle(); err != nil {
		return err
	}
	before := p.label()
	since := time.Now()
	if err := p.growWeb(r); err != nil {
		return err
	}
	return p.followPods(r, before, since, "the pod was created")
}

// followPods is followLabel for a change of the number of pods. If the label stays the same, it says why.
func (p *playground) followPods(r *press, before string, since time.Time, event string) error {
	if err := p.followLabel(r, before, since, event, 0); err != nil {
		return err
	}
	if p.label() == before {
		r.say("Other pods have come or gone at the same time.")
	}
	return nil
}

// growWeb adds one pod to web at once.
func (p *playground) growWeb(r *press) error {
	var names []string
	err := p.use(func(c *cluster) {
		web := c.controllers.web
		old := c.podsOf(web)
		web.replicas++
		c.controllers.step()
		names = missingIn(old, c.podsOf(web))
	})
	for _, name := range names {
		r.say("There is a new pod, %s.", name)
	}
	return err
}

func podLessButton() *button {
	return &button{
		name:  "pod-less",
		label: fixed("One pod less"),
		expect: func(p *playground) string {
			return "First, podcount finishes what it is doing. Then a pod is deleted. Its kubelet stops it within " +
				"about a second, and as long as the pod exists, it counts. Then the label shrinks by one; " +
				withinInterval(p) + "."
		},
		act: (*playground).removePod,
	}
}

// removePod scales web down by one.
func (p *playground) removePod(r *press) error {
	if err := p.settle(); err != nil {
		return err
	}
	before := p.label()
	began := time.Now()
	var names []string
	err := p.use(func(c *cluster) {
		web := c.controllers.web
		old := c.podsOf(web)
		web.replicas = max(web.replicas-1, 0)
		c.controllers.step()
		names = missingIn(c.podsOf(web), old)
	})
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New("web has no pod left that could be deleted")
	}
	r.say("The pod %s is being deleted.", names[0])
	key := fakekube.Key{Namespace: p.cluster.controllers.web.namespace, Name: names[0]}
	isGone, err := p.await(p.pauses.giveUp, func() bool { return p.cluster.fake.Get("pods", key) == nil })
	if err != nil {
		return err
	}
	if !isGone {
		return fmt.Errorf("the pod %s is still there", names[0])
	}
	r.say("It was gone after %s.", rounded(time.Since(began)))
	return p.followPods(r, before, time.Now(), "the pod was gone")
}

// waveSize is the number of pods in a wave.
const waveSize = 30

func waveButton() *button {
	return &button{
		name:  "wave",
		label: fixed(fmt.Sprintf("A wave of %d pods", waveSize)),
		expect: func(p *playground) string {
			text := fmt.Sprintf("%d pods come at once, and go %s later. The label does not count along: one or two "+
				"patches cover them all, because %s.", waveSize, seconds(p.pauses.wave), withinInterval(p))
			if p.flags.value("pod-events", "on") == "on" {
				text += " Each new pod gets an Event."
			}
			return text
		},
		act: (*playground).makeWave,
	}
}

// makeWave runs a Deployment for a while.
func (p *playground) makeWave(r *press) error {
	wave := deployment("default", "wave", "nginx:1.29", waveSize)
	before := p.label()
	since := time.Now()
	err := p.use(func(c *cluster) {
		c.controllers.workloads = append(c.controllers.workloads, wave)
		c.controllers.step()
	})
	if err != nil {
		return err
	}
	r.say("%d pods were created.", waveSize)
	if err := p.followLabel(r, before, since, "the pods were created", 0); err != nil {
		return err
	}
	if err := r.wait(p.pauses.wave); err != nil {
		return err
	}
	before = p.label()
	since = time.Now()
	if err := p.use(func(*cluster) { wave.replicas = 0 }); err != nil {
		return err
	}
	r.say("Now they are being deleted.")
	hasEnded := func() bool { return !p.cluster.hasPods(wave) }
	if _, err := p.await(p.pauses.giveUp, hasEnded); err != nil {
		return err
	}
	if err := p.use(func(c *cluster) { c.controllers.forget(wave) }); err != nil {
		return err
	}
	return p.followLabel(r, before, since, "the deletion began", 0)
}

// wrongLabel and otherWrongLabel are what the other writer writes. One of them is wrong for sure.
const (
	wrongLabel      = "13"
	otherWrongLabel = "99"
)

func otherWriterButton() *button {
	return &button{
		name:  "other-writer",
		label: fixed("Another writer's label"),
		expect: func(p *playground) string {
			return "Somebody else writes a wrong number to the label. podcount sees that at once, waits a second so " +
				"that two writers do not race each other, and puts it right. But " + withinInterval(p) + "."
		},
		act: (*playground).overwriteLabel,
	}
}

// overwriteLabel writes a wrong number to the label, as another client would.
func (p *playground) overwriteLabel(r *press) error {
	if err := p.settle(); err != nil {
		return err
	}
	before := p.label()
	wrong := wrongLabel
	if before == wrong {
		wrong = otherWrongLabel
	}
	since := time.Now()
	var refused error
	err := p.use(func(c *cluster) {
		node := object{"metadata": object{"name": controlPlaneNode}}
		labels := object{p.totalLabel(): wrong}
		_, refused = c.patch("nodes", node, object{"metadata": object{"labels": labels}})
	})
	if err != nil || refused != nil {
		return errors.Join(err, refused)
	}
	r.say("Another writer has changed the label from %s to %s.", before, wrong)
	return p.followLabel(r, wrong, since, "the label was overwritten", 0)
}

// podsOf returns the names of a workload's pods that are not being deleted. Any goroutine may call it.
func (c *cluster) podsOf(w *workload) []string {
	var names []string
	for _, pod := range c.all("pods") {
		if ownerOf(pod) == w.uid && !isDying(pod) {
			names = append(names, fakekube.KeyOf(pod).Name)
		}
	}
	return names
}

// hasPods reports whether a workload has a pod, even one that is being deleted. Any goroutine may call it.
func (c *cluster) hasPods(w *workload) bool {
	return slices.ContainsFunc(c.all("pods"), func(pod object) bool { return ownerOf(pod) == w.uid })
}

// missingIn returns the names that are in all but not in some.
func missingIn(some, all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(some, name) })
}
