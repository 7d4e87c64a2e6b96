package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// A script lets things happen at certain times. Each line is a step: the time since the playground's start, a colon,
// and what to do then. Steps at 0s are done before podcount starts.
//
//	0s: fault list pods, once: delay 5s
//	5s: press wave
//
// While a script runs, no pod comes or goes by itself, and a line tells every five seconds what the label says and what
// podcount has sent. So whoever looks needs neither kubectl nor the page.
//
//	press BUTTON              presses a button of the page
//	fault FAULT               injects a fault into podcount's requests, in the form of fakekube.Server.Script
//	scale WORKLOAD N          gives a workload, such as web, N pods
//	nodes N                   adds nodes
//	take-away DURATION        takes the server away
//	break-watches             breaks the connections of all watches
//	strip LABEL               from now on removes a label from each node that is written, as a webhook may
//	send METHOD PATH [JSON]   sends a request as another client; PATCH sends a merge patch
//	show PATH [TEXT]          shows the lines with a text that podcount serves at its -listen
//	ask PATH HOST             does the same as a browser that was told that podcount is the host HOST
//	events [TEXT]             shows podcount's Events whose message has a text
type script []step

// step is one line of a script.
type step struct {
	at   time.Duration
	text string // what to do, as in the script

	// do does it. Only the goroutine that owns the cluster may call it.
	do func(p *playground) error
}

// parseScript parses a script. The error names the line.
func parseScript(text string) (script, error) {
	s := script{} // not nil, although it may be empty
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		next, err := parseStep(line)
		if err != nil {
			return nil, fmt.Errorf("line %d of the script: %w", i+1, err)
		}
		s = append(s, next)
	}
	slices.SortStableFunc(s, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return s, nil
}

func parseStep(line string) (step, error) {
	when, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
	at, err := time.ParseDuration(when)
	if err != nil || at < 0 {
		return step{}, fmt.Errorf("%q is no time such as 5s with a colon and a blank behind it", when)
	}
	text = strings.TrimSpace(text)
	verb, rest, _ := strings.Cut(text, " ")
	do, err := parseVerb(verb, rest)
	if err != nil {
		return step{}, fmt.Errorf("%s: %w", text, err)
	}
	if at == 0 && slices.Contains([]string{"press", "show", "ask"}, verb) {
		return step{}, fmt.Errorf("%s: podcount does not run yet at 0s", text)
	}
	return step{at, text, do}, nil
}

// parseVerb returns what a verb with its arguments does.
func parseVerb(verb, rest string) (do func(p *playground) error, err error) {
	first, last, _ := strings.Cut(rest, " ")
	number, noNumber := strconv.Atoi(cmp.Or(last, first))
	switch verb {
	case "press":
		if !slices.ContainsFunc(buttons(), func(b *button) bool { return b.name == rest }) {
			return nil, errNoButton
		}
		return func(p *playground) error { return p.pressLater(rest) }, nil
	case "fault":
		fault, err := fakekube.ParseFault(rest)
		return func(p *playground) error {
			fault.On.If = p.isPodcount
			p.cluster.fake.InjectUnchecked(fault)
			return nil
		}, err
	case "scale":
		return func(p *playground) error { return p.cluster.controllers.rescale(first, number) }, noNumber
	case "nodes":
		return func(p *playground) error { return p.cluster.addNodes(number) }, noNumber
	case "take-away":
		d, err := time.ParseDuration(rest)
		return func(p *playground) error { p.cluster.takeAway(d); return nil }, err
	case "break-watches":
		return func(p *playground) error { p.cluster.fake.BreakWatches(); return nil }, nil
	case "strip":
		return func(p *playground) error { p.cluster.strip(rest); return nil }, nil
	case "send":
		return parseSend(rest)
	case "show":
		return func(p *playground) error { p.presses.work.Go(func() { p.show(first, last, "") }); return nil }, nil
	case "ask":
		return func(p *playground) error { p.presses.work.Go(func() { p.show(first, "", last) }); return nil }, nil
	case "events":
		return func(p *playground) error { p.showEvents(rest); return nil }, nil
	}
	return nil, errors.New("there is no such verb")
}

// parseSend returns a function that sends a request as another client does.
func parseSend(rest string) (do func(p *playground) error, err error) {
	method, rest, _ := strings.Cut(rest, " ")
	path, text, _ := strings.Cut(rest, " ")
	var body object
	if text != "" {
		err = json.Unmarshal([]byte(text), &body)
	}
	media := mediaJSON
	if method == http.MethodPatch {
		media = mediaMergePatch
	}
	return func(p *playground) error {
		_, err := p.cluster.send(method, path, media, body)
		return err
	}, err
}

// begin does the steps that come before podcount starts, and returns the others.
func (s script) begin(p *playground) (rest script, err error) {
	if s == nil {
		return nil, nil
	}
	p.cluster.measurements++ // so that web is not scaled by itself
	for len(s) > 0 && s[0].at == 0 {
		if err := s[0].do(p); err != nil {
			return nil, fmt.Errorf("%s: %w", s[0].text, err)
		}
		s = s[1:]
	}
	return s, nil
}

// play does the steps when they are due, and tells what it does and what has gone wrong.
func (s script) play(p *playground) {
	began := time.Now()
	p.presses.work.Go(func() { p.tellStatus(began) })
	for _, next := range s {
		if pause(p.ctx, time.Until(began.Add(next.at))) != nil {
			return
		}
		p.say("%s: %s", seconds(next.at), next.text)
		err := errEnding
		if p.use(func(*cluster) { err = next.do(p) }) != nil {
			return
		}
		if err != nil {
			p.say("that has failed: %v", err)
		}
	}
}

// say prints a line.
func (p *playground) say(format string, args ...any) {
	fmt.Fprintf(p.out, "playground: "+format+"\n", args...)
}

// tellStatus tells from time to time what the label says, and what podcount has sent since the last time.
func (p *playground) tellStatus(began time.Time) {
	for since := began; ; {
		if pause(p.ctx, time.Until(since.Add(p.pauses.status))) != nil {
			return
		}
		p.say("%.0f s: %s, and the label says %s; in %s, podcount sent %s", time.Since(began).Seconds(),
			counted(len(p.cluster.all("pods")), "pod"), p.label(), seconds(p.pauses.status), p.requests(since))
		since = since.Add(p.pauses.status)
	}
}

// pressLater presses a button as soon as no other press excludes that.
func (p *playground) pressLater(name string) error {
	p.presses.work.Go(func() {
		for {
			_, err := p.pressButton(name)
			var busy busyError
			if !errors.As(err, &busy) {
				if err != nil {
					p.say("the button %s: %v", name, err)
				}
				return
			}
			if pause(p.ctx, pace) != nil {
				return
			}
		}
	})
	return nil
}

// rescale changes the number of pods of the workload whose pods have this label app.
func (c *controllers) rescale(app string, replicas int) error {
	for _, w := range c.workloads {
		if w.labels["app"] == app {
			w.replicas = replicas
			c.step()
			return nil
		}
	}
	return errors.New("there is no such workload")
}

// addNodes adds nodes behind those that are there.
func (c *cluster) addNodes(count int) error {
	for i := range count {
		name := fmt.Sprintf("worker-%d", len(nodes)+i)
		if _, err := c.create("nodes", object{"metadata": object{"name": name}}); err != nil {
			return err
		}
	}
	return nil
}

// strip removes a label from each node that is written from now on.
func (c *cluster) strip(label string) {
	c.fake.Mutate("nodes", func(node object) {
		labels, _ := fakekube.MetaOf(node)["labels"].(object)
		delete(labels, label)
	})
}

// show shows the lines with a text that podcount serves at its -listen, to a client that calls it by a host unless that
// is "".
func (p *playground) show(path, text, host string) {
	request, err := http.NewRequestWithContext(p.ctx, http.MethodGet, "http://"+p.flags.value("listen", "")+path, nil)
	if err != nil {
		p.say("GET %s: %v", path, err)
		return
	}
	request.Host = cmp.Or(host, request.Host)
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		p.say("GET %s: %v", path, err)
		return
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	p.say("GET %s: %s", path, answer.Status)
	for line := range strings.Lines(string(body)) {
		if strings.Contains(line, text) && !strings.HasPrefix(line, "#") {
			p.say("  %s", strings.TrimSpace(line))
		}
	}
	if err != nil {
		p.say("GET %s: %v", path, err)
	}
}

// showEvents shows podcount's Events whose message has a text, the oldest first.
func (p *playground) showEvents(text string) {
	var shown []string
	for _, event := range p.cluster.all("events") {
		about, _ := event["involvedObject"].(object)
		message := fakekube.TextIn(event, "message")
		if fakekube.TextIn(event, "reportingComponent") == "podcount" && strings.Contains(message, text) {
			shown = append(shown, fmt.Sprintf("%s  Event about %s %s: %s (count %v)", fakekube.TextIn(event, "lastTimestamp"),
				fakekube.TextIn(about, "kind"), fakekube.TextIn(about, "name"), message, event["count"]))
		}
	}
	slices.Sort(shown)
	p.say("%s of podcount:", counted(len(shown), "Event"))
	for _, line := range shown {
		p.say("  %s", line)
	}
}
