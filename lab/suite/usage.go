package suite

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"podcount/internal/run/options"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// Usage shows how podcount answers mistakes in its flags.
var Usage = Topic{
	{"a kubeconfig that cannot be used is wrong usage", unusableKubeconfig},
	{"a field that the server does not know is wrong usage", unknownField},
	{"an invalid selector is reported before any request", invalidSelectors},
	{"a -listen port in use is reported, but not as wrong usage", takenPort("-listen")},
	{"a -page port in use is reported, but not as wrong usage", takenPort("-page")},
}

// wantWrongUsage fails the test unless err is a UsageError whose text is one line and contains want.
func wantWrongUsage(t *testing.T, err error, want string) {
	t.Helper()
	testkit.WantError(t, "the end", err, want)
	if !errors.As(err, new(options.UsageError)) {
		t.Errorf("the error %v is not a UsageError", err)
	}
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has several lines:\n%v", err)
	}
}

func unusableKubeconfig(t *testing.T, podcount Program) {
	for _, row := range []struct{ arg, want string }{
		{"-kubeconfig=/does/not/exist", "-kubeconfig /does/not/exist: no such file"},
		{"-master=ftp://x", "-master: the server's address must be https://"},
	} {
		t.Run(row.arg, func(t *testing.T) {
			err := podcount(t.Context(), []string{row.arg}, NoEnv, io.Discard, io.Discard, nil)
			wantWrongUsage(t, err, row.want)
		})
	}
}

func unknownField(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		p := podcount.Start(t, f, "-field-selector", "spec.nonsense=1")
		synctest.Wait()
		wantWrongUsage(t, p.Stop(), "field label not supported: spec.nonsense")
	})
}

func invalidSelectors(t *testing.T, podcount Program) {
	for _, row := range []struct{ arg, want string }{
		{"-pod-selector=a in b", `-pod-selector: requirement 1 "a in b"`},
		{"-pod-selector=a=b,c>d", `-pod-selector: requirement 2 "c>d"`},
		{"-pod-selector=a=" + strings.Repeat("b", 64), "-pod-selector: "},
	} {
		SimulateCase(t, row.arg, func(t *testing.T, f *fakekube.Server) {
			p := podcount.Start(t, f, row.arg)
			synctest.Wait()
			wantWrongUsage(t, p.Stop(), row.want)
			testkit.WantNumber(t, "requests", len(f.Received(fakekube.Requests{})), 0)
		})
	}
}

func takenPort(flag string) func(t *testing.T, podcount Program) {
	return func(t *testing.T, podcount Program) {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		address := taken.Addr().String()
		args := []string{"-master", "http://127.0.0.1:1", flag, address}
		err = podcount(t.Context(), args, NoEnv, io.Discard, io.Discard, nil)
		testkit.WantError(t, "the end", err, flag+" "+address+": ")
		if errors.As(err, new(options.UsageError)) {
			t.Errorf("the error %v is a UsageError", err)
		}
	}
}
