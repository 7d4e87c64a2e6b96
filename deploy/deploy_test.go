package deploy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
)

// settings returns the settings of `podcount -manifest` without other flags, with these changes.
func settings(changes ...func(*Settings)) Settings {
	s := Settings{
		Name:           "podcount",
		Namespace:      "kube-system",
		Image:          "podcount:latest",
		Args:           []string{"-leader-elect=true", "-listen=:8080", "-page=127.0.0.1:8081", "-pod-events=off"},
		Port:           8080,
		PodCount:       true,
		Count:          true,
		LeaderElect:    true,
		Labels:         []string{"hopegi/pod-count"},
		LeaseNamespace: "kube-system",
		Pods:           DefaultPods(),
		QPS:            20,
		StuckAfter:     131 * time.Second,
		LeaseDuration:  15 * time.Second,
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

// manifest returns these parts of the manifest. The settings must be valid.
func manifest(t *testing.T, s Settings, parts ...string) string {
	t.Helper()
	text, err := Manifest(s, parts...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestFilesHereAreTheDefaultManifest(t *testing.T) {
	for _, part := range Parts {
		if part == "alerts" { // The file alerts.yaml is from alertRules.
			continue
		}
		t.Run(part, func(t *testing.T) {
			file := testkit.ReadFile(t, part+".yaml")
			want := manifest(t, settings(), part)
			testkit.WantEqual(t, "the file, which `make manifests` writes,", file, want)
		})
	}
}

func TestManifestHasNoMarksLeft(t *testing.T) {
	const switches = 9
	for combination := range 1 << switches {
		isOn := func(i int) bool { return combination>>i&1 == 1 }
		s := settings()
		s.PodCount = isOn(0)
		s.Count = isOn(1)
		s.PodEvents = isOn(2)
		s.DryRun = isOn(3)
		s.LeaderElect = isOn(4)
		s.Once = isOn(5)
		if isOn(6) {
			s.Port = 0
		}
		if isOn(7) {
			s.PodNamespace = "a"
		}
		if isOn(8) {
			set(t, &s.PullSecrets, "a")
			set(t, &s.NodeSelector, "a=b")
			set(t, &s.Limits, "")
		}
		text := manifest(t, s, "podcount", "policy", "network-policy")
		for _, mark := range []string{"#if", "$", "---\n---"} {
			if strings.Contains(text, mark) {
				t.Fatalf("with the settings %+v, %q is left:\n%s", s, mark, text)
			}
		}
	}
}

func TestTemplatesUseEveryTerm(t *testing.T) {
	var all strings.Builder
	for _, part := range []string{"podcount", "policy", "network-policy", "alerts", "pod-monitor"} {
		text, err := files.ReadFile(fileOf(part))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	terms := newTerms(settings())
	for condition := range terms.conditions {
		if !strings.Contains(all.String(), "#if "+condition+"\n") {
			t.Errorf("no template has #if %s", condition)
		}
	}
	for name := range terms.values {
		isUsed := regexp.MustCompile(`\$` + name + `\b`).MatchString(all.String())
		if !isUsed {
			t.Errorf("no template has $%s", name)
		}
	}
}

func TestMarksOfATemplate(t *testing.T) {
	terms := terms{
		conditions: map[string]bool{"yes": true, "no": false},
		values:     map[string]string{"ONE": "1", "LINES": "- a\n- $ONE"},
	}
	rows := []struct{ name, template, want string }{
		{"a line", "a #if yes\nb #if no\nc\n", "a\nc\n"},
		{"a paragraph", "#if no\na\nb\n\nc\n", "c\n"},
		{"a paragraph that stays", "#if yes\na\n\nb\n", "a\n\nb\n"},
		{"a document", "#if no\na\nb\n", ""},
		{"an indented mark", "a\n  #if no\n  b\n\nc\n", "a\nc\n"},
		{"a value", "a: $ONE\n", "a: 1\n"},
		{"a value of two lines", "a:\n  $LINES\n", "a:\n  - a\n  - $ONE\n"},
	}
	for _, row := range rows {
		testkit.WantEqual(t, row.name, terms.render(row.template), row.want)
	}
}

func TestOneReplicaHasNoLeaseAndNoDisruptionBudget(t *testing.T) {
	rows := []struct {
		name   string
		change func(*Settings)
	}{
		{"without an election", func(s *Settings) { s.LeaderElect = false }},
		{"in a dry run, which takes no Lease", func(s *Settings) { s.DryRun = true }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			text := manifest(t, settings(row.change), "podcount")
			testkit.WantText(t, text, "replicas: 1\n")
			for _, absent := range []string{"kind: Lease", "leases", "PodDisruptionBudget"} {
				if strings.Contains(text, absent) {
					t.Errorf("there is %s in:\n%s", absent, text)
				}
			}
		})
	}
}

func TestNetworkPolicyAllowsOnlyThePort(t *testing.T) {
	text := manifest(t, settings(func(s *Settings) { s.Port = 9090 }), "network-policy")
	testkit.WantText(t, text, "ports: [{port: 9090}]")
}

func TestNetworkPolicyAllowsNothingWithoutAPort(t *testing.T) {
	text := manifest(t, settings(func(s *Settings) { s.Port = 0 }), "network-policy")
	testkit.WantText(t, text, "policyTypes: [Ingress]\n")
	if strings.Contains(text, "ingress:") {
		t.Errorf("something is allowed:\n%s", text)
	}
}

func TestPodMonitorSelectsThePodsAndTheirPort(t *testing.T) {
	s := settings(func(s *Settings) {
		s.Name = "podcount-a"
		s.Namespace = "ops"
		s.Port = 9090
	})
	byKind := objects(t, manifest(t, s, "podcount", "pod-monitor"))
	deployment, monitor := byKind["Deployment"], byKind["PodMonitor"]
	testkit.WantEqual(t, "apiVersion", monitor["apiVersion"], any("monitoring.coreos.com/v1"))
	testkit.WantEqual(t, "metadata", monitor["metadata"], deployment["metadata"])
	selected := at(monitor, "spec", "selector")["matchLabels"]
	testkit.WantEqual(t, "the labels that it selects", selected, at(deployment, "spec", "template", "metadata")["labels"])

	port := container(at(deployment, "spec", "template", "spec"))["ports"].([]any)[0].(map[string]any)["name"]
	testkit.WantEqual(t, "podMetricsEndpoints", at(monitor, "spec")["podMetricsEndpoints"],
		any([]any{map[string]any{"port": port, "path": "/metrics"}}))
}

func TestTextsThatYAMLMisreadsAreQuoted(t *testing.T) {
	for _, text := range []string{
		"123", "1e3", "0x1f", "0o7", "1-2-3", "2026-01-02", "null", "true", "false", "on", "off", "yes", "no", "y", "n",
		"", "~", "-", ".inf", "a: b", "a #b", "a:", "{a}", "a,b", "*a", "&a", "!a", "%a", "@a", "`a`", "Null", "TRUE",
	} {
		testkit.WantEqual(t, "the scalar", scalar(text), fmt.Sprintf("%q", text))
	}
}

func TestOtherTextsAreNotQuoted(t *testing.T) {
	for _, text := range []string{
		"kube-system", "podcount:latest", "r.example:5000/a/b:v1", "a@sha256:0", "nullable", "e3", "x1f",
	} {
		testkit.WantEqual(t, "the scalar", scalar(text), text)
	}
}

func TestArgumentsAreQuotedAndTheirDollarsDoubled(t *testing.T) {
	s := settings()
	s.Args = []string{`-total-nodes=k in (a,b)`, `-field-selector=metadata.name=a"\,$(B)`}
	// Kubernetes takes $$ for $, and would replace $(B).
	const want = `        args:
        - "-total-nodes=k in (a,b)"
        - "-field-selector=metadata.name=a\"\\,$$(B)"
`
	testkit.WantText(t, manifest(t, s, "podcount"), want)
}

// If checkName did not know the suffix -x, two podcounts with the names podcount-a and podcount-a-x could both have an
// object podcount-a-x.
func TestSuffixesAreThoseOfTheTemplates(t *testing.T) {
	used := map[string]bool{}
	for _, part := range []string{"podcount", "policy", "network-policy"} {
		text, err := files.ReadFile("templates/" + part + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`name: \$NAME(-[a-z]+)`).FindAllStringSubmatch(string(text), -1) {
			used[match[1]] = true
		}
	}
	got := slices.Sorted(maps.Keys(used))
	want := slices.Sorted(slices.Values(nameSuffixes))
	testkit.WantEqual(t, "the suffixes in the templates", got, want)
}

// kubectl adds a first column NAME, with the name of the object.
func TestColumnsOfCountsHaveNamesOfTheirOwn(t *testing.T) {
	text := manifest(t, settings(), "count-crd")
	seen := map[string]bool{"NAME": true}
	columns := regexp.MustCompile(`- \{name: (\w+), type: \w+, jsonPath: `).FindAllStringSubmatch(text, -1)
	for _, column := range columns {
		heading := strings.ToUpper(column[1])
		if seen[heading] {
			t.Errorf("there are two columns %s", heading)
		}
		seen[heading] = true
	}
	testkit.WantNumber(t, "columns", len(columns), 5)
}

func TestImageReferencesAreAccepted(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for _, image := range []string{
		"podcount", "podcount:latest", "podcount:V1.2_3-x", "library/podcount", "registry.example/podcount:v1",
		"registry.example:5000/a/b/podcount", "localhost/podcount", "localhost:5000/podcount:1", "REGISTRY/podcount",
		"[::1]:5000/podcount", "127.0.0.1/podcount", "a/b--c", "a/b__c", "a/b.c_d",
		"podcount@" + digest, "registry.example:5000/podcount:v1@" + digest,
	} {
		testkit.WantError(t, image, Settings{Image: image}.checkImage(), "")
	}
}

func TestWrongImageReferencesAreRefused(t *testing.T) {
	const sum = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
	rows := []struct {
		name   string
		images []string
	}{
		{"path", []string{
			"", " ", "a b", "podcount\t", "podcount\x00", "Podcount", "registry.example/Podcount", "/podcount", "podcount/",
			"a//b", "a/b___c", "a/b..c", "a/b-", "a/.b", "$IMAGE", `"podcount"`, strings.Repeat("a", 256),
		}},
		{"tag", []string{
			"podcount:", "podcount:a b", "podcount:.a", "podcount:latest\n", "podcount:ä",
			"podcount:" + strings.Repeat("a", 129),
		}},
		{"digest", []string{
			"podcount@", "podcount@sha256", "podcount@sha256:123", "podcount@sha256:" + sum + "x", "podcount@sha512:" + sum,
			"podcount@sha256:" + strings.ToUpper(sum), "podcount@md5:" + sum[:32],
		}},
		{"host", []string{
			"registry.example:/a", "registry.example:x/a",
			"-a.example/b", "http://registry.example/a", "[]:5000/a", "[x]/a",
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for _, image := range row.images {
				testkit.WantError(t, image, Settings{Image: image}.checkImage(), "-image ")
			}
		})
	}
}
