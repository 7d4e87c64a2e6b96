package suite

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Manifests shows what -manifest prints.
var Manifests = Topic{
	{"the deploy folder has what -manifest prints", deployFolder},
	{"-manifest -once prints a CronJob that ends", cronJob},
}

func deployFolder(t *testing.T, podcount Program) {
	read := func(name string) string { return testkit.ReadFile(t, "deploy/"+name+".yaml") }
	for _, row := range []struct{ arg, want string }{
		{"-manifest", read("podcount") + "---\n" + read("policy")},
		{"-manifest=podcount", read("podcount")},
		{"-manifest=count-crd", read("count-crd")},
		{"-manifest=network-policy,count-sample", read("network-policy") + "---\n" + read("count-sample")},
	} {
		testkit.WantEqual(t, "what podcount prints with "+row.arg, podcount.manifest(t, row.arg), row.want)
	}
}

func cronJob(t *testing.T, podcount Program) {
	text := podcount.manifest(t,
		"-manifest", "-once",
		"-leader-elect-resource-name", "podcount-a",
		"-manifest-namespace", "ops",
		"-image", "r.example/p:v1")
	testkit.WantText(t, text,
		"kind: CronJob\nmetadata:\n  name: podcount-a\n  namespace: ops\n",
		"image: r.example/p:v1\n",
		"kind: ValidatingAdmissionPolicy\n")
	for _, unwanted := range []string{
		"Deployment", "PodDisruptionBudget", "replica", "affinity",
		"Lease", "leases",
		"Probe", "containerPort", "prometheus.io",
	} {
		if strings.Contains(text, unwanted) {
			t.Errorf("a CronJob needs no %q:\n%s", unwanted, text)
		}
	}
	args := argsOf(t, text)
	testkit.WantEqual(t, "podcount's arguments", args, []string{
		"-leader-elect-resource-name=podcount-a",
		"-once=true",
		"-pod-events=off",
	})
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		fixture.AddPods(f, 3)
		p := podcount.Start(t, f, args...)
		testkit.Pass(time.Minute)
		WantLabel(t, f, "cp", TotalLabel, "3")
		select {
		case <-p.Done:
		default:
			t.Error("podcount has not ended")
		}
	})
}

// manifest returns what podcount prints with these flags, which must contain -manifest.
func (podcount Program) manifest(t *testing.T, args ...string) string {
	t.Helper()
	out := &testkit.Buffer{}
	err := podcount(t.Context(), args, NoEnv, out, io.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// argsOf returns the flags that the Deployment or CronJob of a manifest gives podcount.
func argsOf(t *testing.T, manifest string) (args []string) {
	t.Helper()
	_, rest, _ := strings.Cut(manifest, " args:\n")
	for line := range strings.Lines(rest) {
		quoted, isArg := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !isArg {
			break
		}
		var arg string
		err := json.Unmarshal([]byte(quoted), &arg)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, arg)
	}
	return args
}
