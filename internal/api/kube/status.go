package kube

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"podcount/internal/api/retry"
	"podcount/internal/api/wire"
)

// Status is the error of a request that the API server has refused. If the answer has no Status, Message is the
// beginning of its text. Code is always the HTTP status code. StatusOf finds a Status in an error.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type Status struct {
	wire.Status

	advice    string // what to do about it, for Error; or ""
	isOfProxy bool   // a proxy has answered, because the server behind it does not
}

// maxRetryAfter is the longest wait that a server can ask for.
const maxRetryAfter = time.Hour

// StatusOf returns the Status that err is or wraps. If there is none, the result has the Code 0: the server did not
// answer, or its answer cannot be understood.
func StatusOf(err error) Status {
	var s *Status
	if errors.As(err, &s) {
		return *s
	}
	return Status{}
}

// RetryAfter returns how long to wait, if err is an answer such as a 429 or 503 that asks clients to wait. Otherwise it
// returns 0. The wait is at most an hour, plus a random jitter: up to a fifth, or up to a second if that is longer.
// Otherwise all clients that the server refused at the same moment would come back at the same moment.
// https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
func RetryAfter(err error) time.Duration {
	seconds := StatusOf(err).Details.RetryAfterSeconds
	seconds = min(seconds, int(maxRetryAfter/time.Second)) // a larger number could overflow
	if seconds <= 0 {
		return 0
	}
	wait := time.Duration(seconds) * time.Second
	return retry.Between(wait, wait+max(wait/5, time.Second))
}

// PauseBetweenComplaints returns how long to wait before the log reports an outage with this error again. The wait is
// longer if a person must grant or install something first.
func PauseBetweenComplaints(err error) time.Duration {
	switch StatusOf(err).Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return 10 * time.Minute
	}
	return time.Minute
}

// HasCause reports whether a cause in the Status has this reason, or is about this field.
func (s Status) HasCause(reasonOrField string) bool {
	return slices.ContainsFunc(s.Details.Causes, func(cause wire.Cause) bool {
		return cause.Reason == reasonOrField || cause.Field == reasonOrField
	})
}

// Error returns the code, the reason, the server's message, and advice for some of them.
func (s *Status) Error() string {
	reason := cmp.Or(s.Reason, http.StatusText(s.Code))
	title := strings.TrimSpace(fmt.Sprintf("%d %s", s.Code, reason))
	return title + ": " + s.Message + s.advice
}

// readStatus makes a Status from an answer that is not a success, and closes the answer. The body may be a Status,
// plain text, or the page of a proxy. tried describes the credential of the request.
func readStatus(resp *http.Response, r Request, tried string) *Status {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, wire.StatusLimit)) // after an error, use what could be read
	isProtobuf, _ := formatOf(resp)
	s := &Status{Status: wire.ParseStatus(body, isProtobuf)}
	s.Code = resp.StatusCode
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // API servers never send a date here
	s.Details.RetryAfterSeconds = max(s.Details.RetryAfterSeconds, seconds)
	s.isOfProxy = isOfProxy(s)
	s.advice = adviceOnRefusal(r, s, tried)
	return s
}

// isOfProxy reports whether a proxy has answered that the server behind it does not. An API server would give a reason,
// or say when to come again.
func isOfProxy(s *Status) bool {
	switch s.Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return s.Reason == "" && s.Details.RetryAfterSeconds == 0
	}
	return false
}
