package fakekube

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// kubectlOf returns functions that make a command of kubectl with these arguments for a fake, and that run one.
func kubectlOf(t *testing.T, f *Server) (command func(args ...string) *exec.Cmd, run func(args ...string) string) {
	t.Helper()
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed")
	}
	server, ca := listen(t, f)
	file := filepath.Join(t.TempDir(), "config")
	os.WriteFile(file, []byte(Kubeconfig(server, ca, "token: t")), 0o600)
	command = func(args ...string) *exec.Cmd {
		common := []string{"--kubeconfig", file, "--cache-dir", filepath.Join(t.TempDir(), "cache")}
		return exec.Command(kubectl, append(common, args...)...)
	}
	run = func(args ...string) string {
		t.Helper()
		cmd := command(append([]string{"--request-timeout", "20s"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("kubectl %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	return command, run
}

func TestKubectlWorksWithAddedKinds(t *testing.T) {
	f := newWithAddedKinds()
	_, run := kubectlOf(t, f)
	created := filepath.Join(t.TempDir(), "deployment.json")
	os.WriteFile(created, []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},`+
		`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},`+
		`"spec":{"containers":[{"name":"nginx","image":"one"},{"name":"other","image":"one"}]}}}}`), 0o600)
	run("create", "-f", created)
	wantText(t, run("get", "deployments"), "web")
	run("set", "image", "deployment/web", "nginx=two")
	wantText(t, run("get", "deployment", "web", "-o", "jsonpath={..image}"), "two one")
	run("label", "deployment", "web", "a=b")
	run("annotate", "deployment", "web", "c=d")
	wantText(t, run("get", "deployment", "web", "-o", "yaml"), "c: d")

	applied := filepath.Join(t.TempDir(), "service.json")
	for _, ports := range []string{`{"port":80},{"port":81}`, `{"port":81},{"port":82}`} {
		service := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[` + ports + `]}}`
		os.WriteFile(applied, []byte(service), 0o600)
		wantText(t, run("apply", "-f", applied), "service/web")
	}
	wantText(t, run("get", "svc", "web", "-o", "jsonpath={.spec.ports[*].port}"), "81 82")
	wantText(t, run("get", "all"), "service/web")
	run("delete", "-f", applied)
	wantNumber(t, "services", len(f.All("services")), 0)
}

func TestKubectlWorksAgainstTheFake(t *testing.T) {
	f := New()
	f.Allow("t")
	f.AddNode("cp", controlPlane, podCountLabel+"=7")
	f.AddPod("kube-system", "dns", "cp")
	command, run := kubectlOf(t, f)
	f.Put("events", Object{
		"metadata": Object{"name": "cp.1", "namespace": "default"},
		"involvedObject": Object{
			"kind": "Node",
			"name": "cp",
			"uid":  TextIn(MetaOf(f.Get("nodes", Key{"", "cp"})), "uid"),
		},
		"reason":         "PodCountChanged",
		"message":        "pod count changed from 6 to 7",
		"type":           "Normal",
		"count":          1,
		"firstTimestamp": "2026-01-02T03:04:05Z",
		"lastTimestamp":  "2026-01-02T03:04:05Z",
		"source":         Object{"component": "podcount"},
	})
	wantText(t, run("get", "pods", "-A"), "dns    0/1     Running")
	wantText(t, run("get", "nodes", "--show-labels"), "hopegi/pod-count=7")
	wantText(t, run("get", "events"), "node/cp")
	wantText(t, run("get", "events.events.k8s.io"), "node/cp")
	wantText(t, run("get", "events.events.k8s.io", "-o", "jsonpath={..note}"), "pod count changed from 6 to 7")
	wantText(t, run("events"), "PodCountChanged   Node/cp")
	wantText(t, run("explain", "events.note", "--api-version", "events.k8s.io/v1"), "<string>")
	wantText(t, run("describe", "node", "cp"), "pod count changed from 6 to 7")
	run("run", "mine", "--image=nginx")
	if f.Get("pods", Key{"default", "mine"}) == nil {
		t.Error("kubectl run made no pod")
	}
	wantText(t, run("describe", "pod", "mine"), "nginx")
	run("label", "node", "cp", "zone=a")
	wantLabel(t, f, "cp", "zone", "a")
	run("delete", "pod", "mine")
	if f.Get("pods", Key{"default", "mine"}) != nil {
		t.Error("kubectl delete left the pod")
	}

	wantText(t, run("api-resources"), "customresourcedefinitions")
	wantText(t, run("explain", "pod.spec.containers.env"), "valueFrom")
	wantText(t, run("auth", "can-i", "list", "pods"), "yes")
	wantText(t, run("auth", "whoami"), "system:masters")
	applied := filepath.Join(t.TempDir(), "pod.json")
	for _, image := range []string{"one", "two"} {
		pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"applied"},` +
			`"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}`
		os.WriteFile(applied, []byte(pod), 0o600)
		wantText(t, run("apply", "-f", applied), "pod/applied")
		wantText(t, run("get", "pod", "applied", "-o", "yaml"), "image: "+image)
	}

	watches := Requests{Verb: "watch", Resource: "pods"}
	before := len(f.Received(watches))
	watch := command("get", "pods", "-w", "-o", "name")
	stdout, _ := watch.StdoutPipe()
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	shown := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() && lines.Text() != "pod/watched" {
		}
		shown <- lines.Text() == "pod/watched"
	}()
	f.Await(t, "kubectl's watch", func() bool { return len(f.Received(watches)) > before })
	f.AddPod("default", "watched", "")
	select {
	case ok := <-shown:
		if !ok {
			t.Error("kubectl get -w ended without showing the new pod")
		}
	case <-time.After(20 * time.Second):
		t.Error("kubectl get -w did not show the new pod")
	}
	watch.Process.Kill()
	watch.Wait()
}
