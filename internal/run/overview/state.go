package overview

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/control"
	"podcount/internal/run/process"
	"podcount/internal/view/observe"
	"podcount/internal/view/page"
)

// State returns the present state, for the page.
func (v *Overview) State() page.State {
	s := page.State{
		Version:    process.Version,
		Host:       v.Host,
		Server:     v.Server,
		Started:    v.Started,
		UpSeconds:  time.Since(v.Started).Seconds(),
		Mode:       v.mode(),
		Waiting:    append([]string{}, v.Incomplete()...), // JSON should have [], not null
		Stuck:      append([]string{}, v.stuck()...),
		Labels:     v.labels(),
		Silence:    v.silence(),
		Lease:      v.lease(),
		Writes:     v.writes(),
		Nodes:      page.MostCrowded(v.PodsPerNode),
		Namespaces: page.MostCrowded(v.PodsPerNamespace),
		Events: page.Events{
			Posted:  int(v.Recorder.Posted()),
			Dropped: int(v.Recorder.Dropped()),
			Waiting: v.Recorder.Waiting(),
		},
	}
	for _, cache := range v.caches {
		s.Kinds = append(s.Kinds, kindOf(cache))
	}
	for _, c := range v.Controllers {
		s.Controllers = append(s.Controllers, v.controller(c))
	}
	return s
}

// mode names the flag that makes podcount do something else than usual. If there are several, a dry run is the most
// important one, because it writes nothing.
func (v *Overview) mode() string {
	switch {
	case v.Flags.DryRun:
		return "dry run"
	case v.Flags.Prune:
		return "prune"
	case v.Flags.Once:
		return "once"
	}
	return ""
}

// silence describes that the API server does not answer. It is nil if the server has answered anything since that
// began.
func (v *Overview) silence() *page.Silence {
	problem, isAway := v.ServerOutage.Problem()
	if !isAway {
		return nil
	}
	var losses []time.Time // since when podcount does not know the state of each kind
	for _, cache := range v.caches {
		state := cache.State()
		lostAt := cache.LostAt()
		switch {
		case lostAt != nil:
			losses = append(losses, *lostAt)
		case state.IsReady && !state.IsAbsent:
			losses = append(losses, state.LastHeard) // The watch is open, but must be half-open.
		}
	}
	since := v.Started // before the first lists
	if len(losses) > 0 {
		since = slices.MinFunc(losses, time.Time.Compare)
	}
	cause := cmp.Or(errors.Unwrap(problem.Err), problem.Err) // without the request, which differs from try to try
	return &page.Silence{
		Seconds:         time.Since(since).Seconds(),
		SecondsUntilTry: max(0, time.Until(v.ServerBackoff.NextTry()).Seconds()),
		Error:           cause.Error(),
		Advice:          kube.Advice(problem.Err),
	}
}

// lease returns the state of the election. It is nil without an election.
func (v *Overview) lease() *page.Lease {
	if v.Election == nil {
		return nil
	}
	identity := v.Election.Identity()
	holder, isKnown := v.Election.Holder()
	problem, _ := v.Election.Problem()
	return &page.Lease{
		Name:     v.Election.Name(),
		Identity: identity,
		IsOurs:   v.Election.MayWrite() == nil,
		Holder:   holder,
		IsKnown:  isKnown,
		Problem:  problem.Text,
		Advice:   kube.Advice(problem.Err),
	}
}

// writes adds up the patches of all kinds.
func (v *Overview) writes() (writes page.Writes) {
	for _, cache := range v.caches {
		patches := cache.State().Counts.Patches.Counts()
		writes.Written += patches["written"]
		writes.Failed += patches["failed"]
		writes.Stripped += patches["stripped"]
		writes.Gone += patches["gone"]
	}
	return writes
}

// kindOf returns the state of a cache.
func kindOf(cache Cache) page.Kind {
	state := cache.State()
	kind := page.Kind{
		Name:            cache.Kind(),
		IsReady:         state.IsReady,
		IsAbsent:        state.IsAbsent,
		IsUnknown:       state.IsUnknown,
		Objects:         state.Objects,
		ResourceVersion: state.ResourceVersion,
		Relists:         state.Counts.Relists.Counts(),
		Audits:          state.Counts.Audits.Counts(),
		Drift:           state.Counts.Drift.Total(),

		SecondsSinceHeard: page.SecondsSince(state.LastHeard),
	}
	if last := state.LastWatch; last != nil {
		text := fmt.Sprintf("%s (%v)", last.Meaning, last.Err)
		kind.LastWatch = &page.WatchEnd{At: last.At, Outcome: last.Outcome, Text: text}
	}
	isCurrent := state.IsReady && cache.LostAt() == nil
	problem := state.Problem
	isOver := problem != nil && isCurrent && kube.IsUnanswered(problem.Err) // A watch is open again.
	if problem != nil && !isOver {
		kind.Problem = problem.Text
		kind.ProblemAdvice = kube.Advice(problem.Err)
	}
	return kind
}

// controller returns the state of a controller.
func (v *Overview) controller(c *control.Controller) page.Controller {
	queue := observe.QueueStateOf(c.Keys())
	state := page.Controller{
		Name:         c.Name,
		HasBegun:     c.HasBegun(),
		Waits:        v.whatDelays(c),
		Ready:        queue.Ready,
		Waiting:      queue.Waiting,
		Working:      []page.Work{},
		Failing:      []page.FailingKey{},
		FailingCount: queue.FailingCount,
	}
	for key, took := range queue.Working {
		state.Working = append(state.Working, page.Work{Key: key, Seconds: took.Seconds()})
	}
	slices.SortFunc(state.Working, func(a, b page.Work) int { return strings.Compare(a.Key, b.Key) })
	for _, failing := range queue.Failing {
		state.Failing = append(state.Failing, page.FailingKey{
			Key:      failing.Key,
			Since:    failing.Since,
			Failures: failing.Failures,
			Error:    failing.Err.Error(),
			Advice:   control.Advice(failing.Err),
			RetryAt:  failing.RetryAt,
		})
	}
	return state
}

// whatDelays says what a controller waits for before it begins. It returns "" if the controller has begun.
func (v *Overview) whatDelays(c *control.Controller) string {
	if c.HasBegun() {
		return ""
	}
	var incomplete []string
	for _, cache := range cachesOf(c) {
		state := cache.State()
		if state.IsAbsent {
			return cache.Kind() + " to be installed"
		}
		if state.IsUnknown {
			return "an answer to whether the cluster has " + cache.Kind()
		}
		if !state.IsReady {
			incomplete = append(incomplete, cache.Kind())
		}
	}
	if len(incomplete) > 0 {
		slices.Sort(incomplete)
		return "the first complete list of " + strings.Join(incomplete, " and ")
	}
	if !process.IsClosed(v.Leading) {
		return "its turn to lead"
	}
	return "the confirmation of its caches"
}

// newSampler returns a function that returns what has happened since its last call, for the lines of the page.
func (v *Overview) newSampler() func() page.Sample {
	var lastEvents, lastWrites int
	return func() page.Sample {
		v.labels() // notices since when they are right
		sample := page.Sample{Pods: -1}
		if pods := v.Pods.State(); pods.IsReady {
			sample.Pods = pods.Objects
		}
		events := 0
		for _, cache := range v.caches {
			events += cache.State().Counts.WatchEvents.Total()
		}
		writes := v.writes().Written
		sample.Events = events - lastEvents
		sample.Writes = writes - lastWrites
		lastEvents = events
		lastWrites = writes
		return sample
	}
}
