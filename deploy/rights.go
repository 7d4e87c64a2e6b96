package deploy

import (
	"fmt"
	"slices"
	"strings"
)

// Right lets podcount use some verbs on the objects of one resource.
type Right struct {
	APIGroup string   // "" is the core group
	Resource string   // in the plural, perhaps with a subresource: pods, deployments/status
	Verbs    []string // no wildcards

	// ClusterWide grants the right in the whole cluster. Without it, the right is granted in the namespaces whose pods
	// podcount reads.
	//
	// For Events, ClusterWide means Events about objects without a namespace, such as nodes. Kubernetes keeps these
	// Events in the namespace default, so the right is granted only there.
	ClusterWide bool
}

// roles has the rights of each of podcount's three roles.
type roles struct {
	cluster    []Right // for the whole cluster
	namespaced []Right // for the namespaces whose pods podcount reads
	inDefault  []Right // for the namespace default, where the Events about nodes are
}

// newRoles assigns each right that podcount needs with these settings to a role.
func newRoles(s Settings) roles {
	var r roles
	for _, right := range s.wantedRights() {
		right.Verbs = s.usedVerbs(right)
		if len(right.Verbs) == 0 {
			continue
		}
		switch {
		case right.ClusterWide && right.isEvents():
			r.inDefault = append(r.inDefault, right)
		case right.ClusterWide:
			r.cluster = append(r.cluster, right)
		default:
			r.namespaced = append(r.namespaced, right)
		}
	}
	includesDefault := s.PodNamespace == "" || s.PodNamespace == "default"
	if includesDefault && slices.ContainsFunc(r.namespaced, Right.isEvents) {
		r.inDefault = nil // The rights in namespaced include this one.
	}
	return r
}

// wantedRights returns the rights that the controllers need without -dry-run and -once. With these flags, usedVerbs
// removes some of their verbs.
func (s Settings) wantedRights() []Right {
	postEvents := Right{Resource: "events", Verbs: []string{"create", "patch"}}
	postEventsOnNodes := postEvents
	postEventsOnNodes.ClusterWide = true

	var rights []Right
	if s.PodCount {
		writeNodes := Right{Resource: "nodes", Verbs: []string{"list", "watch", "patch"}, ClusterWide: true}
		rights = append(rights, writeNodes, postEventsOnNodes)
	}
	rights = append(rights, Right{Resource: "pods", Verbs: []string{"list", "watch"}})
	if s.Count {
		rights = append(rights,
			Right{APIGroup: "demo.mark8s.io", Resource: "counts", Verbs: []string{"list", "watch"}},
			Right{APIGroup: "demo.mark8s.io", Resource: "counts/status", Verbs: []string{"patch"}})
	}
	if s.Count || s.PodCount && s.PodEvents {
		rights = append(rights, postEvents)
	}
	return append(rights, s.Rights...)
}

// usedVerbs returns those verbs of a right that podcount uses with these settings, in a new slice.
func (s Settings) usedVerbs(r Right) []string {
	return slices.DeleteFunc(slices.Clone(r.Verbs), func(verb string) bool {
		reads := verb == "get" || verb == "list" || verb == "watch"
		// podcount patches an Event only when it recurs, and with -once none does.
		raisesCount := r.isEvents() && verb == "patch"
		return s.DryRun && !reads || s.Once && raisesCount
	})
}

func (r Right) isEvents() bool { return r.APIGroup == "" && r.Resource == "events" }

// rulesOf formats the rules of a role in YAML, one per line.
func rulesOf(role []Right) string {
	var lines []string
	for _, r := range role {
		lines = append(lines, fmt.Sprintf("- {apiGroups: [%s], resources: [%s], verbs: [%s]}",
			scalar(r.APIGroup), scalar(r.Resource), strings.Join(r.Verbs, ", ")))
	}
	return strings.Join(lines, "\n")
}
