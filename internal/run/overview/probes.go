package overview

import (
	"fmt"
	"runtime"
	"time"

	"podcount/internal/run/process"
	"podcount/internal/view/metrics"
	"podcount/internal/view/observe"
)

// stuck describes what hangs: controllers with their workers, queues and resyncs, and caches whose changes no
// controller takes. Requests cannot hang: each has a time limit.
func (v *Overview) stuck() (stuck []string) {
	limit := v.Flags.StuckAfter()
	for _, cache := range v.caches {
		if problem := cache.Stuck(limit); problem != "" {
			stuck = append(stuck, cache.Kind()+": "+problem)
		}
	}
	for _, c := range v.Controllers {
		if took := c.Looking().Elapsed(); took > limit {
			stuck = append(stuck, fmt.Sprintf("%s: has looked for work for %v", c.Name, took.Round(time.Second)))
		}
		queue := observe.QueueStateOf(c.Keys())
		if problem := queue.Stuck(c.LastTakenAt(), limit); problem != "" {
			stuck = append(stuck, c.Name+": "+problem)
		}
	}
	return stuck
}

// Incomplete returns the kinds whose caches have no complete list yet.
func (v *Overview) Incomplete() (kinds []string) {
	for _, cache := range v.caches {
		state := cache.State()
		switch {
		case state.IsReady:
		case state.IsUnknown:
			kinds = append(kinds, cache.Kind()+" (it is not known whether the cluster has it)")
		default:
			kinds = append(kinds, cache.Kind())
		}
	}
	return kinds
}

// setGauges sets the metrics that are computed only when somebody reads them. It removes those whose value is not known
// yet, because a 0 would look like a count.
func (v *Overview) setGauges() {
	m := v.Metrics
	for _, cache := range v.caches {
		cache.State().SetGauges(m, cache.Kind())
	}
	if pods := v.Pods.State(); pods.IsReady {
		m.Set(float64(pods.Objects), "podcount_pods")
	} else {
		m.Remove("podcount_pods")
	}
	for _, c := range v.Controllers {
		if c.HasBegun() {
			observe.QueueStateOf(c.Keys()).SetGauges(m, c.Name)
		}
	}
	if v.Election != nil {
		leads := 0.0
		if v.Election.MayWrite() == nil {
			leads = 1
		}
		m.Set(leads, "leader_election_master_status", v.Flags.LeaseName)
	}
	m.Set(float64(v.Recorder.Posted()), "podcount_events_total", "posted")
	m.Set(float64(v.Recorder.Dropped()), "podcount_events_total", "dropped")
	m.Set(float64(v.Out.Stderr.Lost()), "podcount_lines_dropped_total", "stderr")
	m.Set(float64(v.Out.Stdout.Lost()), "podcount_lines_dropped_total", "stdout")
	m.Set(1, "podcount_build_info", process.Version, runtime.Version())
	metrics.SetProcess(m, v.Started)
}
