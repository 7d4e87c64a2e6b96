package deploy

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// settings are those of `podcount -manifest` without other flags.
func settings(change ...func(*Settings)) Settings {
	s := Settings{
		Name:           "podcount",
		Namespace:      "kube-system",
		Image:          "podcount:latest",
		Args:           []string{"-leader-elect=true", "-listen=:8080", "-pod-events=off"},
		Port:           8080,
		PodCount:       true,
		Count:          true,
		LeaderElect:    true,
		Labels:         []string{"hopegi/pod-count"},
		LeaseNamespace: "kube-system",
		QPS:            20,
		StuckAfter:     131 * time.Second,
		LeaseDuration:  15 * time.Second,
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func TestManifestForTheDefaultsIsTheFilesHere(t *testing.T) {
	for _, part := range Parts {
		if part == "alerts" { // alerts.yaml is for Prometheus itself: see AlertRules
			continue
		}
		want, err := os.ReadFile(part + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		got, err := Manifest(settings(), part)
		if err != nil || got != string(want) {
			t.Errorf("%s.yaml is not what is printed (make manifests): %v\n%s", part, err, got)
		}
	}
}

// Every mark of the templates is one that the program knows, and none is left in what is printed.
func TestManifestHasNoMarksOfTheTemplatesLeft(t *testing.T) {
	for bits := range 1 << 8 {
		is := func(bit int) bool { return bits>>bit&1 == 1 }
		text, err := Manifest(settings(func(s *Settings) {
			s.PodCount, s.Count = is(0), is(1)
			s.PodEvents = is(2)
			s.DryRun = is(3)
			s.LeaderElect = is(4)
			if is(5) {
				s.Port = 0
			}
			if is(6) {
				s.PodNamespace = "a"
			}
			s.Once = is(7)
		}), "podcount", "policy", "network-policy")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "#if") || strings.Contains(text, "$") || strings.Contains(text, "---\n---") {
			t.Fatalf("with the settings %b something is left:\n%s", bits, text)
		}
	}
}

func TestOneReplicaWithoutAnElectionHasNoLeaseAndNoDisruptionBudget(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"-leader-elect=false":                   func(s *Settings) { s.LeaderElect = false },
		"-dry-run, which takes no Lease either": func(s *Settings) { s.DryRun = true },
	} {
		text, err := Manifest(settings(change), "podcount")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, "replicas: 1\n") {
			t.Errorf("%s: not one replica", name)
		}
		for _, absent := range []string{"kind: Lease", "leases", "PodDisruptionBudget"} {
			if strings.Contains(text, absent) {
				t.Errorf("%s: there is a %s", name, absent)
			}
		}
	}
}

func TestNetworkPolicyLetsNobodyInWithoutAPort(t *testing.T) {
	text, err := Manifest(settings(func(s *Settings) { s.Port = 9090 }), "network-policy")
	if err != nil || !strings.Contains(text, "ports: [{port: 9090}]") {
		t.Errorf("%v\n%s", err, text)
	}
	text, err = Manifest(settings(func(s *Settings) { s.Port = 0 }), "network-policy")
	if err != nil || !strings.Contains(text, "policyTypes: [Ingress]\n") || strings.Contains(text, "ingress:") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestTextsThatYAMLWouldReadAsSomethingElseAreQuoted(t *testing.T) {
	for _, text := range []string{
		"123", "1e3", "0x1f", "0o7", "1-2-3", "2026-01-02", "null", "true", "false", "on", "off", "yes", "no", "y", "n",
		"", "~", "-", ".inf", "a: b", "a #b", "a:", "{a}", "a,b", "*a", "&a", "!a", "%a", "@a", "`a`", "Null", "TRUE",
	} {
		if got := scalar(text); got != fmt.Sprintf("%q", text) {
			t.Errorf("%q is written as %s", text, got)
		}
	}
	for _, text := range []string{"kube-system", "podcount:latest", "r.example:5000/a/b:v1", "a@sha256:0", "nullable", "e3", "x1f"} {
		if got := scalar(text); got != text {
			t.Errorf("%q is written as %s", text, got)
		}
	}
}

func TestArgumentsAreQuotedAndTheirDollarsDoubled(t *testing.T) {
	text, err := Manifest(settings(func(s *Settings) {
		s.Args = []string{`-total-nodes=k in (a,b)`, `-field-selector=metadata.name=a"\,$(B)`}
	}), "podcount")
	if err != nil {
		t.Fatal(err)
	}
	// Kubernetes takes $$ for $, and would replace $(B).
	want := "        args:\n        - \"-total-nodes=k in (a,b)\"\n        - \"-field-selector=metadata.name=a\\\"\\\\,$$(B)\"\n"
	if !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}

func TestManifestThatCannotWorkIsRefusedWithTheFlagToChange(t *testing.T) {
	for want, change := range map[string]func(*Settings){
		"-image":                 func(s *Settings) { s.Image = "a b" },
		`-manifest-namespace ""`: func(s *Settings) { s.Namespace = "" },
		"begin with podcount, as in podcount-view":      func(s *Settings) { s.Name = "view" },
		"has 64 characters":                             func(s *Settings) { s.Name = "podcount" + strings.Repeat("a", 56) },
		"must not end in -pods":                         func(s *Settings) { s.Name = "podcount-pods" },
		`"-master=http://a\nb" has a character that ca`: func(s *Settings) { s.Args = []string{"-master=http://a\nb"} },
	} {
		text, err := Manifest(settings(change), "podcount")
		if text != "" || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q; printed: %q", err, want, text)
		}
	}
	text, err := Manifest(settings(), "podcount", "all")
	known := `there is no "all"; there are podcount, policy, network-policy, count-crd, count-sample, alerts`
	if text != "" || err == nil || !strings.Contains(err.Error(), known) {
		t.Errorf("%v; printed: %q", err, text)
	}
}

func TestImagesAreReferences(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for _, image := range []string{
		"podcount", "podcount:latest", "podcount:V1.2_3-x", "library/podcount", "registry.example/podcount:v1",
		"registry.example:5000/a/b/podcount", "localhost/podcount", "localhost:5000/podcount:1", "REGISTRY/podcount",
		"[::1]:5000/podcount", "127.0.0.1/podcount", "a/b--c", "a/b__c", "a/b.c_d",
		"podcount@" + digest, "registry.example:5000/podcount:v1@" + digest,
	} {
		if err := checkImage(image); err != nil {
			t.Errorf("%q: %v", image, err)
		}
	}
	for _, image := range []string{
		"", " ", "a b", "podcount:latest\n", "podcount\t", "podcount\x00", "Podcount", "registry.example/Podcount",
		"podcount:", "podcount:a b", "podcount:.a", "podcount:" + strings.Repeat("a", 129), "podcount@", "podcount@sha256", "podcount@sha512:" + strings.Repeat("0a", 32),
		"podcount@sha256:" + strings.Repeat("0A", 32), "podcount@md5:" + strings.Repeat("0a", 16),
		"podcount@sha256:123", "podcount@" + digest + "x", "/podcount", "podcount/", "a//b", "registry.example:/a",
		"registry.example:x/a", "registry.example:70000/a", "-a.example/b", "http://registry.example/a", "a/b___c", "a/b..c",
		"a/b-", "a/.b", "$IMAGE", `"podcount"`, "podcount:ä", strings.Repeat("a", 256),
	} {
		if err := checkImage(image); err == nil {
			t.Errorf("%q is accepted", image)
		}
	}
}

func TestPolicyIsForTheAccountAndTheLabelsOfTheFlags(t *testing.T) {
	text, err := Manifest(settings(func(s *Settings) {
		s.Name = "podcount-a"
		s.Namespace = "ops"
		s.Labels = []string{"x.y/all", "x.y/own"}
	}), "policy")
	if err != nil {
		t.Fatal(err)
	}
	policies := strings.Count(text, "kind: ValidatingAdmissionPolicy\n")
	if n := strings.Count(text, `request.userInfo.username == "system:serviceaccount:ops:podcount-a"`); n != policies || n == 0 {
		t.Errorf("%d of %d policies are for the account", n, policies)
	}
	var policyNames, bound []string
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "metadata: {name: "); ok {
			policyNames = append(policyNames, strings.TrimSuffix(name, "}\n"))
		}
		if name, ok := strings.CutPrefix(line, "  policyName: "); ok {
			bound = append(bound, strings.TrimSuffix(name, "\n"))
		}
	}
	if got := slices.Compact(policyNames); !slices.Equal(got, bound) {
		t.Errorf("the policies are %q, and bound are %q", got, bound)
	}
	if !strings.Contains(text, `'["x.y/all","x.y/own"]'`) {
		t.Error("it is for other labels")
	}
}

// Else the objects of two podcounts could have the same name: podcount-a-x of the one, and podcount-a with -x of the other.
func TestSuffixesAreThoseOfTheTemplates(t *testing.T) {
	used := map[string]bool{}
	for _, part := range []string{"podcount", "policy", "network-policy"} {
		text, err := files.ReadFile("templates/" + part + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`name: \$NAME(-[a-z]+)`).FindAllStringSubmatch(string(text), -1) {
			used[m[1]] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(used)), slices.Sorted(slices.Values(suffixes)); !slices.Equal(got, want) {
		t.Errorf("templates have %q, suffixes are %q", got, want)
	}
}

func TestNoPartIsPrintedTwice(t *testing.T) {
	s := Settings{Name: "podcount", Namespace: "a", Image: "podcount", Args: []string{"-v=2"}}
	if text, err := Manifest(s, "policy", "podcount", "policy"); err == nil || text != "" {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// kubectl prints the object's own name first, as NAME.
func TestColumnsOfCountsHaveNamesOfTheirOwn(t *testing.T) {
	text, err := Manifest(settings(), "count-crd")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"NAME": true}
	columns := regexp.MustCompile(`- \{name: (\w+), type: \w+, jsonPath: `).FindAllStringSubmatch(text, -1)
	for _, column := range columns {
		heading := strings.ToUpper(column[1])
		if seen[heading] {
			t.Errorf("there are two columns %s", heading)
		}
		seen[heading] = true
	}
	if len(columns) != 5 {
		t.Errorf("there are %d columns", len(columns))
	}
}
