package events

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/wire"
	"podcount/lab/testkit"
)

// newStatus returns an error as the API server answers it. cause is the reason of its only cause.
func newStatus(code int, reason, cause string) *kube.Status {
	s := &kube.Status{Status: wire.Status{Code: code, Reason: reason}}
	s.Details.Causes = []wire.Cause{{Reason: cause}}
	return s
}

func TestErrorsBecomeAnswers(t *testing.T) {
	const long = 10 * time.Minute
	for _, c := range []struct {
		name     string
		err      error
		create   Answer
		patch    Answer
		logPause time.Duration
	}{
		{"success", nil, NoAnswer, NoAnswer, 0},
		{"not reached", io.ErrUnexpectedEOF, NoAnswer, NoAnswer, 0},
		{"already exists", newStatus(409, "AlreadyExists", ""), AlreadyExists, Refused, time.Minute},
		{"event or namespace gone", newStatus(404, "NotFound", ""), NamespaceGone, NotFound, long},
		{"404 of a proxy", newStatus(404, "", ""), NamespaceGone, NamespaceGone, long},
		{"being deleted", newStatus(403, "Forbidden", "NamespaceTerminating"), NamespaceGone, NamespaceGone, long},
		{"no right", newStatus(403, "Forbidden", ""), Refused, Refused, long},
		{"broken server", newStatus(500, "", ""), Refused, Refused, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.err != nil {
				c.err = fmt.Errorf("events: %w", c.err)
			}
			wantFailure(t, "create", newFailure(c.err, "AlreadyExists", AlreadyExists), c.err, c.create, c.logPause)
			wantFailure(t, "patch", newFailure(c.err, "NotFound", NotFound), c.err, c.patch, c.logPause)
		})
	}
}

// wantFailure checks what the Recorder learns from err, and that err wraps cause.
func wantFailure(t *testing.T, method string, err, cause error, answer Answer, logPause time.Duration) {
	t.Helper()
	failure := failureIn(err)
	testkit.WantNumber(t, method+": answer", int(failure.Answer), int(answer))
	testkit.WantEqual(t, method+": time without another line", failure.LogPause, logPause)
	if !errors.Is(err, cause) {
		t.Errorf("%s: %v does not wrap %v", method, err, cause)
	}
}

func TestFailureHasTheServersRetryAfter(t *testing.T) {
	tooMany := newStatus(429, "TooManyRequests", "")
	tooMany.Details.RetryAfterSeconds = 9
	wait := failureIn(newFailure(tooMany, "", AlreadyExists)).RetryAfter
	// The jitter is up to a fifth.
	testkit.WantBetween(t, "RetryAfter", wait, 9*time.Second, 10800*time.Millisecond)
}
