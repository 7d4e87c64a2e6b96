package options

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/deploy"
	"podcount/internal/api/kube"
	"podcount/internal/api/yaml"
	"podcount/lab/testkit"
)

func TestManifestThatCannotWorkIsWrongUsage(t *testing.T) {
	const unknownPart = `unknown part "all"; ` +
		"the parts are podcount, policy, network-policy, count-crd, count-sample, alerts, pod-monitor"
	tooLong := "podcount" + strings.Repeat("a", 39)
	rows := []struct{ line, want string }{
		{"-manifest=all", unknownPart},
		{"-manifest=podcount,all", unknownPart},
		{"-manifest -once -listen=:8080", "-manifest -once prints a CronJob, which ends too soon"},
		{"-manifest -once -page=127.0.0.1:8081", "-manifest -once prints a CronJob, which ends too soon"},
		{"-manifest -page=:8081", "-manifest mounts no token for the page: leave out -page-token-file, use -page 127.0.0.1:"},
		{"-manifest -page-token-file=token", "-manifest mounts no token for the page"},
		{"-manifest -listen=:8081", "-page 127.0.0.1:8081 and -listen :8081 have the same port"},
		{"-manifest -once -leader-elect", "leave out -leader-elect"},
		{"-manifest -once -prune", "-manifest prints a Deployment"},
		{"-manifest=alerts -listen=", "-manifest=alerts: without -listen"},
		{"-manifest=podcount,alerts -once", "-manifest=alerts: without -listen"},
		{"-manifest=pod-monitor -listen=", "-manifest=pod-monitor: without -listen"},
		{"-manifest -prune", "-manifest prints a Deployment"},
		{"-manifest -kubeconfig=x", "-manifest prints a Deployment"},
		{"-manifest -context=x", "-manifest prints a Deployment"},
		{"-manifest -listen=127.0.0.1:8080", "-manifest: -listen 127.0.0.1:8080 must be :PORT"},
		{"-manifest -listen=:http", "-manifest: -listen :http must be :PORT"},
		{"-manifest -listen=:0", "-manifest: -listen :0 must be :PORT"},
		{"-manifest -listen=:65536", "-listen: address 65536: invalid port"},
		{"-manifest -leader-elect-resource-name=view", "begin with podcount, as in podcount-view"},
		{"-manifest -leader-elect-resource-name=" + tooLong, "has 47 characters: with -manifest, it may have 46"},
		{"-manifest -leader-elect-resource-name=podcount-pods", "must not end in -pods"},
		{"-manifest -manifest-namespace=", `-manifest-namespace "" cannot be`},
		{"-manifest -manifest-namespace=a.b", `-manifest-namespace "a.b"`},
		{"-manifest -image=Podcount", `-image "Podcount"`},
		{"-manifest -image=", `-image ""`},
		{"-manifest -image-pull-secrets=a,B", `invalid value "a,B" for flag -image-pull-secrets: name 2 "B": "B" must be`},
		{"-manifest -manifest-node-selector=a", `for flag -manifest-node-selector: label 1 "a": write KEY=VALUE`},
		{"-manifest -manifest-limits=memory=128", `for flag -manifest-limits: resource 1 "memory=128": write bytes with Ki`},
		{"-manifest -pod-selector=a>b", `-pod-selector: requirement 1 "a>b"`},
	}
	for _, row := range rows {
		t.Run(row.line, func(t *testing.T) { wantUsageError(t, row.line, row.want) })
	}
}

// Somebody who has forgotten -manifest wants to print something, and not to write to the cluster.
func TestFlagsOfTheManifestNeedOne(t *testing.T) {
	for _, line := range []string{
		"-manifest-namespace=ops",
		"-image=a",
		"-image-pull-secrets=a",
		"-manifest-node-selector=a=b",
		"-manifest-requests=cpu=2",
		"-manifest-limits=cpu=1",
	} {
		name, _, _ := strings.Cut(line, "=")
		want := name + " only changes what -manifest prints: add -manifest, or leave it out"
		t.Run(line, func(t *testing.T) { wantUsageError(t, line, want) })
	}
}

func TestFlagsOfTheManifestAreNoFlagsOfPodcount(t *testing.T) {
	for _, f := range parse(t, "").Flags {
		if strings.HasPrefix(f.Name, "manifest") || strings.HasPrefix(f.Name, "image") || f.Name == "version" {
			t.Errorf("-%s is among the flags that matter while podcount runs", f.Name)
		}
	}
}

func TestPageOfTheManifestMayHaveANamedPort(t *testing.T) {
	testkit.WantText(t, printed(t, "-manifest -page=127.0.0.1:http"), `"-page=127.0.0.1:http"`)
}

// documentsOf returns a manifest's YAML without the comment before it, which names the defaults.
func documentsOf(manifest string) string {
	return manifest[strings.Index(manifest, "apiVersion"):]
}

func TestManifestFollowsTheFlags(t *testing.T) {
	rows := []struct {
		name, line   string
		want, absent []string
	}{
		{
			name: "everything has another name",
			line: "-manifest -image=r.example/podcount:v2 -manifest-namespace=ops -namespace=a " +
				"-leader-elect-resource-name=podcount-a -total-label=x.y/all -node-label=x.y/own " +
				"-total-nodes=k in (a,b) -listen=:9090 -controllers=pod-count",
			want: []string{
				"image: r.example/podcount:v2\n",
				"kind: ServiceAccount\nmetadata: {name: podcount-a, namespace: ops}",
				"subjects: [{kind: ServiceAccount, name: podcount-a, namespace: ops}]",
				"kind: RoleBinding\nmetadata: {name: podcount-a-pods, namespace: a}",
				"kind: Lease\nmetadata: {name: podcount-a, namespace: ops}",
				"resourceNames: [podcount-a]",
				`request.userInfo.username == "system:serviceaccount:ops:podcount-a"`,
				`'["x.y/all","x.y/own"]'`,
				"containerPort: 9090",
				`prometheus.io/port: "9090"`,
				`- "-total-nodes=k in (a,b)"`,
				`- "-node-label=x.y/own"`,
				`- "-listen=:9090"`,
				`- "-leader-elect=true"`,
				`- "-page=127.0.0.1:8081"`,
				`- "-pod-events=off"`,
				"serviceAccountName: podcount-a\n",
				"policyName: podcount-a\n",
			},
			absent: []string{
				"kube-system", "name: podcount,", "name: podcount\n", "[podcount]", `:podcount"`, "hopegi", "counts", "8080",
				"-image", "manifest-namespace", `"-manifest`,
			},
		},
		{
			name: "the pods are as the site wants them",
			line: "-manifest=podcount -image-pull-secrets=registry,mirror -manifest-node-selector=a/b=c,d= " +
				"-manifest-requests=cpu=20m -manifest-limits=memory=512Mi",
			want: []string{
				"      imagePullSecrets: [{name: registry}, {name: mirror}]\n",
				"      nodeSelector: {a/b: c, d: \"\"}\n",
				"          requests: {cpu: 20m}\n          limits: {memory: 512Mi}\n",
				"env: [{name: GOMEMLIMIT, value: 460MiB}]\n",
			},
			absent: []string{"-image", "-manifest", "128Mi"},
		},
		{
			name: "given values that look like defaults stay",
			line: "-manifest= -manifest-namespace=ops -field-selector=metadata.namespace!=kube-system " +
				"-namespace=kube-system -qps=8080 -listen=:9090 -leader-elect-resource-namespace=kube-system " +
				"-total-label=kube-system.example/podcount",
			want: []string{
				`- "-field-selector=metadata.namespace!=kube-system"`,
				`- "-namespace=kube-system"`,
				"name: podcount-pods, namespace: kube-system}",
				`- "-qps=8080"`,
				`- "-total-label=kube-system.example/podcount"`,
				`'["kube-system.example/podcount"]'`,
				`- "-leader-elect-resource-namespace=kube-system"`,
				"kind: Lease\nmetadata: {name: podcount, namespace: kube-system}",
			},
		},
		{
			name:   "no election, no listening",
			line:   "-manifest=podcount -leader-elect=false -listen= -page= -leader-elect-resource-namespace=leases",
			want:   []string{"replicas: 1"},
			absent: []string{"Probe", "containerPort", "prometheus.io", "replicas: 2", "kind: Lease", "[leases]", "127.0.0.1"},
		},
		{
			name: "the Lease in another namespace",
			line: "-manifest=podcount -leader-elect-resource-namespace=leases",
			want: []string{
				"kind: Role\nmetadata: {name: podcount-lease, namespace: leases}",
				"kind: RoleBinding\nmetadata: {name: podcount-lease, namespace: leases}\n" +
					"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: podcount-lease}\n" +
					"subjects: [{kind: ServiceAccount, name: podcount, namespace: kube-system}]",
				"kind: Lease\nmetadata: {name: podcount, namespace: leases}",
			},
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := documentsOf(printed(t, row.line))
			testkit.WantText(t, got, row.want...)
			for _, text := range row.absent {
				if strings.Contains(got, text) {
					t.Errorf("%q is left in:\n%s", text, got)
				}
			}
		})
	}
}

func TestNamespacesThatLookLikeNumbersStayNames(t *testing.T) {
	text := printed(t, "-manifest -manifest-namespace=123 -namespace=null -leader-elect-resource-namespace=true "+
		"-listen=:8080")
	var namespaces []any
	for document := range strings.SplitSeq(text, "\n---\n") {
		tree, err := yaml.Parse(document)
		if err != nil {
			t.Fatal(err)
		}
		metadata := tree.(map[string]any)["metadata"].(map[string]any)
		namespace, hasOne := metadata["namespace"]
		if hasOne && !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	testkit.WantEqual(t, "the namespaces", namespaces, []any{"123", "null", "default", "true"})
}

func TestAlertsOfTheManifestAreForItsFlags(t *testing.T) {
	standard := testkit.ReadFile(t, "../../../deploy/alerts.yaml")
	limits := regexp.MustCompile(`alert: \w+|for: \w+|[<>=]+ \d+|\[\d+[mh]\]`)
	got := limits.FindAllString(printed(t, "-manifest=alerts"), -1)
	want := limits.FindAllString(standard, -1)
	testkit.WantEqual(t, "the limits with the default flags, beside those of deploy/alerts.yaml", got, want)

	text := printed(t, "-manifest=alerts -qps=0.1 -workers=2 -manifest-namespace=ops "+
		"-leader-elect-resource-name=podcount-a -leader-elect=false")
	testkit.WantText(t, text, "metadata:\n  name: podcount-a\n  namespace: ops\n")
	testkit.WantText(t, text, `processor_seconds{namespace="ops",pod=~"podcount-a-[a-z0-9]+-[a-z0-9]+"}[10m]) > 150`)
	if strings.Contains(text, "leader_election") {
		t.Errorf("without an election there is an alert about it:\n%s", text)
	}
}

func TestStuckAfterIsATurnAndTwoRequests(t *testing.T) {
	rows := []struct {
		name string
		o    Options
		want time.Duration
	}{
		{"by default", Options{Workers: 4, QPS: 20}, 200 * time.Millisecond},
		{"at a low rate", Options{Workers: 4, QPS: 0.5}, 8 * time.Second},
		{"at a rate that would overflow", Options{Workers: 4, QPS: 1e-300}, 1e6 * time.Second},
	}
	for _, row := range rows {
		testkit.WantEqual(t, "StuckAfter "+row.name, row.o.StuckAfter(), row.want+2*kube.RequestTimeout)
	}
}

func TestManifestHasTheRightsOfControllersThatAreOn(t *testing.T) {
	program := testProgram
	program.Controllers = append(slices.Clip(program.Controllers), Controller{
		Name:   "crowded",
		Rights: []deploy.Right{{APIGroup: "apps", Resource: "deployments", Verbs: []string{"list"}}},
	})
	rows := []struct {
		controllers string
		want        bool
	}{
		{"*", true},
		{"crowded", true},
		{"*,-crowded", false},
	}
	for _, row := range rows {
		t.Run(row.controllers, func(t *testing.T) {
			var stdout strings.Builder
			_, err := Parse([]string{"-manifest", "-controllers", row.controllers}, &stdout, program)
			if !errors.Is(err, ErrPrinted) {
				t.Fatal(err)
			}
			hasRight := strings.Contains(stdout.String(), "{apiGroups: [apps], resources: [deployments], verbs: [list]}")
			testkit.WantEqual(t, "has the right", hasRight, row.want)
		})
	}
}
