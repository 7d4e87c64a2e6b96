package suite

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// Manifests shows what -manifest prints.
var Manifests = Topic{
	{"the deploy folder has what -manifest prints", deployFolder},
	{"-manifest -once prints a CronJob that ends", cronJob},
}

func deployFolder(t *testing.T, podcount Program) {
	read := func(name string) string {
		text, err := os.ReadFile("deploy/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for args, want := range map[string]string{
		"-manifest":                             read("podcount") + "---\n" + read("policy"),
		"-manifest=podcount":                    read("podcount"),
		"-manifest=count-crd":                   read("count-crd"),
		"-manifest=network-policy,count-sample": read("network-policy") + "---\n" + read("count-sample"),
	} {
		if got := podcount.manifest(t, args); got != want {
			t.Errorf("%s:\n%s", args, got)
		}
	}
}

// The limits of deploy/alerts.yaml are those of the default flags. That it looks back a day, to know a podcount, is none.
func cronJob(t *testing.T, podcount Program) {
	text := podcount.manifest(t, "-manifest", "-once", "-leader-elect-resource-name", "podcount-a", "-manifest-namespace", "ops", "-image", "r.example/p:v1")
	for _, absent := range []string{"Deployment", "PodDisruptionBudget", "Lease", "leases", "Probe", "containerPort", "prometheus.io", "replica", "affinity"} {
		if strings.Contains(text, absent) {
			t.Errorf("%q is in\n%s", absent, text)
		}
	}
	testkit.WantText(t, text, "kind: CronJob\nmetadata:\n  name: podcount-a\n  namespace: ops\n")
	testkit.WantText(t, text, "image: r.example/p:v1\n")
	testkit.WantText(t, text, "kind: ValidatingAdmissionPolicy\n")
	args := argsOf(t, text)
	if want := []string{"-leader-elect-resource-name=podcount-a", "-once=true", "-pod-events=off"}; !slices.Equal(args, want) {
		t.Errorf("its arguments are %q, want %q", args, want)
	}
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.AddPods(3)
		p := podcount.Start(t, f, args...)
		testkit.Pass(time.Minute)
		WantLabel(t, f, "cp", TotalLabel, "3")
		select {
		case <-p.Done:
		default:
			t.Error("it goes on")
		}
	})
}

func (podcount Program) manifest(t *testing.T, args ...string) string {
	t.Helper()
	out := &testkit.Buffer{}
	if err := podcount(t.Context(), args, NoEnv, out, io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// argsOf are the arguments that the Deployment or CronJob of a manifest gives to podcount.
func argsOf(t *testing.T, manifest string) (args []string) {
	_, rest, _ := strings.Cut(manifest, " args:\n")
	for line := range strings.Lines(rest) {
		quoted, isArg := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !isArg {
			break
		}
		var arg string
		if err := json.Unmarshal([]byte(quoted), &arg); err != nil {
			t.Fatal(err)
		}
		args = append(args, arg)
	}
	return args
}
