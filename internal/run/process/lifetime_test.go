package process

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestWorkEndsWithTheReason(t *testing.T) {
	errLost := errors.New("the lease is lost")
	for _, row := range []struct {
		name  string
		end   func(*Lifetime)
		after time.Duration
		cause string
	}{
		{"it takes too long to stop", func(l *Lifetime) { l.StopWith(nil) }, 10 * time.Second, "cut off 10s after the stop"},
		{"requests are cut off", func(l *Lifetime) { l.CutRequests(errLost) }, 0, "the lease is lost"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLifetime(t.Context(), 10*time.Second)
				defer l.End()
				start := time.Now()
				row.end(l)
				<-l.Work.Done()
				testkit.WantEqual(t, "time until the end", time.Since(start), row.after)
				testkit.WantError(t, "the cause", context.Cause(l.Work), row.cause)
			})
		})
	}
}
