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

	"podcount/internal/wire"
)

// Status is the error that the API server answers, or what an answer of another shape comes to: the API's own Status,
// and what it was answered to. Its Code is that of HTTP. StatusOf finds it in an error.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type Status struct {
	wire.Status

	call  call   // what was asked; empty where that is not known
	tried string // with a 401: what was not accepted
}

const (
	statusLimit  = 64 << 10  // bytes of an answer that are read for a Status
	quoteLimit   = 200       // bytes of an answer of another shape that an error quotes
	longestAsked = time.Hour // that RetryAfter lets a server ask for
)

// StatusOf returns the Status that err is or wraps; one with the Code 0 where the server did not answer, or
// not in a way that can be understood.
func StatusOf(err error) Status {
	s := &Status{}
	errors.As(err, &s)
	return *s
}

// RetryAfter is how long to wait because the server has asked for it with an error (429, 503): as long as it said, up
// to an hour, and by chance up to a fifth more (or a second, if that is longer). It is 0 where the server did not ask.
// https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
func RetryAfter(err error) time.Duration {
	seconds := min(max(StatusOf(err).Details.RetryAfterSeconds, 0), int(longestAsked/time.Second))
	return withJitter(time.Duration(seconds) * time.Second)
}

// PauseBetweenComplaints is the time between two lines of the log about an outage with this error. It is longer where
// somebody has to grant or install something first.
func PauseBetweenComplaints(err error) time.Duration {
	switch StatusOf(err).Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return 10 * time.Minute
	}
	return time.Minute
}

// HasCause reports whether one of the causes that the Status details has this reason or is about this field.
func (s Status) HasCause(reasonOrField string) bool {
	for _, cause := range s.Details.Causes {
		if cause.Reason == reasonOrField || cause.Field == reasonOrField {
			return true
		}
	}
	return false
}

// Error is the code, the reason and the server's message; and what to do, where that is known.
func (s *Status) Error() string {
	title := strings.TrimSpace(fmt.Sprintf("%d %s", s.Code, cmp.Or(s.Reason, http.StatusText(s.Code))))
	return title + ": " + s.Message + s.advice()
}

// advice is what to do about a credential that is not accepted, or a right that is missing; "" where it is neither.
func (s *Status) advice() string {
	isAnonymous := strings.Contains(s.Message, `"system:anonymous"`)
	switch {
	case s.Code == http.StatusUnauthorized && s.tried != "":
		return " (what was not accepted: " + s.tried + "): give one that has not expired, and is of this cluster"
	case s.Code == http.StatusForbidden && isAnonymous:
		return " (no credential was sent: give the kubeconfig's user a token, tokenFile, client-certificate or exec)"
	case s.Code == http.StatusForbidden:
		return s.missingRule()
	}
	return ""
}

// missingRule is the rule of RBAC that would allow what was asked. An admission plugin's refusal, which is forbidden,
// too, is no question of rights: it does not say "cannot VERB".
func (s *Status) missingRule() string {
	verbs := []string{s.call.verb}
	if s.call.verb == "update" {
		verbs = append(verbs, "create") // an update that makes a Lease needs that, too
	}
	for _, verb := range verbs {
		if strings.Contains(s.Message, " cannot "+verb+" ") {
			return fmt.Sprintf(" (the RBAC rule that allows it: apiGroups [%q], resources [%q], verbs [%q])",
				s.call.group, s.call.resource, verb)
		}
	}
	return ""
}

// readStatus makes a Status of an answer that is no success, be it a Status, plain text or some proxy's page, and
// closes it.
func readStatus(resp *http.Response, asked call) *Status {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, statusLimit)) // what could be read will do
	isProtobuf, _ := formOf(resp)
	s := &Status{Status: wire.ParseStatus(body, isProtobuf), call: asked}
	if s.Code == 0 {
		s.Status = wire.Status{Message: strconv.Quote(oneLine(body, quoteLimit))}
	}
	s.Code = resp.StatusCode
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // API servers send no date here
	s.Details.RetryAfterSeconds = max(s.Details.RetryAfterSeconds, seconds)
	return s
}

// withJitter is the wait that a server has asked for (Retry-After), and by chance up to a fifth more, or up to a second
// more if that is longer: clients refused at the same moment got the same answer. 0, for no wish, stays 0.
func withJitter(asked time.Duration) time.Duration {
	if asked <= 0 {
		return 0
	}
	return asked + rand.N(max(asked/5, time.Second))
}

// oneLine returns the beginning of an answer, on one line.
func oneLine(answer []byte, limit int) string {
	line := strings.Join(strings.Fields(string(answer)), " ")
	return line[:min(len(line), limit)]
}
