// Package overview shows what the whole program knows and does. It serves -listen, for the kubelet and for Prometheus,
// and -page, for people. It only reads, so nothing in the program changes by being looked at, or waits for it.
package overview

import (
	"cmp"
	"fmt"
	"iter"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"podcount/internal/api/events"
	"podcount/internal/api/leader"
	"podcount/internal/api/retry"
	"podcount/internal/control"
	"podcount/internal/run/options"
	"podcount/internal/run/process"
	"podcount/internal/view/listen"
	"podcount/internal/view/logging"
	"podcount/internal/view/observe"
	"podcount/internal/view/page"
)

// Options are the parts of the program that an Overview looks at. All are required, except those that may be nil.
type Options struct {
	observe.Sinks
	Flags   *options.Options
	Life    *process.Lifetime // a server that fails ends it
	Out     *logging.Outputs
	Started time.Time
	Host    string // the name of this replica
	Server  string // the URL of the API server; a password in it is hidden

	Controllers []*control.Controller // Each of their caches must be a Cache.
	Pods, Nodes Cache                 // which may not be watched
	Labels      []*Label              // which the controllers keep right on nodes

	// These yield nodes and namespaces with their numbers of pods. Each is nil if nobody counts these.
	PodsPerNode      iter.Seq2[string, int]
	PodsPerNamespace iter.Seq2[string, int]

	ServerOutage  *logging.ServerOutage
	ServerBackoff *retry.Shared
	Recorder      *events.Recorder
	Election      *leader.Election // nil without an election
	Leading       <-chan struct{}  // closed once this replica leads
}

// Cache keeps all objects of one kind.
type Cache interface {
	Kind() string
	State() observe.CacheState
	LostAt() *time.Time // since when no watch is open; nil while one is
	Stuck(limit time.Duration) string
}

// Overview shows the program. State and Incomplete may be called at any time, by any goroutine.
type Overview struct {
	Options
	caches  []Cache // which the controllers watch, in the order in which people see them
	servers []*listen.Server
}

// New makes an Overview. It shows the caches in the order of what people want to know: pods, nodes, Counts, and then
// other kinds.
func New(o Options) *Overview {
	v := &Overview{Options: o}
	for _, c := range o.Controllers {
		for _, cache := range cachesOf(c) {
			if !slices.Contains(v.caches, cache) {
				v.caches = append(v.caches, cache)
			}
		}
	}
	ranks := map[string]int{"Pod": 3, "Node": 2, "Count": 1}
	slices.SortFunc(v.caches, func(a, b Cache) int {
		return cmp.Or(ranks[b.Kind()]-ranks[a.Kind()], strings.Compare(a.Kind(), b.Kind()))
	})
	return v
}

// cachesOf returns the caches that a controller watches.
func cachesOf(c *control.Controller) (caches []Cache) {
	for cache := range c.Caches() {
		caches = append(caches, cache.(Cache))
	}
	return caches
}

// Serve starts the servers of -listen and -page, if these flags are set. The caller must call Close, even after an
// error.
func (v *Overview) Serve() error {
	if v.Flags.Listen != "" {
		address, err := v.start("-listen", v.Flags.Listen, v.Pages())
		if err != nil {
			return err
		}
		v.Log.Info("listening", "on", address)
	}
	if v.Flags.Page != "" {
		webPage := v.newPage()
		address, err := v.start("-page", v.Flags.Page, webPage.Handler())
		if err != nil {
			return err
		}
		go webPage.Run(v.Life.Stop)
		if address.String() != v.Flags.Page { // Otherwise the flag names it.
			v.Log.Info("the page is served", "on", address)
		}
	}
	return nil
}

// start starts the HTTP server of a flag. If it fails later, podcount stops.
func (v *Overview) start(flag, address string, handler http.Handler) (net.Addr, error) {
	server, err := listen.Listen(v.Life.Stop, address, handler, v.Log)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	v.servers = append(v.servers, server)
	go func() {
		if err := server.Serve(); err != nil {
			v.Life.StopWith(fmt.Errorf("%s %s: %w", flag, address, err))
		}
	}()
	return server.Addr(), nil
}

// Close closes the servers.
func (v *Overview) Close() {
	for _, server := range v.servers {
		server.Close()
	}
}

// Pages returns the handler of -listen.
func (v *Overview) Pages() http.Handler {
	return listen.Pages(listen.Content{
		Stuck:      v.stuck,
		Incomplete: v.Incomplete,
		Metrics: func() string {
			v.setGauges()
			return v.Metrics.Text()
		},
	})
}

func (v *Overview) newPage() *page.Page {
	return page.New(page.Options{
		State:     v.State,
		Sample:    v.newSampler(),
		Trace:     v.Trace,
		Flags:     v.Flags.Flags,
		Version:   process.Version,
		Started:   v.Started,
		TokenFile: v.Flags.PageTokenFile,
		Log:       v.Log,
	})
}
