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

	"podcount/internal/testkit"
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

// manifest returns parts of the manifest for settings that are right.
func manifest(t *testing.T, s Settings, parts ...string) string {
	t.Helper()
	text, err := Manifest(s, parts...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestManifestForTheDefaultsIsTheFilesHere(t *testing.T) {
	for _, part := range Parts {
		if part == "alerts" { // alerts.yaml is a rule file: see AlertRules
			continue
		}
		t.Run(part, func(t *testing.T) {
			want, err := os.ReadFile(part + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantEqual(t, "the file, which `make manifests` writes,", string(want), manifest(t, settings(), part))
		})
	}
}

func TestManifestHasNoMarksOfTheTemplatesLeft(t *testing.T) {
	for bits := range 1 << 8 {
		is := func(bit int) bool { return bits>>bit&1 == 1 }
		s := settings()
		s.PodCount = is(0)
		s.Count = is(1)
		s.PodEvents = is(2)
		s.DryRun = is(3)
		s.LeaderElect = is(4)
		s.Once = is(5)
		if is(6) {
			s.Port = 0
		}
		if is(7) {
			s.PodNamespace = "a"
		}
		text := manifest(t, s, "podcount", "policy", "network-policy")
		if strings.Contains(text, "#if") || strings.Contains(text, "$") || strings.Contains(text, "---\n---") {
			t.Fatalf("with the settings %+v something is left:\n%s", s, text)
		}
	}
}

func TestTemplatesUseEveryTerm(t *testing.T) {
	var all strings.Builder
	for _, part := range []string{"podcount", "policy", "network-policy", "alerts"} {
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
		if !strings.Contains(all.String(), "$"+name) {
			t.Errorf("no template has $%s", name)
		}
	}
}

func TestTemplateThatAsksForAnUnknownTermIsAnError(t *testing.T) {
	rows := []struct{ template, want string }{
		{"a: b #if nonsense\n", `there is no condition "nonsense"`},
		{"#if nonsense\na: b\n", `there is no condition "nonsense"`},
		{"a: $NONSENSE\n", "there is no value $NONSENSE"},
	}
	for _, row := range rows {
		t.Run(row.template, func(t *testing.T) {
			got, err := newTerms(settings()).render(row.template)
			if got != "" || err == nil || err.Error() != row.want {
				t.Errorf("got %q, %v, want %s", got, err, row.want)
			}
		})
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
		t.Run(row.name, func(t *testing.T) {
			got, err := terms.render(row.template)
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantEqual(t, "the document", got, row.want)
		})
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

func TestTextsThatYAMLWouldMistakeAreQuoted(t *testing.T) {
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

func TestSettingsThatCannotWorkAreRefused(t *testing.T) {
	rows := []struct {
		want   string
		change func(*Settings)
	}{
		{`-image "a b"`, func(s *Settings) { s.Image = "a b" }},
		{`-manifest-namespace ""`, func(s *Settings) { s.Namespace = "" }},
		{"begin with podcount, as in podcount-view", func(s *Settings) { s.Name = "view" }},
		{"has 64 characters", func(s *Settings) { s.Name = "podcount" + strings.Repeat("a", 56) }},
		{"does not end in -pods", func(s *Settings) { s.Name = "podcount-pods" }},
		{`"-master=http://a\nb" has a character that ca`, func(s *Settings) { s.Args = []string{"-master=http://a\nb"} }},
		{`"a\x00b" has a character that ca`, func(s *Settings) { s.Labels = []string{"a\x00b"} }},
	}
	for _, row := range rows {
		t.Run(row.want, func(t *testing.T) {
			text, err := Manifest(settings(row.change), "podcount")
			if text != "" || err == nil {
				t.Fatalf("got %v, and printed %q", err, text)
			}
			testkit.WantText(t, err.Error(), row.want)
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func TestPartsThatCannotBePrintedAreRefused(t *testing.T) {
	rows := []struct {
		want  string
		parts []string
	}{
		{`there is no "all"; there are ` + strings.Join(Parts, ", "), []string{"podcount", "all"}},
		{`-manifest names "policy" twice`, []string{"policy", "podcount", "policy"}},
	}
	for _, row := range rows {
		t.Run(row.want, func(t *testing.T) {
			text, err := Manifest(settings(), row.parts...)
			if text != "" || err == nil {
				t.Fatalf("got %v, and printed %q", err, text)
			}
			testkit.WantText(t, err.Error(), row.want)
		})
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
		if err := checkReference(image); err != nil {
			t.Errorf("%q: %v", image, err)
		}
	}
}

func TestImagesThatAreNoReferencesAreRefused(t *testing.T) {
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
			"registry.example:/a", "registry.example:x/a", "registry.example:70000/a", "registry.example:0/a",
			"-a.example/b", "http://registry.example/a", "[]:5000/a", "[x]/a",
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for _, image := range row.images {
				if err := checkReference(image); err == nil {
					t.Errorf("%q is accepted", image)
				}
			}
		})
	}
}

func TestPolicyIsForTheAccountAndTheLabelsOfTheFlags(t *testing.T) {
	s := settings()
	s.Name = "podcount-a"
	s.Namespace = "ops"
	s.Labels = []string{"x.y/all", "x.y/own"}
	text := manifest(t, s, "policy")
	testkit.WantText(t, text, `'["x.y/all","x.y/own"]'`)

	policies := strings.Count(text, "kind: ValidatingAdmissionPolicy\n")
	forTheAccount := strings.Count(text, `request.userInfo.username == "system:serviceaccount:ops:podcount-a"`)
	testkit.WantNumber(t, "policies", policies, 3)
	testkit.WantNumber(t, "policies for the account", forTheAccount, policies)
}

func TestEachPolicyIsBound(t *testing.T) {
	var names, bound []string
	for line := range strings.Lines(manifest(t, settings(), "policy")) {
		if name, ok := strings.CutPrefix(line, "metadata: {name: "); ok {
			names = append(names, strings.TrimSuffix(name, "}\n"))
		}
		if name, ok := strings.CutPrefix(line, "  policyName: "); ok {
			bound = append(bound, strings.TrimSuffix(name, "\n"))
		}
	}
	// A binding has the name of its policy, and follows it.
	testkit.WantEqual(t, "the bound policies", bound, slices.Compact(names))
}

// If check did not know a suffix, the objects of two podcounts could have the same name: podcount-a-x could be the name
// of one podcount, and the name podcount-a with the suffix -x of another.
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
	got := slices.Sorted(maps.Keys(used))
	want := slices.Sorted(slices.Values(nameSuffixes))
	testkit.WantEqual(t, "the suffixes in the templates", got, want)
}

// kubectl prints the object's own name first, as NAME.
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
