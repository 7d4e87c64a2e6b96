// Package observe turns what happens into lines of the log, metrics, steps of the trace, and the state for people. The
// rest of the program says what has happened in one line, with typed values, and knows none of these formats.
package observe

import (
	"log/slog"

	"podcount/internal/view/metrics"
	"podcount/internal/view/trace"
)

// Sinks are where everything is told. Log and Metrics are required. A nil Trace has no listeners.
type Sinks struct {
	Log     *slog.Logger
	Metrics *metrics.Registry
	Trace   *trace.Trace
}

// NewSinks makes the sinks of a process. The trace gets each line of the log, too.
func NewSinks(log *slog.Logger, t *trace.Trace) Sinks {
	return Sinks{Log: slog.New(trace.NewHandler(log.Handler(), t)), Metrics: metrics.NewRegistry(), Trace: t}
}
