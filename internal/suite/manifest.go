package suite

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/options"
	"podcount/internal/testkit"
	"podcount/internal/yaml"
)

// Manifests shows what -manifest prints.
var Manifests = Topic{
	{"the deploy folder has what -manifest prints", deployFolder},
	{"a manifest that cannot work is not printed", impossibleManifests},
	{"namespaces that look like numbers stay names", numericNames},
	{"the manifest follows the flags throughout", manifestFollowsFlags},
	{"the alerts follow the flags", alertsFollowFlags},
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

func impossibleManifests(t *testing.T, podcount Program) {
	for args, want := range map[string]string{
		"-manifest=all":                              `there is no "all"; there are podcount, policy, network-policy, count-crd, count-sample, alerts`,
		"-manifest=podcount,all":                     `there is no "all"`,
		"-manifest -once -listen :8080":              "-manifest -once prints a CronJob, which ends before",
		"-manifest -once -leader-elect":              "leave out -leader-elect",
		"-manifest -once -prune":                     "-manifest prints a Deployment",
		"-manifest=alerts -listen ":                  "-manifest=alerts: without -listen",
		"-manifest=alerts -once":                     "-manifest=alerts has nothing to say about a CronJob: leave out -once",
		"-manifest=podcount,alerts -once":            "-manifest=alerts has nothing to say about a CronJob: leave out -once",
		"-manifest=alerts -once -listen :8080":       "-manifest=alerts has nothing to say about a CronJob: leave out -once",
		"-manifest -prune":                           "-manifest prints a Deployment",
		"-manifest -kubeconfig x":                    "-manifest prints a Deployment",
		"-manifest -context x":                       "-manifest prints a Deployment",
		"-manifest -listen 127.0.0.1:8080":           "-manifest: -listen 127.0.0.1:8080 must be :PORT",
		"-manifest -listen :http":                    "-manifest: -listen :http must be :PORT",
		"-manifest -listen :0":                       "-manifest: -listen :0 must be :PORT",
		"-manifest -listen :65536":                   "-listen: address 65536: invalid port",
		"-manifest -leader-elect-resource-name view": "begin with podcount, as in podcount-view",
		"-manifest -leader-elect-resource-name podcount" + strings.Repeat("a", 56): "-leader-elect-resource-name podcountaaa",
		"-manifest -manifest-namespace ":                                           `-manifest-namespace ""`,
		"-manifest -manifest-namespace a.b":                                        `-manifest-namespace "a.b"`,
		"-manifest -image Podcount":                                                `-image "Podcount"`,
		"-manifest -image podcount:\n":                                             `-image "podcount:\n"`,
		"-manifest -image ":                                                        `-image ""`,
		"-manifest -pod-selector a>b":                                              `-pod-selector: requirement 1 "a>b"`,
		"-manifest -field-selector spec.nonsense=1":                                `-field-selector: field label not supported: "spec.nonsense"`,
	} {
		out := &testkit.Buffer{}
		err := podcount(t.Context(), strings.Split(args, " "), NoEnv, out, io.Discard, nil)
		if !errors.As(err, new(options.UsageError)) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
		if out.String() != "" {
			t.Errorf("%q: printed %s", args, out)
		}
	}
}

func numericNames(t *testing.T, podcount Program) {
	text := podcount.manifest(t, "-manifest", "-manifest-namespace", "123", "-namespace", "null", "-leader-elect-resource-namespace", "true", "-listen", ":08080")
	namespaces := map[string]bool{}
	for doc := range strings.SplitSeq(text, "\n---\n") {
		tree, err := yaml.Parse(doc)
		if err != nil {
			t.Fatal(err)
		}
		if ns, has := fakekube.MetaOf(tree.(fakekube.Object))["namespace"]; has {
			name, isText := ns.(string)
			if !isText {
				t.Errorf("a namespace is read as %v", ns)
			}
			namespaces[name] = true
		}
	}
	if got := slices.Sorted(maps.Keys(namespaces)); !slices.Equal(got, []string{"123", "default", "null", "true"}) {
		t.Errorf("the namespaces are %q", got)
	}
	testkit.WantText(t, text, "containerPort: 8080}")
	testkit.WantText(t, text, `- "-listen=:8080"`)
}

func manifestFollowsFlags(t *testing.T, podcount Program) {
	got := podcount.manifest(t, "-manifest", "-image", "r.example/podcount:v2", "-manifest-namespace", "ops", "-leader-elect-resource-name", "podcount-a", "-namespace", "a",
		"-total-label", "x.y/all", "-node-label", "x.y/own", "-total-nodes", "k in (a,b)", "-listen", ":9090", "-controllers", "pod-count")
	for _, want := range []string{
		"image: r.example/podcount:v2\n", "kind: ServiceAccount\nmetadata: {name: podcount-a, namespace: ops}", "subjects: [{kind: ServiceAccount, name: podcount-a, namespace: ops}]",
		"kind: RoleBinding\nmetadata: {name: podcount-a-pods, namespace: a}", "kind: Lease\nmetadata: {name: podcount-a, namespace: ops}", "resourceNames: [podcount-a]",
		`request.userInfo.username == "system:serviceaccount:ops:podcount-a"`, `'["x.y/all","x.y/own"]'`, "containerPort: 9090", `prometheus.io/port: "9090"`,
		`- "-total-nodes=k in (a,b)"`, `- "-node-label=x.y/own"`, `- "-listen=:9090"`, `- "-leader-elect=true"`, `- "-pod-events=off"`, "serviceAccountName: podcount-a\n", "policyName: podcount-a\n",
	} {
		testkit.WantText(t, got, want)
	}
	for _, absent := range []string{"kube-system", "name: podcount,", "name: podcount\n", "[podcount]", `:podcount"`, "hopegi", "counts", "8080", "-image", "manifest-namespace", "-manifest"} {
		_, docs, _ := strings.Cut(got, "apiVersion") // behind the comment
		if strings.Contains(docs, absent) && absent != "-manifest" || strings.Contains(docs, `"`+absent) {
			t.Errorf("%q is left in\n%s", absent, docs)
		}
	}

	// What is given stays as it is, whatever it is called.
	got = podcount.manifest(t, "-manifest=", "-manifest-namespace", "ops", "-field-selector", "metadata.namespace!=kube-system", "-namespace", "kube-system", "-qps", "8080",
		"-listen", ":9090", "-leader-elect-resource-namespace", "kube-system", "-total-label", "kube-system.example/podcount")
	for _, want := range []string{`- "-field-selector=metadata.namespace!=kube-system"`, `- "-namespace=kube-system"`, "name: podcount-pods, namespace: kube-system}", `- "-qps=8080"`,
		`- "-total-label=kube-system.example/podcount"`, `'["kube-system.example/podcount"]'`, `- "-leader-elect-resource-namespace=kube-system"`, "kind: Lease\nmetadata: {name: podcount, namespace: kube-system}"} {
		testkit.WantText(t, got, want)
	}

	got = podcount.manifest(t, "-manifest=podcount", "-leader-elect=false", "-listen", "", "-leader-elect-resource-namespace", "leases")
	for _, absent := range []string{"Probe", "containerPort", "prometheus.io", "replicas: 2", "kind: Lease", "[leases]"} {
		if _, docs, _ := strings.Cut(got, "apiVersion"); strings.Contains(docs, absent) {
			t.Errorf("%q is left in\n%s", absent, docs)
		}
	}
	testkit.WantText(t, got, "replicas: 1")
	got = podcount.manifest(t, "-manifest=podcount", "-leader-elect-resource-namespace", "leases")
	testkit.WantText(t, got, "kind: Role\nmetadata: {name: podcount-lease, namespace: leases}")
	testkit.WantText(t, got, "kind: RoleBinding\nmetadata: {name: podcount-lease, namespace: leases}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: podcount-lease}\nsubjects: [{kind: ServiceAccount, name: podcount, namespace: kube-system}]")
	testkit.WantText(t, got, "kind: Lease\nmetadata: {name: podcount, namespace: leases}")
}

// The limits of deploy/alerts.yaml are those of the default flags. That it looks back a day, to know a podcount, is none.
func alertsFollowFlags(t *testing.T, podcount Program) {
	everybodys, err := os.ReadFile("deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	limits := regexp.MustCompile(`alert: \w+|for: \w+|[<>=]+ \d+|\[\d+[mh]\]`)
	got := limits.FindAllString(podcount.manifest(t, "-manifest=alerts"), -1)
	want := limits.FindAllString(string(everybodys), -1)
	if !slices.Equal(got, want) {
		t.Errorf("by the default flags the limits are %q, in deploy/alerts.yaml %q", got, want)
	}

	text := podcount.manifest(t, "-manifest=alerts", "-qps", "0.1", "-workers", "2", "-manifest-namespace", "ops",
		"-leader-elect-resource-name", "podcount-a", "-leader-elect=false")
	testkit.WantText(t, text, "metadata:\n  name: podcount-a\n  namespace: ops\n")
	testkit.WantText(t, text, `processor_seconds{namespace="ops",pod=~"podcount-a-[a-z0-9]+-[a-z0-9]+"}[10m]) > 150`)
	if strings.Contains(text, "leader_election") {
		t.Errorf("without an election there is an alert about it:\n%s", text)
	}
}

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
