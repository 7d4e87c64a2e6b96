package events

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"podcount/internal/kube"
	"podcount/internal/wire"
)

func TestStatusOfAnEventIsToldToTheRecorderInItsOwnWords(t *testing.T) {
	status := func(code int, reason, cause string) *kube.Status {
		s := &kube.Status{Status: wire.Status{Code: code, Reason: reason}}
		s.Details.Causes = []struct{ Reason, Field string }{{Reason: cause}}
		return s
	}
	for name, c := range map[string]struct {
		err         error
		post, amend Answer
		pause       time.Duration
	}{
		"done":                      {nil, NoAnswer, NoAnswer, 0},
		"not reached":               {io.ErrUnexpectedEOF, NoAnswer, NoAnswer, 0},
		"there already":             {status(409, "AlreadyExists", ""), Exists, Refused, time.Minute},
		"gone, or its namespace is": {status(404, "NotFound", ""), Unwanted, Gone, 10 * time.Minute},
		"a 404 of some proxy":       {status(404, "", ""), Unwanted, Unwanted, 10 * time.Minute},
		"the namespace is terminating": {
			status(403, "Forbidden", "NamespaceTerminating"), Unwanted, Unwanted, 10 * time.Minute,
		},
		"a missing right": {status(403, "Forbidden", ""), Refused, Refused, 10 * time.Minute},
		"a broken server": {status(500, "", ""), Refused, Refused, time.Minute},
	} {
		if c.err != nil {
			c.err = fmt.Errorf("events: %w", c.err)
		}
		for _, way := range []struct {
			got  error
			want Answer
		}{
			{errorOf(c.err, "AlreadyExists", Exists), c.post},
			{errorOf(c.err, "NotFound", Gone), c.amend},
		} {
			got := errorIn(way.got)
			if got.Answer != way.want || got.Pause != c.pause || !errors.Is(way.got, c.err) {
				t.Errorf("%s: %+v, want the answer %d and the pause %v", name, got, way.want, c.pause)
			}
		}
	}
	patience := status(429, "TooManyRequests", "")
	patience.Details.RetryAfterSeconds = 9
	wait := errorIn(errorOf(patience, "", Exists)).RetryAfter
	if wait < 9*time.Second || wait > 10800*time.Millisecond {
		t.Errorf("the server asked for 9 s, and the wait is %v", wait)
	}
}
