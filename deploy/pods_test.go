package deploy

import (
	"strings"
	"testing"

	"podcount/internal/api/yaml"
	"podcount/lab/testkit"
)

// set gives a list the value of a flag, which must be valid.
func set(t *testing.T, l *List, text string) {
	t.Helper()
	if err := l.Set(text); err != nil {
		t.Fatal(err)
	}
}

// parse reads a YAML document, which must be a map.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	tree, err := yaml.Parse(text)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return tree.(map[string]any)
}

// objects returns the objects of a manifest by their kind. Of several objects of a kind, it returns the last.
func objects(t *testing.T, manifest string) map[string]map[string]any {
	t.Helper()
	byKind := map[string]map[string]any{}
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		object := parse(t, document)
		byKind[object["kind"].(string)] = object
	}
	return byKind
}

// podSpec returns the spec of the pods in the part podcount.
func podSpec(t *testing.T, s Settings) map[string]any {
	t.Helper()
	byKind := objects(t, manifest(t, s, "podcount"))
	if s.Once {
		return at(byKind["CronJob"], "spec", "jobTemplate", "spec", "template", "spec")
	}
	return at(byKind["Deployment"], "spec", "template", "spec")
}

// at returns the map in a tree at this path of keys.
func at(tree map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		tree = tree[key].(map[string]any)
	}
	return tree
}

// container returns the only container of a pod.
func container(spec map[string]any) map[string]any {
	return spec["containers"].([]any)[0].(map[string]any)
}

// bothKinds are the kinds of objects whose pods a manifest describes.
var bothKinds = []struct {
	name string
	once bool
}{{"a Deployment", false}, {"a CronJob", true}}

func TestPodsAreAsTheSiteDecides(t *testing.T) {
	for _, kind := range bothKinds {
		t.Run(kind.name, func(t *testing.T) {
			s := settings(func(s *Settings) { s.Once = kind.once })
			set(t, &s.PullSecrets, "registry.key,123")
			set(t, &s.NodeSelector, "kubernetes.io/os=linux,Disk=,example.com/a=true")
			set(t, &s.Requests, "memory=0.5Gi,cpu=0.25")
			set(t, &s.Limits, "cpu=1500m,memory=1Gi")
			spec := podSpec(t, s)
			testkit.WantEqual(t, "imagePullSecrets", spec["imagePullSecrets"],
				any([]any{map[string]any{"name": "registry.key"}, map[string]any{"name": "123"}}))
			testkit.WantEqual(t, "nodeSelector", spec["nodeSelector"],
				any(map[string]any{"kubernetes.io/os": "linux", "Disk": "", "example.com/a": "true"}))
			testkit.WantEqual(t, "resources", container(spec)["resources"], any(map[string]any{
				"requests": map[string]any{"cpu": "0.25", "memory": "0.5Gi"},
				"limits":   map[string]any{"cpu": "1500m", "memory": "1Gi"},
			}))
		})
	}
}

func TestEmptyListsLeaveOutResources(t *testing.T) {
	s := settings()
	set(t, &s.Requests, "")
	set(t, &s.Limits, "")
	testkit.WantEqual(t, "resources", container(podSpec(t, s))["resources"],
		any(map[string]any{"requests": map[string]any{}, "limits": map[string]any{}}))
}

func TestGoMayUseNineTenthsOfTheMemoryLimit(t *testing.T) {
	rows := []struct{ limits, want string }{
		{"cpu=1,memory=128Mi", "115MiB"},
		{"memory=16Mi", "14MiB"},
		{"memory=1.5Gi", "1382MiB"},
		{"memory=512M", "439MiB"},
		{"memory=4000000k", "3433MiB"},
		{"memory=1000Gi", "921600MiB"},
	}
	for _, row := range rows {
		for _, kind := range bothKinds {
			t.Run(row.limits+" in "+kind.name, func(t *testing.T) {
				s := settings(func(s *Settings) { s.Once = kind.once })
				set(t, &s.Requests, "")
				set(t, &s.Limits, row.limits)
				want := any([]any{map[string]any{"name": "GOMEMLIMIT", "value": row.want}})
				testkit.WantEqual(t, "env", container(podSpec(t, s))["env"], want)
			})
		}
	}
}

func TestWithoutAMemoryLimitGoHasNone(t *testing.T) {
	for _, kind := range bothKinds {
		t.Run(kind.name, func(t *testing.T) {
			s := settings(func(s *Settings) { s.Once = kind.once })
			set(t, &s.Limits, "cpu=1")
			if env, isThere := container(podSpec(t, s))["env"]; isThere {
				t.Errorf("env is %v", env)
			}
		})
	}
}

func TestWrongItemsAreRefused(t *testing.T) {
	pods := DefaultPods()
	const memory = ": write bytes with Ki, Mi, Gi, k, M or G, as in 128Mi; 16Mi is the least"
	const unknown = ": write cpu=QUANTITY or memory=QUANTITY"
	tooLong := strings.Repeat("a", 64)
	rows := []struct {
		list       List
		text, want string
	}{
		{pods.PullSecrets, "a,B", `name 2 "B": "B" must be lower-case letters`},
		{pods.PullSecrets, "a,", `name 2 "": "" must be lower-case letters`},
		{pods.PullSecrets, ",", `name 1 "": "" must be lower-case letters`},
		{pods.PullSecrets, "a, b", `name 2 " b": " b" must be lower-case letters`},
		{pods.PullSecrets, "a=b", `name 1 "a=b": "a=b" must be lower-case letters`},
		{pods.PullSecrets, strings.Repeat("a", 254), "have at most 253 characters"},

		{pods.NodeSelector, "a", `label 1 "a": write KEY=VALUE, or KEY= if the value is empty`},
		{pods.NodeSelector, "a=b,", `label 2 "": write KEY=VALUE`},
		{pods.NodeSelector, "a=b,=c", `label 2 "=c": label key "" must have 1 to 63 letters`},
		{pods.NodeSelector, "A.example/b=c", `label 1 "A.example/b=c": label key "A.example/b" must have`},
		{pods.NodeSelector, "a!=b", `label 1 "a!=b": label key "a!" must have`},
		{pods.NodeSelector, "a==b", `label 1 "a==b": label value "=b" must have at most 63 letters`},
		{pods.NodeSelector, "a=b\n", `label 1 "a=b\n": label value "b\n" must have`},
		{pods.NodeSelector, "a=" + tooLong, `: label value "` + tooLong + `" must have at most 63 letters`},

		{pods.Requests, "memory=128", `resource 1 "memory=128"` + memory},
		{pods.Requests, "memory=128m", `resource 1 "memory=128m"` + memory},
		{pods.Requests, "memory=128mi", `resource 1 "memory=128mi"` + memory},
		{pods.Requests, "memory=128MiB", `resource 1 "memory=128MiB"` + memory},
		{pods.Requests, "memory=128K", `resource 1 "memory=128K"` + memory},
		{pods.Requests, "memory=16383Ki", `resource 1 "memory=16383Ki"` + memory},
		{pods.Limits, "cpu=1,gpu=1", `resource 2 "gpu=1"` + unknown},
		{pods.Limits, "cpu=1,", `resource 2 ""` + unknown},
	}
	for _, row := range rows {
		testkit.WantError(t, row.list.noun+" "+row.text, row.list.Set(row.text), row.want)
	}
}

func TestListReplacesItsDefault(t *testing.T) {
	limits := DefaultPods().Limits
	testkit.WantEqual(t, "the default", limits.String(), "cpu=1,memory=128Mi")
	set(t, &limits, "memory=256Mi")
	testkit.WantEqual(t, "the list", limits.String(), "memory=256Mi")
	set(t, &limits, limits.String())
	testkit.WantEqual(t, "the list that it reads from its own text", limits.String(), "memory=256Mi")
	set(t, &limits, "")
	testkit.WantEqual(t, "the empty list", limits.String(), "")
}
