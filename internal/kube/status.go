package kube

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"podcount/internal/wire"
)

// Status is the error that the API server answers, or what an answer without one amounts to: the API's own Status,
// and what it was answered to.
type Status struct {
	wire.Status

	call  Call   // what was asked
	tried string // with a 401: what was not accepted
}

func (s *Status) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", s.Code, cmp.Or(s.Reason, http.StatusText(s.Code)))) + ": " + s.Message
	switch {
	case s.Code == http.StatusUnauthorized && s.tried != "":
		text += " (what was not accepted: " + s.tried + "): give one that has not expired, and is of this cluster"
	case s.Code == http.StatusForbidden && strings.Contains(s.Message, `"system:anonymous"`):
		text += " (no credential was sent: give the kubeconfig's user a token, tokenFile, client-certificate or exec)"
	case s.Code == http.StatusForbidden:
		// An update that makes a Lease may lack the right to create it. An admission plugin's refusal is no question of rights.
		for _, verb := range slices.Compact([]string{s.call.verb, strings.Replace(s.call.verb, "update", "create", 1)}) {
			if strings.Contains(s.Message, " cannot "+verb+" ") {
				text += fmt.Sprintf(" (the RBAC rule that allows it: apiGroups [%q], resources [%q], verbs [%q])", s.call.group, s.call.resource, verb)
			}
		}
	}
	return text
}

// RetryAfter is how long to wait because the server has asked for it with an error (429, 503), with jitter on top. It
// is 0 where the server did not ask.
func RetryAfter(err error) time.Duration {
	seconds := min(max(StatusOf(err).Details.RetryAfterSeconds, 0), 3600)
	return withJitter(time.Duration(seconds) * time.Second)
}

// withJitter is the wait that a server has asked for (Retry-After), and by chance up to a fifth more, or up to a second
// more if that is longer: clients refused at the same moment got the same answer. 0, for no wish, stays 0.
func withJitter(asked time.Duration) time.Duration {
	if asked <= 0 {
		return 0
	}
	return asked + rand.N(max(asked/5, time.Second))
}

// StatusOf returns the Status that err is or wraps; one with the Code 0 where the server did not answer.
func StatusOf(err error) Status {
	s := &Status{}
	errors.As(err, &s)
	return *s
}

// PauseBetweenComplaints is the time between two lines about an outage with this error. It is longer where somebody has to grant
// or install something first.
func PauseBetweenComplaints(err error) time.Duration {
	switch StatusOf(err).Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return 10 * time.Minute
	}
	return time.Minute
}

// HasCause reports whether one of the causes that the Status details has this reason or is about this field.
func (s Status) HasCause(reasonOrField string) bool {
	return slices.ContainsFunc(s.Details.Causes, func(c struct{ Reason, Field string }) bool {
		return c.Reason == reasonOrField || c.Field == reasonOrField
	})
}

// readStatus makes a Status of an answer that is not 2xx, be it a Status, plain text or some proxy's page, and closes it.
func readStatus(resp *http.Response, what Call) *Status {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	isProtobuf, _ := wireOf(resp)
	s := &Status{Status: wire.ParseStatus(body, isProtobuf), call: what}
	if s.Code == 0 {
		s.Status = wire.Status{Message: strconv.Quote(oneLine(body, 200))}
	}
	s.Code = resp.StatusCode
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // never a date here
	s.Details.RetryAfterSeconds = max(s.Details.RetryAfterSeconds, seconds)
	return s
}

// oneLine returns the beginning of an answer, on one line.
func oneLine(answer []byte, limit int) string {
	line := strings.Join(strings.Fields(string(answer)), " ")
	return line[:min(len(line), limit)]
}
