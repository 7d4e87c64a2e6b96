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
			cluster:    `"" nodes: list, watch, patch` + "\n" + `"" nodes: list, watch`,
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
