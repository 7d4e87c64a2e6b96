// Package presence finds out whether a resource that comes from a CustomResourceDefinition is installed. Such a
// resource may be created, changed and removed at any time.
package presence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/retry"
	"podcount/internal/run/process"
	"podcount/internal/view/observe"
	"podcount/internal/watch/ending"
)

const (
	// Interval is how often the server is asked whether the resource is installed, ± 20 %.
	Interval = 10 * time.Second

	// maxBackoff makes the longest backoff, with its jitter, as long as the longest Interval.
	maxBackoff = Interval * 3 / 5

	// absencesUntilRemoved is how often in a row discovery must lack an installed resource before it counts as removed.
	// A single 404 proves nothing, because the server may send one while it sets up another resource.
	absencesUntilRemoved = 2
)

// errNotInstalled means that the server does not have the resource.
var errNotInstalled = errors.New("the resource is not installed")

// Installation describes a resource that is installed. Each time that it is installed again, or that its description
// changes, there is a new pointer. So pointers tell installations apart.
type Installation struct {
	HasStatus bool // the resource has a status subresource
}

// Presence asks the server again and again whether a resource is installed, and serves the resource while it is.
//
//	unknown ──▶ missing ──found──▶ installed ──404──▶ missed once ──404──▶ missing
//	                                   ▲──────found────────┘
//
// If discovery fails, the state stays what it was.
type Presence struct {
	o         Options
	installed atomic.Pointer[Installation] // nil unless the resource is installed
	isMissing atomic.Bool                  // discovery has answered that the resource is not installed

	// Only Run uses these.
	absences  int          // answers in a row without the resource
	unknown   retry.Streak // failures while the resource is not known to be installed
	endServed func()       // stops Serve, and waits for its end; nil while it does not run
}

// Options configure a Presence. All fields except Once are required.
type Options struct {
	Client        *kube.Client
	API, Resource string        // such as /apis/demo.mark8s.io/v1, counts
	Backoff       *retry.Member // while the server does not answer
	Report        *observe.CacheReport

	// Serve runs while the resource is installed, until its context ends.
	Serve func(context.Context)

	OnInstalled func() // the resource was installed, or has got or lost its subresource status
	OnMissing   func() // it has turned out that the resource is not installed
	OnRemoved   func() // the resource was removed, and Serve has ended

	// Once makes Run return if the server does not have the resource, or if a question is hopeless: see
	// kube.IsHopeless.
	Once bool
}

// New returns a Presence that asks nothing until Run is called.
func New(o Options) *Presence { return &Presence{o: o} }

// Installed returns the current Installation, or nil while the resource is not installed.
func (p *Presence) Installed() *Installation { return p.installed.Load() }

// IsMissing reports whether the server has answered that the resource is not installed.
func (p *Presence) IsMissing() bool { return p.isMissing.Load() }

// Run asks until ctx ends, and then returns nil. If Once is set, it also returns when the resource is not installed,
// or with an error of kube.IsHopeless.
func (p *Presence) Run(ctx context.Context) error {
	defer p.stopServing()
	for ctx.Err() == nil {
		p.o.Backoff.BeginTry()
		found, err := p.discover(ctx)
		wait := p.untilNextQuestion(err)
		isNotInstalled := errors.Is(err, errNotInstalled)
		switch {
		case ctx.Err() != nil:
			return nil
		case p.o.Once && kube.IsHopeless(err):
			return err
		case isNotInstalled:
			p.o.Report.DiscoveryWorked()
			p.handleAbsence()
		case err != nil:
			p.o.Report.DiscoveryFailed(err)
		default:
			p.o.Report.DiscoveryWorked()
			p.handlePresence(ctx, found)
		}
		if p.o.Once && isNotInstalled && p.endServed == nil {
			return nil
		}
		p.o.Backoff.Sleep(ctx, wait)
	}
	return nil
}

// untilNextQuestion returns how long to wait after a question that has ended with err.
func (p *Presence) untilNextQuestion(err error) time.Duration {
	switch {
	case err == nil || errors.Is(err, errNotInstalled):
		p.o.Backoff.Succeeded()
		p.unknown.Works(ending.ResetAfter)
		return retry.Between(Interval*4/5, Interval*6/5)
	case kube.IsUnanswered(err):
		return p.o.Backoff.Unanswered(err)
	case kube.IsAnswer(err):
		p.o.Backoff.Answered()
	}
	if p.endServed == nil { // The resource may be there, but is not listed yet.
		return p.unknown.Fail(kube.RetryAfter(err), ending.InitialBackoff, maxBackoff)
	}
	return max(kube.RetryAfter(err), retry.Between(Interval*4/5, Interval*6/5))
}

// discover asks the server whether the resource is installed. It returns errNotInstalled if it is not.
// https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
func (p *Presence) discover(ctx context.Context) (found Installation, err error) {
	var list struct {
		Kind      string
		Resources []struct{ Name string }
	}
	read := func(answer io.Reader) error { return json.NewDecoder(answer).Decode(&list) }
	err = p.o.Client.Send(ctx, kube.Request{Method: http.MethodGet, API: p.o.API}, read)
	switch {
	case kube.StatusOf(err).Code == http.StatusNotFound:
		return found, errNotInstalled // nor is any other resource of this group and version
	case err != nil:
		return found, err
	case list.Kind != "APIResourceList":
		return found, fmt.Errorf("%s: the answer is of kind %.50q, not APIResourceList", p.o.API, list.Kind)
	}
	err = errNotInstalled
	for _, resource := range list.Resources {
		switch resource.Name {
		case p.o.Resource:
			err = nil
		case p.o.Resource + "/status":
			found.HasStatus = true
		}
	}
	return found, err
}

// handlePresence begins to serve the resource, and tells what is new about it.
func (p *Presence) handlePresence(ctx context.Context, found Installation) {
	p.absences = 0
	known := p.installed.Load()
	isKnown := known != nil && *known == found
	if !isKnown {
		p.installed.Store(&found)
		p.isMissing.Store(false)
		p.o.Report.Installed(found.HasStatus)
		p.o.OnInstalled()
	}
	if p.endServed == nil {
		ctx, cancel := context.WithCancel(ctx)
		ended := process.Go(func() { p.o.Serve(ctx) })
		p.endServed = func() {
			cancel()
			<-ended
		}
	}
}

// handleAbsence ends the serving after absencesUntilRemoved answers in a row without the resource.
func (p *Presence) handleAbsence() {
	p.absences++
	switch {
	case p.endServed == nil:
		wasMissing := p.isMissing.Swap(true)
		if !wasMissing {
			p.o.Report.Missing()
			p.o.OnMissing()
		}
	case p.absences >= absencesUntilRemoved:
		p.stopServing()
		p.installed.Store(nil)
		p.isMissing.Store(true)
		p.o.Report.Removed()
		p.o.OnRemoved()
	}
}

func (p *Presence) stopServing() {
	if p.endServed != nil {
		p.endServed()
		p.endServed = nil
	}
}
