package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// playground is the cluster, the processes of podcount, and the buttons that disturb them. The goroutine of live owns
// the cluster. Buttons reach it through use.
type playground struct {
	ctx      context.Context // ends with the playground
	cancel   context.CancelFunc
	endpoint *fakekube.Endpoint
	cluster  *cluster
	replicas *replicas
	presses  *presses
	out      io.Writer
	flags    flags // of podcount, with those that the playground adds
	pauses   pauses
	script   script // what happens by itself; nil without a script
	checkout string // the top directory of podcount's checkout, from which the page's tour comes

	// uses gets the functions that use the cluster.
	uses chan func()
}

// pauses are how long the playground waits. Tests shorten them.
type pauses struct {
	start  time.Duration // how long podcount may take to begin, before the introduction comes anyway
	quiet  time.Duration // from podcount's beginning to the introduction
	away   time.Duration // how long kill-server takes the server away
	slow   time.Duration // how long slow-server makes it slow
	wave   time.Duration // how long the pods of a wave stay
	wrong  time.Duration // how long lose-event leaves the label wrong
	status time.Duration // from one line to the next in which a script tells what the label says
	giveUp time.Duration // how long a button waits for what it expects, in addition to the time that is due
}

// usualPauses are long enough to look, and short enough to wait for.
var usualPauses = pauses{
	start:  5 * time.Second,
	quiet:  time.Second,
	away:   5 * time.Second,
	slow:   20 * time.Second,
	wave:   10 * time.Second,
	wrong:  10 * time.Second,
	status: 5 * time.Second,
	giveUp: 60 * time.Second,
}

// newPlayground starts the server. The caller starts podcount, which is the program.
func newPlayground(program string, podcountFlags flags, pauses pauses, stdout, stderr io.Writer) *playground {
	ctx, cancel := context.WithCancel(context.Background())
	p := &playground{
		ctx:     ctx,
		cancel:  cancel,
		cluster: newCluster(stdout),
		presses: newPresses(ctx),
		out:     stdout,
		flags:   podcountFlags.withElection(),
		pauses:  pauses,
		uses:    make(chan func()),

		checkout: ".", // where `make run` runs
	}
	p.replicas = newReplicas(program, p.kubeconfig, p.leads, stdout, stderr)
	p.endpoint = p.cluster.fake.Listen("https")
	p.cluster.host = p.endpoint.Addr()
	return p
}

// kubeconfig returns a kubeconfig with a token. A program of the course, in learn, reads JSON alone.
func (p *playground) kubeconfig(token string) []byte {
	return fakekube.KubeconfigJSON(p.endpoint.URL, p.endpoint.CA, object{"token": token})
}

// live lets the cluster live, and does what use asks for, until the playground ends. This goroutine alone uses the
// cluster. It returns an error if a replica ends by itself, as ended says.
func (p *playground) live(stops <-chan os.Signal, ended <-chan ending) error {
	life := time.NewTicker(pace)
	defer life.Stop()
	for {
		select {
		case <-life.C:
			p.cluster.live()
		case do := <-p.uses:
			do()
		case end := <-ended:
			p.stop()
			return fmt.Errorf("podcount ended: %v", end.err)
		case <-stops:
			return p.stop()
		}
	}
}

// stop ends what the buttons do, and the processes of podcount. It returns an error if one of them had to be killed.
func (p *playground) stop() error {
	p.cancel()
	p.presses.work.Wait()
	return p.replicas.stopAll()
}

// close stops the server. The processes of podcount have been stopped before.
func (p *playground) close() {
	p.cancel()
	p.cluster.end()
	p.endpoint.Close()
}

// use calls a function on the goroutine that owns the cluster, and waits until it has returned. It returns an error if
// the playground ends before.
func (p *playground) use(do func(c *cluster)) error {
	done := make(chan struct{})
	call := func() {
		defer close(done)
		do(p.cluster)
	}
	select {
	case p.uses <- call:
		<-done
		return nil
	case <-p.ctx.Done():
		return errEnding
	}
}

// label returns podcount's label on the control-plane node. It is "-" if there is none.
func (p *playground) label() string {
	node := p.cluster.fake.Get("nodes", fakekube.Key{Name: controlPlaneNode})
	return cmp.Or(fakekube.TextIn(node, "metadata", "labels", p.totalLabel()), "-")
}

// totalLabel returns the key of the label with the number of all pods.
func (p *playground) totalLabel() string { return p.flags.value("total-label", "hopegi/pod-count") }

// truth returns what the label must be: the number of pods that podcount should count.
func (p *playground) truth() string {
	pods := p.cluster.fake.Selected("pods", p.flags.value("namespace", ""), p.flags.value("pod-selector", ""),
		p.flags.value("field-selector", ""))
	return fmt.Sprint(len(pods))
}

// isPodcount reports whether a request comes from one of the playground's own replicas, not from kubectl or a component
// of the cluster.
func (p *playground) isPodcount(q fakekube.Request) bool {
	return q.Host == p.cluster.host && strings.HasPrefix(q.Header.Get("User-Agent"), "podcount/")
}

// requests returns podcount's requests since a time. If a replica is given, only its requests count.
func (p *playground) requests(since time.Time, of ...*replica) traffic {
	var t traffic
	isWanted := func(q fakekube.Request) bool {
		isOf := len(of) == 0 || of[0].token == q.Token
		return isOf && p.isPodcount(q) && !q.At.Before(since)
	}
	for _, q := range p.cluster.fake.Received(fakekube.Requests{If: isWanted}) {
		t.count(q)
	}
	return t
}

// traffic is a number of requests, by what they do.
type traffic struct {
	all     int
	lists   int
	ofPods  int // of the lists, those of pods
	watches int
	patches int // of nodes and Counts
	labels  int // of the patches, those of nodes
	events  int // posted or counted once more
	leases  int // Leases that were read or written
	checks  int // lists of one object, which show only the server's version
}

func (t *traffic) count(q fakekube.Request) {
	t.all++
	isPatch := q.Verb == "patch"
	switch {
	case q.Resource == "events":
		t.events++
	case q.Resource == "leases":
		t.leases++
	case q.Verb == "list" && q.Query.Get("limit") == "1":
		t.checks++
	case q.Verb == "list":
		t.lists++
		if q.Resource == "pods" {
			t.ofPods++
		}
	case q.Verb == "watch":
		t.watches++
	case isPatch && q.Resource == "nodes":
		t.patches++
		t.labels++
	case isPatch && q.Resource == "counts":
		t.patches++
	}
}

// String returns, for example, "3 requests: 1 list, 1 watch and 1 patch".
func (t traffic) String() string {
	if t.all == 0 {
		return "no request"
	}
	var parts []string
	add := func(n int, text string) {
		if n > 0 {
			parts = append(parts, text)
		}
	}
	add(t.lists, counted(t.lists, "list"))
	add(t.watches, plural(t.watches, "watch", "watches"))
	add(t.patches, plural(t.patches, "patch", "patches"))
	add(t.events, counted(t.events, "Event"))
	add(t.leases, fmt.Sprint(t.leases, " about the Lease"))
	add(t.checks, plural(t.checks, "check of the server's version", "checks of the server's version"))
	others := t.all - t.lists - t.watches - t.patches - t.events - t.leases - t.checks
	add(others, counted(others, "other"))
	return counted(t.all, "request") + ": " + enumerated(parts)
}

// enumerated joins texts by commas, and the last two by "and".
func enumerated(texts []string) string {
	last := len(texts) - 1
	if last == 0 {
		return texts[0]
	}
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}

// counted returns a number with its noun.
func counted(n int, noun string) string { return plural(n, noun, noun+"s") }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// leads reports whether the replica with a token holds the Lease, as far as the server knows. It is the one whose
// write has last named the holder.
func (p *playground) leads(token string) bool {
	holder := p.holder()
	if holder == "" {
		return false
	}
	writes := p.cluster.fake.Received(fakekube.Requests{
		Verb:     "write",
		Resource: "leases",
		If:       func(q fakekube.Request) bool { return strings.Contains(q.Body, holder) },
	})
	return len(writes) > 0 && writes[len(writes)-1].Token == token
}

// holder returns the identity of the replica that holds the Lease, or "".
func (p *playground) holder() string {
	lease := p.cluster.fake.Get("leases", fakekube.Key{
		Namespace: p.flags.value("leader-elect-resource-namespace", "kube-system"),
		Name:      p.flags.value("leader-elect-resource-name", "podcount"),
	})
	spec, _ := lease["spec"].(object)
	return fakekube.TextIn(spec, "holderIdentity")
}
