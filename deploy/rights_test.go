package deploy

import (
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// ownRights are the rights of a controller that reads nodes and Deployments, posts Events about both, and scales
// Deployments.
var ownRights = []Right{
	{Resource: "nodes", Verbs: []string{"list", "watch"}, ClusterWide: true},
	{APIGroup: "apps", Resource: "deployments", Verbs: []string{"list", "watch"}},
	{APIGroup: "apps", Resource: "deployments/scale", Verbs: []string{"patch"}},
	{Resource: "events", Verbs: []string{"create", "patch"}},
	{Resource: "events", Verbs: []string{"create", "patch"}, ClusterWide: true},
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
			name: "that run once, and repeat no Event",
			change: func(s *Settings) {
				s.Once = true
				s.LeaderElect = false
			},
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
			name:       "that need no rights",
			change:     func(s *Settings) { s.Rights = nil },
			namespaced: `"" pods: list, watch`,
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := settings()
			s.PodCount = false
			s.Count = false
			s.Rights = ownRights
			row.change(&s)
			cluster, namespaced, inDefault := rulesIn(t, s)
			testkit.WantEqual(t, "the rules for the cluster", cluster, row.cluster)
			testkit.WantEqual(t, "the rules for the namespaces of pods", namespaced, row.namespaced)
			testkit.WantEqual(t, "the rules for the namespace default", inDefault, row.defaultRole)
		})
	}
}

// rulesIn returns the rules of each role, as lines of the form GROUP RESOURCE: VERBS. It checks that the manifest has
// these rules.
func rulesIn(t *testing.T, s Settings) (cluster, namespaced, inDefault string) {
	t.Helper()
	r := newRoles(s)
	text := manifest(t, s, "podcount")
	shorten := strings.NewReplacer("- {apiGroups: [", "", "], resources: [", " ", "], verbs: [", ": ", "]}", "")
	shortRules := func(role []Right) string {
		rules := rulesOf(role)
		if rules != "" {
			testkit.WantText(t, text, "rules:\n"+rules+"\n---\n")
		}
		return shorten.Replace(rules)
	}
	return shortRules(r.cluster), shortRules(r.namespaced), shortRules(r.inDefault)
}

func TestRightThatIsNoRuleIsRefused(t *testing.T) {
	rows := []struct {
		name  string
		right Right
		want  string
	}{
		{"no resource", Right{Verbs: []string{"list"}}, "must have a resource and verbs"},
		{"no verb", Right{Resource: "pods"}, "must have a resource and verbs"},
		{"any resource", Right{Resource: "*", Verbs: []string{"list"}}, `"*" in a controller's Rights`},
		{"any verb", Right{Resource: "pods", Verbs: []string{"*"}}, `"*" in a controller's Rights`},
		{"two groups", Right{APIGroup: "a, b", Resource: "c", Verbs: []string{"list"}}, `"a, b" in a controller's Rights`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := settings()
			s.Rights = []Right{row.right}
			text, err := Manifest(s, "podcount")
			testkit.WantEqual(t, "the manifest", text, "")
			testkit.WantError(t, "Manifest", err, "-manifest: ")
			testkit.WantError(t, "Manifest", err, row.want)
		})
	}
}

// The verbs of the first right have room for one more. newRoles must not write the other right's verb there.
func TestRolesLeaveSharedVerbsAlone(t *testing.T) {
	verbs := []string{"list", "unused"}
	s := settings()
	s.Rights = []Right{
		{Resource: "nodes", Verbs: verbs[:1]},
		{Resource: "nodes", Verbs: []string{"get"}},
	}
	newRoles(s)
	testkit.WantEqual(t, "the verbs", verbs, []string{"list", "unused"})
}
