package kube

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"podcount/internal/api/wire"
)

// Status is the error of a request that the API server has refused: the Status of the answer, and the request. If the
// answer has no Status, Message is the beginning of its text. Code is always the HTTP status code. StatusOf finds a
// Status in an error.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type Status struct {
	wire.Status

	call  call   // the request; empty if it is unknown
	tried string // after a 401, a description of the credential

	// isOfProxy means that a proxy has answered, because the server behind it does not.
	isOfProxy bool
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
// https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
func RetryAfter(err error) time.Duration {
	seconds := StatusOf(err).Details.RetryAfterSeconds
	seconds = min(seconds, int(maxRetryAfter/time.Second)) // a larger number could overflow
	return withJitter(time.Duration(seconds) * time.Second)
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

// Advice says, in a sentence or two, what a person can do about the error of a request. Errors name missing permissions
// and the like themselves, so the advice only says where to look. Without an error, it is "".
func Advice(err error) string {
	status := StatusOf(err)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, io.EOF) || errors.As(err, new(wire.GarbageError)):
		return "Find out what ends or garbles the connection: a proxy, or the API server. podcount retries by itself."
	case status.Code == http.StatusUnauthorized:
		return "Give podcount a credential that this cluster accepts. It reads changed files by itself."
	case status.Code == http.StatusForbidden:
		return "Grant the permission that the error names, or change the policy that forbids the request."
	case status.Code == http.StatusNotFound:
		return "Install what is missing, or check the flags. podcount goes on by itself once it is there."
	case status.Code == http.StatusBadRequest || status.Code == http.StatusUnprocessableEntity:
		return "The server rejects the request itself: check the flags, and the cluster's admission policies."
	case status.Code == http.StatusTooManyRequests:
		return "Nothing: the server asks for patience, and podcount waits. If it lasts, see who loads the server."
	case status.Code != 0:
		return "Look at the API server's own log. podcount retries by itself."
	}
	return "Check that the API server runs and that the network reaches it. podcount retries by itself."
}

// HasCause reports whether a cause in the Status has this reason, or is about this field.
func (s Status) HasCause(reasonOrField string) bool {
	for _, cause := range s.Details.Causes {
		if cause.Reason == reasonOrField || cause.Field == reasonOrField {
			return true
		}
	}
	return false
}

// Error returns the code, the reason, the server's message, and advice for some of them.
func (s *Status) Error() string {
	reason := cmp.Or(s.Reason, http.StatusText(s.Code))
	title := strings.TrimSpace(fmt.Sprintf("%d %s", s.Code, reason))
	return title + ": " + s.Message + s.advice()
}

// advice says what to do if the server does not accept the credential, or if a permission is missing. It is "" for
// other errors.
func (s *Status) advice() string {
	isAnonymous := strings.Contains(s.Message, `"system:anonymous"`)
	switch {
	case s.Code == http.StatusUnauthorized && strings.HasPrefix(s.tried, "nothing, "):
		return " (no credential was sent" + strings.TrimPrefix(s.tried, "nothing") + ")"
	case s.Code == http.StatusUnauthorized && s.tried != "":
		return " (what was not accepted: " + s.tried + "): give one that has not expired, and is of this cluster"
	case s.Code == http.StatusForbidden && isAnonymous:
		return " (no credential was sent: give the kubeconfig's user a token, tokenFile, client-certificate or exec)"
	case s.Code == http.StatusForbidden:
		return s.missingRule()
	default:
		return ""
	}
}

// missingRule names the RBAC rule that would allow the request. It is "" unless the server's message says "cannot
// VERB": any other request was forbidden by an admission plugin, and no rule would allow it.
func (s *Status) missingRule() string {
	verbs := []string{s.call.verb}
	if s.call.verb == "update" {
		verbs = append(verbs, "create") // an update of an object that does not exist creates it
	}
	for _, verb := range verbs {
		if strings.Contains(s.Message, " cannot "+verb+" ") {
			return fmt.Sprintf(" (the RBAC rule that allows it: apiGroups [%q], resources [%q], verbs [%q])",
				s.call.group, s.call.resource, verb)
		}
	}
	return ""
}

// readStatus makes a Status from an answer that is not a success, and closes the answer. The body may be a Status,
// plain text, or the page of a proxy.
func readStatus(resp *http.Response, request call) *Status {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, wire.StatusLimit)) // after an error, use what could be read
	isProtobuf, _ := formatOf(resp)
	s := &Status{Status: wire.ParseStatus(body, isProtobuf), call: request}
	s.Code = resp.StatusCode
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // API servers never send a date here
	s.Details.RetryAfterSeconds = max(s.Details.RetryAfterSeconds, seconds)
	s.isOfProxy = isOfProxy(s)
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

// withJitter adds a random jitter to a wait. Otherwise all clients that the server refused at the same moment would
// come back at the same moment. It returns 0 if there is no wait.
func withJitter(wait time.Duration) time.Duration {
	if wait <= 0 {
		return 0
	}
	return wait + rand.N(max(wait/5, time.Second))
}
