package events

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"podcount/internal/kube"
	"podcount/internal/testkit"
	"podcount/internal/wire"
)

// newStatus returns the error that the API server answers. cause is the reason of its only cause.
func newStatus(code int, reason, cause string) *kube.Status {
	s := &kube.Status{Status: wire.Status{Code: code, Reason: reason}}
	s.Details.Causes = []struct{ Reason, Field string }{{Reason: cause}}
	return s
}

func TestErrorsBecomeAnswers(t *testing.T) {
	const long = 10 * time.Minute
	for _, c := range []struct {
		name  string
		err   error
		post  Answer
		amend Answer
		pause time.Duration
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
			wantFailure(t, "post", failureOf(c.err, "AlreadyExists", AlreadyExists), c.err, c.post, c.pause)
			wantFailure(t, "amend", failureOf(c.err, "NotFound", NotFound), c.err, c.amend, c.pause)
		})
	}
}

// wantFailure checks what err says to the Recorder, and that it wraps cause.
func wantFailure(t *testing.T, what string, err, cause error, answer Answer, pause time.Duration) {
	t.Helper()
	failure := failureIn(err)
	testkit.WantNumber(t, what+": answer", int(failure.Answer), int(answer))
	testkit.WantEqual(t, what+": pause", failure.Pause, pause)
	if !errors.Is(err, cause) {
		t.Errorf("%s: %v does not wrap %v", what, err, cause)
	}
}

func TestFailureHasTheServersRetryAfter(t *testing.T) {
	tooMany := newStatus(429, "TooManyRequests", "")
	tooMany.Details.RetryAfterSeconds = 9
	wait := failureIn(failureOf(tooMany, "", AlreadyExists)).RetryAfter
	if wait < 9*time.Second || wait > 10800*time.Millisecond { // with jitter of up to a fifth
		t.Errorf("the server asked for 9 s, and RetryAfter is %v", wait)
	}
}
