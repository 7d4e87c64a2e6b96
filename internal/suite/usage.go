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
	{"a kubeconfig that cannot be used is wrong usage", uselessKubeconfig},
	{"a field that the server does not know is wrong usage", unknownField},
	{"an invalid selector is found before any request", invalidSelectors},
	{"a -listen port that is taken is named", takenPort},
}

func uselessKubeconfig(t *testing.T, podcount Program) {
	for args, want := range map[string]string{
		"-kubeconfig=/does/not/exist": "/does/not/exist: no such file",
		"-master=ftp://x":             "-master: the server's address (ftp://x) must be",
	} {
		err := podcount(t.Context(), []string{args}, NoEnv, io.Discard, io.Discard, nil)
		if !errors.As(err, new(options.UsageError)) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", args, err, want)
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
