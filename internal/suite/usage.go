package suite

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"podcount/internal/fakekube"
	"podcount/internal/options"
	"podcount/internal/testkit"
)

// Usage shows how podcount answers mistakes in its flags.
var Usage = Topic{
	{"wrong usage is one line", wrongUsage},
	{"a field that the server does not know is wrong usage", unknownField},
	{"an invalid selector is found before any request", invalidSelectors},
	{"a -listen port that is taken is named", takenPort},
}

func wrongUsage(t *testing.T, podcount Program) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-nonsense"}, "flag provided but not defined: -nonsense"},
		{[]string{"stray"}, `unexpected argument "stray"`},
		{[]string{"-interval", "0s"}, "-interval"},
		{[]string{"-interval", "soon"}, `invalid value "soon" for flag -interval`},
		{[]string{"-workers", "0"}, "-workers"},
		{[]string{"-qps", "NaN"}, "-qps"},
		{[]string{"-total-label", "kubernetes.io/pods"}, "labels under kubernetes.io and k8s.io are reserved for Kubernetes itself"},
		{[]string{"-total-label", "x.node.kubernetes.io/pods"}, "reserved"},
		{[]string{"-node-label", "k8s.io/pods"}, "labels under kubernetes.io and k8s.io are reserved"},
		{[]string{"-node-label", "hopegi/pod-count"}, "different keys"},
		{[]string{"-total-label", "not valid"}, `-total-label: label key "not valid"`},
		{[]string{"-total-label", ""}, "-total-label: label key"},
		{[]string{"-total-nodes", "a in b"}, `-total-nodes: requirement 1 "a in b": in needs values`},
		{[]string{"-total-nodes", "!hopegi/pod-count"}, "hopegi/pod-count is the -total-label"},
		{[]string{"-node-label", "a.b/c", "-total-nodes", "a.b/c=0"}, "a.b/c is the -node-label"},
		{[]string{"-namespace", "No_Such"}, "-namespace"},
		{[]string{"-pod-events", "yes"}, "use on or off"},
		{[]string{"-log-format", "xml"}, "use auto, text or json"},
		{[]string{"-interval", "1"}, `invalid value "1" for flag -interval: it has no unit: write 1s for seconds, 1m for minutes`},
		{[]string{"-once-timeout", "0s"}, "-once-timeout 0s must be more than 0"},
		{[]string{"-controllers", "pods"}, `-controllers: there is no "pods"; there are pod-count, count, pod-printer`},
		{[]string{"-leader-elect-lease-duration", "10s"}, "-leader-elect-lease-duration 10s must be more than -leader-elect-renew-deadline 10s"},
		{[]string{"-leader-elect-lease-duration", "15500ms"}, "-leader-elect-lease-duration 15.5s must be whole seconds"},
		{[]string{"-leader-elect-lease-duration", "2147483648s"}, "-leader-elect-lease-duration 596523h14m8s is more than a Lease can say"},
		{[]string{"-leader-elect-retry-period", "2540400h"}, "-leader-elect-retry-period"},
		{[]string{"-leader-elect-lease-duration", "400000h", "-leader-elect-renew-deadline", "300000h", "-leader-elect-retry-period", "250000h"},
			"300000h0m0s, that more than 1.2 × -leader-elect-retry-period"},
		{[]string{"-leader-elect-renew-deadline", "2400ms"}, "that more than 1.2 × -leader-elect-retry-period 2s"},
		{[]string{"-leader-elect-retry-period", "0s"}, "and that more than 0"},
		{[]string{"-leader-elect-resource-name", "Pod Count"}, `-leader-elect-resource-name: "Pod Count" must be lower-case`},
		{[]string{"-leader-elect-resource-namespace", "a.b"}, `-leader-elect-resource-namespace "a.b" is no namespace's name`},
		{[]string{"-kubeconfig", "/does/not/exist"}, "/does/not/exist: no such file"},
		{[]string{"-master", "ftp://x"}, "-master: the server's address (ftp://x) must be"},
	} {
		err := podcount(t.Context(), c.args, NoEnv, io.Discard, io.Discard, nil)
		var usage options.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}

// The fake, like an old server, knows fewer fields than podcount.
func unknownField(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		refusal := fakekube.Status(400, "BadRequest", `Unable to find "/v1, Resource=pods" that match label selector "", `+
			`field selector "spec.hostNetwork=true": field label not supported: spec.hostNetwork`, nil)
		body, _ := json.Marshal(refusal)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "list", Resource: "pods"}, Do: fakekube.Reply{Code: 400, Body: string(body)}}) // a server of an older version
		p := podcount.Start(t, f, "-field-selector", "spec.hostNetwork=true")
		synctest.Wait()
		var usage options.UsageError
		if err := p.Stop(); !errors.As(err, &usage) || !strings.Contains(err.Error(), "field label not supported: spec.hostNetwork") {
			t.Errorf("ended with %v", err)
		}
	})
}

func invalidSelectors(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for args, want := range map[string]string{
			"-pod-selector=a in b":                       `-pod-selector: requirement 1 "a in b"`,
			"-pod-selector=a=b,c>d":                      `-pod-selector: requirement 2 "c>d"`,
			"-pod-selector=a=" + strings.Repeat("b", 64): "-pod-selector: ",
			"-field-selector=spec.nonsense=1":            `-field-selector: field label not supported: "spec.nonsense"`,
			"-field-selector=metadata.name":              `-field-selector: "metadata.name" needs an operator`,
			"-field-selector=metadata.name=a=b":          "-field-selector: ",
		} {
			p := podcount.Start(t, f, args)
			synctest.Wait()
			if err := p.Stop(); !errors.As(err, new(options.UsageError)) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", args, err, want)
			}
		}
		testkit.WantNumber(t, "requests", len(f.Requests(All)), 0)
	})
}

func takenPort(t *testing.T, podcount Program) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = podcount(t.Context(), []string{"-master", "http://127.0.0.1:1", "-listen", taken.Addr().String()}, NoEnv, io.Discard, io.Discard, nil)
	if err == nil || errors.As(err, new(options.UsageError)) || !strings.Contains(err.Error(), "-listen "+taken.Addr().String()+": ") {
		t.Error(err)
	}
}
