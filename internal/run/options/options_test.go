package options

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"podcount/internal/view/page"
	"podcount/lab/testkit"
)

// testProgram has controllers of the same names as podcount.
var testProgram = Program{
	Controllers: []Controller{
		{Name: "pod-count", About: "counts"},
		{Name: "count", About: "compares"},
		{Name: "pod-printer", About: "prints", Off: true},
	},
}

// argsOf splits a command line before each flag, so that the value of a flag may have blanks: "-a=x y -b" are two.
func argsOf(line string) []string {
	if line == "" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(line, " -", "\n-"), "\n")
}

// parse reads a correct command line, which prints nothing.
func parse(t *testing.T, line string) *Options {
	t.Helper()
	var stdout strings.Builder
	o, err := Parse(argsOf(line), &stdout, testProgram)
	if o == nil || err != nil || stdout.Len() > 0 {
		t.Fatalf("%s: got %v, %v, and printed %q", line, o, err, stdout.String())
	}
	return o
}

// printed reads a command line that only prints, and returns the output.
func printed(t *testing.T, line string) string {
	t.Helper()
	var stdout strings.Builder
	o, err := Parse(argsOf(line), &stdout, testProgram)
	if o != nil || !errors.Is(err, ErrPrinted) {
		t.Fatalf("%s: got %v, %v", line, o, err)
	}
	return stdout.String()
}

// wantUsageError reads a wrong command line. It fails the test unless the error is a UsageError that contains want.
func wantUsageError(t *testing.T, line, want string) {
	t.Helper()
	var stdout strings.Builder
	o, err := Parse(argsOf(line), &stdout, testProgram)
	if o != nil || stdout.Len() > 0 {
		t.Errorf("got %v, and printed %q", o, stdout.String())
	}
	if !errors.As(err, new(UsageError)) {
		t.Fatalf("got %v, want a UsageError", err)
	}
	testkit.WantText(t, err.Error(), want, " (podcount -h lists the flags)")
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
}

func TestWrongUsage(t *testing.T) {
	rows := []struct{ line, want string }{
		{"-nonsense", "flag provided but not defined: -nonsense"},
		{"stray", `unexpected argument "stray"`},
		{"-interval=0s", "-interval is 0s, but must be more than 0"},
		{"-interval=1", `invalid value "1" for flag -interval: time: missing unit in duration "1"`},
		{"-once-timeout=0s", "-once-timeout is 0s, but must be more than 0"},
		{"-workers=0", "-workers is 0, but must be 1 or more"},
		{"-burst=0", "-burst is 0, but must be 1 or more"},
		{"-qps=NaN", "-qps is NaN, but must be more than 0"},
		{"-qps=0", "-qps is 0, but must be more than 0"},
		{"-burst=1.5", `invalid value "1.5" for flag -burst: parse error`},
		{"-v=-1", "-v is -1, but must be 0 or more"},
		{"-total-label=kubernetes.io/pods", "labels under kubernetes.io and k8s.io are reserved for Kubernetes itself"},
		{"-total-label=x.node.kubernetes.io/pods", "reserved for Kubernetes itself"},
		{"-node-label=k8s.io/pods", "-node-label k8s.io/pods: labels under kubernetes.io and k8s.io are reserved"},
		{"-node-label=hopegi/pod-count", "-node-label and -total-label are both hopegi/pod-count"},
		{"-total-label=not valid", `-total-label: label key "not valid"`},
		{"-total-label=", "-total-label: label key"},
		{"-total-nodes=a in b", `invalid value "a in b" for flag -total-nodes: requirement 1 "a in b": "in" needs values`},
		{"-total-nodes=!hopegi/pod-count", "-total-nodes selects by hopegi/pod-count, the -total-label"},
		{"-total-nodes=disk,hopegi/pod-count=7", "-total-nodes selects by hopegi/pod-count, the -total-label"},
		{"-node-label=a.b/c -total-nodes=a.b/c=0", "-total-nodes selects by a.b/c, the -node-label"},
		{"-namespace=No_Such", `-namespace "No_Such" cannot be the name of a namespace`},
		{"-pod-events=yes", `invalid value "yes" for flag -pod-events: use on or off`},
		{"-log-format=xml", "-log-format is xml, but must be auto, text or json"},
		{"-wire=xml", "-wire is xml, but must be protobuf or json"},
		{"-listen=8080", "-listen: address 8080: missing port in address: use [HOST]:PORT"},
		{"-listen=:nonsense", "use [HOST]:PORT"},
		{"-page=8081", "-page: address 8081: missing port in address: use [HOST]:PORT"},
		{"-page=:8081", "-page :8081: other machines could see the page: add -page-token-file FILE, or use -page 127.0.0.1:"},
		{"-page=0.0.0.0:8081", "add -page-token-file FILE"},
		{"-page=podcount.example:8081", "add -page-token-file FILE"},
		{"-listen=:8080 -page=127.0.0.1:8080", "-page 127.0.0.1:8080 and -listen :8080 have the same port"},
		{"-once -leader-elect", "-leader-elect cannot be combined with -once or -prune"},
		{"-prune -leader-elect", "-leader-elect cannot be combined with -once or -prune"},
		{"-leader-elect-lease-duration=10s", "(10s) > -leader-elect-renew-deadline (10s)"},
		{"-leader-elect-lease-duration=15500ms", "-leader-elect-lease-duration is 15.5s, but must be whole seconds"},
		{"-leader-elect-retry-period=2540400h", "> 1.2 × -leader-elect-retry-period (2540400h0m0s)"},
		{"-leader-elect-renew-deadline=2400ms", "> 1.2 × -leader-elect-retry-period (2s)"},
		{"-leader-elect-retry-period=0s", "-leader-elect-retry-period (0s) > 0"},
		{"-leader-elect-resource-name=Pod Count", `-leader-elect-resource-name: "Pod Count" must be lower-case`},
		{"-leader-elect-resource-namespace=a.b", `-leader-elect-resource-namespace "a.b" cannot be the name of a namespace`},
		{"-controllers=pods", `unknown controller "pods"; the controllers are pod-count, count, pod-printer`},
		{"-controllers=*,-nothing", `unknown controller "-nothing"; the controllers are`},
		{"-controllers=", `unknown controller ""; the controllers are`},
		{"-controllers=*,-pod-count,-count", "-controllers *,-pod-count,-count leaves no controller to run"},
		{"-controllers=-pod-count", "leaves no controller to run"},
		{"-controllers=pod-count, count", `unknown controller " count"`},
		{"-controllers=pod-count,,pod-printer", `unknown controller ""`},
		{"-controllers=--pod-count,pod-printer", `unknown controller "--pod-count"`},
	}
	for _, row := range rows {
		t.Run(row.line, func(t *testing.T) { wantUsageError(t, row.line, row.want) })
	}
}

// 1.2 times this period is more than the longest duration.
func TestRetryPeriodThatOverflowsIsRefused(t *testing.T) {
	wantUsageError(t, "-leader-elect-lease-duration=400000h -leader-elect-renew-deadline=300000h "+
		"-leader-elect-retry-period=250000h", "(300000h0m0s) > 1.2 × -leader-elect-retry-period")
}

func TestControllersAreChosenAsInKubeControllerManager(t *testing.T) {
	rows := []struct{ list, want string }{
		{"*", "pod-count count"},
		{"pod-count", "pod-count"},
		{"*,-count", "pod-count"},
		{"-count,*", "pod-count"},
		{"*,pod-printer", "pod-count count pod-printer"},
		{"pod-printer", "pod-printer"},
		{"pod-count,-pod-count", "pod-count"},
		{"*,-pod-count,pod-count", "count"},
	}
	for _, row := range rows {
		t.Run(row.list, func(t *testing.T) {
			o := parse(t, "-controllers="+row.list)
			testkit.WantEqual(t, "the controllers that are on", strings.Join(o.Controllers, " "), row.want)
			testkit.WantEqual(t, "IsOn of pod-printer", o.IsOn("pod-printer"), strings.Contains(row.want, "pod-printer"))
		})
	}
}

func TestPruneIsAOnceOfPodCountOnly(t *testing.T) {
	o := parse(t, "-prune -controllers=*")
	testkit.WantEqual(t, "the controllers that are on", o.Controllers, []string{"pod-count"})
	testkit.WantEqual(t, "Once", o.Once, true)
}

func TestPageIsForThisMachineOrAsksForAToken(t *testing.T) {
	lines := []string{
		"-page=127.0.0.1:8081",
		"-page=localhost:0",
		"-page=127.0.0.1:http",
		"-page=[::1]:8081 -listen=:8080",
		"-page=127.0.0.1:0 -listen=127.0.0.1:0",
		"-page=127.0.0.1:8081 -once",
		"-page=:8081 -page-token-file=token",
		"-page=127.0.0.1:8081 -page-token-file=token",
	}
	for _, line := range lines {
		t.Run(line, func(t *testing.T) {
			o := parse(t, line)
			testkit.WantText(t, line, "-page="+o.Page)
			testkit.WantEqual(t, "has a token", o.PageTokenFile != "", strings.Contains(line, "token"))
		})
	}
}

func TestOnlyDomainsOfKubernetesAreReserved(t *testing.T) {
	for _, label := range []string{"notkubernetes.io/pods", "kubernetes.io.example/pods", "kubernetes.io"} {
		testkit.WantEqual(t, "the label", parse(t, "-total-label="+label).TotalLabel, label)
	}
}

func TestFlagsHaveTheirValues(t *testing.T) {
	o := parse(t, "-qps=7 -dry-run")
	testkit.WantEqual(t, "the flags are sorted", slices.IsSortedFunc(o.Flags, func(a, b page.Flag) int {
		return strings.Compare(a.Name, b.Name)
	}), true)
	for _, want := range []page.Flag{
		{Name: "qps", Value: "7"},
		{Name: "dry-run", Value: "true"},
		{Name: "once", Value: "false"},
		{Name: "controllers", Value: "*"},
		{Name: "total-nodes", Value: "(the nodes of the control plane)"},
	} {
		testkit.WantEqual(t, want.Name+" is there", slices.Contains(o.Flags, want), true)
	}
}

func TestOnceFlagIsTheOneGiven(t *testing.T) {
	for _, line := range []string{"-once", "-prune"} {
		testkit.WantEqual(t, "flag of "+line, parse(t, line).OnceFlag(), line)
	}
}

func TestNodesOfTheTotal(t *testing.T) {
	rows := []struct {
		line, label string
		want        bool
	}{
		{"", "node-role.kubernetes.io/control-plane", true},
		{"", "node-role.kubernetes.io/master", true},
		{"", "node-role.kubernetes.io/worker", false},
		{"-total-nodes=disk", "disk", true},
		{"-total-nodes=disk", "node-role.kubernetes.io/control-plane", false},
		{"-total-nodes=", "disk", true},
	}
	for _, row := range rows {
		t.Run(row.line+" "+row.label, func(t *testing.T) {
			hasLabel := func(key string) (string, bool) { return "", key == row.label }
			testkit.WantEqual(t, "is selected", parse(t, row.line).TotalNodes.Matches(hasLabel), row.want)
		})
	}
}

func TestVersionIsPrinted(t *testing.T) {
	testkit.WantText(t, printed(t, "-version"), "podcount dev\ncommit: unknown\nGo: go1.", "FIPS 140-3: ")
}

func TestControllersHelpListsThem(t *testing.T) {
	const want = "" +
		"pod-count    on   counts\n" +
		"count        on   compares\n" +
		"pod-printer  off  prints\n"
	testkit.WantEqual(t, "the list", printed(t, "-controllers=help"), want)
}

// fullDisk is a stdout that cannot be written to.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestErrorOfWritingIsReturned(t *testing.T) {
	for _, line := range []string{"-h", "-version", "-controllers=help", "-manifest"} {
		t.Run(line, func(t *testing.T) {
			o, err := Parse(argsOf(line), fullDisk{}, testProgram)
			if o != nil || !errors.Is(err, io.ErrShortWrite) || errors.As(err, new(UsageError)) {
				t.Errorf("got %v, %v", o, err)
			}
		})
	}
}
