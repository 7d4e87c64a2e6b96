package control

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/view/logging"
	"podcount/internal/view/observe"
	"podcount/lab/testkit"
)

// Nothing but its own limits may end a wait: neither what never ends, nor what ends late.
func TestHangingWorkIsAbandonedAndNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, never := &testkit.Buffer{}, make(chan struct{})
		m := New(Options{Sinks: observe.Sinks{Log: slog.New(logging.NewHandler(log, logging.Style{}, slog.LevelInfo))}})
		m.running.Go("worker of x", func() { <-never })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		m.awaitEnd("a controller", never, ctx)
		testkit.WantEqual(t, "time it was waited for", time.Since(start), 5*time.Second+HangTimeout)
		testkit.WantText(t, log.String(), `what="a controller" running="worker of x"`)
		close(never)
		start = time.Now()
		m.awaitEnd("a controller", never, t.Context())
		testkit.WantEqual(t, "time that what had ended was waited for", time.Since(start), 0)
	})
}
