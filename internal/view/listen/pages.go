package listen

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Content provides the content of Pages. All of its functions are required, and must be safe for concurrent use.
type Content struct {
	// Stuck describes the controllers whose workers hang.
	Stuck func() []string

	// Incomplete names the caches that have no complete list yet.
	Incomplete func() []string

	// Metrics returns all metrics in Prometheus' text format.
	Metrics func() string
}

const indexPage = `podcount serves here:

/livez    200 if no worker is stuck, else 503 with those that are; /healthz is the same
/readyz   200 if all caches are complete, else 503 with those that are not
/metrics  all metrics, for Prometheus

The page of -page, which kubectl port-forward reaches, shows what podcount knows and does.
`

// Limits for /metrics, so that a flood of requests for it leaves time and places for probes.
const (
	metricsPlaces  = 16              // answers at a time; a client that reads slowly keeps its place for answerTimeout
	metricsAge     = time.Second     // how long the metrics that were read for one request are good enough for others
	metricsTimeout = 5 * time.Second // how long a request waits for metrics
)

// Pages returns a handler that answers the kubelet's probes and Prometheus. If its Server listens on the loopback, the
// handler refuses requests that were sent to another name.
func Pages(c Content) http.Handler {
	mux := http.NewServeMux()
	live := func(w http.ResponseWriter, _ *http.Request) {
		answerProbe(w, "stuck: ", c.Stuck())
	}
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /healthz", live)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		answerProbe(w, "waiting for the first complete list of: ", c.Incomplete())
	})
	mux.Handle("GET /metrics", withPlaces(metricsPlaces, serveMetrics(c.Metrics)))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, indexPage)
	})
	return guardLoopback(mux)
}

// withPlaces returns a handler that gives at most so many answers at a time, and refuses the other requests.
func withPlaces(places int, next http.Handler) http.Handler {
	taken := make(chan struct{}, places)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case taken <- struct{}{}:
			defer func() { <-taken }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
		}
	})
}

// serveMetrics returns a handler that answers with the metrics.
func serveMetrics(read func() string) http.Handler {
	metrics := &Shared[string]{Read: read, MaxAge: metricsAge}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, isRead := metrics.Within(metricsTimeout)
		if !isRead {
			http.Error(w, "the metrics cannot be read: a part of podcount does not answer", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		io.WriteString(w, text)
	})
}

// answerProbe answers 200 if there are no problems, and otherwise 503 with the problems.
func answerProbe(w http.ResponseWriter, heading string, problems []string) {
	if len(problems) > 0 {
		http.Error(w, heading+strings.Join(problems, ", "), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
