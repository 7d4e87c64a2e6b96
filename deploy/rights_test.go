package deploy

import (
	"strings"
	"testing"

	"podcount/internal/testkit"
)

// ownRights are those of a controller that reads nodes and Deployments, scales these, and posts Events about both.
var ownRights = []Right{
	{Resource: "nodes", Verbs: []string{"list", "watch"}, ClusterWide: true},
	{APIGroup: "apps", Resource: "deployments", Verbs: []string{"list", "watch"}},
	{APIGroup: "apps", Resource: "deployments/scale", Verbs: []string{"patch"}},
	{Resource: "events", Verbs: []string{"create", "patch"}},
	{Resource: "events", Verbs: []string{"create", "patch"}, ClusterWide: true},
}

// rulesIn returns the rules of each role that s has, in the form in which the manifest shows them, but shorter.
func rulesIn(t *testing.T, s Settings) (cluster, namespaced, inDefault string) {
	t.Helper()
	r := newRoles(s)
	text, err := Manifest(s, "podcount")
	if err != nil {
		t.Fatal(err)
	}
	short := func(role []Right) string {
		rules := rulesOf(role)
		if rules != "" && !strings.Contains(text, "rules:\n"+rules+"\n---\n") {
			t.Errorf("the manifest has no role with these rules:\n%s\nin:\n%s", rules, text)
		}
		shorten := strings.NewReplacer("- {apiGroups: [", "", "], resources: [", " ", "], verbs: [", ": ", "]}", "")
		return shorten.Replace(rules)
	}
	return short(r.cluster), short(r.namespaced), short(r.inDefault)
}

func TestRightsOfOwnControllersAreInTheRoles(t *testing.T) {
	const deployments = "apps deployments: list, watch\n"
	const scale = "apps deployments/scale: patch\n"
	rows := []struct {
		name                             string
		change                           func(s *Settings)
		cluster, namespaced, defaultRole string
	}{
		{
			name:       "in every namespace",
			change:     func(s *Settings) {},
			cluster:    `"" nodes: list, watch`,
			namespaced: `"" pods: list, watch` + "\n" + deployments + scale + `"" events: create, patch`,
		},
		{
			name:        "in one namespace",
			change:      func(s *Settings) { s.PodNamespace = "a" },
			cluster:     `"" nodes: list, watch`,
			namespaced:  `"" pods: list, watch` + "\n" + deployments + scale + `"" events: create, patch`,
			defaultRole: `"" events: create, patch`,
		},
		{
			name:       "in the namespace of Events about nodes",
			change:     func(s *Settings) { s.PodNamespace = "default" },
			cluster:    `"" nodes: list, watch`,
			namespaced: `"" pods: list, watch` + "\n" + deployments + scale + `"" events: create, patch`,
		},
		{
			name:       "that write nothing",
			change:     func(s *Settings) { s.DryRun = true },
			cluster:    `"" nodes: list, watch`,
			namespaced: `"" pods: list, watch` + "\n" + strings.TrimSpace(deployments),
		},
		{
			name:       "that run once, and repeat no Event",
			change:     func(s *Settings) { s.Once, s.LeaderElect = true, false },
			cluster:    `"" nodes: list, watch`,
			namespaced: `"" pods: list, watch` + "\n" + deployments + scale + `"" events: create`,
		},
		{
			name:       "beside pod-count, which patches nodes",
			change:     func(s *Settings) { s.PodCount = true },
			cluster:    `"" nodes: list, watch, patch`,
			namespaced: `"" pods: list, watch` + "\n" + deployments + scale + `"" events: create, patch`,
		},
		{
			name:        "that post Events about nodes only",
			change:      func(s *Settings) { s.Rights = ownRights[4:] },
			namespaced:  `"" pods: list, watch`,
			defaultRole: `"" events: create, patch`,
		},
		{
			name:       "that are none",
			change:     func(s *Settings) { s.Rights = nil },
			namespaced: `"" pods: list, watch`,
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := settings(func(s *Settings) { s.PodCount, s.Count, s.Rights = false, false, ownRights }, row.change)
			cluster, namespaced, inDefault := rulesIn(t, s)
			testkit.WantEqual(t, "the rules for the cluster", cluster, row.cluster)
			testkit.WantEqual(t, "the rules for the namespaces of pods", namespaced, row.namespaced)
			testkit.WantEqual(t, "the rules for the namespace default", inDefault, row.defaultRole)
		})
	}
}

func TestRightThatIsNoRuleIsRefused(t *testing.T) {
	rows := []struct {
		name  string
		right Right
		want  string
	}{
		{"no resource", Right{Verbs: []string{"list"}}, "must have a resource and verbs"},
		{"no verb", Right{Resource: "pods"}, "must have a resource and verbs"},
		{"any resource", Right{Resource: "*", Verbs: []string{"list"}}, `names "*"`},
		{"any verb", Right{Resource: "pods", Verbs: []string{"*"}}, `names "*"`},
		{"two groups", Right{APIGroup: "a, b", Resource: "c", Verbs: []string{"list"}}, `names "a, b"`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			text, err := Manifest(settings(func(s *Settings) { s.Rights = []Right{row.right} }), "podcount")
			if text != "" || err == nil {
				t.Fatalf("got %v, and printed %q", err, text)
			}
			testkit.WantText(t, err.Error(), "-manifest: ", row.want)
		})
	}
}

func TestRolesLeaveSharedVerbsAlone(t *testing.T) {
	verbs := make([]string, 1, 10)
	verbs[0] = "list"
	s := settings(func(s *Settings) {
		s.Rights = []Right{{Resource: "nodes", Verbs: verbs[:1]}, {Resource: "nodes", Verbs: []string{"get"}}}
	})
	newRoles(s)
	testkit.WantEqual(t, "the verb after the ones that were given", verbs[:2][1], "")
}
