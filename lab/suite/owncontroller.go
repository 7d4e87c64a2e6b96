package suite

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"podcount/internal/api/yaml"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// documentedController shows that the controller in docs/build/controller.md and the one in testdata/controller work,
// that their tests pass, and with them the three tests of podcount that a new controller could break. It builds a
// podcount of its own.
func documentedController(t *testing.T, _ Program) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "podcount")
	overlay := overlayWith(t, dir, documentedFiles(t))
	mustRun(t, "go", "build", overlay, "-o", binary, ".")
	t.Run("it is listed and has its flag in the help", func(t *testing.T) {
		testkit.WantText(t, mustRun(t, binary, "-controllers=help"), "crowded      on   warns of namespaces")
		testkit.WantText(t, mustRun(t, binary, "-h"), "-crowded-limit N")
	})
	t.Run("it works with the rights in the manifest", func(t *testing.T) { documentedControllersWork(t, binary) })
	t.Run("its test passes, and the tests that it could break", func(t *testing.T) {
		tests := []string{"TestControllersHelp", "TestManifests", "TestUsage", "TestCrowdedNamespaceIsLogged",
			"TestWidgetShowsItsPods"}
		pattern := "^(" + strings.Join(tests, "|") + ")$"
		passed := mustRun(t, "go", "test", overlay, "-count=1", "-v", "-run", pattern, ".")
		for _, test := range tests {
			testkit.WantText(t, passed, "--- PASS: "+test+" ")
		}
	})
}

// overlayWith writes files to dir, and returns the flag with which the go command finds them beside main.go.
func overlayWith(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for name := range files {
		replace[filepath.Join(here, name)] = filepath.Join(dir, name)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	testkit.WriteFiles(t, dir, files)
	testkit.WriteFiles(t, dir, map[string]string{"overlay.json": string(overlay)})
	return "-overlay=" + filepath.Join(dir, "overlay.json")
}

// documentedFiles returns the source files of both controllers: those that docs/build/controller.md shows, and those to
// which it leads.
func documentedFiles(t *testing.T) map[string]string {
	t.Helper()
	page := testkit.ReadFile(t, "docs/build/controller.md")
	_, afterFence, _ := strings.Cut(page, "```go\n")
	controller, _, isClosed := strings.Cut(afterFence, "```")
	if !isClosed {
		t.Fatal("docs/build/controller.md shows no block of Go")
	}
	testkit.WantBetween(t, "lines of the controller in docs/build/controller.md", strings.Count(controller, "\n"), 20, 50)
	files := map[string]string{"crowded.go": controller}
	for _, name := range []string{"crowded_test.go", "widgets.go", "widgets_test.go"} {
		files[name] = testkit.ReadFile(t, filepath.Join("testdata/controller", name))
	}
	return files
}

// mustRun runs a command and returns its stdout. It fails the test if the command fails.
func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stdout, stderr testkit.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// documentedControllersWork runs podcount with both controllers as the manifest does: with its flags, and with only the
// rights that it grants.
func documentedControllersWork(t *testing.T, binary string) {
	manifest := mustRun(t, binary, "-manifest=podcount", "-controllers=crowded,widgets", "-crowded-limit=2")
	f := fakekube.New()
	f.Serve(fakekube.Kind{Group: "example.com", Resource: "widgets", Kind: "Widget"})
	server, ca := fixture.Listen(t, f)
	f.Allow("admin-token")
	f.AddUser("podcount-token", "system:serviceaccount:kube-system:podcount")
	grantRights(t, f, manifest)
	addNamespace(f, "crowded", "Active", 3)
	addNamespace(f, "deleted", "Terminating", 3)
	addNamespace(f, "quiet", "Active", 2)
	f.PutJSON("widgets", `{"metadata":{"namespace":"quiet","name":"w"}}`)

	dir := t.TempDir()
	config := fakekube.Kubeconfig(server, ca, "token: podcount-token")
	testkit.WriteFiles(t, dir, map[string]string{"config": config})
	args := append(argsOf(t, manifest), "-kubeconfig="+filepath.Join(dir, "config"), "-listen=127.0.0.1:0",
		"-page=127.0.0.1:0")
	log, stop := startProcess(t, binary, args...)
	get := pagesAt(t, awaitAddress(t, f, log, pageMark))
	getMetrics := pagesAt(t, awaitAddress(t, f, log, listenMark))
	f.Await(t, "the Event", func() bool { return len(EventsOf(f, "Crowded")) > 0 })
	f.Await(t, "the status of the Widget", func() bool {
		status, _ := f.Get("widgets", fakekube.Key{Namespace: "quiet", Name: "w"})["status"].(fakekube.Object)
		return fmt.Sprint(status["pods"]) == "2"
	})
	f.Await(t, "the end of all reconciles", func() bool { return keysOf(t, get, "crowded") == 0 })
	_, metrics := getMetrics("/metrics")
	testkit.WantError(t, "the end", stop(), "") // with all Events posted, also one too many

	events := EventsOf(f, "Crowded")
	testkit.WantNumber(t, "objects with Events", len(events), 1)
	testkit.WantText(t, events[0], "Namespace/crowded in default: more pods than -crowded-limit")
	testkit.WantText(t, metrics, "# HELP crowded_total Warnings of namespaces.", "\ncrowded_total ")
	if strings.Contains(log.String(), "Forbidden") {
		t.Error("podcount lacks a right")
	}
}

// startProcess runs a command until the test ends, or until stop ends it with SIGTERM. log is its stderr.
func startProcess(t *testing.T, name string, args ...string) (log *testkit.Buffer, stop func() error) {
	t.Helper()
	log = &testkit.Buffer{}
	cmd := exec.Command(name, args...)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	stop = func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	}
	return log, stop
}

// grantRights stores the roles and the bindings of a manifest in the fake.
func grantRights(t *testing.T, f *fakekube.Server, manifest string) {
	t.Helper()
	resources := map[string]string{
		"ClusterRole":        "clusterroles",
		"ClusterRoleBinding": "clusterrolebindings",
		"Role":               "roles",
		"RoleBinding":        "rolebindings",
	}
	for doc := range strings.SplitSeq(manifest, "\n---\n") {
		tree, err := yaml.Parse(doc)
		if err != nil {
			t.Fatal(err)
		}
		object := tree.(fakekube.Object)
		if resource, isKnown := resources[fakekube.TextIn(object, "kind")]; isKnown {
			f.Put(resource, object)
		}
	}
}

// addNamespace adds a namespace in this phase, with a number of pods.
func addNamespace(f *fakekube.Server, name, phase string, pods int) {
	f.Put("namespaces", fakekube.Object{
		"metadata": fakekube.Object{"name": name},
		"status":   fakekube.Object{"phase": phase},
	})
	for i := range pods {
		f.AddPod(name, fmt.Sprintf("web-%d", i), "")
	}
}

// keysOf returns how many keys the queue of a controller knows in a running podcount. get gets its pages.
func keysOf(t *testing.T, get getPage, controller string) int {
	t.Helper()
	for _, c := range stateOf(t, get).Controllers {
		if c.Name == controller {
			return c.Ready + len(c.Working) + c.Waiting + c.FailingCount
		}
	}
	t.Fatalf("/debug/state has no controller %s", controller)
	return 0
}
