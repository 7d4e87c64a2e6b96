package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"podcount/internal/api/wire"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// forbidden is the error of a request to patch a node that the server has forbidden.
func forbidden(message string) *Status {
	body := fmt.Sprintf(`{"code":403,"reason":"Forbidden","message":%q}`, message)
	patch := Request{Method: "PATCH", API: "/api/v1", Resource: "nodes", Name: "n"}
	return readStatus(answer(403, "application/json", body), patch, "")
}

// answer returns an HTTP response.
func answer(code int, contentType, body string) *http.Response {
	return &http.Response{
		StatusCode: code,
		Header:     http.Header{"Content-Type": {contentType}},
		Body:       io.NopCloser(strings.NewReader(body)),
	}
}

// A PUT that creates a Lease needs the right to create it, too.
func TestUpdateMayNeedTheRightToCreate(t *testing.T) {
	put := Request{Method: "PUT", API: "/apis/coordination.k8s.io/v1", Resource: "leases", Name: "podcount"}
	body := `{"code":403,"message":"User cannot create resource leases"}`
	err := readStatus(answer(403, "application/json", body), put, "")
	testkit.WantText(t, err.Error(), `verbs ["create"]`)
}

func TestAnonymousUserIsAdvisedToGiveACredential(t *testing.T) {
	s := forbidden(`pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" ` +
		`at the cluster scope`)
	if strings.Contains(s.Error(), "RBAC") {
		t.Error(s)
	}
	testkit.WantText(t, s.Error(), "(no credential was sent: give the kubeconfig's user a token")
}

func TestOtherRefusalsNameNoRBACRule(t *testing.T) {
	for _, message := range []string{
		"unable to create new content in namespace x because it is being terminated",
		`admission webhook "w" denied the request: patch`,
	} {
		s := forbidden(message)
		testkit.WantEqual(t, "the error", s.Error(), "403 Forbidden: "+message)
	}
}

func TestStrangeAnswerIsQuotedOnOneShortLine(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for body, want := range map[string]string{
		"":                     `502 Bad Gateway: ""`,
		"<h1>\n\tno\n</h1>":    `502 Bad Gateway: "<h1> no </h1>"`,
		"null":                 `502 Bad Gateway: "null"`,
		`{"kind":"Pod"}`:       `502 Bad Gateway: "{\"kind\":\"Pod\"}"`,
		long:                   `502 Bad Gateway: "` + long[:quoteLimit] + `"`,
		`{"code":409}`:         `502 Bad Gateway: `,
		`{"code":"x"} trouble`: `502 Bad Gateway: "{\"code\":\"x\"} trouble"`,
	} {
		s := readStatus(answer(502, "text/html", body), Request{}, "")
		if s.Error() != want || s.Code != 502 {
			t.Errorf("%.50q: %s, want %s", body, s, want)
		}
	}
}

func TestStatusIsFoundInWrappedErrors(t *testing.T) {
	s := &Status{Status: wire.Status{Code: 404, Reason: "NotFound"}}
	s.Details.Causes = append(s.Details.Causes, struct{ Reason, Field string }{"FieldValueInvalid", "metadata.uid"})
	for _, err := range []error{s, fmt.Errorf("get: %w", s), errors.Join(errors.New("more"), s)} {
		got := StatusOf(err)
		hasCause := got.HasCause("metadata.uid") && got.HasCause("FieldValueInvalid")
		if got.Code != 404 || !hasCause || got.HasCause("metadata") {
			t.Errorf("%v: %+v", err, got)
		}
	}
	for _, err := range []error{nil, errors.New("no server")} {
		if got := StatusOf(err); got.Code != 0 || got.Reason != "" || got.HasCause("metadata.uid") {
			t.Errorf("%v: %+v", err, got)
		}
	}
}

func TestMissingRightsAreReportedLessOften(t *testing.T) {
	for code, want := range map[int]time.Duration{
		401: 10 * time.Minute,
		403: 10 * time.Minute,
		404: 10 * time.Minute,
		409: time.Minute,
		429: time.Minute,
		503: time.Minute,
	} {
		err := fmt.Errorf("list pods: %w", &Status{Status: wire.Status{Code: code}})
		if got := PauseBetweenComplaints(err); got != want {
			t.Errorf("%d: %v, want %v", code, got, want)
		}
	}
	if got := PauseBetweenComplaints(errors.New("no answer")); got != time.Minute {
		t.Errorf("no answer: %v", got)
	}
}

func TestEveryErrorHasAdviceOfItsOwn(t *testing.T) {
	known := map[string]int{}
	for _, code := range []int{0, 400, 401, 403, 404, 429, 500} {
		advice := Advice(fmt.Errorf("list pods: %w", &Status{Status: wire.Status{Code: code}}))
		if advice == "" || known[advice] != 0 {
			t.Errorf("%d: the advice %q is empty, or also that of %d", code, advice, known[advice])
		}
		known[advice] = code
	}
	testkit.WantText(t, Advice(errors.New("connection refused")), "the network")
	testkit.WantText(t, Advice(fmt.Errorf("watch pods: %w", io.EOF)), "what ends or garbles the connection")
	testkit.WantText(t, Advice(wire.Garbage(errors.New("no type"))), "what ends or garbles the connection")
	testkit.WantEqual(t, "the advice without an error", Advice(nil), "")
}

func TestRetryAfterIsAtMostAnHour(t *testing.T) {
	for header, most := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"-5":                            0,
		"Wed, 21 Oct 2026 07:28:00 GMT": 0,
		"7":                             9 * time.Second,
		"999999999":                     72 * time.Minute,
	} {
		resp := answer(429, "text/plain", "too many requests")
		resp.Header.Set("Retry-After", header)
		if got := RetryAfter(readStatus(resp, Request{}, "")); got > most || most > 0 && got < most*7/10 {
			t.Errorf("%q: %v, want up to %v", header, got, most)
		}
	}
}

func TestRetryAfterIsWaitedForWithJitter(t *testing.T) {
	for asked, most := range map[time.Duration]time.Duration{
		time.Second: 2 * time.Second,
		time.Minute: 72 * time.Second,
		time.Hour:   72 * time.Minute,
	} {
		var refusal Status
		refusal.Code = 429
		refusal.Details.RetryAfterSeconds = int(asked / time.Second)
		least, longest := time.Duration(1<<62), time.Duration(0)
		for range 1000 {
			wait := RetryAfter(fmt.Errorf("patch: %w", &refusal))
			least, longest = min(least, wait), max(longest, wait)
		}
		if spread := most - asked; least < asked || longest >= most || longest-least < spread*9/10 {
			t.Errorf("asked for %v: waits from %v to %v", asked, least, longest)
		}
	}
}

// Whatever a server or something before it answers, that is an error with the code of HTTP.
func FuzzAnswerThatIsAnError(f *testing.F) {
	status := `{"kind":"Status","code":403,"reason":"Forbidden","message":"no","details":{"retryAfterSeconds":9}}`
	for _, body := range []string{"", "null", "[]", "<html>", status, `{"code":0}`, `{"code":1e99}`, "\xff\x00"} {
		f.Add(body, "application/json", "", uint16(0))
		f.Add(body, "text/plain", "1", uint16(29))
	}
	f.Add(string(fakekube.Protobuf([]byte(status))), wire.Protobuf, "99999999999", uint16(199))
	f.Fuzz(func(t *testing.T, body, contentType, retryAfter string, n uint16) {
		code := 300 + int(n)%300
		resp := answer(code, contentType, body)
		resp.Header.Set("Retry-After", retryAfter)
		err := fmt.Errorf("list pods: %w", readStatus(resp, Request{}, ""))
		if got := StatusOf(err).Code; got != code {
			t.Errorf("the code %d became %d", code, got)
		}
		if !strings.HasPrefix(err.Error(), fmt.Sprintf("list pods: %d", code)) {
			t.Errorf("the error does not begin with the code %d: %v", code, err)
		}
		if wait := RetryAfter(err); wait < 0 || wait > 72*time.Minute {
			t.Errorf("the wait is %v", wait)
		}
	})
}
