package kube

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"podcount/internal/wire"
)

// A PUT that makes a Lease needs the right to create it, too.
func TestRightToMakeWhatIsNotThereIsNamed(t *testing.T) {
	err := &Status{Status: wire.Status{Code: 403, Reason: "Forbidden", Message: `leases.coordination.k8s.io "podcount" is forbidden: User "x" cannot create resource "leases" in API group`}, call: callOf("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podcount", nil)}
	wantText(t, err.Error(), `verbs ["create"]`)
}

func TestRetryAfterOfAWrappedStatusIsWhatTheServerAskedForAndAFifthMoreAtMost(t *testing.T) {
	status := &Status{Status: wire.Status{Code: 429}}
	status.Details.RetryAfterSeconds = 9
	wait := RetryAfter(fmt.Errorf("patch: %w", status))
	if wait < 9*time.Second || wait > 10800*time.Millisecond {
		t.Errorf("the server asked for 9 s, and the wait is %v", wait)
	}
}

func TestStatusNamesVerbObjectAndRule(t *testing.T) {
	for _, c := range []struct{ method, path, query, want, rule string }{
		{"GET", "/api/v1/pods", "", "list pods", `[""], resources ["pods"], verbs ["list"]`},
		{"GET", "/api/v1/namespaces/a/pods", "watch=1", "watch pods", `[""], resources ["pods"], verbs ["watch"]`},
		{"PATCH", "/api/v1/nodes/cp-1", "", "patch nodes/cp-1", `[""], resources ["nodes"], verbs ["patch"]`},
		{"POST", "/api/v1/namespaces/a/events", "", "create events", `[""], resources ["events"], verbs ["create"]`},
		{"PATCH", "/apis/demo.mark8s.io/v1/namespaces/a/counts/x/status", "", "patch counts/status/a/x", `["demo.mark8s.io"], resources ["counts/status"], verbs ["patch"]`},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "", "update leases/a/l", `["coordination.k8s.io"], resources ["leases"], verbs ["update"]`},
	} {
		q, _ := url.ParseQuery(c.query)
		what := callOf(c.method, c.path, q)
		resp := &http.Response{StatusCode: 403, Body: io.NopCloser(strings.NewReader(`{"code":403,"reason":"Forbidden","message":"x cannot ` + what.verb + ` it"}`))}
		if text := readStatus(resp, what).Error(); what.String() != c.want || !strings.Contains(text, c.rule) || !strings.HasPrefix(text, "403 Forbidden: x cannot") {
			t.Errorf("%s %s: %s: %s", c.method, c.path, what, text)
		}
	}
}

func TestAnonymousIsToldToBringACredentialAndNotToBeGivenRights(t *testing.T) {
	s := &Status{Status: wire.Status{Code: 403, Reason: "Forbidden", Message: `pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope`}, call: call{verb: "list", resource: "pods"}}
	if text := s.Error(); strings.Contains(text, "RBAC") || !strings.Contains(text, "(no credential was sent: give the kubeconfig's user a token") {
		t.Error(text)
	}
}

func TestRefusalThatIsNoQuestionOfRightsNamesNoRule(t *testing.T) {
	for _, message := range []string{"unable to create new content in namespace x because it is being terminated", `admission webhook "w" denied the request: patch`} {
		s := &Status{Status: wire.Status{Code: 403, Reason: "Forbidden", Message: message}, call: call{verb: "patch", resource: "nodes"}}
		if got, want := s.Error(), "403 Forbidden: "+message; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestRetryAfterIsWaitedForWithJitter(t *testing.T) {
	for asked, most := range map[time.Duration]time.Duration{
		time.Second: 2 * time.Second,
		time.Minute: 72 * time.Second,
		time.Hour:   72 * time.Minute,
	} {
		least, longest := time.Duration(1<<62), time.Duration(0)
		for range 1000 {
			wait := withJitter(asked)
			least, longest = min(least, wait), max(longest, wait)
		}
		if spread := most - asked; least < asked || longest >= most || longest-least < spread*9/10 {
			t.Errorf("asked for %v: waits from %v to %v", asked, least, longest)
		}
	}
	if got := withJitter(0); got != 0 {
		t.Errorf("asked for nothing: %v", got)
	}
}
