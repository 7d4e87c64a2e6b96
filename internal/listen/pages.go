package listen

import (
	"fmt"
	"io"
	"net/http"
	"strings"
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

// Pages returns a handler that answers the kubelet's probes and Prometheus.
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
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		io.WriteString(w, c.Metrics())
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, indexPage)
	})
	return mux
}

// answerProbe answers 200 if there are no problems, and otherwise 503 with the problems.
func answerProbe(w http.ResponseWriter, heading string, problems []string) {
	if len(problems) > 0 {
		http.Error(w, heading+strings.Join(problems, ", "), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
