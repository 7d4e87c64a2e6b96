package fakekube

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"podcount/lab/testkit"
)

// kubectlOf returns a function that runs kubectl with these arguments for a fake.
func kubectlOf(t *testing.T, f *Server) (run func(args ...string) string) {
	t.Helper()
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed")
	}
	server, ca := listen(t, f)
	file := filepath.Join(t.TempDir(), "config")
	os.WriteFile(file, []byte(Kubeconfig(server, ca, "token: t")), 0o600)
	cache := filepath.Join(t.TempDir(), "cache")
	common := []string{"--kubeconfig", file, "--cache-dir", cache, "--request-timeout", "20s"}
	return func(args ...string) string {
		t.Helper()
		out, err := exec.Command(kubectl, slices.Concat(common, args)...).CombinedOutput()
		if err != nil {
			t.Errorf("kubectl %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
}

func TestKubectlWorksWithAddedKinds(t *testing.T) {
	f := newWithAddedKinds()
	run := kubectlOf(t, f)
	created := filepath.Join(t.TempDir(), "deployment.json")
	os.WriteFile(created, []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},`+
		`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},`+
		`"spec":{"containers":[{"name":"nginx","image":"one"},{"name":"other","image":"one"}]}}}}`), 0o600)
	run("create", "-f", created)
	testkit.WantText(t, run("get", "deployments"), "web")
	run("set", "image", "deployment/web", "nginx=two")
	testkit.WantText(t, run("get", "deployment", "web", "-o", "jsonpath={..image}"), "two one")
	run("label", "deployment", "web", "a=b")
	run("annotate", "deployment", "web", "c=d")
	testkit.WantText(t, run("get", "deployment", "web", "-o", "yaml"), "c: d")

	applied := filepath.Join(t.TempDir(), "service.json")
	for _, ports := range []string{`{"port":80},{"port":81}`, `{"port":81},{"port":82}`} {
		service := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[` + ports + `]}}`
		os.WriteFile(applied, []byte(service), 0o600)
		testkit.WantText(t, run("apply", "-f", applied), "service/web")
	}
	testkit.WantText(t, run("get", "svc", "web", "-o", "jsonpath={.spec.ports[*].port}"), "81 82")
	testkit.WantText(t, run("get", "all"), "service/web")
	run("delete", "-f", applied)
	testkit.WantNumber(t, "services", len(f.All("services")), 0)
}

// The tests of lab/playground show what else kubectl does with a fake.
func TestKubectlReadsEventsOfBothGroups(t *testing.T) {
	f := New()
	run := kubectlOf(t, f)
	f.PutJSON("events", `{"metadata":{"name":"cp.1","namespace":"default"},"reason":"PodCountChanged",
		"message":"from 6 to 7","involvedObject":{"kind":"Node","name":"cp"},"type":"Normal"}`)
	for _, resource := range []string{"events", "events.events.k8s.io"} {
		testkit.WantText(t, run("get", resource), "node/cp")
	}
	testkit.WantText(t, run("get", "events.events.k8s.io", "-o", "jsonpath={..note}"), "from 6 to 7")
	testkit.WantText(t, run("explain", "events.note", "--api-version", "events.k8s.io/v1"), "<string>")
}
